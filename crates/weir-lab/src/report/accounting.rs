//! `accounting`, as the reports see it.

use super::load::some;
use super::merit::{Shown, Titles};
use super::sentence::kernel;
use super::units::{percent, rate};
use crate::results::accounting::{Accounting, AccountingRun, MeterSum};
use crate::results::merit::MeritRun;
use crate::trial::Books;

impl Shown for Accounting {
    const LABEL: &'static str =
        "Share of the CPU time charged to a bystander that was its own work, by flood.";
    const LOAD: &'static str = "flood sent";
    const UPWARDS: &'static str = "own work (% of charged)";
    const UNIT: f64 = 0.01;
    const NOTE: &'static str = "Of what the kernel charges to the bystander, its own work; the rest is \
                                others'. Shares of the CPU: charged to the bystander, its work, charged to \
                                the flooded server, and to one that is sent nothing.";
    const ENDED_NOTE: &'static str = "Taken: by the flooded server. Input: what the scheduler charges the NAPI \
                                      threads; ran: what they ran, by perf. Of that, by weir's meter: to the \
                                      server's channel, to all and discarding.";
    const COLUMNS: &'static [&'static str] = &["charged", "work", "server", "idle srv"];
    const ENDED_COLUMNS: &'static [&'static str] = &["ran", "ksoftirqd", "server", "metered"];
    const WORDS: &'static str = "\
<p>A <dfn>bystander</dfn> computes; a server beside it is flooded. What the kernel <dfn>charges</dfn> to the \
bystander is compared with what its work took: it counts passes of a loop whose CPU time without a flood is \
known. Receive work that is done in an interrupt is charged to whoever runs just then, unless the kernel was \
built to keep the time of interrupts apart. Threads are charged themselves, but not exactly: after a wakeup \
the scheduler does not look at the clock again when it switches, so what a NAPI thread still does after it \
has woken a receiver, the next thread is charged for; perf&#39;s clock has what it <dfn>ran</dfn>. <dfn>Mixed</dfn>: a third of \
the flood each to the server, pings, and to a closed port. weir&#39;s meter divides the time of its NAPI \
threads among channels; with what discarding takes, which is charged to nobody, the sum should be all of that \
time (<dfn>metered</dfn>).</p>";

    fn titles(variant: &str) -> Titles {
        if variant == Books::Udp.name() {
            Titles {
                drawing: "bystander's own work, by a flood to a server",
                merit: "Charged to the bystander: a flood to a server",
                ended: "Receive work: a flood to a server",
            }
        } else {
            Titles {
                drawing: "bystander's own work, by a mixed flood",
                merit: "Charged to the bystander: a mixed flood",
                ended: "Receive work: a mixed flood",
            }
        }
    }

    fn figure(merit: f64) -> String {
        percent(merit)
    }

    fn cells(&self) -> Vec<String> {
        [self.bystander_cpu, self.work_cpu, self.server_cpu, self.idle_server_cpu]
            .map(percent)
            .into()
    }

    fn ended_cells(&self) -> Vec<String> {
        let metered = self.metered.as_ref();
        let share = |sum: &MeterSum| (sum.input_ns > 0.0).then(|| sum.server_ns / sum.input_ns);
        vec![
            some(self.threads_cpu, percent),
            some(self.ksoftirqd_cpu, percent),
            some(metered.and_then(share), percent),
            some(metered.and_then(|sum| sum.accounted), percent),
        ]
    }

    fn seen(run: &MeritRun<Self>) -> String {
        accounting_sentence(run)
    }
}

/// What was seen, in one plain sentence: of each mode what the bystander was charged for at the highest
/// flood of either sort.
pub fn accounting_sentence(run: &AccountingRun) -> String {
    let kernel = kernel(&run.machine.kernel);
    let clauses: Vec<String> = run
        .series
        .iter()
        .filter_map(|(mode, points)| {
            let flooded = points.iter().filter(|point| point.flood_pps > 0.0);
            let worst = flooded.min_by(|a, b| a.merit.total_cmp(&b.merit))?;
            let share = percent(worst.detail.mischarged.max(0.0));
            Some(format!(
                "{mode} {share} at {} packets/s ({})",
                rate(worst.flood_pps),
                worst.variant
            ))
        })
        .collect();
    if clauses.is_empty() {
        return format!("{kernel}, nothing is said of whom a flood is charged to: none was sent.");
    }
    format!(
        "{kernel}, of the CPU time charged to a process that only computes, others' work was at worst: {}.",
        clauses.join("; ")
    )
}
