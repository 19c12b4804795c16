//! iperf3: a UDP stream at a rate, or TCP streams as fast as they go.
//!
//! What it calls lost is what its server saw missing before the last datagram that arrived: nothing,
//! where nothing arrives. So the loss here is what was sent less what was received.

use std::io;
use std::net::SocketAddr;

use rustix::process::Pid;
use serde::Deserialize;

use super::report::ClientReport;

/// Receives the tests of one client after another. It prints each line at once, for the log.
pub(super) fn serve(address: SocketAddr) -> Vec<String> {
    let (ip, port) = (address.ip(), address.port());
    format!("-s -B {ip} -p {port} --forceflush").split(' ').map(str::to_owned).collect()
}

/// Whether the calling thread's namespace has a TCP listener at the port. A connection would be a
/// client to it, and the next one would have to wait for the end of the first.
pub(super) fn listens(server: SocketAddr) -> io::Result<bool> {
    let table = if server.is_ipv4() { "tcp" } else { "tcp6" };
    let sockets = std::fs::read_to_string(format!("/proc/thread-self/net/{table}"))?;
    Ok(has_listener(&sockets, server.port()))
}

/// Whether `/proc/net/tcp` has a listener at the port.
fn has_listener(table: &str, port: u16) -> bool {
    /// `TCP_LISTEN` (net/tcp_states.h).
    const LISTEN: &str = "0A";
    let end = format!(":{port:04X}");
    table.lines().any(|line| {
        let mut words = line.split_whitespace();
        let local = words.nth(1).unwrap_or_default();
        local.ends_with(&end) && words.nth(1) == Some(LISTEN)
    })
}

/// The arguments of a UDP client.
pub(super) fn send_udp(server: SocketAddr, seconds: u64, datagram: u32, mbit: f64) -> Vec<String> {
    let mut arguments = client(server, seconds);
    arguments.extend(format!("-u -l {datagram} -b {mbit}M").split(' ').map(str::to_owned));
    arguments
}

/// The arguments of a TCP client.
pub(super) fn send_tcp(server: SocketAddr, seconds: u64, streams: u32) -> Vec<String> {
    let mut arguments = client(server, seconds);
    arguments.extend(["-P".into(), streams.to_string()]);
    arguments
}

fn client(server: SocketAddr, seconds: u64) -> Vec<String> {
    let (ip, port) = (server.ip(), server.port());
    format!("-c {ip} -p {port} -t {seconds} --json").split(' ').map(str::to_owned).collect()
}

/// Whether a test is under way: it has a socket for the data beside the one for control.
pub(super) fn has_begun(pid: Pid) -> bool {
    const SOCKETS: usize = 2;
    let path = format!("/proc/{}/fd", pid.as_raw_nonzero());
    let Ok(entries) = std::fs::read_dir(path) else { return false };
    let targets = entries.flatten().filter_map(|entry| std::fs::read_link(entry.path()).ok());
    targets.filter(|target| target.to_string_lossy().starts_with("socket:")).count() >= SOCKETS
}

/// Whether it ended without a test because the server was not ready: it had not ended the one
/// before, or was about to listen again.
pub(super) fn should_retry(output: &str) -> bool {
    let error = error(output).unwrap_or_default();
    ["busy", "Connection refused"].into_iter().any(|reason| error.contains(reason))
}

/// The failure that it reports.
pub(super) fn error(output: &str) -> Option<String> {
    report(output)?.error
}

/// What it prints at the end.
#[derive(Deserialize)]
struct Report {
    #[serde(default)]
    end: End,
    error: Option<String>,
}

#[derive(Default, Deserialize)]
struct End {
    sum_sent: Option<Sum>,
    sum_received: Option<Sum>,
}

#[derive(Deserialize)]
struct Sum {
    bits_per_second: f64,
    /// Of UDP, as the next.
    packets: Option<u64>,
    lost_packets: Option<u64>,
}

