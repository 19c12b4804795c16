//! A seeded simulation of hosts, to try the law on machines that are not at hand (docs/simulation.md).
//!
//! The same seed gives the same figures, on any machine: no clock, no I/O.

mod cpu;
pub mod governed;
pub mod host;
pub mod machines;
pub mod outcome;
pub mod packets;
pub mod scheduler;
pub mod spec;
pub mod tables;
pub mod vm;

pub use host::Host;
pub use outcome::Outcome;
pub use packets::PacketsPerSec;
