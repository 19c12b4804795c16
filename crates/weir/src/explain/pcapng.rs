//! A pcapng file's packets (draft-ietf-opsawg-pcapng, section 4).
//!
//! Of interfaces what packets need is read, and blocks of other kinds are skipped, whatever is in them: pcap-file
//! refuses options that no `opt_endofopt` ends, texts that are not UTF-8, and blocks of more than 8 MB. pcap-parser 0.17
//! takes options behind that one, reads a big-endian `if_tsoffset` as little-endian, refuses resolutions that are powers
//! of two, and holds whole blocks in memory.

use std::io::{self, BufReader, Read};
use std::time::Duration;

use pcap_file::{DataLink, Endianness};

use super::capture::{Link, Packet, Step};
use super::error::{CUT_SHORT, WRONG_LENGTH, no_interface};
use super::source::Source;

const SECTION_HEADER: u32 = 0x0a0d_0d0a;
const INTERFACE_DESCRIPTION: u32 = 1;
const OBSOLETE_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
const END_OF_OPTIONS: u16 = 0;
const IF_TSRESOL: u16 = 9;
const IF_TSOFFSET: u16 = 14;
/// Microseconds.
const RESOLUTION_DEFAULT: u8 = 6;
/// libpcap's bound on a block that is read, in bytes (`MAX_BLOCKSIZE`).
const BLOCK_LEN_MAX: u64 = 16 << 20;

/// Whether a file begins as a pcapng file does.
pub fn is_pcapng(first: &[u8]) -> bool {
    first.starts_with(&SECTION_HEADER.to_be_bytes())
}

/// Reads blocks.
pub struct Reader {
    source: BufReader<Source>,
    endianness: Endianness,
    interfaces: Vec<Interface>,
}

/// What is said of an interface.
struct Interface {
    link: DataLink,
    snaplen: u32,
    resolution: u8,
    offset_secs: i64,
}

impl Reader {
    pub fn new(source: Source) -> Self {
        let (source, interfaces) = (BufReader::new(source), Vec::new());
        Self { source, endianness: Endianness::Little, interfaces }
    }

    /// Reads one block; `offset` moves behind it.
    pub fn step(&mut self, offset: &mut u64) -> Result<Step, String> {
        let Some((kind, len, body)) = self.block()? else { return Ok(Step::End) };
        let mut body = Body { bytes: &body, endianness: self.endianness };
        let found = match kind {
            SECTION_HEADER => {
                self.interfaces.clear();
                None
            }
            INTERFACE_DESCRIPTION => {
                self.interfaces.push(interface(&mut body).ok_or(TOO_SHORT)?);
                None
            }
            ENHANCED_PACKET => Some(enhanced(&mut body).ok_or(TOO_SHORT)?),
            OBSOLETE_PACKET => Some(obsolete(&mut body).ok_or(TOO_SHORT)?),
            SIMPLE_PACKET => Some(simple(&mut body).ok_or(TOO_SHORT)?),
            _ => None,
        };
        let step = match found {
            None => Step::Other,
            Some(found) => {
                let id = found.interface;
                let interface = usize::try_from(id).ok().and_then(|id| self.interfaces.get(id));
                let interface = interface.ok_or_else(|| no_interface(id))?;
                Step::Packet(found.into_packet(interface, Link::of(interface.link)))
            }
        };
        *offset += len;
        Ok(step)
    }

