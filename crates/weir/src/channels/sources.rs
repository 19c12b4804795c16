//! Who sends what is discarded: addresses, and networks where the addresses are many.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use etherparse::{LaxNetSlice, LaxSlicedPacket};
use serde::{Serialize, Serializer};
use weir_bpf::channels::Channel;
use weir_bpf::samples::{Sample, Samples};
use weir_bpf::units::{IfIndex, PacketsPerSec};
use weir_bpf::verdict::Kind;
use weir_policy::heavy::{Found, Heavy};

use crate::error::Result;
use crate::status::InterfaceStatus;

/// Senders of less than this part of a channel's discards are not told one by one: a hundred at most are.
const PARTS: u64 = 100;
/// For each channel and kind of sender. What is told of one lacks at most this part of the channel's discards, less than
/// half of what it takes to be told.
const PLACES: usize = 256;
/// A sender that was seen less often may have been met by chance: of 8 samples a third is.
const SAMPLES_MIN: u64 = 8;
/// Channels of an interface whose senders are told; the first ones.
const CHANNELS: usize = 256;

/// An address, or the network of many.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// One alone.
    Address(IpAddr),
    /// An IPv4 /24, or an IPv6 /64, by its first address.
    Network(IpAddr),
}

impl Source {
    fn network_of(address: IpAddr) -> Self {
        Self::Network(match address {
            IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits() & !0xff).into(),
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits() >> 64 << 64).into(),
        })
    }

    fn is_ipv4(self) -> bool {
        let (Self::Address(ip) | Self::Network(ip)) = self;
        ip.is_ipv4()
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(ip) => f.pad(&ip.to_string()),
            Self::Network(ip @ IpAddr::V4(_)) => f.pad(&format!("{ip}/24")),
            Self::Network(ip @ IpAddr::V6(_)) => f.pad(&format!("{ip}/64")),
        }
    }
}

impl Serialize for Source {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Who sends what is discarded of one channel.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SourcesRow {
    /// Discards that were looked at.
    pub samples: u64,
    /// Those of at least a hundredth, the heaviest first. An address that is listed is not part of its network's
    /// share, so that shares add up.
    pub senders: Vec<Sender>,
    /// The part that all others have.
    pub others_share: f64,
}

/// Who sends much of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sender {
    /// `198.18.0.2`, `198.19.0.0/24`, `2001:2:0:1::/64`.
    pub source: Source,
    /// The part of the channel's discards that are the sender's.
    pub share: f64,
    /// As a rate.
    pub discarded_pps: PacketsPerSec,
    /// In how many samples the sender was seen.
    pub samples: u64,
}

/// What was sampled of one interface's discards.
pub struct Sources {
    samples: Samples,
    ifindex: IfIndex,
    by_channel: HashMap<Channel, Senders>,
}

impl Sources {
    /// From now on.
    ///
    /// # Errors
    /// Without CAP_SYS_ADMIN, or where the daemon has gone.
    pub fn open(status: &InterfaceStatus) -> Result<Self> {
        let samples = Samples::open(status.channel_map_ids.samples)?;
        Ok(Self { samples, ifindex: status.ifindex, by_channel: HashMap::new() })
    }

    /// Forgets what was read so far, and passes over what was sampled since.
    pub fn begin(&mut self) {
        self.samples.take();
        self.by_channel.clear();
    }

    /// Reads what was sampled since the last time.
    pub fn read(&mut self) {
        for sample in self.samples.take().iter().filter(|sample| sample.ifindex == self.ifindex) {
            let (channel, source) = origin(sample);
            if self.by_channel.len() < CHANNELS || self.by_channel.contains_key(&channel) {
                let senders = self.by_channel.entry(channel).or_insert_with(Senders::new);
                senders.add(source, sample.packets);
            }
        }
    }

    /// Who sends what is discarded of a channel at this rate; `None` if nothing was.
    pub fn of(&self, channel: &Channel, discarded: PacketsPerSec) -> Option<SourcesRow> {
        // A sample does not say where a forwarded packet would have gone.
        let sampled = match channel.kind {
            Kind::Forward => &Channel::of_kind(Kind::Forward),
            _ => channel,
        };
        let senders = self.by_channel.get(sampled).filter(|_| discarded.0 > 0.0)?;
        Some(senders.row(discarded))
    }
}

