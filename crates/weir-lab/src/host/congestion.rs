//! TCP's congestion control in the lab's namespaces: always the same, whatever this machine's is.
//!
//! One that paces itself (BBR) starts a timer for each burst that it sends. Where that is a virtual
//! machine's, it costs more than the request that is answered, and an experiment would measure it.

use std::fs;

use crate::error::{Error, Result};

/// What every kernel has, and lets every namespace have (`tcp_set_default_congestion_control()`).
pub const NAME: &str = "reno";
const SYSCTL: &str = "/proc/sys/net/ipv4/tcp_congestion_control";

/// Sets it in the calling thread's network namespace.
///
/// # Errors
/// Where the kernel refuses.
pub fn set() -> Result<()> {
    fs::write(SYSCTL, NAME).map_err(|source| Error::io("write", SYSCTL, source))
}
