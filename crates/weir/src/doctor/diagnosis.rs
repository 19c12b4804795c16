//! What a reading means: a function of numbers, without a look at anything.

use indicatif::HumanCount;
use serde::Serialize;
use weir_policy::Settings;

use super::reading::{CpuReading, InterfaceReading, OwnerReading, Reading, SocketReading};

/// What remains to processes on a CPU beyond this is less than half of what weir leaves them by default.
const MOST: f64 = 0.75;
/// Nothing of a CPU is left to give.
const EXHAUSTED: f64 = 0.05;
/// Fewer packets than this cannot take half a CPU: none costs the kernel more than 100 microseconds.
const BUSY_PPS: f64 = 5_000.0;
/// A thread that runs for more of the time than this is at the limit of one CPU.
const AT_LIMIT: f64 = 0.9;
/// A thread that ran for less of the time than this does not read.
const ASLEEP: f64 = 0.005;
/// A thread that wanted to run for longer than this and did not is kept from its work by others.
const KEPT_WAITING: f64 = 0.25;
/// Cookies, or requests dropped, of which there are fewer are a burst.
const SYNS_PER_SEC: f64 = 10.0;
/// A queue that is fuller than this has no room for a packet of the usual size.
const FULL: f64 = 0.9;

/// What is wrong, and what else its reader should know.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Diagnosis {
    /// The sum of it.
    pub verdict: Verdict,
    /// What is wrong, worst first.
    pub findings: Vec<Finding>,
    /// What is not wrong and bears on what weir would do.
    pub notes: Vec<String>,
    /// What could not be seen.
    pub unseen: Vec<String>,
}

/// Whether something is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Nothing was lost, and receiving leaves time for everything else.
    Well,
    /// There is a finding.
    Wrong,
    /// Something that would show was not seen.
    Unknown,
}

/// What can be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// UDP's memory is used up.
    UdpMemory,
    /// Connection requests come faster than a listener can remember them.
    SynFlood,
    /// Receive processing takes the time that processes need.
    Livelock,
    /// A UDP socket's queue is full.
    SocketFull,
    /// A listener's accept queue is full.
    AcceptQueueFull,
    /// The NIC's ring is full.
    RingFull,
    /// A CPU's backlog is full.
    BacklogFull,
    /// One CPU receives for all.
    OneCpuReceives,
}

/// How sure a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Sureness {
    /// The kernel counts it.
    Measured,
    /// What was measured has hardly another explanation.
    Likely,
    /// One explanation of several.
    Possible,
}

/// Whether weir helps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Help {
    /// It ends what was found.
    Cures,
    /// It makes it cheaper, or keeps others from harm.
    Contains,
    /// It does nothing about it.
    None,
}

/// Something that is wrong.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    /// What it is.
    pub cause: Cause,
    /// How sure that is.
    pub sureness: Sureness,
    /// The same for a person, with the figures.
    pub what: String,
    /// Whose it is: a socket and its process, an interface, a CPU.
    pub whose: Option<String>,
    /// Whether weir helps...
    pub weir: Help,
    /// ...and how, or why not.
    pub weir_does: String,
    /// What to do: commands, and changes to programs.
    pub advice: Vec<String>,
}

impl Diagnosis {
    /// What a reading means.
    pub fn of(reading: &Reading) -> Self {
        let mut findings: Vec<Finding> = Vec::new();
        findings.extend(udp_memory(reading));
        findings.extend(syn_flood(reading));
        findings.extend(livelock(reading));
        findings.extend(sockets_full(reading));
        findings.extend(accept_queues_full(reading));
        findings.extend(reading.interfaces.iter().filter_map(ring_full));
        findings.extend(backlog_full(reading));
        findings.extend(one_cpu_receives(reading));
        let seen = !reading.cpus.is_empty() && reading.udp.is_some() && reading.tcp.is_some();
        let verdict = match (findings.is_empty(), seen && reading.sockets.is_some()) {
            (false, _) => Verdict::Wrong,
            (true, true) => Verdict::Well,
            (true, false) => Verdict::Unknown,
        };
        Self { verdict, findings, notes: notes(reading), unseen: reading.unseen.clone() }
    }
}

impl Reading {
    /// What comes in by all interfaces.
    pub fn receive_pps(&self) -> f64 {
        self.interfaces.iter().map(|each| each.receive_pps).sum()
    }

    fn busiest(&self) -> Option<&InterfaceReading> {
        self.interfaces.iter().max_by(|one, other| one.receive_pps.total_cmp(&other.receive_pps))
    }

