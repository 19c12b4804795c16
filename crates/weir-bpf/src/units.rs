//! Numbers with their units.

use std::fmt;

use serde::{Deserialize, Serialize};
pub use weir_policy::{Nanos, Nice};

use crate::abi;

/// Number of a logical CPU, as in `/proc/cpuinfo`.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct CpuId(pub u32);

impl fmt::Display for CpuId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Kernel's number of a network interface, unique within one network namespace.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct IfIndex(pub u32);

/// An Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MacAddr(pub [u8; 6]);

impl MacAddr {
    /// As the kernel half has it: words in the order of the wire.
    pub(crate) fn words(self) -> [u16; 3] {
        let [a, b, c, d, e, f] = self.0;
        [[a, b], [c, d], [e, f]].map(u16::from_ne_bytes)
    }
}

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

/// Packets per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PacketsPerSec(pub f64);

/// A share, in thousandths ([`abi::SHARE_ONE`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Permille(pub u32);

impl Permille {
    /// The nearest to a share, 0 to 1.
    pub fn of(share: f64) -> Self {
        Self((share * abi::SHARE_ONE as f64).round() as u32)
    }
}

/// The number of a user, as this process's user namespace has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Uid(pub u32);

/// The number of an open socket's inode: what `/proc/PID/fd` calls `socket:[NUMBER]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SocketInode(pub u32);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_the_nearest_of_thousandths() {
        // 679.9999... of them.
        assert_eq!(Permille::of(1.0 - 0.32), Permille(680));
    }
}
