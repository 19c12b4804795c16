//! The lab: the experiments of Mogul & Ramakrishnan (1995) and Druschel & Banga (1996), re-run on
//! the kernel that is running.
//!
//! A [`bench`] has one network namespace per mode with the system under test, and one that the load
//! comes from. A [`trial`] measures one mode at one rate and accounts for every packet; an
//! experiment, such as [`udp_overload`], is a plan of trials and what follows from them.

pub mod accounting;
pub mod bench;
pub mod cli;
pub mod compare;
mod congestion;
pub mod drops;
pub mod error;
pub mod far_end;
pub mod gate_cost;
pub mod goals;
pub mod histogram;
pub mod http_syn_flood;
pub mod interrupts;
pub mod kinds;
pub mod load;
pub mod machine;
pub mod merit;
pub mod neighbour;
pub mod nft;
pub mod order;
pub mod parity;
pub mod programs;
pub mod progress;
pub mod queue_depth;
pub mod rates;
pub mod receivers;
pub mod report;
pub mod results;
pub mod rpc_mix;
pub mod separation;
pub mod service;
pub mod setup;
pub mod speed;
pub mod stats;
pub mod stop;
pub mod topology;
pub mod trial;
pub mod udp_latency;
pub mod udp_overload;
pub mod user_share;
pub mod warnings;
pub mod worker;
pub mod worker_process;

pub use error::{Error, Result};
