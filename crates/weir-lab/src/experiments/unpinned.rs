//! `unpinned` (LRP 4.2): [`super::harmless`] where the scheduler has every CPU for everything.

use super::harmless::{Arms, EXPERIMENT as HARMLESS, throughput};
use super::shared::*;

const MAIN: &str = "weir+unpinned";
const PROGRAMS: [&str; 7] =
    ["nginx", "nsd", "memcached", "tcp", "tcp-sent", "nginx+hog", "memcached+hog"];
const STOCK: Arms = &["stock+unpinned"];
const BASELINES: Arms =
    &["stock+unpinned", "threaded+unpinned", "niced+unpinned", "batch+unpinned"];

pub static EXPERIMENT: Experiment = Experiment {
    name: "unpinned",
    question: "what does weir cost real programs where nothing is pinned, nor overloaded?",
    arms: "stock+unpinned,threaded+unpinned,niced+unpinned,batch+unpinned,weir+unpinned",
    main: MAIN,
    cases: || {
        let case = |name: &str| Case { quick: name == "nginx", ..Case::always(name) };
        PROGRAMS.map(case).into()
    },
    figure: bars("Requests answered, nothing pinned", &m::per_s),
    goals: goals! {
        "throughput, of stock's" =>
            of(MAIN, |v, arm| throughput(v, arm, ALONE, STOCK), ALONE), AtLeast(0.99);
        "throughput, of the best baseline's" =>
            of(MAIN, |v, arm| throughput(v, arm, ALONE, BASELINES), ALONE), AtLeast(0.97);
        "throughput beside a process, of stock's" =>
            of(MAIN, |v, arm| throughput(v, arm, ACCOMPANIED, STOCK), ACCOMPANIED),
            AtLeast(0.99);
    },
    notes: "As harmless, but servers, clients, NAPI threads and weir (without --cpus) may run on every CPU, and a veth \
            delivers on the CPU that has sent. Both ends have GRO, and no TSO.",
    ..HARMLESS
};
