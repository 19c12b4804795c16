//! Control groups, as proc(5) lists them, and out of one: what ends or freezes the group as a whole (`cgroup.kill`, `cgroup.freeze`,
//! `memory.oom.group`, a container's runtime) is for the daemon and not for the guardian, which is to see it.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, open};

/// A group's processes, in each group.
const PROCS: &str = "cgroup.procs";
/// The initial namespace (`PROC_CGROUP_INIT_INO`, include/linux/proc_ns.h).
const INITIAL: &str = "cgroup:[4026531835]";

/// Moves this process into the root group of each hierarchy by which a group can be ended or frozen, as far as
/// that is to be seen and may be written. In a container it is the container's: there, it stays where it is.
pub fn leave() {
    for root in mounts().into_iter().filter_map(root) {
        // Not `fs::write()`, which makes a file where there is none. "0": whoever writes.
        let procs = open(root.join(PROCS), OFlags::WRONLY | OFlags::NOFOLLOW, Mode::empty());
        let _ = procs.and_then(|procs| rustix::io::write(procs, b"0"));
    }
}

/// What cannot be done about control groups here: whether `guardian`, which leaves them if it can, is out of them, unless
/// weir is `managed`, as a unit's `ExecStopPost=` restores then; and whether those of others, and so their weights, are to
/// be seen.
pub fn note(guardian: i32, managed: bool) -> Option<String> {
    let groups = fs::read(format!("/proc/{guardian}/cgroup")).unwrap_or_default();
    let namespace = fs::read_link("/proc/self/ns/cgroup").unwrap_or_default();
    note_of(&groups, managed, &mounts(), namespace == Path::new(INITIAL))
}

/// In a namespace that is not the initial one, the root is a group, too.
fn note_of(guardian: &[u8], managed: bool, mounts: &[Mounted], is_initial: bool) -> Option<String> {
    let stays = !managed
        && memberships(guardian).any(|[number, controllers, path]| {
            (number == b"0" || ends_or_freezes(controllers)) && !(is_initial && path == b"/")
        });
    let is_first = memberships(guardian).any(|[_, controllers, _]| has(controllers, b"cpu"));
    let shows = |it: &Mounted| match is_first {
        true => it.kind == b"cgroup" && has(&it.options, b"cpu"),
        false => it.kind == b"cgroup2",
    };
    let seen = is_initial && mounts.iter().any(|it| it.root == Path::new("/") && shows(it));
    // Not of a container, which has some.
    let elsewhere = match mounts.is_empty() {
        true => {
            " (after `ip netns exec`, which hides them: `nsenter --net=/run/netns/NAME` in its place)"
        }
        false => "",
    };
    let said = [
        stays.then(|| {
            "the guardian is not out of weir's control group, so what ends or freezes that takes both (`weir reset` \
             restores)".into()
        }),
        (!seen && !guardian.is_empty()).then(|| {
            format!(
                "weir does not see others' control groups, so each of their weights counts as the usual one{elsewhere}"
            )
        }),
    ];
    let said: Vec<_> = said.into_iter().flatten().collect();
    (!said.is_empty()).then(|| said.join("; "))
}

/// What is mounted of control groups, as this process sees it; where it sees nothing, as PID 1 does, if that may be
/// looked at: `ip netns exec` puts a new /sys in the place of one with control groups.
///
/// weir mounts nothing itself, because a mount of version 2 sets the options of all: it would take the host's
/// `nsdelegate` away (`apply_cgroup_root_flags()`, kernel/cgroup/cgroup.c).
pub fn mounts() -> Vec<Mounted> {
    let mut mounts = seen_by("self");
    if mounts.is_empty() {
        mounts = seen_by("1");
        // What is above this process's namespace stays out of sight.
        mounts.retain(|it| !it.root.starts_with("/.."));
    }
    mounts
}

fn seen_by(process: &str) -> Vec<Mounted> {
    let process = Path::new("/proc").join(process);
    let seen = |line| {
        let mut it = Mounted::parse(line)?;
        it.at = process.join("root").join(it.at.strip_prefix("/").ok()?);
        // Something else may be mounted over it.
        (it.kind.starts_with(b"cgroup") && it.at.join(PROCS).exists()).then_some(it)
    };
    let lines = fs::read(process.join("mountinfo")).unwrap_or_default();
    lines.split(|byte| *byte == b'\n').filter_map(seen).collect()
}

