//! From the command line's arguments to the experiments' plans.

use std::time::Duration;

use weir_bpf::units::PacketsPerSec;

use super::{Kinds, RunArgs};
use crate::bench::Workload;
use crate::parity::{self, RowSpec};
use crate::rates::{Rate, parse_rate};
use crate::results::Mode;
use crate::results::kinds::Kind;
use crate::results::parity::Arm;
use crate::trial::Flood;
use crate::{gate_cost, kinds, load, udp_overload, user_share};

/// What a quick run's trials may take, so that the whole ends within 45 s.
const QUICK_BUDGET: Duration = Duration::from_secs(40);
/// The same where a search follows the trials, or more is set up before them.
const QUICK_BUDGET_SEARCH: Duration = Duration::from_secs(32);
/// The same for `parity`, whose iperf3 measures whole seconds: three repeats take most of it.
const QUICK_BUDGET_PARITY: Duration = Duration::from_secs(50);
/// What the whole of a quick `udp-overload` may take: a minute, less taking everything down.
const QUICK_WHOLE: Duration = Duration::from_secs(55);
/// `udp-overload`'s.
const QUICK_RATES: [&str; 6] = ["100k", "300k", "600k", "1.2M", "3M", "top"];
/// Those of them at which the echo server is flooded too: on either side of its peak, and the top.
const QUICK_ECHO: [&str; 3] = ["100k", "300k", "top"];
/// In a full run `softirq` has to be asked for: it is the fallback, and `user-share` has it.
const FULL_MODES: [Mode; 6] =
    [Mode::Stock, Mode::Threaded, Mode::Niced, Mode::Gate, Mode::IdleWeir, Mode::Weir];
const QUICK_MODES: [Mode; 4] = [Mode::Stock, Mode::Threaded, Mode::Niced, Mode::Weir];

/// Rates that are known to be well written.
fn rates(text: &[&str]) -> Vec<Rate> {
    text.iter().filter_map(|rate| parse_rate(rate).ok()).collect()
}

fn to_flood(rate: Rate) -> Option<PacketsPerSec> {
    rate.0.is_finite().then_some(PacketsPerSec(rate.0))
}

fn workload(args: &RunArgs) -> Workload {
    Workload { app: args.app, ipv6: args.ipv6, payload_len: args.payload, rcvbuf: args.rcvbuf }
}

/// The modes asked for, in column order; else these.
fn modes(args: &RunArgs, quick: &[Mode], full: &[Mode]) -> Vec<Mode> {
    let mut modes = match (args.modes.is_empty(), args.quick) {
        (false, _) => args.modes.clone(),
        (true, true) => quick.to_vec(),
        (true, false) => full.to_vec(),
    };
    modes.sort();
    modes.dedup();
    modes
}

/// The rates asked for, lowest first; else these.
fn chosen(args: &RunArgs, quick: &[&str], full: &[&str]) -> Vec<Rate> {
    let mut chosen = match (args.rates.is_empty(), args.quick) {
        (false, _) => args.rates.clone(),
        (true, true) => rates(quick),
        (true, false) => rates(full),
    };
    chosen.sort_by(|a, b| a.0.total_cmp(&b.0));
    chosen.dedup();
    chosen
}

/// What these experiments have in common.
fn shared(
    args: &RunArgs,
    modes: Vec<Mode>,
    (quick_rates, full_rates): (&[&str], &[&str]),
    quick_budget: Duration,
) -> load::Plan {
    let quick = args.quick;
    let chosen = chosen(args, quick_rates, full_rates);
    load::Plan {
        modes,
        rates: chosen.into_iter().map(|rate| Flood::from(to_flood(rate))).collect(),
        repeats: args.repeats.unwrap_or(if quick { 3 } else { 10 }),
        warm_up: Duration::from_millis(if quick { 50 } else { 300 }),
        window: args.seconds.unwrap_or(Duration::from_millis(if quick { 200 } else { 2000 })),
        workload: workload(args),
        quick,
        budget: (quick && args.repeats.is_none()).then_some(quick_budget),
    }
}

/// `udp-overload --neighbour`.
pub(super) fn neighbour(args: &RunArgs) -> load::Plan {
    let full = ["50k", "100k", "200k", "300k", "400k", "600k", "800k", "1.6M", "3.2M", "top"];
    let modes = modes(args, &QUICK_MODES, &FULL_MODES);
    shared(args, modes, (&["100k", "300k", "1.2M", "top"], &full), QUICK_BUDGET)
}

