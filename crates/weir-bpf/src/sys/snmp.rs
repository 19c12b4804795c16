//! The kernel's own counts of IPv4 packets, UDP datagrams and TCP segments, in the calling thread's
//! network namespace.

use serde::{Deserialize, Serialize};

use super::procfile::ProcFile;
use crate::error::{Error, Result};

const V4: &str = "/proc/thread-self/net/snmp";
const V6: &str = "/proc/thread-self/net/snmp6";
const NETSTAT: &str = "/proc/thread-self/net/netstat";

/// Datagrams since the namespace was made, of UDP over IPv4 and IPv6 together, without UDP-Lite (RFC 4113 and Linux's
/// additions).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UdpStats {
    /// Read by an application (counted at `recvmsg`, not at enqueue).
    pub in_datagrams: u64,
    /// Arrived at a port without a socket.
    pub no_ports: u64,
    /// Dropped for any other reason: the three below and more.
    pub in_errors: u64,
    /// Of the errors: no room in a socket's receive buffer.
    pub rcvbuf_errors: u64,
    /// Of the errors: wrong checksum.
    pub csum_errors: u64,
    /// Of the errors: over the protocol's memory limit (`net.ipv4.udp_mem`).
    pub mem_errors: u64,
}

/// The namespace's UDP.
///
/// # Errors
/// [`Error::System`] without `/proc`; [`Error::Refused`] if its text is malformed.
pub fn udp_stats() -> Result<UdpStats> {
    parse_udp(&read_once(V4)?, &read_once(V6)?)
}

/// Segments since the namespace was made, of TCP over IPv4 and IPv6 together (RFC 4022 and Linux's
/// additions).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpStats {
    /// Taken by TCP, good or bad; what GRO has merged counts once.
    pub in_segs: u64,
    /// Of these: wrong checksum.
    pub csum_errors: u64,
    /// SYNs answered by a cookie, because the listener had no room to remember them.
    pub syn_cookies_sent: u64,
    /// SYNs, and last segments of handshakes, dropped at a listener: its queue was full, or worse.
    pub listen_drops: u64,
    /// Of these: the accept queue was full.
    pub listen_overflows: u64,
    /// SYNs dropped because the listener had no room to remember them, and cookies are off.
    pub request_drops: u64,
    /// Segments dropped at a connection whose backlog was full.
    pub backlog_drops: u64,
    /// Handshakes that their client has reset, as a load balancer's checks do.
    pub handshake_resets: u64,
}

/// The namespace's TCP.
///
/// # Errors
/// As [`udp_stats`].
pub fn tcp_stats() -> Result<TcpStats> {
    parse_tcp(&read_once(V4)?, &read_once(NETSTAT)?)
}

/// Both, to be read again and again, of the network namespace of the thread that reads first.
#[derive(Debug)]
pub struct Snmp {
    v4: ProcFile,
    v6: ProcFile,
    netstat: ProcFile,
}

impl Default for Snmp {
    fn default() -> Self {
        let [v4, v6, netstat] = [V4, V6, NETSTAT].map(ProcFile::new);
        Self { v4, v6, netstat }
    }
}

impl Snmp {
    /// As [`udp_stats`] and [`tcp_stats`].
    ///
    /// # Errors
    /// As these.
    pub fn read(&mut self) -> Result<(UdpStats, TcpStats)> {
        let v4 = read(&mut self.v4)?;
        Ok((parse_udp(v4, read(&mut self.v6)?)?, parse_tcp(v4, read(&mut self.netstat)?)?))
    }
}

fn read(file: &mut ProcFile) -> Result<&str> {
    let path = file.path().to_owned();
    file.read().map_err(|source| Error::system("read", path, source))
}

fn read_once(path: &str) -> Result<String> {
    read(&mut ProcFile::new(path)).map(str::to_owned)
}

fn parse_udp(v4: &str, v6: &str) -> Result<UdpStats> {
    let both = Both(Table::of(V4, v4, "Udp: ", "UDP")?, Table::by_line(v6, "Udp6", "UDP"));
    Ok(UdpStats {
        in_datagrams: both.sum("InDatagrams")?,
        no_ports: both.sum("NoPorts")?,
        in_errors: both.sum("InErrors")?,
        rcvbuf_errors: both.sum("RcvbufErrors")?,
        csum_errors: both.sum("InCsumErrors")?,
        // Newer than the others (Linux 5.11).
        mem_errors: both.each(|table| match table.find("MemErrors") {
            Some(_) => table.number("MemErrors"),
            None => Ok(0),
        })?,
    })
}

