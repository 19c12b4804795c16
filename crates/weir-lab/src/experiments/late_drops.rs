//! `late-drops`: of what a flood of any kind loses, how much the kernel still drops behind the gate.

use std::ops::Range;

use super::shared::*;

/// For each packet: what a receiver can take is then far below the load.
const WORK: Duration = Duration::from_micros(5);
const ONE: Range<u16> = FLOODED_PORT..FLOODED_PORT + 1;
/// Ports of a block whose low four bits are drawn for each packet.
const BLOCK_PORT: u16 = 5120;
const BLOCK_BITS: u8 = 4;
/// Of the sockets that receive a multicast group.
const GROUP_PORT: u16 = 5004;

pub static EXPERIMENT: Experiment = Experiment {
    name: "late-drops",
    paper: "LRP 3, MR 6.6",
    question: "how much of what a flood loses does the kernel still drop behind the gate, whatever its packets are?",
    found: "LRP discarded at the channel, before any protocol processing; BSD after nearly all of it",
    arms: "stock,weir-native,weir",
    says: "drops {} packets/s late",
    cases,
    loads: "200k?,400k,800k?",
    scene,
    merits: &[&m::late_drop_pps],
    tables: tables! {
        "Discarded and late, packets/s" in Cases::All => discarded_pps, late_drop_pps;
    },
    figure: bars("Late drops, packets/s", &m::late_drop_pps),
    goals: goals! {
        "late drops, of these and discards, in each mix" => of(WEIRS, late_of_discards), AtMost(0.01);
    },
    notes: "Each receiver computes for 5 us per packet. The gate is asleep when the first packet comes: what \
            is late until it is awake counts.",
    ..USUAL
};

fn cases() -> Vec<Case> {
    let always = ["one", "mixed", "dns", "sources", "options", "bursts", "block", "block-mixed"];
    let cases = always.into_iter().map(Case::always);
    cases.chain([Case::full("block-dns"), Case::always("multicast")]).collect()
}

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let usual = |flow| of_kind(ask.case, flow);
    let (ports, flood): (_, &dyn Fn(Flow) -> Flow) = match ask.case.split('-').next() {
        Some("block") => (BLOCK_PORT..BLOCK_PORT + (1 << BLOCK_BITS), &|flow| Flow {
            port_bits: BLOCK_BITS,
            ..usual(flow)
        }),
        Some("multicast") => {
            (GROUP_PORT..GROUP_PORT + 1, &|flow| Flow { to: To::Group, ..usual(flow) })
        }
        Some("bursts") => (ONE, &|flow| Flow { burst: 64, ..flow }),
        _ => (ONE, &usual),
    };
    let first = ports.start;
    let app = |port| {
        let server = udp::Server { joined: first == GROUP_PORT, ..udp::Server::sink(WORK) };
        let role = if port == first { Role::Flooded } else { Role::Other };
        App::new(AppKind::Udp(server), port, role)
    };
    let flows = ask.flood(first).map(flood).into_iter().collect();
    Ok(Scene { apps: ports.map(app).collect(), flows, ..Scene::default() })
}
