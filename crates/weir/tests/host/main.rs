//! Tests of `weir` on hosts of their own that leave the machine's CPUs to others: one program, because each is linked with
//! all that `weir` consists of.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]
#![allow(missing_docs, reason = "the names say it, and nobody else uses them")]

mod addresses;
mod attach;
mod bare;
mod capture;
mod capture_driver;
mod captures;
mod channels;
#[path = "../common/mod.rs"]
mod common;
mod config;
mod confined;
mod control_group;
mod diversion;
mod explain;
mod forwarding;
mod guardian;
mod json;
mod lazy;
mod lazy_calls;
mod lazy_clients;
mod lazy_order;
mod lazy_ordinary;
mod lazy_preload;
mod lazy_rules;
mod lazy_script;
mod lazy_threads;
mod lifecycle;
mod names;
mod nat;
mod owners;
mod refusal;
mod screening;
mod service;
mod shadow;
mod sources;
mod status;
mod top;
mod trace;
mod traffic;
