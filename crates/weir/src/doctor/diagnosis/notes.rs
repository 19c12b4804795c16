//! What is not wrong, and worth knowing.

use weir_policy::Settings;

use super::super::reading::Reading;
use super::finding::{BUSY_PPS, Cause, Finding};
use super::sockets::Losses;
use super::words::{count, percent};

pub(super) fn notes(reading: &Reading, losses: &Losses, findings: &[Finding]) -> Vec<String> {
    let mut notes = Vec::new();
    let of_memory = findings.iter().any(|finding| finding.cause == Cause::UdpMemory);
    if let (false, Some(socket), Some(udp)) = (of_memory, losses.refused.first(), &reading.udp) {
        let why = match losses.is_most(udp.checksum_pps) {
            true => "their checksums are wrong",
            false => "a filter of its own or IPsec's policy refuses them",
        };
        notes.push(format!(
            "{} loses {} packets/s, and not for want of room: {why}",
            socket.whose,
            count(socket.drop_pps)
        ));
    }
    let of_requests = findings.iter().any(|finding| finding.cause == Cause::SynFlood);
    if let (false, Some(listener)) = (of_requests, Losses::of_tcp(reading).refused.first()) {
        notes.push(format!(
            "{} turns away {} connection requests/s, and not as its accept queue is full",
            listener.whose,
            count(listener.drop_pps)
        ));
    }
    if !reading.protected.is_empty() {
        notes.push(format!(
            "weir protects {}: `weir status` and `sudo weir channels` show what it does",
            reading.protected.join(", ")
        ));
    }
    notes.extend(reading.hindrance(reading.best()));
    let of_interface = |name: &String, text: &str| format!("{name}: {text}");
    if let Some(interface) = reading.best() {
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
    }
    // Where packets come in, and steering is set.
    if let Some(interface) = reading.busiest().filter(|each| !each.steered.is_empty()) {
        notes.push(of_interface(
            &interface.name,
            "RPS hands packets on to softirqs, which nothing weighs; weir has `--rps-off`",
        ));
    }
    let usual = Settings::default().user_share.rest();
    for cpu in
        reading.cpus.iter().filter(|cpu| cpu.softirq >= usual && reading.receive_pps() < BUSY_PPS)
    {
        let whose = match reading.loopback_pps >= BUSY_PPS {
            true => "mostly for what this host sends to itself (lo), which weir does not protect",
            false => "and not for this network namespace's interfaces",
        };
        notes.push(format!(
            "CPU {} spends {} of its time in softirqs, {whose}",
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
