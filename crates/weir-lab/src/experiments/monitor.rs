//! `monitor` (MR, section 8.1 and figures 8-1 to 8-5): a network monitor on a promiscuous port.

use super::shared::*;
use crate::programs::CaptureKind;

/// Ethernet, IPv4 and UDP headers, in bytes.
const HEADERS: u32 = 42;
/// UDP payload of small frames and of full ones.
const PAYLOADS: [(&str, u16); 2] = [("56", 14), ("1514", 1472)];
/// Of `weir capture` its options.
const PROGRAMS: [(&str, Option<&str>); 4] = [
    ("tcpdump", None),
    ("weir", Some("")),
    ("native", Some("--attach native")),
    ("breaker", Some("--attach native --circuit-breaker")),
];
const OF_TCPDUMP: Cases = Cases::Where(|case| case.starts_with("tcpdump"));
const QUICK: [&str; 3] = ["tcpdump-null-56", "weir-null-56", "native-null-56"];

pub static EXPERIMENT: Experiment = Experiment {
    name: "monitor",
    paper: "MR fig. 8-1 to 8-5",
    question: "how many packets of other hosts does a capture get, and who else gets the CPU?",
    found: "livelock at 21,000 to 24,000 packets/s; with feedback, flat at the peak",
    needs: &["tcpdump"],
    arms: "stock,threaded,niced,batch,weir",
    main: "weir",
    cases: || {
        let case = |(name, ..): (String, CaptureKind, u16)| Case {
            quick: QUICK.contains(&name.as_str()),
            ..Case::always(name)
        };
        captures().map(case).collect()
    },
    loads: "50k?,100k,200k?,400k,800k?,top",
    times: Choice::times((300, 1000, 5), (100, 400, 2)),
    scene,
    says: "captures {} packets/s",
    merits: &[&m::captured_pps, &m::wake_max_ms],
    tables: tables! {
        "Captured, packets/s" in Cases::All => captured_pps;
        "Longest time that a process waited for its CPU after it was woken, ms"
            in Cases::All => wake_max_ms;
    },
    figure: lines(
        "Packets captured by packets offered, tcpdump to /dev/null, small frames",
        "tcpdump-null-56",
        &m::captured_pps,
    ),
    goals: goals! {
        "tcpdump's captured packets past its peak, of its peak" =>
            figure("weir", OF_TCPDUMP, PastPeak, captured_pps, OwnPeak), AtLeast(0.97);
        "weir capture --attach native: its peak in the best arm, of tcpdump's in its best" =>
            find(|view| peaks(view, "native-"), Cases::Where(|case| case.starts_with("native-"))), AtLeast(2.0);
        "weir capture: its peak in the best arm, of tcpdump's in its best" =>
            find(|view| peaks(view, "weir-"), Cases::Where(|case| case.starts_with("weir-"))), AtLeast(2.0);
        "longest wait of an interactive process, ms" =>
            figure("weir", Cases::All, Every, wake_max_ms, Nothing), AtMost(100.0);
    },
    notes: "Frames are addressed to another host; the port is promiscuous, and the capture runs on the tested CPU. \
            `native` is weir capture in the driver, `breaker` the same with `--circuit-breaker`: after 250 packets within \
            1 ms it takes none for 1 ms. Packets are counted by the bytes that it writes. Beside it a process sleeps for 5 ms, again and again, \
            as one does that waits for a key; how late it wakes is its wait. `disk` is a file system's page cache, \
            and two files of 100 MB in turn.",
    ..USUAL
};

/// What each case captures, and the payload that is sent.
fn captures() -> impl Iterator<Item = (String, CaptureKind, u16)> {
    let to = [("null", false), ("disk", true)].into_iter();
    let frames = to.flat_map(|to| PAYLOADS.map(|frame| (to, frame)));
    let all = frames.flat_map(|frame| PROGRAMS.map(|program| (program, frame)));
    all.map(|((program, weir), ((to, disk), (frame, payload)))| {
        let kind = CaptureKind { weir, disk, frame_len: HEADERS + u32::from(payload) };
        (format!("{program}-{to}-{frame}"), kind, payload)
    })
}

fn scene(ask: &Ask<'_>) -> Result<Scene> {
    let (_, kind, payload) = captures().find(|(name, ..)| name == ask.case).ok_or_else(|| {
        Error::refused(format!("there is no case {}", ask.case), "see `weir lab list`")
    })?;
    let app = App { per_trial: true, ..App::new(AppKind::Capture(kind), 0, Role::Flooded) };
    let flow = |flow| Flow { to: To::OtherHost, lengths: Lengths::One(payload), ..flow };
    Ok(Scene {
        apps: vec![app],
        flows: ask.flood(FLOODED_PORT).map(flow).into_iter().collect(),
        beside: Some(Beside::Interactive),
        books: match kind.weir {
            Some(options) if options.contains("native") => Books::Tap,
            _ => Books::Ring,
        },
        ..Scene::default()
    })
}

/// A program's peak in its best arm, of tcpdump's in its best, for each sort of capture.
fn peaks(view: &View<'_>, program: &str) -> Vec<Found> {
    let arms = view.arms();
    let found = |case: &Case| {
        let rest = case.name.strip_prefix(program)?;
        let tcpdump = format!("tcpdump-{rest}");
        let peak = |case| view.peak(&arms, case, &m::captured_pps);
        let ((arm, load), (other, at)) = (peak(&case.name)?, peak(&tcpdump)?);
        let pairs = view.pairs((arm, &case.name, load), (other, &tcpdump, at), &m::captured_pps);
        compare(pairs, rest)
    };
    view.cases().iter().filter_map(found).collect()
}
