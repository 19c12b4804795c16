//! What a gate costs or hides on an interface, told at the start together with the remedy.

use weir_bpf::abi::LOCAL_ADDRESSES;
use weir_bpf::attach::AttachMode;
use weir_bpf::programs::{self, Program};
use weir_bpf::sys::ethtool;
use weir_bpf::sys::link::Links;
use weir_bpf::units::IfIndex;

/// A veth's peer may then send no packet larger than the MTU (`veth_xdp_set()`).
const VETH: &str =
    "with a gate in its driver, a veth's peer gives up TSO, and a TCP stream from it is slower";
/// Where it is there by choice.
const NOT_NATIVE: &str = "; without `--attach native` weir goes to tc, which leaves TSO on, but then NAPI may stay in \
                          softirq";

/// What there is to say about an interface that has just got its gate. Nothing depends on it, so
/// what cannot be found out is left out.
pub fn at_start(
    links: &Links,
    ifindex: IfIndex,
    interface: &str,
    attach: AttachMode,
    forwards: bool,
) -> Vec<String> {
    let is_veth = || ethtool::driver(interface).is_ok_and(|driver| driver == "veth");
    let mut notes = Vec::new();
    if attach == AttachMode::Native && is_veth() {
        notes.push(format!("{VETH}{}", if forwards { "" } else { NOT_NATIVE }));
    }
    if !attach.is_xdp() {
        let other = links.xdp(ifindex).ok().flatten().map(|other| Program::of(other.prog_id));
        notes.extend(other.filter(|other| !other.is_wall()).map(|other| before(&other)));
    }
    if attach == AttachMode::Tcx {
        notes.extend(programs::at_tcx(ifindex).ok().and_then(|names| behind(&names)));
    }
    notes
}

/// Of this host's addresses, the gate does not know `what`.
pub fn unlisted(what: &str) -> String {
    format!(
        "this host has {what} of its own; the gate knows single addresses, up to {LOCAL_ADDRESSES} of IPv4 and of \
         IPv6, and passes what is for the others, also to full sockets (no-route)"
    )
}

fn before(other: &Program) -> String {
    format!(
        "another XDP program runs before the gate ({}), and weir does not see packets that it drops or takes elsewhere (an \
         AF_XDP socket, another interface)",
        other.name.as_deref().unwrap_or("?")
    )
}

/// The gate has just been put behind the programs that were there.
fn behind(names: &[String]) -> Option<String> {
    let (_gate, others) = names.split_last()?;
    (!others.is_empty()).then(|| {
        format!(
            "other tc programs run before the gate ({}), and weir does not see packets that one of \
             them accepts (TC_ACT_OK); `--attach native`, on a driver that takes it, sees all",
            others.join(", ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_others_are_named() {
        let names =
            |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(behind(&names(&["weir_gate_tc"])), None);
        assert_eq!(behind(&[]), None);
        let note = behind(&names(&["first", "second", "weir_gate_tc"])).unwrap();
        assert!(note.contains("(first, second)"), "{note}");
    }
}