    /// Packets that were lost here after the NIC had them.
    fn drop_pps(&self) -> f64 {
        let udp = self.udp.as_ref().map_or(0.0, |udp| udp.queue_full_pps + udp.memory_pps);
        let tcp =
            self.tcp.as_ref().map_or(0.0, |tcp| tcp.request_drops_per_sec + tcp.cookies_per_sec);
        udp + tcp + self.cpus.iter().map(|cpu| cpu.backlog_drop_pps).sum::<f64>()
    }

    /// The CPUs on which softirqs leave processes less than weir would.
    fn starved(&self) -> Vec<&CpuReading> {
        let usual = Settings::default().user_share.rest();
        let too_much = if self.drop_pps() > 0.0 { usual } else { MOST };
        let starved = |cpu: &&CpuReading| cpu.idle < EXHAUSTED && cpu.softirq >= too_much;
        self.cpus.iter().filter(starved).collect()
    }

    /// The first step with weir, on the interface that receives most.
    fn try_weir(&self) -> String {
        match self.busiest() {
            Some(interface) if self.protected.contains(&interface.name) => {
                format!("weir protects {0} already: sudo weir channels {0}", interface.name)
            }
            Some(interface) if interface.ethernet => {
                format!("sudo weir run {} --policy shadow, then without it", interface.name)
            }
            _ => "sudo weir run IFACE --policy shadow".into(),
        }
    }

    /// Why weir's gate would discard nothing on the interface that receives most.
    fn hindrance(&self) -> Option<String> {
        let interface = self.busiest()?;
        if !interface.ethernet {
            let name = &interface.name;
            return Some(format!("{name} has no Ethernet address, and weir does not run on it"));
        }
        let diversion = interface.diversions.iter().flatten().find(|each| each.passes_all)?;
        Some(format!(
            "on {} {} ({}), so weir would discard nothing early there",
            interface.name, diversion.description, diversion.detail
        ))
    }
}

/// Datagrams that sockets lost and that neither counter of UDP's has. Linux 6.18 drops for want of memory without
/// counting that anywhere but at the socket.
fn uncounted_pps(reading: &Reading) -> f64 {
    let lost: f64 = losing(reading).iter().map(|socket| socket.drop_pps).sum();
    let counted = reading
        .udp
        .as_ref()
        .map_or(0.0, |udp| udp.queue_full_pps + udp.memory_pps + udp.checksum_pps);
    // Sockets and counters are not read in the same instant.
    if lost - counted > lost / 2.0 { lost - counted } else { 0.0 }
}

