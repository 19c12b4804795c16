//! The kernel boundary of weir: the only crate that touches libbpf and system calls.
//!
//! - [`gate`]: the gate, loaded and attached; [`probe`]: what teaches it;
//! - [`attach`], [`clsact`]: where a gate is attached; [`programs`]: whose else is there;
//! - [`features`]: what this kernel lacks;
//! - [`counters`]: what the gate has seen, by reason; [`channels`]: by channel, which [`prune`] keeps few;
//! - [`input`], [`softirq`]: what network input costs its CPU, polled by a thread or in softirqs;
//! - [`accounts`]: what it costs channel by channel, and may;
//! - [`screen`]: queues of user-mode screens, and what goes there; [`egress`]: those of egress interfaces;
//! - [`lazy`]: rings of lazy sockets;
//! - [`holders`]: which processes have which sockets open;
//! - [`tap`]: a capture's packets, by way of a [`filter`];
//! - [`wall`]: the kernel half of a user-mode screen;
//! - [`explain`]: what the gate makes of one packet; [`parser`]: its parser alone, for tests;
//! - [`traffic`]: the lab's load generator; [`replies`]: when it had which reply;
//!   [`steps`]: when its packets were where on their way to a receiver;
//! - [`bare`], [`poll_cost`], [`test_run`]: what the lab measures the gate's cost with;
//! - [`verdict`]: what the gate decides and why; [`printable`]: foreign text, safe for a terminal;
//! - [`sys`]: network namespaces, links, NAPI threads, scheduling, shared memory.

/// Numbers that the kernel half declares in its headers, which say what they are.
#[allow(unused_parens, reason = "C's macros have them")]
pub mod abi {
    include!(concat!(env!("OUT_DIR"), "/abi.rs"));
}
pub mod accounts;
pub mod alarm;
pub mod attach;
pub mod bare;
pub mod channels;
pub mod clsact;
pub mod counters;
pub mod cpulist;
pub mod egress;
pub mod error;
pub mod explain;
pub mod features;
pub mod filter;
pub mod forward;
pub mod gate;
pub mod holders;
pub mod input;
pub mod lazy;
mod mapped;
pub mod parser;
pub mod poll_cost;
pub mod printable;
pub mod probe;
pub mod programs;
pub mod prune;
mod record;
pub mod replies;
pub mod samples;
pub mod screen;
mod shared;
pub mod softirq;
pub mod steps;
pub mod sys;
pub mod tap;
pub mod test_run;
pub mod traffic;
pub mod units;
pub mod verdict;
pub mod wall;

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
    pub mod device {
        include!(concat!(env!("OUT_DIR"), "/device.skel.rs"));
    }
    pub mod egress {
        include!(concat!(env!("OUT_DIR"), "/egress.skel.rs"));
    }
    pub mod gate {
        include!(concat!(env!("OUT_DIR"), "/gate.skel.rs"));
    }
    pub mod holders {
        include!(concat!(env!("OUT_DIR"), "/holders.skel.rs"));
    }
    pub mod input {
        include!(concat!(env!("OUT_DIR"), "/input.skel.rs"));
    }
    pub mod parser {
        include!(concat!(env!("OUT_DIR"), "/parser.skel.rs"));
    }
    pub mod poll_cost {
        include!(concat!(env!("OUT_DIR"), "/poll_cost.skel.rs"));
    }
    pub mod queue {
        include!(concat!(env!("OUT_DIR"), "/queue.skel.rs"));
    }
    pub mod replies {
        include!(concat!(env!("OUT_DIR"), "/replies.skel.rs"));
    }
    pub mod rings {
        include!(concat!(env!("OUT_DIR"), "/rings.skel.rs"));
    }
    pub mod screen {
        include!(concat!(env!("OUT_DIR"), "/screen.skel.rs"));
    }
    pub mod softirq {
        include!(concat!(env!("OUT_DIR"), "/softirq.skel.rs"));
    }
    pub mod steps {
        include!(concat!(env!("OUT_DIR"), "/steps.skel.rs"));
    }
    pub mod tap {
        include!(concat!(env!("OUT_DIR"), "/tap.skel.rs"));
    }
    pub mod traffic {
        include!(concat!(env!("OUT_DIR"), "/traffic.skel.rs"));
    }
    pub mod wall {
        include!(concat!(env!("OUT_DIR"), "/wall.skel.rs"));
    }
}
