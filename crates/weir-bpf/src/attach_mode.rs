//! The four places where a gate can be attached.

use std::fmt;
use std::io;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Where a gate is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AttachMode {
    /// XDP in the driver, before an skb exists.
    Native,
    /// XDP in the stack, on an skb.
    Generic,
    /// tc ingress by a link (`BPF_TCX_INGRESS`, Linux 6.6), on an skb. Other programs run there too.
    Tcx,
    /// tc ingress by a filter in a `clsact` queueing discipline, on an skb: where there is no tcx.
    Clsact,
}

impl AttachMode {
    /// Whether this is one of XDP's places, which take one program.
    pub fn is_xdp(self) -> bool {
        matches!(self, Self::Native | Self::Generic)
    }

    /// For a person: the hook's name.
    pub fn description(self) -> &'static str {
        match self {
            Self::Native => "native XDP",
            Self::Generic => "generic XDP",
            Self::Tcx => "tc ingress (tcx)",
            Self::Clsact => "tc ingress (clsact filter)",
        }
    }
}

impl fmt::Display for AttachMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// That it cannot be attached there.
pub(crate) fn failed(ifname: &str, mode: AttachMode, source: impl Into<io::Error>) -> Error {
    let (operation, object) =
        ("attach a program to", format!("{ifname} at {}", mode.description()));
    let source = source.into();
    // `veth_xdp_set()`; the drivers that lack queues of another kind say so otherwise.
    if mode == AttachMode::Native && Errno::from_io_error(&source) == Some(Errno::NOSPC) {
        return Error::refused(
            format!(
                "cannot {operation} {object}: a veth has fewer receive queues than its peer has send queues"
            ),
            format!(
                "give it more or its peer fewer, `ethtool -L {ifname} rx N` or `ethtool -L PEER tx N`"
            ),
        );
    }
    Error::system(operation, object, source)
}
