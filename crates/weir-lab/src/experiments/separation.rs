//! `separation` (LRP 2.2 and 3): what a bystander, a receiver that is not overloaded, keeps beside floods
//! to others on the same host: to another UDP socket, and of every other kind.

use std::ops::Range;

use weir_bpf::traffic::Flaw;

use super::shared::*;
use crate::stats::Bracket;

const LIGHT_PPS: f64 = 20_000.0;
/// A bystander is well while it keeps this share of its unflooded goodput.
const WELL: f64 = 0.95;
/// Floods of one UDP socket, each of another mix ([`of_kind`]).
const UDP: Cases = Cases::Of(&["udp", "udp-mixed", "udp-dns", "udp-sources"]);
/// c_gate is the cost of input where at least this share of the packets taken was discarded.
const DISCARDED_MIN: f64 = 0.9;
/// R_ring is looked for above this rate.
const LOWEST_PPS: f64 = 50_000.0;
/// Beside receivers that have no time left even without the flood's excess: so few that a bystander's queue holds what
/// comes until it has its turn.
const RARE_PPS: f64 = 500.0;
const BUSY: Cases = Cases::Where(|case| busy(case).is_some());
const SERVICE_PORT: u16 = 5002;
const LISTENER_PORT: u16 = 5003;
/// Of the socket that receives broadcasts and a multicast group.
const MANY_PORT: u16 = 5004;
/// TCP waits for 200 ms before it sends again what was lost.
const SETTLE: Duration = Duration::from_millis(150);
/// Floods of other kinds, in the order of the tables.
const KINDS: List = "closed,bad-checksum,syn,ack,icmp,fragments,broadcast,multicast,malformed,\
    forward,options,protocol,off-link-nd";
const OTHERS: Cases = Cases::Where(|case| words(KINDS).any(|kind| kind == case));

/// A search for R_ring: the highest flood that leaves the bystander well.
const fn r_ring(of: &'static str, case: &'static str, quick: u32) -> Search {
    Search {
        of,
        case,
        arms: "gate?,weir-native,weir?",
        steps: Choice { full: 6, quick },
        majority: Choice::both(2),
        window_ms: Choice { full: 1000, quick: 200 },
        between,
        passes: |view, trial| trial.get(&m::light_goodput) >= Some(well(view, &trial.arm)),
    }
}

pub static EXPERIMENT: Experiment = Experiment {
    name: "separation",
    paper: "LRP 2.2, 3",
    question: "what does a receiver that is not overloaded keep beside a flood to others?",
    found: "argued, not plotted: BSD's shared IP queue drops everybody's packets",
    arms: "stock,threaded?,niced,batch,gate?,weir-native,weir?,stock+nat?,weir-native+nat?,\
           bare-drop",
    cases,
    loads: "0,400k,800k?,1.6M,2.4M?,top",
    skip: |arm, case, _| match (arm.name.as_str(), case) {
        ("bare-drop", case) => case != "bare",
        (_, "bare") => true,
        (arm, "full-socket") => !arm.starts_with("weir") && arm != "gate",
        _ => false,
    },
    scene,
    says: "leaves a bystander {} of its packets",
    merits: &[&m::light_goodput, &m::per_s, &m::delivered_pps],
    searches: &[
        r_ring("udp", "r-ring", 5),
        r_ring("udp-mixed", "r-ring-mixed", 0),
        r_ring("udp-dns", "r-ring-dns", 0),
        r_ring("udp-sources", "r-ring-sources", 0),
    ],
    tables: tables! {
        "Goodput of the bystander, of what it was sent"
            in Cases::Where(|case| case != "bare" && case != "full-socket") => light_goodput;
        "Requests of the TCP bystander answered, 1/s"
            in OTHERS => per_s;
        "Age at the bystander, us: median, 99th percentile"
            in Cases::Where(|case| UDP.has(case) || BUSY.has(case))
            => light_age_p50_us, light_age_p99_us;
        "Delivered to the flooded application, and refused by the ring, packets/s"
            in Cases::Where(|case| UDP.has(case) || BUSY.has(case)) => delivered_pps, nic_drop_pps;
        "CPU time of input per packet, ns, where nearly all are discarded"
            in Cases::Of(&["full-socket", "bare"]) => cpu_ns_per_packet;
    },
    figure: lines("Goodput of the bystander by the flood's rate", "udp", &m::light_goodput),
    goals: goals! {
        "the bystanders' goodput at every flood up to R_ring, of the unflooded one" =>
            of(WEIRS, bystanders, Cases::Where(|case| UDP.has(case) || OTHERS.has(case))),
            AtLeast(WELL);
        "R_ring (the bystander is well), of a bare XDP_DROP's rate" => of(WEIRS, of_bare, UDP), AtLeast(0.38);
        "delivered to the flooded application up to R_ring, of peak x (1 - R x c_gate)" =>
            of(WEIRS, of_frontier, UDP), AtLeast(0.8);
        "the bystander's goodput beside busy receivers, of the best baseline's" =>
            figure(WEIRS, BUSY, Every, light_goodput, BEST), AtLeast(WELL);
        "the bystander's goodput, of that without NAT rules" =>
            figure("weir-native+nat", UDP, Every, light_goodput, Best(&["weir-native"])),
            AtLeast(0.95);
    },
    notes: "slow is a receiver that computes for 50 us per packet, buffered one with a buffer of 4 MiB that \
            computes for 5 us, block 16 of the usual buffer that do; their bystander is sent 500 packets/s. \
            R_ring is the highest flood at which the bystander keeps 0.95 of its unflooded goodput; beside \
            floods of other kinds, the highest at which the ring does not overflow. Beyond it the ring \
            refuses everybody's packets alike.",
    ..USUAL
};

