//! Sockets that lose what comes, and why.

use std::collections::{BTreeMap, BTreeSet};
use std::iter::once;
use std::net::SocketAddr;

use super::super::reading::{
    InterfaceReading, OWNERS, OwnerReading, Reading, SocketReading, UdpReading,
};
use super::finding::{Cause, FULL, Finding, Help, Sureness, hindered};
use super::words::{count, socket_of, sockets_of};

/// A thread that runs for more of the time than this is at the limit of one CPU.
const AT_LIMIT: f64 = 0.9;
/// The queue of a reader at its limit is fuller than this at one of two looks: the kernel frees what was read in quarters
/// of the limit (`udp_rmem_release()`), and one that takes many packets at once empties more of it. Where it is emptier
/// at both, another thread of the process is busy.
const AT_LIMIT_FILL: f64 = 0.5;
/// A thread that ran for less of the time than this does not read.
const ASLEEP: f64 = 0.005;
/// A thread that wanted to run for longer than this and did not is kept from its work by others.
pub(super) const KEPT_WAITING: f64 = 0.25;
/// What to do for a reader whose CPU others have.
const OWN_CPU: &str = "a CPU of its own for the reader (systemd: AllowedCPUs=), or more of this one (nice, CPUWeight=)";
/// What weir does where nothing is known of the reader.
const CONTAINS: &str = "makes what is lost cheap, and keeps it from harming others";
/// What of an amount may be missing elsewhere, as sockets, counters, threads and CPUs are not read in the same instant.
const SKEW: f64 = 0.1;

pub(super) fn udp_memory(reading: &Reading, losses: &Losses<'_>) -> Option<Finding> {
    let udp = reading.udp.as_ref()?;
    let rate = udp.memory_pps.max(losses.uncounted_pps(udp));
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
            let [low, pressure, high] = limit.map(|pages| pages.saturating_mul(2));
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
                    "the host's net.ipv4.udp_mem, which is not seen from here, or a control group's limit is used up, or \
                     a filter of the socket's own, or a program of its control group (IPAddressDeny=), drops them"
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
        whose: match sureness {
            Sureness::Possible => losses.refused.first().map(|socket| socket.whose.clone()),
            _ => fullest.map(|socket| format!("most of it waits at {}", socket_of(socket))),
        },
        weir: Help::None,
        weir_does: "nothing: it discards for full queues, and these are not".into(),
        advice: vec![advice],
    })
}

/// Sockets of one port and address, as readers of `SO_REUSEPORT` have them, or of one process.
pub(super) struct Losing<'a> {
    pub(super) whose: String,
    pub(super) drop_pps: f64,
    local: String,
    sockets: Vec<&'a SocketReading>,
    queued: u64,
    limit: u64,
    owners: Vec<OwnerReading>,
}

impl<'a> Losing<'a> {
    fn of(group: Vec<&'a SocketReading>) -> Option<Self> {
        let first = group.first()?;
        let alike = group.iter().all(|each| each.local == first.local);
        Some(Self {
            whose: if alike { socket_of(first) } else { sockets_of(&group, first) },
            local: first.local.clone(),
            drop_pps: group.iter().map(|each| each.drop_pps).sum(),
            queued: group.iter().map(|each| u64::from(each.queued)).sum(),
            limit: group.iter().map(|each| u64::from(each.limit)).sum(),
            owners: group.iter().flat_map(|each| each.owners.clone()).collect(),
            sockets: group,
        })
    }

    /// Whether nothing but loopback, which weir does not protect, leads to it.
    pub(super) fn by_loopback(&self) -> bool {
        let local = self.local.parse::<SocketAddr>();
        local.is_ok_and(|local| local.ip().to_canonical().is_loopback())
    }

    /// What one of them has room for, in bytes.
    fn buffer(&self) -> u64 {
        self.limit / self.sockets.len().max(1) as u64
    }

    /// How full the queue is.
    fn fill(&self) -> f64 {
        self.queued as f64 / self.limit.max(1) as f64
    }
}

