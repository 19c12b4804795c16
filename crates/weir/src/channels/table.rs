//! Channels for a person, at most 100 columns wide.

use std::io::{self, Write};

use weir_bpf::gate::Policy;
use weir_bpf::verdict::Verdict;

use super::rows::{ChannelRow, CpuRow, Figures, InterfaceChannels, Report};
use super::sockets::{OwnerRow, SocketsRow};
use super::sources::SourcesRow;
use crate::owners::cut;

/// A channel's name; longer ones have a line of their own.
const NAME_COLUMNS: usize = 25;
/// Senders that are named one by one.
const SENDERS_MAX: usize = 8;
/// So many channels that have no socket any more, as of a resolver's queries, have one row together.
const FOLDED_FROM: usize = 16;
/// Of the line below a channel, which names its owner.
const OWNER_COLUMNS: usize = 94;
/// Of the part of it that is a unit's name: several lines of it say no more.
const PLACE_COLUMNS: usize = 48;
/// In the owner's place, where NAT may take packets past the sockets here.
const TRANSLATED: &str =
    "rules translate what comes to this port (NAT): it may go elsewhere, see `weir status`";

/// Writes a table for each interface.
pub fn write(out: &mut impl Write, report: &Report) -> io::Result<()> {
    for (number, interface) in report.interfaces.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        one_interface(out, interface)?;
    }
    Ok(())
}

fn one_interface(out: &mut impl Write, interface: &InterfaceChannels) -> io::Result<()> {
    writeln!(out, "{}", interface.interface)?;
    // In shadow nothing is discarded, and the columns are for what would be.
    let [discarded, per_second, done] = match interface.policy {
        Policy::Shadow => ["WOULD DISC", "WOULD/s", "would be discarded"],
        Policy::On | Policy::Off => ["DISCARDED", "DISC/s", "discarded"],
    };
    let titles = ["PASSED", discarded, "PASSED/s", per_second, "DELIV/s", "LATE", "QUEUE", "CPU"];
    line(out, "CHANNEL", &titles.map(str::to_owned))?;
    let past: Vec<&ChannelRow> = interface.channels.iter().filter(|each| is_past(each)).collect();
    let folded = past.len() >= FOLDED_FROM;
    for channel in interface.channels.iter().filter(|each| !(folded && is_past(each))) {
        one_channel(out, channel, done)?;
    }
    let together = Figures::together(past.iter().map(|each| &each.figures));
    if let Some(figures) = together.filter(|_| folded) {
        row(out, &format!("({} without a socket)", past.len()), &figures, None, None)?;
    }
    if interface.overflow.offered.packets > 0 {
        row(out, "(further channels, together)", &interface.overflow, None, None)?;
    }
    if interface.retired.channels > 0 {
        let name = format!("({} quiet channels, deleted)", interface.retired.channels);
        row(out, &name, &interface.retired.figures, None, None)?;
    }
    if interface.lazy.offered.packets > 0 {
        row(out, "(lazy sockets, together)", &interface.lazy, None, None)?;
    }
    row(out, "(all)", &interface.total, None, None)?;
    if interface.discards.len() > 1 {
        for discards in &interface.discards {
            writeln!(out, "    {} {done}: {}", discards.counter.packets, discards.reason)?;
        }
    }
    if interface.lazy.passed.packets > 0 {
        let verdict = Verdict::Deliver.name();
        writeln!(
            out,
            "  PASSED has what was put on lazy sockets' rings, in `weir status` the verdict {verdict}"
        )?;
    }
    if interface.overflow.offered.packets > 0 {
        writeln!(out, "  4,096 channels at least are counted one by one; further ones together")?;
    }
    Ok(())
}

/// Whether it has no socket any more, and nothing of it was discarded.
fn is_past(channel: &ChannelRow) -> bool {
    let Figures { discarded, would_discard, .. } = &channel.figures;
    let is_closed = |sockets: &SocketsRow| sockets.count == 0 && sockets.late_drops == 0;
    discarded.packets + would_discard.packets == 0
        && channel.sockets.as_ref().is_some_and(is_closed)
}

fn one_channel(out: &mut impl Write, channel: &ChannelRow, done: &str) -> io::Result<()> {
    row(out, &channel.name.name, &channel.figures, channel.sockets.as_ref(), channel.cpu)?;
    if channel.discards.len() > 1 {
        for discards in &channel.discards {
            writeln!(out, "    {} {done}: {}", discards.counter.packets, discards.reason)?;
        }
    }
    if channel.translated {
        writeln!(out, "    {TRANSLATED}")?;
    }
    if let Some(owner) = &channel.owner {
        let line = match &channel.sockets {
            Some(sockets) if sockets.count == 0 => "no socket now".into(),
            _ => owner_line(owner),
        };
        writeln!(out, "    {}", cut(&line, OWNER_COLUMNS))?;
    }
    channel.sources.iter().try_for_each(|sources| senders(out, sources))
}

