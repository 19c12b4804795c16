//! A capture's packets one after the other, pcap or pcapng.

use std::borrow::Cow;
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use pcap_file::pcap::PcapReader;
use pcap_file::{DataLink, TsResolution};
use weir_bpf::units::MacAddr;

use super::error::{CaptureError, explain, no_capture, unknown_link};
use super::pcapng;
use super::source::Source;

/// libpcap's bound on a captured Ethernet frame, in bytes (`MAXIMUM_SNAPLEN`).
const CAPTURED_LEN_MAX: u32 = 262_144;
const PCAP_HEADER_LEN: u64 = 24;
const PCAP_RECORD_HEADER_LEN: u64 = 16;

/// A captured packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// When it was captured, since the epoch; `None` if the file does not say.
    pub time: Option<Duration>,
    /// How long it was, in bytes.
    pub wire_len: u32,
    /// What was captured of it.
    pub data: Vec<u8>,
    /// What it begins with, or why that cannot be judged.
    pub link: Result<Link, String>,
}

impl Packet {
    /// The packet as the gate sees it; one without an Ethernet header as if it was addressed to this interface.
    pub fn frame(&self, mac: MacAddr) -> Cow<'_, [u8]> {
        match self.link {
            Ok(Link::Ethernet) | Err(_) => Cow::Borrowed(&self.data),
            Ok(Link::Ip) => {
                let is_ipv6 = self.data.first().is_some_and(|first| first >> 4 == 6);
                let ethertype: [u8; 2] = if is_ipv6 { [0x86, 0xdd] } else { [0x08, 0x00] };
                Cow::Owned([&mac.0[..], &[0; 6], &ethertype, &self.data].concat())
            }
        }
    }
}

/// What a capture's packets begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// An Ethernet header.
    Ethernet,
    /// An IP header.
    Ip,
}

impl Link {
    /// By a file's link type; the upper half of a pcap's is about the frame check sequence. `DLT_RAW` is 12 or 14 in
    /// files that were written without libpcap.
    pub(super) fn of(link: DataLink) -> Result<Self, String> {
        match DataLink::from(u32::from(link) & 0xffff) {
            DataLink::ETHERNET => Ok(Self::Ethernet),
            DataLink::RAW | DataLink::IPV4 | DataLink::IPV6 => Ok(Self::Ip),
            other if matches!(u32::from(other), 12 | 14) => Ok(Self::Ip),
            _ => Err(unknown_link(link)),
        }
    }
}

/// What a step through the file has found.
pub(super) enum Step {
    Packet(Packet),
    /// Something else, or nothing.
    Other,
    /// The end of the file.
    End,
}

enum Reader {
    Pcap(PcapReader<Source>, Link),
    PcapNg(pcapng::Reader),
}

/// A capture that is being read.
pub struct Capture {
    name: String,
    reader: Reader,
    ended: Rc<Cell<bool>>,
    /// How long the file is, in bytes, if that is known.
    pub len: Option<u64>,
    /// Packets that were read.
    count: u64,
    /// Where the next packet or block begins.
    offset: u64,
    /// The first packet whose link type the gate cannot judge.
    foreign: Option<CaptureError>,
}

impl Capture {
    /// Opens a file, or standard input for `-`; `command` reads that, and is told where the file is compressed.
    pub fn open(path: &Path, command: &str) -> Result<Self, CaptureError> {
        let stdin = path == Path::new("-");
        let name = if stdin { "standard input".into() } else { path.display().to_string() };
        let failed = |source| CaptureError::Open { name: name.clone(), source };
        let source = Source::open(path).map_err(failed)?;
        Self::new(name, source, command)
    }