/// `separation`.
pub(super) fn separation(args: &RunArgs) -> load::Plan {
    let full = [Mode::Stock, Mode::Threaded, Mode::Niced, Mode::Gate, Mode::Weir];
    let modes = modes(args, &QUICK_MODES, &full);
    let rates = ["400k", "800k", "1.6M", "2.4M", "top"];
    shared(args, modes, (&["400k", "1.6M", "top"], &rates), QUICK_BUDGET_SEARCH)
}

/// `separation --kinds`. Its windows are longer: TCP waits for 200 ms before it sends again what was lost;
/// so a quick run has no time for repeats.
pub(super) fn separation_kinds(args: &RunArgs) -> load::Plan {
    let modes = modes(args, &QUICK_MODES, &QUICK_MODES);
    let full = ["100k", "400k", "1M", "top"];
    let plan = shared(args, modes, (&["100k", "1M"], &full), QUICK_BUDGET);
    load::Plan {
        warm_up: Duration::from_millis(if args.quick { 150 } else { 300 }),
        window: args.seconds.unwrap_or(Duration::from_millis(if args.quick { 400 } else { 2000 })),
        repeats: args.repeats.unwrap_or(if args.quick { 1 } else { 5 }),
        ..plan
    }
}

/// The kinds asked for, in the order of the tables.
pub(super) fn kinds(args: &RunArgs) -> Vec<Kind> {
    let every: &[Kind] = if args.quick { &kinds::QUICK } else { &Kind::ALL };
    let each = args.kinds.iter().flat_map(|asked| match asked {
        Kinds::All => every.to_vec(),
        Kinds::One(kind) => vec![*kind],
    });
    let mut kinds: Vec<Kind> = each.collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// `user-share`.
pub(super) fn user_share(args: &RunArgs) -> load::Plan {
    let modes = modes(args, &user_share::MODES, &user_share::MODES);
    let full = ["100k", "200k", "400k", "800k", "1.6M", "2.4M", "3.2M", "top"];
    shared(args, modes, (&["400k", "1.6M", "top"], &full), QUICK_BUDGET)
}

/// `http-syn-flood`.
pub(super) fn http_syn_flood(args: &RunArgs) -> load::Plan {
    let full = [Mode::Stock, Mode::Threaded, Mode::Niced, Mode::Gate, Mode::Weir];
    let modes = modes(args, &QUICK_MODES, &full);
    let rates = ["50k", "100k", "200k", "400k", "800k"];
    let plan = shared(args, modes, (&["100k", "400k"], &rates), QUICK_BUDGET_SEARCH);
    // Other experiments of the same command may have packets of their own; this one's are TCP.
    load::Plan { workload: Workload { ipv6: false, ..plan.workload }, ..plan }
}

/// `udp-latency`. Percentiles want more pings than figures of other quick runs want packets.
pub(super) fn udp_latency(args: &RunArgs) -> load::Plan {
    let modes = modes(args, &QUICK_MODES, &QUICK_MODES);
    let full = ["100k", "200k", "400k", "800k", "1.6M", "top"];
    let plan = shared(args, modes, (&["100k", "400k", "1.6M", "top"], &full), QUICK_BUDGET_SEARCH);
    let window = args.seconds.unwrap_or(Duration::from_millis(if args.quick { 500 } else { 2000 }));
    load::Plan { window, ..plan }
}

/// `parity`.
pub(super) fn parity(args: &RunArgs) -> load::Plan {
    let workload = Workload { ipv6: false, ..workload(args) };
    load::Plan { workload, ..shared(args, vec![], (&[], &[]), QUICK_BUDGET_PARITY) }
}

/// Its rows and arms, in the order of the table: those asked for, with what they are held against.
pub(super) fn parity_table(args: &RunArgs) -> (Vec<RowSpec>, Vec<Arm>) {
    let every: (&[RowSpec], &[Arm]) = if args.quick {
        (&parity::QUICK_ROWS, &parity::QUICK_ARMS)
    } else {
        (&parity::all_rows(), &Arm::ALL)
    };
    let mut rows = args.rows.concat();
    if rows.is_empty() {
        rows = every.0.to_vec();
    }
    let stocks = args.arms.iter().flat_map(|arm| arm.stocks());
    let mut arms: Vec<Arm> = args.arms.iter().chain(stocks).copied().collect();
    if arms.is_empty() {
        arms = every.1.to_vec();
    }
    rows.sort_unstable();
    rows.dedup();
    arms.sort_unstable();
    arms.dedup();
    (rows, arms)
}

/// `rpc-mix`.
pub(super) fn rpc_mix(args: &RunArgs) -> load::Plan {
    let full = [Mode::Stock, Mode::Threaded, Mode::Niced, Mode::Gate, Mode::Weir];
    let workload = Workload { ipv6: false, ..workload(args) };
    let modes = modes(args, &QUICK_MODES, &full);
    load::Plan { workload, ..shared(args, modes, (&[], &[]), QUICK_BUDGET) }
}

/// `accounting`.
pub(super) fn accounting(args: &RunArgs) -> load::Plan {
    let full = [Mode::Stock, Mode::Threaded, Mode::Niced, Mode::Gate, Mode::Weir];
    let modes = modes(args, &QUICK_MODES, &full);
    let rates = ["50k", "100k", "200k", "400k"];
    shared(args, modes, (&["50k", "400k"], &rates), QUICK_BUDGET_SEARCH)
}

/// `receivers`, whose rates are those of either flood.
pub(super) fn receivers(args: &RunArgs) -> load::Plan {
    let full = [Mode::Stock, Mode::Threaded, Mode::Niced, Mode::Gate, Mode::Weir];
    let modes = modes(args, &QUICK_MODES, &full);
    let rates = ["2k", "10k", "50k", "100k", "150k", "200k"];
    shared(args, modes, (&["2k", "100k", "200k"], &rates), QUICK_BUDGET_SEARCH)
}

/// `gate-cost`.
pub(super) fn gate_cost(args: &RunArgs) -> gate_cost::Plan {
    let quick = args.quick;
    gate_cost::Plan {
        repeats: args.repeats.unwrap_or(if quick { 3 } else { 10 }),
        warm_up: Duration::from_millis(if quick { 30 } else { 200 }),
        window: args.seconds.unwrap_or(Duration::from_millis(if quick { 100 } else { 1000 })),
        calls: if quick { 12 } else { 50 },
        quick,
        budget: (quick && args.repeats.is_none()).then_some(QUICK_BUDGET),
    }
}

/// `udp-overload`.
pub(super) fn udp_overload(args: &RunArgs) -> udp_overload::Plan {
    let quick = args.quick;
    let full_rates = [
        "50k", "100k", "200k", "300k", "400k", "600k", "800k", "1.2M", "1.6M", "2.4M", "3.2M",
        "4.8M", "top",
    ];
    let chosen = chosen(args, &QUICK_RATES, &full_rates);
    let seconds = |quick_s: f64, full_s: f64| {
        args.seconds.unwrap_or(Duration::from_secs_f64(if quick { quick_s } else { full_s }))
    };
    let whole = |rates: Vec<Rate>| rates.into_iter().map(to_flood).collect();
    let echo = if quick && args.rates.is_empty() { rates(&QUICK_ECHO) } else { chosen.clone() };
    let bystander =
        if quick { rates(&["1.2M", "top"]) } else { rates(&["800k", "1.6M", "3.2M", "top"]) };
    udp_overload::Plan {
        modes: modes(args, &QUICK_MODES, &FULL_MODES),
        rates: whole(chosen),
        echo_rates: whole(echo),
        bystander_rates: whole(bystander),
        repeats: args.repeats.unwrap_or(if quick { 3 } else { 10 }),
        echo_repeats: args.repeats.unwrap_or(if quick { 3 } else { 5 }),
        bystander_repeats: args.repeats.unwrap_or(if quick { 3 } else { 5 }),
        bisection_steps: if quick { 5 } else { 9 },
        warm_up: Duration::from_millis(if quick { 50 } else { 300 }),
        window: seconds(0.2, 2.0),
        echo_window: seconds(0.1, 2.0),
        bisection_window: Duration::from_millis(if quick { 100 } else { 1000 }),
        workload: workload(args),
        quick,
        budget: (quick && args.repeats.is_none()).then_some(QUICK_WHOLE),
    }
}
