//! The library stands in for all calls that receive, wait, duplicate or close, also as `_FORTIFY_SOURCE` makes them.

#![allow(clippy::unwrap_used, reason = "a failed call fails the test")]

use std::path::PathBuf;
use std::process::Command;

const CALLS: &[&str] = &[
    "bind", "recv", "recvfrom", "recvmsg", "recvmmsg", "read", "readv", "__recv_chk",
    "__recvfrom_chk", "__read_chk", "poll", "ppoll", "__poll_chk", "__ppoll_chk", "select",
    "pselect", "epoll_ctl", "close", "close_range", "closefrom", "dup", "dup2", "dup3", "fcntl",
    "fcntl64", "ioctl", "setsockopt", "syscall",
];

fn library(name: &str) -> PathBuf {
    std::env::current_exe().unwrap().with_file_name(name)
}

#[test]
fn all_calls_are_there() {
    let library = library("libweir_preload.so");
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output().unwrap();
    let symbols = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> = symbols.lines().filter_map(|line| line.split(' ').next_back()).collect();
    for call in CALLS {
        assert!(names.contains(call), "{call} is not in {}", library.display());
    }
}

/// What it is made of has one.
#[test]
fn it_has_no_name_for_the_linker() {
    let names = ["libweir_preload.so", "libweir_socket.so"].map(|name| {
        let output = Command::new("objdump").arg("-p").arg(library(name)).output().unwrap();
        let headers = String::from_utf8(output.stdout).unwrap();
        let name = headers.lines().find_map(|line| line.trim().strip_prefix("SONAME"));
        name.map(|name| name.trim().to_owned())
    });
    assert_eq!(names, [None, Some("libweir_socket.so.0".to_owned())]);
}
