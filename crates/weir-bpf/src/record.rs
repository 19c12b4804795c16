//! The kernel half's records, out of the bytes of a map, or of an iterator.

use std::io::{ErrorKind, Read};

use libbpf_rs::{Iter, Link, MapCore, MapFlags};

use crate::error::{Error, Result};

/// What the kernel hands over at once: its own buffer's size (`bpf_seq_read()`).
const BUFFER_BYTES: usize = 8 * 4096;

/// A plain record out of the kernel's bytes.
#[allow(unsafe_code)]
pub(crate) fn record<T: Copy>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: there are enough bytes, and the types that it is used for are the kernel half's
    // own, integers throughout, of which every pattern of bits is a value.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}

/// What each CPU has of a per-CPU array's entry; of what is no record nothing.
pub(crate) fn records<T: Copy>(map: &impl MapCore, number: u32) -> libbpf_rs::Result<Vec<T>> {
    let cpus = map.lookup_percpu(&number.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
    Ok(cpus.iter().filter_map(|cpu| record(cpu)).collect())
}

/// Runs an iterator to its end, in this thread's network and pid namespaces.
pub(crate) fn each<T: Copy>(link: &Link, object: &'static str, with: impl FnMut(T)) -> Result<()> {
    each_while(link, object, || true, with)
}

/// The same, or until `goes_on` says no; it is asked before each read.
pub(crate) fn each_while<T: Copy>(
    link: &Link,
    object: &'static str,
    goes_on: impl Fn() -> bool,
    mut with: impl FnMut(T),
) -> Result<()> {
    let mut iterator = Iter::new(link).map_err(Error::bpf("run", object))?;
    let mut buffer = vec![0; BUFFER_BYTES];
    while goes_on() {
        match iterator.read(&mut buffer) {
            Ok(0) => break,
            // Whole records: the kernel never cuts what one call has written, unless the buffer is
            // smaller than its own.
            Ok(bytes) => {
                let records = buffer[..bytes].chunks_exact(size_of::<T>());
                records.filter_map(record::<T>).for_each(&mut with);
            }
            // A million files without a socket among them: the next read goes on.
            Err(source)
                if matches!(source.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(source) => return Err(Error::system("read", object, source)),
        }
    }
    Ok(())
}
