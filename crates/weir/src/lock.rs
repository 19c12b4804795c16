//! One owner per interface: a lock that the kernel releases when its holder dies.

use std::fs;
use std::io::{Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use rustix::process::Signal;
use weir_bpf::sys::stat::Stat;

use crate::error::{Error, Result};
use crate::key::Key;
use crate::rundir::{RETRY_EVERY, RunDir, stays_locked};

/// How long a restoration by a guardian or `weir reset` may keep others waiting.
const RESTORATION_MAX: Duration = Duration::from_secs(5);

/// How long the file of a new holder may show the signature of one that is gone.
const SIGNING_MAX: Duration = Duration::from_millis(100);

/// Why a lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A daemon protects the interface.
    Protect,
    /// A guardian or `weir reset` puts knobs back, which takes milliseconds.
    Restore,
}

impl Purpose {
    fn word(self) -> &'static str {
        match self {
            Self::Protect => "protect",
            Self::Restore => "restore",
        }
    }
}

/// What came of trying to lock.
#[derive(Debug)]
pub enum Attempt {
    /// The lock is ours.
    Held(Lock),
    /// A daemon has it.
    Protected {
        /// The daemon, if it is seen from here.
        pid: Option<i32>,
    },
}

/// The exclusive lock of an interface; its file is removed with it.
#[derive(Debug)]
pub struct Lock {
    locked: OwnedFd,
    dir: Rc<RunDir>,
    key: Key,
}

impl Lock {
    /// Locks an interface. Waits for a restoration under way, not for a daemon.
    pub fn take(dir: &Rc<RunDir>, key: &Key, purpose: Purpose) -> Result<Attempt> {
        let name = key.lock_file();
        let begun = Instant::now();
        let is_over = |most| begun.elapsed() >= most;
        loop {
            let fd = match dir.open_lock_file(&name) {
                // To lock a file that is there takes no writing, and its file system may have become read-only.
                Err(error) if purpose == Purpose::Restore => {
                    dir.open_to_read(&name)?.ok_or(error)?
                }
                opened => opened?,
            };
            match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) if is_current(dir, &name, &fd) => {
                    let mut file = fs::File::from(fd);
                    // What was turned goes back also where nothing can be written any more.
                    if let Err(source) = sign(&mut file, purpose)
                        && purpose == Purpose::Protect
                    {
                        return Err(Error::file("write", dir.path_of(&name), source));
                    }
                    let locked = file.into();
                    return Ok(Attempt::Held(Self { locked, dir: Rc::clone(dir), key: *key }));
                }
                // Its last holder has removed the file between our opening and our locking it.
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => match holder(fd) {
                    Some((pid, Purpose::Protect)) => {
                        let pid = holder_of(dir, key, pid);
                        let most = match pid {
                            // Killed a moment ago.
                            Some(pid) if is_dying(pid) => RESTORATION_MAX,
                            Some(_) => Duration::ZERO,
                            // Not seen from here; or killed, and its successor has not signed yet.
                            None => SIGNING_MAX,
                        };
                        if is_over(most) {
                            return Ok(Attempt::Protected { pid });
                        }
                        std::thread::sleep(RETRY_EVERY);
                    }
                    // A restoration, or somebody who has not signed yet.
                    _ if !is_over(RESTORATION_MAX) => std::thread::sleep(RETRY_EVERY),
                    _ => return Err(stays_locked(&dir.path_of(&name))),
                },
                Err(errno) => {
                    return Err(Error::file("lock", dir.path_of(&name), errno));
                }
            }
        }
    }
}