/// Where a packet was going, as the gate counts it, and where it came from, as far as its headers say.
fn origin(sample: &Sample) -> (Channel, Option<IpAddr>) {
    let kind = sample.reason.kind();
    let headers = LaxSlicedPacket::from_ethernet(&sample.frame).ok();
    let Some(net) = headers.as_ref().and_then(|headers| headers.net.as_ref()) else {
        return (Channel::of_kind(kind), None);
    };
    let (source, destination): (IpAddr, IpAddr) = match net {
        LaxNetSlice::Ipv4(ip) => {
            (ip.header().source_addr().into(), ip.header().destination_addr().into())
        }
        LaxNetSlice::Ipv6(ip) => {
            (ip.header().source_addr().into(), ip.header().destination_addr().into())
        }
        LaxNetSlice::Arp(_) => return (Channel::of_kind(kind), None),
    };
    // UDP's and TCP's headers both begin with the ports.
    let ports = net.ip_payload_ref().and_then(|payload| payload.payload.first_chunk::<4>());
    let Some([from, at, to, port]) = ports.filter(|_| kind.is_addressed() && kind != Kind::Forward)
    else {
        return (Channel::of_kind(kind), Some(source));
    };
    let port = if kind == Kind::TcpPeer { [*from, *at] } else { [*to, *port] };
    let local = Some((destination, u16::from_be_bytes(port)));
    (Channel { local, ..Channel::of_kind(kind) }, Some(source))
}

/// Of one channel.
struct Senders {
    addresses: Heavy<IpAddr>,
    networks: Heavy<Source>,
    samples: u64,
    /// Packets, of senders that cannot be told, too.
    total: u64,
}

impl Senders {
    fn new() -> Self {
        Self { addresses: Heavy::new(PLACES), networks: Heavy::new(PLACES), samples: 0, total: 0 }
    }

    fn add(&mut self, source: Option<IpAddr>, packets: u64) {
        self.samples += 1;
        self.total += packets;
        if let Some(address) = source {
            self.addresses.add(address, packets);
            self.networks.add(Source::network_of(address), packets);
        }
    }

    fn is_heavy(&self, found: Found) -> bool {
        found.least * PARTS >= self.total && found.times >= SAMPLES_MIN
    }

    /// Heavy addresses, and networks that are heavy without them (G. Cormode et al., "Finding hierarchical heavy
    /// hitters in data streams", VLDB 2003).
    fn heavy(&self) -> Vec<(Source, Found)> {
        let mut rest: HashMap<Source, Found> = self.networks.found().collect();
        let mut heavy = Vec::new();
        for (address, found) in self.addresses.found().filter(|(_, found)| self.is_heavy(*found)) {
            heavy.push((Source::Address(address), found));
            if let Some(network) = rest.get_mut(&Source::network_of(address)) {
                network.least = network.least.saturating_sub(found.least);
                network.times = network.times.saturating_sub(found.times);
            }
        }
        heavy.extend(rest.into_iter().filter(|(_, found)| self.is_heavy(*found)));
        heavy.sort_by(|(a, one), (b, other)| other.least.cmp(&one.least).then_with(|| a.cmp(b)));
        heavy
    }

    fn row(&self, discarded: PacketsPerSec) -> SourcesRow {
        let sender = |(source, found): (Source, Found)| {
            let share = found.least as f64 / self.total.max(1) as f64;
            let discarded_pps = PacketsPerSec(share * discarded.0);
            Sender { source, share, discarded_pps, samples: found.times }
        };
        let senders: Vec<Sender> = self.heavy().into_iter().map(sender).collect();
        let told: f64 = senders.iter().map(|sender| sender.share).sum();
        SourcesRow { samples: self.samples, senders, others_share: (1.0 - told).max(0.0) }
    }
}