/// UDP sockets, or else listeners, that lose packets: by address and port, and those that lose little by process.
fn losing(reading: &Reading, listeners: bool) -> Vec<Losing<'_>> {
    // A worker that is halted loses for another reason than those beside it, and of multicast each has a copy: nobody else
    // reads what a socket loses.
    let mut groups: BTreeMap<(&str, bool, Option<i32>), Vec<&SocketReading>> = BTreeMap::new();
    let loses = |each: &&SocketReading| each.listener == listeners && each.drop_pps > 0.0;
    for socket in reading.sockets.iter().flatten().filter(loses) {
        let is_halted = halted(&socket.owners).is_some();
        let of_group = socket.local.parse().is_ok_and(|it: SocketAddr| it.ip().is_multicast());
        let reader = socket.owners.first().map(|owner| owner.pid).filter(|_| of_group);
        groups.entry((&socket.local, is_halted, reader)).or_default().push(socket);
    }
    let is_loss =
        |group: &Vec<&SocketReading>| reading.is_loss(group.iter().map(|each| each.drop_pps).sum());
    let (mut groups, few): (Vec<_>, Vec<_>) = groups.into_values().partition(is_loss);
    let mut processes: BTreeMap<Option<i32>, Vec<&SocketReading>> = BTreeMap::new();
    for socket in few.into_iter().flatten() {
        processes.entry(socket.owners.first().map(|owner| owner.pid)).or_default().push(socket);
    }
    groups.extend(processes.into_values().filter(is_loss));
    groups.into_iter().filter_map(Losing::of).collect()
}

/// Sockets that lose packets, by why; most first.
pub(super) struct Losses<'a> {
    /// Their queues are full.
    pub(super) full: Vec<Losing<'a>>,
    /// Something else: memory, a wrong checksum, a filter of the socket's own.
    pub(super) refused: Vec<Losing<'a>>,
    /// Lost at full queues of sockets that are not among them.
    unseen_pps: f64,
}

impl<'a> Losses<'a> {
    pub(super) fn of_udp(reading: &'a Reading) -> Self {
        let full = reading.udp.as_ref().map(|udp| (udp.queue_full_pps, udp.queue_full_unsure_pps));
        Self::of(reading, false, full.unwrap_or_default())
    }

    pub(super) fn of_tcp(reading: &'a Reading) -> Self {
        let full = reading
            .tcp
            .as_ref()
            .map(|tcp| (tcp.accept_queue_full_per_sec, tcp.accept_queue_full_unsure_per_sec));
        Self::of(reading, true, full.unwrap_or_default())
    }

    /// The kernel counts full queues of all sockets together, and at each socket what it loses for whatever reason. What
    /// is counted is the fullest ones' first. What was counted while the sockets were looked at may be missing at them, or
    /// be theirs as well.
    fn of(reading: &'a Reading, listeners: bool, (queue_full_pps, unsure_pps): (f64, f64)) -> Self {
        let mut losing = losing(reading, listeners);
        losing.sort_by(|one, other| other.fill().total_cmp(&one.fill()));
        let mut left = queue_full_pps;
        let (mut full, mut refused): (Vec<_>, Vec<_>) = losing.into_iter().partition(|socket| {
            let skew = (SKEW * queue_full_pps).max(unsure_pps);
            let skew = if socket.fill() >= FULL { skew } else { 0.0 };
            // Most of it is.
            let counted = socket.drop_pps <= 2.0 * (left + skew);
            left -= if counted { socket.drop_pps } else { 0.0 };
            counted
        });
        for part in [&mut full, &mut refused] {
            part.sort_by(|one, other| other.drop_pps.total_cmp(&one.drop_pps));
        }
        let unseen =
            queue_full_pps - unsure_pps - full.iter().map(|socket| socket.drop_pps).sum::<f64>();
        let is_much = reading.is_loss(unseen) && unseen > queue_full_pps / 2.0;
        Self { full, refused, unseen_pps: if is_much { unseen } else { 0.0 } }
    }

