//! Walls that stand in front of interfaces, whoever put them there.

use std::io;

use libbpf_rs::query::{ProgInfoIter, ProgInfoQueryOptions};
use libbpf_rs::{MapCore, MapFlags, MapHandle, libbpf_sys};
use rustix::io::Errno;
use rustix::process::Pid;

use crate::accounts::monotonic_now;
use crate::error::{Error, Result};
use crate::object::id_of;
use crate::programs::{Program, gates_at_tc, holders_of_both};
use crate::record::record;
use crate::skeleton::wall::types;
use crate::sys::divert;
use crate::sys::link::Links;
use crate::sys::tc::{FilterId, Hook};
use crate::tc_bpf;
use crate::units::IfIndex;

pub(crate) const WALL: &str = "the wall";
/// Before the filters of others: what one of them accepts, those behind it never see. "wall", in ASCII.
pub(super) const FILTER: FilterId = FilterId { chain: 0, priority: 1, handle: 0x7761_6c6c };
/// The same where the wall came with a `clsact`, which goes with it; "WALL".
pub(super) const FILTER_AND_QDISC: FilterId = FilterId { handle: 0x5741_4c4c, ..FILTER };

/// A wall that stands in front of an interface, whoever put it there.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Its screen, if that runs and may be seen.
    pub screen: Option<Pid>,
    /// Whether that has said of late that it lives ([`Wall::beat`]): not if it is stopped, or gets no CPU time.
    pub alive: bool,
    /// [`Options::fail_open`] of it.
    pub fail_open: bool,
}

/// The wall in front of an interface; none also if the interface is gone, and, in the driver, without `CAP_SYS_ADMIN`.
///
/// # Errors
/// When the kernel does not answer.
pub fn find(links: &Links, ifindex: IfIndex) -> Result<Option<Found>> {
    let programs = programs_at(links, ifindex)?;
    if programs.is_empty() {
        return Ok(None);
    }
    let screen = programs.iter().find_map(|id| screen_of(*id));
    let alive = screen.is_some() && programs.iter().any(|id| is_alive(*id));
    Ok(Some(Found { screen, alive, fail_open: programs.into_iter().all(fails_open) }))
}

/// Those of walls in front of an interface.
pub(super) fn programs_at(links: &Links, ifindex: IfIndex) -> Result<Vec<u32>> {
    let in_driver = match links.xdp(ifindex) {
        Err(error) if error.errno() == Some(Errno::NODEV) => None,
        found => found?.map(|xdp| xdp.prog_id),
    };
    let in_driver = in_driver.filter(|prog_id| Program::of(*prog_id).is_wall());
    Ok([in_driver, program_at_tc(links, ifindex)?].into_iter().flatten().collect())
}

/// Who has loaded it: others may hold the program, too, to watch it, but no ring of its.
fn screen_of(program: u32) -> Option<Pid> {
    // Not held here any more when the processes are looked at.
    let ring = map_of(program, "asked_first").and_then(|map| id_of(&map, WALL).ok())?;
    holders_of_both(program, ring).into_iter().next()
}

/// A wall's map whose name ends so.
pub(super) fn map_of(program: u32, name: &str) -> Option<MapHandle> {
    let options = ProgInfoQueryOptions::default().include_map_ids(true);
    let info = ProgInfoIter::with_query_opts(options).find(|info| info.id == program)?;
    let mut maps = info.map_ids.into_iter().filter_map(|id| MapHandle::from_map_id(id).ok());
    maps.find(|map| map.name().to_string_lossy().ends_with(name))
}

/// By its read-only data, as far as the kernel tells.
fn fails_open(program: u32) -> bool {
    const AT: usize = std::mem::offset_of!(types::rodata, fail_open);
    value(program, ".rodata", 0).is_some_and(|data| data.get(AT) == Some(&1))
}

/// By the same time as the kernel half.
fn is_alive(program: u32) -> bool {
    const AT: usize = std::mem::offset_of!(types::bss, alive_until_ns);
    let until = value(program, ".bss", 0).and_then(|data| record::<u64>(data.get(AT..)?));
    until.is_some_and(|until| monotonic_now().0 <= until)
}