    fn new(name: String, source: Source, command: &str) -> Result<Self, CaptureError> {
        let failed = |source| CaptureError::Open { name: name.clone(), source };
        let (first, source) = source.peek::<4>().map_err(failed)?;
        let (ended, len) = (Rc::clone(&source.ended), source.len);
        let broken = |why| CaptureError::Header { name: name.clone(), why };
        let (reader, offset) = if pcapng::is_pcapng(&first) {
            let (mut reader, mut offset) = (pcapng::Reader::new(source), 0);
            reader.step(&mut offset).map_err(broken)?;
            (Reader::PcapNg(reader), offset)
        } else if is_pcap(&first) {
            let reader =
                PcapReader::new(source).map_err(|error| broken(explain(&error, ended.get())))?;
            let link = Link::of(reader.header().datalink).map_err(broken)?;
            (Reader::Pcap(reader, link), PCAP_HEADER_LEN)
        } else {
            return Err(broken(no_capture(&first, command)));
        };
        Ok(Self { name, reader, ended, len, count: 0, offset, foreign: None })
    }

    /// `pcap` or `pcapng`.
    pub fn format(&self) -> &'static str {
        match self.reader {
            Reader::Pcap(..) => "pcap",
            Reader::PcapNg(_) => "pcapng",
        }
    }

    /// What to call the file.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next packet; `None` at the end.
    ///
    /// # Errors
    /// If it cannot be read; so it will be again. At the end, if the gate cannot judge a packet's link type.
    pub fn next_packet(&mut self) -> Result<Option<Packet>, CaptureError> {
        loop {
            let offset = self.offset;
            let step = match &mut self.reader {
                Reader::Pcap(reader, link) => {
                    pcap_step((reader, *link), &mut self.offset, &self.ended)
                }
                Reader::PcapNg(reader) => reader.step(&mut self.offset),
            };
            match step {
                Ok(Step::Packet(packet)) => {
                    if let (Err(why), None) = (&packet.link, &self.foreign) {
                        self.foreign = Some(self.broken(offset, why.clone()));
                    }
                    self.count += 1;
                    return Ok(Some(packet));
                }
                Ok(Step::Other) => {}
                Ok(Step::End) => return self.foreign.take().map_or(Ok(None), Err),
                Err(why) => return Err(self.broken(self.offset, why)),
            }
        }
    }

    /// What is wrong with the next packet, which begins there.
    fn broken(&self, offset: u64, why: String) -> CaptureError {
        CaptureError::Packet { name: self.name.clone(), number: self.count + 1, offset, why }
    }
}

fn is_pcap(first: &[u8]) -> bool {
    let magic: Option<[u8; 4]> = first.get(..4).and_then(|bytes| bytes.try_into().ok());
    // Microseconds and nanoseconds, written by machines of either byte order.
    const MAGICS: [u32; 2] = [0xa1b2_c3d4, 0xa1b2_3c4d];
    magic.is_some_and(|magic| {
        MAGICS.contains(&u32::from_be_bytes(magic)) || MAGICS.contains(&u32::from_le_bytes(magic))
    })
}

