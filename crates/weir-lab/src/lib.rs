//! The lab: the experiments of Mogul & Ramakrishnan (1995) and Druschel & Banga (1996), re-run on
//! the kernel that is running.
//!
//! From the bottom up: a [`metric`] is declared once; a [`run`] is a head and trials, flat rows of metrics.
//! An [`arm`] is what is compared, a [`scene`] what runs where; the [`bench`] holds hosts and generator,
//! [`probe`] reads them, and the [`engine`] is the only trial loop. An [`experiment`] is data, with its
//! [`goals`]; [`lab`] runs it, and a [`view`] of the run is what the [`report`], [`ab`] and [`compare`] see;
//! these two say by [`difference`] what differs.

pub mod ab;
pub mod apps;
pub mod arm;
pub mod bench;
pub mod cli;
pub mod compare;
pub mod difference;
pub mod engine;
pub mod error;
pub mod experiment;
pub mod experiments;
pub mod goals;
pub mod histogram;
pub mod host;
pub mod lab;
pub mod machine;
pub mod meter;
pub mod metric;
pub mod probe;
pub mod programs;
pub mod progress;
pub mod reading;
pub mod report;
pub mod run;
pub mod scene;
pub mod stats;
pub mod stop;
pub mod store;
pub mod view;

pub use error::{Error, Result};
