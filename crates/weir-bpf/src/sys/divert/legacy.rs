//! Rules of legacy iptables (`x_tables`), read by the socket options that `iptables-legacy` uses.
//!
//! Only tables that exist are asked for: asking for another would make it.

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::diversion::Diversion;
use super::expression::{IPPROTO_TCP, half, hides_connections, matching, target};
use super::kind::DiversionKind;
use super::ports::{Conditions, PortSet};
use super::proc::read;
use super::translation::Translation;
use super::way::{IP_HOOKS, Way};
use crate::sys::netlink::text;
use crate::sys::procfile::ProcFile;
use crate::sys::sockopt;

const SO_GET_INFO: i32 = 64;
const SO_GET_ENTRIES: i32 = 65;
/// `struct ipt_getinfo`, the same for both families.
const INFO_BYTES: usize = 84;
const NAME_BYTES: usize = 32;
const HOOK_ENTRY_OFFSET: usize = 36;
const UNDERFLOW_OFFSET: usize = 56;
const ENTRIES_COUNT_OFFSET: usize = 76;
const SIZE_OFFSET: usize = 80;
/// Where an extension's own structure begins, after `struct xt_entry_match` or `struct xt_entry_target`.
const EXTENSION_BYTES: usize = 32;
/// Where `struct ipt_get_entries` has its entries.
const ENTRIES_OFFSET: usize = 40;
/// The same in a target and in a match.
const NAME_OFFSET: usize = 2;
const EXTENSION_NAME_BYTES: usize = 29;
const REVISION_OFFSET: usize = 31;
const IPT_INV_PROTO: u8 = 0x40;
const STANDARD_VERDICT_OFFSET: usize = 32;
/// Of a standard target: -NF_QUEUE - 1.
const VERDICT_QUEUE: i32 = -4;
/// -NF_ACCEPT - 1.
const VERDICT_ACCEPT: i32 = -2;

struct Family {
    names: &'static str,
    command: &'static str,
    address: AddressFamily,
    level: i32,
    /// Where `struct ipt_entry` has the protocol, and three or four bytes later which conditions are inverted.
    protocol_offset: usize,
    inverted_offset: usize,
    /// Where it has its target's offset, which is followed by its own length.
    target_offset: usize,
    /// Where it ends, and its matches begin.
    matches_offset: usize,
}

const FAMILIES: [Family; 2] = [
    Family {
        names: "/proc/thread-self/net/ip_tables_names",
        command: "iptables-legacy",
        address: AddressFamily::INET,
        level: 0,
        protocol_offset: 80,
        inverted_offset: 83,
        target_offset: 88,
        matches_offset: 112,
    },
    Family {
        names: "/proc/thread-self/net/ip6_tables_names",
        command: "ip6tables-legacy",
        address: AddressFamily::INET6,
        level: 41,
        protocol_offset: 128,
        inverted_offset: 132,
        target_offset: 140,
        matches_offset: 168,
    },
];

/// The names of tables, of each family.
pub(super) fn tables() -> [ProcFile; 2] {
    FAMILIES.each_ref().map(|family| ProcFile::new(family.names))
}

/// What the calling thread's network namespace has for packets that go this way.
pub(super) fn iptables(
    way: Way,
    tables: &mut [ProcFile; 2],
    translation: &mut Translation,
) -> Vec<Diversion> {
    let each = |(family, names)| of_family(way, family, names, translation);
    FAMILIES.iter().zip(tables).flat_map(each).collect()
}

fn of_family(
    way: Way,
    family: &Family,
    names: &mut ProcFile,
    translation: &mut Translation,
) -> Vec<Diversion> {
    let names = match names.read() {
        Ok(names) => names,
        Err(error) => return vec![Diversion::unknown(family.names, error)],
    };
    let mut found = Vec::new();
    for table in names.lines() {
        let place = format!("{} table {table}", family.command);
        match entries(family, table) {
            Ok((info, entries)) => {
                found.extend(judge(way, family, &place, (&info, &entries), table == "nat"));
                if table == "nat" {
                    translation.add_table(&place);
                }
                for rule in Rules::new(family, &entries).flatten() {
                    translate(way, family, &place, &info, &rule, translation);
                }
            }
            Err(errno) => found.push(Diversion::unknown(&place, errno)),
        }
    }
    found
}

