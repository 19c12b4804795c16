//! What a control group weighs beside its siblings, as the scheduler has it: `cpu.weight` of version 2 (100 is
//! usual), `cpu.shares` of version 1 (1,024).
//!
//! The scheduler divides a CPU among a group's children, and each part among theirs (`tg->shares`,
//! kernel/sched/fair.c). Weights along a process's groups, multiplied, say how much it is favoured if each group's
//! siblings have work as well.
//!
//! Only groups that root has made count. Who has been given one may make others below it and weigh them as he
//! likes: they divide what his own gets, and are not to multiply it.

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io::Read;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::{Duration, Instant};

use crate::cgroup::{self, Mounted, has, memberships};

/// A weight may change without anybody being moved, so it is read again when it is so old.
const KEPT: Duration = Duration::from_secs(5);
/// Groups further down weigh as their parents.
const DEPTH_MAX: usize = 16;
/// What a weight may come to; the kernel's extremes are 1/100 and 100 of each group.
const RANGE: (f64, f64) = (0.001, 1000.0);
/// `WEIGHT_IDLEPRIO`, kernel/sched/sched.h: of a group with `cpu.idle`, whose `cpu.weight` reads as 0.
const IDLE: f64 = 3.0 / 1024.0;

/// A version of control groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Version {
    One,
    Two,
}

impl Version {
    fn file(self) -> &'static str {
        match self {
            Self::One => "cpu.shares",
            Self::Two => "cpu.weight",
        }
    }

    /// A group's weight, as its file has it; `None` if that is nonsense.
    fn weight(self, text: &str) -> Option<f64> {
        let number: u32 = text.trim_end().parse().ok()?;
        match (self, number) {
            (Self::One, 2..=262_144) => Some(f64::from(number) / 1024.0),
            (Self::Two, 0) => Some(IDLE),
            (Self::Two, 1..=10_000) => Some(f64::from(number) / 100.0),
            _ => None,
        }
    }
}

/// The group by which the scheduler weighs a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuGroup {
    version: Version,
    path: PathBuf,
}

impl CpuGroup {
    /// From `/proc/PID/cgroup`; `None` of a process that is in the root.
    pub fn parse(cgroup: &[u8]) -> Option<Self> {
        let weighing = memberships(cgroup).filter_map(|[number, controllers, path]| {
            let is_first = has(controllers, b"cpu");
            let version = if is_first { Version::One } else { Version::Two };
            (is_first || number == b"0").then_some((version, path))
        });
        // Where version 1 has the controller, version 2 has not.
        let (version, path) = weighing.min_by_key(|(version, _)| *version)?;
        (path != b"/").then(|| Self { version, path: owned(path) })
    }
}

/// Where a hierarchy is to be seen, and what of it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mount {
    version: Version,
    root: PathBuf,
    at: PathBuf,
}

impl Mount {
    /// `None` of a hierarchy without weights.
    fn of(Mounted { root, at, kind, options }: Mounted) -> Option<Self> {
        let version = match kind.as_slice() {
            b"cgroup2" => Version::Two,
            b"cgroup" if has(&options, b"cpu") => Version::One,
            _ => return None,
        };
        Some(Self { version, root, at })
    }
}

fn owned(path: &[u8]) -> PathBuf {
    OsString::from_vec(path.to_vec()).into()
}

/// What a group's own file says.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Level {
    Weighs(f64),
    /// It is not weighed: the controller is not switched on there, or something is wrong.
    Nothing,
    /// Not root's.
    Foreign,
}

/// Weights of groups, remembered for a while.
#[derive(Debug, Default)]
pub struct GroupWeights {
    since: Option<Instant>,
    mounts: Vec<Mount>,
    levels: HashMap<PathBuf, Level>,
}

impl GroupWeights {
    /// Forgets what is old.
    pub fn refresh(&mut self) {
        if self.since.is_some_and(|since| since.elapsed() < KEPT) {
            return;
        }
        *self = Self::new(cgroup::mounts());
    }

    fn new(mounts: Vec<Mounted>) -> Self {
        let mounts = mounts.into_iter().filter_map(Mount::of).collect();
        Self { since: Some(Instant::now()), mounts, levels: HashMap::new() }
    }

    /// How much a group is favoured; 1 is usual, and of what cannot be found out.
    pub fn weight(&mut self, group: &CpuGroup) -> f64 {
        let below = |mount: &Mount| {
            let below = group.path.strip_prefix(&mount.root).ok()?.to_owned();
            (mount.version == group.version).then(|| (mount.at.clone(), below))
        };
        let Some((mut directory, below)) = self.mounts.iter().find_map(below) else { return 1.0 };
        let mut weight = 1.0;
        for part in below.components().take(DEPTH_MAX) {
            let Component::Normal(part) = part else { return 1.0 };
            directory.push(part);
            let file = group.version.file();
            let level = *self.levels.entry(directory.clone()).or_insert_with(|| {
                read(&directory.join(file), group.version).unwrap_or(Level::Nothing)
            });
            match level {
                Level::Weighs(each) => weight *= each,
                Level::Nothing => {}
                Level::Foreign => break,
            }
        }
        weight.clamp(RANGE.0, RANGE.1)
    }
}

