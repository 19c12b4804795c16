//! dnsperf, which asks a name server for the names of NSD's zone.
//!
//! Without a rate it keeps [`OUTSTANDING`] queries in flight. A socket buffer of the default 208 KiB
//! holds about 270 messages of this size, NSD's 2 MiB ten times as many. So no socket overflows by
//! itself, and what is lost was lost on the way or under another load. A lost query holds its place
//! until it times out, so a hundred losses a second all but stop this loop.
//!
//! With a rate it is an open loop: a second's queries may be in flight, so that losses do not slow it
//! down, and its own sockets have a larger buffer. What became due while it had no CPU it sends in
//! one burst, which overflows NSD's socket: at 20,000 queries per second, 150 ms without a CPU did.
//! So at a rate it needs a CPU that nothing contends for.

use std::net::SocketAddr;
use std::path::Path;

use super::nsd;
use super::report::ClientReport;
use super::text::{count_after, number_after};
use crate::error::Result;

/// Queries in flight without a rate: dnsperf's default.
const OUTSTANDING: u32 = 100;
/// Queries in flight at most: each has a number of 16 bits.
const MAX_OUTSTANDING: f64 = 65_535.0;
/// When a query counts as lost, seconds.
const TIMEOUT_S: u32 = 1;
/// Its sockets' buffers at a rate, KiB; the kernel gives less where `rmem_max` is less.
const BUFFER_KIB: u32 = 1024;

/// Writes its queries; returns its arguments.
pub(super) fn prepare(
    server: SocketAddr,
    seconds: u64,
    (rate, clients): (Option<f64>, u32),
    directory: &Path,
) -> Result<Vec<String>> {
    let queries = directory.join("queries.txt");
    super::text::write(&queries, &nsd::queries())?;
    let mut arguments = arguments(server, seconds, rate, clients);
    arguments.extend(["-d".into(), queries.display().to_string()]);
    Ok(arguments)
}

/// At a rate it prints every answer's time, for the percentiles, which costs its CPU about 2 us an
/// answer. Without one that would lower what it can ask.
fn arguments(server: SocketAddr, seconds: u64, rate: Option<f64>, clients: u32) -> Vec<String> {
    let (ip, port) = (server.ip(), server.port());
    let mut words = format!(
        "-s {ip} -p {port} -l {seconds} -c {clients} -T 1 -t {TIMEOUT_S} -W \
         -O suppress=timeouts,congestion,sendfailed,unexpected"
    );
    match rate {
        None => words += &format!(" -q {OUTSTANDING}"),
        Some(rate) => {
            let in_flight = (rate * f64::from(TIMEOUT_S)).max(f64::from(OUTSTANDING));
            let in_flight = in_flight.min(MAX_OUTSTANDING).ceil();
            words += &format!(" -q {in_flight:.0} -Q {rate} -b {BUFFER_KIB} -v");
        }
    }
    words.split_whitespace().map(str::to_owned).collect()
}

/// Reads what it printed; `None` if that is not a whole report.
pub(super) fn parse(output: &str) -> Option<ClientReport> {
    let (answers, statistics) = output.split_once("\nStatistics:")?;
    let sent = count_after(statistics, "Queries sent:")?;
    let lost = count_after(statistics, "Queries lost:")?;
    let completed = count_after(statistics, "Queries completed:")?;
    let run_s = number_after(statistics, "Run time (s):")?;
    // Without an answer, there is no such line.
    let well = count_after(statistics, "NOERROR").unwrap_or(0);
    let mean = number_after(statistics, "Average Latency (s):").filter(|_| completed > 0);
    let mut times_us: Vec<f64> = answers.lines().filter_map(answer_time_us).collect();
    times_us.sort_by(f64::total_cmp);
    Some(ClientReport {
        throughput: well as f64 / run_s,
        offered: Some(sent as f64 / run_s),
        lost: (sent > 0).then(|| lost as f64 / sent as f64),
        sent: Some(sent),
        p50_us: quantile(&times_us, 0.5),
        p99_us: quantile(&times_us, 0.99),
        mean_us: mean.map(|seconds| seconds * 1e6),
        errors: completed.saturating_sub(well),
    })
}

/// The time of an answer that `-v` printed: `> NOERROR host0.weir.test A 0.000241`.
fn answer_time_us(line: &str) -> Option<f64> {
    let seconds: f64 = line.strip_prefix("> ")?.split_whitespace().nth(3)?.parse().ok()?;
    Some(seconds * 1e6)
}

/// The smallest value that at least this share of the sorted values does not exceed.
fn quantile(sorted: &[f64], share: f64) -> Option<f64> {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// dnsperf 2.10.0, at a rate, on a wire that was cut for a while.
    const WHOLE: &str = "\
DNS Performance Testing Tool
Version 2.10.0

[Status] Sending queries (to 198.18.77.2:53)
[Status] Stopping after 3.000000 seconds
> NOERROR host0.weir.test A 0.000241
> NOERROR host1.weir.test A 0.000445
> SERVFAIL host3.weir.test A 0.000100
[Status] Testing complete (time limit)

Statistics:

  Queries sent:         60000
  Queries completed:    40230 (67.05%)
  Queries lost:         19770 (32.95%)

  Response codes:       NOERROR 40228 (100.00%), SERVFAIL 2 (0.00%)
  Average packet size:  request 34, response 83
  Run time (s):         3.000000
  Queries per second:   13409.432334

  Average Latency (s):  0.001943 (min 0.000019, max 0.270375)
  Latency StdDev (s):   0.020052
";

    #[test]
    fn a_report_is_read() {
        let report = parse(WHOLE).unwrap();
        assert_eq!(report.throughput, 40228.0 / 3.0);
        assert_eq!((report.sent, report.offered), (Some(60000), Some(20000.0)));
        assert_eq!((report.lost, report.errors), (Some(0.3295), 2));
        assert_eq!((report.p50_us, report.p99_us), (Some(241.0), Some(445.0)));
        assert!((report.mean_us.unwrap() - 1943.0).abs() < 1e-6);
    }

    #[test]
    fn no_answer_at_all_is_a_report_without_times() {
        let none = "\nStatistics:\n\n  Queries sent:         300\n  Queries completed:    0 (0.00%)
  Queries lost:         300 (100.00%)\n\n  Response codes:\n  Run time (s):         2.000000\n";
        let expected = ClientReport {
            offered: Some(150.0),
            lost: Some(1.0),
            sent: Some(300),
            ..ClientReport::default()
        };
        assert_eq!(parse(none), Some(expected));
        assert_eq!(parse("Error: unable to open datafile"), None);
    }

    #[test]
    fn quantiles_are_of_the_values() {
        let values: Vec<f64> = (1..=200).map(f64::from).collect();
        assert_eq!((quantile(&values, 0.5), quantile(&values, 0.99)), (Some(100.0), Some(198.0)));
        assert_eq!(quantile(&[], 0.5), None);
    }

    #[test]
    fn a_rate_does_not_wait_for_answers() {
        let server = "198.18.1.2:53".parse().unwrap();
        let with = |rate| arguments(server, 2, rate, 4).join(" ");
        assert!(with(None).ends_with("-q 100"));
        assert!(with(Some(2e4)).contains("-q 20000 -Q 20000 -b 1024 -v"));
        assert!(with(Some(1e6)).contains("-q 65535 -Q 1000000"));
    }
}
