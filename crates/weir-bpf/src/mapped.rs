//! BPF arrays in this process's memory.

use std::os::fd::BorrowedFd;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::mm::{MapFlags as MmapFlags, ProtFlags, mmap, munmap};

use crate::error::{Error, Result};

/// A BPF array in this process's memory.
pub(crate) struct Mapped<T> {
    at: NonNull<T>,
    len: usize,
}

#[allow(unsafe_code)]
// SAFETY: the mapping belongs to the process, not to a thread; the kernel writes it anyway.
unsafe impl<T> Send for Mapped<T> {}

#[allow(unsafe_code)]
// SAFETY: as for `Send`; all access is volatile, by plain integers.
unsafe impl<T> Sync for Mapped<T> {}

impl<T: Copy + Default> Mapped<T> {
    #[allow(unsafe_code)]
    pub(crate) fn of(map: BorrowedFd<'_>, len: usize) -> Result<Self> {
        // The kernel pads entries to eight bytes, and the types have that anyway.
        const { assert!(size_of::<T>().is_multiple_of(8)) };
        let bytes = len * size_of::<T>();
        // SAFETY: a new mapping, placed by the kernel, of a map that is at least so large.
        let at = unsafe {
            mmap(
                std::ptr::null_mut(),
                bytes,
                ProtFlags::READ | ProtFlags::WRITE,
                MmapFlags::SHARED,
                map,
                0,
            )
        };
        let at = at.map_err(|errno| Error::system("map", "the kernel half's counters", errno))?;
        let at = NonNull::new(at.cast()).ok_or_else(|| {
            Error::refused(
                "the kernel half's counters were mapped at address 0",
                "this is a defect of weir",
            )
        })?;
        Ok(Self { at, len })
    }

    /// How many entries.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.len).unwrap_or(u32::MAX)
    }

    fn place(&self, number: u32) -> Option<*mut T> {
        let number = number as usize;
        (number < self.len).then(|| self.at.as_ptr().wrapping_add(number))
    }

    #[allow(unsafe_code)]
    pub(crate) fn read(&self, number: u32) -> T {
        // SAFETY: within the mapping, which lasts as long as `self`; plain integers, of which each
        // is read at once or is one of an earlier moment.
        self.place(number).map_or_else(T::default, |at| unsafe { at.read_volatile() })
    }

    /// One field of an entry, so that not all of it need be read.
    #[allow(unsafe_code)]
    pub(crate) fn get<F: Copy + Default>(&self, number: u32, offset: usize) -> F {
        let fits = offset + size_of::<F>() <= size_of::<T>();
        let at = self.place(number).filter(|_| fits && offset.is_multiple_of(align_of::<F>()));
        // SAFETY: within an entry of the mapping, aligned as the entry is; a plain integer.
        at.map_or_else(F::default, |at| unsafe { at.byte_add(offset).cast::<F>().read_volatile() })
    }

    #[allow(unsafe_code)]
    pub(crate) fn write(&self, number: u32, value: T) {
        if let Some(at) = self.place(number) {
            // SAFETY: as for `read`.
            unsafe { at.write_volatile(value) };
        }
    }

    /// Takes 1 off a 32-bit count that the kernel half keeps, too.
    #[allow(unsafe_code)]
    pub(crate) fn decrement(&self, number: u32, offset: usize) {
        let fits = offset + size_of::<u32>() <= size_of::<T>();
        if let Some(at) =
            self.place(number).filter(|_| fits && offset.is_multiple_of(align_of::<u32>()))
        {
            // SAFETY: within an entry of the mapping, aligned, and changed by atomic operations alone.
            let count = unsafe { AtomicU32::from_ptr(at.byte_add(offset).cast()) };
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }

    #[allow(unsafe_code)]
    pub(crate) fn set<F>(&self, number: u32, offset: usize, value: F) {
        let fits = offset + size_of::<F>() <= size_of::<T>();
        if let Some(at) =
            self.place(number).filter(|_| fits && offset.is_multiple_of(align_of::<F>()))
        {
            // SAFETY: within an entry of the mapping, and aligned as the entry is.
            unsafe { at.byte_add(offset).cast::<F>().write_volatile(value) };
        }
    }
}

impl<T> Drop for Mapped<T> {
    #[allow(unsafe_code)]
    fn drop(&mut self) {
        // SAFETY: mapped by `of` with this length, and nothing of it is handed out.
        let _ = unsafe { munmap(self.at.as_ptr().cast(), self.len * size_of::<T>()) };
    }
}
