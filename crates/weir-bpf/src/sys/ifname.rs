//! What may be an interface's name.

use crate::error::{Error, Result};

/// Longest interface name, in bytes (`IFNAMSIZ` less the terminating NUL).
pub const MAX_NAME_BYTES: usize = 15;

/// Checks that a name may be an interface's, hence also one component of a path.
///
/// # Errors
/// [`Error::Refused`] if it is empty, `.` or `..`, longer than [`MAX_NAME_BYTES`], or holds `/`,
/// `:`, white space or NUL (the kernel's `dev_valid_name`).
pub fn check_name(name: &str) -> Result<()> {
    let forbidden = |c: char| c == '/' || c == ':' || c == '\0' || c.is_ascii_whitespace();
    let dots = name == "." || name == "..";
    if name.is_empty() || name.len() > MAX_NAME_BYTES || dots || name.contains(forbidden) {
        return Err(Error::refused(
            format!("{name:?} cannot be an interface's name"),
            format!("use 1 to {MAX_NAME_BYTES} bytes without '/', ':' or white space"),
        ));
    }
    Ok(())
}

/// What ioctls take, with a name.
pub(super) fn ifreq(name: &str, ifr_ifru: libc::__c_anonymous_ifr_ifru) -> Result<libc::ifreq> {
    check_name(name)?;
    let mut ifr_name = [0; libc::IFNAMSIZ];
    for (place, byte) in ifr_name.iter_mut().zip(name.bytes()) {
        *place = libc::c_char::from_ne_bytes([byte]);
    }
    Ok(libc::ifreq { ifr_name, ifr_ifru })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_that_the_kernel_takes() {
        for name in ["eth0", "a", "fifteen-bytes-x", "eth0.100", "..."] {
            check_name(name).unwrap();
        }
        for name in ["", ".", "..", "../x", "a/b", "a\0", "a b", "a:1", "sixteen-bytes-xx"] {
            assert!(matches!(check_name(name), Err(Error::Refused { .. })), "{name:?}");
        }
    }
}
