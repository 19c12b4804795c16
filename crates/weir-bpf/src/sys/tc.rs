//! Queueing disciplines and filters at an interface's tc hooks, as rtnetlink lists them.

use std::collections::HashMap;

use netlink_packet_core::{DecodeError, Emitable, NLM_F_DUMP, Parseable};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{TcHandle, TcHeader, TcMessage};

use super::link::{Links, object};
use super::netlink::{Attributes, number};
use crate::error::Result;
use crate::units::IfIndex;

/// linux/gen_stats.h; in `TCA_STATS2`.
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;

/// The queues by which an interface sends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Egress {
    /// Of the disciplines, each once: such as `tbf`; the root's first.
    pub kinds: Vec<String>,
    /// The root, which counts what is lost below it, too, and then those below it.
    pub queues: Vec<EgressQueue>,
}

/// One queueing discipline.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EgressQueue {
    /// The class that it is of, such as `1:10`; the root is of none.
    pub class: Option<String>,
    /// Its number, as one that takes its place has another.
    pub handle: u32,
    /// Packets that it has sent...
    pub sent: u64,
    /// ...and dropped.
    pub dropped: u64,
    /// Packets that wait in it...
    pub packets: u32,
    /// ...and their bytes.
    pub bytes: u32,
}

/// A queueing discipline or a filter, its attributes as they came: the library decodes the options of some kinds, and
/// would refuse a list over one of them.
pub(super) struct Listed {
    pub(super) header: TcHeader,
    attributes: Vec<u8>,
}

impl Parseable<[u8]> for Listed {
    fn parse(bytes: &[u8]) -> std::result::Result<Self, DecodeError> {
        let header = TcHeader::parse(bytes)?;
        let attributes = bytes[header.buffer_len()..].to_vec();
        Ok(Self { header, attributes })
    }
}

/// The kernel lists those of all interfaces, whatever is asked.
pub(super) fn queueing_disciplines() -> RouteNetlinkMessage {
    RouteNetlinkMessage::GetQueueDiscipline(TcMessage::default())
}

impl Listed {
    pub(super) fn attributes(&self) -> Attributes<'_> {
        Attributes::of(&self.attributes)
    }

    /// Such as `pfifo` or `flower`.
    pub(crate) fn kind(&self) -> String {
        self.attributes().text(libc::TCA_KIND).unwrap_or_default()
    }

    fn queue(&self) -> EgressQueue {
        let stats = self.attributes().within(libc::TCA_STATS2);
        // Bytes, of 64 bits, and packets.
        let sent = stats.value(TCA_STATS_BASIC).and_then(|basic| number(basic.get(8..)?));
        let queue = stats.value(TCA_STATS_QUEUE).unwrap_or_default();
        let each = |at: usize| queue.get(4 * at..).and_then(number).unwrap_or_default();
        let TcHeader { parent, handle, .. } = self.header;
        EgressQueue {
            class: (parent != TcHandle::ROOT)
                .then(|| format!("{:x}:{:x}", parent.major, parent.minor)),
            handle: handle.into(),
            sent: sent.unwrap_or_default().into(),
            dropped: each(2).into(),
            packets: each(0),
            bytes: each(1),
        }
    }
}

/// Those of a shared block are listed as well.
pub(super) fn filters_at(ifindex: IfIndex, hook: Hook) -> RouteNetlinkMessage {
    let minor = match hook {
        // `ingress` answers to it, too.
        Hook::Ingress => TcHandle::MIN_INGRESS,
        Hook::Egress => TcHandle::MIN_EGRESS,
    };
    let mut message = TcMessage::with_index(ifindex.0.cast_signed());
    message.header.parent = TcHandle { major: TcHandle::CLSACT.major, minor };
    RouteNetlinkMessage::GetTrafficFilter(message)
}

/// Whose filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hook {
    Ingress,
    Egress,
}

/// A filter, by what the kernel knows it. Packets begin at chain 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FilterId {
    pub(crate) chain: u32,
    pub(crate) priority: u32,
    pub(crate) handle: u32,
}

impl Links {
    /// Whether filters can be put at the interface's tc ingress hook: it has a `clsact` or an
    /// `ingress` queueing discipline.
    ///
    /// # Errors
    /// As [`Links::name`], but no such interface is no error.
    pub(crate) fn has_ingress_qdisc(&self, ifindex: IfIndex) -> Result<bool> {
        let what = || object(ifindex);
        let all: Vec<Listed> =
            self.ask("list queueing disciplines of", what, queueing_disciplines(), NLM_F_DUMP)?;
        Ok(all.iter().any(|Listed { header, .. }| {
            header.index.cast_unsigned() == ifindex.0 && header.parent == TcHandle::INGRESS
        }))
    }

    /// Whether any interface of the namespace has a queueing discipline of one of these kinds.
    ///
    /// # Errors
    /// As [`Links::name`].
    pub(crate) fn has_qdisc_of(&self, kinds: &[&str]) -> Result<bool> {
        let what = || "every interface".into();
        let all: Vec<Listed> =
            self.ask("list queueing disciplines of", what, queueing_disciplines(), NLM_F_DUMP)?;
        Ok(all.iter().any(|qdisc| kinds.contains(&qdisc.kind().as_str())))
    }

    /// The queues by which interfaces send.
    ///
    /// # Errors
    /// As [`Links::name`].
    pub fn egresses(&self) -> Result<HashMap<IfIndex, Egress>> {
        let what = || "every interface".into();
        let mut all: Vec<Listed> =
            self.ask("list queueing disciplines of", what, queueing_disciplines(), NLM_F_DUMP)?;
        all.retain(|listed| listed.header.parent != TcHandle::INGRESS);
        all.sort_by_key(|listed| listed.header.parent != TcHandle::ROOT);
        let mut found: HashMap<IfIndex, Egress> = HashMap::new();
        for listed in &all {
            let egress = found.entry(IfIndex(listed.header.index.cast_unsigned())).or_default();
            let kind = listed.kind();
            egress.queues.push(listed.queue());
            if !egress.kinds.contains(&kind) {
                egress.kinds.push(kind);
            }
        }
        Ok(found)
    }

    /// The filters at one of the interface's tc hooks.
    ///
    /// # Errors
    /// As [`Links::name`].
    pub(crate) fn filters(&self, ifindex: IfIndex, hook: Hook) -> Result<Vec<FilterId>> {
        let request = filters_at(ifindex, hook);
        let all: Vec<Listed> =
            self.ask("list filters of", || object(ifindex), request, NLM_F_DUMP)?;
        let ids = all.iter().map(|listed| FilterId {
            chain: listed.attributes().number(libc::TCA_CHAIN).unwrap_or_default(),
            priority: listed.header.info >> 16,
            handle: listed.header.handle.into(),
        });
        // The kernel also names each chain's classifier, without a filter.
        Ok(ids.filter(|id| id.handle != 0).collect())
    }

    /// Whether a filter is at one of the interface's tc hooks.
    ///
    /// # Errors
    /// As [`Links::name`].
    pub(crate) fn has_filters(&self, ifindex: IfIndex) -> Result<bool> {
        let has = |hook| self.filters(ifindex, hook).map(|filters| !filters.is_empty());
        Ok(has(Hook::Ingress)? || has(Hook::Egress)?)
    }
}
