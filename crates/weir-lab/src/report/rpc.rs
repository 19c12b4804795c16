//! `rpc-mix`, as the reports see it.

use super::merit::{Shown, Titles};
use super::sentence::kernel;
use super::units::{percent, rate};
use crate::results::merit::{MeritPoint, MeritRun};
use crate::results::rpc::{Rpc, RpcRun};
use crate::rpc_mix::Pace;

impl Shown for Rpc {
    const LABEL: &'static str = "Calls of the worker per second, by short RPCs per second.";
    const LOAD: &'static str = "short requests sent";
    const UPWARDS: &'static str = "worker (calls/s)";
    const UNIT: f64 = 1.0;
    const NOTE: &'static str = "Calls/s of the worker, and against itself alone: its true share of the \
                                CPU, ideally a third. Sent: short requests/s. Completion: of a call. \
                                Charged: CPU time that the kernel put down to it for a call, alone or not.";
    const ENDED_NOTE: &'static str = "Taken: short requests answered/s. Shares of the CPU as the kernel \
                                      has them: NAPI threads, worker, both short servers, nobody; of the \
                                      generator's: client.";
    const COLUMNS: &'static [&'static str] = &["completion", "charged", "RPC/s"];
    const ENDED_COLUMNS: &'static [&'static str] = &["worker", "servers", "idle", "client"];
    const WORDS: &'static str = "\
<p>Three servers want one CPU, and the network is not overloaded. The <dfn>worker</dfn> computes long, \
in memory, for each call; two others answer short requests, of which 32 are outstanding with each at \
any time, so that neither sleeps for want of work. The scheduler should give each a third. Where input \
is done at the expense of whoever runs, the worker&#39;s calls take longer, though the kernel \
<dfn>charges</dfn> it for that time: the CPU time charged for one call is then more than the same call \
costs alone. <dfn>Fast</dfn>, <dfn>medium</dfn> and <dfn>slow</dfn> are what the short servers \
compute for a request: some 2, 10 and 50 microseconds.</p>";

    fn titles(variant: &str) -> Titles {
        let [fast, medium, _] = Pace::ALL.map(Pace::name);
        match variant {
            _ if variant == fast => Titles {
                drawing: "worker by short RPCs, fast",
                merit: "Worker, calls/s: fast short requests",
                ended: "Who had the CPU: fast short requests",
            },
            _ if variant == medium => Titles {
                drawing: "worker by short RPCs, medium",
                merit: "Worker, calls/s: medium short requests",
                ended: "Who had the CPU: medium short requests",
            },
            _ => Titles {
                drawing: "worker by short RPCs, slow",
                merit: "Worker, calls/s: slow short requests",
                ended: "Who had the CPU: slow short requests",
            },
        }
    }

    fn cells(&self) -> Vec<String> {
        vec![
            format!("{:.1} ms", self.completion_ms),
            format!("{:.1} ms", self.charged_ms),
            rate(self.rpc_per_s),
        ]
    }

    fn ended_cells(&self) -> Vec<String> {
        [self.worker_cpu, self.servers_cpu, self.idle_cpu, self.client_cpu].map(percent).into()
    }

    fn seen(run: &MeritRun<Self>) -> String {
        rpc_sentence(run)
    }
}

/// What was seen, in one plain sentence: of each mode the worker's share and the short RPCs.
pub fn rpc_sentence(run: &RpcRun) -> String {
    let kernel = kernel(&run.machine.kernel);
    let mixed = |point: &&MeritPoint<Rpc>| point.target_pps.is_none();
    let clauses: Vec<String> = run
        .series
        .iter()
        .filter_map(|(mode, points)| {
            let paces: Vec<String> = points
                .iter()
                .filter(mixed)
                .map(|point| {
                    format!(
                        "{} of the CPU beside {} RPC/s ({})",
                        point.of_unloaded.map_or("?".to_owned(), percent),
                        rate(point.detail.rpc_per_s),
                        point.variant
                    )
                })
                .collect();
            (!paces.is_empty()).then(|| format!("{mode} {}", paces.join(", ")))
        })
        .collect();
    if clauses.is_empty() {
        return format!("{kernel}, nothing is said of short RPCs: none were sent.");
    }
    format!(
        "{kernel}, a worker that should have a third gets, by the work that it does: {}.",
        clauses.join("; ")
    )
}
