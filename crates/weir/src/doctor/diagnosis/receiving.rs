//! Receive processing that takes too much time, or loses what comes before any socket.

use std::iter::once;

use weir_bpf::verdict::Reason;

use super::super::reading::{CpuReading, InterfaceReading, IpReading, Reading};
use super::finding::{BUSY_PPS, Cause, EXHAUSTED, FULL, Finding, Help, MOST, Sureness, hindered};
use super::sockets::{KEPT_WAITING, Losses, discarded_for};
use super::words::{count, percent, socket_of};
use crate::walls::WallStatus;

/// Cookies, or requests dropped, of which there are fewer are a burst.
const SYNS_PER_SEC: f64 = 10.0;
const FLOOD: &str = "Connection requests come faster than their listener can remember them";

pub(super) fn wall_left(wall: &WallStatus) -> Option<Finding> {
    let (state, then) = match wall.screen_pid {
        Some(_) => {
            ("does not judge", "let threads poll: then a flood leaves the screen its CPU time")
        }
        None => {
            ("has ended and left its wall", "start the screen again, which takes the wall's place")
        }
    };
    (!wall.judges).then(|| Finding {
        cause: Cause::WallLeft,
        sureness: Sureness::Measured,
        what: format!("A screen {state} at {}: {}", wall.interface, wall.text()),
        whose: Some(wall.interface.clone()),
        weir: Help::None,
        weir_does: "nothing by itself: whoever started the screen decides whether packets pass"
            .into(),
        advice: vec![wall.remedy(), then.into()],
    })
}

/// A new connection's packet is dropped if no entry can be given up for it (`__nf_conntrack_alloc()`). The kernel counts
/// these together with invalid packets, so the table must be full, too; from 95% on it gives entries up beforehand.
pub(super) fn conntrack_full(reading: &Reading) -> Option<Finding> {
    let table = reading.conntrack.as_ref().filter(|table| table.limit > 0)?;
    let (entries, limit) = (table.entries as f64, table.limit as f64);
    let lost = table.drop_pps + table.given_up_per_sec;
    let sureness = match reading.is_loss(lost) {
        true if entries >= FULL * limit => Sureness::Measured,
        false if entries >= limit => Sureness::Likely,
        _ => return None,
    };
    Some(Finding {
        cause: Cause::ConntrackFull,
        sureness,
        what: format!(
            "The connection tracking table is full: {} of {} entries; {} packets/s of new connections are dropped, and \
             {}/s take the place of others",
            count(entries),
            count(limit),
            count(table.drop_pps),
            count(table.given_up_per_sec)
        ),
        whose: None,
        weir: Help::None,
        weir_does: "nothing by itself; but what it discards, including floods that fill no queue, takes no entry"
            .into(),
        advice: vec![
            format!("on the host: sudo sysctl -w net.netfilter.nf_conntrack_max={}", table.limit.saturating_mul(2)),
            "a `notrack` rule for what needs no state".into(),
        ],
    })
}

pub(super) fn fragments_lost(reading: &Reading) -> Option<Finding> {
    let ip = reading.ip.as_ref().filter(|ip| reading.is_loss(ip.fragment_drop_pps))?;
    let raise = |bytes: u64| {
        let bytes = bytes.saturating_mul(2);
        format!(
            "sudo sysctl -w net.ipv4.ipfrag_high_thresh={bytes}    (of IPv6: net.ipv6.ip6frag_high_thresh)"
        )
    };
    let find =
        "find who sends fragments whose rest never comes: sudo tcpdump -n 'ip[6:2] & 0x3fff != 0'";
    Some(Finding {
        cause: Cause::FragmentsLost,
        // A malformed fragment counts as well.
        sureness: Sureness::Likely,
        what: format!(
            "Fragments find no memory to wait in for the rest of their datagrams: {}/s are dropped, and {} datagrams/s \
             put together",
            count(ip.fragment_drop_pps),
            count(ip.reassembled_pps)
        ),
        whose: None,
        weir: Help::None,
        weir_does: "nothing: it passes a first fragment if its socket has room".into(),
        advice: once(find.into()).chain(ip.fragment_memory.map(raise)).collect(),
    })
}

