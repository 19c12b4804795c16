//! `harmless` (LRP 4.2): nothing is worse where nothing is overloaded.

use super::shared::*;
use crate::programs::{ClientKind, DNSPERF, IPERF3, IPERF3_CLIENT, MEMCASLAP, WRK, in_flight};

const MAIN: &str = "weir";
/// NSD's answers per second before it has been saturated in this run.
const NSD_PER_S: f64 = 100e3;
/// What asks each server, and how; NSD at its rate, or at shares of that.
const PROGRAMS: [(&str, &ClientKind, How); 12] = [
    ("nginx", &WRK, How::Options("")),
    // The server closes each connection after its answer, and wrk opens another.
    ("nginx-conn", &WRK, How::Options("-H Connection:%_close")),
    ("nsd", &DNSPERF, How::Rate(None)),
    ("nsd-30", &DNSPERF, How::Rate(Some(0.3))),
    ("nsd-60", &DNSPERF, How::Rate(Some(0.6))),
    ("nsd-90", &DNSPERF, How::Rate(Some(0.9))),
    ("udp-200", &IPERF3_CLIENT, How::Options("-u -b 1000M -l 200")),
    ("udp-1400", &IPERF3_CLIENT, How::Options("-u -b 1000M -l 1400")),
    ("udp-8000", &IPERF3_CLIENT, How::Options("-u -b 1000M -l 8000")),
    ("tcp", &IPERF3_CLIENT, How::Options("-P 1")),
    // The server sends, and receives acknowledgements.
    ("tcp-sent", &IPERF3_CLIENT, How::Options("-R")),
    ("memcached", &MEMCASLAP, How::Options("")),
];
const QUICK: [&str; 2] = ["nginx", "udp-8000+nice-19"];
/// Programs that a full run has beside a process unasked, too.
const ACCOMPANIED_FULL: [&str; 3] = ["nginx", "nsd", "udp-8000"];
/// What weir is held against: without a flood, stock's interrupts cost an idle host more than RPS does.
const BASELINES: Arms = &["stock", "stock-rps", "threaded", "niced", "batch"];
/// Whom weir is held against beside a process: the others there starve either it or the network.
const NEIGHBOURLY: Arms = &["stock", "threaded"];

/// Where loss is reported, and where percentiles are: dnsperf has none where it only asks as fast as it is answered.
const LOSSY: Cases = Cases::Where(|case| ALONE.has(case) && has_loss(case));
const LOSSY_BESIDE: Cases = Cases::Where(|case| ACCOMPANIED.has(case) && has_loss(case));
const TIMED: Cases = Cases::Where(|case| ALONE.has(case) && has_percentiles(case));
const TIMED_BESIDE: Cases = Cases::Where(|case| ACCOMPANIED.has(case) && has_percentiles(case));

pub(super) type Arms = &'static [&'static str];