fn udp_memory(reading: &Reading) -> Option<Finding> {
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

fn syn_flood(reading: &Reading) -> Option<Finding> {
    let tcp = reading.tcp.as_ref()?;
    let (cookies, dropped) = (tcp.cookies_per_sec, tcp.request_drops_per_sec);
    if cookies + dropped < SYNS_PER_SEC {
        return None;
    }
    let listeners = reading.sockets.iter().flatten().filter(|socket| socket.listener);
    let flooded =
        listeners.max_by_key(|socket| socket.half_open).filter(|socket| socket.half_open > 0);
    let handled = if cookies >= dropped {
        format!("{}/s are answered with SYN cookies", count(cookies))
    } else {
        format!("{}/s are dropped, real ones among them, as SYN cookies are off", count(dropped))
    };
    let mut advice = vec![reading.try_weir()];
    if dropped > cookies {
        advice.insert(0, "sudo sysctl -w net.ipv4.tcp_syncookies=1".into());
    }
    Some(Finding {
        cause: Cause::SynFlood,
        sureness: Sureness::Measured,
        what: format!(
            "Connection requests come faster than their listener can remember them: {handled}"
        ),
        whose: flooded.map(socket_of),
        weir: Help::Contains,
        weir_does: hindered(
            reading,
            "holds connection requests to a share of the CPU, so that other services keep theirs; among the requests \
             of one listener it cannot tell real ones",
        ),
        advice,
    })
}

fn livelock(reading: &Reading) -> Option<Finding> {
    let starved = reading.starved();
    let first = starved.iter().max_by(|one, other| one.softirq.total_cmp(&other.softirq))?;
    if reading.receive_pps() < BUSY_PPS {
        return None;
    }
    let interface = reading.busiest()?;
    let cpus: Vec<String> = starved.iter().map(|cpu| cpu.cpu.to_string()).collect();
    let victim = worst_socket(reading);
    let lost = match &victim {
        Some(socket) => {
            format!("; {} packets/s are dropped after that work is done", count(socket.drop_pps))
        }
        None => String::new(),
    };
    Some(Finding {
        cause: Cause::Livelock,
        sureness: if first.packets_pps >= BUSY_PPS { Sureness::Measured } else { Sureness::Likely },
        what: format!(
            "Receiving takes the time that processes need: {} of CPU {} is softirqs, for {} packets/s by {}{lost}",
            percent(first.softirq),
            cpus.join(", "),
            count(interface.receive_pps),
            interface.name
        ),
        whose: victim.as_ref().map(|socket| socket.whose.clone()),
        weir: if reading.hindrance().is_some() { Help::Contains } else { Help::Cures },
        weir_does: hindered(
            reading,
            "has threads poll the interface, keeps half of each CPU for processes that want it, and discards early \
             what no socket has room for",
        ),
        advice: vec![reading.try_weir()],
    })
}

/// Sockets of one port and address, as readers of `SO_REUSEPORT` have them.
struct Losing {
    whose: String,
    drop_pps: f64,
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

fn worst_socket(reading: &Reading) -> Option<Losing> {
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
    /// It reads, has time to spare, and loses what comes at once.
    Bursts,
    /// It cannot be seen.
    Unseen,
}

fn sockets_full(reading: &Reading) -> Vec<Finding> {
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
    } else if ran < ASLEEP && full {
        Reader::Asleep
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
        Reader::Asleep => {
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

fn accept_queues_full(reading: &Reading) -> Vec<Finding> {
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

fn ring_full(interface: &InterfaceReading) -> Option<Finding> {
    (interface.ring_drop_pps >= 1.0).then(|| Finding {
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

fn backlog_full(reading: &Reading) -> Option<Finding> {
    let worst = reading
        .cpus
        .iter()
        .max_by(|one, other| one.backlog_drop_pps.total_cmp(&other.backlog_drop_pps))?;
    // The counters are of all network namespaces.
    let steered = reading.interfaces.iter().find(|each| !each.steered.is_empty());
    let here = steered.is_some() || reading.receive_pps() >= BUSY_PPS;
    (worst.backlog_drop_pps >= 1.0 && here).then(|| Finding {
        cause: Cause::BacklogFull,
        sureness: Sureness::Measured,
        what: format!(
            "CPU {} cannot keep up with what is steered to it: {} packets/s find its backlog full",
            worst.cpu,
            count(worst.backlog_drop_pps)
        ),
        whose: steered
            .map(|each| format!("RPS is on for {} of {}", each.steered.join(", "), each.name)),
        weir: Help::Contains,
        weir_does:
            "with `--rps-off`, has threads do this work, where it is weighed against processes"
                .into(),
        advice: vec![match steered {
            Some(each) => format!("sudo weir run {} --rps-off", each.name),
            None => "a larger net.core.netdev_max_backlog for bursts; more CPUs for a flood".into(),
        }],
    })
}

fn one_cpu_receives(reading: &Reading) -> Option<Finding> {
    let receives = |cpu: &CpuReading| cpu.softirq + cpu.napi_threads;
    let is_full = |cpu: &&CpuReading| receives(cpu) >= MOST && cpu.idle < EXHAUSTED;
    let [one] = reading.cpus.iter().filter(is_full).collect::<Vec<_>>()[..] else { return None };
    let interface = reading.busiest().filter(|each| each.receive_pps >= BUSY_PPS)?;
    let others: Vec<&CpuReading> = reading.cpus.iter().filter(|cpu| cpu.cpu != one.cpu).collect();
    let mean = |of: &dyn Fn(&CpuReading) -> f64| {
        others.iter().map(|cpu| of(cpu)).sum::<f64>() / others.len() as f64
    };
    let queues = interface.queues.filter(|queues| (*queues as usize) < reading.cpus.len())?;
    if others.is_empty() || !interface.steered.is_empty() || mean(&receives) >= 1.0 - MOST {
        return None;
    }
    let cpus = reading.cpus.len() as u32;
    let wanted = interface.queues_max.unwrap_or(0).min(cpus);
    let name = &interface.name;
    let advice = if wanted > queues {
        format!(
            "sudo ethtool -L {name} combined {wanted}    (where queues are counted apart: rx {wanted} tx {wanted})"
        )
    } else {
        let mask = reading.cpus.iter().filter(|cpu| cpu.cpu != one.cpu && cpu.cpu < 32);
        let mask = mask.fold(0u32, |mask, cpu| mask | 1 << cpu.cpu);
        format!(
            "echo {mask:x} | sudo tee /sys/class/net/{name}/queues/rx-*/rps_cpus    (RPS, as it has no more queues)"
        )
    };
    Some(Finding {
        cause: Cause::OneCpuReceives,
        sureness: if mean(&|cpu| cpu.idle) >= 1.0 - MOST {
            Sureness::Likely
        } else {
            Sureness::Possible
        },
        what: format!(
            "One CPU receives for all: CPU {} spends {} of its time on it, the other {} hardly any; {name} has {queues} \
             receive queue{}",
            one.cpu,
            percent(receives(one)),
            others.len(),
            if queues == 1 { "" } else { "s" }
        ),
        whose: Some(name.clone()),
        weir: Help::None,
        weir_does: "nothing: it weighs receive work against processes, and does not spread it"
            .into(),
        advice: vec![advice],
    })
}

/// What weir does, unless something on the interface keeps it from that.
fn hindered(reading: &Reading, does: &str) -> String {
    match reading.hindrance() {
        None => does.into(),
        Some(hindrance) => format!("{does}; but {hindrance}"),
    }
}

fn notes(reading: &Reading) -> Vec<String> {
    let mut notes = Vec::new();
    if uncounted_pps(reading) > 0.0 && udp_memory(reading).is_none() {
        notes.extend(worst_socket(reading).map(|socket| {
            format!(
                "{} loses {} packets/s, and not for want of room: a filter of its own or IPsec's policy refuses them",
                socket.whose,
                count(socket.drop_pps)
            )
        }));
    }
    if !reading.protected.is_empty() {
        notes.push(format!(
            "weir protects {}: `weir status` and `sudo weir channels` show what it does",
            reading.protected.join(", ")
        ));
    }
    notes.extend(reading.hindrance());
    let of_interface = |name: &String, text: &str| format!("{name}: {text}");
    for interface in reading.interfaces.iter().take(1) {
        let name = &interface.name;
        notes.extend(interface.xdp.as_ref().map(|xdp| {
            of_interface(
                name,
                &format!(
                    "another XDP program is attached, {xdp}; weir runs beside it with `--attach tc`"
                ),
            )
        }));
        notes.extend(interface.native_cost.as_ref().map(|cost| {
            of_interface(
                name,
                &format!("{cost}, so weir's gate goes to tc, where a discard costs more"),
            )
        }));
        if !interface.steered.is_empty() {
            notes.push(of_interface(
                name,
                "RPS hands packets on to softirqs, which nothing weighs; weir has `--rps-off`",
            ));
        }
    }
    let usual = Settings::default().user_share.rest();
    for cpu in
        reading.cpus.iter().filter(|cpu| cpu.softirq >= usual && reading.receive_pps() < BUSY_PPS)
    {
        notes.push(format!(
            "CPU {} spends {} of its time in softirqs, and not for this network namespace's interfaces",
            cpu.cpu,
            percent(cpu.softirq)
        ));
    }
    let squeezed: f64 = reading.cpus.iter().map(|cpu| cpu.squeezed_per_sec).sum();
    if squeezed >= 1.0 && reading.receive_pps() >= BUSY_PPS {
        notes.push(format!(
            "receive processing is cut off {}/s with packets left (time_squeeze): a larger net.core.netdev_budget would \
             take more from processes, not lose less",
            count(squeezed)
        ));
    }
    for neighbour in &reading.neighbours {
        notes.push(match neighbour.as_str() {
            "bpftune" => "bpftune runs: it raises net.core.netdev_budget when receiving falls behind, which leaves \
                          processes less"
                .into(),
            _ => format!("{neighbour} runs: it may move interrupts, so a CPU that receives now may not later"),
        });
    }
    notes.extend(reading.lacks.iter().map(|lack| format!("this kernel lacks {lack}")));
    notes
}

/// `123,456`.
fn count(rate: f64) -> HumanCount {
    HumanCount(rate.round() as u64)
}

fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// `udp 198.18.0.1:53, named (pid 812, named.service)`.
fn socket_of(socket: &SocketReading) -> String {
    let protocol = if socket.listener { "tcp" } else { "udp" };
    let local = &socket.local;
    let Some(owner) = socket.owners.first() else {
        return format!("{protocol} {local}, whose process is not seen");
    };
    let place = owner.place.iter().map(|place| format!(", {place}"));
    let others = match socket.owners.len() - 1 {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!(
        "{protocol} {local}, {} (pid {}{}){others}",
        owner.comm,
        owner.pid,
        place.collect::<String>()
    )
}
