//! IP and UDP input, on the receiver's time: what `ip_rcv_core()`, `ip6_rcv_core()`, `__udp4_lib_rcv()` and
//! `__udp6_lib_rcv()` check, in their order, of the packets that a gate puts on a ring. Those have no options, no
//! extension headers, and are no fragments; all others the kernel's socket gets.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::time::{ClockId, clock_gettime};

use crate::timens;

/// `struct weir_lazy_record` in `bpf/abi/`.
const RECORD_BYTES: usize = 24;
const VERSION: u8 = 1;
const CHECKED: u8 = 1;
const MAY_BE_PARTIAL: u8 = 2;

const IPV4_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
const UDP: u8 = 17;

/// A packet as a gate has put it on a ring, or several that have been merged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Record<'a> {
    at: Duration,
    interface: u32,
    gso_bytes: usize,
    flags: u8,
    packet: &'a [u8],
}

impl<'a> Record<'a> {
    /// From the ring; `None` if it is of another version of weir.
    pub(crate) fn read(record: &'a [u8]) -> Option<Self> {
        let head: &[u8; RECORD_BYTES] = record.first_chunk()?;
        let word =
            |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let at = u64::from_ne_bytes(*head.first_chunk()?);
        let length = word(8) as usize;
        let packet = record.get(RECORD_BYTES..)?.get(..length)?;
        (head[19] == VERSION).then_some(Self {
            at: Duration::from_nanos(at),
            interface: word(12),
            gso_bytes: u16::from_ne_bytes([head[16], head[17]]).into(),
            flags: head[18],
            packet,
        })
    }

    /// The datagrams in it, unless the kernel would drop it.
    pub(crate) fn input(&self) -> Option<Datagrams<'a>> {
        match self.packet.first()? >> 4 {
            4 => self.input4(),
            6 => self.input6(),
            _ => None,
        }
    }

    fn input4(&self) -> Option<Datagrams<'a>> {
        let header: &[u8; IPV4_BYTES] = self.packet.first_chunk()?;
        let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
        // The length first: what is behind it is padding.
        let payload = self.packet.get(IPV4_BYTES..total)?;
        if header[0] != 0x45 || header[9] != UDP || fold(sum(header)) != 0xffff {
            return None;
        }
        let address =
            |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
        let (source, destination) = (address(12), address(16));
        let pseudo = sum(&header[12..20]);
        let (port, payload) = self.udp(payload, pseudo, false)?;
        Some(Datagrams {
            record: *self,
            source: SocketAddr::V4(SocketAddrV4::new(source, port)),
            destination: destination.into(),
            traffic_class: header[1],
            hop_limit: header[8],
            payload,
        })
    }

    fn input6(&self) -> Option<Datagrams<'a>> {
        let header: &[u8; IPV6_BYTES] = self.packet.first_chunk()?;
        let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
        let payload = self.packet.get(IPV6_BYTES..IPV6_BYTES + length)?;
        if header[6] != UDP {
            return None;
        }
        let address = |at: usize| {
            let mut octets = [0; 16];
            octets.copy_from_slice(&header[at..at + 16]);
            Ipv6Addr::from(octets)
        };
        let (source, destination) = (address(8), address(24));
        let pseudo = sum(&header[8..40]);
        let (port, payload) = self.udp(payload, pseudo, true)?;
        let scope = if source.is_unicast_link_local() { self.interface } else { 0 };
        Some(Datagrams {
            record: *self,
            source: SocketAddr::V6(SocketAddrV6::new(source, port, 0, scope)),
            destination: destination.into(),
            traffic_class: header[0] << 4 | header[1] >> 4,
            hop_limit: header[7],
            payload,
        })
    }

    /// The source port and what the datagram carries; the addresses come summed up.
    fn udp(
        &self,
        ip_payload: &'a [u8],
        addresses: u64,
        checksum_needed: bool,
    ) -> Option<(u16, &'a [u8])> {
        let header: &[u8; UDP_BYTES] = ip_payload.first_chunk()?;
        let half = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let length = usize::from(half(4));
        let datagram = ip_payload.get(..length).filter(|datagram| datagram.len() >= UDP_BYTES)?;
        let pseudo = addresses + u64::from(UDP) + u64::from(half(4));
        let whole = match half(6) {
            0 => !checksum_needed,
            _ if self.flags & CHECKED != 0 => true,
            // Set by a sender on this machine, for a NIC to complete.
            given if self.flags & MAY_BE_PARTIAL != 0 && given == fold(pseudo) => true,
            _ => fold(pseudo + sum(datagram)) == 0xffff,
        };
        whole.then(|| (half(0), &datagram[UDP_BYTES..]))
    }
}

