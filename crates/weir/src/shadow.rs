//! What a gate in shadow would have discarded, whose it was, and who would have lost nothing.

use indicatif::HumanCount;
use weir_bpf::channels::{Channel, Channels, Seen};
use weir_bpf::counters::Counters;
use weir_bpf::gate::Gate;
use weir_bpf::units::IfIndex;
use weir_bpf::verdict::Verdict;

use crate::channel_name::Namer;
use crate::host::Host;
use crate::owners::{Owners, Ownership};

/// Channels that are named one by one; the rest is counted.
const NAMED_MAX: usize = 5;

/// The closing lines. The kernel has dropped `late_dropped` UDP packets at sockets itself meanwhile.
pub fn would_have(
    gate: &Gate,
    counters: &Counters,
    host: &Host,
    ifindex: IfIndex,
    late_dropped: u64,
) -> Vec<String> {
    let Ok(channels) = gate.channels() else { return Vec::new() };
    let (mut losing, others): (Vec<_>, Vec<_>) =
        channels.by_channel.iter().partition(|(_, seen)| seen.discarded.packets > 0);
    losing.sort_by_key(|(_, seen)| std::cmp::Reverse(seen.discarded.packets));
    let namer = Namer::new(&host.links).ok();
    let owned = Owners::open().and_then(|mut owners| owners.look()).ok();
    let name = |channel: &Channel| match &namer {
        Some(namer) => namer.name(channel).name,
        None => channel.kind.name().into(),
    };
    let mut lines: Vec<String> = losing
        .iter()
        .take(NAMED_MAX)
        .map(|(channel, seen)| {
            let owner = owned.as_ref().and_then(|owned| owner(owned, channel, ifindex));
            format!("{}{} would have lost {}", name(channel), owner.unwrap_or_default(), lost(seen))
        })
        .collect();
    if losing.len() > NAMED_MAX {
        lines.push(format!("{} more channels would have lost packets", losing.len() - NAMED_MAX));
    }
    lines.extend(not_listed(&channels, counters));
    let packets: u64 = others.iter().map(|(_, seen)| seen.packets()).sum();
    lines.push(format!(
        "no packet of the {} {} would have been lost ({} packets); the kernel dropped {} UDP packets of all interfaces \
         itself, after it had processed them",
        others.len(),
        if losing.is_empty() { "channels" } else { "other channels" },
        HumanCount(packets),
        HumanCount(late_dropped)
    ));
    lines
}

/// What would have been lost besides: channels beyond the table's room, those deleted since they had gone quiet, and
/// kinds that have no addresses.
fn not_listed(channels: &Channels, counters: &Counters) -> Option<String> {
    let listed: u64 = channels.by_channel.values().map(|seen| seen.discarded.packets).sum();
    let packets = counters.verdict(Verdict::Discard).packets.saturating_sub(listed);
    (packets > 0).then(|| {
        format!(
            "{} more packets would have been lost, of channels that were not counted one by one",
            HumanCount(packets)
        )
    })
}

fn owner(owned: &Ownership, channel: &Channel, ifindex: IfIndex) -> Option<String> {
    let processes = owned.of(channel, ifindex)?.processes();
    let first = processes.first()?;
    let place = first.place().map(|place| format!(", {place}")).unwrap_or_default();
    Some(format!(" of {} (pid {}{place})", first.comm, first.pid))
}

fn lost(seen: &Seen) -> String {
    let share = seen.discarded.packets as f64 / seen.packets().max(1) as f64;
    format!(
        "{} of its {} packets ({:.1}%)",
        HumanCount(seen.discarded.packets),
        HumanCount(seen.packets()),
        share * 100.0
    )
}

#[cfg(test)]
mod tests {
    use weir_bpf::counters::Counter;
    use weir_bpf::verdict::{Kind, Reason};

    use super::*;

    #[test]
    fn what_no_channel_of_its_own_has_is_told() {
        let mut counters = Counters::default();
        let mut channels = Channels::default();
        counters.count(Reason::UdpFull, 60);
        counters.count(Reason::UdpRoom, 60);
        let discarded = Counter { packets: 1, bytes: 60 };
        let seen = Seen { discarded, ..Seen::default() };
        channels.by_channel.insert(Channel::of_kind(Kind::Udp), seen);
        assert_eq!(not_listed(&channels, &counters), None);
        channels.overflow = seen;
        counters.count(Reason::UdpFull, 60);
        counters.count(Reason::FragmentDiscarded, 60);
        let told = not_listed(&channels, &counters).unwrap();
        assert!(told.starts_with("2 more packets would have been lost"), "{told}");
    }
}
