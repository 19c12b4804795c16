//! `udp-latency` (LRP, figure 4): the round trip of pings to an unmodified UDP echo server while another
//! socket of the host, with a receiver of its own, is flooded.
//!
//! The generator sends the pings itself, at a low rate, so that no client waits for the CPU that it keeps
//! busy, and writes the time into each; a program at the server's interface sees when the reply leaves
//! ([`weir_bpf::replies`]). The same program at tc ingress of the far end was tried beside it, on the same
//! replies: there it saw half of them within 1.3 us, but the slowest percent 62 us later and more in `stock`
//! from 1.6 M packets/s on, since the far end's softirq runs on the same CPU and waits for the flood's.

mod goals;
mod round_trips;

use weir_bpf::replies::{QUESTIONS, Replies};
use weir_bpf::units::PacketsPerSec;

use crate::bench::{Bench, ECHO_PORT, Workload};
use crate::error::{Error, Result};
use crate::load::{Plan, Session};
use crate::merit::{self, About};
use crate::progress::Progress;
use crate::report;
use crate::results::latency::LatencyRun;
use crate::results::merit::{Fact, MeritTrial};
use crate::setup;
use crate::stop::Stop;
use crate::topology::SUT_INTERFACE;
use crate::trial::{self, Echo, Flood, Load};
pub use round_trips::LOST_US;

/// Its name on the command line.
pub const NAME: &str = "udp-latency";
/// The one way in which the echo server is used.
pub(crate) const VARIANT: &str = "pings";
/// Pings: few enough to cost the server next to nothing.
pub const PINGS: PacketsPerSec = PacketsPerSec(2000.0);

/// Runs the experiment.
///
/// # Errors
/// Where a measurement is not sound, or the user stops it.
pub fn run(plan: &Plan, stop: &Stop, progress: &Progress) -> Result<LatencyRun> {
    let pings = (plan.warm_up + plan.window).as_secs_f64() * PINGS.0;
    if pings > f64::from(QUESTIONS) / 2.0 {
        return Err(Error::refused(
            format!("a window of {} s is too long for {NAME}", plan.window.as_secs()),
            "leave --seconds at 30 or less",
        ));
    }
    let mut session = Session::begin(plan, progress)?;
    let mut bench = Bench::set_up(&plan.modes, plan.workload, session.cpus)?;
    let observed = setup::observe(&mut bench, &plan.modes, stop)?;
    let replies = Replies::load(ECHO_PORT)?;
    let mut attached = vec![];
    for mode in &plan.modes {
        let host = &bench.sut(*mode).host;
        attached.push(host.netns.run(|| replies.attach(host.ifindex, SUT_INTERFACE))??);
    }

    let loads = plan.loads();
    let trials = session.trials(&loads, &plan.modes, |_, flood, mode| {
        progress.step(format!("{mode}, {flood}"));
        replies.clear();
        let _spinner = match flood {
            Flood::Off => Some(bench.start_spinner(mode)?),
            _ => None,
        };
        let load = Load { bystander: Some(PINGS), echo: Echo::Light, ..plan.load(flood) };
        let done = trial::measure(&mut bench, mode, VARIANT, load, stop)?;
        let detail = round_trips::of(|number| replies.age(number), done.light);
        Ok(MeritTrial {
            merit: detail.merit,
            input_cpu_ns: done.window_cpu.0.map(|time| time.0),
            daemon_cpu_ns: done.window_cpu.1.map(|time| time.0),
            detail: detail.latency,
            load: done.trial,
        })
    })?;
    let about = About {
        name: NAME,
        merit: "us, 99th percentile of the round trip, 1 s for a ping that was lost",
        variants: vec![VARIANT],
        workload: workload(plan, observed.rcvbuf_bytes),
        setup: observed.modes,
    };
    let mut run = merit::finish(&session, about, &loads, trials);
    run.goals = goals::goals(&run);
    run.sentence = report::latency_sentence(&run);
    Ok(run)
}

fn workload(plan: &Plan, rcvbuf_bytes: u32) -> Vec<Fact> {
    let fact = |name: &str, value: String| Fact { name: name.into(), value };
    let Workload { app, ipv6, payload_len, .. } = plan.workload;
    vec![
        fact("Packets", format!("{}, {payload_len} bytes", if ipv6 { "udp6" } else { "udp4" })),
        fact("Pings", format!("{:.0}/s to an echo server", PINGS.0)),
        fact("Flood", format!("to a {} loop", app.name())),
        fact("Receive buffers", format!("{rcvbuf_bytes} bytes")),
        fact("Unloaded", "with a process that computes when nobody else wants the CPU".into()),
    ]
}
