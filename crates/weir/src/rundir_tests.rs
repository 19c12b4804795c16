//! A hostile local user must not get a word in.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;

/// A directory of the test's own, removed when dropped.
pub(crate) struct Scratch(pub PathBuf);

impl Scratch {
    pub(crate) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("weir-test-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn refusal<T: std::fmt::Debug>(result: Result<T>) -> String {
    let message = result.unwrap_err().to_string();
    assert!(message.contains("remove it"), "no remedy in: {message}");
    message
}

#[test]
fn a_new_directory_is_readable_by_all_whatever_the_umask() {
    let scratch = Scratch::new();
    let path = scratch.0.join("weir");
    RunDir::create(&path).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
    RunDir::create(&path).unwrap();
}

#[test]
fn a_missing_directory_is_no_error_to_readers() {
    let scratch = Scratch::new();
    assert!(RunDir::open(&scratch.0.join("none")).unwrap().is_none());
}

#[test]
fn a_directory_that_others_can_write_is_refused() {
    let scratch = Scratch::new();
    std::fs::set_permissions(&scratch.0, PermissionsExt::from_mode(0o777)).unwrap();
    assert!(refusal(RunDir::create(&scratch.0)).contains("can be written by others"));
    std::fs::set_permissions(&scratch.0, PermissionsExt::from_mode(0o775)).unwrap();
    refusal(RunDir::create(&scratch.0));
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let scratch = Scratch::new();
    std::os::unix::fs::chown(&scratch.0, Some(12345), None).unwrap();
    assert!(refusal(RunDir::create(&scratch.0)).contains("uid 12345"));
}

#[test]
fn a_symbolic_link_is_refused_as_directory_and_as_file() {
    let scratch = Scratch::new();
    let link = scratch.0.join("link");
    symlink("/tmp", &link).unwrap();
    assert!(refusal(RunDir::create(&link)).contains("not a directory"));

    let dir = RunDir::create(&scratch.0).unwrap();
    symlink("/etc/hostname", scratch.0.join("1-1.state.json")).unwrap();
    assert!(refusal(dir.read("1-1.state.json")).contains("symbolic link"));
    dir.open_lock_file("1-1.state.json").unwrap_err();
}

#[test]
fn a_file_of_another_user_or_kind_is_refused() {
    let scratch = Scratch::new();
    let dir = RunDir::create(&scratch.0).unwrap();
    std::fs::write(scratch.0.join("foreign"), "{}").unwrap();
    std::os::unix::fs::chown(scratch.0.join("foreign"), Some(12345), None).unwrap();
    refusal(dir.read("foreign"));
    // Opening a FIFO must not block, and reading it must not be tried.
    rustix::fs::mknodat(CWD, scratch.0.join("fifo"), FileType::Fifo, PRIVATE, 0).unwrap();
    refusal(dir.read("fifo"));
}

#[test]
fn a_file_that_is_rewritten_is_whole_whoever_reads_it() {
    let scratch = Scratch::new();
    let dir = RunDir::create(&scratch.0).unwrap();
    let inode = || dir.inode("a").unwrap();
    let mut seen = Vec::new();
    for text in ["first", "second and longer", "third", "fourth", "fifth"] {
        dir.rewrite("a", PRIVATE, text.as_bytes()).unwrap();
        assert_eq!(dir.read("a").unwrap().as_deref(), Some(text));
        seen.push(inode());
    }
    assert!(seen[1..].windows(3).all(|of| of[0] == of[2] && of[0] != of[1]), "{seen:?}");
    // Somebody began to read the predecessor while it was the file.
    let reader = File::open(scratch.0.join(".a.tmp")).unwrap();
    rustix::fs::flock(&reader, FlockOperation::LockShared).unwrap();
    dir.rewrite("a", PRIVATE, b"sixth").unwrap();
    assert_eq!(dir.read("a").unwrap().as_deref(), Some("sixth"));
    assert_eq!(std::io::read_to_string(reader).unwrap(), "fourth");
    // Nothing is left.
    dir.rewrite("a", PRIVATE, b"seventh").unwrap();
    dir.remove("a").unwrap();
    assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 0);
}

#[test]
fn a_write_replaces_the_file_and_leaves_nothing_else() {
    let scratch = Scratch::new();
    let dir = RunDir::create(&scratch.0).unwrap();
    // What a writer that was killed would have left.
    std::fs::write(scratch.0.join(".a.tmp"), "torn").unwrap();
    dir.write("a", PRIVATE, b"one").unwrap();
    dir.write("a", Mode::from_raw_mode(0o644), b"two").unwrap();
    assert_eq!(dir.read("a").unwrap().as_deref(), Some("two"));
    assert_eq!(dir.names().unwrap(), ["a"]);
    let mode = std::fs::metadata(scratch.0.join("a")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o644);
    assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 1);
    std::fs::write(scratch.0.join(".a.tmp"), "torn").unwrap();
    dir.remove("a").unwrap();
    dir.remove("a").unwrap();
    assert_eq!(dir.read("a").unwrap(), None);
    assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 0);
}
