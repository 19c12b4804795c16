//! The gate's parser (`bpf/parse.h`, through `BPF_PROG_TEST_RUN`) against an independent reading of
//! the same bytes ([`reference`]): any disagreement fails. `docs/testing.md` says how to run it for
//! long.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

mod case;
#[path = "../common/mod.rs"]
mod common;
mod corpus;
mod coverage;
mod generate;
mod linux;
mod mutate;
mod reference;

use std::env;
use std::time::Instant;

use etherparse::{LaxSlicedPacket, PacketBuilder, TransportSlice, VlanId};
use weir_bpf::parser::SHORTEST_FRAME;
use weir_bpf::sys::netns::NetNs;

use case::{Case, Outcome, Parsers};
use coverage::Coverage;
use generate::Draft;
use mutate::Cases;

/// Disagreements that are minimised and printed before a run gives up.
const DISAGREEMENTS_MAX: usize = 12;

/// Loads the parsers in a network namespace of its own: the kernel runs programs as on its loopback.
fn with_parsers<T: Send>(body: impl FnOnce(&mut Parsers) -> T + Send) -> T {
    let netns = NetNs::create().expect("the tests need root");
    netns.run(|| body(&mut Parsers::load())).unwrap()
}

/// Collects disagreements, each made as small as can be.
#[derive(Default)]
struct Disagreements(Vec<String>);

impl Disagreements {
    fn add(&mut self, case: &Case, parsers: &mut Parsers, what: &str) {
        let small = case.minimised(parsers);
        let Outcome { bpf, usual, reference, .. } = parsers.judge(&small);
        self.0.push(format!(
            "{what}\n{small}BPF:       {bpf:?}\nshort way: {usual:?}\nreference: {reference:?}\n"
        ));
    }

    fn check(self) {
        assert!(self.0.is_empty(), "the parsers disagree:\n\n{}", self.0.join("\n"));
    }
}

/// A number from the environment, or its default.
fn setting(name: &str, default: u64) -> u64 {
    match env::var(name) {
        Ok(text) => text.parse().unwrap_or_else(|error| panic!("{name}={text}: {error}")),
        Err(_) => default,
    }
}

#[test]
fn random_frames() {
    let seed = setting("WEIR_FUZZ_SEED", 1);
    let cases = setting("WEIR_FUZZ_CASES", 300_000);
    println!("WEIR_FUZZ_SEED={seed} WEIR_FUZZ_CASES={cases}");
    let (disagreements, coverage) = with_parsers(|parsers| {
        let start = Instant::now();
        let (mut generator, mut case) = (Cases::new(seed), Case::default());
        let (mut disagreements, mut coverage) = (Disagreements::default(), Coverage::new());
        for number in 0..cases {
            generator.write(number, &mut case);
            let outcome = parsers.judge(&case);
            coverage.add(&case, &outcome);
            if !outcome.agree() {
                disagreements.add(&case, parsers, &format!("seed {seed}, case {number}:"));
                if disagreements.0.len() == DISAGREEMENTS_MAX {
                    break;
                }
            }
        }
        println!("{cases} cases in {:.1} s\n{coverage}", start.elapsed().as_secs_f64());
        (disagreements, coverage)
    });
    disagreements.check();
    let rare = coverage.lacking(cases / 500);
    assert!(rare.is_empty(), "hardly any case was {rare:?}:\n{coverage}");
}

/// Right frames, each with every end cut off, every end of the first buffer, and every bit of its
/// headers flipped.
#[test]
fn every_cut_and_every_bit() {
    const FRAMES: u64 = 150;
    const HEADERS: usize = 160;
    with_parsers(|parsers| {
        let mut disagreements = Disagreements::default();
        let mut draft = Draft::default();
        for seed in 0..FRAMES {
            draft.stack(&mut fastrand::Rng::with_seed(seed));
            let bytes = &draft.bytes;
            let whole = Case { bytes: bytes.clone(), first_buffer: bytes.len() };
            let near = bytes.len().min(HEADERS);
            let mut judge = |case: Case, what: &str| {
                if disagreements.0.len() < DISAGREEMENTS_MAX && !parsers.judge(&case).agree() {
                    disagreements.add(&case, parsers, &format!("frame {seed}, {what}:"));
                }
            };
            for len in SHORTEST_FRAME..=near {
                let bytes = bytes[..len].to_vec();
                judge(Case { bytes, first_buffer: len }, "cut off");
            }
            for first_buffer in 0..=near {
                judge(Case { first_buffer, ..whole.clone() }, "in two buffers");
            }
            for bit in 0..near * 8 {
                let mut flipped = whole.clone();
                flipped.bytes[bit / 8] ^= 1 << (bit % 8);
                judge(flipped, "a bit flipped");
            }
        }
        disagreements.check();
    });
}

