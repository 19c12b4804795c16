//! BPF arrays in this process's memory.

use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Result};
use crate::sys::mapping::Mapping;

/// A BPF array in this process's memory.
pub(crate) struct Mapped<T> {
    mapping: Mapping,
    len: usize,
    entries: PhantomData<T>,
}

impl<T: Copy> Mapped<T> {
    pub(crate) fn of(map: BorrowedFd<'_>, len: usize) -> Result<Self> {
        // The kernel pads entries to eight bytes, and the types have that anyway.
        const { assert!(size_of::<T>().is_multiple_of(8)) };
        let mapping = Mapping::of(map, len * size_of::<T>())
            .map_err(|errno| Error::system("map", "the kernel half's counters", errno))?;
        Ok(Self { mapping, len, entries: PhantomData })
    }

    /// How many entries.
    pub(crate) fn len(&self) -> u32 {
        u32::try_from(self.len).unwrap_or(u32::MAX)
    }

    /// Where a field of an entry is, as it is aligned in any; none beyond the mapping.
    fn place<F>(&self, number: u32, offset: usize) -> Option<*mut F> {
        let fits = offset + size_of::<F>() <= size_of::<T>();
        let is_there =
            (number as usize) < self.len && fits && offset.is_multiple_of(align_of::<F>());
        let entry = self.mapping.start::<T>().as_ptr().wrapping_add(number as usize);
        is_there.then(|| entry.wrapping_byte_add(offset).cast())
    }

    pub(crate) fn read(&self, number: u32) -> T
    where
        T: Default,
    {
        self.get(number, 0)
    }

    /// One field of an entry, so that not all of it need be read.
    #[allow(unsafe_code)]
    pub(crate) fn get<F: Copy + Default>(&self, number: u32, offset: usize) -> F {
        // SAFETY: within the mapping, which lasts as long as `self`, and aligned; plain integers, of which each is read
        // at once or is one of an earlier moment.
        self.place::<F>(number, offset).map_or_else(F::default, |at| unsafe { at.read_volatile() })
    }

    pub(crate) fn write(&self, number: u32, value: T) {
        self.set(number, 0, value);
    }

    #[allow(unsafe_code)]
    pub(crate) fn set<F>(&self, number: u32, offset: usize, value: F) {
        if let Some(at) = self.place::<F>(number, offset) {
            // SAFETY: as for `get`.
            unsafe { at.write_volatile(value) };
        }
    }

    /// Writes bytes into an entry, if they fit.
    #[allow(unsafe_code)]
    pub(crate) fn copy(&self, number: u32, offset: usize, bytes: &[u8]) {
        let fits = offset + bytes.len() <= size_of::<T>();
        if let Some(at) = self.place::<u8>(number, offset).filter(|_| fits) {
            // SAFETY: within the mapping, which is no memory of Rust's.
            unsafe { at.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
    }

    /// Takes 1 off a 32-bit count that the kernel half keeps, too.
    #[allow(unsafe_code)]
    pub(crate) fn decrement(&self, number: u32, offset: usize) {
        if let Some(at) = self.place(number, offset) {
            // SAFETY: within the mapping, aligned, and changed by atomic operations alone.
            unsafe { AtomicU32::from_ptr(at) }.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
