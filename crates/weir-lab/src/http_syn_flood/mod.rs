//! `http-syn-flood` (LRP, figure 5): requests per second of nginx while SYNs from random addresses flood
//! another listener of the same host.
//!
//! The listener's own queue of half-open connections is full at once, so the kernel answers each SYN
//! by a cookie, which costs CPU and fills no queue. The client's packets share the receive ring with
//! the flood.

pub mod client;
mod far_side;
mod goals;
mod nginx;
mod trial;

use std::collections::BTreeMap;

use crate::bench::{Bench, FLOODED_PORT};
use crate::congestion;
use crate::error::Result;
use crate::load::{Plan, Session};
use crate::merit::{self, About};
use crate::order::pairs;
use crate::progress::Progress;
use crate::report;
use crate::results::Mode;
use crate::results::http::HttpRun;
use crate::results::merit::Fact;
use crate::setup;
use crate::stop::Stop;
use crate::worker_process::Worker;
use nginx::Nginx;
use trial::Asked;

/// Its name on the command line.
pub const NAME: &str = "http-syn-flood";
/// Connections of the client: LRP's eight clients.
pub const CONNECTIONS: usize = 8;

/// What a connection is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Usage {
    /// One request after the other.
    KeepAlive,
    /// One request: the client says that it wants no more, and the server closes.
    ConnectionPerRequest,
}

impl Usage {
    /// Both.
    pub const ALL: [Self; 2] = [Self::KeepAlive, Self::ConnectionPerRequest];

    /// As in results and on the worker's command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::KeepAlive => "keep-alive",
            Self::ConnectionPerRequest => "connection-per-request",
        }
    }
}

/// What runs on one host: the server and the listener that is flooded. Dropping it ends both.
struct Services {
    nginx: Nginx,
    _flooded: Worker,
}

impl Services {
    fn start(bench: &Bench, mode: Mode, program: &std::path::Path) -> Result<Self> {
        let host = &bench.sut(mode).host;
        host.wait_until_up()?;
        let directory = bench.topology.directory(mode.name())?;
        let bind = std::net::SocketAddr::new(host.address.1, FLOODED_PORT).to_string();
        let listener = ["tcp-listener".into(), "--bind".into(), bind];
        Ok(Self {
            nginx: Nginx::start(program, host, bench.sut_cpu, &directory)?,
            _flooded: Worker::start(&host.netns_path, bench.sut_cpu, &listener)?,
        })
    }
}

/// Runs the experiment.
///
/// # Errors
/// Without nginx, where a measurement is not sound, or the user stops it.
pub fn run(plan: &Plan, stop: &Stop, progress: &Progress) -> Result<HttpRun> {
    let (program, version) = nginx::find()?;
    let mut session = Session::begin(plan, progress)?;
    let mut bench = Bench::set_up(&plan.modes, plan.workload, session.cpus)?;
    far_side::set_up(&bench, &plan.modes)?;
    let mut services = BTreeMap::new();
    for mode in &plan.modes {
        services.insert(*mode, Services::start(&bench, *mode, &program)?);
    }
    let setup = setup::observe_with(&mut bench, &plan.modes, |_, mode| {
        // Nothing of the flood ever waits in a queue that the application reads.
        Ok((services[&mode].nginx.worker, 0))
    })?;

    let loads = plan.loads();
    let points = pairs(&Usage::ALL, &loads);
    let trials = session.trials(&points, &plan.modes, |_, (usage, flood), mode| {
        progress.step(format!("{}: {mode}, {flood}", usage.name()));
        let asked = Asked { mode, usage, flood, warm_up: plan.warm_up, window: plan.window };
        trial::measure(&mut bench, &services[&mode], asked, stop)
    })?;
    let about = About {
        name: NAME,
        merit: "requests/s",
        variants: Usage::ALL.map(Usage::name).into(),
        workload: workload(version),
        setup,
    };
    let mut run = merit::finish(&session, about, &loads, trials);
    run.goals = goals::goals(&run);
    run.sentence = report::http_sentence(&run);
    Ok(run)
}

fn workload(version: String) -> Vec<Fact> {
    let fact = |name: &str, value: String| Fact { name: name.into(), value };
    let (network, bits) = far_side::FLOOD_SOURCES;
    vec![
        fact("Server", format!("{version}, one worker process")),
        fact("Document", format!("{} bytes", nginx::DOCUMENT_BYTES)),
        fact(
            "Client",
            format!(
                "{CONNECTIONS} connections, on the generator's CPU; a request has failed after {} s",
                client::PATIENCE.as_secs()
            ),
        ),
        fact("Congestion control", congestion::NAME.into()),
        fact("Flood", format!("TCP SYNs from {network}/{bits} to another listener")),
    ]
}
