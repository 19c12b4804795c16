//! How large the kernel half is, so that a regression is seen: compared with `complexity.txt`, which is written anew by
//! `WEIR_RECORD=1 cargo test -p weir-bpf --test complexity`. And whether its stack is one that older kernels take.
//!
//! What the verifier has to look at depends on the kernel and on clang, so a tenth more or less is let
//! pass on the kernel that the record names; on another one, only the verifier's limit counts.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;
use std::{env, fs};

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use weir_bpf::attach::AttachMode;
use weir_bpf::egress::Egresses;
use weir_bpf::gate::{Gate, QueueProbe};
use weir_bpf::input::Inputs;
use weir_bpf::screen::Screens;
use weir_bpf::softirq::Softirqs;
use weir_bpf::wall::{self, Wall};

const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/complexity.txt");
/// `BPF_COMPLEXITY_LIMIT_INSNS` of `include/linux/bpf.h`.
const VERIFIER_LIMIT: u32 = 1_000_000;
const PROGRAMS: [&str; 20] = [
    "weir_forward",
    "weir_gate",
    "weir_gate_tc",
    "weir_refused",
    "weir_poll_end",
    "weir_rejected",
    "weir_switch",
    "weir_waking",
    "weir_wakeup",
    "weir_migrate",
    "weir_overfull",
    "weir_polled",
    "weir_screened",
    "weir_sirq_raise",
    "weir_sirq_begin",
    "weir_sirq_poll",
    "weir_sirq_end",
    "weir_unsent",
    "weir_wall_tc",
    "weir_wall_xdp",
];

/// `MAX_BPF_STACK` of `include/linux/filter.h`: for all functions that are called at a time.
const STACK_LIMIT: u32 = 512;

/// Of one program, as `bpf_prog_info` has them.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Size {
    /// Instructions that the verifier walked, over all branches.
    verified: u32,
    /// Instructions after the verifier's rewriting, all functions.
    translated: u32,
    /// Bytes of machine code, all functions.
    jited: u32,
    /// Bytes of stack where it is deepest.
    stack: u32,
}

/// A function of a program, by its first instruction.
#[derive(Default)]
struct Function {
    stack: u32,
    calls: BTreeSet<usize>,
}

/// Bytes of stack where the calls of a program are deepest, as Linux 6.1 counts them: more than later ones, since a
/// function takes 32 at least (`check_max_stack_depth()`).
fn stack(instructions: &[u8]) -> u32 {
    const CALL: u8 = 0x85;
    const CALL_FUNCTION: u8 = 1;
    const ADD: u8 = 0x07;
    const FRAME: u8 = 10;
    let instructions: Vec<[u8; 8]> =
        instructions.chunks_exact(8).map(|one| one.try_into().unwrap()).collect();
    let offset = |one: [u8; 8]| i32::from(i16::from_le_bytes([one[2], one[3]]));
    let called = |at: usize| {
        let one = instructions[at];
        (one[0] == CALL && one[1] >> 4 == CALL_FUNCTION)
            .then(|| (at as i32 + 1 + offset(one)) as usize)
    };
    let all = 0..instructions.len();
    let mut functions: BTreeMap<usize, Function> =
        all.clone().filter_map(called).chain([0]).map(|at| (at, Function::default())).collect();
    for at in all {
        let (_, function) = functions.range_mut(..=at).next_back().unwrap();
        function.calls.extend(called(at));
        let [code, registers, ..] = instructions[at];
        let deep = match (code & 7, registers & 15, registers >> 4) {
            // Loads from the frame and stores to it.
            (1, _, FRAME) | (2 | 3, FRAME, _) => offset(instructions[at]),
            // A pointer into it, which is the frame's with something added.
            (7, _, FRAME) => match instructions.get(at + 1) {
                Some([ADD, to, _, _, imm @ ..]) if *to == registers & 15 => {
                    i32::from_le_bytes(*imm)
                }
                _ => 0,
            },
            _ => 0,
        };
        function.stack = function.stack.max(deep.min(0).unsigned_abs());
    }
    fn deepest(functions: &BTreeMap<usize, Function>, at: usize) -> u32 {
        let function = &functions[&at];
        let beneath = function.calls.iter().map(|at| deepest(functions, *at)).max();
        function.stack.max(1).next_multiple_of(32) + beneath.unwrap_or(0)
    }
    deepest(&functions, 0)
}

