//! What the expressions of nftables, and the targets of iptables, do with a packet.
//!
//! Only those are let off that are known to take no packet elsewhere. Verdicts that drop need no
//! mention: dropping is what the gate does too.

use netlink_packet_core::NlasIterator;

use super::kind::DiversionKind;
use crate::sys::netlink::{find, number};

const NFTA_EXPR_NAME: u16 = 1;
const NFTA_EXPR_DATA: u16 = 2;
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
const NFTA_LOOKUP_DREG: u16 = 3;
const NFT_REG_VERDICT: u32 = 0;
const NFTA_CT_KEY: u16 = 2;
const NFTA_CT_SREG: u16 = 4;
const NFT_CT_ZONE: u32 = 17;
const NFTA_TARGET_INFO: u16 = 3;
/// Of `struct xt_ct_target_info`: a flag that goes with no zone and no helper, and where these are.
const XT_CT_NOTRACK: u16 = 1;
const XT_CT_ZONE_AT: usize = 2;
const XT_CT_HELPER_AT: usize = 12;
const NF_VERDICT_MASK: u32 = 0xff;
const NF_QUEUE: u32 = 3;

/// Of nftables (`nft_expr_type`), harmless.
const EXPRESSIONS: [&str; 21] = [
    "bitwise",
    "byteorder",
    "cmp",
    "counter",
    "ct",
    "exthdr",
    "fib",
    "flow_offload",
    "hash",
    "inner",
    "last",
    "lookup",
    "meta",
    "notrack",
    "numgen",
    "osf",
    "range",
    "reject",
    "rt",
    "socket",
    "xfrm",
];

/// Of iptables (`xt_target`), harmless. The empty name is a verdict or a jump.
const TARGETS: [&str; 27] = [
    "",
    "AUDIT",
    "CHECKSUM",
    "CLASSIFY",
    "CONNMARK",
    "CONNSECMARK",
    "CT",
    "DSCP",
    "ECN",
    "ERROR",
    "HL",
    "HMARK",
    "IDLETIMER",
    "LED",
    "LOG",
    "MARK",
    "NOTRACK",
    "REJECT",
    "SECMARK",
    "TCPMSS",
    "TCPOPTSTRIP",
    "TOS",
    "TRACE",
    "TTL",
    "ULOG",
    "standard",
    "ACCOUNT",
];

/// Whether an expression matches by the state of a packet's connection.
pub(super) fn asks_conntrack(element: &[u8]) -> bool {
    let name = find(element, NFTA_EXPR_NAME).map(|bytes| super::text(&bytes)).unwrap_or_default();
    let data = find(element, NFTA_EXPR_DATA).unwrap_or_default();
    let extension = || find(&data, NFTA_TARGET_NAME).map(|name| super::text(&name));
    match name.as_str() {
        "ct" | "connlimit" => true,
        "match" => extension().is_none_or(|name| name.starts_with("conn") || name == "state"),
        _ => false,
    }
}

/// What an expression does, by its list element's attributes: its kind and its name. `None` if it is
/// harmless. `synproxies` tells whether there are objects of that type for `objref` to refer to.
pub(super) fn classify(element: &[u8], synproxies: bool) -> Option<(DiversionKind, String)> {
    let Some(name) = find(element, NFTA_EXPR_NAME).map(|bytes| super::text(&bytes)) else {
        return Some((DiversionKind::Unknown, "an expression without a name".into()));
    };
    let data = find(element, NFTA_EXPR_DATA).unwrap_or_default();
    // Both have their name in the same place.
    let extension = || find(&data, NFTA_TARGET_NAME).map(|n| super::text(&n)).unwrap_or_default();
    match name.as_str() {
        "target" => return target(&extension()),
        "match" => return matching(&extension()),
        _ => {}
    }
    let kind = match name.as_str() {
        "nat" | "masq" | "redir" => Some(DiversionKind::Nat),
        "tproxy" => Some(DiversionKind::Tproxy),
        "queue" => Some(DiversionKind::NfQueue),
        "fwd" | "dup" => Some(DiversionKind::Forward),
        "synproxy" => Some(DiversionKind::Synproxy),
        "payload" => find(&data, NFTA_PAYLOAD_SREG).map(|_| DiversionKind::HeaderRewrite),
        "log" => find(&data, NFTA_LOG_GROUP).map(|_| DiversionKind::PacketLog),
        "dynset" => Some(DiversionKind::SenderRules),
        "limit" | "quota" | "connlimit" => Some(DiversionKind::CountingRules),
        // Through a map, it may be to any object.
        "objref" if synproxies => Some(DiversionKind::Synproxy),
        "objref" => None,
        "immediate" => queues(&data).then_some(DiversionKind::NfQueue),
        name if EXPRESSIONS.contains(&name) => None,
        _ => Some(DiversionKind::Unknown),
    };
    kind.map(|kind| (kind, name))
}

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

/// What a match of iptables does beside matching. `None` if nothing.
pub(super) fn matching(name: &str) -> Option<(DiversionKind, String)> {
    let kind = match name {
        "recent" | "hashlimit" => DiversionKind::SenderRules,
        "limit" | "quota" | "connlimit" | "connbytes" | "rateest" => DiversionKind::CountingRules,
        _ => return None,
    };
    Some((kind, name.to_owned()))
}