pub(super) fn syn_flood(reading: &Reading) -> Option<Finding> {
    let tcp = reading.tcp.as_ref()?;
    let (cookies, dropped) = (tcp.cookies_per_sec, tcp.request_drops_per_sec);
    if cookies + dropped < SYNS_PER_SEC {
        return None;
    }
    let listeners = reading.sockets.iter().flatten().filter(|socket| socket.listener);
    let flooded =
        listeners.max_by_key(|socket| socket.half_open).filter(|socket| socket.half_open > 0);
    // With `tcp_syncookies=2` every request is answered with one, and none is half open.
    if cookies >= dropped && reading.sockets.is_some() && flooded.is_none() {
        return None;
    }
    let at = reading.best();
    let mut advice = vec![reading.try_weir(at)];
    let (sureness, what) = if cookies >= dropped {
        let what = format!("{FLOOD}: {}/s are answered with SYN cookies", count(cookies));
        (Sureness::Measured, what)
    } else if tcp.syncookies == Some(0) {
        advice.insert(0, "sudo sysctl -w net.ipv4.tcp_syncookies=1".into());
        let dropped = count(dropped);
        let what = format!(
            "{FLOOD}: {dropped}/s are dropped, real ones among them, as SYN cookies are off"
        );
        (Sureness::Measured, what)
    } else {
        let what = format!(
            "{} connection requests/s are dropped for another reason than a full queue (no route back, memory)",
            count(dropped)
        );
        (Sureness::Possible, what)
    };
    Some(Finding {
        cause: Cause::SynFlood,
        sureness,
        what,
        whose: flooded.map(socket_of),
        weir: Help::Contains,
        weir_does: hindered(
            reading,
            at,
            "holds connection requests to a share of the CPU, so that other services keep theirs; it cannot tell a \
             listener's real requests from the flood",
        ),
        advice,
    })
}

/// Whether processes suffer from what softirqs take of these CPUs. A router at its limit has nobody who does.
fn is_suffered(reading: &Reading, starved: &[&CpuReading]) -> bool {
    let mut owners = reading.sockets.iter().flatten().flat_map(|socket| &socket.owners);
    reading.is_loss(reading.socket_drop_pps())
        || owners.any(|owner| {
            owner.waited.is_some_and(|waited| waited >= KEPT_WAITING)
                && starved.iter().any(|cpu| Some(cpu.cpu) == owner.cpu)
        })
}

pub(super) fn livelock(reading: &Reading, losses: &Losses<'_>) -> Option<Finding> {
    let starved = reading.starved();
    let first = starved.iter().max_by(|one, other| one.softirq.total_cmp(&other.softirq))?;
    if reading.receive_pps() < BUSY_PPS {
        return None;
    }
    let interface = reading.busiest()?;
    let cpus: Vec<String> = starved.iter().map(|cpu| cpu.cpu.to_string()).collect();
    let at = reading.best();
    // Not of this work is what comes by loopback.
    let victim = losses.full.iter().find(|socket| !socket.by_loopback());
    let lost = match victim {
        Some(socket) => {
            format!("; {} packets/s are dropped after that work is done", count(socket.drop_pps))
        }
        None => String::new(),
    };
    let is_suffered = is_suffered(reading, &starved);
    let takes = match is_suffered {
        true => "the time that processes need",
        false => "nearly all of a CPU, and no process is seen to wait for it",
    };
    let is_forwarded = |ip: &IpReading| ip.forwarded_pps > ip.received_pps / 2.0;
    let forwarded = match reading.ip.as_ref().is_some_and(is_forwarded) {
        true => ", most of them forwarded",
        false => "",
    };
    // What is on top of another is polled below it.
    let does = match at.is_none_or(|at| at.lower.is_empty()) {
        true => {
            "has threads poll the interface, keeps half of each CPU for processes that want it, and discards early what \
             no socket has room for"
        }
        false => {
            "limits softirqs to half of each CPU that processes want, and discards early what no socket has room for"
        }
    };
    Some(Finding {
        cause: Cause::Livelock,
        sureness: match is_suffered {
            false => Sureness::Possible,
            true if first.packets_pps >= BUSY_PPS => Sureness::Measured,
            true => Sureness::Likely,
        },
        what: format!(
            "Receiving takes {takes}: {} of CPU {} is softirqs, for {} packets/s by {}{forwarded}{lost}",
            percent(first.softirq),
            cpus.join(", "),
            count(interface.receive_pps),
            interface.name
        ),
        whose: victim.map(|socket| socket.whose.clone()),
        weir: if is_suffered { reading.cures(at) } else { Help::Contains },
        weir_does: hindered(reading, at, does),
        advice: vec![reading.try_weir(at)],
    })
}