/// A line for each of those who send most of what is discarded.
fn senders(out: &mut impl Write, sources: &SourcesRow) -> io::Result<()> {
    let part = |share: f64| format!("{:.1}%", share * 100.0);
    for sender in sources.senders.iter().take(SENDERS_MAX) {
        // The longest is an IPv6 network.
        let source = format!("{:<43}", sender.source);
        let rate = count(sender.discarded_pps.0.round() as u64);
        writeln!(out, "    from {source} {:>6} {rate:>10}/s", part(sender.share))?;
    }
    let more = sources.senders.iter().skip(SENDERS_MAX).map(|sender| sender.share);
    let rest = sources.others_share + more.sum::<f64>();
    if rest >= 0.001 {
        writeln!(out, "    {:<48} {:>6}", "from others", part(rest))?;
    }
    Ok(())
}

/// `nginx 4021 (www-data), nginx.service, and 3 more processes; weight 1024`
fn owner_line(owner: &OwnerRow) -> String {
    let Some(first) = owner.processes.first() else { return "no process has it open".into() };
    let user = first.user.clone().unwrap_or_else(|| first.uid.0.to_string());
    let place = first.place().map(|place| format!(", {}", cut(&place, PLACE_COLUMNS)));
    let more = match owner.processes.len() - 1 {
        0 => String::new(),
        1 => ", and 1 more process".into(),
        more => format!(", and {more} more processes"),
    };
    // A name of control characters is four times as long escaped.
    let comm = cut(&first.comm, 15);
    let place = place.unwrap_or_default();
    format!("{comm} {} ({}){place}{more}", first.pid, cut(&user, 16))
}

fn row(
    out: &mut impl Write,
    name: &str,
    figures: &Figures,
    sockets: Option<&SocketsRow>,
    cpu: Option<CpuRow>,
) -> io::Result<()> {
    let rates = figures.rates.as_ref();
    let rate = |pps: Option<f64>| pps.map_or_else(|| "-".into(), |pps| count(pps.round() as u64));
    let delivered = sockets.and_then(|sockets| sockets.delivered_pps);
    let columns = [
        count(figures.passed.packets),
        count(figures.discarded.packets + figures.would_discard.packets),
        rate(rates.map(|rates| rates.passed_pps.0)),
        rate(rates.map(|rates| rates.discarded_pps.0 + rates.would_discard_pps.0)),
        rate(delivered.map(|delivered| delivered.0)),
        sockets.map_or_else(|| "-".into(), |sockets| count(sockets.late_drops)),
        sockets.map_or_else(|| "-".into(), fill),
        cpu.and_then(|cpu| cpu.share).map_or_else(|| "-".into(), percent),
    ];
    line(out, name, &columns)
}

fn line(out: &mut impl Write, name: &str, columns: &[String; 8]) -> io::Result<()> {
    let name = if name.chars().count() > NAME_COLUMNS {
        writeln!(out, "  {name}")?;
        ""
    } else {
        name
    };
    let [passed, discarded, passed_pps, discarded_pps, delivered_pps, late, queue, cpu] = columns;
    write!(out, "  {name:<NAME_COLUMNS$} {passed:>11} {discarded:>11} {passed_pps:>8} ")?;
    writeln!(out, "{discarded_pps:>8} {delivered_pps:>8} {late:>8} {queue:>5} {cpu:>4}")
}

/// Of one CPU; several may receive.
fn percent(share: f64) -> String {
    format!("{:.0}%", (share * 100.0).min(9999.0))
}

/// How full a queue is. One may be over its limit: the kernel compares before it adds.
fn fill(sockets: &SocketsRow) -> String {
    let queue = &sockets.queue;
    if sockets.count == 0 || queue.limit == 0 {
        return "-".into();
    }
    format!("{:.0}%", (queue.used as f64 * 100.0 / queue.limit as f64).min(999.0))
}

/// Every digit, as long as eight are enough.
fn count(number: u64) -> String {
    const SCALES: [(u64, char); 4] = [
        (1_000_000_000_000_000, 'P'),
        (1_000_000_000_000, 'T'),
        (1_000_000_000, 'G'),
        (1_000_000, 'M'),
    ];
    if number < 100_000_000 {
        return number.to_string();
    }
    let (scale, unit) = SCALES.into_iter().find(|(scale, _)| number >= *scale).unwrap_or((1, ' '));
    format!("{:.2}{unit}", number as f64 / scale as f64)
}

#[cfg(test)]
mod tests {
    use weir_bpf::channels::Seen;
    use weir_bpf::counters::Counter;
    use weir_bpf::units::{IfIndex, PacketsPerSec};

    use super::*;
    use crate::channel_name::ChannelName;
    use crate::channels::rows::RetiredRow;
    use crate::channels::sockets::Queue;
    use crate::channels::sources::{Sender, Source};