fn cases() -> Vec<Case> {
    let mix = |name| Case::full(name).at("400k,1.6M?,top?").against("udp");
    let kind = |name| Case::asked(name).at("100k,400k?,1M?,top?").against("unflooded");
    let mut cases = vec![
        Case::always("udp"),
        Case::always("full-socket").at("top"),
        Case::always("bare").at("top"),
    ];
    cases.extend(["udp-mixed", "udp-dns", "udp-sources"].map(mix));
    cases.extend(["slow", "buffered", "block"].map(|name| Case::full(name).at("50k?,150k,400k?")));
    cases.push(Case::asked("unflooded").at("0"));
    cases.extend(words(KINDS).map(kind));
    cases
}

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let flood = ask.flood(FLOODED_PORT).map(|flow| of_kind(ask.case, flow));
    let (apps, light) = (receivers(), Flow::light(LIGHT_PORT, LIGHT_PPS));
    Ok(match ask.case {
        "bare" => Scene {
            flows: flood.into_iter().collect(),
            watch: Some(Watch::Polls),
            books: Books::Ring,
            ..Scene::default()
        },
        "full-socket" => {
            Scene { apps, flows: flood.into_iter().collect(), stopped: true, ..Scene::default() }
        }
        case if UDP.has(case) => {
            Scene { apps, flows: std::iter::once(light).chain(flood).collect(), ..Scene::default() }
        }
        kind => match busy(kind) {
            Some(receivers) => beside_busy(receivers, ask),
            None => beside_services(kind, apps, (light, flood), ask),
        },
    })
}

/// Ports of receivers, a power of two; what each computes for a packet; and its buffer, in bytes.
type Busy = (Range<u16>, Duration, Option<usize>);

/// Receivers that compute for long, or have much to do when their turn comes: by packets, by their buffer, by number.
fn busy(case: &str) -> Option<Busy> {
    let work = Duration::from_micros;
    Some(match case {
        "slow" => (5100..5101, work(50), None),
        "buffered" => (5101..5102, work(5), Some(4 << 20)),
        "block" => (5120..5136, work(5), None),
        _ => return None,
    })
}

/// A flood to receivers that are busy, and a bystander.
fn beside_busy((ports, work, buffer): Busy, ask: &Ask<'_>) -> Scene {
    let server = udp::Server { buffer, ..udp::Server::sink(work) };
    let role = |port| if port == ports.start { Role::Flooded } else { Role::Other };
    let apps = ports.clone().map(|port| App::new(AppKind::Udp(server), port, role(port)));
    let light = Flow::light(LIGHT_PORT, RARE_PPS);
    let flood = ask.flood(ports.start);
    let flood = flood.map(|flow| Flow { port_bits: ports.len().ilog2() as u8, ..flow });
    Scene {
        apps: apps.chain([App::sink(Duration::ZERO, LIGHT_PORT, Role::Light)]).collect(),
        flows: std::iter::once(light).chain(flood).collect(),
        ..Scene::default()
    }
}

/// A UDP and a TCP service, and a flood of this kind to something else.
fn beside_services(
    kind: &str,
    mut apps: Vec<App>,
    (light, flood): (Flow, Option<Flow>),
    ask: &Ask<'_>,
) -> Scene {
    let sink = udp::Server::sink(Duration::ZERO);
    let many = AppKind::Udp(udp::Server { joined: true, ..sink });
    apps.extend([
        App::new(AppKind::Tcp { echo: true }, SERVICE_PORT, Role::Other),
        App::new(AppKind::Tcp { echo: false }, LISTENER_PORT, Role::Other),
        App::new(many, MANY_PORT, Role::Other),
    ]);
    let sorts = flood.map_or(vec![], |flood| share_out(sorts(kind, &flood), ask.load));
    Scene {
        apps,
        flows: std::iter::once(light).chain(sorts).collect(),
        client: Some(Client::Tcp { connections: 16, per_second: 2000, port: SERVICE_PORT }),
        needs: vec![Need::ClientAddress, Need::Egress, Need::OtherFamily],
        books: Books::Ip,
        settle: SETTLE,
        ..Scene::default()
    }
}