    /// The next block's kind, length and body, which is empty where it is not wanted; `None` at the end.
    fn block(&mut self) -> Result<Option<(u32, u64, Vec<u8>)>, String> {
        let head = self.take(8)?;
        if head.is_empty() {
            return Ok(None);
        }
        // The section header's kind is the same in either byte order.
        let is_section = is_pcapng(&head);
        let magic = self.take(if is_section { 4 } else { 0 })?;
        if is_section {
            self.endianness = match magic.first_chunk() {
                Some(magic) if u32::from_be_bytes(*magic) == BYTE_ORDER_MAGIC => Endianness::Big,
                Some(magic) if u32::from_le_bytes(*magic) == BYTE_ORDER_MAGIC => Endianness::Little,
                Some(_) => return Err("its byte order is neither: the file is damaged here".into()),
                None => return Err(CUT_SHORT.into()),
            };
        }
        let mut head = Body { bytes: &head, endianness: self.endianness };
        let (kind, len) = head.word().zip(head.word()).ok_or(CUT_SHORT)?;
        let rest = u64::from(len).checked_sub(12 + magic.len() as u64).filter(|rest| rest % 4 == 0);
        let rest = rest.ok_or(WRONG_LENGTH)?;
        let wanted = [
            SECTION_HEADER,
            INTERFACE_DESCRIPTION,
            OBSOLETE_PACKET,
            SIMPLE_PACKET,
            ENHANCED_PACKET,
        ];
        let body = if wanted.contains(&kind) {
            if rest > BLOCK_LEN_MAX {
                return Err(WRONG_LENGTH.into());
            }
            self.take(rest)?
        } else {
            let skipped = io::copy(&mut self.source.by_ref().take(rest), &mut io::sink());
            if skipped.map_err(|error| error.to_string())? < rest {
                return Err(CUT_SHORT.into());
            }
            Vec::new()
        };
        let again = self.take(4)?;
        let again = Body { bytes: &again, endianness: self.endianness }.word().ok_or(CUT_SHORT)?;
        if again == len { Ok(Some((kind, len.into(), body))) } else { Err(WRONG_LENGTH.into()) }
    }

    /// So many bytes, or none at the end of the file.
    fn take(&mut self, len: u64) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let read = self.source.by_ref().take(len).read_to_end(&mut bytes);
        match read.map_err(|error| error.to_string())? as u64 {
            0 => Ok(bytes),
            read if read == len => Ok(bytes),
            _ => Err(CUT_SHORT.into()),
        }
    }
}

const TOO_SHORT: &str = "it is too short for what it says: the file is damaged here";

fn interface(body: &mut Body<'_>) -> Option<Interface> {
    let (link, _reserved, snaplen) = (body.half()?, body.half()?, body.word()?);
    let link = DataLink::from(u32::from(link));
    let mut interface = Interface { link, snaplen, resolution: RESOLUTION_DEFAULT, offset_secs: 0 };
    // The last one need not be `opt_endofopt`.
    while let Some((code, len)) = body.half().zip(body.half()) {
        let Some((value, _)) = body.bytes.split_at_checked(len.into()) else { break };
        let mut value = Body { bytes: value, endianness: body.endianness };
        match code {
            END_OF_OPTIONS => break,
            IF_TSRESOL => {
                interface.resolution = *value.bytes.first().unwrap_or(&RESOLUTION_DEFAULT)
            }
            IF_TSOFFSET => interface.offset_secs = value.long().unwrap_or(0).cast_signed(),
            _ => {}
        }
        let padded = usize::from(len).next_multiple_of(4).min(body.bytes.len());
        body.bytes = &body.bytes[padded..];
    }
    Some(interface)
}

/// A packet as its block has it.
struct Found {
    interface: u32,
    ticks: Option<u64>,
    wire_len: u32,
    data: Vec<u8>,
}

impl Found {
    fn into_packet(mut self, interface: &Interface, link: Result<Link, String>) -> Packet {
        // A simple packet's block does not say how much of it is padding.
        if self.ticks.is_none() {
            let snapped = if interface.snaplen == 0 { u32::MAX } else { interface.snaplen };
            self.data.truncate(self.wire_len.min(snapped) as usize);
        }
        let captured = u32::try_from(self.data.len()).unwrap_or(u32::MAX);
        Packet {
            time: self.ticks.and_then(|ticks| interface.time_of(ticks)),
            wire_len: self.wire_len.max(captured),
            data: self.data,
            link,
        }
    }
}

