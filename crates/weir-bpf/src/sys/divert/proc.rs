//! What only `/proc` tells: IPVS's services, and whether multicast is forwarded.

use std::io;

use super::diversion::Diversion;
use super::kind::DiversionKind;
use crate::sys::procfile::ProcFile;

/// IPVS's virtual services.
pub(super) const IP_VS: &str = "/proc/thread-self/net/ip_vs";
/// `ip_vs_info_seq_show()` prints this many lines before the services.
const IP_VS_HEADER_LINES: usize = 3;

/// IPVS's virtual services; its hooks are there only while there are any.
pub(super) fn ipvs(file: &mut ProcFile) -> Option<Diversion> {
    match file.read_beginning() {
        Ok(text) => first_service(text),
        Err(error) => Some(Diversion::unknown(IP_VS, error)),
    }
}

/// One is enough, and there may be ten thousand.
fn first_service(table: &str) -> Option<Diversion> {
    let first = table.lines().nth(IP_VS_HEADER_LINES)?;
    let detail = format!("virtual services, the first: {}", first.trim());
    Some(Diversion::new(DiversionKind::Ipvs, detail))
}

/// Whether a multicast router runs over this interface.
pub(super) fn multicast_forwarding(ifname: &str) -> Vec<Diversion> {
    let families = ["ipv4", "ipv6"].into_iter().filter_map(|family| {
        // Names may hold anything but a slash; the directory is named as the interface is.
        let path = format!("/proc/sys/net/{family}/conf/{ifname}/mc_forwarding");
        match read(&path) {
            Ok(value) if matches!(value.trim(), "" | "0") => None,
            Ok(_) => Some(Diversion::new(DiversionKind::MulticastForwarding, path)),
            Err(error) => Some(Diversion::unknown(&path, error)),
        }
    });
    families.collect()
}

/// Empty if the kernel has no such file, as without IPVS, IPv6 or multicast routing.
pub(super) fn read(path: &str) -> io::Result<String> {
    ProcFile::new(path).read().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "IP Virtual Server version 1.2.1 (size=4096)\n\
        Prot LocalAddress:Port Scheduler Flags\n\
        \x20 -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n";

    #[test]
    fn the_first_service_is_named() {
        assert_eq!(first_service(""), None);
        assert_eq!(first_service(HEADER), None);
        let table = format!(
            "{HEADER}UDP  C6120001:0035 rr  \n  -> C6120002:0035      Masq    1      0          0\n\
             FWM  00000001 wlc \n"
        );
        let found = first_service(&table).unwrap();
        assert_eq!(found.kind, DiversionKind::Ipvs);
        assert!(found.detail.starts_with("virtual services, the first: UDP"), "{found:?}");
    }
}
