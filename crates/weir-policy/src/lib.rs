//! Control laws, pure: no I/O, no clock, no randomness. Time and observations come in as arguments, so
//! that the same code runs in the daemon and under property tests.

pub mod governor;
pub mod heavy;
pub mod screen;
pub mod settings;
pub mod shares;
pub mod units;

pub use governor::{Action, Governor, Observation, Regime};
pub use settings::{Prefer, Settings};
pub use shares::{Bound, Claim, Load, Shares};
pub use units::{Nanos, Nice, Share};
