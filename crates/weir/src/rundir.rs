//! `/run/weir`: the directory that holds locks, state and status.
//!
//! What stands in it decides which knobs a root process turns, so nobody but root may have a hand in
//! it: the directory is checked once, held open, and every file is reached from that descriptor
//! without following symbolic links.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{
    AtFlags, CWD, Dir, FileType, FlockOperation, Mode, OFlags, RenameFlags, Stat,
    StatVfsMountFlags, StatxFlags,
};
use rustix::io::Errno;

use crate::error::{Error, Result};

/// Where the daemon keeps its files.
pub const RUN_DIR: &str = "/run/weir";

/// Root's alone: the status names tables, chains, services and limits, which others cannot read elsewhere.
pub const PRIVATE: Mode = Mode::from_raw_mode(0o600);

const DIRECTORY_MODE: Mode = Mode::from_raw_mode(0o755);
/// Far more than weir ever writes into one file.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// How long a reader waits for whoever holds a file's lock. A writer needs less than a millisecond.
const LOCKED_MAX: Duration = Duration::from_secs(1);
/// How often a lock is tried.
pub(crate) const RETRY_EVERY: Duration = Duration::from_millis(10);

/// The open, checked directory.
#[derive(Debug)]
pub struct RunDir {
    fd: OwnedFd,
    path: PathBuf,
}

impl RunDir {
    /// Opens the directory, after making it if need be.
    ///
    /// # Errors
    /// If it is not a directory that root alone can change.
    pub fn create(path: &Path) -> Result<Self> {
        let made = match rustix::fs::mkdirat(CWD, path, DIRECTORY_MODE) {
            Ok(()) => true,
            Err(Errno::EXIST) => false,
            Err(errno) => return Err(unmade(path, errno)),
        };
        let dir = Self::open(path)?.ok_or_else(|| Error::file("open", path, Errno::NOENT))?;
        if made {
            // The umask may have taken bits that readers of the status need.
            rustix::fs::fchmod(&dir.fd, DIRECTORY_MODE)
                .map_err(|errno| Error::file("set the mode of", path, errno))?;
        }
        Ok(dir)
    }

