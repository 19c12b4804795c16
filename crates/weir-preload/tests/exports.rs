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

#[test]
fn all_calls_are_there() {
    let library: PathBuf = std::env::current_exe().unwrap().with_file_name("libweir_preload.so");
    let output = Command::new("nm").args(["-D", "--defined-only"]).arg(&library).output().unwrap();
    let symbols = String::from_utf8(output.stdout).unwrap();
    let names: Vec<&str> = symbols.lines().filter_map(|line| line.split(' ').next_back()).collect();
    for call in CALLS {
        assert!(names.contains(call), "{call} is not in {}", library.display());
    }
}
