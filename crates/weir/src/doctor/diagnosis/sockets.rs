//! Sockets that lose what comes, and why.

use super::super::reading::{OwnerReading, Reading, SocketReading};
use super::finding::{Cause, FULL, Finding, Help, Sureness, hindered};
use super::words::{count, socket_of};

/// A thread that runs for more of the time than this is at the limit of one CPU.
const AT_LIMIT: f64 = 0.9;
/// A thread that ran for less of the time than this does not read.
const ASLEEP: f64 = 0.005;
/// A thread that wanted to run for longer than this and did not is kept from its work by others.
const KEPT_WAITING: f64 = 0.25;

/// Datagrams that sockets lost and that neither counter of UDP's has. Linux 6.18 drops for want of memory without
/// counting that anywhere but at the socket.
pub(super) fn uncounted_pps(reading: &Reading) -> f64 {
    let lost: f64 = losing(reading).iter().map(|socket| socket.drop_pps).sum();
    let counted = reading
        .udp
        .as_ref()
        .map_or(0.0, |udp| udp.queue_full_pps + udp.memory_pps + udp.checksum_pps);
    // Sockets and counters are not read in the same instant.
    if lost - counted > lost / 2.0 { lost - counted } else { 0.0 }
}

pub(super) fn udp_memory(reading: &Reading) -> Option<Finding> {
    let udp = reading.udp.as_ref()?;
    let uncounted = uncounted_pps(reading);
    let rate = udp.memory_pps.max(uncounted);
    // The kernel gives memory out in portions, so that it may refuse a little below the limit.
    let exhausted = |(used, limit): (u64, [u64; 3])| used as f64 >= FULL * limit[2] as f64;
    let memory = udp.memory_pages.zip(udp.memory_limit_pages);
    let sureness = match memory.map(exhausted) {
        Some(true) if udp.memory_pps > 0.0 => Sureness::Measured,
        Some(true) => Sureness::Likely,
        // A limit that is not used up does not explain what is not said to be for want of memory.
        Some(false) if udp.memory_pps > 0.0 => Sureness::Likely,
        None => Sureness::Possible,
        Some(false) => return None,
    };
    if rate <= 0.0 {
        return None;
    }
    let rate = count(rate);
    let (what, advice) = match memory.filter(|memory| exhausted(*memory)) {
        Some((used, limit)) => {
            let [low, pressure, high] = limit.map(|pages| pages * 2);
            (
                format!(
                    "UDP is out of memory: {rate} datagrams/s are lost although queues have room; {used} of {} pages \
                     are used (net.ipv4.udp_mem)",
                    limit[2]
                ),
                format!("on the host: sudo sysctl -w net.ipv4.udp_mem='{low} {pressure} {high}'"),
            )
        }
        None => {
            let known = match memory {
                Some(_) => "net.ipv4.udp_mem is not used up, so a control group's limit must be",
                None => {
                    "the host's net.ipv4.udp_mem, which is not seen from here, or a control group's limit is used up"
                }
            };
            (
                format!("{rate} datagrams/s are lost for want of memory although queues have room: {known}"),
                "raise memory.max of the receiver's control group (systemd: MemoryMax=, docker: --memory)"
                    .into(),
            )
        }
    };
    let sockets = reading.sockets.iter().flatten().filter(|socket| !socket.listener);
    let fullest = sockets.max_by_key(|socket| socket.queued).filter(|socket| socket.queued > 0);
    Some(Finding {
        cause: Cause::UdpMemory,
        sureness,
        what,
        whose: fullest.map(|socket| format!("most of it waits at {}", socket_of(socket))),
        weir: Help::None,
        weir_does: "nothing: it discards for full queues, and these are not".into(),
        advice: vec![advice],
    })
}

/// Sockets of one port and address, as readers of `SO_REUSEPORT` have them.
pub(super) struct Losing {
    pub(super) whose: String,
    pub(super) drop_pps: f64,
    sockets: usize,
    queued: u64,
    limit: u64,
    owners: Vec<OwnerReading>,
}

/// Those that lose packets, most first.
fn losing(reading: &Reading) -> Vec<Losing> {
    let mut groups: Vec<(&str, Vec<&SocketReading>)> = Vec::new();
    for socket in
        reading.sockets.iter().flatten().filter(|socket| !socket.listener && socket.drop_pps > 0.0)
    {
        match groups.iter_mut().find(|(local, _)| *local == socket.local) {
            Some((_, group)) => group.push(socket),
            None => groups.push((&socket.local, vec![socket])),
        }
    }
    let losing = |(_, group): (&str, Vec<&SocketReading>)| {
        let first = group.first()?;
        Some(Losing {
            whose: socket_of(first),
            drop_pps: group.iter().map(|each| each.drop_pps).sum(),
            sockets: group.len(),
            queued: group.iter().map(|each| u64::from(each.queued)).sum(),
            limit: group.iter().map(|each| u64::from(each.limit)).sum(),
            owners: group.iter().flat_map(|each| each.owners.clone()).collect(),
        })
    };
    let mut found: Vec<Losing> = groups.into_iter().filter_map(losing).collect();
    found.sort_by(|one, other| other.drop_pps.total_cmp(&one.drop_pps));
    found
}

pub(super) fn worst_socket(reading: &Reading) -> Option<Losing> {
    losing(reading).into_iter().next()
}

/// Why a queue is full.
#[derive(Clone, Copy, PartialEq)]
enum Reader {
    /// Others have the CPU that it wants.
    KeptWaiting,
    /// It is busy all the time.
    AtLimit,
    /// It does not read.
    Asleep,
    /// It reads, has time to spare, and leaves its queue full.
    HeldUp,
    /// It reads, has time to spare, and loses what comes at once.
    Bursts,
    /// It cannot be seen.
    Unseen,
}

