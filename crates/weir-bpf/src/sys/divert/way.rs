//! Ways of packets through the kernel.

/// How many hooks netfilter has for IP.
pub(super) const IP_HOOKS: usize = 5;

/// A way, by netfilter's hooks on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// To a local socket.
    In,
    /// From one interface to another.
    Through,
    /// To a listener, and its answer back.
    Answered,
}

impl Way {
    /// Of IP's hooks: PRE_ROUTING, and LOCAL_IN; or FORWARD and POST_ROUTING; or all but FORWARD.
    pub(super) fn has(self, hook: usize) -> bool {
        match self {
            Self::In => matches!(hook, 0 | 1),
            Self::Through => matches!(hook, 0 | 2 | 4),
            Self::Answered => matches!(hook, 0 | 1 | 3 | 4),
        }
    }

    /// Of a device's: ingress, or ingress and egress.
    pub(super) fn has_at_device(self, hook: usize) -> bool {
        match self {
            Self::In => hook == 0,
            Self::Through | Self::Answered => matches!(hook, 0 | 1),
        }
    }
}
