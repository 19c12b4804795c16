//! What the expressions of nftables, and the targets of iptables, do with a packet.
//!
//! Only those are let off that are known to take no packet elsewhere. Verdicts that drop need no
//! mention: dropping is what the gate does too.

use std::ops::RangeInclusive;

use super::kind::DiversionKind;
use crate::sys::netlink::Attributes;

const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
/// Of a target and of a match.
const NFTA_TARGET_NAME: u16 = 1;
const NFTA_PAYLOAD_SREG: u16 = 5;
const NFTA_PAYLOAD_BASE: u16 = 2;
const NFTA_PAYLOAD_OFFSET: u16 = 3;
const NFTA_PAYLOAD_LEN: u16 = 4;
const NFT_PAYLOAD_NETWORK_HEADER: u32 = 1;
/// Of IPv4's protocol, and of IPv6's next header.
const PROTOCOLS_AT: [u32; 2] = [9, 6];
const NFTA_META_KEY: u16 = 2;
const NFT_META_L4PROTO: u32 = 16;
pub(super) const NFTA_CMP_OP: u16 = 2;
pub(super) const NFT_CMP_EQ: u32 = 0;
pub(super) const NFTA_CMP_DATA: u16 = 3;
pub(super) const NFTA_DATA_VALUE: u16 = 1;
pub(super) const IPPROTO_TCP: u8 = 6;
const NFTA_LOG_GROUP: u16 = 1;
const NFTA_IMMEDIATE_DATA: u16 = 2;
const NFTA_DATA_VERDICT: u16 = 2;
const NFTA_VERDICT_CODE: u16 = 1;
const NFTA_VERDICT_CHAIN: u16 = 2;
/// A jump to a chain, and one that does not come back.
const JUMPS: [i32; 2] = [-3, -4];
pub(super) const NFTA_LOOKUP_SET: u16 = 1;
const NFTA_LOOKUP_DREG: u16 = 3;
const NFT_REG_VERDICT: u32 = 0;
const NFTA_CT_KEY: u16 = 2;
const NFTA_CT_SREG: u16 = 4;
/// Packets, bytes, and bytes per packet of a connection.
const NFT_CT_COUNTS: RangeInclusive<u32> = 14..=16;
const NFT_CT_ZONE: u32 = 17;
const NFTA_OBJREF_IMM_TYPE: u16 = 1;
const NFTA_OBJREF_SET_NAME: u16 = 4;
/// Types of objects: quota, limit, count of connections.
const NFT_OBJECTS_COUNTING: [u32; 3] = [2, 4, 5];
/// ...and the expressions that count as they do.
const COUNTING: [&str; 3] = ["quota", "limit", "connlimit"];
const NFTA_MATCH_REV: u16 = 2;
/// Of a target and of a match.
pub(super) const NFTA_EXTENSION_INFO: u16 = 3;
/// Where `struct xt_set_info_match_v3`, and `..._v4`, have how packets and bytes are compared; 0: not.
const XT_SET_V3_COMPARE_AT: [usize; 2] = [8, 24];
const XT_SET_V4_COMPARE_AT: [usize; 2] = [16, 32];
/// Of `struct xt_ct_target_info`: a flag that goes with no zone and no helper, and where these are.
const XT_CT_NOTRACK: u16 = 1;
const XT_CT_ZONE_AT: usize = 2;
const XT_CT_HELPER_AT: usize = 12;
const NF_VERDICT_MASK: u32 = 0xff;
const NF_QUEUE: u32 = 3;

/// Of nftables (`nft_expr_type`), harmless, unless [`Element::classify`] finds more in them.
const EXPRESSIONS: [&str; 25] = [
    "bitwise", "byteorder", "cmp", "counter", "ct", "exthdr", "fib", "flow_offload", "hash",
    "immediate", "inner", "last", "log", "lookup", "meta", "notrack", "numgen", "objref", "osf",
    "payload", "range", "reject", "rt", "socket", "xfrm",
];

/// Of iptables (`xt_target`), harmless. The empty name is a verdict or a jump.
const TARGETS: [&str; 27] = [
    "", "AUDIT", "CHECKSUM", "CLASSIFY", "CONNMARK", "CONNSECMARK", "CT", "DSCP", "ECN", "ERROR",
    "HL", "HMARK", "IDLETIMER", "LED", "LOG", "MARK", "NOTRACK", "REJECT", "SECMARK", "TCPMSS",
    "TCPOPTSTRIP", "TOS", "TRACE", "TTL", "ULOG", "standard", "ACCOUNT",
];