/// Writes sets for nft: every sender, but for addresses whose network is there, too. Whoever reads the file twice has
/// the later senders alone.
pub fn write_nft<'a>(
    out: &mut impl Write,
    rows: impl Iterator<Item = &'a SourcesRow>,
) -> io::Result<()> {
    let all: BTreeSet<Source> =
        rows.flat_map(|row| &row.senders).map(|sender| sender.source).collect();
    let covered = |source: &Source| match source {
        Source::Address(address) => all.contains(&Source::network_of(*address)),
        Source::Network(_) => false,
    };
    writeln!(
        out,
        "# Senders of at least 1% of what a channel had discarded. Addresses can be forged."
    )?;
    writeln!(out, "table inet weir_sources {{")?;
    for family in ["ipv4", "ipv6"] {
        writeln!(out, "  set {family} {{\n    type {family}_addr\n    flags interval\n  }}")?;
    }
    writeln!(out, "}}")?;
    for (family, is_ipv4) in [("ipv4", true), ("ipv6", false)] {
        writeln!(out, "flush set inet weir_sources {family}")?;
        let of_family = |source: &&Source| source.is_ipv4() == is_ipv4 && !covered(source);
        let elements: Vec<String> = all.iter().filter(of_family).map(Source::to_string).collect();
        if !elements.is_empty() {
            writeln!(out, "add element inet weir_sources {family} {{ {} }}", elements.join(", "))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn senders(packets: &[(&str, u64)]) -> Senders {
        let mut senders = Senders::new();
        for (address, count) in packets {
            (0..*count).for_each(|_| senders.add(Some(address.parse().unwrap()), 1));
        }
        senders
    }

    fn shares(senders: &Senders) -> Vec<String> {
        let row = senders.row(PacketsPerSec(1000.0));
        let line = |sender: &Sender| format!("{} {:.2}", sender.source, sender.share);
        row.senders.iter().map(line).collect()
    }

    #[test]
    fn a_network_has_what_its_heavy_addresses_have_not() {
        let mut of = senders(&[("198.18.0.2", 300), ("198.18.7.9", 200), ("2001:2::1", 100)]);
        for host in 0..200_u32 {
            // Twice as many as a hundredth needs, from addresses that are all below it.
            (0..2).for_each(|_| of.add(Some(Ipv4Addr::from_bits(0xc612_0700 + host).into()), 1));
        }
        assert_eq!(
            shares(&of),
            ["198.18.7.0/24 0.40", "198.18.0.2 0.30", "198.18.7.9 0.20", "2001:2::1 0.10"]
        );
        assert!(of.row(PacketsPerSec(1.0)).others_share < 1e-9);
    }

    #[test]
    fn who_was_met_by_chance_is_not_told() {
        // Every second one is a hundredth and more, but was seen once.
        let hosts: Vec<String> = (0..50).map(|host| format!("198.18.{host}.1")).collect();
        let once: Vec<(&str, u64)> = hosts.iter().map(|host| (host.as_str(), 1)).collect();
        assert_eq!(shares(&senders(&once)), [] as [&str; 0]);
        assert_eq!(senders(&once).row(PacketsPerSec(1.0)).others_share, 1.0);
    }

    #[test]
    fn nft_is_given_no_address_twice() {
        let of = |senders: &[Source]| SourcesRow {
            samples: 1,
            senders: senders
                .iter()
                .map(|source| Sender {
                    source: *source,
                    share: 0.5,
                    discarded_pps: PacketsPerSec(1.0),
                    samples: 1,
                })
                .collect(),
            others_share: 0.0,
        };
        let address = |ip: &str| Source::Address(ip.parse().unwrap());
        let network = |ip: &str| Source::network_of(ip.parse().unwrap());
        let rows = [
            of(&[address("198.18.0.2"), address("198.18.1.2"), network("2001:2:0:7::9")]),
            of(&[network("198.18.0.2"), address("198.18.1.2")]),
        ];
        let mut out = Vec::new();
        write_nft(&mut out, rows.iter()).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("ipv4 { 198.18.1.2, 198.18.0.0/24 }\n"), "{text}");
        assert!(text.contains("ipv6 { 2001:2:0:7::/64 }\n"), "{text}");
    }
}
