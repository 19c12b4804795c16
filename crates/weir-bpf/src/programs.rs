//! Other people's BPF programs: whose is it that is attached?

use libbpf_rs::query::{LinkInfoIter, LinkTypeInfo, ProgInfoIter};
use rustix::process::Pid;

use crate::error::{Error, Result};
use crate::sys::divert;
use crate::sys::link::object;
use crate::sys::stat;
use crate::units::IfIndex;

/// An attached program, as far as the kernel tells. Without `CAP_SYS_ADMIN` it tells nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// The name that it was loaded under: the first 15 bytes of its function's.
    pub name: Option<String>,
    /// The link that holds it at an XDP hook; `None` if it was attached by netlink, or if the kernel
    /// does not tell.
    pub xdp_link: Option<XdpLink>,
}

/// A link that holds a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct XdpLink {
    /// The kernel's number of it.
    pub id: u32,
    /// The processes that hold it open; none if it is pinned only.
    pub holders: Vec<Pid>,
}

impl Program {
    /// The program of this number.
    pub fn of(prog_id: u32) -> Self {
        let info = ProgInfoIter::default().find(|program| program.id == prog_id);
        let name = info.map(|program| program.name.to_string_lossy().into_owned());
        Self { name: name.filter(|name| !name.is_empty()), xdp_link: xdp_link_of(prog_id) }
    }

    /// Whether it is a wall in the driver, which may have outlived its screen.
    pub fn is_wall(&self) -> bool {
        self.name.as_deref() == Some("weir_wall_xdp")
    }
}

fn xdp_link_of(prog_id: u32) -> Option<XdpLink> {
    let of_program = |link: &libbpf_rs::query::LinkInfo| {
        link.prog_id == prog_id && matches!(link.info, LinkTypeInfo::Xdp(_))
    };
    let id = LinkInfoIter::default().find(of_program)?.id;
    Some(XdpLink { id, holders: holders(&[format!("link_id:\t{id}")]) })
}

/// The processes with descriptors of this program and of this map.
pub(crate) fn holders_of_both(program_id: u32, map_id: u32) -> Vec<Pid> {
    holders(&[format!("prog_id:\t{program_id}"), format!("map_id:\t{map_id}")])
}

/// The processes with descriptors that `/proc/PID/fdinfo` tells these lines of.
fn holders(lines: &[String]) -> Vec<Pid> {
    let holds = |pid: &Pid| {
        let Ok(fds) = std::fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return false };
        let texts = fds.flatten().filter_map(|fd| std::fs::read_to_string(fd.path()).ok());
        let texts: Vec<String> = texts.collect();
        lines.iter().all(|line| texts.iter().any(|text| text.lines().any(|each| each == line)))
    };
    let processes = stat::processes().unwrap_or_default();
    processes.into_iter().filter_map(Pid::from_raw).filter(holds).collect()
}

/// The kernel's numbers of weir's gates at tc, whichever daemon's: they take no packet elsewhere.
pub fn gates_at_tc() -> Vec<u32> {
    let gates = ProgInfoIter::default().filter(|program| program.name == "weir_gate_tc");
    gates.map(|program| program.id).collect()
}

/// Names of the programs at an interface's tcx ingress hook, in the order in which they run.
///
/// # Errors
/// [`Error::System`] where the kernel has no tcx, or without `CAP_NET_ADMIN`.
pub fn at_tcx(ifindex: IfIndex) -> Result<Vec<String>> {
    let ids = divert::programs::at_tcx(ifindex)
        .map_err(|source| Error::system("list the tc programs of", object(ifindex), source))?;
    let name = |id| Program::of(id).name.unwrap_or_else(|| format!("program {id}"));
    Ok(ids.into_iter().map(name).collect())
}
