//! An interface's sysfs files, in the calling thread's network namespace.
//!
//! `/sys` shows the interfaces of the namespace it was mounted in, not of the reader's. So sysfs
//! is mounted once more, detached (`fsmount` without `move_mount`): no path leads to it, the mount
//! table does not show it, and it goes with its descriptor, also after `kill -9`.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::{CWD, Dir, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use super::ifname::check_name;
use super::link::Links;
use crate::error::{Error, Result};

/// Sysfs as one network namespace sees it.
#[derive(Debug)]
pub struct NetSysfs {
    root: OwnedFd,
    /// Set where `/sys` had to do: each interface is checked against the namespace's own.
    unsure: Option<Links>,
}

impl NetSysfs {
    /// Opens the sysfs of the calling thread's network namespace. It may be used on any thread.
    ///
    /// Where the kernel has no `fsopen` or refuses it (without `CAP_SYS_ADMIN`), `/sys` serves,
    /// for those interfaces whose index and Ethernet address there agree with the namespace's.
    ///
    /// # Errors
    /// [`Error::System`] if there is no `/sys` to fall back to either.
    pub fn open() -> Result<Self> {
        match mount_detached() {
            Ok(root) => Ok(Self { root, unsure: None }),
            Err(Errno::NOSYS | Errno::PERM | Errno::ACCESS | Errno::NODEV) => Self::open_shared(),
            Err(errno) => Err(Error::system("mount", "sysfs", errno)),
        }
    }

    fn open_shared() -> Result<Self> {
        let root = openat(CWD, "/sys", DIRECTORY, Mode::empty())
            .map_err(|errno| Error::system("open", "/sys", errno))?;
        Ok(Self { root, unsure: Some(Links::open()?) })
    }

    /// Text of an attribute, such as `threaded` or `queues/rx-0/rps_cpus`, without the final
    /// newline.
    ///
    /// # Errors
    /// [`Error::NoInterface`]; [`Error::Refused`] for an impossible name or attribute, or if `/sys`
    /// belongs to another namespace; [`Error::System`] if there is no such attribute, or `EINVAL`
    /// if this interface does not have it.
    pub fn read(&self, ifname: &str, attribute: &str) -> Result<String> {
        let file = self.open_attribute(ifname, attribute, OFlags::RDONLY)?;
        let mut text = String::new();
        File::from(file)
            .read_to_string(&mut text)
            .map_err(|source| Error::system("read", object(ifname, attribute), source))?;
        text.truncate(text.trim_end_matches('\n').len());
        Ok(text)
    }

    /// Writes an attribute in one system call.
    ///
    /// # Errors
    /// As [`NetSysfs::read`]; [`Error::System`] with the kernel's reason for refusing the value.
    pub fn write(&self, ifname: &str, attribute: &str, value: &str) -> Result<()> {
        let file = self.open_attribute(ifname, attribute, OFlags::WRONLY)?;
        File::from(file)
            .write_all(value.as_bytes())
            .map_err(|source| Error::system("write", object(ifname, attribute), source))
    }

    /// An attribute to be read and written again and again, whatever the interface is called by then.
    ///
    /// # Errors
    /// As [`NetSysfs::read`].
    pub fn attribute(&self, ifname: &str, attribute: &str) -> Result<Attribute> {
        let file = self.open_attribute(ifname, attribute, OFlags::RDWR)?.into();
        Ok(Attribute { file, object: object(ifname, attribute) })
    }