/// The sorts of packets of a flood, which has what [`of_kind`] gives it.
fn sorts(kind: &str, flood: &Flow) -> Vec<Flow> {
    let of = |transport| Flow { transport, ..flood.clone() };
    let segment = |transport, port| Flow {
        from_port: RANDOM_PORTS,
        sources: Sources::Random { address_bits: 0, port_bits: 15 },
        port,
        ..of(transport)
    };
    let to_many = |to| Flow { to, port: MANY_PORT, ..flood.clone() };
    // From many who are on no wire of the host's, for its address on this one.
    let solicitations = |hop_limit| Flow {
        sources: Sources::Random { address_bits: 16, port_bits: 0 },
        from: From::OffLink,
        from_port: 0,
        to: To::OtherFamily,
        port: 0,
        ..of(Transport::Solicitation { hop_limit })
    };
    match kind {
        "bad-checksum" => vec![of(Transport::UdpBadChecksum)],
        "syn" => vec![segment(Transport::TcpSyn, LISTENER_PORT)],
        "ack" => vec![segment(Transport::TcpAck, SERVICE_PORT)],
        "fragments" => fragments(flood).into(),
        "broadcast" => vec![to_many(To::Broadcast)],
        "multicast" => vec![to_many(To::Group), to_many(To::NobodysGroup)],
        "malformed" => [Flaw::IpLength, Flaw::IpHeader, Flaw::UdpLength]
            .map(|flaw| of(Transport::Malformed(flaw)))
            .into(),
        "protocol" => vec![of(Transport::OtherProtocol)],
        // Forwarded, which the kernel ignores; and as if from the link, by a source that is not on it.
        "off-link-nd" => [64, 255].map(solicitations).into(),
        "forward" => vec![Flow { to: To::Behind, ..flood.clone() }],
        _ => vec![flood.clone()],
    }
}

/// What the bystander's goodput is to be in an arm: nearly that beside no flood.
fn well(view: &View<'_>, arm: &str) -> f64 {
    WELL * view.get(arm, "udp", Load::Off, &m::light_goodput).unwrap_or(0.0)
}

/// The swept rates of a case, lowest first: what was sent in the median, and whether that left the bystander well.
fn swept(view: &View<'_>, arm: &str, case: &str) -> Vec<(f64, bool)> {
    let at = |load| {
        let goodput = view.get(arm, case, load, &m::light_goodput)?;
        Some((view.get(arm, case, load, &m::offered_pps)?, goodput >= well(view, arm)))
    };
    view.loads(case).into_iter().filter(|load| *load != Load::Off).filter_map(at).collect()
}

/// The highest swept rate that left the bystander well, and the next; none if that was the highest.
fn between(view: &View<'_>, arm: &str, case: &str) -> Option<(f64, f64)> {
    let swept = swept(view, arm, case);
    let last = swept.iter().rposition(|(_, well)| *well);
    let (high, _) = swept.get(last.map_or(0, |last| last + 1))?;
    Some((last.map_or(0.0, |last| swept[last].0).max(LOWEST_PPS), *high))
}

fn searched(view: &View<'_>, arm: &str, case: &str) -> Option<Bracket> {
    view.found(EXPERIMENT.searches.iter().find(|search| search.of == case)?, arm)
}

/// The UDP cases of a run, each with what is found at it by an arm's R_ring: the highest flood, swept or searched, that
/// left the bystander well.
fn of_udp(view: &View<'_>, arm: &str, found: impl Fn(&str, f64) -> Vec<Found>) -> Vec<Found> {
    in_each(view, UDP, |case| {
        let swept = swept(view, arm, case);
        let well = swept.iter().filter(|(_, well)| *well).map(|(rate, _)| *rate);
        let searched = searched(view, arm, case).and_then(|found| found.passed);
        match well.chain(searched).reduce(f64::max) {
            Some(r_ring) => found(case, r_ring),
            None if swept.is_empty() => vec![],
            None => vec![Found::exact(0.0, format!("{case}: no flood leaves it well"))],
        }
    })
}

