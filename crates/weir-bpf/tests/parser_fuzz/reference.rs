//! What a frame's headers say, read from the RFCs: the meaning that the gate's parser is held to.
//!
//! Nothing here is shared with `bpf/parse*.h`. That reads with one cursor and checks lengths by hand;
//! here every layer is handed a [`Part`] that holds no more than the layer above allows.

use weir_bpf::parser::{Family, Fragment, Parse, Parsed};

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_ARP: u16 = 0x0806;
const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_SERVICE_VLAN: u16 = 0x88a8;
const ETHERTYPE_IPV6: u16 = 0x86dd;

const HOP_BY_HOP: u8 = 0;
const ICMP: u8 = 1;
const IGMP: u8 = 2;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const ICMPV6: u8 = 58;
const DESTINATION_OPTIONS: u8 = 60;

/// As many as `struct weir_parsed` promises; see `WEIR_VLAN_TAGS` and `WEIR_IPV6_EXTENSIONS`.
const TAGS: u8 = 2;
const EXTENSIONS: usize = 6;

/// A stretch of the frame: its length, and those of its bytes that lie in the first buffer.
#[derive(Clone, Copy)]
struct Part<'a> {
    readable: &'a [u8],
    len: usize,
}

impl<'a> Part<'a> {
    /// The first `N` bytes, and what follows them. None if there are not as many, or if they cannot
    /// be read.
    fn take<const N: usize>(self) -> Option<(&'a [u8; N], Self)> {
        let (head, rest) = self.take_some(N)?;
        Some((head.try_into().ok()?, rest))
    }

    fn take_some(self, count: usize) -> Option<(&'a [u8], Self)> {
        let len = self.len.checked_sub(count)?;
        let (head, readable) = self.readable.split_at_checked(count)?;
        Some((head, Self { readable, len }))
    }