fn parse_tcp(snmp: &str, netstat: &str) -> Result<TcpStats> {
    let tcp = Table::of(V4, snmp, "Tcp: ", "TCP")?;
    let extended = Table::of(NETSTAT, netstat, "TcpExt: ", "TCP")?;
    Ok(TcpStats {
        in_segs: tcp.number("InSegs")?,
        csum_errors: tcp.number("InCsumErrors")?,
        syn_cookies_sent: extended.number("SyncookiesSent")?,
        listen_drops: extended.number("ListenDrops")?,
        listen_overflows: extended.number("ListenOverflows")?,
        request_drops: extended.number("TCPReqQFullDrop")?,
        backlog_drops: extended.number("TCPBacklogDrop")?,
        handshake_resets: extended.number("EmbryonicRsts")?,
    })
}

/// The numbers of one protocol, by name.
struct Table<'a> {
    path: &'static str,
    whose: &'static str,
    pairs: Vec<(&'a str, &'a str)>,
}

impl<'a> Table<'a> {
    /// `snmp` and `netstat` have two lines per protocol: names, then as many numbers.
    fn of(path: &'static str, text: &'a str, start: &str, whose: &'static str) -> Result<Self> {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(start));
        let (Some(names), Some(numbers)) = (lines.next(), lines.next()) else {
            let expected = format!("two lines that begin with {}", start.trim_end());
            return Err(malformed(path, &expected));
        };
        let [names, numbers] =
            [names, numbers].map(|line| line.split_ascii_whitespace().collect::<Vec<_>>());
        if names.len() != numbers.len() {
            return Err(malformed(path, "as many numbers as names"));
        }
        Ok(Self { path, whose, pairs: names.into_iter().zip(numbers).collect() })
    }

    /// `snmp6` has one name and one number per line; nothing at all on a kernel without IPv6.
    fn by_line(text: &'a str, start: &str, whose: &'static str) -> Option<Self> {
        let pair = |line: &'a str| {
            let (name, number) = line.split_once(char::is_whitespace)?;
            Some((name.strip_prefix(start)?, number.trim()))
        };
        let pairs = text.lines().filter_map(pair).collect();
        (!text.is_empty()).then_some(Self { path: V6, whose, pairs })
    }

    fn find(&self, field: &str) -> Option<&'a str> {
        self.pairs.iter().find_map(|(name, number)| (*name == field).then_some(*number))
    }

    fn number(&self, field: &str) -> Result<u64> {
        let number = self.find(field).and_then(|text| text.parse().ok());
        let expected = || format!("a number for {}'s {field}", self.whose);
        number.ok_or_else(|| malformed(self.path, &expected()))
    }
}

/// One protocol over IPv4, and over IPv6 where the kernel has that.
struct Both<'a>(Table<'a>, Option<Table<'a>>);

impl Both<'_> {
    fn sum(&self, field: &str) -> Result<u64> {
        self.each(|table| table.number(field))
    }

    fn each(&self, of: impl Fn(&Table<'_>) -> Result<u64>) -> Result<u64> {
        Ok(of(&self.0)?.saturating_add(self.1.as_ref().map_or(Ok(0), of)?))
    }
}

/// Packets of IPv4 and IPv6 together since the namespace was made (RFC 4293).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IpStats {
    /// Received for this host or to be forwarded, malformed ones too: counted before anything is done
    /// with them. What GRO has merged counts once.
    pub in_receives: u64,
    /// Sent by this host itself.
    pub out_requests: u64,
    /// Forwarded.
    pub forwarded: u64,
    /// Datagrams put together from fragments.
    pub reassembled: u64,
    /// Fragments that were dropped, and datagrams that were given up.
    pub reassembly_failures: u64,
    /// Of these: given up, as the others did not come in time.
    pub reassembly_timeouts: u64,
}

/// IP's counts.
///
/// # Errors
/// As [`udp_stats`].
pub fn ip_stats() -> Result<IpStats> {
    let (v4, v6) = (read_once(V4)?, read_once(V6)?);
    let both = Both(Table::of(V4, &v4, "Ip: ", "IP")?, Table::by_line(&v6, "Ip6", "IP"));
    let six = both.1.as_ref().map_or(Ok(0), |v6| v6.number("OutForwDatagrams"))?;
    Ok(IpStats {
        in_receives: both.sum("InReceives")?,
        out_requests: both.sum("OutRequests")?,
        forwarded: both.0.number("ForwDatagrams")?.saturating_add(six),
        reassembled: both.sum("ReasmOKs")?,
        reassembly_failures: both.sum("ReasmFails")?,
        reassembly_timeouts: both.sum("ReasmTimeout")?,
    })
}