/// An entry of an array of its.
pub(super) fn value(program: u32, name: &str, number: u32) -> Option<Vec<u8>> {
    map_of(program, name)?.lookup(&number.to_ne_bytes(), MapFlags::ANY).ok().flatten()
}

/// Takes a wall away that stands in front of an interface, whoever put it there; whether there was one.
///
/// # Errors
/// The kernel's refusal.
pub fn clear(ifindex: IfIndex, ifname: &str) -> Result<bool> {
    Ok(clear_driver(ifindex, ifname)? | clear_tc(ifindex, ifname)?)
}

pub(super) fn clear_driver(ifindex: IfIndex, ifname: &str) -> Result<bool> {
    let found = in_driver(ifindex)? == Some(true);
    if found {
        set_xdp(-1, ifindex).map_err(|source| not_cleared(ifname, source))?;
    }
    Ok(found)
}

pub(super) fn clear_tc(ifindex: IfIndex, ifname: &str) -> Result<bool> {
    let links = Links::open()?;
    let Some(filter) = at_tc(&links, ifindex)? else { return Ok(false) };
    filter.detach(ifindex).map_err(|source| not_cleared(ifname, source))?;
    if filter == FILTER_AND_QDISC && !links.has_filters(ifindex)? {
        tc_bpf::destroy_hook(ifindex).map_err(|source| not_cleared(ifname, source))?;
    }
    Ok(true)
}

fn not_cleared(ifname: &str, source: io::Error) -> Error {
    Error::system("take the wall away from", ifname, source)
}

/// Whether the XDP program of an interface is a wall; none if there is none.
///
/// # Errors
/// When the kernel does not answer.
pub fn in_driver(ifindex: IfIndex) -> Result<Option<bool>> {
    let attached = Links::open()?.xdp(ifindex)?;
    Ok(attached.map(|xdp| Program::of(xdp.prog_id).is_wall()))
}

/// By netlink, so that it stays; -1 takes it away.
#[allow(unsafe_code)]
pub(super) fn set_xdp(program: i32, ifindex: IfIndex) -> io::Result<()> {
    let flags = libbpf_sys::XDP_FLAGS_DRV_MODE;
    // SAFETY: without options the pointer may be null.
    tc_bpf::result(unsafe {
        libbpf_sys::bpf_xdp_attach(ifindex.0.cast_signed(), program, flags, std::ptr::null())
    })
}

/// A wall's filter, if there is one: libbpf complains on standard error of one that it does not find.
pub(super) fn at_tc(links: &Links, ifindex: IfIndex) -> Result<Option<FilterId>> {
    let filters = links.filters(ifindex, Hook::Ingress)?;
    Ok(filters.into_iter().find(|id| [FILTER, FILTER_AND_QDISC].contains(id)))
}

/// The number of its program.
pub(super) fn program_at_tc(links: &Links, ifindex: IfIndex) -> Result<Option<u32>> {
    at_tc(links, ifindex)?.map_or(Ok(None), |filter| filter.program(ifindex))
}

/// What sees packets at tc before a wall does: tcx runs before every filter, and of filters with one preference the newest
/// may be the first. A gate hands on what it does not discard.
pub(super) fn before_tc(links: &Links, ifindex: IfIndex) -> Result<Option<String>> {
    let any = divert::programs::tcx(ifindex, &[]);
    if let Some(found) = any.and_then(|_| divert::programs::tcx(ifindex, &gates_at_tc())) {
        return Ok(Some(found.detail));
    }
    let comes_before = |id: &FilterId| {
        id.chain == FILTER.chain
            && id.priority <= FILTER.priority
            && ![FILTER, FILTER_AND_QDISC].contains(id)
    };
    let found = links.filters(ifindex, Hook::Ingress)?.into_iter().find(comes_before);
    Ok(found.map(|id| format!("a tc filter with preference {}", id.priority)))
}
