//! This host's addresses, as the kernel half has them: `bpf/local.h`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;

use libbpf_rs::{MapCore, MapFlags};

use crate::abi;
use crate::error::{Error, Result};
use crate::skeleton::gate::types::weir_address_kind;
use crate::sys::local_table::{LocalAddresses, is_of_link};

const LOCAL: u32 = weir_address_kind::WEIR_ADDRESS_LOCAL.0;
const OF_ANOTHER: u32 = weir_address_kind::WEIR_ADDRESS_OF_ANOTHER.0;
const BROADCAST: u32 = weir_address_kind::WEIR_ADDRESS_BROADCAST.0;
const UNSURE: u32 = weir_address_kind::WEIR_ADDRESS_UNSURE.0;

/// Addresses, and what they are.
pub(crate) type Addresses = BTreeMap<IpAddr, u32>;

/// Of each family the first [`abi::LOCAL_ADDRESSES`] of these.
pub(crate) fn of(addresses: &LocalAddresses) -> Addresses {
    kept(addresses, abi::LOCAL_ADDRESSES)
}

fn kept(addresses: &LocalAddresses, max: usize) -> Addresses {
    let LocalAddresses { own, of_others, broadcast, unsure, prefixes: _ } = addresses;
    // Of a link there are few, which come last in order and are never done without.
    let (of_link, routed): (Vec<IpAddr>, Vec<IpAddr>) = own.iter().partition(|ip| is_of_link(**ip));
    let local = of_link.into_iter().chain(routed).map(|ip| (ip, LOCAL));
    let of_others = of_others.iter().map(|ip| (*ip, OF_ANOTHER));
    let broadcast = broadcast.iter().map(|ip| (IpAddr::V4(*ip), BROADCAST));
    // As a source of IPv6, the kernel forwards them.
    let unsure = unsure.iter().filter(|ip| ip.is_ipv4()).map(|ip| (*ip, UNSURE));
    let mut wanted = BTreeMap::new();
    let (mut ipv4, mut ipv6) = (0, 0);
    for (ip, kind) in local.chain(of_others).chain(broadcast).chain(unsure) {
        let kept = if ip.is_ipv4() { &mut ipv4 } else { &mut ipv6 };
        // An own address that looks like a broadcast address is an own address.
        if *kept < max
            && let Entry::Vacant(vacant) = wanted.entry(ip)
        {
            vacant.insert(kind);
            *kept += 1;
        }
    }
    wanted
}

impl LocalAddresses {
    /// What the gate does not know of them, if anything: a prefix, or more addresses of a family than it keeps.
    pub fn unlisted(&self) -> Option<String> {
        if let Some((ip, length)) = self.prefixes.first() {
            return Some(format!("the prefix {ip}/{length}"));
        }
        let (ipv4, ipv6): (Vec<_>, Vec<_>) =
            kept(self, usize::MAX).into_keys().partition(IpAddr::is_ipv4);
        let count = ipv4.len().max(ipv6.len());
        (count > abi::LOCAL_ADDRESSES).then(|| format!("{count} addresses"))
    }
}

/// What is in the maps.
#[derive(Debug, Default)]
pub(crate) struct AddressTable(Addresses);

impl AddressTable {
    pub(crate) fn known(&self) -> &Addresses {
        &self.0
    }

    /// Puts these into the maps, in place of those that are there; what stays is never missing meanwhile. Keeps account
    /// of each step, so that a failed one can be tried again.
    pub(crate) fn replace(
        &mut self,
        wanted: &Addresses,
        ipv4: &impl MapCore,
        ipv6: &impl MapCore,
    ) -> Result<()> {
        let gone: Vec<IpAddr> =
            self.0.keys().filter(|ip| !wanted.contains_key(ip)).copied().collect();
        for ip in gone {
            let deleted = match ip {
                IpAddr::V4(v4) => ipv4.delete(&v4.octets()),
                IpAddr::V6(v6) => ipv6.delete(&v6.octets()),
            };
            deleted.map_err(failed(ip))?;
            self.0.remove(&ip);
        }
        for (ip, kind) in wanted {
            if self.0.get(ip) == Some(kind) {
                continue;
            }
            let added = match ip {
                IpAddr::V4(v4) => ipv4.update(&v4.octets(), &kind.to_ne_bytes(), MapFlags::ANY),
                IpAddr::V6(v6) => ipv6.update(&v6.octets(), &kind.to_ne_bytes(), MapFlags::ANY),
            };
            added.map_err(failed(*ip))?;
            self.0.insert(*ip, *kind);
        }
        Ok(())
    }
}

fn failed(ip: IpAddr) -> impl Fn(libbpf_rs::Error) -> Error {
    Error::libbpf("update the table of own addresses for", ip.to_string())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    #[test]
    fn of_too_many_addresses_those_of_the_link_are_kept() {
        let routed = |number: u128| IpAddr::V6(Ipv6Addr::from_bits(0x2001 << 112 | number));
        let of_link = "fe80::1".parse().unwrap();
        let own = (0..2000).map(routed).chain([of_link]).collect();
        let addresses = LocalAddresses { own, ..LocalAddresses::default() };
        let known = of(&addresses);
        assert_eq!(known.len(), abi::LOCAL_ADDRESSES);
        assert!(known.contains_key(&of_link) && known.contains_key(&routed(0)));
    }
}
