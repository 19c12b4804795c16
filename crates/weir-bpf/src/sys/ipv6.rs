//! Keeping IPv6's own traffic off an interface, through the calling thread's `/proc/sys/net`.

use std::io::ErrorKind;
use std::path::Path;

use crate::error::{Error, Result};

const CONF: &str = "/proc/sys/net/ipv6/conf";

/// Stops what IPv6 sends unasked: no router solicitations, no autoconfiguration, no link-local
/// address, no duplicate address detection. Addresses added by hand still work; adding one still
/// makes the kernel report the membership of its solicited-node group once or twice (MLD), within some
/// ticks instead of seconds; only [`disable_ipv6`] prevents that. To be called before the interface is
/// brought up.
///
/// `/proc/sys/net` shows the network namespace of the thread that opens it. A kernel without IPv6
/// has nothing to quieten.
///
/// # Errors
/// [`Error::System`], with `ENOENT` if the thread's namespace has no such interface.
pub fn quiet_ipv6(ifname: &str) -> Result<()> {
    const QUIET: [(&str, &str); 7] = [
        ("accept_ra", "0"),
        ("autoconf", "0"),
        ("addr_gen_mode", "1"), // IN6_ADDR_GEN_MODE_NONE
        ("router_solicitations", "0"),
        ("dad_transmits", "0"),
        ("mldv1_unsolicited_report_interval", "1"), // ms
        ("mldv2_unsolicited_report_interval", "1"),
    ];
    QUIET.iter().try_for_each(|(key, value)| set(ifname, key, value))
}

/// Switches IPv6 off on an interface of the calling thread's network namespace; its IPv6 addresses
/// go. A kernel without IPv6 has nothing to switch off.
///
/// # Errors
/// As [`quiet_ipv6`].
pub fn disable_ipv6(ifname: &str) -> Result<()> {
    set(ifname, "disable_ipv6", "1")
}

fn set(ifname: &str, key: &str, value: &str) -> Result<()> {
    let path = format!("{CONF}/{ifname}/{key}");
    match std::fs::write(&path, value) {
        Err(error) if error.kind() == ErrorKind::NotFound && !Path::new(CONF).exists() => Ok(()),
        written => written.map_err(|source| Error::system("write", path, source)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::test_support::{wait_until, with_pair};

    fn value(ifname: &str, key: &str) -> String {
        std::fs::read_to_string(format!("{CONF}/{ifname}/{key}")).unwrap().trim().to_owned()
    }

    #[test]
    fn a_quiet_interface_gets_no_address_of_its_own() {
        with_pair(|links, quiet, peer| {
            quiet_ipv6("near").unwrap();
            links.set_up(quiet).unwrap();
            links.set_up(peer).unwrap();
            let addresses = |of| links.addresses(of).unwrap();
            wait_until("the peer has a link-local address", || !addresses(peer).is_empty());
            assert!(addresses(quiet).is_empty());
            assert_eq!(value("near", "accept_ra"), "0");
            assert_eq!(value("near", "autoconf"), "0");
            assert_eq!(value("near", "router_solicitations"), "0");
            assert_eq!(value("near", "dad_transmits"), "0");
            // A tick, which it is rounded up to.
            let interval = value("near", "mldv2_unsolicited_report_interval");
            assert!((1..=10).contains(&interval.parse::<u32>().unwrap()), "{interval} ms");
            assert_eq!(value("far", "accept_ra"), "1");
        });
    }

    #[test]
    fn disabling_removes_the_addresses() {
        with_pair(|links, six, _| {
            links.set_up(six).unwrap();
            links.add_address(six, "fd00::1".parse().unwrap(), 64).unwrap();
            disable_ipv6("near").unwrap();
            assert!(links.addresses(six).unwrap().is_empty());
        });
    }
}