/// What a target does. `None` if it is harmless.
pub(super) fn target(name: &str) -> Option<(DiversionKind, String)> {
    let kind = match name {
        "DNAT" | "SNAT" | "MASQUERADE" | "REDIRECT" | "NETMAP" => DiversionKind::Nat,
        "SNPT" | "DNPT" => DiversionKind::HeaderRewrite,
        "TPROXY" => DiversionKind::Tproxy,
        "NFQUEUE" | "QUEUE" => DiversionKind::NfQueue,
        "TEE" | "CLUSTERIP" => DiversionKind::Forward,
        "SYNPROXY" => DiversionKind::Synproxy,
        "NFLOG" => DiversionKind::PacketLog,
        "SET" => DiversionKind::SenderRules,
        "RATEEST" => DiversionKind::CountingRules,
        name if TARGETS.contains(&name) => return None,
        _ => DiversionKind::Unknown,
    };
    Some((kind, name.to_owned()))
}

/// What a match of iptables does beside matching, by its own structure where its name does not tell. `None` if nothing.
pub(super) fn matching(name: &str, revision: u8, info: &[u8]) -> Option<(DiversionKind, String)> {
    let kind = match name {
        "recent" | "hashlimit" => DiversionKind::SenderRules,
        "set" if asks_counters(revision, info) => DiversionKind::SenderRules,
        // An object of the last may have a quota.
        "limit" | "quota" | "connlimit" | "connbytes" | "rateest" | "nfacct" => {
            DiversionKind::CountingRules
        }
        _ => return None,
    };
    Some((kind, name.to_owned()))
}

/// Whether a match by a set of ipset goes by how many packets or bytes have matched an element.
fn asks_counters(revision: u8, info: &[u8]) -> bool {
    let compare_at = match revision {
        0..=2 => return false,
        3 => XT_SET_V3_COMPARE_AT,
        4 => XT_SET_V4_COMPARE_AT,
        _ => return true,
    };
    compare_at.into_iter().any(|at| info.get(at) != Some(&0))
}

/// Whether objects of this type go by how much they have seen.
pub(super) fn object_counts(kind: u32) -> bool {
    NFT_OBJECTS_COUNTING.contains(&kind)
}

/// Whether a rule, by its list of expressions, is for TCP alone. Of what is for the host, it then misses connection
/// requests that the gate discards for a full accept queue, and what is past its share of a saturated CPU: little
/// enough to be told only.
pub(super) fn is_for_tcp(expressions: &[Element<'_>]) -> bool {
    expressions.windows(2).any(|pair| {
        let [loads, compares] = pair else { return false };
        loads.loads_protocol()
            && compares.name == "cmp"
            && compares.data.big_endian(NFTA_CMP_OP) == Some(NFT_CMP_EQ)
            && compares.data.within(NFTA_CMP_DATA).value(NFTA_DATA_VALUE) == Some(&[IPPROTO_TCP])
    })
}

/// An expression of a rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element<'a> {
    /// Empty if it has none.
    pub(super) name: &'a str,
    pub(super) data: Attributes<'a>,
}

impl<'a> Element<'a> {
    /// One by its attributes in a rule's list.
    pub(super) fn of(attributes: Attributes<'a>) -> Self {
        let name = attributes.value(NFTA_EXPR_NAME).unwrap_or_default();
        let name = name.strip_suffix(&[0]).unwrap_or(name);
        Self {
            name: str::from_utf8(name).unwrap_or("an expression with a strange name"),
            data: attributes.within(NFTA_EXPR_DATA),
        }
    }

    /// The name of a target or match.
    pub(super) fn extension(&self) -> String {
        self.data.text(NFTA_TARGET_NAME).unwrap_or_default()
    }

    /// Whether it matches by the state of a packet's connection.
    pub(super) fn asks_conntrack(&self) -> bool {
        let by_state = |name: &str| name.is_empty() || name.starts_with("conn") || name == "state";
        match self.name {
            "ct" | "connlimit" => true,
            "match" => by_state(&self.extension()),
            _ => false,
        }
    }

    /// Whether it goes by how much it has seen, of all that it is asked of together.
    pub(super) fn counts(&self) -> bool {
        COUNTING.contains(&self.name)
    }

    /// The set or map that it asks.
    fn set(&self) -> Option<String> {
        match self.name {
            "lookup" => self.data.text(NFTA_LOOKUP_SET),
            "objref" => self.data.text(NFTA_OBJREF_SET_NAME),
            _ => None,
        }
    }

