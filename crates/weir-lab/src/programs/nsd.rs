//! NSD, the authoritative name server, with one server process and a zone of its own.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;

use super::text::ANSWER_TIMEOUT;
use crate::error::Result;

const ZONE: &str = "weir.test";
/// Names in the zone that have an address.
const NAMES: usize = 500;
/// Addresses in each /24 of 198.19.0.0/16 that the names point to.
const ADDRESSES_PER_SUBNET: usize = 250;

/// Writes its configuration and its zone; returns its arguments.
pub(super) fn prepare(address: SocketAddr, directory: &Path) -> Result<Vec<String>> {
    super::text::write(&directory.join("weir.test.zone"), &zone())?;
    let configuration = directory.join("nsd.conf");
    super::text::write(&configuration, &configure(address, directory))?;
    // -d: it stays in the foreground. Its children are its own all the same.
    Ok(vec!["-d".into(), "-c".into(), configuration.display().to_string()])
}

/// Its own defaults but for the files' places, and for the rate limit: Debian's NSD answers a source
/// 200 times a second at most, and a load generator is one source.
fn configure(address: SocketAddr, directory: &Path) -> String {
    let directory = directory.display();
    let (ip, port) = (address.ip(), address.port());
    format!(
        "server:\n\
         \x20 server-count: 1\n\
         \x20 ip-address: {ip}@{port}\n\
         \x20 username: \"\"\n\
         \x20 chroot: \"\"\n\
         \x20 database: \"\"\n\
         \x20 pidfile: \"\"\n\
         \x20 zonesdir: \"{directory}\"\n\
         \x20 xfrdir: \"{directory}\"\n\
         \x20 xfrdfile: \"{directory}/xfrd.state\"\n\
         \x20 zonelistfile: \"{directory}/zone.list\"\n\
         \x20 rrl-ratelimit: 0\n\
         \x20 rrl-whitelist-ratelimit: 0\n\
         remote-control:\n\
         \x20 control-enable: no\n\
         zone:\n\
         \x20 name: \"{ZONE}\"\n\
         \x20 zonefile: \"{ZONE}.zone\"\n"
    )
}

fn zone() -> String {
    let hosts = (0..NAMES).map(|number| {
        let (subnet, host) = (number / ADDRESSES_PER_SUBNET, number % ADDRESSES_PER_SUBNET + 1);
        format!("host{number} IN A 198.19.{subnet}.{host}\n")
    });
    format!(
        "$ORIGIN {ZONE}.\n\
         $TTL 3600\n\
         @ IN SOA ns hostmaster 1 3600 900 86400 300\n\
         @ IN NS ns\n\
         ns IN A 198.19.255.1\n\
         {}",
        hosts.collect::<String>()
    )
}

/// A query for each name in the zone, as dnsperf reads them.
pub(super) fn queries() -> String {
    (0..NAMES).map(|number| format!("host{number}.{ZONE} A\n")).collect()
}

/// Asks for the first name's address.
pub(super) fn answers(server: SocketAddr) -> io::Result<bool> {
    let any: IpAddr = if server.is_ipv4() { [0; 4].into() } else { [0_u16; 8].into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(server)?;
    socket.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    socket.send(&query("host0.weir.test"))?;
    let mut answer = [0; 512];
    let length = socket.recv(&mut answer)?;
    Ok(has_answer(&answer[..length]))
}

/// A query for a name's address (RFC 1035, section 4).
fn query(name: &str) -> Vec<u8> {
    /// Number 1, no flags, one question.
    const HEADER: [u8; 12] = [0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    /// The root label, type A, class IN.
    const END: [u8; 5] = [0, 0, 1, 0, 1];
    let mut packet = HEADER.to_vec();
    for label in name.split('.') {
        packet.push(label.len() as u8);
        packet.extend(label.as_bytes());
    }
    packet.extend(END);
    packet
}

/// Whether a message is an answer without an error and with a record in it.
fn has_answer(packet: &[u8]) -> bool {
    let Some([_, _, flags, code, _, _, count_high, count_low]) = packet.first_chunk::<8>() else {
        return false;
    };
    let (is_response, error) = (flags & 0x80 != 0, code & 0x0f);
    is_response && error == 0 && u16::from_be_bytes([*count_high, *count_low]) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_query_has_a_name_in_the_zone() {
        let zone = zone();
        for query in queries().lines() {
            let name = query.strip_suffix(".weir.test A").unwrap();
            assert!(zone.contains(&format!("\n{name} IN A 198.19.")), "{query}");
        }
        assert_eq!(queries().lines().count(), NAMES);
        assert!(zone.contains("host499 IN A 198.19.1.250\n"));
    }

    #[test]
    fn it_listens_on_one_address_and_keeps_its_files_in_its_directory() {
        let text = configure("[2001:2::2]:53".parse().unwrap(), Path::new("/run/x"));
        assert!(text.contains("ip-address: 2001:2::2@53\n"), "{text}");
        assert_eq!(text.matches("\"/run/x").count(), 4, "{text}");
    }

    #[test]
    fn an_answer_has_a_record_and_no_error() {
        assert_eq!(query("a.bc")[12..], *b"\x01a\x02bc\x00\x00\x01\x00\x01");
        assert!(has_answer(&[0, 1, 0x85, 0, 0, 1, 0, 1, 0, 0]));
        for no in [&[0, 1, 0x85, 3, 0, 1, 0, 1][..], &[0, 1, 0x85, 0, 0, 1, 0, 0], &[0, 1, 0x85]] {
            assert!(!has_answer(no), "{no:?}");
        }
        assert!(!has_answer(&query("host0.weir.test")));
    }
}
