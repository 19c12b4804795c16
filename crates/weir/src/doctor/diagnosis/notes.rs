//! What is not wrong, and worth knowing.

use weir_policy::Settings;

use super::super::reading::{InterfaceReading, Reading};
use super::finding::{BUSY_PPS, Cause, Finding};
use super::sockets::Losses;
use super::words::{count, percent};
use crate::status::{DiversionStatus, LEFT_TURNED};

pub(super) fn notes(reading: &Reading, losses: &Losses<'_>, findings: &[Finding]) -> Vec<String> {
    let is_found = |cause| findings.iter().any(|finding| finding.cause == cause);
    let best = reading.best();
    let of_one = [
        refused_datagrams(reading, losses).filter(|_| !is_found(Cause::UdpMemory)),
        wrong_checksums(reading, losses),
        refused_requests(reading).filter(|_| !is_found(Cause::SynFlood)),
        protected(reading),
        reading.hindrance(best),
        best.and_then(translated_ports),
        best.and_then(other_xdp),
        best.filter(|each| !reading.protected.contains(&each.name)).and_then(native_cost),
        steered(reading),
    ];
    let lacks = reading.lacks.iter().map(|lack| format!("this kernel lacks {lack}"));
    let leftovers = reading.leftovers.iter().map(|name| left_turned(name));
    leftovers
        .chain(of_one.into_iter().flatten())
        .chain(softirqs(reading))
        .chain(squeezed(reading))
        .chain(reading.neighbours.iter().map(|name| neighbour(name)))
        .chain(lacks)
        .collect()
}

fn refused_datagrams(reading: &Reading, losses: &Losses<'_>) -> Option<String> {
    let (socket, udp) = losses.refused.first().zip(reading.udp.as_ref())?;
    let why = match losses.is_most(udp.checksum_pps) {
        true => "their checksums are wrong",
        false => {
            "a filter of its own, a program of its control group (IPAddressDeny=) or IPsec's policy refuses them"
        }
    };
    let (whose, rate) = (&socket.whose, count(socket.drop_pps));
    Some(format!("{whose} loses {rate} packets/s, but not for lack of room: {why}"))
}

/// Short datagrams and segments are checked before there is a socket, which then counts nothing.
fn wrong_checksums(reading: &Reading, losses: &Losses<'_>) -> Option<String> {
    let udp = reading.udp.as_ref().map_or(0.0, |udp| udp.checksum_pps);
    // Then its socket is told.
    let is_told = !losses.refused.is_empty() && losses.is_most(udp);
    let tcp = reading.tcp.as_ref().map_or(0.0, |tcp| tcp.checksum_pps);
    let counts = [(udp, "datagrams", is_told), (tcp, "segments", false)];
    let told = counts.into_iter().filter(|(pps, _, told)| !told && reading.is_loss(*pps));
    let told: Vec<String> = told.map(|(pps, of, _)| format!("{} {of}/s", count(pps))).collect();
    (!told.is_empty()).then(|| format!("{} come with wrong checksums", told.join(" and ")))
}

/// What resets a handshake, as a load balancer that checks whether somebody listens, counts as a drop at the listener,
/// too, and was refused nothing.
fn refused_requests(reading: &Reading) -> Option<String> {
    let losses = Losses::of_tcp(reading);
    let listener = losses.refused.first()?;
    if losses.is_most(reading.tcp.as_ref().map_or(0.0, |tcp| tcp.handshake_resets_per_sec)) {
        return None;
    }
    Some(format!(
        "{} turns away {} connection requests/s, though its accept queue is not full",
        listener.whose,
        count(listener.drop_pps)
    ))
}

fn protected(reading: &Reading) -> Option<String> {
    let names = reading.protected.join(", ");
    (!names.is_empty()).then(|| {
        format!("weir protects {names}: `weir status` and `sudo weir channels` show what it does")
    })
}

fn left_turned(name: &str) -> String {
    format!("{name}: {LEFT_TURNED}")
}

/// What comes to these ports passes, so that weir does nothing against a flood of it.
fn translated_ports(interface: &InterfaceReading) -> Option<String> {
    let mut some = interface.diversions.iter().flatten().filter(|each| !each.ports.is_empty());
    let details: Vec<&str> = some.clone().map(|each| each.detail.as_str()).collect();
    let DiversionStatus { description, cost, .. } = some.next()?;
    let (name, details) = (&interface.name, details.join("; "));
    Some(format!("on {name} {description} ({details}): {cost}"))
}

fn other_xdp(interface: &InterfaceReading) -> Option<String> {
    let (name, xdp) = (&interface.name, interface.xdp.as_ref()?);
    Some(format!(
        "{name}: another XDP program is attached, {xdp}; weir runs beside it with `--attach tc`"
    ))
}

fn native_cost(interface: &InterfaceReading) -> Option<String> {
    let (name, cost) = (&interface.name, interface.native_cost.as_ref()?);
    Some(format!("{name}: {cost}, so weir's gate goes to tc, where a discard costs more"))
}

/// Where packets come in, and steering is set.
fn steered(reading: &Reading) -> Option<String> {
    let interface = reading.busiest().filter(|each| !each.steered.is_empty())?;
    Some(format!(
        "{}: RPS hands packets on to softirqs, which nothing weighs; weir has `--rps-off`",
        interface.name
    ))
}

/// CPUs that receive, though this namespace's interfaces hand over little.
fn softirqs(reading: &Reading) -> impl Iterator<Item = String> {
    let usual = Settings::default().user_share.rest();
    let is_quiet = reading.receive_pps() < BUSY_PPS;
    let busy = reading.cpus.iter().filter(move |cpu| is_quiet && cpu.softirq >= usual);
    let whose = match reading.loopback_pps >= BUSY_PPS {
        true => "mostly for what this host sends to itself (lo), which weir does not protect",
        false => "and not for this network namespace's interfaces",
    };
    busy.map(move |cpu| {
        format!("CPU {} spends {} of its time in softirqs, {whose}", cpu.cpu, percent(cpu.softirq))
    })
}

fn squeezed(reading: &Reading) -> Option<String> {
    let squeezed: f64 = reading.cpus.iter().map(|cpu| cpu.squeezed_per_sec).sum();
    (squeezed >= 1.0 && reading.receive_pps() >= BUSY_PPS).then(|| {
        format!(
            "receive processing is cut off {}/s with packets left (time_squeeze): a larger net.core.netdev_budget would \
             take more from processes, saving no packets",
            count(squeezed)
        )
    })
}

fn neighbour(name: &str) -> String {
    match name {
        "bpftune" => "bpftune runs: it raises net.core.netdev_budget when receiving falls behind, which leaves \
                      processes less"
            .into(),
        _ => format!("{name} runs: it may move interrupts, so a CPU that receives now may not later"),
    }
}
