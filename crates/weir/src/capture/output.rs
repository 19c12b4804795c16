//! The files that a capture writes.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::ENHANCED_PACKET_BLOCK;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::interface_statistics::{
    InterfaceStatisticsBlock, InterfaceStatisticsOption,
};
use pcap_file::pcapng::blocks::section_header::{SectionHeaderBlock, SectionHeaderOption};
use pcap_file::{DataLink, Endianness, PcapError};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use weir_bpf::tap::{Counts, Tapped};

use super::args::{CaptureArgs, Rotation};
use crate::clock;
use crate::error::{Error, Result};

/// What is written at once, in bytes.
const PIECE: usize = 1 << 18;
/// `if_tsresol`: timestamps in nanoseconds, as the library writes them.
const NANOSECONDS: u8 = 9;
/// Where a VLAN tag is in a frame: behind both addresses.
const TAG_AT: usize = 12;

/// What each file says of the interface.
#[derive(Clone, Debug)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// What its packets begin with.
    pub link: DataLink,
    /// How much of a packet is copied, in bytes.
    pub snaplen: u32,
    /// Which packets.
    pub filter: Option<String>,
}

/// Where packets go.
pub struct Output {
    path: PathBuf,
    interface: Interface,
    begun: Duration,
    rotation: Rotation,
    /// How many files there have been, and those that are there.
    number: u32,
    files: VecDeque<PathBuf>,
    file: File,
    opened: Instant,
    /// What is not in the file yet: whole blocks.
    blocks: PcapNgWriter<Vec<u8>>,
    /// What is in it, in bytes: whole blocks, too.
    written: u64,
    packets: u64,
    tagged: Vec<u8>,
}

impl Output {
    /// Opens the first file.
    pub fn create(args: &CaptureArgs, path: &Path, interface: Interface) -> Result<Self> {
        let rotation = args.rotation;
        let mut files = VecDeque::new();
        Ok(Self {
            path: path.to_owned(),
            file: open(path, &rotation, 1, &mut files)?,
            blocks: headers(&interface).map_err(|error| failed(path, error))?,
            begun: since_epoch(),
            opened: Instant::now(),
            interface,
            rotation,
            number: 1,
            files,
            written: 0,
            packets: 0,
            tagged: Vec::new(),
        })
    }

    /// How many packets have been written.
    pub fn packets(&self) -> u64 {
        self.packets
    }

    /// How many files there have been.
    pub fn files(&self) -> u32 {
        self.number
    }

    /// Adds a packet.
    ///
    /// # Errors
    /// If it cannot be written; the file then ends with the last packet before that could.
    pub fn packet(&mut self, packet: &Tapped<'_>) -> io::Result<()> {
        let (data, tag_len) = match packet.vlan {
            Some(tag) if packet.data.len() >= TAG_AT => {
                let (addresses, rest) = packet.data.split_at(TAG_AT);
                self.tagged.clear();
                self.tagged.extend([addresses, &tag, rest].iter().copied().flatten());
                (self.tagged.as_slice(), 4)
            }
            _ => (packet.data, 0),
        };
        let block = EnhancedPacketBlock {
            interface_id: 0,
            timestamp: packet.time,
            original_len: packet.wire_len + tag_len,
            data: Cow::Borrowed(data),
            options: vec![],
        };
        self.blocks.write_pcapng_block(block).map_err(as_io)?;
        self.packets += 1;
        if self.blocks.get_ref().len() >= PIECE { self.flush() } else { Ok(()) }
    }

    /// Writes what has been added, or as much of it as can be.
    pub fn flush(&mut self) -> io::Result<()> {
        let blocks = self.blocks.get_mut();
        let (mut done, mut result) = (0, Ok(()));
        while done < blocks.len() && result.is_ok() {
            match self.file.write(&blocks[done..]) {
                Ok(0) => result = Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => result = Err(error),
            }
        }
        if result.is_err() {
            let (whole, missing) = divide(blocks, done);
            (done, self.packets) = (whole, self.packets - missing);
        }
        self.written += done as u64;
        blocks.clear();
        // To the file behind standard output somebody else may write, too.
        if result.is_err()
            && let Some(path) = self.files.back()
        {
            // Half a block makes readers complain.
            let _ = self.file.set_len(self.written);
            let _ = self.file.seek(SeekFrom::Start(self.written));
            // Nor can they read an empty one, which a rotation has made anew.
            if self.written == 0 && self.rotation.rotates() {
                let _ = std::fs::remove_file(path);
            }
        }
        result
    }