/// What both bystanders keep at every flood up to R_ring.
fn bystanders(view: &View<'_>, arm: &str) -> Vec<Found> {
    let kept = |case: &str, load: Load, calm: &str, figure: &'static Metric| {
        let pairs = view.pairs((arm, case, load), (arm, calm, Load::Off), figure);
        compare(pairs, format!("{}, {}", place(view, case, load), figure.id))
    };
    let udp = of_udp(view, arm, |case, r_ring| {
        let up_to = |load: &Load| {
            let sent = view.get(arm, case, *load, &m::offered_pps);
            *load != Load::Off && sent.is_some_and(|sent| sent <= r_ring)
        };
        let loads = view.loads(case).into_iter().filter(up_to);
        let at = |load| kept(case, load, "udp", &m::light_goodput);
        loads.filter_map(at).collect()
    });
    let of_kind = |kind: &str| {
        let (loads, overflow) = while_ring_holds(view, arm, kind);
        let first = view.loads(kind).first().and_then(|load| view.point(arm, kind, *load));
        if loads.is_empty() && first.is_some() {
            let nothing = Found::exact(0.0, format!("{kind}: the ring overflows at any rate"));
            return vec![nothing.of(kind)];
        }
        let figures = [&m::light_goodput, &m::per_s];
        let both = |load| figures.map(|figure| kept(kind, load, "unflooded", figure));
        let found = loads.into_iter().flat_map(both).flatten().map(|found| found.of(kind));
        found.chain(overflow).collect()
    };
    udp.into_iter().chain(words(KINDS).flat_map(of_kind)).collect()
}

/// R_ring of each mix, of what a bare `XDP_DROP` takes.
fn of_bare(view: &View<'_>, arm: &str) -> Vec<Found> {
    let Some(ns) = view.get("bare-drop", "bare", Load::Top, &m::ns_per_packet) else {
        return vec![];
    };
    of_udp(view, arm, |case, r_ring| {
        let failed = searched(view, arm, case).and_then(|found| found.failed);
        let swept = || Some(between(view, arm, case)?.1);
        let failed = failed.or_else(swept).map(|beyond| beyond.max(r_ring));
        let (found, bare) = (Bracket { passed: Some(r_ring), failed }, 1e9 / ns);
        let range = found.text(|pps| format!("{:.2}", pps / 1e6));
        let place = format!("{case}: {range} of {:.2} M packets/s", bare / 1e6);
        vec![Found { high: found.range().1 / bare, ..Found::exact(r_ring / bare, place) }]
    })
}

/// The most that the flooded application can have while nobody else loses anything is peak x (1 - R x
/// c_gate), and no more than it is sent.
fn of_frontier(view: &View<'_>, arm: &str) -> Vec<Found> {
    let full = view.trials_of(arm, "full-socket", Load::Top);
    let full = full.filter(|t| t.get(&m::discarded_share) >= Some(DISCARDED_MIN));
    let Some(c_gate_ns) = median(full.filter_map(|trial| trial.get(&m::cpu_ns_per_packet))) else {
        return vec![];
    };
    of_udp(view, arm, |case, r_ring| {
        let of_case = view.points.iter().filter(|point| point.case == case);
        let peak = of_case.filter_map(|point| point.get(&m::delivered_pps)).fold(0.0, f64::max);
        let up_to = |load: Load| {
            let sent = view.get(arm, case, load, &m::offered_pps);
            let sent = sent.filter(|sent| load != Load::Off && *sent <= r_ring)?;
            let most = (peak * (1.0 - sent * c_gate_ns / 1e9)).min(sent);
            let trials = view.trials_of(arm, case, load);
            let pairs = trials.filter_map(|trial| Some((trial.get(&m::delivered_pps)?, most)));
            compare(pairs, place(view, case, load))
        };
        view.loads(case).into_iter().filter_map(up_to).collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::goals::{Verdict, judge};
    use crate::report::made_up;

    #[test]
    fn a_ring_that_overflows_where_a_baselines_holds_excuses_nothing() {
        let judged = |refused: [f64; 2]| {
            let mut run = made_up::overload(&[]);
            for (arm, refused) in ["weir-native", "niced"].into_iter().zip(refused) {
                for (repeat, load) in
                    (0..3).flat_map(|repeat| [0.0, 1e5, 4e5].map(|load| (repeat, load)))
                {
                    let refused = if load > 1e5 { refused * load } else { 0.0 };
                    let values = [
                        (&m::offered_pps, load),
                        (&m::nic_drop_pps, refused),
                        (&m::light_goodput, 1.0),
                    ];
                    let (case, load) = match load > 0.0 {
                        true => ("syn", Load::Rate(load)),
                        false => ("unflooded", Load::Off),
                    };
                    run.trials.push(made_up::trial((arm, case, load), repeat, &values));
                }
            }
            judge(&View::new(&EXPERIMENT, &run)).swap_remove(0)
        };
        let alone = judged([0.02, 0.0]);
        assert_eq!(alone.verdict, Verdict::Undecided);
        assert!(
            alone.got.contains("syn at 400 k: the ring overflows, niced's does not"),
            "{alone:?}"
        );
        assert_eq!(judged([0.02, 0.02]).verdict, Verdict::Met);
    }
}
