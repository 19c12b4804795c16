//! The lab: the experiments of Mogul & Ramakrishnan (1995) and Druschel & Banga (1996), re-run on
//! the kernel that is running.
//!
//! From the bottom up: a [`metric`] is declared once; a [`run`] is a head and trials, flat rows of metrics, and is
//! [`kept`] as JSON.
//! An [`arm`] is what is compared, a [`scene`] what runs where; the [`bench`] holds hosts and generator,
//! [`probe`] reads them, and the [`engine`] is the only trial loop. An [`experiment`] is data, with its
//! [`goals`]; [`lab`] runs it, and a [`view`] of the run is what the [`report`], [`ab`] and [`compare`] see;
//! these two say by [`difference`] what differs.
//!
//! What is hidden from the documentation is public for `weir` itself and its tests alone.

mod ab;
#[doc(hidden)]
pub mod apps;
mod arm;
mod bench;
pub mod cli;
mod compare;
mod difference;
mod engine;
pub mod error;
mod experiment;
#[doc(hidden)]
pub mod experiments;
mod goals;
mod histogram;
mod host;
mod kept;
mod lab;
mod machine;
mod meter;
#[doc(hidden)]
pub mod metric;
mod probe;
mod programs;
mod progress;
mod reading;
mod report;
#[doc(hidden)]
pub mod run;
mod scene;
#[doc(hidden)]
pub mod stats;
mod stop;
mod store;
mod view;

pub use error::{Error, Result};
