//! All interfaces at once.

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::link::{LinkFlags, LinkMessage};

use super::link::Links;
use super::link_info::{Answer, LinkInfo, master_of, name_of};
use crate::error::Result;
use crate::units::IfIndex;

/// One interface of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedLink {
    /// The interface's number.
    pub ifindex: IfIndex,
    /// Its name, address, state, MTU and kind.
    pub info: LinkInfo,
    /// Whether it is the loopback interface.
    pub loopback: bool,
    /// The bridge, bond or the like whose port it is.
    pub master: Option<IfIndex>,
}

impl Links {
    /// Every interface of the network namespace whose name is text in UTF-8: no other can be named.
    ///
    /// # Errors
    ///
    /// [`Error::System`](crate::Error::System) or [`Error::Netlink`](crate::Error::Netlink) if the kernel
    /// does not answer.
    pub fn list(&self) -> Result<Vec<ListedLink>> {
        let request = RouteNetlinkMessage::GetLink(LinkMessage::default());
        let answers: Vec<Answer> = self.ask("list", || "interfaces".into(), request, NLM_F_DUMP)?;
        let named = answers.iter().map(|answer| &answer.0).filter(|each| name_of(each).is_ok());
        let listed = named.map(|message| {
            Ok(ListedLink {
                ifindex: IfIndex(message.header.index),
                info: LinkInfo::of(message)?,
                loopback: message.header.flags.contains(LinkFlags::Loopback),
                master: master_of(message),
            })
        });
        listed.collect()
    }
}