    /// The part cut down to `len` bytes: what follows is no more than padding. None if it is shorter.
    fn of_len(self, len: usize) -> Option<Self> {
        let readable = &self.readable[..self.readable.len().min(len)];
        (len <= self.len).then_some(Self { readable, len })
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Piece {
    Whole,
    First { id: u32 },
    Later { id: u32 },
}

/// What an IP header and the headers that belong to it say.
struct Datagram<'a> {
    family: Family,
    source: [u8; 16],
    destination: [u8; 16],
    routed: bool,
    piece: Piece,
    /// Of what follows.
    protocol: u8,
    payload: Part<'a>,
    /// There are more extension headers than are looked behind.
    unfinished: bool,
}

/// The meaning of a frame, of whose bytes only the first `first_buffer` can be read.
pub fn parse(frame: &[u8], first_buffer: usize) -> Parsed {
    let part = Part { readable: &frame[..first_buffer], len: frame.len() };
    ethernet(part).unwrap_or(Parsed { parse: Parse::WEIR_PARSE_MALFORMED.0, ..Parsed::default() })
}

/// Whether the gate's short way is for a frame of this meaning: UDP or TCP in IP, and nothing between.
pub fn is_usual(frame: &[u8], parsed: &Parsed) -> bool {
    let has_ports = [Parse::WEIR_PARSE_UDP.0, Parse::WEIR_PARSE_TCP.0].contains(&parsed.parse);
    has_ports
        && parsed.vlan_tags == 0
        && match parsed.ethertype {
            ETHERTYPE_IPV4 => frame[14] == 0x45 && parsed.fragment == 0,
            // A jumbogram's UDP length is 0.
            _ => frame[20] == parsed.protocol && (frame[20] != UDP || frame[58..60] != [0, 0]),
        }
}

fn ethernet(frame: Part) -> Option<Parsed> {
    let (header, mut rest) = frame.take::<14>()?;
    let mut ethertype = u16::from_be_bytes([header[12], header[13]]);
    let mut vlan_tags = 0;
    // IEEE 802.1Q, 802.1ad: control information, then the ethertype of what follows.
    while vlan_tags < TAGS && matches!(ethertype, ETHERTYPE_VLAN | ETHERTYPE_SERVICE_VLAN) {
        let (tag, behind) = rest.take::<4>()?;
        ethertype = u16::from_be_bytes([tag[2], tag[3]]);
        rest = behind;
        vlan_tags += 1;
    }
    let parsed = match ethertype {
        ETHERTYPE_IPV4 => ip(ipv4(rest)?)?,
        ETHERTYPE_IPV6 => ip(ipv6(rest)?)?,
        ETHERTYPE_ARP => Parsed { parse: Parse::WEIR_PARSE_ARP.0, ..Parsed::default() },
        _ => Parsed { parse: Parse::WEIR_PARSE_OTHER_ETHERTYPE.0, ..Parsed::default() },
    };
    Some(Parsed { ethertype, vlan_tags, ..parsed })
}

/// RFC 791.
fn ipv4(packet: Part) -> Option<Datagram> {
    let (fixed, _) = packet.take::<20>()?;
    let (version, words) = (fixed[0] >> 4, usize::from(fixed[0] & 15));
    let total_len = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
    if version != 4 || words < 5 {
        return None;
    }
    let (header, payload) = packet.of_len(total_len)?.take_some(words * 4)?;
    let id = u32::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    let (more, offset) = (fixed[6] & 0x20 != 0, u16::from_be_bytes([fixed[6] & 0x1f, fixed[7]]));
    let address = |at: usize| {
        let mut octets = [0; 16];
        octets[..4].copy_from_slice(&fixed[at..at + 4]);
        octets
    };
    Some(Datagram {
        family: Family::WEIR_FAMILY_IPV4,
        source: address(12),
        destination: address(16),
        routed: has_source_route(&header[20..])?,
        piece: piece(more, offset, id),
        protocol: fixed[9],
        payload,
        unfinished: false,
    })
}

/// Section 3.1; `None` if an option is longer than what is left, or shorter than its own length.
fn has_source_route(mut options: &[u8]) -> Option<bool> {
    let mut found = false;
    while let [kind, rest @ ..] = options {
        options = match kind {
            0 => break,
            1 => rest,
            _ => {
                found |= matches!(kind, 131 | 137);
                let len = usize::from(*rest.first()?);
                if len < 2 {
                    return None;
                }
                options.get(len..)?
            }
        };
    }
    Some(found)
}

fn piece(more: bool, offset: u16, id: u32) -> Piece {
    match (more, offset) {
        (false, 0) => Piece::Whole,
        (true, 0) => Piece::First { id },
        _ => Piece::Later { id },
    }
}

/// RFC 8200.
fn ipv6(packet: Part) -> Option<Datagram> {
    let (fixed, rest) = packet.take::<40>()?;
    if fixed[0] >> 4 != 6 {
        return None;
    }
    // RFC 2675's jumbograms, length 0, do not fit into a frame: they are cut short like any other.
    let payload_len = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    let datagram = Datagram {
        family: Family::WEIR_FAMILY_IPV6,
        source: fixed[8..24].try_into().ok()?,
        destination: fixed[24..40].try_into().ok()?,
        routed: false,
        piece: Piece::Whole,
        protocol: fixed[6],
        payload: rest.of_len(payload_len)?,
        unfinished: false,
    };
    extension_headers(datagram, 0, false)
}

/// The datagram behind its extension headers, of which it has lost `before`.
fn extension_headers(
    mut datagram: Datagram,
    before: usize,
    had_fragment_header: bool,
) -> Option<Datagram> {
    match datagram.protocol {
        ROUTING | FRAGMENT | DESTINATION_OPTIONS => {}
        // Section 4.1: elsewhere than first, it is a next header that nobody recognizes.
        HOP_BY_HOP if before == 0 => {}
        _ => return Some(datagram),
    }
    if before == EXTENSIONS {
        datagram.unfinished = true;
        return Some(datagram);
    }
    let (start, _) = datagram.payload.take::<8>()?;
    let is_fragment_header = datagram.protocol == FRAGMENT;
    if is_fragment_header {
        // Linux drops a second one, also behind an atomic fragment's (`ipv6_frag_rcv()`).
        if had_fragment_header {
            return None;
        }
        let word = u16::from_be_bytes([start[2], start[3]]);
        let id = u32::from_be_bytes([start[4], start[5], start[6], start[7]]);
        datagram.piece = piece(word & 1 != 0, word >> 3, id);
    } else if datagram.protocol == ROUTING {
        datagram.routed |= start[3] != 0; // segments left
    }
    let units = if is_fragment_header { 1 } else { usize::from(start[1]) + 1 };
    datagram.payload = datagram.payload.take_some(units * 8)?.1;
    datagram.protocol = start[0];
    if let Piece::Later { .. } = datagram.piece {
        return Some(datagram);
    }
    extension_headers(datagram, before + 1, had_fragment_header || is_fragment_header)
}

fn ip(datagram: Datagram) -> Option<Parsed> {
    let (fragment, fragment_id) = match datagram.piece {
        Piece::Whole => (Fragment::WEIR_FRAGMENT_NONE, 0),
        Piece::First { id } => (Fragment::WEIR_FRAGMENT_FIRST, id),
        Piece::Later { id } => (Fragment::WEIR_FRAGMENT_LATER, id),
    };
    let mut parsed = Parsed {
        family: datagram.family.0 as u8,
        source: datagram.source,
        destination: datagram.destination,
        protocol: datagram.protocol,
        routed: datagram.routed.into(),
        fragment: fragment.0 as u8,
        fragment_id,
        left: datagram.payload.len as u32,
        ..Parsed::default()
    };
    parsed.parse = match datagram {
        Datagram { unfinished: true, .. } => Parse::WEIR_PARSE_IPV6_CHAIN,
        Datagram { piece: Piece::Later { .. }, .. } => Parse::WEIR_PARSE_LATER_FRAGMENT,
        _ => transport(&datagram, &mut parsed)?,
    }
    .0;
    Some(parsed)
}

fn transport(datagram: &Datagram, parsed: &mut Parsed) -> Option<Parse> {
    let payload = datagram.payload;
    // Later fragments bring the rest.
    let may_claim = if datagram.piece == Piece::Whole { payload.len } else { usize::MAX };
    Some(match (datagram.protocol, datagram.family) {
        (UDP, _) => {
            // RFC 768. Over IPv6, 0 is a jumbogram's, whose length is its packet's (RFC 2675).
            let (header, _) = payload.take::<8>()?;
            let len = match (u16::from_be_bytes([header[4], header[5]]), datagram.family) {
                (0, Family::WEIR_FAMILY_IPV6) if datagram.piece == Piece::Whole => {
                    payload.len as u16
                }
                (len, _) => len,
            };
            if !(8..=may_claim).contains(&usize::from(len)) {
                return None;
            }
            parsed.udp_len = len;
            ports(header, parsed);
            Parse::WEIR_PARSE_UDP
        }
        (TCP, _) => {
            // RFC 9293.
            let (header, _) = payload.take::<20>()?;
            if !(20..=may_claim).contains(&(usize::from(header[12] >> 4) * 4)) {
                return None;
            }
            parsed.tcp_flags = header[13];
            ports(header, parsed);
            Parse::WEIR_PARSE_TCP
        }
        // RFC 792 and RFC 4443; icmp_rcv() and icmpv6_rcv() want 8 bytes too.
        (ICMP, Family::WEIR_FAMILY_IPV4) => {
            parsed.icmp_type = payload.take::<8>()?.0[0];
            Parse::WEIR_PARSE_ICMP
        }
        (ICMPV6, Family::WEIR_FAMILY_IPV6) => {
            parsed.icmp_type = payload.take::<8>()?.0[0];
            Parse::WEIR_PARSE_ICMPV6
        }
        (IGMP, Family::WEIR_FAMILY_IPV4) => Parse::WEIR_PARSE_IGMP,
        _ => Parse::WEIR_PARSE_OTHER_PROTOCOL,
    })
}

fn ports(header: &[u8], parsed: &mut Parsed) {
    parsed.source_port = u16::from_be_bytes([header[0], header[1]]);
    parsed.destination_port = u16::from_be_bytes([header[2], header[3]]);
}