impl Lock {
    /// Locks again for a daemon whose lock file somebody has removed; whether the lock is ours.
    pub fn keep(&mut self) -> Result<bool> {
        if is_current(&self.dir, &self.key.lock_file(), &self.locked) {
            return Ok(true);
        }
        match Self::take(&self.dir, &self.key, Purpose::Protect)? {
            Attempt::Held(again) => *self = again,
            Attempt::Protected { .. } => return Ok(false),
        }
        Ok(true)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        let name = self.key.lock_file();
        // Another file of its name is another holder's.
        if is_current(&self.dir, &name, &self.locked) {
            // While still locked: whoever opened the file meanwhile sees that it is not current.
            let _ = self.dir.remove(&name);
        }
    }
}

/// Who holds an interface's lock. Looks without touching the lock, and needs no privilege: a reader
/// that locked, were it for a moment, would be in the daemon's way.
///
/// Whoever has signed it is looked at first. The list of all locks is for a holder that is not seen by the number that it
/// signed with, as it is in a PID namespace of its own: any user can have that list take long, or lack a line, as it comes
/// by pages, each of which begins at the number of a line (`seq_read_iter`).
///
/// More than one only where the lock file's device cannot be told: anybody can hold a lock on a file
/// with the same inode number elsewhere, so [`holder_of`] looks for the process that is known.
pub fn holders_of(dir: &RunDir, key: &Key) -> Vec<i32> {
    let name = key.lock_file();
    let Some(inode) = dir.inode(&name) else { return Vec::new() };
    let device = dir.device();
    let holders_among = |locks: &str| -> Vec<i32> {
        locks.lines().filter_map(|line| whole_file_holder(line, device, inode)).collect()
    };
    let signed = dir.open_to_read(&name).ok().flatten().and_then(holder);
    if let Some((signer, _)) = signed
        && locks_of(signer).any(|locks| holders_among(&locks).contains(&signer))
    {
        return vec![signer];
    }
    holders_among(&all_locks().unwrap_or_default())
}

/// The locks of each file that a process has open, lines as of `/proc/locks`; none of one that may not be looked at.
fn locks_of(pid: i32) -> impl Iterator<Item = String> {
    let files = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    files.filter_map(|file| fs::read_to_string(file.path()).ok()).map(|info| {
        info.lines()
            .filter_map(|line| line.strip_prefix("lock:"))
            .fold(String::new(), |all, line| all + line + "\n")
    })
}

/// All that are seen from this PID namespace. The first page of them, some 80 lines, is of one moment.
fn all_locks() -> std::io::Result<String> {
    let mut locks = String::with_capacity(4 * rustix::param::page_size());
    fs::File::open("/proc/locks")?.read_to_string(&mut locks)?;
    Ok(locks)
}

/// The holder that calls itself by this number, by its number here: it may be in a PID namespace of its own. `None` if
/// there is no such holder, or it is not seen from this PID namespace.
pub fn holder_of(dir: &RunDir, key: &Key, own: i32) -> Option<i32> {
    let calls_itself_so = |pid: &i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let innermost = numbers.and_then(|numbers| numbers.split_ascii_whitespace().last());
        innermost.is_some_and(|number| number.parse() == Ok(own))
    };
    holders_of(dir, key).into_iter().find(calls_itself_so)
}

/// Whether a process is about to end by `kill -9`: it holds what it has until the kernel has taken that away, which takes
/// some time of one with BPF programs.
fn is_dying(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = status.lines().find_map(|line| line.strip_prefix("SigPnd:"));
    let pending = pending.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    let killed = 1 << (Signal::KILL.as_raw() - 1);
    pending.is_some_and(|pending| pending & killed != 0)
        || Stat::of(pid).is_none_or(|stat| stat.is_ending())
}

/// From a line of `/proc/locks`: `1: FLOCK ADVISORY WRITE 1234 fe:00:5678 0 EOF`, with the device in
/// hexadecimal digits.
fn whole_file_holder(line: &str, device: Option<(u32, u32)>, inode: u64) -> Option<i32> {
    let fields: Vec<&str> = line.split_ascii_whitespace().collect();
    let [_, "FLOCK", _, "WRITE", holder, file, ..] = fields[..] else { return None };
    let [major, minor, file_inode] = file.split(':').collect::<Vec<_>>()[..] else { return None };
    let number = |digits| u32::from_str_radix(digits, 16).ok();
    let file_device = (number(major)?, number(minor)?);
    let same = file_inode.parse() == Ok(inode) && device.is_none_or(|device| device == file_device);
    if same { holder.parse().ok() } else { None }
}

