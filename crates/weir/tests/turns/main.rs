//! Tests of `weir` on loaded CPUs, which take them one after the other. While some wait for their turn, those that need
//! no load run beside them.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]
#![allow(missing_docs, reason = "the names say it, and nobody else uses them")]

#[path = "../common/mod.rs"]
mod common;
mod doctor;
mod egress;
mod governed;
mod router;
mod screen;
mod several;
mod shares;
mod softirq;
mod weights;