/// Every frame that ever found a disagreement.
#[test]
fn corpus() {
    with_parsers(|parsers| {
        let mut disagreements = Disagreements::default();
        let entries = corpus::read();
        assert!(!entries.is_empty(), "the corpus is gone");
        for entry in entries {
            let outcome = parsers.judge(&entry.case);
            if !outcome.agree() {
                disagreements.add(&entry.case, parsers, &entry.file);
            }
            let found = coverage::name(outcome.reference.parse);
            assert_eq!(found, entry.expected, "{}", entry.file);
        }
        disagreements.check();
    });
}

/// The reference itself, on frames that somebody else's code has written.
#[test]
fn reference_reads_what_etherparse_writes() {
    let mac = ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]);
    let tags = (VlanId::try_new(7).unwrap(), VlanId::try_new(8).unwrap());
    let mut bytes = Vec::new();
    PacketBuilder::ethernet2(mac.0, mac.1)
        .double_vlan(tags.0, tags.1)
        .ipv4([198, 18, 0, 1], [198, 18, 0, 2], 64)
        .udp(1000, 2000)
        .write(&mut bytes, b"hello")
        .unwrap();
    let parsed = reference::parse(&bytes, bytes.len());
    assert_eq!(coverage::name(parsed.parse), "UDP");
    assert_eq!((parsed.ethertype, parsed.vlan_tags, parsed.left), (0x0800, 2, 13));
    assert_eq!((parsed.source_port, parsed.destination_port, parsed.udp_len), (1000, 2000, 13));
    assert_eq!(parsed.destination[..5], [198, 18, 0, 2, 0]);

    bytes.clear();
    PacketBuilder::ethernet2(mac.0, mac.1)
        .ipv6([1; 16], [2; 16], 64)
        .tcp(1000, 2000, 3, 4)
        .syn()
        .write(&mut bytes, b"")
        .unwrap();
    let parsed = reference::parse(&bytes, bytes.len());
    assert_eq!(coverage::name(parsed.parse), "TCP");
    assert_eq!((parsed.source_port, parsed.destination_port, parsed.tcp_flags), (1000, 2000, 2));
    assert_eq!((parsed.source, parsed.destination, parsed.left), ([1; 16], [2; 16], 20));
}

/// The reference itself, against a third reading: where it finds ports in a whole packet, etherparse
/// finds the same.
#[test]
fn reference_finds_the_ports_that_etherparse_finds() {
    let (mut generator, mut case) = (Cases::new(3), Case::default());
    let mut compared = 0;
    for number in 0..50_000 {
        generator.write(number, &mut case);
        let parsed = reference::parse(&case.bytes, case.bytes.len());
        let name = coverage::name(parsed.parse);
        if !matches!(name, "UDP" | "TCP") || parsed.fragment != 0 {
            continue;
        }
        let packet = LaxSlicedPacket::from_ethernet(&case.bytes).unwrap();
        let found = match &packet.transport {
            Some(TransportSlice::Udp(udp)) => ("UDP", udp.source_port(), udp.destination_port()),
            Some(TransportSlice::Tcp(tcp)) => ("TCP", tcp.source_port(), tcp.destination_port()),
            _ => ("neither", 0, 0),
        };
        assert_eq!(found, (name, parsed.source_port, parsed.destination_port), "{case}{packet:?}");
        compared += 1;
    }
    assert!(compared > 5_000, "only {compared} packets had ports");
}