/// Warnings stand before the report.
fn report(output: &str) -> Option<Report> {
    let begin = output.find('{')?;
    let end = output.rfind('}')?;
    serde_json::from_str(output.get(begin..=end)?).ok()
}

/// Reads what it printed; `None` if that is not a whole report.
pub(super) fn parse(output: &str) -> Option<ClientReport> {
    const BITS_PER_MBIT: f64 = 1e6;
    let Report { end, error: None } = report(output)? else { return None };
    let (sent, received) = (end.sum_sent?, end.sum_received?);
    let throughput = received.bits_per_second / BITS_PER_MBIT;
    // Of TCP, what was sent and not received is under way.
    let Some(datagrams) = sent.packets else {
        return Some(ClientReport { throughput, ..ClientReport::default() });
    };
    let arrived = received.packets?.saturating_sub(received.lost_packets?);
    let lost = datagrams.saturating_sub(arrived);
    Some(ClientReport {
        throughput,
        offered: Some(sent.bits_per_second / BITS_PER_MBIT),
        lost: (datagrams > 0).then(|| lost as f64 / datagrams as f64),
        sent: Some(datagrams),
        ..ClientReport::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// iperf 3.12, less what is not read.
    const UDP: &str = r#"warning: UDP block size 8000 exceeds TCP MSS 1448, may result in drops
{"start": {"version": "iperf 3.12"}, "intervals": [], "end": {
  "sum_sent": {"start": 0, "end": 2.0, "bits_per_second": 63300000.0, "lost_packets": 0,
    "packets": 247332, "sender": true},
  "sum_received": {"start": 0, "end": 2.0, "bits_per_second": 63200000.0, "lost_packets": 342,
    "packets": 247331, "lost_percent": 0.138, "sender": false}}}
"#;
    const TCP: &str = r#"{"end": {
  "sum_sent": {"bytes": 580, "bits_per_second": 23213000000.0, "retransmits": 3086, "sender": true},
  "sum_received": {"bytes": 579, "bits_per_second": 23206000000.0, "sender": true}}}"#;
    const BUSY: &str = r#"{"start": {"connected": []}, "intervals": [], "end": {},
  "error": "the server is busy running a test. try again later"}"#;

    #[test]
    fn a_udp_report_is_read() {
        let report = parse(UDP).unwrap();
        assert_eq!((report.throughput, report.offered), (63.2, Some(63.3)));
        assert_eq!(report.sent, Some(247_332));
        assert_eq!(report.lost, Some(343.0 / 247_332.0));
    }

    #[test]
    fn everything_is_lost_where_nothing_arrived() {
        let nothing = UDP.replace("\"packets\": 247331", "\"packets\": 0");
        let nothing = nothing.replace("\"lost_packets\": 342", "\"lost_packets\": 0");
        assert_eq!(parse(&nothing).unwrap().lost, Some(1.0));
    }

    #[test]
    fn a_tcp_report_is_read() {
        let expected = ClientReport { throughput: 23206.0, ..ClientReport::default() };
        assert_eq!(parse(TCP), Some(expected));
    }

    #[test]
    fn a_busy_server_is_asked_again_and_a_failure_is_not() {
        assert!(should_retry(BUSY) && parse(BUSY).is_none());
        assert!(!should_retry(UDP));
        let failed = BUSY.replace("the server is busy", "unable to read from stream socket");
        assert!(!should_retry(&failed.replace("busy", "")) && parse(&failed).is_none());
        assert!(!should_retry("") && parse("{\"end\": {").is_none());
    }

    #[test]
    fn listeners_are_told_from_connections() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr\n   \
            0: 024D12C6:1451 00000000:0000 0A 00000000:00000000 00:00000000 0\n   \
            1: 024D12C6:0050 014D12C6:1451 01 00000000:00000000 00:00000000 0\n";
        assert!(has_listener(table, 5201) && !has_listener(table, 80));
    }
}