    /// Whether this is most of what is not lost at full queues.
    pub(super) fn is_most(&self, pps: f64) -> bool {
        pps >= self.refused.iter().map(|socket| socket.drop_pps).sum::<f64>() / 2.0
    }

    /// What no counter of UDP's has. Linux 6.18 drops for want of memory without counting that anywhere but at the
    /// socket.
    fn uncounted_pps(&self, udp: &UdpReading) -> f64 {
        let counted = udp.memory_pps + udp.checksum_pps;
        let lost: f64 = self.refused.iter().map(|socket| socket.drop_pps).sum();
        if self.is_most(counted) { 0.0 } else { lost - counted }
    }
}

/// Why a queue is full.
#[derive(Clone, Copy, PartialEq)]
enum Reader {
    /// Receiving has the CPU that it wants.
    KeptWaiting,
    /// Other processes have it.
    Crowded,
    /// It may not run, though its CPU is idle.
    HeldBack,
    /// It is busy all the time.
    AtLimit,
    /// It does not read.
    Asleep,
    /// It runs too little to read much.
    Drowsy,
    /// It cannot read: a signal has stopped it.
    Stopped,
    /// A debugger has.
    Held,
    /// Its control group is frozen.
    Frozen,
    /// It reads, has time to spare, and leaves its queue full.
    HeldUp,
    /// It empties its queue, and loses what comes at once.
    Bursts,
    /// It was there at the second look only.
    New,
    /// It cannot be seen.
    Unseen,
}

impl Reader {
    /// Why the queue is full, and what weir does then.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::KeptWaiting => (
                "its reader waits for a CPU that receiving takes",
                "discards early what this queue has no room for, which saves CPU time, and keeps time for the reader",
            ),
            Self::Crowded => (
                "its reader waits for a CPU that other processes have",
                "makes what is lost cheap; it takes no CPU time from processes",
            ),
            Self::HeldBack => (
                "its reader waits while its CPU is idle, as under a CPU quota",
                "makes what is lost cheap, and keeps it from harming others; it lifts no quota",
            ),
            Self::AtLimit => (
                "its reader is busy all the time",
                "makes what is lost cheap, and keeps it from harming others; this reader cannot read more",
            ),
            Self::Asleep => {
                ("nobody reads it", "makes what is lost cheap; nothing is read for that")
            }
            Self::Drowsy => {
                ("its reader hardly reads", "makes what is lost cheap; no more is read for that")
            }
            Self::Stopped => (
                "nobody reads it: its process is stopped, by a signal",
                "makes what is lost cheap; nothing is read for that",
            ),
            Self::Held => (
                "nobody reads it: a debugger holds its process",
                "makes what is lost cheap; nothing is read for that",
            ),
            Self::Frozen => (
                "nobody reads it: its process's control group is frozen",
                "makes what is lost cheap; nothing is read for that",
            ),
            Self::HeldUp => (
                "its reader waits, but not for a CPU",
                "makes what is lost cheap, and keeps it from harming others; the reader reads no faster for that",
            ),
            Self::Bursts => (
                "packets come in bursts that its buffer is too small for: its reader keeps up between them",
                "nothing: a burst needs room",
            ),
            Self::New => ("its reader has just begun", CONTAINS),
            Self::Unseen => ("its reader cannot be seen", CONTAINS),
        }
    }
}

pub(super) fn sockets_full(reading: &Reading, losses: &Losses<'_>) -> Vec<Finding> {
    let mut found: Vec<Finding> = by_process(reading, &losses.full)
        .iter()
        .map(|(reader, socket)| socket_full(reading, *reader, socket))
        .collect();
    let best = reading.best();
    if losses.unseen_pps > 0.0 {
        found.push(Finding {
            cause: Cause::SocketFull,
            sureness: Sureness::Measured,
            what: format!(
                "UDP sockets that are not open any more, or cannot be seen, lose {} packets/s: their queues are full",
                count(losses.unseen_pps)
            ),
            whose: None,
            weir: Help::Contains,
            weir_does: hindered(reading, best, "makes what is lost cheap, and names the ports"),
            advice: vec![reading.try_weir(best)],
        });
    }
    found
}