/// The control group with which a process is frozen, as far as these mounts show it.
pub fn frozen(pid: i32, mounts: &[Mounted]) -> Option<PathBuf> {
    let groups = fs::read(format!("/proc/{pid}/cgroup")).ok()?;
    memberships(&groups).find_map(|[number, controllers, path]| {
        let path = Path::new(OsStr::from_bytes(path));
        mounts.iter().find_map(|it| {
            let (file, thawed): (_, fn(&str) -> bool) = match it.kind.as_slice() {
                b"cgroup2" if number == b"0" => {
                    ("cgroup.events", |text| !text.lines().any(|line| line == "frozen 1"))
                }
                b"cgroup" if has(controllers, b"freezer") && has(&it.options, b"freezer") => {
                    ("freezer.state", |text| text.trim_end() == "THAWED")
                }
                _ => return None,
            };
            let group = it.at.join(path.strip_prefix(&it.root).ok()?);
            // A root has no such file.
            let text = fs::read_to_string(group.join(file)).ok()?;
            let seen = group.strip_prefix("/proc/self/root").map(|path| Path::new("/").join(path));
            (!thawed(&text)).then(|| seen.unwrap_or(group))
        })
    })
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
pub struct Mounted {
    /// What is mounted of a file system.
    pub root: PathBuf,
    /// Where.
    pub at: PathBuf,
    /// The file system's type.
    pub kind: Vec<u8>,
    /// Its options.
    pub options: Vec<u8>,
}

impl Mounted {
    /// From the line.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let (root, at) = (unescaped(fields.nth(3)?), unescaped(fields.next()?));
        let mut fields = fields.skip_while(|field| *field != b"-").skip(1);
        Some(Self { root, at, kind: fields.next()?.into(), options: fields.nth(1)?.into() })
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

/// Whether a group of the hierarchy of version 1 that has these can be ended or frozen by it.
fn ends_or_freezes(controllers: &[u8]) -> bool {
    has(controllers, b"freezer") || has(controllers, b"name=systemd")
}

/// Where this is the root of a hierarchy by which a group can be ended or frozen.
fn root(Mounted { root, at, kind, options }: Mounted) -> Option<PathBuf> {
    let ends_or_freezes = match kind.as_slice() {
        b"cgroup2" => true,
        b"cgroup" => ends_or_freezes(&options),
        _ => false,
    };
    (ends_or_freezes && root == Path::new("/")).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_done_about_groups_is_said() {
        let mounted = |line: &str| Mounted::parse(line.as_bytes());
        let (guardian, weights) = ("the guardian is not out", "counts as the usual one");
        let second = "31 23 0:27 / /a rw - cgroup2 cgroup2 rw";
        for (groups, mounts, is_initial, said) in [
            ("0::/", second, true, vec![]),
            ("0::/a", second, true, vec![guardian]),
            ("0::/", "", true, vec![weights]),
            ("0::/", "31 23 0:27 /docker/x /a rw - cgroup2 cgroup2 rw", true, vec![weights]),
            ("0::/", second, false, vec![guardian, weights]),
            ("3:cpu:/\n0::/", second, true, vec![weights]),
            ("3:cpu:/a\n0::/", "32 23 0:28 / /b rw - cgroup cgroup rw,cpu", true, vec![]),
            ("2:freezer:/a\n0::/", second, true, vec![guardian]),
            ("2:name=systemd:/a\n1:memory:/b\n0::/", second, true, vec![guardian]),
            ("", "", true, vec![]),
        ] {
            let mounts: Vec<_> = mounted(mounts).into_iter().collect();
            let has = |managed, text| {
                let note = note_of(groups.as_bytes(), managed, &mounts, is_initial);
                note.is_some_and(|note| note.contains(text))
            };
            let expected = [guardian, weights].map(|each| said.contains(&each));
            assert_eq!([guardian, weights].map(|each| has(false, each)), expected, "{groups}");
            let is_hidden = said.contains(&weights) && mounts.is_empty();
            assert_eq!(has(false, "nsenter --net="), is_hidden, "{groups}");
            assert_eq!([has(true, guardian), has(true, weights)], [false, expected[1]], "{groups}");
        }
    }

    #[test]
    fn the_roots_of_what_ends_or_freezes_are_found() {
        let root = |line| Mounted::parse(line).and_then(root);
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
