//! Network namespaces: made, named and entered the way iproute2 does.
//!
//! Entering changes the network namespace alone, never the mount namespace: `ip netns exec`
//! mounts a fresh `/sys`, which hides `/sys/fs/bpf` and every pin in it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use rustix::mount::{
    MountPropagationFlags, UnmountFlags, mount_bind, mount_bind_recursive, mount_change, unmount,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use super::sockopt;
use crate::error::{Error, Result};

/// Where names live, as for `ip netns`.
const DIRECTORY: &str = "/run/netns";
const SOL_SOCKET: i32 = 1;
const SO_NETNS_COOKIE: i32 = 71;
/// Longest name, in bytes (`NAME_MAX`).
const MAX_NAME_BYTES: usize = 255;

/// A network namespace, held open.
#[derive(Debug)]
pub struct NetNs {
    fd: OwnedFd,
    inode: u64,
}

impl NetNs {
    /// The calling thread's network namespace.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if `/proc` is missing.
    pub fn current() -> Result<Self> {
        Self::open("/proc/thread-self/ns/net")
    }

    /// The network namespace behind a path such as `/run/netns/NAME` or `/proc/PID/ns/net`.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if it cannot be opened. A file of another kind is only found out on
    /// entering.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let failed =
            |source| Error::system("open network namespace", path.display().to_string(), source);
        let file = File::open(path).map_err(failed)?;
        let inode = file.metadata().map_err(failed)?.ino();
        Ok(Self { fd: file.into(), inode })
    }

    /// The namespace of this name.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for an impossible name; [`Error::System`] if there is none.
    pub fn open_named(name: &str) -> Result<Self> {
        Self::open(path_of(name)?)
    }

    /// Makes a namespace without a name. It goes with the last process in it, once this is dropped.
    ///
    /// # Errors
    ///
    /// [`Error::System`] without `CAP_SYS_ADMIN`.
    pub fn create() -> Result<Self> {
        on_new_thread(|| {
            let failed = |errno| Error::system("create", "a network namespace", errno);
            unshare_network().map_err(failed)?;
            Self::current()
        })
    }

    /// A path by which other processes can open it for as long as this process holds it.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.fd.as_raw_fd()).into()
    }

    /// Makes a namespace and gives it a name that `ip netns` knows. It outlives this process:
    /// [`NetNs::delete_named`] removes the name.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for an impossible name; [`Error::System`] if the name is taken
    /// (`EEXIST`) or without `CAP_SYS_ADMIN`.
    pub fn create_named(name: &str) -> Result<Self> {
        let path = path_of(name)?;
        share_directory()?;
        File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o444)
            .open(&path)
            .map_err(|source| Error::system("create network namespace", name, source))?;
        let bound = on_new_thread(|| {
            unshare_network()?;
            mount_bind("/proc/thread-self/ns/net", &path)
        });
        if let Err(source) = bound {
            // Nothing to report: the mount's failure is the one that matters.
            let _ = std::fs::remove_file(&path);
            return Err(Error::system("create network namespace", name, source));
        }
        Self::open(path)
    }

    /// Removes a name; the namespace itself goes when nothing uses it. No such name is no error.
    ///
    /// # Errors
    ///
    /// [`Error::Refused`] for an impossible name; [`Error::System`] without `CAP_SYS_ADMIN`.
    pub fn delete_named(name: &str) -> Result<()> {
        let path = path_of(name)?;
        let failed = |source: io::Error| Error::system("delete network namespace", name, source);
        match unmount(&path, UnmountFlags::DETACH) {
            // INVAL: the file is there but nothing is mounted on it.
            Ok(()) | Err(Errno::NOENT | Errno::INVAL) => {}
            Err(errno) => return Err(failed(errno.into())),
        }
        match std::fs::remove_file(&path) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(failed(source)),
            _ => Ok(()),
        }
    }

    /// Number that tells this namespace from others of the machine (`st_ino`). A later one may have it again.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// Runs `f` on a thread of its own inside this namespace and returns its value; a panic of
    /// `f` goes on in the caller.
    ///
    /// # Errors
    ///
    /// [`Error::System`] if the thread or the namespace refuses; `f` has not run then.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T> {
        std::thread::scope(|scope| {
            let inside = move || self.enter_current_thread().map(|()| f());
            let thread = std::thread::Builder::new()
                .name("weir-netns".into())
                .spawn_scoped(scope, inside)
                .map_err(|source| Error::system("start", "a thread", source))?;
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// Moves the calling thread, and threads that it starts later, into this namespace for good.
    ///
    /// # Errors
    ///
    /// [`Error::System`] without `CAP_SYS_ADMIN`, or if this is no network namespace (`EINVAL`).
    pub fn enter_current_thread(&self) -> Result<()> {
        move_into_link_name_space(self.fd.as_fd(), Some(LinkNameSpaceType::Network)).map_err(
            |errno| {
                let object = format!("network namespace {}", self.inode);
                Error::system("enter", object, errno)
            },
        )
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A number of the calling thread's network namespace that no other has until the machine boots again
/// (`SO_NETNS_COOKIE`).
///
/// # Errors
///
/// [`Error::System`] before Linux 5.14.
pub fn cookie() -> Result<u64> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .map_err(|errno| Error::system("identify", "this network namespace", errno))?;
    cookie_of(socket.as_fd())
}

/// The same of the network namespace that a socket is in.
///
/// # Errors
///
/// [`Error::System`] if it is not a socket, and before Linux 5.14.
pub fn cookie_of(socket: BorrowedFd<'_>) -> Result<u64> {
    let mut cookie = [0; size_of::<u64>()];
    sockopt::get(&socket, SOL_SOCKET, SO_NETNS_COOKIE, &mut cookie)
        .map_err(|errno| Error::system("identify", "a socket's network namespace", errno))?;
    Ok(u64::from_ne_bytes(cookie))
}

fn path_of(name: &str) -> Result<PathBuf> {
    let dots = name == "." || name == "..";
    if name.is_empty() || dots || name.len() > MAX_NAME_BYTES || name.contains(['/', '\0']) {
        return Err(Error::Refused {
            problem: format!("{name:?} cannot name a network namespace"),
            remedy: format!("use 1 to {MAX_NAME_BYTES} bytes without '/'"),
        });
    }
    Ok(Path::new(DIRECTORY).join(name))
}

/// Makes [`DIRECTORY`] a shared mount, so that names made or removed in one mount namespace are
/// made or removed in all (iproute2's `netns_add`).
fn share_directory() -> Result<()> {
    let failed = |source: io::Error| Error::system("prepare", DIRECTORY, source);
    let shared = MountPropagationFlags::SHARED | MountPropagationFlags::REC;
    std::fs::create_dir_all(DIRECTORY).map_err(failed)?;
    // Two that prepare at once would stack mounts and hide each other's names; iproute2 takes the
    // same lock, given back on close.
    let directory = File::open(DIRECTORY).map_err(failed)?;
    flock(&directory, FlockOperation::LockExclusive).map_err(|errno| failed(errno.into()))?;
    match mount_change(DIRECTORY, shared) {
        Err(Errno::INVAL) => {} // not a mount point yet
        done => return done.map_err(|errno| failed(errno.into())),
    }
    mount_bind_recursive(DIRECTORY, DIRECTORY)
        .and_then(|()| mount_change(DIRECTORY, shared))
        .map_err(|errno| failed(errno.into()))
}

fn on_new_thread<T: Send>(f: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        scope.spawn(f).join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

#[allow(unsafe_code)]
fn unshare_network() -> rustix::io::Result<()> {
    // SAFETY: only the network namespace is unshared; the danger is in `UnshareFlags::FILES`.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::test_support::Sandbox;

    #[test]
    fn a_namespace_without_a_name_can_be_opened_by_its_path() {
        let made = NetNs::create().unwrap();
        assert_ne!(made.inode(), NetNs::current().unwrap().inode());
        assert_eq!(NetNs::open(made.path()).unwrap().inode(), made.inode());
        assert_eq!(made.run(|| NetNs::current().unwrap().inode()).unwrap(), made.inode());
    }

    #[test]
    fn a_name_is_given_once_iproute2_knows_it_and_it_is_removed_for_good() {
        let name = format!("weir-test-{}-named", std::process::id());
        let made = NetNs::create_named(&name).unwrap();
        let listed = std::process::Command::new("ip").args(["netns", "list"]).output().unwrap();
        let again = NetNs::create_named(&name);
        let opened = NetNs::open_named(&name);
        NetNs::delete_named(&name).unwrap();
        NetNs::delete_named(&name).unwrap();
        assert!(String::from_utf8(listed.stdout).unwrap().contains(&name));
        assert!(matches!(again, Err(Error::System { source, .. })
            if source.kind() == io::ErrorKind::AlreadyExists));
        assert_eq!(opened.unwrap().inode(), made.inode());
        assert_ne!(made.inode(), NetNs::current().unwrap().inode());
        assert!(NetNs::open_named(&name).is_err());
        // The open descriptor still holds the namespace.
        assert_eq!(made.run(|| NetNs::current().unwrap().inode()).unwrap(), made.inode());
    }

    #[test]
    fn only_the_network_namespace_is_entered_and_only_by_the_closure() {
        let outside = NetNs::current().unwrap().inode();
        let cookie = cookie().unwrap();
        let mount_ns = || std::fs::read_link("/proc/thread-self/ns/mnt").unwrap();
        let sandbox = Sandbox::new();
        let (inside, mounts) = sandbox.run(|| (NetNs::current().unwrap().inode(), mount_ns()));
        assert_eq!(inside, sandbox.ns.inode());
        assert_eq!(mounts, mount_ns());
        assert_eq!(NetNs::current().unwrap().inode(), outside);
        assert_ne!(sandbox.run(|| super::cookie().unwrap()), cookie);
        assert_eq!(super::cookie().unwrap(), cookie);
    }

    #[test]
    fn a_panic_inside_reaches_the_caller() {
        let sandbox = Sandbox::new();
        let inside = std::panic::AssertUnwindSafe(|| sandbox.run(|| panic!("expected")));
        assert!(std::panic::catch_unwind(inside).is_err());
    }

    #[test]
    fn names_that_leave_the_directory_are_refused() {
        for name in ["", ".", "..", "../escape", "a/b", "nul\0"] {
            assert!(matches!(NetNs::create_named(name), Err(Error::Refused { .. })), "{name:?}");
            assert!(matches!(NetNs::delete_named(name), Err(Error::Refused { .. })), "{name:?}");
        }
    }

    #[test]
    fn a_file_that_is_no_namespace_cannot_be_entered() {
        let file = NetNs::open("/proc/self/status").unwrap();
        assert!(file.run(|| unreachable!()).is_err());
    }
}
