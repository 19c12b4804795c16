//! Files in this process's memory, which others may write, too.

use std::os::fd::AsFd;
use std::ptr::{NonNull, null_mut};

use rustix::io::Errno;
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};

/// Mapped as long as this lives.
#[derive(Debug)]
pub(crate) struct Mapping {
    at: NonNull<u8>,
    bytes: usize,
}

#[allow(unsafe_code)]
// SAFETY: a mapping belongs to the process, not to a thread; others write it anyway.
unsafe impl Send for Mapping {}

#[allow(unsafe_code)]
// SAFETY: as for `Send`; who reaches into it does so by volatile access or atomics.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Of a file that has at least so many bytes.
    #[allow(unsafe_code)]
    pub(crate) fn of(file: impl AsFd, bytes: usize) -> rustix::io::Result<Self> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping, placed by the kernel.
        let at = unsafe { mmap(null_mut(), bytes, access, MapFlags::SHARED, file, 0) }?;
        Ok(Self { at: NonNull::new(at.cast()).ok_or(Errno::NOMEM)?, bytes })
    }

    /// Where it begins: a page.
    pub(crate) fn start<T>(&self) -> NonNull<T> {
        self.at.cast()
    }
}

impl Drop for Mapping {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: mapped with this length; references into it do not outlive its owner.
        let unmapped = unsafe { munmap(self.at.as_ptr().cast(), self.bytes) };
        debug_assert!(unmapped.is_ok(), "{unmapped:?}");
    }
}
