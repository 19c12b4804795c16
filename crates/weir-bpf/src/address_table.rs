//! This host's addresses, as the kernel half has them: `bpf/local.h`.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;

use libbpf_rs::{MapCore, MapFlags};

use crate::abi;
use crate::error::{Error, Result};
use crate::skeleton::gate::types::weir_address_kind;
use crate::sys::local_table::LocalAddresses;

const LOCAL: u32 = weir_address_kind::WEIR_ADDRESS_LOCAL.0;
const OF_ANOTHER: u32 = weir_address_kind::WEIR_ADDRESS_OF_ANOTHER.0;
const BROADCAST: u32 = weir_address_kind::WEIR_ADDRESS_BROADCAST.0;
const UNSURE: u32 = weir_address_kind::WEIR_ADDRESS_UNSURE.0;

/// Addresses, and what they are.
pub(crate) type Addresses = BTreeMap<IpAddr, u32>;

/// These addresses, of each family the first [`abi::LOCAL_ADDRESSES`].
pub(crate) fn of(addresses: &LocalAddresses) -> Addresses {
    let LocalAddresses { own, of_others, broadcast, unsure } = addresses;
    let local = own.iter().map(|ip| (*ip, LOCAL));
    let of_others = of_others.iter().map(|ip| (*ip, OF_ANOTHER));
    let broadcast = broadcast.iter().map(|ip| (IpAddr::V4(*ip), BROADCAST));
    // As a source of IPv6, the kernel forwards them.
    let unsure = unsure.iter().filter(|ip| ip.is_ipv4()).map(|ip| (*ip, UNSURE));
    let mut wanted = BTreeMap::new();
    let (mut ipv4, mut ipv6) = (0, 0);
    for (ip, kind) in local.chain(of_others).chain(broadcast).chain(unsure) {
        let kept = if ip.is_ipv4() { &mut ipv4 } else { &mut ipv6 };
        // An own address that looks like a broadcast address is an own address.
        if *kept < abi::LOCAL_ADDRESSES
            && let Entry::Vacant(vacant) = wanted.entry(ip)
        {
            vacant.insert(kind);
            *kept += 1;
        }
    }
    wanted
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
