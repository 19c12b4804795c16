//! `udp-latency`, as the reports see it.

use super::merit::{Shown, Titles};
use super::sentence::kernel;
use super::units::{age, count, percent, rate};
use crate::results::Mode;
use crate::results::latency::{Latency, LatencyRun};
use crate::results::merit::{MeritPoint, MeritRun};

impl Shown for Latency {
    const LABEL: &'static str = "99th percentile of the round trip by the rate of a flood to another \
                                 socket.";
    const LOAD: &'static str = "packets to another socket";
    const UPWARDS: &'static str = "99 % of pings answered within (us)";
    const LOGARITHMIC: bool = true;
    const UNIT: f64 = 1.0;
    const NOTE: &'static str = "Median and range over the trials of the 99th percentile, where a ping \
                                that was lost took 1 s. p50 to p99.9: of those with a reply.";
    const ENDED_NOTE: &'static str = "Of the flood, packets/s: ring loss and NIC drop at the receive \
                                      ring, discarded at the gate, taken by its receiver. Pings sent in \
                                      the windows of all trials, and those without a reply.";
    const COLUMNS: &'static [&'static str] = &["p50", "p99", "p99.9"];
    const ENDED_COLUMNS: &'static [&'static str] = &["pings", "lost", "of pings"];
    const RETAINED: &'static str = "times";
    const WORDS: &'static str = "\
<p>A UDP <dfn>echo server</dfn> is sent 2,000 <dfn>pings</dfn> per second and sends each back, while \
another socket of the same host, with a receiver of its own, is flooded. The round trip is from when \
the generator makes the ping to when the reply leaves the host&#39;s interface. <dfn>Unloaded</dfn> is \
without a flood, but with a process that takes what nobody else wants of the CPU, so that leaving \
idle is not measured. A ping that has no reply when all packets have ended is <dfn>lost</dfn>, and \
counts as 1&nbsp;s in the first columns: 1&nbsp;s as 99th percentile says that more than 1&nbsp;% \
were lost. Past the rate at which the receive ring overflows (<dfn>ring loss</dfn>) everybody&#39;s \
packets are lost alike.</p>";

    fn titles(_variant: &str) -> Titles {
        Titles {
            drawing: "round trip (p99) by the rate of a flood to another socket",
            merit: "Round trip, 99th percentile",
            ended: "Where the flood ended, and the pings that were lost",
        }
    }

    fn figure(merit: f64) -> String {
        age(Some(merit))
    }

    fn against(ratio: f64) -> String {
        if ratio < 10.0 {
            format!("{ratio:.2}x")
        } else {
            format!("{}x", count(ratio.round() as u128))
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![age(self.p50_us), age(self.p99_us), age(self.p999_us)]
    }

    fn ended_cells(&self) -> Vec<String> {
        vec![self.sent.to_string(), self.lost.to_string(), percent(lost_share(self))]
    }

    fn seen(run: &MeritRun<Self>) -> String {
        latency_sentence(run)
    }
}

fn lost_share(pings: &Latency) -> f64 {
    if pings.sent == 0 { 0.0 } else { pings.lost as f64 / pings.sent as f64 }
}

/// What was seen, in one plain sentence: each mode at the highest flood.
pub fn latency_sentence(run: &LatencyRun) -> String {
    let kernel = kernel(&run.machine.kernel);
    let highest = |points: &Vec<MeritPoint<Latency>>| {
        points
            .iter()
            .filter(|point| point.flood_pps > 0.0)
            .max_by(|a, b| a.flood_pps.total_cmp(&b.flood_pps))
            .cloned()
    };
    let clauses: Vec<String> = run
        .series
        .iter()
        .filter_map(|(mode, points)| Some(clause(*mode, &highest(points)?)))
        .collect();
    if clauses.is_empty() {
        return format!(
            "{kernel}, no flood was sent, so nothing is said of round trips under one."
        );
    }
    format!(
        "{kernel}, with the highest flood to another socket, of pings to an echo server: {}.",
        clauses.join("; ")
    )
}

fn clause(mode: Mode, point: &MeritPoint<Latency>) -> String {
    let flood = rate(point.flood_pps);
    let lost = percent(lost_share(&point.detail));
    let times = point.of_unloaded.map(|times| format!(" ({:.1} times unloaded)", times));
    match point.detail.p99_us {
        Some(p99) if point.detail.lost == 0 => {
            let times = times.unwrap_or_default();
            format!(
                "{mode} answered 99 % within {}{times} at {flood}/s, and lost none",
                age(Some(p99))
            )
        }
        Some(p99) => {
            format!(
                "{mode} lost {lost} at {flood}/s, and answered 99 % of the rest within {}",
                age(Some(p99))
            )
        }
        None => format!("{mode} lost {lost} at {flood}/s"),
    }
}
