//! memcaslap, the load generator of libmemcached-tools: nine gets for each set, values of 1 KiB.
//!
//! Its own pace (`-P`) has no effect in this version, so there is no rate. It prints a histogram by
//! powers of two, too coarse for percentiles; the mean is exact.

use std::net::SocketAddr;

use super::report::ClientReport;
use super::text::{count_after, number_after};
use crate::error::{Error, Result};

/// Objects of each connection, so that 32 connections' fit into the server's 64 MiB and no get
/// misses: its default of ten thousand does not.
const WINDOW: &str = "1k";

/// Its arguments: one thread, as it has one CPU.
pub(super) fn arguments(server: SocketAddr, seconds: u64, connections: u32) -> Result<Vec<String>> {
    if server.is_ipv6() {
        return Err(Error::refused(
            "memcaslap cannot reach an IPv6 address",
            "measure memcached over IPv4",
        ));
    }
    // -S: the statistics at the end, which have the mean, come only with periodic ones.
    let words =
        format!("-s {server} -T 1 -c {connections} -w {WINDOW} -t {seconds}s -S {seconds}s");
    Ok(words.split(' ').map(str::to_owned).collect())
}

/// Reads what it printed; `None` if that is not a whole report.
pub(super) fn parse(output: &str) -> Option<ClientReport> {
    let (_, last) = output.rsplit_once("Run time:")?;
    let operations = count_after(last, "Ops:")?;
    let misses = count_after(output, "get_misses:")?;
    let (_, total) = output.rsplit_once("Total Statistics (").unwrap_or_default();
    Some(ClientReport {
        throughput: number_after(last, "TPS:")?,
        sent: Some(operations),
        mean_us: number_after(total, "Avg:").filter(|_| operations > 0),
        errors: misses,
        ..ClientReport::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// memaslap v1.0 of libmemcached 1.1.4.
    const WHOLE: &str = "\
Total Statistics
Type     Time(s)  Ops          TPS(ops/s)   Net(M/s)   Get_miss   Min(us)  Max(us)    Avg(us)
Global   2        169259       84629        87.8       0          17       2527       188

Get Statistics (152340 events)
   Min:        17
   Max:      2527
   Avg:       188

Total Statistics (169275 events)
   Min:        17
   Max:      2527
   Avg:       189
   Log2 Dist:
       4:        0       51     1847    41129
       8:    99607    25512      759      350

cmd_get: 152355
cmd_set: 16936
get_misses: 3
object_bytes: 18426368

Run time: 2.0s Ops: 169291 TPS: 84486 Net_rate: 94.5M/s
";

    #[test]
    fn a_report_is_read() {
        let expected = ClientReport {
            throughput: 84486.0,
            sent: Some(169_291),
            mean_us: Some(189.0),
            errors: 3,
            ..ClientReport::default()
        };
        assert_eq!(parse(WHOLE), Some(expected));
        assert_eq!(parse("servers: 198.18.77.2:11211\nrun time: 2s\n"), None);
    }

    #[test]
    fn ipv6_is_refused() {
        let error = arguments("[2001:2::2]:11211".parse().unwrap(), 1, 8).unwrap_err();
        assert!(error.to_string().contains("over IPv4"), "{error}");
    }
}
