//! One packet over and over (`BPF_PROG_TEST_RUN`): the gate's own time, with everything in the caches and
//! no driver.

use std::net::IpAddr;
use std::time::Duration;

use etherparse::PacketBuilder;
use weir_bpf::sys::link::Links;
use weir_bpf::test_run::XdpProgram;
use weir_bpf::units::MacAddr;
use weir_bpf::verdict::Verdict;

use super::super::shared::*;
use super::{KINDS, Kind, flow, on_tested_cpu};
use crate::apps::unread::{FULL_PORT, ROOM_PORT};
use crate::bench::{Begun, Bench, RANDOM_PORTS, addresses};
use crate::host::topology::Host;
use crate::stop::Stop;

pub(super) const PREFIX: &str = "hot-";
/// A packet for each step at which the gate may stop, from the first to the last. Of TCP, the last two.
const UDP: [&str; 5] = ["other-mac", "other-address", "no-socket", "room", "full"];
const QUICK: [&str; 4] = ["udp4-room", "udp4-full", "udp6-full", "tcp-syn4-full"];
/// Runs per system call: half a millisecond, so that what the gate believes of a full queue is renewed
/// between two calls.
const RUNS_PER_CALL: u32 = 5_000;
const CALLS: Choice<u32> = Choice { full: 50, quick: 12 };
const PAUSE: Duration = Duration::from_micros(300);
/// Real packets to a full socket meanwhile: the kernel refuses them, and so teaches the gate.
const KEEP_FULL: Load = Load::Rate(50_000.0);
const SETTLE: Duration = Duration::from_millis(5);
/// A call tells the time of a discard, or of a pass, if this share of its packets was one.
const PURE: f64 = 0.99;

pub(super) fn cases() -> impl Iterator<Item = Case> {
    let of_kind = |kind: Kind| {
        let steps = if kind.transport == Transport::Udp { &UDP[..] } else { &UDP[3..] };
        steps.iter().map(move |step| format!("{}-{step}", kind.name))
    };
    let names = std::iter::once("not-ip".to_owned()).chain(KINDS.into_iter().flat_map(of_kind));
    names.map(|name| Case {
        quick: QUICK.contains(&&*name),
        ..Case::always(format!("{PREFIX}{name}"))
    })
}

/// Times a packet in an arm that is in force.
pub(super) fn measure(
    bench: &mut Bench,
    ask: &Ask<'_>,
    name: &str,
    begun: &Begun,
    stop: &Stop,
) -> Result<Trial> {
    let (kind, frame) = packet(&bench.sut(ask.arm).host, name);
    let timed = if name.ends_with("-full") {
        bench.aim(ask.arm, &[flow(kind, FULL_PORT, KEEP_FULL)])?;
        let bench = &*bench;
        bench.generate_while(|| {
            bench.generator.start();
            stop.sleep(SETTLE)?;
            time(bench, ask, begun, &frame, stop)
        })??
    } else {
        time(bench, ask, begun, &frame, stop)?
    };
    let mut trial = Trial::of(ask.arm, ask.case, ask.load);
    trial.set(&m::ns_per_packet, timed.map(|(ns, _)| ns));
    trial.set(&m::discarded_share, timed.map(|(_, discarded)| f64::from(u8::from(discarded))));
    Ok(trial)
}

/// Nanoseconds on the tested CPU, and whether the packet was dropped; `None` where no call was of one
/// verdict. Discards go before passes: a full queue is admitted to now and then, and one with room is
/// never discarded from.
fn time(
    bench: &Bench,
    ask: &Ask<'_>,
    begun: &Begun,
    frame: &[u8],
    stop: &Stop,
) -> Result<Option<(f64, bool)>> {
    let ifindex = bench.sut(ask.arm).host.ifindex;
    // Of the gate: how many it has discarded, and judged.
    let judged = || -> Result<Option<(u64, u64)>> {
        let Some(daemon) = &begun.daemon else { return Ok(None) };
        let counters = daemon.counters.counters()?;
        Ok(Some((counters.verdict(Verdict::Discard).packets, counters.total().packets)))
    };
    let (mut discards, mut passes) = (vec![], vec![]);
    on_tested_cpu(bench, ask.arm, || {
        let attached = Links::open()?.xdp(ifindex)?.ok_or_else(|| {
            Error::refused("the lab's interface has lost its program", "run the experiment again")
        })?;
        let program = XdpProgram::by_id(attached.prog_id)?;
        for _ in 0..CALLS.of(ask.quick) {
            stop.check()?;
            let before = judged()?;
            let ns = program.timed(frame, ifindex, RUNS_PER_CALL)?.mean.0 as f64;
            let share = match before.zip(judged()?) {
                Some((before, after)) => {
                    (after.0 - before.0) as f64 / (after.1 - before.1).max(1) as f64
                }
                // A bare program does the same with each.
                None => f64::from(u8::from(ask.arm.name == "bare-drop")),
            };
            if share >= PURE {
                discards.push(ns);
            } else if share <= 1.0 - PURE {
                passes.push(ns);
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    })?;
    let was_discarded = !discards.is_empty();
    let times = if was_discarded { discards } else { passes };
    Ok((!times.is_empty()).then(|| (median(times), was_discarded)))
}

fn packet(host: &Host, name: &str) -> (Kind, Vec<u8>) {
    let Some(kind) = KINDS.into_iter().find(|kind| name.starts_with(kind.name)) else {
        // ARP's Ethernet type.
        let frame = [&host.mac.1.0[..], &host.mac.0.0, &[0x08, 0x06], &[0; 46]].concat();
        return (KINDS[0], frame);
    };
    let what = &name[kind.name.len() + 1..];
    let to_mac = if what == "other-mac" { MacAddr([2, 0, 0, 0, 0, 1]) } else { host.mac.1 };
    // One more than the host's address is nobody's.
    let beyond = u8::from(what == "other-address");
    let port = match what {
        "no-socket" => CLOSED_PORT,
        "full" => FULL_PORT,
        _ => ROOM_PORT,
    };
    let ethernet = PacketBuilder::ethernet2(host.mac.0.0, to_mac.0);
    let ip = match addresses(host)[usize::from(kind.ipv6)] {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let to = to.to_bits() + u32::from(beyond);
            ethernet.ipv4(from.octets(), to.to_be_bytes(), 64)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let to = to.to_bits() + u128::from(beyond);
            ethernet.ipv6(from.octets(), to.to_be_bytes(), 64)
        }
        _ => unreachable!("both ends of a wire have addresses of one family"),
    };
    let mut frame = vec![];
    // Writing to memory fails only for packets that are too long for their headers.
    let written = match kind.transport {
        Transport::TcpSyn => ip.tcp(RANDOM_PORTS, port, 0, 65_535).syn().write(&mut frame, &[]),
        _ => ip.udp(RANDOM_PORTS, port).write(&mut frame, &[0; 14]),
    };
    debug_assert!(written.is_ok(), "{written:?}");
    (kind, frame)
}
