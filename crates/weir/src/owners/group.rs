//! What a process's control group says of it: the systemd unit, the container.

use serde::Serialize;

use super::group_weight::CpuGroup;
use crate::cgroup::memberships;
use weir_bpf::printable::printable;

/// Digits of a container's id, as every runtime makes it, and of the part that their tools print.
const ID_DIGITS: usize = 64;
const SHORT_ID_DIGITS: usize = 12;
/// How runtimes name a container's scope under systemd; `-conmon-` and the like are no such names.
const SCOPES: [(&str, &str); 5] = [
    ("docker-", "docker"),
    ("libpod-", "podman"),
    ("cri-containerd-", "containerd"),
    ("nerdctl-", "containerd"),
    ("crio-", "cri-o"),
];
/// Below what they make a container's group where they do without systemd.
const PARENTS: [(&str, &str); 3] =
    [("docker", "docker"), ("libpod_parent", "podman"), ("kubepods", "kubernetes")];
/// A slice.
const SLICE: &str = ".slice";
/// What a systemd unit that has processes may be, but for slices.
const UNITS: [&str; 5] = [".service", ".scope", ".socket", ".mount", ".swap"];

/// A control group.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// Its path, in the hierarchy that systemd or the container's runtime uses.
    pub path: String,
    /// systemd's unit: a service, a scope, or else a slice.
    pub unit: Option<String>,
    /// Of a unit that is a user's own systemd: that one's unit.
    pub user_unit: Option<String>,
    /// The container.
    pub container: Option<Container>,
    /// By which group the scheduler weighs it; `None`: the root.
    #[serde(skip)]
    pub cpu: Option<CpuGroup>,
}

/// A container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Container {
    /// What made it, as far as the path tells: `docker`, `podman`, `containerd`, `cri-o`, `kubernetes`.
    pub runtime: &'static str,
    /// The first twelve digits of its id.
    pub id: String,
}

impl Group {
    /// From `/proc/PID/cgroup`; `None` of a process that is in no group but the root.
    pub fn parse(cgroup: &[u8]) -> Option<Self> {
        let path = path(cgroup)?;
        let parts: Vec<&[u8]> =
            path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
        let (unit, below) = unit(&parts);
        let is_manager = unit.is_some_and(|unit| unit.starts_with(b"user@"));
        let user_unit = is_manager.then(|| self::unit(below).0).flatten();
        Some(Self {
            path: printable(path),
            unit: unit.map(printable),
            user_unit: user_unit.map(printable),
            container: container(&parts),
            cpu: CpuGroup::parse(cgroup),
        })
    }
}

/// The path that says most: of systemd's hierarchy, then of version 2's, then the longest of another one,
/// as a container's runtime or a batch system makes it.
fn path(cgroup: &[u8]) -> Option<&[u8]> {
    let entries = memberships(cgroup).filter_map(|[number, controllers, path]| {
        let path = path.strip_suffix(b" (deleted)").unwrap_or(path);
        let rank = if controllers == b"name=systemd" {
            3
        } else if number == b"0" {
            2
        } else {
            1
        };
        (path != b"/").then_some((rank, path))
    });
    entries.max_by_key(|(rank, path)| (*rank, path.len())).map(|(_, path)| path)
}