/// Tables that do more than accept everything, one line each; of policies, only those on this way count.
pub(super) fn met(way: Way) -> Vec<String> {
    FAMILIES.iter().flat_map(|family| of_family_met(family, way)).collect()
}

fn of_family_met(family: &Family, way: Way) -> Vec<String> {
    let names = match read(family.names) {
        Ok(names) => names,
        Err(error) => return vec![format!("{}: {error}", family.names)],
    };
    let active = |table: &str| {
        let Ok((info, entries)) = entries(family, table) else { return true };
        let hooks = word(&info, NAME_BYTES).unwrap_or_default();
        // Each hook has its policy, and an entry that marks the end follows.
        let policies = hooks.count_ones() + 1;
        let accepts = |hook: usize| {
            let at = word(&info, UNDERFLOW_OFFSET + 4 * hook).map(|at| at as usize);
            let entry = at.and_then(|at| entries.get(at..));
            let target = entry.and_then(|entry| entry.get(offset(entry, family.target_offset)?..));
            target.and_then(|target| word(target, STANDARD_VERDICT_OFFSET)).map(u32::cast_signed)
                == Some(VERDICT_ACCEPT)
        };
        word(&info, ENTRIES_COUNT_OFFSET) != Some(policies)
            || (0..IP_HOOKS).any(|hook| hooks & (1 << hook) != 0 && way.has(hook) && !accepts(hook))
    };
    let has_rules = |table: &str| format!("{} table {table} has rules", family.command);
    let found = |table: &str| match (table, way) {
        // The gate knows by itself which requests to listeners are translated.
        ("nat", Way::Answered) => None,
        // Without rules, it still translates the connections that it knows.
        ("nat", Way::Through) => Some(format!("{} table nat translates (NAT)", family.command)),
        _ => active(table).then(|| has_rules(table)),
    };
    names.lines().filter_map(found).collect()
}

fn entries(family: &Family, table: &str) -> rustix::io::Result<(Vec<u8>, Vec<u8>)> {
    let socket = socket_with(family.address, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let mut info = vec![0; INFO_BYTES];
    let name = table.as_bytes();
    info.get_mut(..name.len()).ok_or(Errno::INVAL)?.copy_from_slice(name);
    sockopt::get(&socket, family.level, SO_GET_INFO, &mut info)?;
    let size = word(&info, SIZE_OFFSET).ok_or(Errno::BADMSG)?;
    let mut entries = vec![0; ENTRIES_OFFSET + size as usize];
    entries[..name.len()].copy_from_slice(name);
    entries[NAME_BYTES..][..4].copy_from_slice(&size.to_ne_bytes());
    sockopt::get(&socket, family.level, SO_GET_ENTRIES, &mut entries)?;
    Ok((info, entries.split_off(ENTRIES_OFFSET)))
}

/// One diversion per kind of target; a table's first rule of the kind is enough.
fn judge(
    way: Way,
    family: &Family,
    place: &str,
    (info, entries): (&[u8], &[u8]),
    nat: bool,
) -> Vec<Diversion> {
    let mut found: Vec<Diversion> = Vec::new();
    for rule in Rules::new(family, entries) {
        let Some(Rule { at, entry, target }) = rule else {
            found.push(Diversion::unknown(place, "a malformed rule"));
            break;
        };
        if nat || !is_elsewhere(way, info, at) {
            let matches = extensions(family, entry)
                .into_iter()
                .filter_map(|Extension { name, revision, own }| matching(&name, revision, own));
            let for_tcp = way == Way::In && protocol(family, entry) == Some(IPPROTO_TCP);
            found.extend(matches.chain(target_of(target)).map(|(kind, name)| {
                let kind = if for_tcp { kind.of_tcp() } else { kind };
                Diversion::new(kind, format!("{place}: rules with {name}"))
            }));
        }
    }
    found.sort();
    found.dedup();
    found
}

/// A rule, from its entry on and from its target on, and where the entry is.
struct Rule<'a> {
    at: usize,
    entry: &'a [u8],
    target: &'a [u8],
}

/// The rules of a table; `None` of one that cannot be read, which is the last.
struct Rules<'a> {
    family: &'a Family,
    entries: &'a [u8],
    at: usize,
}

impl<'a> Rules<'a> {
    fn new(family: &'a Family, entries: &'a [u8]) -> Self {
        Self { family, entries, at: 0 }
    }
}

