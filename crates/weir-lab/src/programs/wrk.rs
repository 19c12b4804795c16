//! wrk, which asks an HTTP server for one document again and again.

use std::net::SocketAddr;

use super::report::ClientReport;
use super::text::{count_after, number_after, word_after};

/// wrk's own default, stated because `errors` depends on it.
const TIMEOUT: &str = "2s";

/// Its arguments: one thread, as it has one CPU.
pub(super) fn arguments(
    server: SocketAddr,
    seconds: u64,
    connections: u32,
    keep_alive: bool,
) -> Vec<String> {
    let mut arguments: Vec<String> = ["-t1", "--latency", "--timeout", TIMEOUT, "-c"]
        .into_iter()
        .map(str::to_owned)
        .chain([connections.to_string(), "-d".into(), format!("{seconds}s")])
        .collect();
    if !keep_alive {
        // The server closes each connection after its answer, and wrk opens another.
        arguments.extend(["-H".into(), "Connection: close".into()]);
    }
    arguments.push(format!("http://{server}/"));
    arguments
}

/// Reads what it printed; `None` if that is not a whole report. It counts answers, not what it sent.
pub(super) fn parse(output: &str) -> Option<ClientReport> {
    let rate = number_after(output, "Requests/sec:")?;
    let requests: u64 =
        output.lines().find_map(|line| line.trim().split_once(" requests in "))?.0.parse().ok()?;
    // Both lines are there only where there were some.
    let refused = count_after(output, "Non-2xx or 3xx responses:").unwrap_or(0);
    let failed = output.split_once("Socket errors:").map_or(0, |(_, counts)| {
        let kinds = ["connect", "read", "write", "timeout"];
        kinds.into_iter().filter_map(|kind| count_after(counts, kind)).sum()
    });
    let any = |value: Option<f64>| value.filter(|_| requests > 0);
    let good = requests.saturating_sub(refused) as f64 / requests.max(1) as f64;
    let microseconds = |label| any(word_after(output, label).and_then(microseconds));
    Some(ClientReport {
        throughput: rate * good,
        p50_us: microseconds("50%"),
        p99_us: microseconds("99%"),
        // The first column, `Avg`, of the row `Latency`.
        mean_us: microseconds("Latency  "),
        errors: refused + failed,
        ..ClientReport::default()
    })
}

/// A time with wrk's unit, such as `746.00us`.
fn microseconds(text: &str) -> Option<f64> {
    let unit_at = text.find(|letter: char| letter.is_ascii_alphabetic())?;
    let (number, unit) = text.split_at(unit_at);
    let factor = match unit {
        "us" => 1.0,
        "ms" => 1e3,
        "s" => 1e6,
        "m" => 60e6,
        "h" => 3600e6,
        _ => return None,
    };
    Some(number.parse::<f64>().ok()? * factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// wrk 4.1.0, without keep-alive.
    const WHOLE: &str = "\
Running 2s test @ http://198.18.77.2/
  1 threads and 8 connections
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency   374.78us  267.23us   4.92ms   90.34%
    Req/Sec    12.16k     1.64k   14.56k    66.67%
  Latency Distribution
     50%  341.00us
     75%  466.00us
     90%  598.00us
     99%    0.99ms
  25384 requests in 2.10s, 37.14MB read
Requests/sec:  12088.12
Transfer/sec:     17.68MB
";

    #[test]
    fn a_report_is_read() {
        assert_eq!(
            parse(WHOLE),
            Some(ClientReport {
                throughput: 12088.12,
                p50_us: Some(341.0),
                p99_us: Some(990.0),
                mean_us: Some(374.78),
                ..ClientReport::default()
            })
        );
    }

    #[test]
    fn failures_are_counted_and_are_no_throughput() {
        let lines = "  Socket errors: connect 1, read 20, write 0, timeout 300\n  \
                     Non-2xx or 3xx responses: 12692\nRequests/sec:";
        let report = parse(&WHOLE.replace("Requests/sec:", lines)).unwrap();
        assert_eq!((report.errors, report.throughput), (321 + 12692, 6044.06));
    }

    #[test]
    fn no_answer_at_all_is_a_report_without_times() {
        let none = "\
  Thread Stats   Avg      Stdev     Max   +/- Stdev
    Latency     0.00us    0.00us   0.00us    -nan%
  Latency Distribution
     50%    0.00us
     99%    0.00us
  0 requests in 2.00s, 0.00B read
  Socket errors: connect 0, read 0, write 0, timeout 8
Requests/sec:      0.00
";
        let expected = ClientReport { errors: 8, ..ClientReport::default() };
        assert_eq!(parse(none), Some(expected));
        assert_eq!(parse("unable to connect to 198.18.77.2:http Connection refused"), None);
    }

    #[test]
    fn units_are_wrks() {
        for (text, time_us) in [("1.50s", 1.5e6), ("0.88ms", 880.0), ("1.00m", 60e6)] {
            assert_eq!(microseconds(text), Some(time_us));
        }
        assert_eq!((microseconds("5"), microseconds("5.0kB")), (None, None));
    }

    #[test]
    fn a_connection_for_each_request_is_asked_for_by_a_header() {
        let server = "[2001:2::2]:80".parse().unwrap();
        let with = |keep_alive| arguments(server, 3, 8, keep_alive).join(" ");
        let common = "-t1 --latency --timeout 2s -c 8 -d 3s ";
        assert_eq!(with(true), format!("{common}http://[2001:2::2]:80/"));
        assert_eq!(with(false), format!("{common}-H Connection: close http://[2001:2::2]:80/"));
    }
}
