//! Each kind of diversion is found, and gone again once removed: with the real tools, in namespaces.

mod cookies;
mod device;
mod filter;
mod rules;
mod translation;
mod watch;

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use libbpf_rs::libbpf_sys;

use super::kind::DiversionKind;
use super::{DiversionWatch, Sight};
use crate::object::{load_returning, owned};
use crate::sys::link::Links;
use crate::sys::test_support::{Sandbox, sh, try_sh, with_pair};

/// A namespace with a veth pair `near` and `far`, both up, in the thread that runs the test.
fn with_watch(test: impl FnOnce(&mut DiversionWatch) + Send) {
    with_watch_of(false, test);
}

/// The same of a gate that may ask conntrack.
fn with_watch_of(connections: bool, test: impl FnOnce(&mut DiversionWatch) + Send) {
    with_pair(|links, near, far| {
        links.set_up(near).unwrap();
        links.set_up(far).unwrap();
        let sight = Sight { connections, protocol: true, ..Sight::default() };
        let mut watch = DiversionWatch::open(near, sight).unwrap();
        assert_eq!(watch.read(&[]), [], "nothing diverts in an empty namespace");
        test(&mut watch);
    });
}

/// After `add`, exactly this is found; after `remove`, nothing.
fn comes_and_goes(
    watch: &mut DiversionWatch,
    kind: DiversionKind,
    part_of_detail: &str,
    [add, remove]: [&str; 2],
) {
    sh(add);
    let found = watch.read(&[]);
    assert_eq!(found.iter().map(|one| one.kind).collect::<Vec<_>>(), [kind], "{add}: {found:?}");
    assert!(found[0].detail.contains(part_of_detail), "{add}: {found:?}");
    sh(remove);
    assert_eq!(watch.read(&[]), [], "{remove}");
}

/// As [`comes_and_goes`], where the kernel may lack what `add` asks for.
fn comes_and_goes_if_present(
    watch: &mut DiversionWatch,
    kind: DiversionKind,
    part_of_detail: &str,
    commands: [&str; 2],
    feature: &str,
) {
    if let Err(error) = try_sh(commands[0]) {
        let absent = ["Unknown device type", "not supported", "No such file or directory"];
        assert!(absent.iter().any(|text| error.contains(text)), "{error}");
        println!("skipped: this kernel lacks {feature} ({})", error.trim());
        return;
    }
    comes_and_goes(watch, kind, part_of_detail, ["true", commands[1]]);
}

/// Attaches a program that leaves everything to the kernel (`return 1`).
fn attach(
    kind: libbpf_sys::bpf_prog_type,
    place: libbpf_sys::bpf_attach_type,
    target: &File,
) -> OwnedFd {
    attach_with(kind, place, target.as_raw_fd(), None)
}

#[allow(unsafe_code)]
fn attach_with(
    kind: libbpf_sys::bpf_prog_type,
    place: libbpf_sys::bpf_attach_type,
    target: RawFd,
    how: Option<&libbpf_sys::bpf_link_create_opts>,
) -> OwnedFd {
    let options =
        libbpf_sys::bpf_prog_load_opts { expected_attach_type: place, ..Default::default() };
    let program = load_returning(kind, c"nothing", 1, options).unwrap();
    let how = how.map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: the program is open, as is the target if there is one; the options outlive the call.
    let link = unsafe { libbpf_sys::bpf_link_create(program.as_raw_fd(), target, place, how) };
    owned(link).unwrap()
}