impl<'a> Iterator for Rules<'a> {
    type Item = Option<Rule<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at;
        let entry = self.entries.get(at..).filter(|entry| !entry.is_empty())?;
        let target_at = offset(entry, self.family.target_offset).filter(|offset| *offset > 0);
        let length = offset(entry, self.family.target_offset + 2).filter(|length| *length > 0);
        let (Some(target_at), Some(length)) = (target_at, length) else {
            self.at = self.entries.len();
            return Some(None);
        };
        self.at += length;
        Some(Some(Rule { at, entry, target: entry.get(target_at..).unwrap_or_default() }))
    }
}

/// What a rule may do to connections. Where it is jumped from does not matter: it is taken to be reached by all.
fn translate(
    way: Way,
    family: &Family,
    place: &str,
    info: &[u8],
    rule: &Rule<'_>,
    translation: &mut Translation,
) {
    let name = extension_name(rule.target);
    let own = rule.target.get(EXTENSION_BYTES..).unwrap_or_default();
    if let Some(why) = hides_connections(&name, own) {
        translation.hide(place, why);
    }
    let kind = target_of(rule.target).map(|(kind, _)| kind);
    // Masquerading is for what leaves.
    if kind != Some(DiversionKind::Nat) || name == "MASQUERADE" || is_elsewhere(way, info, rule.at)
    {
        return;
    }
    let mut conditions = Conditions::default();
    if let Some(number) = protocol(family, rule.entry) {
        conditions.protocol(number);
    }
    for Extension { name, own, .. } in extensions(family, rule.entry) {
        conditions.extension(&name, own);
    }
    translation.add_ports(place, &PortSet::all().meeting(&conditions));
}

/// A match, with its own structure.
struct Extension<'a> {
    name: String,
    revision: u8,
    own: &'a [u8],
}

/// A rule's matches.
fn extensions<'a>(family: &Family, entry: &'a [u8]) -> Vec<Extension<'a>> {
    let end = offset(entry, family.target_offset).unwrap_or_default();
    let mut found = Vec::new();
    let mut at = family.matches_offset;
    while at < end
        && let Some(extension) = entry.get(at..)
        && let Some(length) = offset(extension, 0).filter(|length| *length > 0)
    {
        let own = extension.get(EXTENSION_BYTES..).unwrap_or_default();
        let revision = extension.get(REVISION_OFFSET).copied().unwrap_or_default();
        found.push(Extension { name: extension_name(extension), revision, own });
        at += length;
    }
    found
}

/// The only one that a rule is for.
fn protocol(family: &Family, entry: &[u8]) -> Option<u8> {
    let inverted = entry.get(family.inverted_offset)? & IPT_INV_PROTO != 0;
    let number = half(entry, family.protocol_offset).and_then(|number| u8::try_from(number).ok());
    number.filter(|number| *number != 0 && !inverted)
}

fn extension_name(extension: &[u8]) -> String {
    let name = extension.get(NAME_OFFSET..).unwrap_or_default();
    text(name.get(..EXTENSION_NAME_BYTES).unwrap_or_default())
}

fn target_of(target_struct: &[u8]) -> Option<(DiversionKind, String)> {
    let name = extension_name(target_struct);
    let verdict = word(target_struct, STANDARD_VERDICT_OFFSET).map(u32::cast_signed);
    match (name.as_str(), verdict) {
        ("", Some(VERDICT_QUEUE)) => target("QUEUE"),
        ("", None) => Some((DiversionKind::Unknown, "cut short".into())),
        (name, _) => target(name),
    }
}

/// Whether a rule is in a built-in chain that no packet passes that goes this way.
fn is_elsewhere(way: Way, info: &[u8], at: usize) -> bool {
    let hooks = word(info, NAME_BYTES).unwrap_or_default();
    (0..IP_HOOKS).filter(|hook| !way.has(*hook)).any(|hook| {
        let bound = |offset| word(info, offset + 4 * hook).map(|bound| bound as usize);
        let within = bound(HOOK_ENTRY_OFFSET).is_some_and(|first| at >= first)
            && bound(UNDERFLOW_OFFSET).is_some_and(|last| at <= last);
        hooks & (1 << hook) != 0 && within
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes)
}

fn offset(bytes: &[u8], at: usize) -> Option<usize> {
    half(bytes, at).map(usize::from)
}
