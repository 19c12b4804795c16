//! The interface that the packets are judged for.

use weir_bpf::sys::divert::{self, DiversionKind, Ports, Sight};
use weir_bpf::sys::link::{LinkInfo, Links};
use weir_bpf::units::{IfIndex, MacAddr};

use crate::error::{Error, Result};
use crate::status::InterfaceStatus;

/// An interface of this host.
#[derive(Clone, Debug)]
pub struct Target {
    /// Its number.
    pub ifindex: IfIndex,
    /// Its name.
    pub name: String,
    /// Its Ethernet address; all zero if its packets have none.
    pub mac: MacAddr,
    /// Whether a weir that runs discards packets of it.
    pub discards: bool,
    /// What may divert its packets, so that the gate passes them all; each a sentence.
    pub diversions: Vec<String>,
    /// Whether VLAN interfaces lie on top of it.
    pub vlans: bool,
    /// Whether multicast is routed from it.
    pub routes_groups: bool,
    /// If connections may be translated: the ports to which new ones may be.
    pub translation: Option<Vec<Ports>>,
}

impl Target {
    /// The interface of this name; else the one that is protected, else the only one that it can be.
    pub fn choose(links: &Links, named: Option<&str>) -> Result<Self> {
        let mut running = InterfaceStatus::running()?;
        let ifindex = match named {
            Some(name) => links.index(name)?,
            None => match running.as_slice() {
                [] => only(links)?,
                [one] => one.ifindex,
                _ => {
                    let names = running.into_iter().map(|interface| interface.interface);
                    return Err(undecided("weir protects several interfaces here", names));
                }
            },
        };
        running.retain(|interface| interface.ifindex == ifindex);
        let LinkInfo { name, .. } = links.info(ifindex)?;
        let discards = running.iter().any(InterfaceStatus::discards);
        // As the daemon has found, which knows its own programs, or as is found now.
        let found = match running.pop() {
            Some(status) => status.diversions,
            None => {
                divert::diversions(ifindex, Sight::at_tc(), &[])?.iter().map(Into::into).collect()
            }
        };
        let passing = found.iter().filter(|each| each.passes_all);
        let diversions = passing.map(|each| format!("{} ({})", each.description, each.detail));
        let is_there = |kind| found.iter().any(|each| each.kind == kind);
        let translates = found.iter().any(|each| each.kind.translates());
        Ok(Self {
            ifindex,
            name,
            mac: links.mac(ifindex)?,
            discards,
            diversions: diversions.collect(),
            vlans: is_there(DiversionKind::Vlan),
            routes_groups: is_there(DiversionKind::MulticastForwarding),
            translation: translates
                .then(|| found.iter().flat_map(|each| &each.ports).copied().collect()),
        })
    }
}

/// The only interface that a gate understands, is up and has an address.
fn only(links: &Links) -> Result<IfIndex> {
    let mut found = Vec::new();
    for link in links.list()? {
        if !link.loopback
            && link.up
            && link.takes_gate()
            && !links.addresses(link.ifindex)?.is_empty()
        {
            found.push(link);
        }
    }
    match found.as_slice() {
        [one] => Ok(one.ifindex),
        [] => Err(Error::refused(
            "no interface here that weir could protect is up and has an address",
            "name one by --interface; `ip address` lists them",
        )),
        _ => Err(undecided(
            "several interfaces here are up and have addresses",
            found.into_iter().map(|link| link.name),
        )),
    }
}

fn undecided(problem: &str, names: impl Iterator<Item = String>) -> Error {
    let names: Vec<String> = names.collect();
    Error::refused(
        format!("{problem} ({})", names.join(", ")),
        "name the one that receives the packets: `--interface NAME`",
    )
}