fn enhanced(body: &mut Body<'_>) -> Option<Found> {
    let interface = body.word()?;
    packet(body, interface)
}

fn obsolete(body: &mut Body<'_>) -> Option<Found> {
    let interface = body.half()?;
    let _drops = body.half()?;
    packet(body, interface.into())
}

fn packet(body: &mut Body<'_>, interface: u32) -> Option<Found> {
    let ticks = u64::from(body.word()?) << 32 | u64::from(body.word()?);
    let captured = body.word()?;
    let wire_len = body.word()?;
    let data = body.bytes.get(..usize::try_from(captured).ok()?)?.to_vec();
    Some(Found { interface, ticks: Some(ticks), wire_len, data })
}

fn simple(body: &mut Body<'_>) -> Option<Found> {
    let wire_len = body.word()?;
    Some(Found { interface: 0, ticks: None, wire_len, data: body.bytes.to_vec() })
}

/// What is left of a block.
struct Body<'a> {
    bytes: &'a [u8],
    endianness: Endianness,
}

impl Body<'_> {
    fn word(&mut self) -> Option<u32> {
        let (word, rest) = self.bytes.split_first_chunk::<4>()?;
        self.bytes = rest;
        Some(match self.endianness {
            Endianness::Big => u32::from_be_bytes(*word),
            Endianness::Little => u32::from_le_bytes(*word),
        })
    }

    /// Eight bytes, for which the file's byte order holds, too.
    fn long(&mut self) -> Option<u64> {
        let (one, other) = (u64::from(self.word()?), u64::from(self.word()?));
        Some(match self.endianness {
            Endianness::Big => one << 32 | other,
            Endianness::Little => other << 32 | one,
        })
    }

    fn half(&mut self) -> Option<u16> {
        let (half, rest) = self.bytes.split_first_chunk::<2>()?;
        self.bytes = rest;
        Some(match self.endianness {
            Endianness::Big => u16::from_be_bytes(*half),
            Endianness::Little => u16::from_le_bytes(*half),
        })
    }
}

impl Interface {
    /// A timestamp, by the interface's resolution and offset.
    fn time_of(&self, ticks: u64) -> Option<Duration> {
        // The highest bit: a power of two, else of ten.
        let base: u128 = if self.resolution & 0x80 == 0 { 10 } else { 2 };
        let per_sec = base.checked_pow(u32::from(self.resolution & 0x7f))?;
        let ticks = u128::from(ticks);
        let secs = u64::try_from(ticks / per_sec).ok()?.checked_add_signed(self.offset_secs)?;
        let nanos = (ticks % per_sec).checked_mul(1_000_000_000)? / per_sec;
        Some(Duration::new(secs, u32::try_from(nanos).ok()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_have_the_interfaces_resolution() {
        let time = |resolution, offset_secs, ticks| {
            Interface { link: DataLink::ETHERNET, snaplen: 0, resolution, offset_secs }
                .time_of(ticks)
        };
        assert_eq!(time(6, 0, 1_500_000), Some(Duration::from_millis(1500)));
        assert_eq!(time(9, 0, 1_500_000_001), Some(Duration::new(1, 500_000_001)));
        assert_eq!(time(0x81, 0, 3), Some(Duration::from_millis(1500)));
        assert_eq!(time(127, 0, 3), None);
        assert_eq!(time(6, 2, 1_000_000), Some(Duration::from_secs(3)));
        assert_eq!(time(6, -2, 1_000_000), None);
    }

    #[test]
    fn nothing_is_an_option_behind_the_last_one() {
        let bytes = b"\x01\0\0\0\0\0\0\0\x09\0\x01\0\x09\0\0\0\0\0\0\0\x09\0\x01\0\x03\0\0\0";
        let interface = interface(&mut Body { bytes, endianness: Endianness::Little });
        assert_eq!(interface.unwrap().resolution, 9);
    }
}