/// What the kernel's own counters do not show: a full queue loses here.
pub(super) fn early_discard(reading: &Reading, interface: &InterfaceReading) -> Option<Finding> {
    let reason =
        interface.discarded_as.as_ref().filter(|_| reading.is_loss(interface.discarded_pps))?;
    let name = &interface.name;
    let known = Reason::ALL.iter().find(|known| known.name() == reason);
    let why = known.map_or_else(String::new, |known| format!(": {}", known.description()));
    let full = match known {
        Some(Reason::UdpFull) => discarded_for(reading, interface, false),
        Some(Reason::TcpBacklogFull) => discarded_for(reading, interface, true),
        _ => None,
    };
    let (whose, full, mut advice) = match full {
        Some((whose, why, advice)) => (whose, format!("; {why}"), advice),
        None => (name.clone(), String::new(), vec![]),
    };
    match known {
        // No channel has them.
        Some(Reason::LazyFull) => advice.extend([
            "sudo grep -l bpf-map /proc/[0-9]*/maps    (the processes that read rings, and weir; which of them is too \
             slow, `top` shows)"
                .into(),
            "for bursts a larger ring: WEIR_RING_BYTES=16777216 with the preload library; else the program asks for it"
                .into(),
        ]),
        _ => advice.push(format!(
            "sudo weir channels {name}    (whose they are; --sources: who sends them)"
        )),
    }
    Some(Finding {
        cause: Cause::EarlyDiscard,
        sureness: Sureness::Measured,
        what: format!(
            "weir discards {} packets/s on {name}, most as {reason}{why}{full}",
            count(interface.discarded_pps)
        ),
        whose: Some(whose),
        weir: Help::Contains,
        weir_does: "makes what is lost cheap, and keeps it from harming others".into(),
        advice,
    })
}

pub(super) fn ring_full(reading: &Reading, interface: &InterfaceReading) -> Option<Finding> {
    // A bond adds up what its ports count, and has no ring.
    let has_ring = interface.lower.is_empty();
    (has_ring && reading.is_loss(interface.ring_drop_pps)).then(|| Finding {
        cause: Cause::RingFull,
        sureness: Sureness::Measured,
        what: format!(
            "The NIC's receive ring overflows: {} packets/s are lost",
            count(interface.ring_drop_pps)
        ),
        whose: Some(interface.name.clone()),
        weir: Help::Contains,
        weir_does:
            "empties the ring faster where most of what comes is discarded; it does not enlarge it"
                .into(),
        advice: vec![format!(
            "ethtool -g {0}, and up to the maximum that it shows: sudo ethtool -G {0} rx N",
            interface.name
        )],
    })
}

pub(super) fn backlog_full(reading: &Reading) -> Option<Finding> {
    let drop_pps = |cpu: &CpuReading| cpu.backlog_drop_pps;
    let worst = reading.cpus.iter().max_by(|a, b| drop_pps(a).total_cmp(&drop_pps(b)))?;
    // The counters are of all network namespaces.
    let steered = reading.interfaces.iter().find(|each| !each.steered.is_empty());
    let here = steered.is_some() || reading.receive_pps() >= BUSY_PPS;
    if !reading.is_loss(worst.backlog_drop_pps) || !here {
        return None;
    }
    let (weir_does, advice) = match steered {
        Some(each) => (
            "with `--rps-off`, has threads do this work, where it is weighed against processes",
            match reading.protected.contains(&each.name) {
                true => format!("stop weir, then: sudo weir run {} --rps-off", each.name),
                false => format!("sudo weir run {} --rps-off", each.name),
            },
        ),
        // Of a driver without NAPI; a veth's packets, unless GRO is on and its peer leaves TSO out.
        None => (
            "discards what has no room, so that the backlog is emptied faster; no thread does this work",
            "a larger net.core.netdev_max_backlog for bursts; more CPUs for a flood".into(),
        ),
    };
    Some(Finding {
        cause: Cause::BacklogFull,
        sureness: Sureness::Measured,
        what: format!(
            "CPU {} cannot keep up with its backlog: {} packets/s find it full",
            worst.cpu,
            count(worst.backlog_drop_pps)
        ),
        whose: steered
            .map(|each| format!("RPS is on for {} of {}", each.steered.join(", "), each.name)),
        weir: Help::Contains,
        weir_does: weir_does.into(),
        advice: vec![advice],
    })
}

