//! The kernel boundary of weir: the only crate that touches libbpf and system calls.
//!
//! - [`gate`]: the gate, loaded and attached; [`probe`]: what teaches it;
//! - [`attach`], [`clsact`]: where a gate is attached; [`programs`]: whose else is there;
//! - [`features`]: what this kernel lacks;
//! - [`alarm`]: whether gates sleep, and what wakes them;
//! - [`counters`]: what the gate has seen, by reason; [`channels`]: by channel, which [`prune`] keeps few;
//!   [`samples`]: samples of what it discards;
//! - [`input`], [`softirq`]: what network input costs its CPU, polled by a thread or in softirqs;
//! - [`accounts`]: what it costs channel by channel, and may;
//! - [`screen`]: queues of user-mode screens, and what goes there; [`egress`]: those of egress interfaces;
//! - [`lazy`]: rings of lazy sockets; [`forward`]: the fast path of forwarding;
//! - [`holders`]: which processes have which sockets open;
//! - [`tap`]: a capture's packets, by way of a [`filter`]; [`trace`]: the way of single packets;
//! - [`wall`]: the kernel half of a user-mode screen;
//! - [`explain`]: what the gate makes of one packet; [`parser`]: its parser alone, for tests;
//! - [`traffic`]: the lab's load generator; [`replies`]: when it had which reply;
//!   [`steps`]: when its packets were where on their way to a receiver;
//! - [`bare`], [`poll_cost`], [`test_run`]: what the lab measures the gate's cost with;
//! - [`verdict`]: what the gate decides and why; [`units`]: numbers with their units; [`cpulist`]: lists of CPUs;
//!   [`printable`]: foreign text, safe for a terminal; [`sync`]: locks; [`error`]: what goes wrong;
//! - [`sys`]: network namespaces, links, NAPI threads, scheduling, shared memory.

/// Numbers that the kernel half declares in its headers, which say what they are.
#[allow(unused_parens, reason = "C's macros have them")]
pub mod abi {
    include!(concat!(env!("OUT_DIR"), "/abi.rs"));
}
pub mod accounts;
mod address_table;
pub mod alarm;
pub mod attach;
mod attach_mode;
pub mod bare;
pub mod channels;
mod clock;
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
mod object;
pub mod parser;
pub mod poll_cost;
pub mod printable;
pub mod probe;
pub mod programs;
pub mod prune;
mod record;
pub mod replies;
mod ring;
pub mod samples;
pub mod screen;
pub mod softirq;
pub mod steps;
pub mod sync;
pub mod sys;
pub mod tap;
mod tc_bpf;
pub mod test_run;
#[path = "../../weir-socket/src/timens.rs"]
mod timens;
pub mod trace;
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
    include!(concat!(env!("OUT_DIR"), "/skeletons.rs"));
}