/// A socket with a full queue for which weir discards at an interface, so that hardly a packet is lost at the socket:
/// whose it is, why its queue is full, and what helps. One whose reader cannot run first, then the fullest.
pub(super) fn discarded_for(
    reading: &Reading,
    interface: &InterfaceReading,
    listeners: bool,
) -> Option<(String, String, Vec<String>)> {
    let is_behind = |socket: &Losing<'_>| {
        let at = reading.best_for(&socket.local);
        !socket.by_loopback() && at.is_none_or(|at| at.name == interface.name)
    };
    let sockets = reading.sockets.iter().flatten().filter(|socket| socket.listener == listeners);
    let full = sockets
        .filter_map(|socket| Losing::of(vec![socket]))
        .filter(|socket| socket.fill() >= FULL && is_behind(socket));
    let first = full.max_by_key(|socket| (halted(&socket.owners).is_some(), socket.queued))?;
    let reader = reader(reading, &first);
    let why = if listeners {
        halted(&first.owners)?.words().0.replace("reads it", "accepts them")
    } else {
        reader.words().0.into()
    };
    // weir is there already.
    let weir = reading.try_weir(Some(interface));
    let advice = advice(reader, reading, &first).into_iter().filter(|each| *each != weir).collect();
    Some((first.whose.clone(), why, advice))
}

/// Why none of these runs, if one of them cannot. One that is stopped and continued all the time, as by `cpulimit`, runs.
fn halted(owners: &[OwnerReading]) -> Option<Reader> {
    let runs = owners.iter().any(|owner| owner.ran.is_some_and(|ran| ran >= ASLEEP));
    if runs {
        None
    } else if owners.iter().any(|owner| owner.frozen.is_some()) {
        Some(Reader::Frozen)
    } else if owners.iter().any(|owner| owner.held_by.is_some()) {
        Some(Reader::Held)
    } else {
        owners.iter().any(|owner| owner.stopped).then_some(Reader::Stopped)
    }
}

/// What lets them run.
fn continued(owners: &[OwnerReading]) -> Vec<String> {
    let groups: BTreeSet<&str> =
        owners.iter().filter_map(|owner| owner.frozen.as_deref()).collect();
    if !groups.is_empty() {
        let groups = groups.into_iter().collect::<Vec<_>>().join(", ");
        return vec![format!(
            "thaw {groups}    (systemctl thaw UNIT, docker unpause ID, or as it was frozen)"
        )];
    }
    let held = |owner: &OwnerReading| {
        let by = owner.held_by.as_deref()?;
        Some(format!("continue pid {} in its debugger, {by}, or end that", owner.pid))
    };
    let held: Vec<String> = owners.iter().filter_map(held).collect();
    if !held.is_empty() {
        return held;
    }
    let stopped = owners.iter().filter(|owner| owner.stopped);
    let stopped: BTreeSet<String> = stopped.map(|owner| owner.pid.to_string()).collect();
    let pids: Vec<String> = stopped.into_iter().collect();
    vec![
        format!("sudo kill -CONT {}", pids.join(" ")),
        format!("sudo cat /proc/{}/stack    (ptrace_stop: a debugger holds it)", pids[0]),
    ]
}

