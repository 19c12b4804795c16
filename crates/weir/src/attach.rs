//! Where the gate goes: where the user says, else where the interface's driver bears it best.

use std::rc::Rc;

use rustix::io::Errno;
use weir_bpf::attach::AttachMode;
use weir_bpf::gate::Gate;
use weir_bpf::sys::ethtool;
use weir_bpf::units::IfIndex;

use crate::choice::Attach;
use crate::claim::Claim;
use crate::company;
use crate::diverting::Diverting;
use crate::error::{Error, Result};
use crate::host::Host;
use crate::journal::{Journal, TurnedKnob};
use crate::knob::Knob;

/// Drivers whose native XDP takes something from traffic that has nothing to do with weir, and what.
/// On them the gate goes to tc, where TCP keeps its rate: `docs/adr/0004-attach-point.md`.
const COSTLY: [(&str, &str); 3] = [
    ("veth", "native XDP on a veth makes its peer give up TSO"),
    ("virtio_net", "native XDP makes virtio_net give up its receive offloads"),
    ("vmxnet3", "native XDP makes vmxnet3 give up LRO"),
];

/// What native XDP takes from other traffic on interfaces of a driver; none where that is not known to cost anything.
pub fn native_cost(driver: Option<&str>) -> Option<&'static str> {
    COSTLY.iter().find(|(name, _)| driver == Some(name)).map(|(_, cost)| *cost)
}

/// An attached gate.
pub struct Attached {
    /// Where.
    pub mode: AttachMode,
    /// Why there.
    pub reason: String,
    /// The record of what would outlive this process.
    pub filter: Option<TurnedKnob>,
}

/// Attaches a gate that `prepare` has loaded for such a place and told everything.
pub fn attach(
    host: &Host,
    claim: &Claim,
    (request, forward): (Attach, bool),
    prepare: impl Fn(AttachMode) -> Result<(Gate, Diverting)>,
) -> Result<(Gate, Diverting, Attached)> {
    let (ifindex, journal, interface) = (claim.ifindex, &claim.journal, claim.interface());
    // Whatever has no driver to name has no native XDP either.
    let driver = ethtool::driver(&interface).ok();
    let (places, mut reason) = plan(request, claim.bare, driver.as_deref());
    let (mut refusal, mut prepared) = (None, None);
    for mode in places {
        let is_for_it = |(gate, _): &(Gate, _)| gate.is_for(*mode);
        let (mut gate, diverting) =
            prepared.take().filter(is_for_it).map_or_else(|| prepare(*mode), Ok)?;
        match attach_at(&mut gate, journal, ifindex, &interface, *mode) {
            Ok(filter) => return Ok((gate, diverting, Attached { mode: *mode, reason, filter })),
            Err(error) if mode.is_xdp() && is_taken(&error) => {
                // It has come since the interface was claimed.
                company::refuse(host, ifindex, &interface, (request, forward))?;
                return Err(error);
            }
            Err(error) => {
                reason += &format!("; {} was refused ({})", mode.description(), why(&error));
                refusal.get_or_insert(error);
                prepared = Some((gate, diverting));
            }
        }
    }
    let problem = refusal.map_or_else(String::new, |error| error.to_string());
    let remedy = match request {
        Attach::Native | Attach::Generic => {
            format!("try {}, which every interface takes", company::at_tc(forward))
        }
        Attach::Auto | Attach::Tc | Attach::Clsact => format!(
            "weir needs root (CAP_NET_ADMIN); `tc filter show dev {interface} ingress` lists what \
             others have there"
        ),
    };
    Err(Error::refused(problem, remedy))
}

fn attach_at(
    gate: &mut Gate,
    journal: &Rc<Journal>,
    ifindex: IfIndex,
    interface: &str,
    mode: AttachMode,
) -> Result<Option<TurnedKnob>> {
    if mode != AttachMode::Clsact {
        gate.attach(ifindex, interface, mode)?;
        return Ok(None);
    }
    let filter = gate.filter_record(ifindex)?;
    // Recorded before it is there: dropping the knob removes whatever has come of it.
    let knob = journal.turn(Knob::TcFilter { filter })?;
    gate.attach_filter(ifindex, interface, filter)?;
    Ok(Some(knob))
}

/// The kernel's answer alone.
fn why(error: &Error) -> String {
    match error {
        Error::Kernel(weir_bpf::Error::System { source, .. }) => source.to_string(),
        other => other.to_string(),
    }
}

/// Places to try, best first, and why the first is the best. `bare`: packets have no Ethernet header.
fn plan(request: Attach, bare: bool, driver: Option<&str>) -> (&'static [AttachMode], String) {
    use AttachMode::{Clsact, Generic, Native, Tcx};
    let asked = |how: &str| format!("asked for with `--attach {how}`");
    match request {
        Attach::Native => (&[Native], asked("native")),
        Attach::Generic => (&[Generic], asked("generic")),
        Attach::Tc => (&[Tcx, Clsact], asked("tc")),
        Attach::Clsact => (&[Clsact], asked("clsact")),
        Attach::Auto if bare => {
            (&[Tcx, Clsact], "auto: XDP is for packets with an Ethernet header".into())
        }
        Attach::Auto => {
            let why = match (native_cost(driver), driver) {
                (Some(cost), _) => format!("auto: {cost}"),
                // Drivers may give up LRO or hardware GRO for it, need queues, or reset their rings, and their
                // link goes down for a while.
                (None, Some(driver)) => format!(
                    "auto: native XDP's cost to other traffic is not measured on driver {driver}; \
                     `--attach native`, if that has it, discards at less cost"
                ),
                (None, None) => "auto: no driver that could run XDP".into(),
            };
            (&[Tcx, Clsact, Generic], why)
        }
    }
}

/// Whether the kernel answered that another XDP program is there: `EEXIST` says that it is in
/// another mode.
fn is_taken(error: &Error) -> bool {
    matches!(error, Error::Kernel(kernel)
        if matches!(kernel.errno(), Some(Errno::BUSY | Errno::EXIST)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_goes_where_nobody_else_pays() {
        let first = |request, driver| plan(request, false, driver).0[0];
        for costly in ["veth", "virtio_net"] {
            assert_eq!(first(Attach::Auto, Some(costly)), AttachMode::Tcx);
            assert!(plan(Attach::Auto, false, Some(costly)).1.contains(costly));
        }
        for unmeasured in ["ixgbe", "bnxt_en", "mlx5_core"] {
            assert_eq!(first(Attach::Auto, Some(unmeasured)), AttachMode::Tcx);
        }
        assert_eq!(first(Attach::Auto, None), AttachMode::Tcx);
    }

    #[test]
    fn what_is_asked_for_is_what_is_done() {
        assert_eq!(plan(Attach::Native, false, Some("veth")).0, [AttachMode::Native]);
        assert_eq!(plan(Attach::Generic, false, Some("ixgbe")).0, [AttachMode::Generic]);
        let tc = plan(Attach::Tc, false, Some("ixgbe"));
        assert_eq!(tc.0, [AttachMode::Tcx, AttachMode::Clsact]);
        assert!(tc.1.contains("--attach tc"));
    }
}
