//! `rpc-mix` (LRP, table 2): three servers want one CPU, and the network is never overloaded. One, the
//! worker, computes long for a call, in memory; two answer short RPCs, of which the client always has some
//! waiting with each, so that none of the three ever sleeps for want of work. Does the worker get the
//! third that is its, and how much do the others get done?

mod goals;
pub mod peer;
mod trial;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use crate::bench::Bench;
use crate::error::Result;
use crate::far_end;
use crate::load::{Plan, Session};
use crate::merit::{self, About};
use crate::order::pairs;
use crate::progress::Progress;
use crate::report;
use crate::results::Mode;
use crate::results::merit::Fact;
use crate::results::rpc::RpcRun;
use crate::setup;
use crate::stop::Stop;
use crate::trial::Flood;
use crate::worker_process::Worker;
use trial::Asked;

/// Its name on the command line.
pub const NAME: &str = "rpc-mix";
/// Short requests that wait with each server, or are on their way.
pub const OUTSTANDING: u32 = 32;
/// Where the worker listens; the short servers are at the ports that follow.
const PORT: u16 = 7000;

/// How long the short servers compute for a request: LRP's three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// Hardly: what is left is the network.
    Fast,
    /// About as long as the network takes.
    Medium,
    /// Longer.
    Slow,
}

impl Pace {
    /// All.
    pub const ALL: [Self; 3] = [Self::Fast, Self::Medium, Self::Slow];

    /// As in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Medium => "medium",
            Self::Slow => "slow",
        }
    }

    /// Steps of the computation for a request: some 2, 10 and 50 us.
    const fn steps(self) -> u64 {
        match self {
            Self::Fast => 800,
            Self::Medium => 4_000,
            Self::Slow => 20_000,
        }
    }
}

/// The servers of one host. Dropping it ends them.
struct Services {
    worker: Worker,
    /// Two for each pace; those of the others sleep.
    short: BTreeMap<&'static str, [Worker; 2]>,
}

impl Services {
    fn start(bench: &Bench, mode: Mode, quick: bool) -> Result<Self> {
        let host = &bench.sut(mode).host;
        host.wait_until_up()?;
        far_end::set_up(bench, mode)?;
        let server = |role: &str, address: SocketAddr, size: u64| {
            let bind = address.to_string();
            let role = [role, "--bind", &bind, "--size", &size.to_string()].map(str::to_owned);
            Worker::start(&host.netns_path, bench.sut_cpu, &role)
        };
        let worker = server("rpc-worker", worker_address(bench, mode), peer::walks(quick))?;
        let mut short = BTreeMap::new();
        for pace in Pace::ALL {
            let [one, other] = short_addresses(bench, mode, pace);
            let start = |address| server("rpc-server", address, pace.steps());
            short.insert(pace.name(), [start(one)?, start(other)?]);
        }
        Ok(Self { worker, short })
    }
}

fn worker_address(bench: &Bench, mode: Mode) -> SocketAddr {
    SocketAddr::new(bench.sut(mode).host.address.1, PORT)
}

fn short_addresses(bench: &Bench, mode: Mode, pace: Pace) -> [SocketAddr; 2] {
    let first = PORT + 1 + 2 * pace as u16;
    [first, first + 1].map(|port| SocketAddr::new(bench.sut(mode).host.address.1, port))
}

/// Runs the experiment. The plan's rates say nothing: the servers themselves set the pace.
///
/// # Errors
/// Where a measurement is not sound, or the user stops it.
pub fn run(plan: &Plan, stop: &Stop, progress: &Progress) -> Result<RpcRun> {
    let mut session = Session::begin(plan, progress)?;
    let mut bench = Bench::set_up(&plan.modes, plan.workload, session.cpus)?;
    let mut services = BTreeMap::new();
    for mode in &plan.modes {
        services.insert(*mode, Services::start(&bench, *mode, plan.quick)?);
    }
    let worker = |mode| Ok((services[&mode].worker.pid(), 0));
    let setup = setup::observe_with(&mut bench, &plan.modes, |_, mode| worker(mode))?;
    // Alone, and with the others as fast as they answer.
    let loads = [Flood::Off, Flood::Top];
    let points = pairs(&Pace::ALL, &loads);
    let trials = session.trials(&points, &plan.modes, |_, (pace, load), mode| {
        let what = if load == Flood::Off { "alone" } else { "mixed" };
        progress.step(format!("{}: {mode}, {what}", pace.name()));
        let asked = Asked { mode, pace, load, warm_up: plan.warm_up, window: plan.window };
        trial::measure(&mut bench, &services[&mode], asked, stop)
    })?;
    let about = About {
        name: NAME,
        merit: "worker calls/s",
        variants: Pace::ALL.map(Pace::name).into(),
        workload: workload(),
        setup,
    };
    let mut run = merit::finish(&session, about, &loads, trials);
    run.goals = goals::goals(&run);
    run.sentence = report::rpc_sentence(&run);
    Ok(run)
}

fn workload() -> Vec<Fact> {
    let fact = |name: &str, value: String| Fact { name: name.into(), value };
    vec![
        fact(
            "Worker",
            format!("one call at a time, a walk through {} KiB", peer::WALK_BYTES >> 10),
        ),
        fact("Short servers", format!("2, with {OUTSTANDING} requests outstanding each, over UDP")),
        fact("Client", "one process, on the generator's CPU".into()),
    ]
}
