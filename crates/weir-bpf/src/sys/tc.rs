//! Queueing disciplines and filters at an interface's tc hooks, as rtnetlink lists them.

use std::pin::pin;

use futures_util::TryStreamExt;
use rtnetlink::packet_route::tc::{TcHandle, TcMessage};

use super::link::{Links, object};
use crate::error::Result;
use crate::units::IfIndex;

/// Whose filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    Ingress,
    Egress,
}

/// A filter, by what the kernel knows it: its chain's priority and its handle there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilterId {
    pub(crate) priority: u32,
    pub(crate) handle: u32,
}

impl Links {
    /// Whether filters can be put at the interface's tc ingress hook: it has a `clsact` or an
    /// `ingress` queueing discipline.
    ///
    /// # Errors
    ///
    /// As [`Links::name`], but no such interface is no error.
    pub(crate) fn has_ingress_qdisc(&self, ifindex: IfIndex) -> Result<bool> {
        // The kernel lists those of all interfaces, whatever is asked.
        let is_ours = |message: &TcMessage| {
            message.header.index.cast_unsigned() == ifindex.0
                && message.header.parent == TcHandle::INGRESS
        };
        let found = async {
            let mut dump = pin!(self.handle.qdisc().get().execute());
            let mut found = false;
            while let Some(message) = dump.try_next().await? {
                found |= is_ours(&message);
            }
            Ok(found)
        };
        self.ask("list queueing disciplines of", || object(ifindex), found)
    }

    /// The filters at one of the interface's tc hooks.
    ///
    /// # Errors
    ///
    /// As [`Links::name`].
    pub(crate) fn filters(&self, ifindex: IfIndex, hook: Hook) -> Result<Vec<FilterId>> {
        let request = self.handle.traffic_filter(ifindex.0.cast_signed()).get();
        let request = match hook {
            Hook::Ingress => request.ingress(),
            Hook::Egress => request.egress(),
        };
        let all = async {
            let mut dump = pin!(request.execute());
            let mut found = Vec::new();
            while let Some(message) = dump.try_next().await? {
                let handle = u32::from(message.header.handle);
                // The kernel also names each chain's classifier, without a filter.
                if handle != 0 {
                    found.push(FilterId { priority: message.header.info >> 16, handle });
                }
            }
            Ok(found)
        };
        self.ask("list filters of", || object(ifindex), all)
    }
}
