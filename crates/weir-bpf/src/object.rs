//! How BPF objects, programs and maps are opened.

use std::ffi::CStr;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{FromRawFd, OwnedFd};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapHandle, ProgramMut, libbpf_sys};

use crate::error::{Error, Result};

/// Loads an object, once `prepare` has set what the kernel is to be given.
///
/// A skeleton borrows its storage: a few bytes per object ever loaded are not given back.
pub(crate) fn load<B: SkelBuilder<'static> + Default>(
    what: &'static str,
    prepare: impl FnOnce(&mut B::Output) -> libbpf_rs::Result<()>,
) -> Result<<B::Output as OpenSkel<'static>>::Output> {
    let storage = Box::leak(Box::new(MaybeUninit::uninit()));
    let mut open = B::default().open(storage).map_err(Error::bpf("open", what))?;
    prepare(&mut open).map_err(Error::bpf("prepare", what))?;
    open.load().map_err(Error::bpf("load", what))
}

/// An object's global variables, which libbpf maps into this process when it opens or loads an object that has any.
pub(crate) fn globals<T>(mapped: Option<T>) -> T {
    mapped.unwrap_or_else(|| unreachable!("libbpf has not mapped an object's variables"))
}

/// Attaches programs, one after the other: all that are loaded, or none. They are detached in the same order.
pub(crate) fn attach_all<const N: usize>(
    what: &'static str,
    programs: [&ProgramMut<'_>; N],
) -> Result<Vec<Link>> {
    let loaded = programs.into_iter().filter(|program| program.autoload());
    loaded.map(|program| program.attach().map_err(Error::bpf("attach", what))).collect()
}

/// Has a program attached while that is wanted; whether that is new.
pub(crate) fn hear(
    link: &mut Option<Link>,
    program: &ProgramMut<'_>,
    wanted: bool,
    what: &'static str,
) -> Result<bool> {
    let is_new = wanted != link.is_some();
    if is_new {
        let attached = wanted.then(|| program.attach()).transpose();
        *link = attached.map_err(Error::bpf("attach", what))?;
    }
    Ok(is_new)
}

/// The kernel's number of a map, for [`open_map`] in another process.
pub(crate) fn id_of(map: &impl MapCore, what: &'static str) -> Result<u32> {
    Ok(map.info().map_err(Error::libbpf("look up", what))?.info.id)
}

/// Another process's map, by the kernel's number of it.
pub(crate) fn open_map(map_id: u32, what: &str) -> Result<MapHandle> {
    let remedy = "it needs root (CAP_SYS_ADMIN), and a `weir run` that still runs";
    let object = format!("{what}, BPF map {map_id}");
    MapHandle::from_map_id(map_id).map_err(Error::bpf_remedied("open", object, remedy))
}

/// Loads a program that was put together here.
#[allow(unsafe_code)]
pub(crate) fn load_program(
    kind: libbpf_sys::bpf_prog_type,
    name: &CStr,
    instructions: &[libbpf_sys::bpf_insn],
    options: libbpf_sys::bpf_prog_load_opts,
) -> io::Result<OwnedFd> {
    let sz = size_of::<libbpf_sys::bpf_prog_load_opts>() as libbpf_sys::size_t;
    let mut options = libbpf_sys::bpf_prog_load_opts { sz, ..options };
    let (name, license) = (name.as_ptr(), c"GPL".as_ptr());
    let (first, count) = (instructions.as_ptr(), instructions.len() as libbpf_sys::size_t);
    // SAFETY: name and license end in NUL; instructions and options outlive the call.
    owned(unsafe { libbpf_sys::bpf_prog_load(kind, name, license, first, count, &raw mut options) })
}

/// Loads a program that only returns a number.
pub(crate) fn load_returning(
    kind: libbpf_sys::bpf_prog_type,
    name: &CStr,
    value: i32,
    options: libbpf_sys::bpf_prog_load_opts,
) -> io::Result<OwnedFd> {
    let instruction = |code, imm| libbpf_sys::bpf_insn { code, imm, ..Default::default() };
    let r0 = instruction((libbpf_sys::BPF_ALU64 | libbpf_sys::BPF_MOV) as u8, value);
    let exit = instruction((libbpf_sys::BPF_JMP | libbpf_sys::BPF_EXIT) as u8, 0);
    load_program(kind, name, &[r0, exit], options)
}

/// The descriptor that libbpf has just made, or its reason for none.
#[allow(unsafe_code)]
pub(crate) fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::from_raw_os_error(-fd));
    }
    // SAFETY: new, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
