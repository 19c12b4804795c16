//! The blocks of a pcapng file that hold packets (draft-ietf-opsawg-pcapng, section 4).
//!
//! Sections and interfaces are the library's work. A packet's own few fields are read here: the library
//! takes every timestamp for nanoseconds, whatever the interface's resolution is, and refuses packets
//! whose comments are not UTF-8.

use std::time::Duration;

use pcap_file::Endianness;
use pcap_file::pcapng::PcapNgReader;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::{ENHANCED_PACKET_BLOCK, PACKET_BLOCK, SIMPLE_PACKET_BLOCK};

use super::capture::{Link, Packet, Step};
use super::error::{explain, no_interface};
use super::source::{Progress, Source};

const SECTION_HEADER: [u8; 4] = [0x0a, 0x0d, 0x0d, 0x0a];
const BYTE_ORDER_MAGIC: u32 = 0x1a2b_3c4d;
/// Microseconds.
const RESOLUTION_DEFAULT: u8 = 6;

/// How long the first block is, if the file begins as a pcapng file does.
pub fn first_block_len(first: &[u8]) -> Option<u64> {
    let word = |at: usize| first.get(at..at + 4)?.try_into().ok();
    if word(0)? != SECTION_HEADER {
        return None;
    }
    let (len, magic) = (word(4)?, word(8)?);
    let len = if u32::from_be_bytes(magic) == BYTE_ORDER_MAGIC {
        u32::from_be_bytes(len)
    } else {
        u32::from_le_bytes(len)
    };
    Some(len.into())
}

/// Reads one block; `offset` moves behind it.
pub fn step(
    reader: &mut PcapNgReader<Source>,
    offset: &mut u64,
    progress: &Progress,
) -> Result<Step, String> {
    let endianness = reader.section().endianness;
    let block = match reader.next_raw_block() {
        None => return Ok(Step::End),
        Some(block) => block.map_err(|error| explain(&error, progress.ended.get()))?,
    };
    let len = u64::from(block.initial_len);
    let mut body = Body { bytes: &block.body, endianness };
    let found = match block.type_ {
        ENHANCED_PACKET_BLOCK => enhanced(&mut body),
        PACKET_BLOCK => obsolete(&mut body),
        SIMPLE_PACKET_BLOCK => simple(&mut body),
        _ => {
            *offset += len;
            return Ok(Step::Other);
        }
    };
    let found = found.ok_or("it is too short for what it says: the file is damaged here")?;
    let id = found.interface;
    let interface = usize::try_from(id).ok().and_then(|id| reader.interfaces().get(id));
    let interface = interface.ok_or_else(|| no_interface(id))?;
    let link = Link::of(interface.linktype)?;
    *offset += len;
    Ok(Step::Packet(found.into_packet(interface, link)))
}

/// A packet as its block has it.
struct Found {
    interface: u32,
    ticks: Option<u64>,
    wire_len: u32,
    data: Vec<u8>,
}

impl Found {
    fn into_packet(mut self, interface: &InterfaceDescriptionBlock<'_>, link: Link) -> Packet {
        // A simple packet's block does not say how much of it is padding.
        if self.ticks.is_none() {
            let snapped = if interface.snaplen == 0 { u32::MAX } else { interface.snaplen };
            self.data.truncate(self.wire_len.min(snapped) as usize);
        }
        let captured = u32::try_from(self.data.len()).unwrap_or(u32::MAX);
        Packet {
            time: self.ticks.and_then(|ticks| time_of(ticks, interface)),
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

    fn half(&mut self) -> Option<u16> {
        let (half, rest) = self.bytes.split_first_chunk::<2>()?;
        self.bytes = rest;
        Some(match self.endianness {
            Endianness::Big => u16::from_be_bytes(*half),
            Endianness::Little => u16::from_le_bytes(*half),
        })
    }
}

/// A timestamp, by the interface's resolution and offset.
fn time_of(ticks: u64, interface: &InterfaceDescriptionBlock<'_>) -> Option<Duration> {
    let mut resolution = RESOLUTION_DEFAULT;
    let mut offset_secs = 0;
    for option in &interface.options {
        match option {
            InterfaceDescriptionOption::IfTsResol(value) => resolution = *value,
            InterfaceDescriptionOption::IfTsOffset(secs) => offset_secs = secs.cast_signed(),
            _ => {}
        }
    }
    // The highest bit: a power of two, else of ten.
    let base: u128 = if resolution & 0x80 == 0 { 10 } else { 2 };
    let per_sec = base.checked_pow(u32::from(resolution & 0x7f))?;
    let ticks = u128::from(ticks);
    let secs = u64::try_from(ticks / per_sec).ok()?.checked_add_signed(offset_secs)?;
    let nanos = (ticks % per_sec).checked_mul(1_000_000_000)? / per_sec;
    Some(Duration::new(secs, u32::try_from(nanos).ok()?))
}

#[cfg(test)]
mod tests {
    use pcap_file::DataLink;

    use super::*;

    #[test]
    fn timestamps_have_the_interfaces_resolution() {
        let time = |options: &[InterfaceDescriptionOption<'static>], ticks| {
            let mut interface = InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0);
            interface.options = options.to_vec();
            time_of(ticks, &interface)
        };
        let resolution = InterfaceDescriptionOption::IfTsResol;
        assert_eq!(time(&[], 1_500_000), Some(Duration::from_millis(1500)));
        assert_eq!(time(&[resolution(9)], 1_500_000_001), Some(Duration::new(1, 500_000_001)));
        assert_eq!(time(&[resolution(0x81)], 3), Some(Duration::from_millis(1500)));
        assert_eq!(time(&[resolution(127)], 3), None);
        let offset = InterfaceDescriptionOption::IfTsOffset(2);
        assert_eq!(time(&[offset], 1_000_000), Some(Duration::from_secs(3)));
        let before = InterfaceDescriptionOption::IfTsOffset((-2_i64).cast_unsigned());
        assert_eq!(time(&[before], 1_000_000), None);
    }
}
