//! Another XDP program is on the interface: whose, and what can be done.

use weir_bpf::programs::Program;
use weir_bpf::sys::link::{Links, XdpAttached, XdpMode};
use weir_bpf::units::IfIndex;

use crate::choice::Attach;
use crate::error::{Error, Result};
use crate::host::Host;

/// Refuses an interface that has an XDP program, if the gate may want that place. weir never replaces
/// or detaches one, and never chooses tc of its own accord because of one.
pub fn refuse(
    host: &Host,
    ifindex: IfIndex,
    interface: &str,
    (attach, forward): (Attach, bool),
) -> Result<()> {
    if attach.is_tc() {
        return Ok(());
    }
    let beside = format!("run weir beside it with {}", at_tc(forward));
    refuse_other(&host.links, ifindex, interface, &beside)
}

/// The same for whatever is to be in the driver; `beside` says how it runs elsewhere.
pub fn refuse_other(links: &Links, ifindex: IfIndex, interface: &str, beside: &str) -> Result<()> {
    match links.xdp(ifindex)? {
        None => Ok(()),
        Some(other) => Err(refusal(interface, other, &Program::of(other.prog_id), beside)),
    }
}

/// The options with which the gate is at tc instead, where the fast path cannot be.
pub fn at_tc(forward: bool) -> &'static str {
    if forward { "`--attach tc` without `--forward xdp`" } else { "`--attach tc`" }
}

fn refusal(interface: &str, other: XdpAttached, program: &Program, beside: &str) -> Error {
    let id = other.prog_id;
    let name = program.name.as_deref().unwrap_or("whose name weir may not see");
    let (how, remedy) = match &program.xdp_link {
        None if program.name.is_none() => {
            (String::new(), format!("`bpftool prog show id {id}` as root tells whose it is"))
        }
        None => {
            let command = if program.is_wall() {
                format!("weir screen --clear {interface}")
            } else {
                format!("ip link set dev {interface} {} off", keyword(other.mode))
            };
            (", attached by netlink".into(), format!("if it is yours to remove: `{command}`"))
        }
        Some(link) if link.holders.is_empty() => (
            format!(", attached by link {}", link.id),
            format!("`bpftool link show id {}` tells where it is pinned", link.id),
        ),
        Some(link) => {
            let pids: Vec<String> = link.holders.iter().map(ToString::to_string).collect();
            let pids = pids.join(" ");
            (
                format!(", attached by link {} of pid {pids}", link.id),
                format!("it goes when that process is stopped (`ps {pids}`)"),
            )
        }
    };
    Error::refused(
        format!(
            "{interface} already has an XDP program, {name} (id {id}, {}{how}), and weir never \
             replaces one",
            other.mode
        ),
        format!("{beside}; {remedy}"),
    )
}

/// What `ip link set` calls the mode.
fn keyword(mode: XdpMode) -> &'static str {
    match mode {
        XdpMode::Native => "xdpdrv",
        XdpMode::Generic => "xdpgeneric",
        XdpMode::Offload => "xdpoffload",
        XdpMode::Multi => "xdp",
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::Pid;
    use weir_bpf::programs::XdpLink;

    use super::*;

    fn told(program: Program) -> String {
        let other = XdpAttached { prog_id: 7, mode: XdpMode::Generic };
        refusal("eth1", other, &program, at_tc(false)).to_string()
    }

    #[test]
    fn the_remedy_is_for_the_way_it_is_attached() {
        let name = Some("firewall".to_owned());
        let link = |holders| Some(XdpLink { id: 3, holders });
        let netlink = told(Program { name: name.clone(), xdp_link: None });
        assert!(netlink.contains("firewall (id 7, generic, attached by netlink)"), "{netlink}");
        assert!(netlink.contains("`ip link set dev eth1 xdpgeneric off`"), "{netlink}");
        let wall = told(Program { name: Some("weir_wall_xdp".into()), xdp_link: None });
        assert!(wall.contains("`weir screen --clear eth1`"), "{wall}");
        let pinned = told(Program { name: name.clone(), xdp_link: link(vec![]) });
        assert!(pinned.contains("attached by link 3)"), "{pinned}");
        assert!(pinned.contains("bpftool link show id 3"), "{pinned}");
        let held = told(Program { name, xdp_link: link(vec![Pid::INIT]) });
        assert!(held.contains("link 3 of pid 1)") && held.contains("`ps 1`"), "{held}");
        let hidden = told(Program::default());
        assert!(hidden.contains("may not see (id 7, generic)"), "{hidden}");
        for message in [netlink, pinned, held, hidden] {
            assert!(message.contains("`--attach tc`"), "{message}");
        }
    }
}
