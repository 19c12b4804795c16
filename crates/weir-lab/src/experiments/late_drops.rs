//! `late-drops` (LRP, section 3; Mogul & Ramakrishnan, section 6.6): of what a flood of any kind loses, how
//! much the kernel still drops behind the gate.

use std::time::Duration;

use super::shared::*;

/// For each packet: what a receiver can take is then far below the load.
const WORK: Duration = Duration::from_micros(5);
/// Ports of a block whose low four bits are drawn for each packet.
const BLOCK_PORT: u16 = 5120;
const BLOCK_BITS: u8 = 4;
/// Of the sockets that receive a multicast group.
const GROUP_PORT: u16 = 5004;
/// An option that nobody knows, with a byte in it that is the type of a source route.
const OPTION: [u8; 4] = [0x1e, 4, 131, 0];

const ARMS: &str = "stock,weir-native,weir";

pub static EXPERIMENT: Experiment = Experiment {
    name: "late-drops",
    paper: "LRP 3, MR 6.6",
    question: "how much of what a flood loses does the kernel still drop behind the gate, whatever its packets are?",
    found: "LRP discarded at the channel, before any protocol processing; BSD after nearly all of it",
    arms: Choice::both(ARMS),
    says: "drops {} packets/s late",
    cases,
    loads: Choice { full: "200k,400k,800k", quick: "400k" },
    scene,
    merits: &[&m::late_drop_pps],
    tables: tables! {
        "Discarded and late, packets/s" in Cases::All => discarded_pps, late_drop_pps;
    },
    figure: Some(bars("Late drops, packets/s", "one", &m::late_drop_pps)),
    goals: goals! {
        "weir: late drops, of discards, in each mix" =>
            find(|view| late_of_discards(view, "weir")), AtMost(0.01);
        "weir in the driver: the same" =>
            find(|view| late_of_discards(view, "weir-native")), AtMost(0.01);
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
    let sink = |port, joined, role| {
        let server = udp::Server { joined, ..udp::Server::sink(WORK) };
        App::new(AppKind::Udp(server), port, role)
    };
    let flood = ask.flood(FLOODED_PORT).map(|flow| mixed(flow, ask.case));
    let to = |port: u16, flood: Option<Flow>| flood.map(|flow| Flow { port, ..flow });
    let (apps, flood) = match ask.case.split('-').next() {
        Some("block") => {
            let role = |port| if port == BLOCK_PORT { Role::Flooded } else { Role::Other };
            let ports = BLOCK_PORT..BLOCK_PORT + (1 << BLOCK_BITS);
            let apps = ports.map(|port| sink(port, false, role(port))).collect();
            let random = |flow| Flow { port_bits: BLOCK_BITS, ..flow };
            (apps, to(BLOCK_PORT, flood).map(random))
        }
        Some("multicast") => {
            let group = |flow| Flow { to: To::Group, ..flow };
            (vec![sink(GROUP_PORT, true, Role::Flooded)], to(GROUP_PORT, flood).map(group))
        }
        Some("options") => {
            let with_option = |flow| Flow { options: OPTION.to_vec(), ..flow };
            (vec![sink(FLOODED_PORT, false, Role::Flooded)], flood.map(with_option))
        }
        Some("bursts") => {
            let in_bursts = |flow| Flow { burst: 64, ..flow };
            (vec![sink(FLOODED_PORT, false, Role::Flooded)], flood.map(in_bursts))
        }
        _ => (vec![sink(FLOODED_PORT, false, Role::Flooded)], flood),
    };
    Ok(Scene { apps, flows: flood.into_iter().collect(), ..Scene::default() })
}
