//! The kernel half's records, out of the bytes of a map.

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