fn is_current(dir: &RunDir, name: &str, fd: &OwnedFd) -> bool {
    rustix::fs::fstat(fd).is_ok_and(|stat| dir.inode(name) == Some(stat.st_ino))
}

/// Long enough for any process number and purpose.
const SIGNATURE_CHARS: usize = 24;

/// Writes into the locked file who holds it and why. Over what the last holder has written, not in a file that
/// was emptied: where the file system is full, the place that this gives back may be another's at once.
fn sign(file: &mut fs::File, purpose: Purpose) -> std::io::Result<()> {
    let text = format!("{} {}", std::process::id(), purpose.word());
    let line = format!("{text:<SIGNATURE_CHARS$}\n");
    file.rewind()?;
    file.write_all(line.as_bytes())?;
    file.set_len(line.len() as u64)
}

fn holder(fd: OwnedFd) -> Option<(i32, Purpose)> {
    let mut text = String::new();
    fs::File::from(fd).read_to_string(&mut text).ok()?;
    let (pid, word) = text.trim_end().split_once(' ')?;
    let purpose =
        [Purpose::Protect, Purpose::Restore].into_iter().find(|purpose| purpose.word() == word)?;
    Some((pid.parse().ok()?, purpose))
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CpuSet, sched_setaffinity};
    use weir_bpf::units::IfIndex;

    use super::*;
    use tempfile::TempDir;

    #[test]
    fn a_lock_has_one_holder_who_is_named() {
        let scratch = TempDir::new().unwrap();
        let dir = Rc::new(RunDir::create(scratch.path()).unwrap());
        let key = Key { netns: 1, ifindex: IfIndex(2) };
        let me = i32::try_from(std::process::id()).unwrap();

        assert_eq!(holders_of(&dir, &key), [] as [i32; 0]);
        let Attempt::Held(lock) = Lock::take(&dir, &key, Purpose::Protect).unwrap() else {
            panic!("not held");
        };
        assert_eq!(holders_of(&dir, &key), [me]);
        let Attempt::Protected { pid } = Lock::take(&dir, &key, Purpose::Restore).unwrap() else {
            panic!("held twice");
        };
        assert_eq!(pid, Some(me));

        drop(lock);
        assert_eq!(holders_of(&dir, &key), [] as [i32; 0]);
        assert_eq!(dir.names().unwrap(), [] as [&str; 0]);
    }

    /// The kernel lists locks by the CPU where they were taken; a line after those that come and go may go unlisted.
    #[test]
    fn a_holder_is_seen_beside_locks_that_come_and_go() {
        use std::sync::atomic::{AtomicBool, Ordering};

        let scratch = TempDir::new().unwrap();
        let dir = Rc::new(RunDir::create(scratch.path()).unwrap());
        let key = Key { netns: 1, ifindex: IfIndex(2) };
        let other = |at| fs::File::create(scratch.path().join(format!("{at}"))).unwrap();
        let (others, done) = ([0, 1, 2, 3].map(other), AtomicBool::new(false));
        let stay_on = |cpu| {
            let mut cpus = CpuSet::new();
            cpus.set(cpu);
            let _ = sched_setaffinity(None, &cpus);
        };
        let unseen = std::thread::scope(|scope| {
            scope.spawn(|| {
                stay_on(0);
                while !done.load(Ordering::Relaxed) {
                    others.iter().for_each(|other| other.lock().unwrap());
                    others.iter().for_each(|other| other.unlock().unwrap());
                }
            });
            stay_on(1);
            let lock = Lock::take(&dir, &key, Purpose::Protect).unwrap();
            assert!(matches!(lock, Attempt::Held(_)));
            let unseen = || (0..5_000).filter(|_| holders_of(&dir, &key).is_empty()).count();
            let as_signed = unseen();
            // As by the number of another PID namespace: all locks are listed.
            fs::write(scratch.path().join(key.lock_file()), "4194304 protect\n").unwrap();
            let unseen = [as_signed, unseen()];
            done.store(true, Ordering::Relaxed);
            unseen
        });
        assert_eq!(unseen, [0, 0]);
    }

    #[test]
    fn the_last_holders_signature_is_written_over() {
        let scratch = TempDir::new().unwrap();
        let dir = Rc::new(RunDir::create(scratch.path()).unwrap());
        let key = Key { netns: 1, ifindex: IfIndex(2) };
        let path = scratch.path().join(key.lock_file());
        // A daemon's that was killed: of this version, and of one that wrote no more than it had to.
        for left in ["4194304 protect         \n", "1 protect\n", "", &"x".repeat(5000)] {
            fs::write(&path, left).unwrap();
            let Attempt::Held(_lock) = Lock::take(&dir, &key, Purpose::Restore).unwrap() else {
                panic!("not held");
            };
            let fd = dir.open_lock_file(&key.lock_file()).unwrap();
            let me = i32::try_from(std::process::id()).unwrap();
            assert_eq!(holder(fd), Some((me, Purpose::Restore)), "{left}");
        }
    }

    #[test]
    fn a_signature_of_one_that_is_gone_is_not_believed_at_once() {
        let scratch = TempDir::new().unwrap();
        let dir = Rc::new(RunDir::create(scratch.path()).unwrap());
        let key = Key { netns: 1, ifindex: IfIndex(2) };
        let take = || Lock::take(&dir, &key, Purpose::Protect).unwrap();
        // A thread that is released late, or a child that another test has just forked, holds it for longer.
        let is_waited_for = || {
            fs::write(scratch.path().join(key.lock_file()), "4194304 protect\n").unwrap();
            let fd = dir.open_lock_file(&key.lock_file()).unwrap();
            rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive).unwrap();
            assert!(matches!(take(), Attempt::Protected { pid: None }));

            let restores = std::thread::spawn(|| {
                std::thread::sleep(SIGNING_MAX / 4);
                drop(fd);
            });
            let taken = take();
            restores.join().unwrap();
            matches!(taken, Attempt::Held(_))
        };
        assert!((0..20).any(|_| is_waited_for()));
    }

    #[test]
    fn lines_of_proc_locks_are_understood() {
        let holder = |line| whole_file_holder(line, Some((0xfe, 0x1a)), 13393);
        assert_eq!(holder("5: FLOCK  ADVISORY  WRITE 708 fe:1a:13393 0 EOF"), Some(708));
        assert_eq!(holder("5: FLOCK  ADVISORY  WRITE 708 fe:1a:13394 0 EOF"), None);
        assert_eq!(holder("5: FLOCK  ADVISORY  WRITE 708 fe:1b:13393 0 EOF"), None);
        assert_eq!(holder("5: FLOCK  ADVISORY  WRITE 708 00:1a:13393 0 EOF"), None);
        assert_eq!(holder("5: -> FLOCK ADVISORY WRITE 708 fe:1a:13393 0 EOF"), None);
        assert_eq!(holder("5: POSIX ADVISORY WRITE 708 fe:1a:13393 0 EOF"), None);
        assert_eq!(holder("5: FLOCK  ADVISORY  WRITE 708 <none>:0 0 EOF"), None);
        assert_eq!(holder(""), None);
        // Where the device cannot be told, the inode number has to do.
        let line = "5: FLOCK  ADVISORY  WRITE 708 00:1b:13393 0 EOF";
        assert_eq!(whole_file_holder(line, None, 13393), Some(708));
    }
}
