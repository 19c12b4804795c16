//! `http-syn-flood`, as the reports see it.

use super::merit::{Shown, Titles};
use super::sentence::kernel;
use super::units::{age, percent, rate};
use crate::http_syn_flood::Usage;
use crate::results::http::{Http, HttpRun};
use crate::results::merit::MeritRun;

impl Shown for Http {
    const LABEL: &'static str = "Requests per second by the rate of SYNs to another listener.";
    const LOAD: &'static str = "SYNs to another listener";
    const UPWARDS: &'static str = "answered (requests/s)";
    const UNIT: f64 = 1.0;
    const NOTE: &'static str = "Requests answered in full; sent: SYN/s of the flood; took: from \
                                question to answer; failed: requests, in all trials.";
    const ENDED_NOTE: &'static str = "Of the flood, packets/s: ring loss and NIC drop at the receive \
                                      ring, discarded at the gate, taken by TCP, cookies sent back. \
                                      Own lost: the client's packets, at the ring. Shares of the CPU: \
                                      NAPI threads, server, nobody.";
    const COLUMNS: &'static [&'static str] = &["took p50", "took p99", "failed"];
    const ENDED_COLUMNS: &'static [&'static str] = &["cookies", "own lost", "server", "idle"];
    const WORDS: &'static str = "\
<p>nginx serves a small document to a client with eight connections, each of which asks again as \
soon as it is answered, while <dfn>SYNs</dfn> from random addresses flood another listener of the \
same host. That listener&#39;s queue is full at once, so the kernel answers each SYN that comes to it \
by a <dfn>cookie</dfn>, and no queue says that it is too much. The client&#39;s own packets share the \
receive ring with the flood: past what the ring&#39;s owner takes, they are lost alike \
(<dfn>own lost</dfn>), and TCP sends them again, after 0.2&nbsp;s or, for a connection&#39;s first \
packet, 1&nbsp;s. A request that is not answered within that second has <dfn>failed</dfn>, and so \
has one whose connection is refused or ends early. <dfn>Keep-alive</dfn> sends one request after \
the other by a connection; <dfn>connection per request</dfn> makes one for each.</p>";

    fn titles(variant: &str) -> Titles {
        if variant == Usage::KeepAlive.name() {
            Titles {
                drawing: "requests/s by the rate of SYNs, keep-alive",
                merit: "Requests/s, keep-alive",
                ended: "Where the flood ended, and who had the CPU: keep-alive",
            }
        } else {
            Titles {
                drawing: "requests/s by the rate of SYNs, a connection per request",
                merit: "Requests/s, a connection per request",
                ended: "Where the flood ended, and who had the CPU: a connection per request",
            }
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![age(self.took_p50_us), age(self.took_p99_us), self.failures.all().to_string()]
    }

    fn ended_cells(&self) -> Vec<String> {
        vec![
            rate(self.cookies_pps),
            rate(self.client_lost_pps),
            percent(self.server_cpu),
            percent(self.idle_cpu),
        ]
    }

    fn seen(run: &MeritRun<Self>) -> String {
        http_sentence(run)
    }
}

/// What was seen, in one plain sentence: what each mode keeps at the highest flood.
pub fn http_sentence(run: &HttpRun) -> String {
    let kernel = kernel(&run.machine.kernel);
    let highest = run.series.values().flatten().map(|point| point.flood_pps).fold(0.0, f64::max);
    let clauses: Vec<String> = run
        .summary
        .iter()
        .map(|(mode, summary)| {
            let kept = run.variants.iter().filter_map(|variant| {
                let kept = summary.variants.get(variant)?;
                Some(format!("{} ({variant})", percent(kept.retained)))
            });
            format!("{mode} {}", kept.collect::<Vec<_>>().join(" and "))
        })
        .collect();
    if clauses.is_empty() || highest == 0.0 {
        return format!("{kernel}, no flood was sent, so nothing is said of HTTP under one.");
    }
    format!(
        "{kernel}, at {} SYN/s to another listener, of its unflooded requests/s nginx keeps: {}.",
        rate(highest),
        clauses.join("; ")
    )
}
