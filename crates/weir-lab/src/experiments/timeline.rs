//! `timeline`: one packet, and each of a burst of three, from the driver to its receiver.
//!
//! Not one packet's call graph, but the median of many packets' steps by the kernel's tracepoints.

use super::shared::*;

/// Bursts are a millisecond apart.
const LOAD: (&str, &str) = ("1k", "3k");
const OF_A_BURST: [&str; 3] = ["first", "second", "third"];

pub static EXPERIMENT: Experiment = Experiment {
    name: "timeline",
    paper: "MR fig. 7-4, 7-5, 7-7, 7-8",
    question: "when is a packet where on its way, alone and in a burst of three?",
    found: "polling saved 30 us; the first of a burst was sent after 366 us, with interrupts after 462",
    arms: "stock,threaded,niced,batch,weir,weir-native",
    cases: || {
        let alone = ["alone", "untraced"].map(|case| Case::always(case).at(LOAD.0));
        let burst = OF_A_BURST.map(|case| Case::always(case).at(LOAD.1));
        alone.into_iter().chain(burst).collect()
    },
    loads: LOAD.0,
    scene,
    says: "has a packet received {} after it was made",
    merits: &[&m::age_p50_us],
    tables: tables! {
        "Time since a packet was made, us, medians: input scheduled, input begins, packet at IP, receiver woken for it, \
         receiver runs, packet received"
            in TRACED => scheduled_us, began_us, at_ip_us, woken_us, runs_us, age_p50_us;
        "Age of a packet alone when it was received, traced and not, us"
            in Cases::Of(&["alone", "untraced"]) => age_p50_us;
    },
    figure: bars("Time from making a packet to its receiver, median", &m::age_p50_us),
    goals: goals! {
        "every arm: age of a packet that is traced, of one that is not" =>
            find(of_untraced), AtMost(1.1);
    },
    notes: "A packet waits up to 63 others long in the generator. In `stock` input is a softirq on a timer of 50 us, \
            else a NAPI thread. IP is where the driver hands over to the stack, before a gate at tc and after a native \
            one. The receiver is woken for the first \
            packet at IP since it slept. Without a packet a \
            process computes when nobody else wants the CPU.",
    ..USUAL
};

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let turn = |number| udp::Turn { of: 3, number: number as u32 };
    let place = OF_A_BURST.iter().position(|place| *place == ask.case);
    Ok(traced(ask, place.map_or(udp::Turn { of: 1, number: 0 }, turn)))
}
