//! Sets and maps of nftables: those whose keys are ports, and which do not change; and those that count what matches
//! them.

use std::collections::BTreeMap;

use super::expression::{Element, NFTA_DATA_VALUE, object_counts};
use super::kind::DiversionKind;
use super::nfnetlink::{NFGENMSG_BYTES, body, dump};
use crate::sys::netlink::{Attributes, attribute, terminated};

pub(super) const GETSET: u16 = 10;
const GETSETELEM: u16 = 13;
pub(super) const NFTA_SET_TABLE: u16 = 1;
pub(super) const NFTA_SET_NAME: u16 = 2;
const NFTA_SET_FLAGS: u16 = 3;
const NFTA_SET_KEY_LEN: u16 = 5;
const NFTA_SET_OBJ_TYPE: u16 = 15;
/// One expression that each element has, or several.
const NFTA_SET_EXPR: u16 = 17;
const NFTA_SET_EXPRESSIONS: u16 = 18;
const NFT_SET_INTERVAL: u32 = 0x4;
/// All that are written into a rule, and others that say so. Other sets change without a notice that is heeded.
const NFT_SET_CONSTANT: u32 = 0x2;
const NFTA_SET_ELEM_LIST_SET: u16 = 2;
const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
const NFTA_SET_ELEM_KEY: u16 = 1;
const NFTA_SET_ELEM_FLAGS: u16 = 3;
const NFTA_SET_ELEM_KEY_END: u16 = 10;
const NFT_SET_ELEM_INTERVAL_END: u32 = 0x1;
const PORT_BYTES: u32 = 2;

/// Ranges of keys, both ends included.
pub(super) type Keys = Vec<(u16, u16)>;

/// Those of one table, by name. One that cannot be read is left out: a rule that asks it is then taken to be for all
/// ports.
pub(super) fn of_table(family: u8, table: &str) -> rustix::io::Result<BTreeMap<String, Keys>> {
    let request = |more: &[u8]| {
        let mut request = vec![0; NFGENMSG_BYTES];
        request[0] = family;
        request.extend(attribute(NFTA_SET_TABLE, &terminated(table)));
        request.extend(more);
        request
    };
    let mut sets = BTreeMap::new();
    for (_, message) in dump(GETSET, &request(&[]))? {
        let Some((name, flags)) = constant_ports(body(&message)) else { continue };
        let named = attribute(NFTA_SET_ELEM_LIST_SET, &terminated(&name));
        let messages = dump(GETSETELEM, &request(&named))?;
        let elements = messages
            .iter()
            .map(|(_, message)| elements(body(message).value(NFTA_SET_ELEM_LIST_ELEMENTS)?));
        let Some(elements) = elements.collect::<Option<Vec<_>>>() else { continue };
        if let Some(keys) = keys(elements.concat(), flags & NFT_SET_INTERVAL != 0) {
            sets.insert(name, keys);
        }
    }
    Ok(sets)
}

/// What asking a set or map is whose elements go by how much has matched them, or name objects that do: of each sender,
/// if its keys are longer than a port. `None` if they do not.
pub(super) fn counts(set: Attributes<'_>) -> Option<DiversionKind> {
    let several = set.within(NFTA_SET_EXPRESSIONS).each().map_while(|one| one);
    let expressions =
        several.map(|(_, one)| Attributes::of(one)).chain([set.within(NFTA_SET_EXPR)]);
    let has_own = expressions.map(Element::of).any(|one| one.counts());
    if !has_own && !set.big_endian(NFTA_SET_OBJ_TYPE).is_some_and(object_counts) {
        return None;
    }
    let is_port = set.big_endian(NFTA_SET_KEY_LEN).is_some_and(|bytes| bytes <= PORT_BYTES);
    Some(if is_port { DiversionKind::CountingRules } else { DiversionKind::SenderRules })
}

/// The name and the flags of a set that may be understood.
fn constant_ports(set: Attributes<'_>) -> Option<(String, u32)> {
    let flags = set.big_endian(NFTA_SET_FLAGS).unwrap_or(0);
    let fits = set.big_endian(NFTA_SET_KEY_LEN)? == PORT_BYTES && flags & NFT_SET_CONSTANT != 0;
    fits.then_some((set.text(NFTA_SET_NAME)?, flags))
}

/// Keys, and whether each ends an interval before it. `None` if one is of another kind.
fn elements(list: &[u8]) -> Option<Vec<(u16, bool)>> {
    let element = |(_, element)| {
        let element = Attributes::of(element);
        let flags = element.big_endian(NFTA_SET_ELEM_FLAGS).unwrap_or(0);
        if flags & !NFT_SET_ELEM_INTERVAL_END != 0 || element.has(NFTA_SET_ELEM_KEY_END) {
            return None;
        }
        let key = element.within(NFTA_SET_ELEM_KEY).value(NFTA_DATA_VALUE)?;
        let key = u16::from_be_bytes(key.try_into().ok()?);
        Some((key, flags & NFT_SET_ELEM_INTERVAL_END != 0))
    };
    Attributes::of(list).each().map(|attribute| element(attribute?)).collect()
}

/// The ranges that elements stand for: in a set of intervals each begins one, up to the next element.
fn keys(mut elements: Vec<(u16, bool)>, intervals: bool) -> Option<Keys> {
    if !intervals {
        let ends = elements.iter().any(|(_, ends)| *ends);
        return (!ends).then(|| elements.iter().map(|(key, _)| (*key, *key)).collect());
    }
    // Where one interval ends, the next may begin.
    elements.sort_by_key(|(key, ends)| (*key, !*ends));
    let mut keys = Keys::new();
    let mut from = None;
    for (key, ends) in elements {
        if let Some(first) = from.take() {
            // Two beginnings in a row are not what the kernel has.
            keys.push((first, key.checked_sub(1).filter(|_| ends)?));
        }
        if !ends {
            from = Some(key);
        }
    }
    keys.extend(from.map(|first| (first, u16::MAX)));
    Some(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_from_their_beginning_up_to_before_their_end() {
        let set = |elements: &[(u16, bool)]| keys(elements.to_vec(), true);
        assert_eq!(set(&[]), Some(vec![]));
        assert_eq!(set(&[(0, true), (80, false), (91, true)]), Some(vec![(80, 90)]));
        assert_eq!(set(&[(7, true), (7, false), (5, false)]), Some(vec![(5, 6), (7, u16::MAX)]));
        assert_eq!(set(&[(5, false), (7, false)]), None);
        assert_eq!(keys(vec![(80, false), (443, false)], false), Some(vec![(80, 80), (443, 443)]));
        assert_eq!(keys(vec![(80, true)], false), None);
    }
}
