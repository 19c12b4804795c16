//! What every client reports, read from what each prints. A parser returns `None` of what is not a
//! whole report.

use std::str::FromStr;

use serde_json::Value;

use crate::metric::{Metric, m};
use crate::stats::nearest_rank;

/// A client's figures of one run; `None`: the program does not report it. `failed` is not what is in `loss`.
pub type Figures = Vec<(&'static Metric, Option<f64>)>;

/// What follows a label, up to a space; a comma at its end is not part of it.
fn number<T: FromStr>(output: &str, label: &str) -> Option<T> {
    let word = output.split_once(label)?.1.split_whitespace().next()?;
    word.trim_end_matches(',').parse().ok()
}

/// wrk counts answers, not what it sent.
pub(super) fn wrk(output: &str) -> Option<Figures> {
    let rate: f64 = number(output, "Requests/sec:")?;
    let (before, _) = output.split_once(" requests in ")?;
    let requests: u64 = before.split_whitespace().next_back()?.parse().ok()?;
    // Both lines are there only where there were some.
    let refused = number(output, "Non-2xx or 3xx responses:").unwrap_or(0);
    let (_, counts) = output.split_once("Socket errors:").unwrap_or_default();
    let kinds = ["connect", "read", "write", "timeout"].into_iter();
    let failed: u64 = kinds.filter_map(|kind| number::<u64>(counts, kind)).sum();
    // Before it stand shares of samples, such as `90.50%`.
    let (_, times) = output.split_once("Latency Distribution").unwrap_or_default();
    let word = |label| number::<String>(times, label).filter(|_| requests > 0);
    let time = |label| microseconds(&word(label)?);
    let answered = rate * requests.saturating_sub(refused) as f64 / requests.max(1) as f64;
    Some(vec![
        (&m::per_s, Some(answered)),
        (&m::took_p50_us, time("50%")),
        (&m::took_p99_us, time("99%")),
        (&m::failed, Some((refused + failed) as f64)),
    ])
}

/// A time with wrk's unit, such as `746.00us`.
fn microseconds(text: &str) -> Option<f64> {
    let (number, unit) = text.split_at(text.find(|letter: char| letter.is_ascii_alphabetic())?);
    let units = [("us", 1.0), ("ms", 1e3), ("s", 1e6), ("m", 60e6), ("h", 3600e6)];
    let (_, factor) = units.into_iter().find(|(name, _)| *name == unit)?;
    Some(number.parse::<f64>().ok()? * factor)
}

/// dnsperf prints each answer's time only at a rate.
pub(super) fn dnsperf(output: &str) -> Option<Figures> {
    let (answers, statistics) = output.split_once("\nStatistics:")?;
    let count = |label| number::<u64>(statistics, label);
    let (sent, completed) = (count("Queries sent:")?, count("Queries completed:")?);
    let lost = count("Queries lost:")?;
    let run_s: f64 = number(statistics, "Run time (s):")?;
    // Without an answer, there is no such line.
    let well = count("NOERROR").unwrap_or(0);
    let mean_s = number::<f64>(statistics, "Average Latency (s):").filter(|_| completed > 0);
    // `> NOERROR host0.weir.test A 0.000241`
    let time_s = |line: &str| line.strip_prefix("> ")?.split_whitespace().nth(3)?.parse().ok();
    let mut times_s: Vec<f64> = answers.lines().filter_map(time_s).collect();
    times_s.sort_by(f64::total_cmp);
    let quantile_us = |permille| nearest_rank(&times_s, permille).map(|seconds| seconds * 1e6);
    Some(vec![
        (&m::per_s, Some(well as f64 / run_s)),
        (&m::sent_per_s, Some(sent as f64 / run_s)),
        (&m::loss, (sent > 0).then(|| lost as f64 / sent as f64)),
        (&m::took_p50_us, quantile_us(500)),
        (&m::took_mean_us, mean_s.filter(|_| times_s.is_empty()).map(|seconds| seconds * 1e6)),
        (&m::took_p99_us, quantile_us(990)),
        (&m::failed, Some(completed.saturating_sub(well) as f64)),
    ])
}

/// memcaslap prints a histogram by powers of two, too coarse for percentiles; the mean is exact.
pub(super) fn memcaslap(output: &str) -> Option<Figures> {
    let (_, last) = output.rsplit_once("Run time:")?;
    let operations: u64 = number(last, "Ops:")?;
    let (_, total) = output.rsplit_once("Total Statistics (").unwrap_or_default();
    Some(vec![
        (&m::per_s, Some(number(last, "TPS:")?)),
        (&m::took_mean_us, number(total, "Avg:").filter(|_| operations > 0)),
        (&m::failed, Some(number(output, "get_misses:")?)),
    ])
}

/// What iperf3 calls lost is what its server saw missing before the last datagram that arrived:
/// nothing, where nothing arrives. So the loss here is what was sent less what was received.
pub(super) fn iperf3(output: &str) -> Option<Figures> {
    // With warnings before it.
    let report = output.get(output.find('{')?..=output.rfind('}')?)?;
    let report: Value = serde_json::from_str(report).ok()?;
    if !report["error"].is_null() {
        return None;
    }
    let (sent, received) = (&report["end"]["sum_sent"], &report["end"]["sum_received"]);
    let mbit = |sum: &Value| Some(sum["bits_per_second"].as_f64()? / 1e6);
    // Of TCP, what was sent and not received is under way. It has no datagrams.
    let datagrams = sent["packets"].as_u64().filter(|datagrams| *datagrams > 0);
    let lost = |datagrams: u64| {
        let arrived =
            received["packets"].as_u64()?.saturating_sub(received["lost_packets"].as_u64()?);
        Some(datagrams.saturating_sub(arrived) as f64 / datagrams as f64)
    };
    Some(vec![
        (&m::throughput_mbit, Some(mbit(received)?)),
        (&m::loss, datagrams.and_then(lost)),
        (&m::failed, Some(0.0)),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(figures: Option<Figures>, metric: &Metric) -> Option<f64> {
        figures.unwrap().into_iter().find(|(one, _)| *one == metric)?.1
    }

    /// wrk 4.1.0, without keep-alive.
    const WRK: &str = "\
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
    fn wrks_report_is_read() {
        let times = [&m::took_p50_us, &m::took_p99_us].map(|time| of(wrk(WRK), time));
        assert_eq!((of(wrk(WRK), &m::per_s), times), (Some(12088.12), [Some(341.0), Some(990.0)]));
        assert_eq!(wrk("unable to connect to 198.18.77.2:80 Connection refused\n"), None);
        assert_eq!((microseconds("5"), microseconds("5.0kB")), (None, None));
    }

    #[test]
    fn a_share_of_wrks_samples_is_no_percentile() {
        let report = WRK.replace("90.34%", "90.50%").replace("66.67%", "66.99%");
        let times = [&m::took_p50_us, &m::took_p99_us].map(|time| of(wrk(&report), time));
        assert_eq!(times, [Some(341.0), Some(990.0)]);
    }

    #[test]
    fn wrks_failures_are_counted_and_are_no_throughput() {
        let lines = "  Socket errors: connect 1, read 20, write 0, timeout 300\n  \
                     Non-2xx or 3xx responses: 12692\nRequests/sec:";
        let report = || wrk(&WRK.replace("Requests/sec:", lines));
        assert_eq!(of(report(), &m::failed), Some(f64::from(321 + 12692)));
        assert_eq!(of(report(), &m::per_s), Some(6044.06));
        let none = "  50%    0.00us\n  0 requests in 2.00s, 0.00B read
  Socket errors: connect 0, read 0, write 0, timeout 8\nRequests/sec:      0.00\n";
        assert_eq!((of(wrk(none), &m::failed), of(wrk(none), &m::took_p50_us)), (Some(8.0), None));
    }

    /// dnsperf 2.10.0, at a rate, on a wire that was cut for a while.
    const DNSPERF: &str = "\
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
    fn dnsperfs_report_is_read() {
        let figure = |metric| of(dnsperf(DNSPERF), metric);
        assert_eq!(figure(&m::per_s), Some(40228.0 / 3.0));
        assert_eq!((figure(&m::sent_per_s), figure(&m::loss)), (Some(20000.0), Some(0.3295)));
        assert_eq!(figure(&m::failed), Some(2.0));
        assert_eq!(figure(&m::took_p50_us), Some(241.0));
        assert_eq!(figure(&m::took_p99_us), Some(445.0));
        let unpaced = DNSPERF.replace("> ", "");
        assert!((of(dnsperf(&unpaced), &m::took_mean_us).unwrap() - 1943.0).abs() < 1e-6);
        assert_eq!(
            (of(dnsperf(&unpaced), &m::took_p50_us), figure(&m::took_mean_us)),
            (None, None)
        );
        assert_eq!(dnsperf("Error: unable to open datafile"), None);
    }

    #[test]
    fn dnsperf_without_an_answer_has_no_times() {
        let none = "\nStatistics:\n\n  Queries sent:         300\n  Queries completed:    0 (0.00%)
  Queries lost:         300 (100.00%)\n\n  Response codes:\n  Run time (s):         2.000000\n";
        let figure = |metric| of(dnsperf(none), metric);
        assert_eq!((figure(&m::sent_per_s), figure(&m::loss)), (Some(150.0), Some(1.0)));
        assert_eq!((figure(&m::per_s), figure(&m::took_p50_us)), (Some(0.0), None));
    }

    /// memaslap v1.0 of libmemcached 1.1.4.
    const MEMCASLAP: &str = "\
Total Statistics
Type     Time(s)  Ops          TPS(ops/s)   Net(M/s)   Get_miss   Min(us)  Max(us)    Avg(us)
Global   2        169259       84629        87.8       0          17       2527       188

Get Statistics (152340 events)
   Avg:       188

Total Statistics (169275 events)
   Min:        17
   Max:      2527
   Avg:       189
   Log2 Dist:
       8:    99607    25512      759      350

cmd_get: 152355
get_misses: 3

Run time: 2.0s Ops: 169291 TPS: 84486 Net_rate: 94.5M/s
";

    #[test]
    fn memcaslaps_report_is_read() {
        let figure = |metric| of(memcaslap(MEMCASLAP), metric);
        assert_eq!((figure(&m::per_s), figure(&m::failed)), (Some(84486.0), Some(3.0)));
        assert_eq!(figure(&m::took_mean_us), Some(189.0));
        assert_eq!(memcaslap("servers: 198.18.77.2:11211\nrun time: 2s\n"), None);
    }

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
    fn iperf3s_reports_are_read() {
        assert_eq!(of(iperf3(UDP), &m::throughput_mbit), Some(63.2));
        assert_eq!(of(iperf3(UDP), &m::loss), Some(343.0 / 247_332.0));
        assert_eq!(of(iperf3(TCP), &m::throughput_mbit), Some(23206.0));
        assert_eq!(of(iperf3(TCP), &m::loss), None);
    }

    #[test]
    fn everything_is_lost_where_nothing_arrived() {
        let nothing = UDP.replace("\"packets\": 247331", "\"packets\": 0");
        let nothing = nothing.replace("\"lost_packets\": 342", "\"lost_packets\": 0");
        assert_eq!(of(iperf3(&nothing), &m::loss), Some(1.0));
    }

    #[test]
    fn a_failure_is_no_report() {
        assert!(iperf3(BUSY).is_none() && iperf3("{\"end\": {").is_none());
    }
}