    fn figures(packets: u64) -> Figures {
        let counter = Counter { packets, bytes: packets };
        Figures::of(
            Seen { passed: counter, discarded: counter, ..Seen::default() },
            Some(Seen::default()),
            1.0,
            Policy::On,
        )
    }

    fn sender(packets: u64) -> Sender {
        let source = "2001:1111:2222:3333:4444:5555:6666:7777".parse().unwrap();
        let discarded_pps = PacketsPerSec(packets as f64);
        Sender { source: Source::Address(source), share: 0.125, discarded_pps, samples: packets }
    }

    fn channel(name: &str, packets: u64) -> ChannelRow {
        ChannelRow {
            name: ChannelName {
                kind: "udp",
                name: name.into(),
                address: None,
                port: None,
                interface: None,
            },
            figures: figures(packets),
            discards: Vec::new(),
            cpu: Some(CpuRow { charged_ns: packets, share: Some(packets as f64), packet_ns: None }),
            translated: false,
            sockets: Some(SocketsRow {
                count: 1,
                queue: Queue { used: packets, limit: 4, unit: "bytes" },
                late_drops: packets,
                late_drops_pps: None,
                delivered_pps: Some(PacketsPerSec(packets as f64)),
            }),
            owner: Some(OwnerRow { weight: None, processes: Vec::new() }),
            sources: Some(SourcesRow {
                samples: packets,
                senders: (0..9).map(|_| sender(packets)).collect(),
                others_share: 0.0,
            }),
        }
    }

    fn printed(channels: Vec<ChannelRow>) -> String {
        let interface = InterfaceChannels {
            policy: Policy::On,
            interface: "near".into(),
            ifindex: IfIndex(1),
            interval_secs: None,
            channels,
            overflow: figures(u64::MAX / 4),
            retired: RetiredRow { channels: u64::MAX, figures: figures(u64::MAX / 4) },
            lazy: figures(2),
            total: figures(1),
            discards: Vec::new(),
        };
        let mut out = Vec::new();
        write(&mut out, &Report { schema: 1, interfaces: vec![interface] }).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn whatever_is_in_it_the_table_is_narrow() {
        let longest = "multicast [ff02:1111:2222:3333:4444:5555:6666:7777]:65535";
        let table = printed(vec![channel(longest, u64::MAX / 4), channel("udp 198.18.0.1:53", 3)]);
        for line in table.lines() {
            assert!(line.chars().count() <= 100, "{line}");
        }
        assert!(table.contains("4611.69P"), "{table}");
        let short = table.lines().find(|line| line.contains("198.18.0.1")).unwrap();
        let columns: Vec<&str> = short.split_whitespace().skip(2).collect();
        assert_eq!(columns, ["3", "3", "3", "3", "3", "3", "75%", "300%"]);
        assert!(table.contains("    no process has it open\n"), "{table}");
        assert!(table.contains("  (lazy sockets, together)            2           2 "), "{table}");
        assert!(
            table.contains("lazy sockets' rings, in `weir status` the verdict deliver\n"),
            "{table}"
        );
        assert!(table.contains("7777      12.5%          3/s\n"), "{table}");
        assert_eq!(table.matches("from others").count(), 2, "{table}");
    }

    #[test]
    fn a_socket_that_was_closed_is_told_from_one_that_no_process_has_open() {
        let mut closed = channel("udp 198.18.0.1:40000", 3);
        closed.sockets.as_mut().unwrap().count = 0;
        let table = printed(vec![closed]);
        assert!(table.contains("    no socket now\n"), "{table}");
        assert!(!table.contains("no process has it open"), "{table}");
    }

    #[test]
    fn many_that_have_no_socket_any_more_have_one_row() {
        let past = |port| {
            let mut past = channel(&format!("udp 198.18.0.1:{port}"), 3);
            past.figures.discarded = Counter::default();
            past.sockets = past.sockets.map(|it| SocketsRow { count: 0, late_drops: 0, ..it });
            past
        };
        let many = |count| (0..count).map(past).chain([channel("udp 198.18.0.1:53", 3)]).collect();
        let few: Vec<ChannelRow> = many(FOLDED_FROM - 1);
        assert_eq!(printed(few).matches("    no socket now\n").count(), FOLDED_FROM - 1);
        let table = printed(many(FOLDED_FROM));
        let row = table.lines().find(|line| line.contains("(16 without a socket)")).unwrap();
        let columns: Vec<&str> = row.split_whitespace().skip(4).collect();
        assert_eq!(columns, ["48", "0", "48", "48", "-", "-", "-", "-"], "{table}");
        assert!(!table.contains("no socket now") && table.contains("198.18.0.1:53"), "{table}");
    }

    #[test]
    fn numbers_keep_their_digits_as_long_as_they_fit() {
        for (number, expected) in
            [(0, "0"), (99_999_999, "99999999"), (123_456_789, "123.46M"), (u64::MAX, "18446.74P")]
        {
            assert_eq!(count(number), expected);
        }
    }
}
