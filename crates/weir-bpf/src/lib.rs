//! The kernel boundary of weir: the only crate that touches libbpf and system calls.
//!
//! - [`gate`]: the gate and the queue probe, loaded and attached; [`counters`]: what it has seen;
//! - [`traffic`]: the lab's load generator;
//! - [`bare`], [`poll_cost`], [`lookup_cost`], [`test_run`]: what the lab measures the gate's cost with;
//! - [`verdict`]: what the gate decides and why;
//! - [`sys`]: network namespaces, links, NAPI threads, scheduling, shared memory.

pub mod bare;
pub mod counters;
pub mod error;
pub mod gate;
pub mod lookup_cost;
pub mod poll_cost;
pub mod sys;
pub mod test_run;
pub mod traffic;
pub mod units;
pub mod verdict;

pub use error::{Error, Result};

/// Skeletons that libbpf-cargo generates from the BPF objects.
#[allow(
    unsafe_code,
    unused_imports,
    missing_docs,
    clippy::all,
    clippy::undocumented_unsafe_blocks,
    clippy::unwrap_used
)]
mod skeleton {
    pub mod bare {
        include!(concat!(env!("OUT_DIR"), "/bare.skel.rs"));
    }
    pub mod gate {
        include!(concat!(env!("OUT_DIR"), "/gate.skel.rs"));
    }
    pub mod lookup_cost {
        include!(concat!(env!("OUT_DIR"), "/lookup_cost.skel.rs"));
    }
    pub mod poll_cost {
        include!(concat!(env!("OUT_DIR"), "/poll_cost.skel.rs"));
    }
    pub mod queue {
        include!(concat!(env!("OUT_DIR"), "/queue.skel.rs"));
    }
    pub mod traffic {
        include!(concat!(env!("OUT_DIR"), "/traffic.skel.rs"));
    }
}