/// Whether a rule, by its list of expressions, is for TCP alone. It then misses connection requests that the gate
/// discards for a full accept queue, and no more: little enough to be told only.
pub(super) fn is_for_tcp(expressions: &[Element]) -> bool {
    expressions.windows(2).any(|pair| {
        let [loads, Element { name: compares, data: compared }] = pair else { return false };
        let value = find(compared, NFTA_CMP_DATA).and_then(|data| find(&data, NFTA_DATA_VALUE));
        loads_protocol(loads)
            && compares == "cmp"
            && find(compared, NFTA_CMP_OP).as_deref().and_then(big_endian) == Some(NFT_CMP_EQ)
            && value.as_deref() == Some(&[IPPROTO_TCP])
    })
}

/// Whether an expression loads the number of the transport's protocol.
pub(super) fn loads_protocol(element: &Element) -> bool {
    let word = |kind| find(&element.data, kind).as_deref().and_then(big_endian);
    match element.name.as_str() {
        "meta" => word(NFTA_META_KEY) == Some(NFT_META_L4PROTO),
        "payload" => {
            word(NFTA_PAYLOAD_BASE) == Some(NFT_PAYLOAD_NETWORK_HEADER)
                && word(NFTA_PAYLOAD_LEN) == Some(1)
                && word(NFTA_PAYLOAD_OFFSET).is_some_and(|at| PROTOCOLS_AT.contains(&at))
        }
        _ => false,
    }
}

/// An expression of a rule.
#[derive(Debug)]
pub(super) struct Element {
    pub(super) name: String,
    pub(super) data: Vec<u8>,
}

impl Element {
    /// A rule's list of expressions, up to one that cannot be read.
    pub(super) fn list(expressions: &[u8]) -> Vec<Self> {
        let element = |attributes: &[u8]| Self {
            name: find(attributes, NFTA_EXPR_NAME)
                .map(|name| super::text(&name))
                .unwrap_or_default(),
            data: find(attributes, NFTA_EXPR_DATA).unwrap_or_default(),
        };
        let all = NlasIterator::new(expressions).map_while(Result::ok);
        all.map(|attribute| element(attribute.value())).collect()
    }

    /// Where it leads, if anywhere.
    pub(super) fn leads(&self) -> Option<Leads> {
        match self.name.as_str() {
            "immediate" => {
                let verdict = find(&self.data, NFTA_IMMEDIATE_DATA)
                    .and_then(|data| find(&data, NFTA_DATA_VERDICT))?;
                let code = find(&verdict, NFTA_VERDICT_CODE).as_deref().and_then(big_endian)?;
                let chain = find(&verdict, NFTA_VERDICT_CHAIN).map(|chain| super::text(&chain));
                JUMPS
                    .contains(&code.cast_signed())
                    .then(|| chain.map_or(Leads::ToAnyChain, Leads::ToChain))
            }
            "lookup" => {
                let register = find(&self.data, NFTA_LOOKUP_DREG).as_deref().and_then(big_endian);
                (register == Some(NFT_REG_VERDICT)).then_some(Leads::ToAnyChain)
            }
            "target" => {
                let name = find(&self.data, NFTA_TARGET_NAME).map(|name| super::text(&name));
                let (kind, _) = target(&name?)?;
                (kind == DiversionKind::Nat).then_some(Leads::Elsewhere)
            }
            "nat" | "masq" | "redir" => Some(Leads::Elsewhere),
            _ => None,
        }
    }

    /// What it does to connections that makes them hard to look up.
    pub(super) fn hides_connections(&self) -> Option<&'static str> {
        let word = |kind| find(&self.data, kind).as_deref().and_then(big_endian);
        match self.name.as_str() {
            "ct" if word(NFTA_CT_KEY) == Some(NFT_CT_ZONE) => {
                find(&self.data, NFTA_CT_SREG).map(|_| PUT_INTO_ZONES)
            }
            "target" => {
                let name = find(&self.data, NFTA_TARGET_NAME).map(|name| super::text(&name))?;
                hides_connections(&name, &find(&self.data, NFTA_TARGET_INFO).unwrap_or_default())
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
    let half = |at: usize| Some(u16::from_ne_bytes(info.get(at..at + 2)?.try_into().ok()?));
    let plain = half(0).is_some_and(|flags| flags & !XT_CT_NOTRACK == 0);
    if !plain || half(XT_CT_ZONE_AT) != Some(0) {
        return Some(PUT_INTO_ZONES);
    }
    (info.get(XT_CT_HELPER_AT) != Some(&0)).then_some(HAVE_HELPERS)
}

/// A verdict may be to queue, although `nft` itself writes that as an expression.
fn queues(immediate: &[u8]) -> bool {
    let code = find(immediate, NFTA_IMMEDIATE_DATA)
        .and_then(|data| find(&data, NFTA_DATA_VERDICT))
        .and_then(|verdict| find(&verdict, NFTA_VERDICT_CODE));
    let code = code.as_deref().and_then(big_endian);
    // Jumps are negative; a queue's number is in the upper half.
    code.is_some_and(|code| code.cast_signed() > 0 && code & NF_VERDICT_MASK == NF_QUEUE)
}

/// Numbers of netfilter are in network byte order.
pub(super) fn big_endian(bytes: &[u8]) -> Option<u32> {
    number(bytes).map(u32::from_be)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::netlink::attribute;

    fn expression(name: &str, data: &[u8]) -> Vec<u8> {
        let mut name = name.as_bytes().to_vec();
        name.push(0);
        let mut element = attribute(NFTA_EXPR_NAME, &name);
        element.extend(attribute(NFTA_EXPR_DATA, data));
        element
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
        assert_eq!(matching("conntrack"), None);
        assert_eq!(classify(&[], false).map(|(kind, _)| kind), Some(DiversionKind::Unknown));
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