    /// Whether the interface has this attribute.
    ///
    /// # Errors
    /// As [`NetSysfs::read`], but for the missing attribute.
    pub fn exists(&self, ifname: &str, attribute: &str) -> Result<bool> {
        match self.open_attribute(ifname, attribute, OFlags::PATH) {
            Ok(_) => Ok(true),
            Err(error) if error.errno() == Some(Errno::NOENT) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Names in a directory of the interface's, such as `queues`, sorted.
    ///
    /// # Errors
    /// As [`NetSysfs::read`].
    pub fn list(&self, ifname: &str, directory: &str) -> Result<Vec<String>> {
        check_attribute(directory)?;
        self.entries(ifname, directory)
    }

    /// The interfaces that this one is on top of, as a bridge, a bond and a VLAN are, sorted.
    ///
    /// # Errors
    /// As [`NetSysfs::read`].
    pub fn lower(&self, ifname: &str) -> Result<Vec<String>> {
        let entries = self.entries(ifname, ".")?;
        let lower = entries.iter().filter_map(|name| name.strip_prefix("lower_"));
        Ok(lower.map(Into::into).collect())
    }

    fn entries(&self, ifname: &str, directory: &str) -> Result<Vec<String>> {
        let failed = |errno: Errno| Error::system("list", object(ifname, directory), errno);
        let fd = self.open_checked(ifname, directory, DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::new(fd).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_string_lossy().into_owned();
            names.extend(Some(name).filter(|name| name != "." && name != ".."));
        }
        names.sort();
        Ok(names)
    }

    fn open_attribute(&self, ifname: &str, attribute: &str, flags: OFlags) -> Result<OwnedFd> {
        check_attribute(attribute)?;
        self.open_checked(ifname, attribute, flags)
    }

    /// `attribute` is known to lie below the interface's directory, or is that.
    fn open_checked(&self, ifname: &str, attribute: &str, flags: OFlags) -> Result<OwnedFd> {
        check_name(ifname)?;
        if let Some(links) = &self.unsure {
            self.check_same_namespace(links, ifname)?;
        }
        self.open_at(ifname, attribute, flags).map_err(|errno| {
            let missing = errno == Errno::NOENT;
            if missing && self.open_at(ifname, "ifindex", OFlags::PATH).is_err() {
                return Error::NoInterface(ifname.to_owned());
            }
            Error::system("open", object(ifname, attribute), errno)
        })
    }

    /// `class/net/IF` is a relative link into `devices`, which the kernel follows in this mount.
    fn open_at(&self, ifname: &str, attribute: &str, flags: OFlags) -> rustix::io::Result<OwnedFd> {
        let path = format!("class/net/{ifname}/{attribute}");
        openat(&self.root, path, flags | OFlags::CLOEXEC, Mode::empty())
    }

    fn check_same_namespace(&self, links: &Links, ifname: &str) -> Result<()> {
        let info = links.index(ifname).and_then(|index| Ok((index, links.info(index)?)));
        let (ifindex, info) = info?;
        let shown = |attribute| {
            let mut text = String::new();
            let fd = self.open_at(ifname, attribute, OFlags::RDONLY).ok()?;
            File::from(fd).read_to_string(&mut text).ok()?;
            Some(text.trim().to_owned())
        };
        let same_index = shown("ifindex") == Some(ifindex.0.to_string());
        // An index alone proves little: each namespace counts from 1.
        let same_address = info.mac.is_none_or(|mac| shown("address") == Some(mac.to_string()));
        if same_index && same_address {
            return Ok(());
        }
        Err(Error::refused(
            format!("/sys does not show this network namespace's {ifname}"),
            "run with CAP_SYS_ADMIN, or in a mount namespace whose \
                     /sys was mounted in this network namespace",
        ))
    }
}

/// An attribute of one interface.
#[derive(Debug)]
pub struct Attribute {
    file: File,
    object: String,
}

impl Attribute {
    /// Its text, without the final newline.
    ///
    /// # Errors
    /// [`Error::System`] with the kernel's reason: `ENODEV` if the interface is gone.
    pub fn read(&self) -> Result<String> {
        let mut text = [0; 64];
        let read = self.file.read_at(&mut text, 0);
        let length = read.map_err(|source| Error::system("read", &self.object, source))?;
        Ok(String::from_utf8_lossy(&text[..length]).trim_end_matches('\n').to_owned())
    }

    /// Writes it in one system call.
    ///
    /// # Errors
    /// [`Error::System`] with the kernel's reason: `ENODEV` if the interface is gone.
    pub fn write(&self, value: &str) -> Result<()> {
        self.file
            .write_all_at(value.as_bytes(), 0)
            .map_err(|source| Error::system("write", &self.object, source))
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// The kernel ties the mount to the caller's network namespace in `fsopen`
/// (`sysfs_init_fs_context`).
fn mount_detached() -> rustix::io::Result<OwnedFd> {
    let context = fsopen("sysfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

fn check_attribute(attribute: &str) -> Result<()> {
    let sound = |part: &str| !part.is_empty() && part != "." && part != "..";
    if attribute.split('/').all(sound) && !attribute.contains('\0') {
        return Ok(());
    }
    Err(Error::refused(
        format!("{attribute:?} is no attribute of an interface"),
        "give a path below /sys/class/net/IF",
    ))
}

fn object(ifname: &str, attribute: &str) -> String {
    format!("class/net/{ifname}/{attribute} of sysfs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::test_support::Sandbox;

    /// A veth pair with a name that the host does not have.
    fn with_veth(test: impl FnOnce(&NetSysfs, &Links) + Send) {
        Sandbox::new().run(|| {
            let links = Links::open().unwrap();
            links.create_veth("sysfs-near", "sysfs-far", None).unwrap();
            test(&NetSysfs::open().unwrap(), &links);
        });
    }

    #[test]
    fn the_threads_namespace_is_shown_without_a_trace_in_the_mount_table() {
        let mounts = || std::fs::read_to_string("/proc/thread-self/mountinfo").unwrap();
        let sysfs_mounts = || mounts().matches(" - sysfs ").count();
        let before = sysfs_mounts();
        with_veth(|sysfs, links| {
            let ifindex = links.index("sysfs-near").unwrap().0.to_string();
            assert_eq!(sysfs.read("sysfs-near", "ifindex").unwrap(), ifindex);
            assert_eq!(sysfs_mounts(), before);
            // Bound to the namespace, not to the thread.
            std::thread::scope(|scope| {
                let elsewhere = scope.spawn(|| sysfs.exists("sysfs-near", "ifindex").unwrap());
                assert!(elsewhere.join().unwrap());
            });
        });
        assert!(!std::path::Path::new("/sys/class/net/sysfs-near").exists());
    }

    #[test]
    fn attributes_are_read_and_written() {
        with_veth(|sysfs, _| {
            assert_eq!(sysfs.read("sysfs-near", "threaded").unwrap(), "0");
            sysfs.write("sysfs-near", "gro_flush_timeout", "20000").unwrap();
            assert_eq!(sysfs.read("sysfs-near", "gro_flush_timeout").unwrap(), "20000");
            sysfs.write("sysfs-near", "queues/rx-0/rps_cpus", "1").unwrap();
            assert!(sysfs.read("sysfs-near", "queues/rx-0/rps_cpus").unwrap().ends_with('1'));
            assert!(sysfs.write("sysfs-near", "threaded", "nonsense").is_err());
            assert!(sysfs.list("sysfs-near", "queues").unwrap().contains(&"rx-0".to_owned()));
            assert!(!sysfs.exists("sysfs-near", "no-such").unwrap());
        });
    }

    #[test]
    fn what_is_below_an_interface_is_listed() {
        with_veth(|sysfs, _| {
            let run = |words: &str| {
                let status = std::process::Command::new("ip").args(words.split(' ')).status();
                assert!(status.unwrap().success(), "{words}");
            };
            run("link add sysfs-br type bridge");
            for port in ["sysfs-near", "sysfs-far"] {
                run(&format!("link set {port} master sysfs-br"));
            }
            assert_eq!(sysfs.lower("sysfs-br").unwrap(), ["sysfs-far", "sysfs-near"]);
            assert_eq!(sysfs.lower("sysfs-near").unwrap(), [""; 0]);
        });
    }

    #[test]
    fn what_is_missing_or_outside_is_told_apart() {
        with_veth(|sysfs, _| {
            let absent = sysfs.read("absent", "threaded");
            assert!(matches!(absent, Err(Error::NoInterface(name)) if name == "absent"));
            assert!(matches!(sysfs.exists("absent", "x"), Err(Error::NoInterface(_))));
            assert!(matches!(sysfs.read("sysfs-near", "x"), Err(Error::System { .. })));
            for (ifname, attribute) in
                [("a/b", "x"), ("..", "x"), ("lo", "../lo/mtu"), ("lo", "/mtu"), ("lo", "")]
            {
                let refused = sysfs.read(ifname, attribute);
                assert!(matches!(refused, Err(Error::Refused { .. })), "{ifname} {attribute}");
            }
        });
    }

    #[test]
    fn the_fallback_serves_its_own_namespace_and_refuses_another() {
        // The tests' own namespace is the one that /sys was mounted in; reading `lo` is harmless.
        let own = NetSysfs::open_shared().unwrap();
        assert_eq!(own.read("lo", "ifindex").unwrap(), "1");
        with_veth(|_, _| {
            let other = NetSysfs::open_shared().unwrap();
            let refused = other.read("sysfs-near", "ifindex");
            assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
            assert!(matches!(other.read("absent", "ifindex"), Err(Error::NoInterface(_))));
        });
    }
}
