//! Out of a control group: what ends or freezes the group as a whole (`cgroup.kill`, `cgroup.freeze`,
//! `memory.oom.group`, a container's runtime) is for the daemon and not for the guardian, which is to see it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

/// Moves this process into the root group of each hierarchy by which a group can be ended or frozen, as far as
/// that is to be seen and may be written. In a container it is the container's: there, it stays where it is.
pub fn leave() {
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    for root in mounts.split(|byte| *byte == b'\n').filter_map(root) {
        // "0": whoever writes.
        let _ = fs::write(root.join("cgroup.procs"), "0");
    }
}

/// Where a line of `/proc/PID/mountinfo` (proc(5)) shows the root of such a hierarchy.
fn root(line: &[u8]) -> Option<PathBuf> {
    let mut fields = line.split(|byte| *byte == b' ');
    let (root, at) = (fields.nth(3)?, fields.next()?);
    let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
    let (kind, options) = (fields.next()?, fields.nth(1)?);
    let mut options = options.split(|byte| *byte == b',');
    let ends_or_freezes = match kind {
        b"cgroup2" => true,
        b"cgroup" => options.any(|option| option == b"freezer" || option == b"name=systemd"),
        _ => false,
    };
    (ends_or_freezes && root == b"/").then(|| OsString::from_vec(at.to_vec()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_roots_of_what_ends_or_freezes_are_found() {
        for (line, found) in [
            ("31 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw", Some("/sys/fs/cgroup")),
            ("32 23 0:28 / /a/freezer rw shared:3 - cgroup cgroup rw,freezer", Some("/a/freezer")),
            (
                "33 23 0:29 / /a/systemd rw - cgroup cgroup rw,xattr,name=systemd",
                Some("/a/systemd"),
            ),
            ("34 23 0:30 / /a/cpu rw - cgroup cgroup rw,cpu", None),
            ("35 23 0:27 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw", None),
            ("36 23 0:27 /docker/x /sys/fs/cgroup rw - cgroup2 cgroup2 rw", None),
            ("37 23 0:31 / /tmp rw - tmpfs none rw", None),
            ("", None),
        ] {
            assert_eq!(root(line.as_bytes()), found.map(PathBuf::from), "{line}");
        }
    }
}