pub(super) fn sockets_full(reading: &Reading) -> Vec<Finding> {
    // What is dropped for want of memory counts as dropped at the socket, too.
    let udp = reading.udp.as_ref();
    let for_memory = udp.is_some_and(|udp| udp.memory_pps > udp.queue_full_pps);
    if for_memory || uncounted_pps(reading) > 0.0 {
        return Vec::new();
    }
    losing(reading).iter().map(|socket| socket_full(reading, socket)).collect()
}

fn reader(reading: &Reading, socket: &Losing) -> Reader {
    let total = |of: fn(&OwnerReading) -> Option<f64>| {
        socket.owners.iter().filter_map(of).max_by(f64::total_cmp)
    };
    let (Some(ran), Some(waited)) = (total(|owner| owner.ran), total(|owner| owner.waited)) else {
        return Reader::Unseen;
    };
    let starved = reading.starved();
    let on_starved = |owner: &OwnerReading| starved.iter().any(|cpu| Some(cpu.cpu) == owner.cpu);
    let full = socket.queued as f64 >= FULL * socket.limit as f64;
    if waited >= KEPT_WAITING || (ran >= ASLEEP && socket.owners.iter().any(on_starved)) {
        Reader::KeptWaiting
    } else if ran >= AT_LIMIT {
        Reader::AtLimit
    } else if full {
        if ran < ASLEEP { Reader::Asleep } else { Reader::HeldUp }
    } else {
        Reader::Bursts
    }
}

fn socket_full(reading: &Reading, socket: &Losing) -> Finding {
    let reader = reader(reading, socket);
    let (why, weir, does) = match reader {
        Reader::KeptWaiting => (
            "its reader waits for a CPU",
            Help::Cures,
            "discards what this queue has no room for before that costs CPU time, and keeps time for the reader",
        ),
        Reader::AtLimit => (
            "its reader is busy all the time",
            Help::Contains,
            "makes what is lost cheap, and keeps it from harming others; this reader cannot read more",
        ),
        Reader::Asleep => (
            "nobody reads it",
            Help::Contains,
            "makes what is lost cheap; nothing is read for that",
        ),
        Reader::HeldUp => (
            "its reader waits, but not for a CPU",
            Help::Contains,
            "makes what is lost cheap, and keeps it from harming others; the reader reads no faster for that",
        ),
        Reader::Bursts => (
            "its reader has time to spare, so packets come in bursts that its buffer is too small for",
            Help::None,
            "nothing: a burst needs room",
        ),
        Reader::Unseen => (
            "its reader cannot be seen",
            Help::Contains,
            "makes what is lost cheap, and keeps it from harming others",
        ),
    };
    let buffer = socket.limit / socket.sockets.max(1) as u64;
    let mut advice = Vec::new();
    match reader {
        Reader::KeptWaiting => advice.push(reading.try_weir()),
        Reader::AtLimit => {
            advice.push(
                "more readers: one socket for each CPU with SO_REUSEPORT, and recvmmsg(2)".into(),
            );
            advice.push(reading.try_weir());
        }
        Reader::Asleep | Reader::HeldUp => {
            let pid =
                socket.owners.first().map_or_else(|| "PID".into(), |owner| owner.pid.to_string());
            advice.push(format!("sudo cat /proc/{pid}/stack    (what it waits for)"));
        }
        // SO_RCVBUF is doubled by the kernel, which is what it tells.
        Reader::Bursts => advice.push(format!(
            "a larger SO_RCVBUF in the program, and: sudo sysctl -w net.core.rmem_max={}",
            (buffer * 2).next_power_of_two()
        )),
        Reader::Unseen => advice.push("sudo weir doctor    (to see whose it is)".into()),
    }
    Finding {
        cause: Cause::SocketFull,
        sureness: if reader == Reader::Unseen { Sureness::Possible } else { Sureness::Likely },
        what: format!(
            "A UDP socket loses {} packets/s: its queue of {} KiB is full, as {why}",
            count(socket.drop_pps),
            buffer.div_ceil(1024)
        ),
        whose: Some(socket.whose.clone()),
        weir,
        weir_does: if weir == Help::None { does.into() } else { hindered(reading, does) },
        advice,
    }
}

pub(super) fn accept_queues_full(reading: &Reading) -> Vec<Finding> {
    let full = reading.tcp.as_ref().map_or(0.0, |tcp| tcp.accept_queue_full_per_sec);
    if full <= 0.0 {
        return Vec::new();
    }
    // One more than its limit is let in (`sk_acceptq_is_full()`).
    let is_full = |socket: &&SocketReading| socket.listener && socket.queued > socket.limit;
    let finding = |socket: &SocketReading| Finding {
        cause: Cause::AcceptQueueFull,
        sureness: Sureness::Measured,
        what: format!(
            "A listener's accept queue is full: {} connections wait in it, and {}/s more are turned away",
            socket.queued,
            count(full)
        ),
        whose: Some(socket_of(socket)),
        weir: Help::Contains,
        weir_does: hindered(
            reading,
            "discards requests that the queue has no room for early; it accepts none",
        ),
        advice: vec![format!(
            "find out why the program does not accept; for bursts, a larger backlog in it, and: sudo sysctl -w \
             net.core.somaxconn={}",
            (u64::from(socket.limit) * 2).max(4096)
        )],
    };
    reading.sockets.iter().flatten().filter(is_full).map(finding).collect()
}