/// The newest programs of these names: those that this test has just loaded.
fn sizes() -> BTreeMap<&'static str, Size> {
    let options = ProgInfoQueryOptions::default()
        .include_xlated_prog_insns(true)
        .include_jited_prog_insns(true);
    let mut found = BTreeMap::new();
    for program in ProgInfoIter::with_query_opts(options) {
        let Some(name) = PROGRAMS.iter().find(|name| program.name == **name) else {
            continue;
        };
        let size = Size {
            verified: program.verified_insns,
            translated: (program.xlated_prog_insns.len() / 8) as u32,
            jited: program.jited_prog_insns.len() as u32,
            stack: stack(&program.xlated_prog_insns),
        };
        let newest = found.entry(*name).or_insert((0, size));
        if program.id >= newest.0 {
            *newest = (program.id, size);
        }
    }
    found.into_iter().map(|(name, (_, size))| (name, size)).collect()
}

fn kernel() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    release.split('.').take(2).collect::<Vec<_>>().join(".")
}

fn table(sizes: &BTreeMap<&'static str, Size>) -> String {
    let mut text = format!("kernel {}\n", kernel());
    for (name, size) in sizes {
        writeln!(
            text,
            "{name:<14} {:>7} verified {:>6} translated {:>7} bytes of machine code {:>4} of stack",
            size.verified, size.translated, size.jited, size.stack
        )
        .unwrap();
    }
    text
}

fn numbers(line: &str) -> Vec<u32> {
    line.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn the_kernel_half_has_not_grown() {
    let probe = QueueProbe::load().expect("the tests need root");
    let _walls = [true, false].map(|in_driver| {
        let (ring_bytes, flows, idle) = (1 << 16, 1024, Duration::from_secs(1));
        let wall = wall::Options {
            ring_bytes,
            flows,
            idle,
            fail_open: true,
            forwarding: in_driver,
            in_driver,
        };
        Wall::load(&wall).unwrap()
    });
    // One has the programs for XDP, one that for tc.
    let _gates =
        [Gate::load_forwarding(&probe), Gate::load(&probe, AttachMode::Tcx)].map(Result::unwrap);
    let _inputs = Inputs::load(&probe).unwrap();
    let _egresses = Egresses::load(&probe).unwrap();
    let _screens = Screens::load(&probe).unwrap();
    let _softirqs = Softirqs::load(&probe).unwrap();
    let sizes = sizes();
    assert_eq!(sizes.len(), PROGRAMS.len(), "{sizes:?}");
    for (name, size) in &sizes {
        assert!(size.verified < VERIFIER_LIMIT / 2, "{name}: {size:?}");
        assert!(size.stack <= STACK_LIMIT, "{name}: {size:?}");
    }
    let now = table(&sizes);
    println!("{now}");
    if env::var_os("WEIR_RECORD").is_some() {
        fs::write(RECORD, &now).unwrap();
    }
    let record = fs::read_to_string(RECORD).unwrap();
    if record.lines().next() != now.lines().next() {
        println!("recorded on another kernel: only the verifier's limit was looked at");
        return;
    }
    for (then, now) in record.lines().zip(now.lines()).skip(1) {
        for (then_size, now_size) in numbers(then).into_iter().zip(numbers(now)) {
            let allowed = then_size / 10;
            assert!(
                now_size.abs_diff(then_size) <= allowed.max(8),
                "recorded: {then}\nnow:      {now}\nif that is meant, record it: WEIR_RECORD=1"
            );
        }
    }
}