/// The one's complement sum of 16-bit words in network order, not folded yet (RFC 1071).
fn sum(bytes: &[u8]) -> u64 {
    // By words of the machine's own order, which changes no more than the order of the result's bytes.
    let mut words = bytes.chunks_exact(4);
    let word = |bytes: [u8; 4]| u64::from(u32::from_ne_bytes(bytes));
    let mut sum: u64 = words.by_ref().map(|it| word([it[0], it[1], it[2], it[3]])).sum();
    let rest = words.remainder();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    sum += word(last);
    u64::from(fold(sum).to_be())
}

fn fold(mut sum: u64) -> u16 {
    sum = (sum >> 32) + (sum & 0xffff_ffff);
    sum = (sum >> 32) + (sum & 0xffff_ffff);
    sum = (sum >> 16) + (sum & 0xffff);
    sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

/// What one record holds: one datagram, or several that were merged on the way, of one length but the last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Datagrams<'a> {
    record: Record<'a>,
    source: SocketAddr,
    destination: IpAddr,
    traffic_class: u8,
    hop_limit: u8,
    payload: &'a [u8],
}

impl<'a> Datagrams<'a> {
    /// The one that begins behind so many bytes of payload, and where the next one begins, if there is one.
    pub(crate) fn at(&self, consumed: usize) -> Option<(Datagram<'a>, Option<usize>)> {
        let rest = self.payload.get(consumed..)?;
        let length = match self.record.gso_bytes {
            0 => rest.len(),
            bytes => bytes.min(rest.len()),
        };
        let next = (length < rest.len()).then_some(consumed + length);
        let datagram = Datagram {
            payload: &rest[..length],
            source: self.source,
            arrival: Some(Arrival {
                destination: self.destination,
                interface: self.record.interface,
                traffic_class: self.traffic_class,
                hop_limit: self.hop_limit,
                monotonic: self.record.at,
            }),
        };
        Some((datagram, next))
    }
}

/// One datagram, and what its headers said. What the kernel's socket has received has no more than a payload and a
/// source.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// What it carries.
    pub payload: &'a [u8],
    /// Who sent it.
    pub source: SocketAddr,
    /// How it came, if it was on the ring.
    pub arrival: Option<Arrival>,
}

/// How a datagram came.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// The address that it was sent to.
    pub destination: IpAddr,
    /// The number of the interface that it came in on.
    pub interface: u32,
    /// Type of service of IPv4, traffic class of IPv6.
    pub traffic_class: u8,
    /// Time to live of IPv4, hop limit of IPv6.
    pub hop_limit: u8,
    /// When the NAPI poll began that it came in: by `CLOCK_MONOTONIC` outside time namespaces, since the machine booted.
    pub monotonic: Duration,
}

impl Arrival {
    /// The same time by the clock on the wall. Of two, the earlier one's is no later, unless that clock is set.
    pub fn time(&self) -> SystemTime {
        let nanos = i64::try_from(self.monotonic.as_nanos()).unwrap_or(i64::MAX);
        let nanos = nanos.saturating_add(wall_is_ahead());
        UNIX_EPOCH + Duration::from_nanos(nanos.try_into().unwrap_or_default())
    }
}