/// The library's own conversion refuses a packet that was longer than the snap length: the raw record is
/// converted here.
fn pcap_step(
    (reader, link): (&mut PcapReader<Source>, Link),
    offset: &mut u64,
    ended: &Cell<bool>,
) -> Result<Step, String> {
    let resolution = reader.header().ts_resolution;
    let record = match reader.next_raw_packet() {
        None => return Ok(Step::End),
        Some(record) => record.map_err(|error| explain(&error, ended.get()))?,
    };
    if record.incl_len > CAPTURED_LEN_MAX {
        return Err(format!(
            "its length, {} bytes, is wrong: the file is damaged here",
            record.incl_len
        ));
    }
    let nanos = match resolution {
        TsResolution::MicroSecond => u64::from(record.ts_frac) * 1000,
        TsResolution::NanoSecond => u64::from(record.ts_frac),
    };
    *offset += PCAP_RECORD_HEADER_LEN + u64::from(record.incl_len);
    Ok(Step::Packet(Packet {
        time: Some(Duration::from_secs(record.ts_sec.into()) + Duration::from_nanos(nanos)),
        wire_len: record.orig_len.max(record.incl_len),
        data: record.data.into_owned(),
        link: Ok(link),
    }))
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;
    use std::io::Cursor;

    use pcap_file::Endianness;
    use pcap_file::pcap::{PcapHeader, PcapWriter, RawPcapPacket};
    use pcap_file::pcapng::PcapNgWriter;
    use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
    use pcap_file::pcapng::blocks::interface_description::{
        InterfaceDescriptionBlock, InterfaceDescriptionOption,
    };

    use super::*;

    /// How many packets can be read of a file.
    fn read(bytes: &[u8]) -> Result<usize, CaptureError> {
        let source = Source::of(Box::new(Cursor::new(bytes.to_vec())), Some(bytes.len() as u64));
        let mut capture = Capture::new("test".into(), source, "")?;
        let mut count = 0;
        while capture.next_packet()?.is_some() {
            count += 1;
            assert!(count <= bytes.len(), "it does not end");
        }
        Ok(count)
    }

    fn pcap() -> Vec<u8> {
        let mut writer = PcapWriter::with_header(Vec::new(), PcapHeader::default()).unwrap();
        for len in [60, 0, 14] {
            let data = vec![0x5a; len];
            let packet = RawPcapPacket {
                ts_sec: 1,
                ts_frac: 999_999,
                incl_len: len as u32,
                orig_len: 1500,
                data: Cow::Borrowed(&data),
            };
            writer.write_raw_packet(&packet).unwrap();
        }
        writer.into_writer()
    }

    fn pcapng() -> Vec<u8> {
        let mut writer = PcapNgWriter::with_endianness(Vec::new(), Endianness::Little).unwrap();
        let mut interface = InterfaceDescriptionBlock::new(DataLink::ETHERNET, 0);
        interface.options = vec![
            InterfaceDescriptionOption::IfName("eth1".into()),
            InterfaceDescriptionOption::IfTsResol(9),
        ];
        writer.write_pcapng_block(interface).unwrap();
        for len in [60, 0, 15] {
            let packet = EnhancedPacketBlock {
                interface_id: 0,
                timestamp: Duration::from_secs(1),
                original_len: 1500,
                data: Cow::Owned(vec![0x5a; len]),
                options: vec![EnhancedPacketOption::Comment("a comment".into())],
            };
            writer.write_pcapng_block(packet).unwrap();
        }
        writer.into_inner()
    }

    /// A little-endian block.
    fn block(kind: u32, body: &[u8]) -> Vec<u8> {
        let len = (body.len() as u32 + 12).to_le_bytes();
        [&kind.to_le_bytes(), &len[..], body, &len].concat()
    }

    #[test]
    fn what_the_format_leaves_open_is_no_damage() {
        let section =
            block(0x0a0d_0d0a, b"\x4d\x3c\x2b\x1a\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff");
        let packet = block(6, &[&[0; 12][..], &[14, 0, 0, 0, 14, 0, 0, 0], &[0x5a; 16]].concat());
        let ethernet = [1, 0, 0, 0, 0, 0, 0, 0];
        let unended = b"\x09\0\x01\0\x06\0\0\0";
        let latin = b"\x03\0\x06\0R\xe9seau\0\0\0\0\0\0";
        let custom = block(0xbad, &vec![0; 9 << 20]);
        let short = b"\x09\0\0\0\x0e\0\x04\0\0\0\0\0";
        for (options, between) in
            [(&unended[..], vec![]), (latin, vec![]), (short, vec![]), (b"", custom)]
        {
            let interface = block(1, &[&ethernet[..], options].concat());
            let file = [section.clone(), interface, between, packet.clone()].concat();
            assert_eq!(read(&file).unwrap(), 1, "{options:?}");
        }
    }

    #[test]
    fn whatever_a_file_holds_reading_it_ends_without_a_panic() {
        // xorshift64
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        for good in [pcap(), pcapng()] {
            assert_eq!(read(&good).unwrap(), 3);
            let mut broken = 0;
            for _ in 0..1500 {
                let mut bytes = good.clone();
                for _ in 0..=random(4) {
                    let at = random(bytes.len());
                    bytes[at] = [0, 1, 2, 4, 6, 12, 0x7f, 0xff, random(256) as u8][random(9)];
                }
                bytes.truncate(good.len() - random(8));
                broken += usize::from(read(&bytes).is_err());
            }
            assert!(broken > 100, "{broken}");
        }
    }
}
