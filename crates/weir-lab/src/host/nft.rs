//! nftables at an interface's ingress: where the lab lets packets end cheaply.

use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use weir_bpf::sys::netns::NetNs;

use crate::error::{Error, Result};

const REMEDY: &str = "this experiment needs the nft command (package nftables), and a kernel with \
                      nftables for the netdev family (CONFIG_NF_TABLES_NETDEV)";

/// A table of one chain at an interface's ingress.
pub fn ingress(netns: &NetNs, table: &str, interface: &str, rest: &str) -> Result<()> {
    let chain = format!("type filter hook ingress device \"{interface}\" {rest};");
    nft(netns, &format!("table netdev {table} {{ chain ingress {{ {chain} }}; }}"))
}

/// Gives commands to `nft` in a namespace.
pub fn nft(netns: &NetNs, commands: &str) -> Result<()> {
    // Ctrl-C is for the controller.
    let run = || Command::new("nft").arg(commands).process_group(0).stdin(Stdio::null()).output();
    let output = netns
        .run(run)?
        .map_err(|source| Error::refused(format!("nft cannot be run ({source})"), REMEDY))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    Err(Error::refused(format!("nft refuses `{commands}`: {said}"), REMEDY))
}
