//! BPF rings that somebody waits for.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use libbpf_rs::{MapCore, MapHandle, RingBuffer, RingBufferBuilder};

/// Reads a ring.
pub struct Reader<'a> {
    ring: RingBuffer<'a>,
}

impl<'a> Reader<'a> {
    /// `each` is told every record; what it returns is less than 0 to break off, which loses that record.
    pub(crate) fn of<M>(map: &M, each: impl FnMut(&[u8]) -> i32 + 'a) -> libbpf_rs::Result<Self>
    where
        M: MapCore,
        for<'m> MapHandle: TryFrom<&'m M, Error = libbpf_rs::Error>,
    {
        let map = MapHandle::try_from(map)?;
        let mut builder = RingBufferBuilder::new();
        builder.add(&map, each)?;
        Ok(Self { ring: builder.build()? })
    }

    /// Reads what there is, so many records at most; how many there were.
    ///
    /// # Errors
    /// The kernel's answer, or `ECANCELED` if it was broken off.
    pub fn read(&self, most: usize) -> io::Result<usize> {
        let read = self.ring.consume_raw_n(most);
        usize::try_from(read).map_err(|_| io::Error::from_raw_os_error(-read))
    }
}

impl AsFd for Reader<'_> {
    /// Readable while there are records.
    #[allow(unsafe_code)]
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the ring's own descriptor, which is open as long as the ring is there.
        unsafe { BorrowedFd::borrow_raw(self.ring.epoll_fd()) }
    }
}
