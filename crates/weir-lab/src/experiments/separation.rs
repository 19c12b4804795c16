//! `separation` (LRP 2.2 and 3): what a bystander, a receiver that is not overloaded, keeps beside floods
//! to others on the same host: to another UDP socket, and of every other kind.

mod goals;
mod kinds;

use self::goals::{between, bystanders, is_well, of_bare, of_frontier, unflooded};
use self::kinds::{KINDS, beside_services};
use super::shared::*;

const WEIR: &str = "weir-native";
const LIGHT_PPS: f64 = 20_000.0;
/// A bystander is well while it keeps this share of its unflooded goodput.
const WELL: f64 = 0.95;
/// Floods of one UDP socket in experiments.md's mixes.
const UDP: Cases = Cases::Of(&["udp", "udp-mixed", "udp-dns", "udp-sources"]);
/// A search for R_ring: the highest flood that leaves the bystander well.
const fn r_ring(of: &'static str, case: &'static str, quick: u32) -> Search {
    Search {
        of,
        case,
        arms: Choice { full: "gate,weir-native,weir", quick: WEIR },
        steps: Choice { full: 6, quick },
        window_ms: Choice { full: 1000, quick: 200 },
        between,
        passes: |trial, done| is_well(trial, unflooded(done, &trial.arm)),
    }
}

pub static EXPERIMENT: Experiment = Experiment {
    name: "separation",
    paper: "LRP 2.2, 3",
    question: "what does a receiver that is not overloaded keep beside a flood to others?",
    found: "argued, not plotted: BSD's shared IP queue drops everybody's packets",
    arms: Choice {
        full: "stock,threaded,niced,batch,gate,weir-native,weir,bare-drop",
        quick: "stock,niced,batch,weir-native,bare-drop",
    },
    cases,
    case_option: "kinds",
    loads: Choice { full: "0,400k,800k,1.6M,2.4M,top", quick: "0,400k,1.6M,top" },
    traffic: true,
    skip: Some(|arm, case, _| match (arm, case) {
        ("bare-drop", case) => case != "bare",
        (_, "bare") => true,
        (arm, "full-socket") => !arm.starts_with("weir") && arm != "gate",
        _ => false,
    }),
    scene,
    says: "leaves a bystander {} of its packets",
    merits: &[&m::light_goodput, &m::per_s, &m::delivered_pps],
    searches: &[
        r_ring("udp", "r-ring", 3),
        r_ring("udp-mixed", "r-ring-mixed", 0),
        r_ring("udp-dns", "r-ring-dns", 0),
        r_ring("udp-sources", "r-ring-sources", 0),
    ],
    tables: &[
        table(
            "Goodput of the bystander, of what it was sent",
            Cases::Where(|case| case != "bare" && case != "full-socket"),
            &[&m::light_goodput],
        ),
        table(
            "Requests of the TCP bystander answered, 1/s",
            Cases::Where(|case| !UDP.has(case) && case != "bare" && case != "full-socket"),
            &[&m::per_s],
        ),
        table(
            "Age at the bystander, us: median, 99th percentile",
            UDP,
            &[&m::light_age_p50_us, &m::light_age_p99_us],
        ),
        table(
            "Delivered to the flooded application, and refused by the ring, packets/s",
            UDP,
            &[&m::delivered_pps, &m::nic_drop_pps],
        ),
        table(
            "CPU time of input per packet, ns, where nearly all are discarded",
            Cases::Of(&["full-socket", "bare"]),
            &[&m::cpu_ns_per_packet],
        ),
    ],
    figure: Some(lines("Goodput of the bystander by the flood's rate", "udp", &m::light_goodput)),
    goals: || {
        vec![
            Goal::other(
                "weir: the bystanders' goodput at every flood up to R_ring, of the unflooded one",
                bystanders,
                Bound::AtLeast(WELL),
            )
            .about(Cases::Where(|case| UDP.has(case) || KINDS.contains(&case))),
            Goal::other("weir: R_ring, of a bare XDP_DROP's rate", of_bare, Bound::AtLeast(0.38))
                .about(UDP),
            Goal::other(
                "weir: delivered to the flooded application up to R_ring, of peak x (1 - R x c_gate)",
                of_frontier,
                Bound::AtLeast(0.8),
            )
            .about(UDP),
        ]
    },
    notes: "R_ring is the highest flood at which the bystander keeps 0.95 of its unflooded goodput; beside \
            floods of other kinds, the highest at which the ring does not overflow. Beyond it the ring \
            refuses everybody's packets alike.",
    ..USUAL
};

fn cases() -> Vec<Case> {
    let mix = |name| Case::full(name).at("400k,1.6M,top", "400k").against("udp");
    let kind = |name| Case::asked(name).at("100k,400k,1M,top", "100k").against("unflooded");
    let mut cases = vec![
        Case::always("udp"),
        Case::always("full-socket").at("top", "top"),
        Case::always("bare").at("top", "top"),
    ];
    cases.extend(["udp-mixed", "udp-dns", "udp-sources"].map(mix));
    cases.push(Case::asked("unflooded").at("0", "0"));
    cases.extend(KINDS.map(kind));
    cases
}

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let flood = ask.flood(FLOODED_PORT).map(|flow| mixed(flow, ask.case));
    let (apps, light) = (receivers(ask), light(ask, LIGHT_PORT, LIGHT_PPS));
    Ok(match ask.case {
        "bare" => Scene {
            flows: flood.into_iter().collect(),
            watch: vec![Watch::Polls],
            books: Books::Ring,
            ..Scene::default()
        },
        "full-socket" => {
            Scene { apps, flows: flood.into_iter().collect(), stopped: true, ..Scene::default() }
        }
        case if UDP.has(case) => {
            Scene { apps, flows: std::iter::once(light).chain(flood).collect(), ..Scene::default() }
        }
        kind => beside_services(kind, apps, (light, flood), ask),
    })
}