pub(super) fn one_cpu_receives(reading: &Reading) -> Option<Finding> {
    let receives = |cpu: &CpuReading| cpu.softirq + cpu.napi_threads;
    let is_full = |cpu: &&CpuReading| receives(cpu) >= MOST && cpu.idle < EXHAUSTED;
    let [one] = reading.cpus.iter().filter(is_full).collect::<Vec<_>>()[..] else { return None };
    let interface = reading.busiest().filter(|each| each.receive_pps >= BUSY_PPS)?;
    let others: Vec<&CpuReading> = reading.cpus.iter().filter(|cpu| cpu.cpu != one.cpu).collect();
    let mean = |of: &dyn Fn(&CpuReading) -> f64| {
        others.iter().map(|cpu| of(cpu)).sum::<f64>() / others.len() as f64
    };
    let queues = interface.queues?;
    if others.is_empty() || !interface.steered.is_empty() || mean(&receives) >= 1.0 - MOST {
        return None;
    }
    let cpus = reading.cpus.len() as u32;
    let wanted = interface.queues_max.unwrap_or(0).min(cpus);
    let name = &interface.name;
    let advice = if queues > 1 {
        // More queues would not help: the NIC chooses one by a hash, of UDP usually of the addresses alone. Interrupts
        // bear the names that drivers give them, seldom the interface's; a virtio device's belong to its PCI device.
        let device = match interface.driver.as_deref() {
            Some("virtio_net") => "device/..",
            _ => "device",
        };
        vec![format!(
            "ls /sys/class/net/{name}/{device}/msi_irqs | sed 's/.*/^ *&:/' | grep -f - /proc/interrupts    (which \
             queues, on which CPUs); or sudo ethtool -N {name} rx-flow-hash \
             udp4 sdfn    (spreads UDP by ports, too; likewise udp6); one flow stays on one CPU"
        )]
    } else if wanted > queues {
        let counted = if interface.queues_apart { "rx" } else { "combined" };
        // A veth's packets come by the queue of the number of its peer's by which they leave (`veth_xmit()`).
        let peer = match interface.driver.as_deref() {
            Some("veth") => format!("    (and at its peer: tx {wanted})"),
            _ => String::new(),
        };
        vec![format!("sudo ethtool -L {name} {counted} {wanted}{peer}")]
    } else if reading.protected.contains(name) {
        // RPS takes packets from the threads that weir weighs.
        vec![]
    } else {
        let mask = reading.cpus.iter().filter(|cpu| cpu.cpu != one.cpu && cpu.cpu < 32);
        let mask = mask.fold(0u32, |mask, cpu| mask | 1 << cpu.cpu);
        vec![format!(
            "echo {mask:x} | sudo tee /sys/class/net/{name}/queues/rx-*/rps_cpus    (RPS, as it has no more queues)"
        )]
    };
    let are_idle = mean(&|cpu| cpu.idle) >= 1.0 - MOST;
    let has = match queues {
        1 => "1 receive queue".into(),
        _ => format!(
            "{queues} receive queues, and most packets come to one of them, or all to this CPU"
        ),
    };
    Some(Finding {
        cause: Cause::OneCpuReceives,
        sureness: if are_idle { Sureness::Likely } else { Sureness::Possible },
        what: format!(
            "One CPU receives for all: CPU {} spends {} of its time on it, the other {} hardly any; {name} has {has}",
            one.cpu,
            percent(receives(one).min(1.0)),
            others.len()
        ),
        whose: Some(name.clone()),
        weir: Help::None,
        weir_does: "nothing: it weighs receive work against processes, and does not spread it"
            .into(),
        advice,
    })
}