/// systemd's unit: the first part that is no slice, if it is a unit, or else the last slice; and the parts
/// below. What is further down a process may have made itself, by any name
/// (`cg_path_get_unit()` in systemd).
fn unit<'a, 'b>(parts: &'b [&'a [u8]]) -> (Option<&'a [u8]>, &'b [&'a [u8]]) {
    let slices = parts.iter().take_while(|part| part.ends_with(SLICE.as_bytes())).count();
    let (slices, rest) = parts.split_at(slices);
    // systemd escapes names that would clash with the kernel's files.
    let plain = |part: &'a [u8]| part.strip_prefix(b"_").unwrap_or(part);
    match rest.split_first() {
        Some((first, below)) if UNITS.iter().any(|suffix| first.ends_with(suffix.as_bytes())) => {
            (Some(plain(first)), below)
        }
        _ => (slices.last().map(|slice| plain(slice)), rest),
    }
}

/// Whether a process's unit may be called so.
pub fn is_unit(name: &str) -> bool {
    let stem = UNITS.iter().chain([&SLICE]).find_map(|suffix| name.strip_suffix(suffix));
    stem.is_some_and(|stem| !stem.is_empty())
}

/// The outermost container, which this host's own runtime has made.
fn container(parts: &[&[u8]]) -> Option<Container> {
    parts.iter().enumerate().find_map(|(at, part)| {
        let part = str::from_utf8(part).ok()?;
        let name = part.strip_suffix(".scope").unwrap_or(part);
        let (runtime, id) = SCOPES
            .iter()
            .find_map(|(prefix, runtime)| Some((*runtime, name.strip_prefix(prefix)?)))
            .or_else(|| Some((runtime_above(&parts[..at])?, name)))?;
        let is_id = id.len() == ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then(|| Container { runtime, id: id[..SHORT_ID_DIGITS].to_owned() })
    })
}

fn runtime_above(parents: &[&[u8]]) -> Option<&'static str> {
    let named = |parent: &&[u8]| {
        let parent = parent.strip_suffix(SLICE.as_bytes()).unwrap_or(parent);
        PARENTS.iter().find(|(name, _)| parent == name.as_bytes()).map(|(_, runtime)| *runtime)
    };
    parents.iter().rev().find_map(named)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn group(path: &str) -> Group {
        Group::parse(format!("0::{path}\n").as_bytes()).unwrap()
    }

    #[test]
    fn units_are_found_as_systemd_finds_them() {
        for (path, unit, user_unit) in [
            ("/system.slice/nginx.service", Some("nginx.service"), None),
            (
                "/system.slice/system-getty.slice/getty@tty1.service",
                Some("getty@tty1.service"),
                None,
            ),
            ("/init.scope", Some("init.scope"), None),
            ("/user.slice/user-0.slice/session-3.scope", Some("session-3.scope"), None),
            ("/machine.slice", Some("machine.slice"), None),
            (
                "/user.slice/user-1000.slice/user@1000.service/app.slice/web.service",
                Some("user@1000.service"),
                Some("web.service"),
            ),
            (
                "/user.slice/user-1.slice/user@1.service/init.scope",
                Some("user@1.service"),
                Some("init.scope"),
            ),
            ("/system.slice/_cgroup.service", Some("cgroup.service"), None),
            // What a service makes below itself is not another unit.
            ("/system.slice/a.service/sshd.service", Some("a.service"), None),
            ("/system.slice/a.service/payload", Some("a.service"), None),
            ("/batch/job-7", None, None),
            ("/batch/sshd.service", None, None),
        ] {
            let group = group(path);
            let found = (group.unit.as_deref(), group.user_unit.as_deref());
            assert_eq!(found, (unit, user_unit), "{path}");
            assert_eq!((group.path.as_str(), group.container), (path, None));
        }
    }

    #[test]
    fn containers_are_found_by_their_paths() {
        let pod = "pod8d0c3a5e-77d8-4b0e-a2b7-2bd1a3ed0b6f";
        let pods = "/kubepods.slice/kubepods";
        let user = "/user.slice/user-1000.slice/user@1000.service";
        for (path, runtime) in [
            (format!("/docker/{ID}"), "docker"),
            (format!("/docker/{ID}/init.scope"), "docker"),
            (format!("/system.slice/docker-{ID}.scope"), "docker"),
            (format!("/machine.slice/libpod-{ID}.scope/container"), "podman"),
            (format!("/libpod_parent/libpod-{ID}"), "podman"),
            (format!("{user}/user.slice/libpod-{ID}.scope"), "podman"),
            (format!("/kubepods/burstable/{pod}/{ID}"), "kubernetes"),
            (
                format!("{pods}-besteffort.slice/k-{pod}.slice/cri-containerd-{ID}.scope"),
                "containerd",
            ),
            (format!("{pods}-{pod}.slice/crio-{ID}.scope"), "cri-o"),
            // Kubernetes in a container: what this host knows is the outer one.
            (format!("/docker/{ID}/kubelet/kubepods/burstable/{pod}/{}", "f".repeat(64)), "docker"),
        ] {
            let found = group(&path).container.unwrap_or_else(|| panic!("{path}"));
            assert_eq!((found.runtime, found.id.as_str()), (runtime, &ID[..12]), "{path}");
        }
        for path in [
            format!("/docker/{}", &ID[1..]),
            format!("/docker/{}x", &ID[1..]),
            format!("/machine.slice/libpod-conmon-{ID}.scope"),
            format!("/elsewhere/{ID}"),
            "/docker".into(),
        ] {
            assert_eq!(group(&path).container, None, "{path}");
        }
    }

    #[test]
    fn the_hierarchy_that_says_most_is_taken() {
        let of = |text: &str| Group::parse(text.as_bytes()).map(|group| group.path);
        // Version 1, with systemd.
        let v1 = "9:name=systemd:/system.slice/a.service\n8:pids:/system.slice\n4:memory:/x/y/z/long/path/of/it\n0::/\n";
        assert_eq!(of(v1).as_deref(), Some("/system.slice/a.service"));
        // Hybrid.
        assert_eq!(of("1:name=systemd:/a\n2:cpu,cpuacct:/c/c/c\n0::/b\n").as_deref(), Some("/a"));
        // Without systemd.
        let without = "9:name=systemd:/\n4:memory:/docker/x\n2:cpu:/d\n0::/\n";
        assert_eq!(of(without).as_deref(), Some("/docker/x"));
        assert_eq!(of("0::/a:b c\n").as_deref(), Some("/a:b c"));
        assert_eq!(of("0::/gone.service (deleted)\n").as_deref(), Some("/gone.service"));
        for nothing in ["", "0::/\n", "0::/\n1:cpu:/\n", "nonsense\n", "1:2"] {
            assert_eq!(of(nothing), None, "{nothing}");
        }
    }

    #[test]
    fn hostile_names_are_harmless() {
        let group = group("/\u{1b}[2J.slice/\u{7}evil\u{202e}.service");
        assert_eq!(group.path, "/\\x1b[2J.slice/\\x07evil\\u{202e}.service");
        assert_eq!(group.unit.as_deref(), Some("\\x07evil\\u{202e}.service"));
        let long = "x".repeat(4000);
        let found = Group::parse(format!("0::/{long}.service").as_bytes()).unwrap();
        assert_eq!(found.unit.unwrap().len(), 4008);
        let broken = Group::parse(b"0::/\xff\xfe/docker-\xff.scope").unwrap();
        assert_eq!(broken.path, "/\\xff\\xfe/docker-\\xff.scope");
    }
}