fn read(path: &Path, version: Version) -> Option<Level> {
    let file = File::open(path).ok()?;
    if file.metadata().ok()?.uid() != 0 {
        return Some(Level::Foreign);
    }
    let mut text = String::new();
    file.take(32).read_to_string(&mut text).ok()?;
    version.weight(&text).map(Level::Weighs)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::*;

    /// A directory that is laid out as control groups are.
    struct Tree(TempDir);

    impl Tree {
        fn with(version: Version, groups: &[(&str, &str)]) -> Self {
            let tree = Self(TempDir::new().unwrap());
            tree.add(version, groups);
            tree
        }

        fn add(&self, version: Version, groups: &[(&str, &str)]) {
            for (group, text) in groups {
                let directory = self.0.path().join(&group[1..]);
                fs::create_dir_all(&directory).unwrap();
                fs::write(directory.join(version.file()), text).unwrap();
            }
        }

        fn weights(&self, kind: &str, root: &str) -> GroupWeights {
            let at = self.0.path().display();
            let line = format!("32 31 0:29 {root} {at} rw - {kind} none rw,cpu");
            GroupWeights::new(Mounted::parse(line.as_bytes()).into_iter().collect())
        }

        fn give_away(&self, group: &str, version: Version) {
            let file = self.0.path().join(&group[1..]).join(version.file());
            std::os::unix::fs::chown(file, Some(1000), None).unwrap();
        }
    }

    fn group(line: &str) -> CpuGroup {
        CpuGroup::parse(line.as_bytes()).unwrap()
    }

    #[test]
    fn the_group_is_the_schedulers() {
        let of = |text: &str| CpuGroup::parse(text.as_bytes());
        let is = |version, path: &str| Some(CpuGroup { version, path: path.into() });
        assert_eq!(of("0::/a:b c\n"), is(Version::Two, "/a:b c"));
        assert_eq!(
            of("9:name=systemd:/s\n3:cpuset:/x\n2:cpu,cpuacct:/c\n0::/u\n"),
            is(Version::One, "/c")
        );
        assert_eq!(of("0::/u\n2:cpu:/c\n"), is(Version::One, "/c"));
        assert_eq!(of("2:cpuacct:/x\n0::/u\n"), is(Version::Two, "/u"));
        for none in ["", "0::/\n", "2:cpu:/\n0::/u\n", "nonsense", "1:2"] {
            assert_eq!(of(none), None, "{none}");
        }
    }

    #[test]
    fn weights_along_the_way_are_multiplied() {
        let files = [("/a", "200\n"), ("/a/b", "50\n"), ("/a/b/c", "1000\n"), ("/idle", "0\n")];
        let tree = Tree::with(Version::Two, &files);
        fs::create_dir_all(tree.0.path().join("a/plain/d")).unwrap();
        let mut weights = tree.weights("cgroup2", "/");
        for (path, expected) in [
            ("/a", 2.0),
            ("/a/b", 1.0),
            ("/a/b/c", 10.0),
            // Without the controller there are no files.
            ("/a/plain/d", 2.0),
            ("/elsewhere", 1.0),
            ("/idle", IDLE),
        ] {
            assert_eq!(weights.weight(&group(&format!("0::{path}"))), expected, "{path}");
        }
        // The other version's hierarchy is not to be seen.
        assert_eq!(weights.weight(&group("2:cpu:/a")), 1.0);
        let files = [("/a", "512\n"), ("/a/b", "2\n")];
        let tree = Tree::with(Version::One, &files);
        let mut weights = tree.weights("cgroup", "/");
        assert_eq!(weights.weight(&group("2:cpu,cpuacct:/a")), 0.5);
        assert_eq!(weights.weight(&group("2:cpu:/a/b")), RANGE.0);
        // A container's part of it.
        let mut weights = tree.weights("cgroup", "/docker/x");
        assert_eq!(weights.weight(&group("2:cpu:/docker/x/a")), 0.5);
        assert_eq!(weights.weight(&group("2:cpu:/a")), 1.0);
    }

    #[test]
    fn what_is_hostile_or_nonsense_does_not_count() {
        let deep = format!("/heavy{}", "/heavy".repeat(20));
        let files = [
            ("/user", "300"),
            ("/user/own", "10000"),
            ("/user/own/below", "10000"),
            ("/word", "max"),
            ("/minus", "-5"),
            ("/much", "10001"),
            ("/long", "1000000000000000000000000000000000000000"),
        ];
        let tree = Tree::with(Version::Two, &files);
        for depth in 1..=20 {
            tree.add(Version::Two, &[("/heavy".repeat(depth).as_str(), "10000")]);
        }
        // A user has made these, in what he was given.
        tree.give_away("/user/own", Version::Two);
        let mut weights = tree.weights("cgroup2", "/");
        for (path, expected) in [
            ("/user/own/below", 3.0),
            ("/word", 1.0),
            ("/minus", 1.0),
            ("/much", 1.0),
            ("/long", 1.0),
            (&deep, RANGE.1),
            ("/../user", 1.0),
            ("/user/../user", 1.0),
        ] {
            assert_eq!(weights.weight(&group(&format!("0::{path}"))), expected, "{path}");
        }
    }

    #[test]
    fn the_running_kernels_groups_are_found() {
        let mut weights = GroupWeights::default();
        weights.refresh();
        let own = fs::read("/proc/self/cgroup").unwrap();
        let weight = CpuGroup::parse(&own).map_or(1.0, |group| weights.weight(&group));
        assert!((RANGE.0..=RANGE.1).contains(&weight));
        let mounted = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert_eq!(
            mounted.contains(" - cgroup2 "),
            weights.mounts.iter().any(|mount| mount.version == Version::Two)
        );
    }
}
