//! The real programs that the lab measures with: servers and load generators that Debian packages
//! and that nobody here wrote.
//!
//! Each runs in a network namespace, on one CPU, with every file that it writes in a directory that
//! the caller gives. A [`Server`] answers when [`Server::start`] returns. A [`Client`] runs for a
//! number of seconds by itself; [`Client::finish`] reads what it printed.
//!
//! `catalogue` lists the programs and their packages. Each program has a module of its own, with
//! its configuration or its arguments and, of a client, the parser of its output.

mod catalogue;
mod client;
mod dnsperf;
mod iperf3;
mod memcached;
mod memcaslap;
mod nginx;
mod nsd;
mod report;
mod server;
mod text;
mod wrk;

pub use catalogue::{missing, versions};
pub use client::{Client, ClientKind};
pub use report::ClientReport;
pub use server::{Server, ServerKind};