    /// What it does: its kind and its name. `None` if it is harmless. `synproxies` tells whether there are objects of
    /// that type for `objref` to refer to, `of_set` what asking a set or map of its table is.
    pub(super) fn classify(
        &self,
        synproxies: bool,
        of_set: impl FnOnce(String) -> Option<DiversionKind>,
    ) -> Option<(DiversionKind, String)> {
        if let Some(set) = self.set()
            && let Some(kind) = of_set(set.clone())
        {
            return Some((kind, format!("@{set}")));
        }
        let has = |attribute| self.data.big_endian(attribute);
        let kind = match self.name {
            "target" => return target(&self.extension()),
            "match" => {
                let revision = has(NFTA_MATCH_REV).unwrap_or_default();
                let info = self.data.value(NFTA_EXTENSION_INFO).unwrap_or_default();
                return matching(&self.extension(), revision.try_into().unwrap_or(u8::MAX), info);
            }
            "" => return Some((DiversionKind::Unknown, "an expression without a name".into())),
            "nat" | "masq" | "redir" => DiversionKind::Nat,
            "tproxy" => DiversionKind::Tproxy,
            "queue" => DiversionKind::NfQueue,
            "fwd" | "dup" => DiversionKind::Forward,
            "synproxy" => DiversionKind::Synproxy,
            "payload" if self.data.has(NFTA_PAYLOAD_SREG) => DiversionKind::HeaderRewrite,
            "log" if self.data.has(NFTA_LOG_GROUP) => DiversionKind::PacketLog,
            "dynset" => DiversionKind::SenderRules,
            _ if self.counts() => DiversionKind::CountingRules,
            "ct" if has(NFTA_CT_KEY).is_some_and(|key| NFT_CT_COUNTS.contains(&key)) => {
                DiversionKind::CountingRules
            }
            "objref" if has(NFTA_OBJREF_IMM_TYPE).is_some_and(object_counts) => {
                DiversionKind::CountingRules
            }
            // Through a map, it may be to any object.
            "objref" if synproxies => DiversionKind::Synproxy,
            "immediate" if self.queues() => DiversionKind::NfQueue,
            name if EXPRESSIONS.contains(&name) => return None,
            _ => DiversionKind::Unknown,
        };
        Some((kind, self.name.to_owned()))
    }

    fn verdict(&self) -> Attributes<'a> {
        self.data.within(NFTA_IMMEDIATE_DATA).within(NFTA_DATA_VERDICT)
    }

    /// A verdict may be to queue, although `nft` itself writes that as an expression.
    fn queues(&self) -> bool {
        let code = self.verdict().big_endian(NFTA_VERDICT_CODE);
        // Jumps are negative; a queue's number is in the upper half.
        code.is_some_and(|code| code.cast_signed() > 0 && code & NF_VERDICT_MASK == NF_QUEUE)
    }

    /// Whether it loads the number of the transport's protocol.
    pub(super) fn loads_protocol(&self) -> bool {
        let from_header = |at| self.loads_from(NFT_PAYLOAD_NETWORK_HEADER, at, 1);
        PROTOCOLS_AT.into_iter().any(from_header)
            || self.name == "meta" && self.data.big_endian(NFTA_META_KEY) == Some(NFT_META_L4PROTO)
    }

    /// Whether it loads these bytes of a packet, and no others.
    pub(super) fn loads_from(&self, base: u32, offset: u32, len: u32) -> bool {
        let loads = |kind, what| self.data.big_endian(kind) == Some(what);
        self.name == "payload"
            && loads(NFTA_PAYLOAD_BASE, base)
            && loads(NFTA_PAYLOAD_OFFSET, offset)
            && loads(NFTA_PAYLOAD_LEN, len)
    }

    /// Where it leads, if anywhere.
    pub(super) fn leads(&self) -> Option<Leads> {
        match self.name {
            "immediate" => {
                let code = self.verdict().big_endian(NFTA_VERDICT_CODE)?;
                let chain = self.verdict().text(NFTA_VERDICT_CHAIN);
                JUMPS
                    .contains(&code.cast_signed())
                    .then(|| chain.map_or(Leads::ToAnyChain, Leads::ToChain))
            }
            "lookup" => {
                let register = self.data.big_endian(NFTA_LOOKUP_DREG);
                (register == Some(NFT_REG_VERDICT)).then_some(Leads::ToAnyChain)
            }
            "target" => {
                let (kind, _) = target(&self.extension())?;
                (kind == DiversionKind::Nat).then_some(Leads::Elsewhere)
            }
            "nat" | "masq" | "redir" => Some(Leads::Elsewhere),
            _ => None,
        }
    }

    /// What it does to connections that makes them hard to look up.
    pub(super) fn hides_connections(&self) -> Option<&'static str> {
        match self.name {
            "ct" if self.data.big_endian(NFTA_CT_KEY) == Some(NFT_CT_ZONE) => {
                self.data.has(NFTA_CT_SREG).then_some(PUT_INTO_ZONES)
            }
            "target" => {
                let info = self.data.value(NFTA_EXTENSION_INFO).unwrap_or_default();
                hides_connections(&self.extension(), info)
            }
            _ => None,
        }
    }
}