    /// Whether it is time for another file.
    pub fn is_due(&self) -> bool {
        let Rotation { rotate_size: size, rotate_time: time, .. } = self.rotation;
        let bytes = self.written + self.blocks.get_ref().len() as u64;
        size.is_some_and(|size| bytes >= size)
            || time.is_some_and(|time| self.opened.elapsed() >= time)
    }

    /// Ends the file, and begins another.
    pub fn rotate(&mut self, counts: &Counts) -> Result<()> {
        self.finish(counts)?;
        self.number += 1;
        self.file = open(&self.path, &self.rotation, self.number, &mut self.files)?;
        self.opened = Instant::now();
        self.blocks = headers(&self.interface).map_err(|error| failed(&self.path, error))?;
        self.written = 0;
        Ok(())
    }

    /// Ends the file, with what was counted since the capture began.
    pub fn finish(&mut self, counts: &Counts) -> Result<()> {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let now = nanos(since_epoch());
        let statistics = InterfaceStatisticsBlock {
            interface_id: 0,
            timestamp: now,
            options: vec![
                InterfaceStatisticsOption::IsbStartTime(nanos(self.begun)),
                InterfaceStatisticsOption::IsbEndTime(now),
                InterfaceStatisticsOption::IsbIfRecv(counts.seen),
                InterfaceStatisticsOption::IsbFilterAccept(counts.matched),
                InterfaceStatisticsOption::IsbIfDrop(counts.paused),
                InterfaceStatisticsOption::IsbOsDrop(counts.dropped),
                InterfaceStatisticsOption::IsbUsrDeliv(self.packets),
            ],
        };
        let written = self.blocks.write_pcapng_block(statistics).map_err(as_io);
        written.and_then(|_| self.flush()).map_err(|error| self.failed(error))
    }

    /// What an error of this output means.
    pub fn failed(&self, source: io::Error) -> Error {
        failed(self.files.back().unwrap_or(&self.path), source)
    }
}

/// Of these blocks, if so many bytes of them are in the file: where the last whole one ends, and how many packets are
/// behind that.
fn divide(blocks: &[u8], bytes: usize) -> (usize, u64) {
    let number = |at: usize| Some(u32::from_be_bytes(*blocks.get(at..)?.first_chunk()?));
    let (mut at, mut whole, mut missing) = (0, 0, 0);
    while let (Some(kind), Some(length)) = (number(at), number(at + 4)) {
        at += length as usize;
        if at <= bytes {
            whole = at;
        } else {
            missing += u64::from(kind == ENHANCED_PACKET_BLOCK);
        }
    }
    (whole, missing)
}

fn failed(path: &Path, source: io::Error) -> Error {
    if path == Path::new("-") {
        return Error::system("write to standard output", source);
    }
    Error::file("write", path, source)
}

fn since_epoch() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// The file of this number. What a capture holds is for its owner alone.
fn open(
    path: &Path,
    rotation: &Rotation,
    number: u32,
    files: &mut VecDeque<PathBuf>,
) -> Result<File> {
    if path == Path::new("-") {
        let stdout = io::stdout().as_fd().try_clone_to_owned();
        return stdout.map(File::from).map_err(|error| failed(path, error));
    }
    let rotates = rotation.rotates();
    let path = if rotates { numbered(path, number) } else { path.to_owned() };
    let file = if rotates {
        // Its name can be told beforehand: nothing that somebody has laid there is written to, or followed.
        let _ = std::fs::remove_file(&path);
        File::options().write(true).create_new(true).mode(0o600).open(&path)
    } else {
        open_named(&path)
    };
    let file = file.map_err(|error| failed(&path, error))?;
    files.push_back(path);
    while rotates && rotation.keep.is_some_and(|keep| files.len() > keep as usize) {
        if let Some(old) = files.pop_front()
            && let Err(source) = std::fs::remove_file(&old)
            && source.kind() != io::ErrorKind::NotFound
        {
            return Err(Error::file("remove", old, source));
        }
    }
    Ok(file)
}

