//! Counters in memory that processes share.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicU64;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, memfd_create};

use super::mapping::Mapping;
use crate::error::{Error, Result};

/// Without these, whoever shrinks the file kills all who look at it (`SIGBUS`).
const FIXED_SIZE: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
const COUNTER_BYTES: usize = size_of::<AtomicU64>();
/// Longest array, in counters (8 MiB).
const MAX_LEN: usize = 1 << 20;

/// A fixed array of counters, zero at first, that another process of the same user can map by its
/// [`path`](SharedCounters::path). It lasts as long as someone has it open or mapped.
#[derive(Debug)]
pub struct SharedCounters {
    fd: OwnedFd,
    counters: Mapping,
    len: usize,
}

impl SharedCounters {
    /// Makes `len` counters; `name` shows up in `/proc/PID/maps`.
    ///
    /// # Errors
    /// [`Error::Refused`] unless `len` is 1 to 2^20; [`Error::System`] for want of memory.
    pub fn create(name: &str, len: usize) -> Result<Self> {
        if len == 0 || len > MAX_LEN {
            return Err(refused(format!("{len} counters were asked for")));
        }
        let failed = |errno| Error::system("create shared counters", name, errno);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = memfd_create(name, flags).map_err(failed)?;
        rustix::fs::ftruncate(&fd, (len * COUNTER_BYTES) as u64).map_err(failed)?;
        fcntl_add_seals(&fd, FIXED_SIZE | SealFlags::SEAL).map_err(failed)?;
        Self::map(fd, len, name)
    }

    /// Maps the counters that another process made; `path` is what its
    /// [`path`](SharedCounters::path) says.
    ///
    /// # Errors
    /// [`Error::System`] if it cannot be opened; [`Error::Refused`] if it is anything else than such
    /// counters.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let object = path.display().to_string();
        let failed = |source| Error::system("open shared counters", object.clone(), source);
        let file = File::options().read(true).write(true).open(path).map_err(failed)?;
        let bytes = file.metadata().map_err(failed)?.len();
        // Only memory files have seals.
        if !fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(FIXED_SIZE)) {
            return Err(refused(format!("{object} may change its size")));
        }
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let len = bytes / COUNTER_BYTES;
        if bytes % COUNTER_BYTES != 0 || len == 0 || len > MAX_LEN {
            return Err(refused(format!("{object} has {bytes} bytes")));
        }
        Self::map(file.into(), len, &object)
    }

    /// Of a file that is sealed at its length.
    fn map(fd: OwnedFd, len: usize, object: &str) -> Result<Self> {
        let counters = Mapping::of(&fd, len * COUNTER_BYTES)
            .map_err(|errno| Error::system("map shared counters", object, errno))?;
        Ok(Self { fd, counters, len })
    }

    /// Where another process of the same user opens these counters, while this one has them:
    /// `/proc/PID/fd/N`.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.fd.as_raw_fd()).into()
    }

    /// The counter of index `index`.
    ///
    /// # Panics
    /// If `index` is the number of counters or more, as a slice's index would.
    #[allow(unsafe_code)]
    pub fn get(&self, index: usize) -> &AtomicU64 {
        assert!(index < self.len, "counter {index} of {}", self.len);
        // SAFETY: `index` is less than `len`, so the counter lies within the mapping, which starts
        // at a page, is zeroed at birth, cannot shrink, and lives as long as `self`; other
        // processes change it by atomic operations.
        unsafe { self.counters.start::<AtomicU64>().add(index).as_ref() }
    }
}

fn refused(problem: String) -> Error {
    Error::refused(
        problem,
        format!("shared counters are a sealed memory file of 1 to {MAX_LEN} counters"),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use super::*;

    #[test]
    fn what_one_mapping_counts_the_other_sees() {
        let own = SharedCounters::create("weir-test", 1000).unwrap();
        let other = SharedCounters::open(own.path()).unwrap();
        assert_eq!((own.len, other.len), (1000, 1000));
        for index in [0, 511, 512, 999] {
            assert_eq!(other.get(index).load(Relaxed), 0);
            own.get(index).fetch_add(index as u64 + 1, Relaxed);
            assert_eq!(other.get(index).load(Relaxed), index as u64 + 1);
        }
        drop(own);
        assert_eq!(other.get(999).load(Relaxed), 1000);
    }

    #[test]
    #[should_panic(expected = "counter 2 of 2")]
    fn there_is_nothing_beyond_the_last() {
        SharedCounters::create("weir-test", 2).unwrap().get(2);
    }

    #[test]
    fn another_process_can_reach_it() {
        let own = SharedCounters::create("weir-test", 1).unwrap();
        own.get(0).store(0x4142_4344_4546_4748, Relaxed);
        let cat = std::process::Command::new("cat").arg(own.path()).output().unwrap();
        assert_eq!(cat.stdout, 0x4142_4344_4546_4748u64.to_ne_bytes());
    }

    #[test]
    fn the_size_is_fixed() {
        let own = SharedCounters::create("weir-test", 2).unwrap();
        for bytes in [0, 8, 4096] {
            assert!(rustix::fs::ftruncate(&own.fd, bytes).is_err(), "{bytes}");
        }
    }

    #[test]
    fn other_files_and_sizes_are_refused() {
        for len in [0, MAX_LEN + 1, usize::MAX] {
            let refused = SharedCounters::create("weir-test", len);
            assert!(matches!(refused, Err(Error::Refused { .. })), "{len}");
        }
        let memory = |bytes, seals| {
            let fd = memfd_create("weir-test", MemfdFlags::ALLOW_SEALING).unwrap();
            rustix::fs::ftruncate(&fd, bytes).unwrap();
            fcntl_add_seals(&fd, seals).unwrap();
            fd
        };
        for (bytes, seals) in
            [(8, SealFlags::empty()), (8, SealFlags::SHRINK), (12, FIXED_SIZE), (0, FIXED_SIZE)]
        {
            let fd = memory(bytes, seals);
            let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
            let refused = SharedCounters::open(path);
            assert!(matches!(refused, Err(Error::Refused { .. })), "{bytes} {seals:?}");
        }
        assert!(matches!(SharedCounters::open("/nonexistent"), Err(Error::System { .. })));
    }
}
