//! All interfaces at once.

use std::pin::pin;

use futures_util::TryStreamExt;
use rtnetlink::packet_route::link::LinkFlags;

use super::link::Links;
use super::link_info::LinkInfo;
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
}

impl Links {
    /// Every interface of the network namespace.
    ///
    /// # Errors
    ///
    /// [`Error::System`](crate::Error::System) or [`Error::Netlink`](crate::Error::Netlink) if the kernel
    /// does not answer.
    pub fn list(&self) -> Result<Vec<ListedLink>> {
        let dump = self.handle.link().get().execute();
        let all = async {
            let mut dump = pin!(dump);
            let mut found = Vec::new();
            while let Some(message) = dump.try_next().await? {
                found.push(message);
            }
            Ok(found)
        };
        let messages = self.ask("list", || "interfaces".into(), all)?;
        let listed = messages.iter().map(|message| {
            Ok(ListedLink {
                ifindex: IfIndex(message.header.index),
                info: LinkInfo::of(message)?,
                loopback: message.header.flags.contains(LinkFlags::Loopback),
            })
        });
        listed.collect()
    }
}
