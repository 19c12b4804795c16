//! One packet over and over (`BPF_PROG_TEST_RUN`): the gate's own time, with everything in the caches and
//! no driver.

use std::net::IpAddr;
use std::time::Duration;

use etherparse::PacketBuilder;
use rustix::thread::gettid;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::sched;
use weir_bpf::test_run::XdpProgram;
use weir_bpf::units::{MacAddr, Nice};
use weir_bpf::verdict::Verdict;

use super::super::shared::*;
use super::{KINDS, Kind, flow};
use crate::apps::unread::{CLOSED_PORT, FULL_PORT, ROOM_PORT};
use crate::bench::{Begun, Bench, RANDOM_PORTS, addresses};
use crate::host::topology::Host;
use crate::stop::Stop;

/// How these cases' names begin.
pub(super) const PREFIX: &str = "hot-";
/// A packet for each step at which the gate may stop, from the first to the last.
pub(super) const NAMES: [&str; 15] = [
    "not-ip",
    "udp4-other-mac",
    "udp4-other-address",
    "udp4-no-socket",
    "udp4-room",
    "udp4-full",
    "udp6-other-mac",
    "udp6-other-address",
    "udp6-no-socket",
    "udp6-room",
    "udp6-full",
    "tcp-syn4-room",
    "tcp-syn4-full",
    "tcp-syn6-room",
    "tcp-syn6-full",
];
/// Runs per system call: half a millisecond, so that what the gate believes of a full queue is renewed
/// between two calls.
const RUNS_PER_CALL: u32 = 5_000;
const CALLS: (u32, u32) = (12, 50);
const PAUSE: Duration = Duration::from_micros(300);
/// Real packets to a full socket meanwhile: the kernel refuses them, and so teaches the gate.
const KEEP_FULL: Load = Load::Rate(50_000.0);
const SETTLE: Duration = Duration::from_millis(5);
/// A call tells the time of a discard, or of a pass, if this share of its packets was one.
const PURE: f64 = 0.99;

/// Whether a quick run has it.
pub(super) fn is_quick(name: &str) -> bool {
    ["udp4-room", "udp4-full", "udp6-full", "tcp-syn4-full"].contains(&name)
}

/// Times a packet in an arm that is in force.
pub(super) fn measure(
    bench: &mut Bench,
    ask: &Ask<'_>,
    (name, begun): (&str, &Begun),
    trial: &mut Trial,
    stop: &Stop,
) -> Result<()> {
    let (kind, frame) = packet(&bench.sut(ask.arm).host, name);
    let calls = if ask.quick { CALLS.0 } else { CALLS.1 };
    let timed = if name.ends_with("-full") {
        bench.aim(ask.arm, &[flow(kind, FULL_PORT, KEEP_FULL)])?;
        let bench = &*bench;
        bench.generate_while(|| {
            bench.generator.start();
            stop.sleep(SETTLE)?;
            time(bench, ask, begun, (&frame, calls), stop)
        })??
    } else {
        time(bench, ask, begun, (&frame, calls), stop)?
    };
    trial.set(&m::ns_per_packet, timed.map(|(ns, _)| ns));
    trial.set(&m::discarded_share, timed.map(|(_, discarded)| f64::from(u8::from(discarded))));
    Ok(())
}

/// Nanoseconds on the tested CPU, and whether the packet was dropped; `None` where no call was of one
/// verdict. Discards go before passes: a full queue is admitted to now and then, and one with room is
/// never discarded from.
fn time(
    bench: &Bench,
    ask: &Ask<'_>,
    begun: &Begun,
    (frame, calls): (&[u8], u32),
    stop: &Stop,
) -> Result<Option<(f64, bool)>> {
    let host = &bench.sut(ask.arm).host;
    let (mut discards, mut passes) = (vec![], vec![]);
    host.netns.run(|| -> Result<()> {
        sched::set_nice(gettid(), Nice(0))?;
        sched::pin_current_thread(bench.sut_cpu)?;
        let attached = Links::open()?.xdp(host.ifindex)?.map(|attached| attached.prog_id);
        let attached = attached.ok_or_else(|| {
            Error::refused("the lab's interface has lost its program", "run the experiment again")
        })?;
        let program = XdpProgram::by_id(attached)?;
        let discarded = || {
            let counters = begun.daemon.as_ref().map(|daemon| daemon.counters.counters());
            let counters = counters.transpose()?;
            Ok::<_, Error>(
                counters.map(|c| (c.verdict(Verdict::Discard).packets, c.total().packets)),
            )
        };
        for _ in 0..calls {
            stop.check()?;
            let before = discarded()?;
            let ns = program.timed(frame, host.ifindex, RUNS_PER_CALL)?.mean.0 as f64;
            let share = before.zip(discarded()?).map(|(before, after)| {
                (after.0 - before.0) as f64 / (after.1 - before.1).max(1) as f64
            });
            // A bare program does the same with each.
            let share = share.unwrap_or(f64::from(u8::from(ask.arm.name == "bare-drop")));
            if share >= PURE {
                discards.push(ns);
            } else if share <= 1.0 - PURE {
                passes.push(ns);
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    })??;
    let was_discarded = !discards.is_empty();
    let times = if was_discarded { discards } else { passes };
    Ok((!times.is_empty()).then(|| (median(times), was_discarded)))
}

/// The frame of that name, and its kind.
fn packet(host: &Host, name: &str) -> (Kind, Vec<u8>) {
    let kind = KINDS.into_iter().find(|kind| name.starts_with(kind.name));
    let Some(kind) = kind else {
        // ARP's Ethernet type.
        let frame = [&host.mac.1.0[..], &host.mac.0.0, &[0x08, 0x06], &[0; 46]].concat();
        return (KINDS[0], frame);
    };
    let what = &name[kind.name.len() + 1..];
    let (mut to_mac, (from, mut to)) = (host.mac.1, addresses(host)[usize::from(kind.ipv6)]);
    let mut port = ROOM_PORT;
    match what {
        "other-mac" => to_mac = MacAddr([2, 0, 0, 0, 0, 1]),
        // One more than the host's: nobody's.
        "other-address" => to = next(to),
        "no-socket" => port = CLOSED_PORT,
        "full" => port = FULL_PORT,
        _ => {}
    }
    let ethernet = PacketBuilder::ethernet2(host.mac.0.0, to_mac.0);
    let ip = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => ethernet.ipv4(from.octets(), to.octets(), 64),
        (from, to) => ethernet.ipv6(octets6(from), octets6(to), 64),
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

fn next(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) => IpAddr::from((v4.to_bits() + 1).to_be_bytes()),
        IpAddr::V6(v6) => IpAddr::from((v6.to_bits() + 1).to_be_bytes()),
    }
}

fn octets6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}
