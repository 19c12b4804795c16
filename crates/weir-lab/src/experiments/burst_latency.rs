//! `burst-latency`: how long the first packet of a burst takes to its receiver, by the number of packets behind it.
//!
//! The interrupt-driven kernel brought the whole burst to its queue before any of it went further. Today's NAPI
//! does the same with what it takes in one poll: the receiver runs when the poll is over.

use super::shared::*;

/// Few enough that a burst of 64 is received before the next, in every arm. A load is its bursts' packets.
const BURSTS_PER_S: f64 = 1000.0;
/// LRP's shortest payload with a stamp, and nearly an Ethernet frame.
const LENGTHS: [(&str, u16); 2] = [("short", 18), ("long", 1400)];

pub static EXPERIMENT: Experiment = Experiment {
    name: "burst-latency",
    paper: "MR fig. 4-1, 4-2",
    question: "how long does the first packet of a burst take, by how many follow it?",
    found: "linear: 1.23 ms alone, 5.03 ms before 15 others",
    arms: "stock,threaded,niced,batch,weir,weir-native",
    cases: || LENGTHS.map(|(name, _)| Case::always(name)).into(),
    loads: "1k,2k,4k,16k,64k",
    scene,
    says: "brings the first of a burst of 64 to its receiver in {}",
    merits: &[&m::age_p50_us, &m::age_p99_us],
    tables: tables! {
        "Age of a burst's first packet when it was received, us: median, 99th percentile"
            in Cases::All => age_p50_us, age_p99_us;
        "Packets received, of those sent" in Cases::All => delivered_pps, offered_pps;
    },
    figure: lines(
        "Age of a burst's first packet, by packets in 1,000 bursts a second",
        "short",
        &m::age_p50_us,
    ),
    goals: goals! {
        "age of the first packet of 64, of the age of one alone" => of(WEIRS, of_one_alone), AtMost(1.5);
    },
    notes: "Bursts come 1,000 times a second, so a load of 64 k is bursts of 64. A packet's age counts from when \
            the generator made it, and waits there for up to 63 others. Without a packet a process computes when \
            nobody else wants the CPU, so that leaving idle is not measured.",
    ..USUAL
};

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let burst = (ask.load.pps() / BURSTS_PER_S).round();
    if !(1.0..=1024.0).contains(&burst) {
        return Err(Error::refused(
            format!("burst-latency has no load {}: 1,000 bursts a second are to make it", ask.load),
            "give it rates of 1,000 packets/s for each packet of a burst, such as --rates 1k,32k",
        ));
    }
    let length = LENGTHS.iter().find(|(name, _)| *name == ask.case).map_or(18, |(_, len)| *len);
    Ok(in_bursts(ask, udp::Turn { of: burst as u32, number: 0 }, length))
}

fn of_one_alone(view: &View<'_>, arm: &str) -> Vec<Found> {
    in_each(view, Cases::All, |case| {
        let of = |burst: f64| (arm, case, Load::Rate(burst * BURSTS_PER_S));
        compare(view.pairs(of(64.0), of(1.0), &m::age_p50_us), case)
    })
}
