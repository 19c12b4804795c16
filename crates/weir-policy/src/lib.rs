//! Control laws, pure: no I/O, no clock, no randomness. Time and observations come in as arguments, so
//! that the same code runs in the daemon, under property tests and in a seeded simulation.

pub mod governor;
pub mod settings;
pub mod sim;
pub mod units;

pub use governor::{Action, Doing, Governor, Observation, Patience};
pub use settings::{Prefer, Settings};
pub use units::{Nanos, Share, Weight};
