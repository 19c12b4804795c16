//! What was found.

use std::fmt;

use super::kind::DiversionKind;
use super::ports::Ports;
use crate::features::asks_conntrack;
use crate::printable::printable;

/// What a gate knows of a packet by itself, so that it need not pass every one where some are taken elsewhere.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sight {
    /// Whether its connection is translated: [`asks_conntrack`].
    pub connections: bool,
    /// Its VLAN tag, wherever the kernel has put it.
    pub vlan_tags: bool,
    /// Its protocol, so that packet sockets of others than IP have nothing to do with it.
    pub protocol: bool,
}

impl Sight {
    /// Of a gate that is loaded now, for tc, where `weir run` puts it unless told otherwise.
    pub fn at_tc() -> Self {
        Self { connections: asks_conntrack(), vlan_tags: true, protocol: true }
    }
}

/// Something that may take packets elsewhere, or see them before a socket does.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Diversion {
    /// What it is.
    pub kind: DiversionKind,
    /// What was found, and where: the table, filter or device.
    pub detail: String,
    /// Of [`DiversionKind::TranslatedPorts`]: which.
    pub ports: Vec<Ports>,
}

impl Diversion {
    /// Names in the detail come from whoever made a table, a chain or an interface, and go to terminals.
    pub(super) fn new(kind: DiversionKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: printable(detail.into().as_bytes()), ports: Vec::new() }
    }

    pub(super) fn unknown(what: &str, why: impl fmt::Display) -> Self {
        Self::new(DiversionKind::Unknown, format!("{what}: {why}"))
    }
}

impl fmt::Display for Diversion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.kind.what(), self.detail, self.kind.cost())
    }
}