fn malformed(path: &str, expected: &str) -> Error {
    Error::refused(
        format!("{path} is malformed"),
        format!("{expected} was expected; is this a Linux kernel's /proc?"),
    )
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;
    use crate::sys::link::Links;
    use crate::sys::test_support::{Sandbox, wait_until};

    const SNMP: &str = "\
Tcp: RtoAlgorithm InErrs
Tcp: 1 9
Udp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors \
IgnoredMulti MemErrors
Udp: 1 2 3 4 5 6 7 8 18446744073709551615
UdpLite: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors SndbufErrors InCsumErrors \
IgnoredMulti MemErrors
UdpLite: 91 92 93 94 95 96 97 98 99
";
    const SNMP6: &str = "\
Ip6InReceives                   \t50
Udp6InDatagrams                 \t10
Udp6NoPorts                     \t20
Udp6InErrors                    \t30
Udp6OutDatagrams                \t40
Udp6RcvbufErrors                \t50
Udp6InCsumErrors                \t70
Udp6MemErrors                   \t9
UdpLite6InDatagrams             \t91
";

    #[test]
    fn both_formats_are_parsed() {
        let of = |in_datagrams, no_ports, in_errors, rcvbuf_errors, csum_errors| UdpStats {
            in_datagrams,
            no_ports,
            in_errors,
            rcvbuf_errors,
            csum_errors,
            mem_errors: u64::MAX,
        };
        assert_eq!(parse_udp(SNMP, SNMP6).unwrap(), of(11, 22, 33, 55, 77));
        assert_eq!(parse_udp(SNMP, "").unwrap(), of(1, 2, 3, 5, 7));
    }

    #[test]
    fn tcp_is_in_two_files() {
        let snmp = "Tcp: RtoAlgorithm InSegs OutSegs InErrs InCsumErrors\nTcp: 1 5 6 9 4\n";
        let netstat = "TcpExt: SyncookiesSent ListenOverflows ListenDrops TCPBacklogDrop \
                       TCPReqQFullDrop EmbryonicRsts\nTcpExt: 7 10 8 9 11 12\n";
        let expected = TcpStats {
            in_segs: 5,
            csum_errors: 4,
            syn_cookies_sent: 7,
            listen_drops: 8,
            listen_overflows: 10,
            request_drops: 11,
            backlog_drops: 9,
            handshake_resets: 12,
        };
        assert_eq!(parse_tcp(snmp, netstat).unwrap(), expected);
        let error = parse_tcp(snmp, &netstat.replace("Sent", "")).unwrap_err().to_string();
        assert!(error.contains("netstat") && error.contains("SyncookiesSent"), "{error}");
    }

    #[test]
    fn older_kernels_do_not_count_memory() {
        let mem_errors = |v4: &str, v6: &str| parse_udp(v4, v6).unwrap().mem_errors;
        let (v4, v6) = (SNMP.replace("MemErrors", "X"), SNMP6.replace("Udp6MemErrors", "X"));
        assert_eq!(mem_errors(&SNMP.replace("18446744073709551615", "1"), &v6), 1);
        assert_eq!(mem_errors(&v4, SNMP6), 9);
        assert_eq!(mem_errors(&v4, &v6), 0);
    }

    #[test]
    fn malformed_text_says_what_is_missing() {
        for (from, to, expected) in [
            ("Udp: 1", "Udp: x", "InDatagrams"),
            ("Udp: 1", "Udp: -1", "InDatagrams"),
            ("Udp: 1", "Udp: 1 1", "as many numbers"),
            ("Udp: 1", "Other: 1", "two lines"),
            ("NoPorts", "Ports", "NoPorts"),
            ("18446744073709551615", "18446744073709551616", "MemErrors"),
        ] {
            let error = parse_udp(&SNMP.replace(from, to), SNMP6).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        assert!(parse_udp("", SNMP6).is_err() && parse_udp(SNMP, "\n").is_err());
    }

    #[test]
    fn a_datagram_to_a_closed_port_and_one_to_an_open_port_are_counted() {
        Sandbox::new().run(|| {
            let links = Links::open().unwrap();
            links.set_up(links.index("lo").unwrap()).unwrap(); // the sandbox's own
            let mut kept = Snmp::default();
            assert_eq!(kept.read().unwrap().0, UdpStats::default());
            for address in ["127.0.0.1:0", "[::1]:0"] {
                let (socket, open) =
                    (UdpSocket::bind(address).unwrap(), UdpSocket::bind(address).unwrap());
                let mut closed = socket.local_addr().unwrap();
                closed.set_port(9);
                socket.send_to(b"x", closed).unwrap();
                socket.send_to(b"x", open.local_addr().unwrap()).unwrap();
                open.recv(&mut [0]).unwrap();
            }
            let expected = UdpStats { in_datagrams: 2, no_ports: 2, ..Default::default() };
            wait_until("all are counted", || udp_stats().unwrap() == expected);
            assert_eq!(kept.read().unwrap(), (expected, tcp_stats().unwrap()));
            // Of each family two datagrams and an error message, by the loopback interface.
            let expected =
                IpStats { in_receives: 6, out_requests: 6, forwarded: 0, ..IpStats::default() };
            assert_eq!(ip_stats().unwrap(), expected);
        });
    }
}