/// Sockets that one process reads, and that lose for the same reason where weir would run at the same place, are one
/// finding; most first.
fn by_process<'a>(reading: &Reading, full: &[Losing<'a>]) -> Vec<(Reader, Losing<'a>)> {
    let mut groups: Vec<(_, Vec<&SocketReading>)> = Vec::new();
    for losing in full {
        let at = reading.best_for(&losing.local).map(|at| at.name.as_str());
        let pid = losing.owners.first().map(|owner| owner.pid);
        // Of those that are not seen, nobody knows whether they are one's.
        let unseen = pid.is_none().then_some(losing.local.as_str());
        let key = (reader(reading, losing), pid, unseen, losing.by_loopback(), at);
        match groups.iter_mut().find(|(of, _)| *of == key) {
            Some((_, sockets)) => sockets.extend(&losing.sockets),
            None => groups.push((key, losing.sockets.clone())),
        }
    }
    let joined = groups
        .into_iter()
        .filter_map(|((reader, ..), sockets)| Some((reader, Losing::of(sockets)?)));
    let mut found: Vec<(Reader, Losing<'_>)> = joined.collect();
    found.sort_by(|(_, one), (_, other)| other.drop_pps.total_cmp(&one.drop_pps));
    found
}

fn reader(reading: &Reading, socket: &Losing<'_>) -> Reader {
    if let Some(halted) = halted(&socket.owners) {
        return halted;
    }
    let total = |of: fn(&OwnerReading) -> Option<f64>| {
        socket.owners.iter().filter_map(of).max_by(f64::total_cmp)
    };
    let (Some(ran), Some(waited)) = (total(|owner| owner.ran), total(|owner| owner.waited)) else {
        return if socket.owners.is_empty() { Reader::Unseen } else { Reader::New };
    };
    let starved = reading.starved();
    let on_starved = |owner: &OwnerReading| starved.iter().any(|cpu| Some(cpu.cpu) == owner.cpu);
    // A thread that is held back by its group's quota waits (`run_delay`) while nobody has its CPU.
    let on_idle = |owner: &OwnerReading| {
        let idle =
            reading.cpus.iter().find(|cpu| Some(cpu.cpu) == owner.cpu).map_or(0.0, |cpu| cpu.idle);
        owner.waited.unwrap_or(0.0) >= KEPT_WAITING
            && owner.waited.unwrap_or(0.0) + idle > 1.0 + SKEW
    };
    // Receiving has taken most of the time for which it waited.
    let for_input = |owner: &OwnerReading| {
        let cpu = reading.cpus.iter().find(|cpu| Some(cpu.cpu) == owner.cpu);
        let receives = cpu.map_or(0.0, |cpu| cpu.softirq + cpu.napi_threads);
        owner.waited.is_some_and(|waited| waited >= KEPT_WAITING && receives >= waited / 2.0)
    };
    if socket.owners.iter().any(on_idle) {
        Reader::HeldBack
    } else if socket.owners.iter().any(for_input)
        || (ran >= ASLEEP && socket.owners.iter().any(on_starved))
    {
        Reader::KeptWaiting
    } else if waited >= KEPT_WAITING {
        Reader::Crowded
    } else if ran >= AT_LIMIT && socket.fill() >= AT_LIMIT_FILL {
        Reader::AtLimit
    } else if socket.fill() >= FULL {
        match ran {
            0.0 => Reader::Asleep,
            ..ASLEEP => Reader::Drowsy,
            _ => Reader::HeldUp,
        }
    } else {
        Reader::Bursts
    }
}

fn socket_full(reading: &Reading, reader: Reader, socket: &Losing<'_>) -> Finding {
    let at = reading.best_for(&socket.local);
    let (why, does) = reader.words();
    let (weir, weir_does) = match (reader, reading.passes(at)) {
        _ if socket.by_loopback() => {
            (Help::None, "nothing: this comes by loopback, which weir does not protect".into())
        }
        (Reader::Bursts, _) => (Help::None, does.into()),
        (_, Some(passes)) => (Help::None, passes),
        (Reader::KeptWaiting, None) => (reading.cures(at), hindered(reading, at, does)),
        _ => (Help::Contains, hindered(reading, at, does)),
    };
    let is_one = socket.sockets.len() == 1;
    Finding {
        cause: Cause::SocketFull,
        sureness: match reader {
            Reader::New | Reader::Unseen => Sureness::Possible,
            _ => Sureness::Likely,
        },
        what: format!(
            "{} {} packets/s: {} of {} KiB is full, as {why}",
            if is_one { "A UDP socket loses" } else { "UDP sockets lose" },
            count(socket.drop_pps),
            if is_one { "its queue" } else { "each queue" },
            socket.buffer().div_ceil(1024)
        ),
        whose: Some(socket.whose.clone()),
        weir,
        weir_does,
        advice: advice(reader, reading, socket),
    }
}

fn advice(reader: Reader, reading: &Reading, socket: &Losing<'_>) -> Vec<String> {
    let weir = (!socket.by_loopback()).then(|| reading.try_weir(reading.best_for(&socket.local)));
    let advice = match reader {
        Reader::Crowded => OWN_CPU.into(),
        Reader::KeptWaiting => weir.unwrap_or_else(|| OWN_CPU.into()),
        Reader::Stopped | Reader::Held | Reader::Frozen => return continued(&socket.owners),
        Reader::HeldBack => {
            "a larger quota for the reader's control group (systemd: CPUQuota=, docker: --cpus)"
                .into()
        }
        Reader::AtLimit => {
            let readers =
                "more readers: one socket for each CPU with SO_REUSEPORT, and recvmmsg(2)";
            return once(readers.into()).chain(weir).collect();
        }
        Reader::Asleep | Reader::Drowsy | Reader::HeldUp => {
            let pid = socket.owners.first().map_or("PID".into(), |owner| owner.pid.to_string());
            format!("sudo cat /proc/{pid}/stack    (what it waits for)")
        }
        // SO_RCVBUF is doubled by the kernel, which is what it tells.
        Reader::Bursts => format!(
            "a larger SO_RCVBUF in the program{}",
            raised("rmem_max", reading.rmem_max, (socket.buffer() * 2).next_power_of_two())
        ),
        Reader::New => "weir doctor again".into(),
        Reader::Unseen if reading.unseen.iter().any(|each| each.starts_with(OWNERS)) => {
            "sudo weir doctor    (to see whose it is)".into()
        }
        Reader::Unseen => {
            "find its holder: the kernel, io_uring or a process of another PID namespace".into()
        }
    };
    vec![advice]
}

/// The command that raises a limit of `net.core`, if that is lower: what else is bound by it is not to lose by this.
fn raised(name: &str, now: Option<u64>, wanted: u64) -> String {
    match now {
        Some(now) if now < wanted => format!(", and: sudo sysctl -w net.core.{name}={wanted}"),
        _ => String::new(),
    }
}

pub(super) fn accept_queues_full(reading: &Reading) -> Vec<Finding> {
    let losses = Losses::of_tcp(reading);
    let finding = |what: String, whose: Option<String>, advice: Vec<String>| Finding {
        cause: Cause::AcceptQueueFull,
        sureness: Sureness::Measured,
        what,
        whose,
        weir: Help::Contains,
        weir_does: hindered(
            reading,
            reading.best(),
            "discards requests early where the queue has no room; it accepts none",
        ),
        advice,
    };
    let advice = |limit: u64| {
        vec![format!(
            "find out why the program does not accept; for bursts, a larger backlog in it{}",
            raised("somaxconn", reading.somaxconn, (limit * 2).max(4096))
        )]
    };
    let of_listener = |listener: &Losing<'_>| {
        let (why, advice) = match halted(&listener.owners) {
            Some(halted) => {
                let why = halted.words().0.replace("reads it", "accepts them");
                (format!(", as {why}"), continued(&listener.owners))
            }
            None => (String::new(), advice(listener.limit)),
        };
        let what = format!(
            "A listener's accept queue overflows: {} connections/s are turned away, and {} connections wait in it \
             now{why}",
            count(listener.drop_pps),
            listener.queued
        );
        finding(what, Some(listener.whose.clone()), advice)
    };
    let mut found: Vec<Finding> = losses.full.iter().map(of_listener).collect();
    if losses.unseen_pps > 0.0 {
        let what = format!(
            "Accept queues overflow: {} connections/s are turned away by listeners that are not open any more, or \
             cannot be seen",
            count(losses.unseen_pps)
        );
        found.push(finding(what, None, advice(0)));
    }
    found
}
