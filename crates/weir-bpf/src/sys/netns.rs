//! Network namespaces: made and entered.
//!
//! Entering changes the network namespace alone, never the mount namespace: `ip netns exec`
//! mounts a fresh `/sys`, which hides `/sys/fs/bpf` and every pin in it.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

use super::sockopt;
use crate::error::{Error, Result};

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
    /// [`Error::System`] if `/proc` is missing.
    pub fn current() -> Result<Self> {
        Self::open("/proc/thread-self/ns/net")
    }

    /// The network namespace behind a path such as `/run/netns/NAME` or `/proc/PID/ns/net`.
    ///
    /// # Errors
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

    /// Makes a namespace. It has no name, and goes with the last process in it, once this is dropped.
    ///
    /// # Errors
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

    /// Number that tells this namespace from others of the machine (`st_ino`). A later one may have it again.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// The same, as the kernel half has it (`struct ns_common`): in 32 bits.
    pub(crate) fn number(&self) -> u32 {
        self.inode as u32
    }

    /// Runs `f` on a thread of its own inside this namespace and returns its value; a panic of
    /// `f` goes on in the caller.
    ///
    /// # Errors
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
/// [`Error::System`] before Linux 5.14.
pub fn cookie() -> Result<u64> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
        .map_err(|errno| Error::system("identify", "this network namespace", errno))?;
    cookie_of(socket.as_fd())
}

/// The same of the network namespace that a socket is in.
///
/// # Errors
/// [`Error::System`] if it is not a socket, and before Linux 5.14.
pub fn cookie_of(socket: BorrowedFd<'_>) -> Result<u64> {
    let mut cookie = [0; size_of::<u64>()];
    sockopt::get(&socket, libc::SOL_SOCKET, libc::SO_NETNS_COOKIE, &mut cookie)
        .map_err(|errno| Error::system("identify", "a socket's network namespace", errno))?;
    Ok(u64::from_ne_bytes(cookie))
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
    fn a_file_that_is_no_namespace_cannot_be_entered() {
        let file = NetNs::open("/proc/self/status").unwrap();
        assert!(file.run(|| unreachable!()).is_err());
    }
}
