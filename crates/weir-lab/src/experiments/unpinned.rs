//! `unpinned` (LRP 4.2): [`super::harmless`] where the scheduler has every CPU for everything.

use super::harmless::{is_stream, scene, throughput};
use super::shared::*;

const MAIN: &str = "weir+unpinned";
const PROGRAMS: [&str; 7] =
    ["nginx", "nsd", "memcached", "tcp", "tcp-sent", "nginx+hog", "memcached+hog"];
const BASELINES: &[&str] =
    &["stock+unpinned", "threaded+unpinned", "niced+unpinned", "batch+unpinned"];

pub static EXPERIMENT: Experiment = Experiment {
    name: "unpinned",
    paper: "LRP 4.2",
    question: "what does weir cost real programs where nothing is pinned, nor overloaded?",
    found: "LRP's throughput and latency were within noise of BSD's",
    needs: &["nginx", "wrk", "nsd", "dnsperf", "iperf3", "memcached", "memcaslap"],
    arms: "stock+unpinned,threaded+unpinned,niced+unpinned,batch+unpinned,weir+unpinned",
    main: MAIN,
    cases: || {
        let case = |name: &str| Case { quick: name == "nginx", ..Case::always(name) };
        PROGRAMS.map(case).into()
    },
    loads: "0",
    times: Choice::times((300, 3000, 10), (50, 1000, 2)),
    scene,
    says: "answers {} requests/s",
    merits: &[&m::per_s, &m::throughput_mbit],
    tables: tables! {
        "Answered requests/s" in Cases::Where(|case| !is_stream(case)) => per_s;
        "Payload received, Mbit/s" in Cases::Where(is_stream) => throughput_mbit;
        "Time of a request, us: median, 99th percentile"
            in Cases::Where(|case| !is_stream(case)) => took_p50_us, took_p99_us;
        "Passes of the calibrated loop per second by the process beside it"
            in ACCOMPANIED => hog_per_s;
    },
    figure: bars("Requests answered, nothing pinned", &m::per_s),
    goals: goals! {
        "throughput, of stock's" =>
            of(MAIN, |v, arm| throughput(v, arm, ALONE, &["stock+unpinned"]), ALONE), AtLeast(0.99);
        "throughput, of the best baseline's" =>
            of(MAIN, |v, arm| throughput(v, arm, ALONE, BASELINES), ALONE), AtLeast(0.97);
        "throughput beside a process, of stock's" =>
            of(MAIN, |v, arm| throughput(v, arm, ACCOMPANIED, &["stock+unpinned"]), ACCOMPANIED),
            AtLeast(0.99);
    },
    notes: "As harmless, but servers, clients, NAPI threads and weir (without --cpus) may run on every CPU, and a veth \
            delivers on the CPU that has sent. Both ends have GRO, and no TSO.",
    ..USUAL
};
