//! Control laws, pure: no I/O, no clock, no randomness. Time and observations come in as arguments, so
//! that the same code runs in the daemon, under property tests and in a seeded simulation (`tests/host`).

pub mod governor;
pub mod settings;
pub mod shares;
pub mod units;

pub use governor::{Action, Doing, Governor, Observation, Patience};
pub use settings::{Prefer, Settings};
pub use shares::{Bound, Claim, Load, Shares};
pub use units::{Nanos, Share, Weight};
