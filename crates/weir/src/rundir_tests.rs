//! A hostile local user must not get a word in.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

use std::os::unix::fs::{PermissionsExt, symlink};

use tempfile::TempDir;

use super::*;

fn refusal<T: std::fmt::Debug>(result: Result<T>) -> String {
    let message = result.unwrap_err().to_string();
    assert!(message.contains("remove it"), "no remedy in: {message}");
    message
}

#[test]
fn a_new_directory_is_readable_by_all_whatever_the_umask() {
    let scratch = TempDir::new().unwrap();
    let path = scratch.path().join("weir");
    RunDir::create(&path).unwrap();
    let mode = std::fs::metadata(&path).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o755);
    RunDir::create(&path).unwrap();
}

#[test]
fn a_missing_directory_is_no_error_to_readers() {
    let scratch = TempDir::new().unwrap();
    assert!(RunDir::open(&scratch.path().join("none")).unwrap().is_none());
}

#[test]
fn a_directory_that_others_can_write_is_refused() {
    let scratch = TempDir::new().unwrap();
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o777)).unwrap();
    assert!(refusal(RunDir::create(scratch.path())).contains("can be written by others"));
    std::fs::set_permissions(scratch.path(), PermissionsExt::from_mode(0o775)).unwrap();
    refusal(RunDir::create(scratch.path()));
}

#[test]
fn a_directory_of_another_user_is_refused() {
    let scratch = TempDir::new().unwrap();
    std::os::unix::fs::chown(scratch.path(), Some(12345), None).unwrap();
    assert!(refusal(RunDir::create(scratch.path())).contains("uid 12345"));
}

#[test]
fn a_symbolic_link_is_refused_as_directory_and_as_file() {
    let scratch = TempDir::new().unwrap();
    let link = scratch.path().join("link");
    symlink("/tmp", &link).unwrap();
    assert!(refusal(RunDir::create(&link)).contains("not a directory"));

    let dir = RunDir::create(scratch.path()).unwrap();
    symlink("/etc/hostname", scratch.path().join("1-1.state.json")).unwrap();
    assert!(refusal(dir.read("1-1.state.json")).contains("symbolic link"));
    dir.open_lock_file("1-1.state.json").unwrap_err();
}

#[test]
fn a_file_of_another_user_or_kind_is_refused() {
    let scratch = TempDir::new().unwrap();
    let dir = RunDir::create(scratch.path()).unwrap();
    std::fs::write(scratch.path().join("foreign"), "{}").unwrap();
    std::os::unix::fs::chown(scratch.path().join("foreign"), Some(12345), None).unwrap();
    refusal(dir.read("foreign"));
    // Opening a FIFO must not block, and reading it must not be tried.
    rustix::fs::mknodat(CWD, scratch.path().join("fifo"), FileType::Fifo, PRIVATE, 0).unwrap();
    refusal(dir.read("fifo"));
}

#[test]
fn a_file_that_is_rewritten_is_whole_whoever_reads_it() {
    let scratch = TempDir::new().unwrap();
    let dir = RunDir::create(scratch.path()).unwrap();
    let inode = || dir.inode("a").unwrap();
    let mut seen = Vec::new();
    for text in ["first", "second and longer", "third", "fourth", "fifth"] {
        dir.rewrite("a", PRIVATE, text.as_bytes()).unwrap();
        assert_eq!(dir.read("a").unwrap().as_deref(), Some(text));
        seen.push(inode());
    }
    assert!(seen[1..].windows(3).all(|of| of[0] == of[2] && of[0] != of[1]), "{seen:?}");
    // Somebody began to read the predecessor while it was the file.
    let reader = File::open(scratch.path().join(".a.tmp")).unwrap();
    rustix::fs::flock(&reader, FlockOperation::LockShared).unwrap();
    dir.rewrite("a", PRIVATE, b"sixth").unwrap();
    assert_eq!(dir.read("a").unwrap().as_deref(), Some("sixth"));
    assert_eq!(std::io::read_to_string(reader).unwrap(), "fourth");
    // Nothing is left.
    dir.rewrite("a", PRIVATE, b"seventh").unwrap();
    dir.remove("a").unwrap();
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
}

#[test]
fn a_reader_waits_for_a_lock_but_not_for_ever() {
    let scratch = TempDir::new().unwrap();
    let dir = RunDir::create(scratch.path()).unwrap();
    dir.write("a", PRIVATE, b"text").unwrap();
    let holder = File::open(scratch.path().join("a")).unwrap();
    rustix::fs::flock(&holder, FlockOperation::LockExclusive).unwrap();
    let error = dir.read("a").unwrap_err().to_string();
    assert!(error.contains("a stays locked; see who holds it"), "{error}");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| dir.read("a").unwrap());
        drop(holder);
        assert_eq!(reader.join().unwrap().as_deref(), Some("text"));
    });
}

#[test]
fn a_write_replaces_the_file_and_leaves_nothing_else() {
    let scratch = TempDir::new().unwrap();
    let dir = RunDir::create(scratch.path()).unwrap();
    // What a writer that was killed would have left.
    std::fs::write(scratch.path().join(".a.tmp"), "torn").unwrap();
    dir.write("a", PRIVATE, b"one").unwrap();
    dir.write("a", Mode::from_raw_mode(0o644), b"two").unwrap();
    assert_eq!(dir.read("a").unwrap().as_deref(), Some("two"));
    assert_eq!(dir.names().unwrap(), ["a"]);
    let mode = std::fs::metadata(scratch.path().join("a")).unwrap().permissions().mode();
    assert_eq!(mode & 0o7777, 0o644);
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
    std::fs::write(scratch.path().join(".a.tmp"), "torn").unwrap();
    dir.remove("a").unwrap();
    dir.remove("a").unwrap();
    assert_eq!(dir.read("a").unwrap(), None);
    assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0);
}