/// What an expression may do to the order in which rules are tried.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Leads {
    ToChain(String),
    /// Of the same table: a map says to which.
    ToAnyChain,
    /// To what the packet's connection is translated to.
    Elsewhere,
}

const PUT_INTO_ZONES: &str = "connections are put into zones, where the gate cannot look them up";
/// ...of a protocol of several connections: the further ones are translated without a rule.
pub(super) const HAVE_HELPERS: &str =
    "connections have helpers, which translate others without a rule";

/// The same of a target of iptables, by its own structure.
pub(super) fn hides_connections(target: &str, info: &[u8]) -> Option<&'static str> {
    if target != "CT" {
        return None;
    }
    let plain = half(info, 0).is_some_and(|flags| flags & !XT_CT_NOTRACK == 0);
    if !plain || half(info, XT_CT_ZONE_AT) != Some(0) {
        return Some(PUT_INTO_ZONES);
    }
    (info.get(XT_CT_HELPER_AT) != Some(&0)).then_some(HAVE_HELPERS)
}

/// A number of 16 bits in a structure of iptables.
pub(super) fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::netlink::{attribute, terminated};

    fn expression(name: &str, data: &[u8]) -> Vec<u8> {
        let mut element = attribute(NFTA_EXPR_NAME, &terminated(name));
        element.extend(attribute(NFTA_EXPR_DATA, data));
        element
    }

    fn classify(element: &[u8], synproxies: bool) -> Option<(DiversionKind, String)> {
        Element::of(Attributes::of(element)).classify(synproxies, |_| None)
    }

    fn kind(name: &str, data: &[u8]) -> Option<DiversionKind> {
        classify(&expression(name, data), false).map(|(kind, _)| kind)
    }

    #[test]
    fn what_is_not_known_to_be_harmless_counts() {
        assert_eq!(kind("cmp", &[]), None);
        assert_eq!(kind("teleport", &[]), Some(DiversionKind::Unknown));
        assert_eq!(target("STEAL").map(|(kind, _)| kind), Some(DiversionKind::Unknown));
        assert_eq!(target("LOG"), None);
        assert_eq!(matching("conntrack", 0, &[]), None);
        assert_eq!(classify(&[], false).map(|(kind, _)| kind), Some(DiversionKind::Unknown));
    }

    #[test]
    fn matches_that_go_by_counters_are_told_from_others() {
        let kind =
            |name, revision, info: &[u8]| matching(name, revision, info).map(|(kind, _)| kind);
        assert_eq!(kind("nfacct", 0, &[]), Some(DiversionKind::CountingRules));
        assert_eq!(kind("set", 1, &[1; 4]), None);
        for (revision, compare_at) in [(3, XT_SET_V3_COMPARE_AT), (4, XT_SET_V4_COMPARE_AT)] {
            assert_eq!(kind("set", revision, &[0; 48]), None);
            for at in compare_at {
                let mut info = [0; 48];
                info[at] = 1;
                assert_eq!(kind("set", revision, &info), Some(DiversionKind::SenderRules));
            }
        }
        assert_eq!(kind("set", 5, &[0; 48]), Some(DiversionKind::SenderRules));
    }

    #[test]
    fn writing_is_told_from_reading() {
        let word = 1u32.to_be_bytes();
        assert_eq!(kind("payload", &attribute(1, &word)), None);
        let write = attribute(NFTA_PAYLOAD_SREG, &word);
        assert_eq!(kind("payload", &write), Some(DiversionKind::HeaderRewrite));
        assert_eq!(kind("log", &attribute(2, b"prefix\0")), None);
        assert_eq!(
            kind("log", &attribute(NFTA_LOG_GROUP, &[0, 1])),
            Some(DiversionKind::PacketLog)
        );
    }

    #[test]
    fn targets_objects_and_verdicts_are_looked_into() {
        let verdict = |code: u32| {
            let code = attribute(NFTA_VERDICT_CODE, &code.to_be_bytes());
            attribute(NFTA_IMMEDIATE_DATA, &attribute(NFTA_DATA_VERDICT, &code))
        };
        assert_eq!(kind("immediate", &verdict(0x0005_0003)), Some(DiversionKind::NfQueue));
        for harmless in [0, 1, (-3i32).cast_unsigned(), (-5i32).cast_unsigned()] {
            assert_eq!(kind("immediate", &verdict(harmless)), None, "{harmless:#x}");
        }
        let target = |name: &[u8]| kind("target", &attribute(NFTA_TARGET_NAME, name));
        assert_eq!(target(b"DNAT\0"), Some(DiversionKind::Nat));
        assert_eq!(target(b"MARK\0"), None);
        let object = expression("objref", &[]);
        assert_eq!(classify(&object, false), None);
        assert_eq!(classify(&object, true), Some((DiversionKind::Synproxy, "objref".into())));
    }
}