/// How far `CLOCK_REALTIME` is ahead of the kernel's `CLOCK_MONOTONIC`, in nanoseconds. It changes only when the clock is set, and so
/// is kept: each look at it is wrong by the time that passes between the two clocks, which may be a time slice.
fn wall_is_ahead() -> i64 {
    /// What two looks may differ by where nothing comes between their readings.
    const EXACT: i64 = 1000;
    static KEPT: AtomicI64 = AtomicI64::new(0);
    static AHEAD: LazyLock<i64> = LazyLock::new(|| timens::ahead("monotonic"));
    let nanos = |clock| {
        let time = clock_gettime(clock);
        time.tv_sec * 1_000_000_000 + time.tv_nsec
    };
    let before = nanos(ClockId::Monotonic) - *AHEAD;
    let wall = nanos(ClockId::Realtime);
    let after = nanos(ClockId::Monotonic) - *AHEAD;
    let kept = KEPT.load(Ordering::Relaxed);
    if (wall - after - EXACT..=wall - before + EXACT).contains(&kept) {
        return kept;
    }
    KEPT.store(wall - after, Ordering::Relaxed);
    wall - after
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

    use etherparse::PacketBuilder;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_came_in_one_poll_came_at_one_time() {
        let arrival = Arrival {
            destination: IpAddr::V4(Ipv4Addr::LOCALHOST),
            interface: 1,
            traffic_class: 0,
            hop_limit: 64,
            monotonic: Duration::try_from(clock_gettime(ClockId::Monotonic)).unwrap(),
        };
        // The first look at the clocks may have been interrupted.
        let _ = arrival.time();
        let (time, now) = (arrival.time(), SystemTime::now());
        assert!((0..10_000).all(|_| arrival.time() == time));
        assert!(time <= now && now < time + Duration::from_secs(10));
    }

    fn record(packet: &[u8], flags: u8, gso: u16) -> Vec<u8> {
        let mut record = 5_u64.to_ne_bytes().to_vec();
        record.extend((packet.len() as u32).to_ne_bytes());
        record.extend(7_u32.to_ne_bytes());
        record.extend(gso.to_ne_bytes());
        record.extend([flags, VERSION, 0, 0, 0, 0]);
        record.extend(packet);
        // The gate's records are as long as their class.
        record.extend([0xa5; 40]);
        record
    }

    fn packet(v6: bool, payload: &[u8]) -> Vec<u8> {
        let builder = match v6 {
            false => PacketBuilder::ipv4([198, 18, 0, 1], [198, 18, 0, 2], 64).udp(1000, 53),
            true => PacketBuilder::ipv6([1; 16], [2; 16], 64).udp(1000, 53),
        };
        let mut packet = Vec::new();
        builder.write(&mut packet, payload).unwrap();
        packet
    }

    fn payload(record: &[u8]) -> Option<Vec<u8>> {
        let datagrams = Record::read(record)?.input()?;
        let (datagram, next) = datagrams.at(0)?;
        assert_eq!((datagram.source.port(), next), (1000, None));
        assert_eq!(datagram.arrival.unwrap().interface, 7);
        Some(datagram.payload.to_vec())
    }

    proptest! {
        #[test]
        fn what_was_sent_is_read(v6: bool, sent in prop::collection::vec(any::<u8>(), 0..1500)) {
            prop_assert_eq!(payload(&record(&packet(v6, &sent), 0, 0)), Some(sent));
        }

        /// Each single bit that is wrong is seen; but in what no checksum covers, or what says where to look.
        #[test]
        fn a_wrong_bit_is_seen(v6: bool, sent in prop::collection::vec(any::<u8>(), 1..200), at: prop::sample::Index, bit in 0_u8..8) {
            let mut packet = packet(v6, &sent);
            let at = at.index(packet.len());
            // Version, class, flow label and hop limit of IPv6; UDP's checksum may become none.
            prop_assume!(!v6 || !matches!(at, 0..=3 | 7));
            packet[at] ^= 1 << bit;
            let udp = if v6 { IPV6_BYTES } else { IPV4_BYTES };
            prop_assume!(packet[udp + 6..udp + 8] != [0, 0]);
            prop_assert_eq!(payload(&record(&packet, 0, 0)), None);
        }

        #[test]
        fn no_bytes_are_read_that_are_not_there(bytes in prop::collection::vec(any::<u8>(), 0..100), cut in 0..60_usize) {
            let _ = Record::read(&bytes).and_then(|record| record.input());
            let _ = Record::read(&record(&bytes, 3, 0)).and_then(|record| record.input());
            let whole = packet(bytes.len() % 2 == 0, &bytes);
            let _ = Record::read(&record(&whole[..whole.len().saturating_sub(cut)], 1, 0)).and_then(|record| record.input());
        }
    }

    #[test]
    fn merged_packets_are_taken_apart() {
        let record = record(&packet(false, b"aaaabbbbcc"), CHECKED, 4);
        let datagrams = Record::read(&record).unwrap().input().unwrap();
        let (first, next) = datagrams.at(0).unwrap();
        assert_eq!((first.payload, next), (&b"aaaa"[..], Some(4)));
        let (last, next) = datagrams.at(8).unwrap();
        assert_eq!((last.payload, next), (&b"cc"[..], None));
    }

    #[test]
    fn a_partial_checksum_is_for_drivers_that_have_it() {
        let mut partial = packet(false, b"hello");
        let pseudo = fold(sum(&partial[12..20]) + 17 + 13);
        partial[26..28].copy_from_slice(&pseudo.to_be_bytes());
        assert_eq!(payload(&record(&partial, MAY_BE_PARTIAL, 0)), Some(b"hello".into()));
        assert_eq!(payload(&record(&partial, 0, 0)), None);
    }

    #[test]
    fn ipv6_has_no_datagrams_without_a_checksum() {
        for (v6, taken) in [(false, true), (true, false)] {
            let mut packet = packet(v6, b"hello");
            let at = if v6 { 46 } else { 26 };
            packet[at..at + 2].fill(0);
            assert_eq!(payload(&record(&packet, 0, 0)).is_some(), taken);
        }
    }
}