    /// Opens the directory; `None` if there is none.
    ///
    /// # Errors
    /// If it is not a directory that root alone can change.
    pub fn open(path: &Path) -> Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = match rustix::fs::openat(CWD, path, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Err(untrusted(path, "is not a directory"));
            }
            Err(errno) => return Err(Error::file("open", path, errno)),
        };
        let stat = rustix::fs::fstat(&fd).map_err(|errno| Error::file("examine", path, errno))?;
        check_owner(path, &stat)?;
        Ok(Some(Self { fd, path: path.into() }))
    }

    /// A file's contents; `None` if there is no such file.
    ///
    /// # Errors
    /// If it is not a plain file that root alone can change, is too long to be weir's, or stays locked.
    pub fn read(&self, name: &str) -> Result<Option<String>> {
        let path = self.path_of(name);
        let deadline = Instant::now() + LOCKED_MAX;
        let file = loop {
            let Some(fd) = self.open_to_read(name)? else { return Ok(None) };
            // A locked file has been replaced since it was opened, and its writer writes the next one there.
            match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockShared) {
                Err(Errno::AGAIN) if Instant::now() < deadline => std::thread::sleep(RETRY_EVERY),
                Err(Errno::AGAIN) => return Err(stays_locked(&path)),
                // Not every file system has locks.
                _ => break File::from(fd),
            }
        };
        let mut text = String::new();
        let read = (&file).take(FILE_BYTES_MAX).read_to_string(&mut text);
        unlock(&file);
        read.map_err(|source| Error::file("read", path, source))?;
        Ok(Some(text))
    }

    pub(crate) fn open_to_read(&self, name: &str) -> Result<Option<OwnedFd>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let path = self.path_of(name);
        let fd = match rustix::fs::openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(untrusted(&path, "is a symbolic link")),
            Err(Errno::ACCESS) if !rustix::process::geteuid().is_root() => {
                return Err(Error::refused(
                    format!("{} is root's alone", path.display()),
                    "run it as root",
                ));
            }
            Err(errno) => return Err(Error::file("open", &path, errno)),
        };
        let stat = rustix::fs::fstat(&fd).map_err(|errno| Error::file("examine", &path, errno))?;
        check_file(&path, &stat)?;
        Ok(Some(fd))
    }

    /// How long ago a file was written; `None` if there is none, or the clock has been set back since.
    pub fn age(&self, name: &str) -> Option<Duration> {
        let stat = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let (secs, nanos) = (stat.st_mtime.try_into().ok()?, stat.st_mtime_nsec.try_into().ok()?);
        let written = SystemTime::UNIX_EPOCH.checked_add(Duration::new(secs, nanos))?;
        SystemTime::now().duration_since(written).ok()
    }

    /// Whether another file of so many bytes has room and may be written; not every file system tells of its room.
    pub fn has_room_for(&self, bytes: usize) -> bool {
        rustix::fs::fstatvfs(&self.fd).map_or(true, |of| {
            let writable = !of.f_flag.contains(StatVfsMountFlags::RDONLY);
            let free = of.f_bavail.saturating_mul(of.f_frsize);
            let fits = of.f_blocks == 0 || free >= bytes as u64;
            writable && fits && (of.f_files == 0 || of.f_favail > 0)
        })
    }

    /// Replaces a file: readers see the old contents or the new, never a part. A file has one writer
    /// at a time: whoever holds the interface's lock.
    ///
    /// # Errors
    /// When the file system refuses; the old file is then still there.
    pub fn write(&self, name: &str, mode: Mode, contents: &[u8]) -> Result<()> {
        let temporary = temporary(name);
        let path = self.path_of(&temporary);
        let open = || {
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            rustix::fs::openat(&self.fd, temporary.as_str(), flags, mode)
        };
        let fd = match open() {
            // Left by a process that was killed while it wrote.
            Err(Errno::EXIST) => {
                self.unlink(&temporary)?;
                open()
            }
            other => other,
        };
        let fd = fd.map_err(|errno| Error::file("create", &path, errno))?;
        rustix::fs::fchmod(&fd, mode)
            .map_err(|errno| Error::file("set the mode of", &path, errno))?;
        let written = File::from(fd)
            .write_all(contents)
            .map_err(|source| Error::file("write", path, source))
            .and_then(|()| {
                rustix::fs::renameat(&self.fd, temporary.as_str(), &self.fd, name)
                    .map_err(|errno| Error::file("replace", self.path_of(name), errno))
            });
        if written.is_err() {
            self.unlink(&temporary)?;
        }
        written
    }

    /// As [`RunDir::write`], of a file that is replaced each second: its predecessor is kept, and takes its place the
    /// next time. To make a file and to remove one takes longer than to write it.
    pub fn rewrite(&self, name: &str, mode: Mode, contents: &[u8]) -> Result<()> {
        // It is the first, somebody still reads the predecessor, or this file system does not exchange files.
        self.exchange(name, mode, contents).or_else(|_| self.write(name, mode, contents))
    }

    fn exchange(&self, name: &str, mode: Mode, contents: &[u8]) -> std::io::Result<()> {
        let spare = temporary(name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::openat(&self.fd, spare.as_str(), flags, mode)?);
        rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.write_all(contents)?;
        file.set_len(contents.len() as u64)?;
        // It is whole, and nobody waits for a writer that is stopped from here on.
        unlock(&file);
        let exchange = RenameFlags::EXCHANGE;
        Ok(rustix::fs::renameat_with(&self.fd, spare.as_str(), &self.fd, name, exchange)?)
    }

    /// Removes a file, its predecessor, and what a killed writer may have left of its successor; that there is none is
    /// no error.
    pub fn remove(&self, name: &str) -> Result<()> {
        self.unlink(name)?;
        self.unlink(&temporary(name))
    }

    fn unlink(&self, name: &str) -> Result<()> {
        match rustix::fs::unlinkat(&self.fd, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(Error::file("remove", self.path_of(name), errno)),
        }
    }

    /// Names of the files in the directory, without hidden ones, sorted.
    pub fn names(&self) -> Result<Vec<String>> {
        let failed = |errno| Error::file("list", &self.path, errno);
        let mut names = Vec::new();
        for entry in Dir::read_from(&self.fd).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy();
            if !name.starts_with('.') {
                names.push(name.into_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Opens a file to be locked, making it if need be.
    pub(crate) fn open_lock_file(&self, name: &str) -> Result<OwnedFd> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let path = self.path_of(name);
        let fd = rustix::fs::openat(&self.fd, name, flags, PRIVATE)
            .map_err(|errno| unmade(&path, errno))?;
        let stat = rustix::fs::fstat(&fd).map_err(|errno| Error::file("examine", &path, errno))?;
        check_file(&path, &stat)?;
        Ok(fd)
    }

    /// Inode of a file by name; `None` if there is none.
    pub(crate) fn inode(&self, name: &str) -> Option<u64> {
        let stat = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        Some(stat.st_ino)
    }

    /// The file system's own device number, as `/proc/locks` has it; `None` if it cannot be told.
    ///
    /// Not the one that stat(2) tells, which on btrfs is the subvolume's and on overlayfs may be a
    /// lower layer's: the mount table names the device of the superblock (`show_mountinfo()`), and so
    /// does `/proc/locks` (`lock_get_status()`).
    pub(crate) fn device(&self) -> Option<(u32, u32)> {
        let (flags, wanted) = (AtFlags::EMPTY_PATH, StatxFlags::MNT_ID);
        let stat = rustix::fs::statx(&self.fd, "", flags, wanted).ok()?;
        let mounts = std::fs::read_to_string("/proc/thread-self/mountinfo").ok()?;
        mounts.lines().find_map(|line| mount_device(line, stat.stx_mnt_id))
    }

    /// A file's full name, for messages.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// From a line of `/proc/PID/mountinfo`: `36 35 98:0 /mnt1 /mnt2 rw,noatime ...`.
fn mount_device(line: &str, mount: u64) -> Option<(u32, u32)> {
    let mut fields = line.split_ascii_whitespace();
    let id: u64 = fields.next()?.parse().ok()?;
    let (major, minor) = fields.nth(1)?.split_once(':')?;
    if id == mount { Some((major.parse().ok()?, minor.parse().ok()?)) } else { None }
}

/// Closing alone does not unlock: a child that has not begun its program has it open, too.
fn unlock(file: &File) {
    let _ = rustix::fs::flock(file, FlockOperation::Unlock);
}

/// What a file is called until it is complete.
fn temporary(name: &str) -> String {
    format!(".{name}.tmp")
}

fn check_owner(path: &Path, stat: &Stat) -> Result<()> {
    if stat.st_uid != 0 {
        return Err(untrusted(path, &format!("belongs to uid {}, not to root", stat.st_uid)));
    }
    if stat.st_mode & 0o022 != 0 {
        return Err(untrusted(path, "can be written by others than root"));
    }
    Ok(())
}

fn check_file(path: &Path, stat: &Stat) -> Result<()> {
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(untrusted(path, "is not a plain file"));
    }
    check_owner(path, stat)
}

/// Where the first files cannot be made, as in a container whose root is read-only.
fn unmade(path: &Path, errno: Errno) -> Error {
    match errno {
        Errno::ROFS => Error::refused(
            format!("cannot create {}: {errno}", path.display()),
            "weir keeps its record there: mount a tmpfs at /run (`mount -t tmpfs none /run`; docker: --tmpfs /run)",
        ),
        _ => Error::file("create", path, errno),
    }
}

fn untrusted(path: &Path, problem: &str) -> Error {
    Error::refused(
        format!("{} {problem}, so weir does not trust it", path.display()),
        "find out who made it, then remove it",
    )
}

/// Whoever locks one of weir's files does so for a moment, but for a daemon its interface's lock file.
pub(crate) fn stays_locked(path: &Path) -> Error {
    Error::refused(
        format!("{} stays locked", path.display()),
        "see who holds it with `fuser -v` on that file, and stop that process",
    )
}

#[cfg(test)]
#[path = "rundir_tests.rs"]
mod tests;
