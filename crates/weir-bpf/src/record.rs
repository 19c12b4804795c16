//! The kernel half's records, out of the bytes of a map, or of an iterator.

use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;

use libbpf_rs::{Iter, Link, MapCore, MapFlags, libbpf_sys};
use rustix::io::Errno;

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

/// Keys and values of a hash table, those of some of its buckets at a time, one after the other. libbpf-rs takes the first
/// batch that is not full for the last, and the kernel divides no bucket.
#[allow(unsafe_code)]
pub(crate) fn batches(
    map: &dyn MapCore,
    most: u32,
    mut each: impl FnMut(&[u8], &[u8]) -> libbpf_rs::Result<()>,
) -> libbpf_rs::Result<()> {
    let [key_len, value_len] = [map.key_size(), map.value_size()].map(|len| len as usize);
    let mut keys = vec![0_u8; key_len * most as usize];
    let mut values = vec![0_u8; value_len * most as usize];
    let (mut at, mut begun) = (0_u32, false);
    loop {
        let mut count = most;
        let from = if begun { &raw mut at } else { std::ptr::null_mut() };
        // SAFETY: there is room for `count` keys and values of the map's sizes, and for the number of a bucket, which the
        // kernel reads before it writes the next one there; all outlive the call.
        let answer = unsafe {
            libbpf_sys::bpf_map_lookup_batch(
                map.as_fd().as_raw_fd(),
                from.cast(),
                (&raw mut at).cast(),
                keys.as_mut_ptr().cast(),
                values.as_mut_ptr().cast(),
                &raw mut count,
                std::ptr::null(),
            )
        };
        // ENOENT: the map has no more.
        let ends = answer == -Errno::NOENT.raw_os_error();
        if answer < 0 && !ends {
            return Err(std::io::Error::from_raw_os_error(-answer).into());
        }
        each(&keys[..key_len * count as usize], &values[..value_len * count as usize])?;
        if ends {
            return Ok(());
        }
        begun = true;
    }
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
