//! `parity` (LRP, table 1): what weir costs where nothing is overloaded. Round trips of one byte,
//! a UDP sliding window, a TCP stream, by 1 and by 1,000 flows, each attach point against its own stock.
//!
//! - **As behind a NIC**: neither end of the wire has TSO, so every packet comes by the ring and NAPI.
//!   `native` is here alone: it takes a veth's TSO away. `stock` is the lab's, with an interrupt each
//!   50 us; `stock-rps` has no moderation, but polls on the CPU that sends, and hands over to the SUT's
//!   by RPS.
//! - **A veth as it is made**, with TSO: packets of its own host's sockets go past NAPI to the backlog
//!   (`veth_skb_is_eligible_for_gro()`), with RPS on the SUT's CPU.
//!
//! The far end has RPS too, so that its receiving is not done on the SUT's CPU, where a veth has it.

mod analysis;
mod goals;
mod iperf;
pub mod peer;
mod rig;
mod trial;

use crate::error::Result;
use crate::load::{Plan, Session};
use crate::progress::Progress;
use crate::report;
use crate::results::SCHEMA;
use crate::results::merit::Fact;
use crate::results::parity::{Arm, Measure, ParityRun};
use crate::stop::Stop;
use crate::warnings;
use rig::Rig;
pub use trial::DATAGRAM_BYTES;

/// Its name on the command line.
pub const NAME: &str = "parity";
/// Flows of the rows that have many.
pub const MANY: u32 = 1000;
/// Flows that each measure is taken with.
pub const FLOWS: [u32; 2] = [1, MANY];

/// What is measured, and by how many flows.
pub type RowSpec = (Measure, u32);

/// Rows of the whole table.
pub fn all_rows() -> Vec<RowSpec> {
    Measure::ALL.iter().flat_map(|measure| FLOWS.map(|flows| (*measure, flows))).collect()
}

/// Rows of a quick one.
pub const QUICK_ROWS: [RowSpec; 3] =
    [(Measure::UdpRoundTrip, 1), (Measure::UdpWindow, 1), (Measure::TcpStream, 1)];
/// Arms of a quick one.
pub const QUICK_ARMS: [Arm; 7] =
    [Arm::Stock, Arm::StockRps, Arm::Threaded, Arm::Native, Arm::Tc, Arm::VethStock, Arm::VethTc];

/// Runs the experiment, for these rows and arms. Of the plan its rates, modes and packets say nothing.
///
/// # Errors
/// Without iperf3, where a measurement is not sound, or the user stops it.
pub fn run(
    plan: &Plan,
    (rows, arms): (&[RowSpec], &[Arm]),
    stop: &Stop,
    progress: &Progress,
) -> Result<ParityRun> {
    let (program, version) = iperf::find()?;
    let mut session = Session::begin(plan, progress)?;
    let rig = Rig::set_up(arms, session.cpus, &program)?;
    let setup = rig.observe()?;
    let trials = session.trials(rows, arms, |repeat, row, arm| {
        progress.step(format!("{}, {} flows: {arm}", row.0.name(), row.1));
        trial::measure(&rig, plan, (repeat, row, arm), stop)
    })?;
    let rows = analysis::rows(rows, arms, &trials);
    let mut run = ParityRun {
        schema: SCHEMA,
        experiment: NAME.into(),
        weir_version: env!("CARGO_PKG_VERSION").into(),
        started_at: session.started_at.clone(),
        duration_s: 0.0,
        quick: plan.quick,
        machine: session.machine(),
        workload: workload(version),
        setup,
        goals: vec![],
        rows,
        sentence: String::new(),
        warnings: vec![],
        trials,
    };
    let conditions = run.rows.iter().flat_map(|row| row.arms.values().map(|arm| &arm.conditions));
    run.warnings = warnings::of_points(conditions, plan.repeats);
    run.warnings.extend(analysis::warnings(&run));
    run.warnings.extend(warnings::circumstances(&run.machine, run.quick));
    run.goals = goals::goals(&run);
    run.sentence = report::parity_sentence(&run);
    run.duration_s = session.began.elapsed().as_secs_f64();
    Ok(run)
}

fn workload(iperf: String) -> Vec<Fact> {
    let fact = |name: &str, value: String| Fact { name: name.into(), value };
    vec![
        fact("Round trips", "1 byte, one under way, by all flows in turn".into()),
        fact(
            "Sliding window",
            format!(
                "{} datagrams of {DATAGRAM_BYTES} bytes under way, over all flows",
                peer::WINDOW
            ),
        ),
        fact("TCP stream", format!("{iperf}; by {MANY} connections the lab's own sender")),
    ]
}
