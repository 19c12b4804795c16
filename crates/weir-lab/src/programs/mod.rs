//! The real programs that the lab measures with: servers and load generators that Debian packages
//! and that nobody here wrote. What is particular to each is in `table`, and its parser in `report`.

mod report;
mod running;
mod table;

pub use report::Figures;
pub use running::{CaptureKind, Daemon, Place, check_installed, versions};
pub use table::{
    ClientKind, DNSPERF, IPERF3, IPERF3_CLIENT, MEMCASLAP, NGINX, ServerKind, WRK, in_flight,
};
