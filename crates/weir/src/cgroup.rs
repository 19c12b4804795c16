//! Control groups, as proc(5) lists them, and out of one: what ends or freezes the group as a whole (`cgroup.kill`, `cgroup.freeze`,
//! `memory.oom.group`, a container's runtime) is for the daemon and not for the guardian, which is to see it.

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Moves this process into the root group of each hierarchy by which a group can be ended or frozen, as far as
/// that is to be seen and may be written. In a container it is the container's: there, it stays where it is.
pub fn leave() {
    let mounts = fs::read("/proc/self/mountinfo").unwrap_or_default();
    for root in mounts.split(|byte| *byte == b'\n').filter_map(root) {
        // "0": whoever writes.
        let _ = fs::write(root.join("cgroup.procs"), "0");
    }
}

/// Of each line of `/proc/PID/cgroup`: hierarchy, controllers, path.
pub fn memberships(cgroup: &[u8]) -> impl Iterator<Item = [&[u8]; 3]> {
    let lines = cgroup.split(|byte| *byte == b'\n');
    lines.filter_map(|line| {
        // A path may have colons.
        let mut fields = line.splitn(3, |byte| *byte == b':');
        Some([fields.next()?, fields.next()?, fields.next()?])
    })
}

/// What a line of `/proc/PID/mountinfo` tells.
pub struct Mounted<'a> {
    /// What is mounted of a file system.
    pub root: PathBuf,
    /// Where.
    pub at: PathBuf,
    /// The file system's type.
    pub kind: &'a [u8],
    /// Its options.
    pub options: &'a [u8],
}

impl<'a> Mounted<'a> {
    /// From the line.
    pub fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let (root, at) = (unescaped(fields.nth(3)?), unescaped(fields.next()?));
        let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
        Some(Self { root, at, kind: fields.next()?, options: fields.nth(1)? })
    }
}

/// A path in which the kernel writes a space as `\040`, and a tab, a line feed and `\` likewise (`mangle()`).
fn unescaped(field: &[u8]) -> PathBuf {
    let (mut path, mut rest) = (Vec::new(), field);
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..3).filter(|_| *first == b'\\');
        let escaped = digits.and_then(|it| u8::from_str_radix(str::from_utf8(it).ok()?, 8).ok());
        path.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &after[3..] } else { after };
    }
    OsString::from_vec(path).into()
}

/// Whether a list of controllers or options, with commas between, has this one.
pub fn has(list: &[u8], wanted: &[u8]) -> bool {
    list.split(|byte| *byte == b',').any(|each| each == wanted)
}

/// Where a line of `/proc/PID/mountinfo` shows the root of a hierarchy by which a group can be ended or frozen.
fn root(line: &[u8]) -> Option<PathBuf> {
    let Mounted { root, at, kind, options } = Mounted::parse(line)?;
    let ends_or_freezes = match kind {
        b"cgroup2" => true,
        b"cgroup" => has(options, b"freezer") || has(options, b"name=systemd"),
        _ => false,
    };
    (ends_or_freezes && root == Path::new("/")).then_some(at)
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
            (r"33 23 0:29 / /a\040b\134040/c rw - cgroup2 cgroup2 rw", Some(r"/a b\040/c")),
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