/// A file that is named may be there. But a link is not followed where others may have laid it: the kernel refuses that
/// in directories such as /tmp alone, and where it is told to (`fs.protected_symlinks`).
fn open_named(path: &Path) -> io::Result<File> {
    let parent = path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    let dir = rustix::fs::open(parent, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let stat = rustix::fs::fstat(&dir)?;
    let is_ours = [0, rustix::process::geteuid().as_raw()].contains(&stat.st_uid);
    let follow =
        if is_ours && stat.st_mode & 0o022 == 0 { OFlags::empty() } else { OFlags::NOFOLLOW };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | follow;
    let name = path.file_name().unwrap_or(".".as_ref());
    match rustix::fs::openat(&dir, name, flags, Mode::RUSR | Mode::WUSR) {
        Err(Errno::LOOP) if !follow.is_empty() => Err(io::Error::other(
            "it is a symbolic link, in a directory that others may write to; name the file that is meant",
        )),
        file => Ok(file?.into()),
    }
}

/// `flood.pcapng` to `flood_00001_20261124193000.pcapng`.
fn numbered(path: &Path, number: u32) -> PathBuf {
    let part = |part: Option<&std::ffi::OsStr>| part.map(|it| it.to_string_lossy().into_owned());
    let stem = part(path.file_stem()).unwrap_or_default();
    let digits: String =
        clock::timestamp(SystemTime::now()).chars().filter(char::is_ascii_digit).collect();
    let extension = part(path.extension()).map(|it| format!(".{it}")).unwrap_or_default();
    path.with_file_name(format!("{stem}_{number:05}_{digits}{extension}"))
}

/// What a file begins with. In network order: the library writes times of 64 bits right in that one alone.
fn headers(interface: &Interface) -> io::Result<PcapNgWriter<Vec<u8>>> {
    let Interface { name, link, snaplen, filter } = interface;
    let application = concat!("weir ", env!("CARGO_PKG_VERSION"));
    let section = SectionHeaderBlock {
        endianness: Endianness::Big,
        options: vec![SectionHeaderOption::UserApplication(application.into())],
        ..Default::default()
    };
    let mut options = vec![
        InterfaceDescriptionOption::IfName(name.into()),
        InterfaceDescriptionOption::IfTsResol(NANOSECONDS),
    ];
    if let Some(filter) = filter {
        // 0: a text, in libpcap's grammar.
        let filter = [&[0], filter.as_bytes()].concat();
        options.push(InterfaceDescriptionOption::IfFilter(filter.into()));
    }
    let description = InterfaceDescriptionBlock { linktype: *link, snaplen: *snaplen, options };
    let mut blocks =
        PcapNgWriter::with_section_header(Vec::with_capacity(2 * PIECE), section).map_err(as_io)?;
    blocks.write_pcapng_block(description).map_err(as_io)?;
    Ok(blocks)
}

fn as_io(error: PcapError) -> io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    /// Whoever may write to the directory knows the names of a rotation beforehand.
    #[test]
    fn a_rotation_follows_no_link_that_somebody_has_laid() {
        let dir = tempfile::tempdir().unwrap();
        let (path, precious) = (dir.path().join("many.pcapng"), dir.path().join("precious"));
        std::fs::write(&precious, "kept").unwrap();
        let rotation = Rotation { rotate_size: Some(1), ..Rotation::default() };
        let mut files = VecDeque::new();
        // A name has the second in it, which may pass meanwhile.
        let laid = (1..100).find(|number| {
            let laid = numbered(&path, *number);
            symlink(&precious, &laid).unwrap();
            open(&path, &rotation, *number, &mut files).unwrap().set_len(9).unwrap();
            files.back() == Some(&laid)
        });
        assert!(laid.is_some());
        assert_eq!(std::fs::read(&precious).unwrap(), b"kept");
        assert!(files.back().unwrap().symlink_metadata().unwrap().is_file());
    }

    #[test]
    fn a_named_file_is_no_link_that_somebody_else_may_have_laid() {
        let dir = tempfile::tempdir().unwrap();
        let (path, precious) = (dir.path().join("one.pcapng"), dir.path().join("precious"));
        let rotation = Rotation::default();
        let open = |path: &Path| open(path, &rotation, 1, &mut VecDeque::new()).map(drop);
        symlink(&precious, &path).unwrap();
        for (owner, mode, follows) in
            [(0, 0o755, true), (65534, 0o755, false), (0, 0o775, false), (0, 0o757, false)]
        {
            std::os::unix::fs::chown(dir.path(), Some(owner), None).unwrap();
            std::fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
            std::fs::write(&precious, "kept").unwrap();
            let opened = open(&path).map_err(|error| error.to_string());
            assert_eq!(opened.is_ok(), follows, "{owner} {mode:o} {opened:?}");
            let kept = std::fs::read(&precious).unwrap() == b"kept";
            assert_eq!(kept, !follows, "{owner} {mode:o}");
            open(&dir.path().join("another.pcapng")).unwrap();
        }
        let file = File::create(dir.path().join("by its descriptor")).unwrap();
        let number = file.as_fd().as_raw_fd();
        open(Path::new(&format!("/proc/self/fd/{number}"))).unwrap();
        assert!(open(Path::new("/")).is_err() && open(Path::new("..")).is_err());
    }
}