#[derive(Clone, Copy)]
enum How {
    Options(&'static str),
    /// A share of what NSD can answer; `None`: as fast as the answers come.
    Rate(Option<f64>),
}

pub static EXPERIMENT: Experiment = Experiment {
    name: "harmless",
    paper: "LRP 4.2",
    question: "what does weir cost real programs where nothing is overloaded?",
    found: "LRP's throughput and latency were within noise of BSD's",
    needs: &["nginx", "wrk", "nsd", "dnsperf", "iperf3", "memcached", "memcaslap"],
    arms: "stock,stock-rps,threaded,niced,batch,bare-pass?,idle-weir?,weir,weir-native?",
    main: MAIN,
    cases: || {
        let case = |program: &str, beside: &str| {
            let name = format!("{program}{beside}");
            let full = beside.is_empty() || ACCOMPANIED_FULL.contains(&program);
            // Its rate is a share of what was answered there.
            let against = is_paced(program).then_some("nsd");
            Case { quick: QUICK.contains(&&*name), full, against, ..Case::always(name) }
        };
        let of = |(beside, _)| PROGRAMS.map(|(program, ..)| case(program, beside));
        BESIDE.into_iter().flat_map(of).collect()
    },
    loads: "0",
    times: Choice::times((300, 3000, 10), (50, 1000, 2)),
    scene,
    says: "answers {} requests/s",
    merits: &[&m::per_s, &m::throughput_mbit],
    tables: tables! {
        "Answered requests/s" in Cases::Where(|case| !is_stream(case)) => per_s;
        "Sent, where the client has a rate, and answered; requests/s"
            in Cases::Where(is_paced) => sent_per_s, per_s;
        "Payload received, Mbit/s" in Cases::Where(is_stream) => throughput_mbit;
        "Lost, of what was sent"
            in Cases::Where(has_loss) => loss;
        "Time of a request, us: median, 99th percentile"
            in Cases::Where(|case| !is_stream(case)) => took_p50_us, took_p99_us;
        "Mean time of a request, us, where the client reports no median"
            in Cases::Where(|case| !is_stream(case)) => took_mean_us;
        "Passes of the calibrated loop per second by the process beside it"
            in ACCOMPANIED => hog_per_s;
    },
    figure: bars("Requests answered, nothing overloaded", &m::per_s),
    goals: goals! {
        "throughput, of stock's" =>
            of(MAIN, |v, arm| throughput(v, arm, ALONE, &["stock"]), ALONE), AtLeast(0.99);
        "throughput, of the best baseline's" =>
            of(MAIN, |v, arm| throughput(v, arm, ALONE, BASELINES), ALONE), AtLeast(0.97);
        "loss beyond the best baseline's" =>
            of(MAIN, |v, arm| lost(v, arm, LOSSY, BASELINES), LOSSY), AtMost(5e-4);
        "99th percentile, of the best baseline's" =>
            figure(MAIN, TIMED, Every, took_p99_us, Best(BASELINES)), AtMost(1.1);
        "throughput beside a process, of the better of stock and threaded" =>
            of(MAIN, |v, arm| throughput(v, arm, ACCOMPANIED, NEIGHBOURLY), ACCOMPANIED),
            AtLeast(1.0);
        "loss beside a process, beyond theirs" =>
            of(MAIN, |v, arm| lost(v, arm, LOSSY_BESIDE, NEIGHBOURLY), LOSSY_BESIDE), AtMost(0.0);
        "99th percentile beside a process, of theirs" =>
            figure(MAIN, TIMED_BESIDE, Every, took_p99_us, Best(NEIGHBOURLY)), AtMost(1.0);
        "work of a process beside it, of what threaded leaves it" =>
            figure(MAIN, ACCOMPANIED, Every, hog_per_s, Best(&["threaded"])), AtLeast(1.0);
    },
    notes: "There is no flood. Each server has one worker on the tested CPU; the client has the other \
            CPU. nginx-conn makes a connection for each request; nsd is saturated by 100 queries in \
            flight, nsd-30 to nsd-90 are asked at that share of what stock answered in this run; UDP is \
            sent at up to 1 Gbit/s, of 8,000 bytes in fragments. +hog is a process that computes at \
            nice 0, +nice-19 one at nice 19, +idle one of SCHED_IDLE, +group one at nice 0 in a control \
            group of its own, +bursts one at nice 0 that sleeps for 96 ms after each 4. Native arms are to be held against bare-pass.",
    ..USUAL
};

fn is_stream(case: &str) -> bool {
    case.starts_with("udp") || case.starts_with("tcp")
}

fn has_loss(case: &str) -> bool {
    case.starts_with("nsd") || case.starts_with("udp")
}

fn has_percentiles(case: &str) -> bool {
    case.starts_with("nginx") || is_paced(case)
}

fn is_paced(case: &str) -> bool {
    case.starts_with("nsd-")
}

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let (program, beside) = accompanied(ask.case);
    let (_, kind, how) = *PROGRAMS.iter().find(|of| of.0 == program).unwrap_or(&PROGRAMS[0]);
    let more = match how {
        How::Options(more) => more.to_owned(),
        How::Rate(share) => in_flight(share.map(|share| (share * capacity(ask.done)).round())),
    };
    let app = App::new(AppKind::Real(kind.server), kind.server.port, Role::Flooded);
    // iperf3's server may still be at the last trial's test.
    let per_trial = *kind.server == IPERF3;
    Ok(Scene {
        apps: vec![App { per_trial, ..app }],
        program: Some((kind, more)),
        beside,
        needs: vec![Need::FarEndRps],
        books: Books::None,
        without_generator: true,
        ..Scene::default()
    })
}

/// What NSD answers at most in arm `stock`, or where that is not run in all others.
fn capacity(done: &[Trial]) -> f64 {
    let of = |is_wanted: fn(&str) -> bool| {
        let of_nsd = done.iter().filter(|t| t.case == "nsd" && is_wanted(&t.arm));
        median(of_nsd.filter_map(|trial| trial.get(&m::per_s)))
    };
    of(|arm| arm == "stock").or_else(|| of(|_| true)).unwrap_or(NSD_PER_S)
}

/// Of each case the one of the two that it has.
pub(super) fn throughput(view: &View<'_>, arm: &str, cases: Cases, arms: Arms) -> Vec<Found> {
    let of = |figure| find(view, arm, cases, At::Every, figure, Against::Best(arms));
    [of(&m::per_s), of(&m::throughput_mbit)].concat()
}

/// Share of what was sent that was lost, less the same of the arm that lost least.
fn lost(view: &View<'_>, arm: &str, cases: Cases, arms: Arms) -> Vec<Found> {
    in_each(view, cases, |case| {
        let (best, _) = view.best(arms, case, Load::Off, &m::loss)?;
        let of = |arm| (arm, case, Load::Off);
        let pairs = view.pairs(of(arm), of(best), &m::loss).into_iter();
        let lost = pairs.map(|(own, other)| (own - other, 1.0));
        let found = compare(lost, format!("{case}, of {best}"))?;
        Some(Found { without: view.without(arms, case, Load::Off), ..found })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goals::{Verdict, judge};
    use crate::report::made_up;

    #[test]
    fn what_a_baseline_loses_that_was_not_run_may_be_less() {
        let mut run = made_up::overload(&[]);
        for (arm, repeat) in ["stock", MAIN].into_iter().flat_map(|arm| [(arm, 0), (arm, 1)]) {
            let values = [(&m::loss, 0.1), (&m::throughput_mbit, 1e3)];
            run.trials.push(made_up::trial((arm, "udp-200", Load::Off), repeat, &values));
        }
        let mut found = judge(&View::new(&EXPERIMENT, &run)).into_iter();
        let lost = found.find(|goal| goal.name.contains("loss beyond")).unwrap();
        assert_eq!(lost.verdict, Verdict::Undecided);
        assert!(lost.got.ends_with("; without batch, niced, stock-rps, threaded"), "{lost:?}");
        assert!(lost.got.contains("in 1 of its 7 cases"), "{lost:?}");
    }
}
