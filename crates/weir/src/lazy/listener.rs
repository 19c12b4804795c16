//! Where programs ask for lazy sockets, and who may.

use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::str::FromStr;

use rustix::fs::{CWD, Gid, Mode, RenameFlags};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use rustix::process::{Pid, test_kill_process};
use weir_bpf::sys::netns;
use weir_socket::protocol::{is_socket_name, socket_name};

use crate::error::{Error, Result};
use crate::host::Host;
use crate::rundir::RunDir;

/// How many may wait to be accepted.
pub(super) const BACKLOG: i32 = 128;
const ROOT: Mode = Mode::from_raw_mode(0o600);
const ROOT_AND_GROUP: Mode = Mode::from_raw_mode(0o660);
const GROUPS: &str = "/etc/group";

/// Where programs ask.
pub struct Listener {
    /// Open until the process ends, as what waits at a connection that is not accepted would be closed with it.
    pub(super) socket: &'static OwnedFd,
    dir: Rc<RunDir>,
    name: String,
}

impl Listener {
    /// Of the calling thread's network namespace. Whoever may write to it may ask: root, and members of the group.
    ///
    /// # Errors
    /// If another weir offers lazy sockets there, or the group's is not to be had.
    pub fn open(host: &Host, group: Option<&Group>) -> Result<Self> {
        let failed = |errno: Errno| Error::system("listen for programs with lazy sockets", errno);
        // The directory is root's alone, so whatever has the name is a weir's.
        let (dir, name) = (Rc::clone(&host.dir), socket_name(netns::cookie()?));
        remove_left(&dir)?;
        // Until it listens it looks like one that a killed daemon has left, so it has another name.
        let unready = unready_name(&name);
        dir.remove(&unready)?;
        let path = dir.path_of(&unready);
        let address = SocketAddrUnix::new(&path).map_err(failed)?;
        let socket: &OwnedFd = Box::leak(Box::new(unix_socket().map_err(failed)?));
        bind(socket, &address).map_err(failed)?;
        let mut listener = Self { socket, dir, name: unready };
        // Until it listens nobody can connect, whatever the process's umask has left of the file's mode.
        rustix::fs::chmod(&path, if group.is_some() { ROOT_AND_GROUP } else { ROOT })
            .map_err(failed)?;
        if let Some(Group(gid)) = group {
            rustix::fs::chown(&path, None, Some(*gid)).map_err(|errno| {
                Error::system("give a group the socket for lazy sockets (CAP_CHOWN)", errno)
            })?;
        }
        listen(socket, BACKLOG).map_err(failed)?;
        let ready = listener.dir.path_of(&name);
        match rustix::fs::renameat_with(CWD, &path, CWD, &ready, RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => Err(Error::refused(
                "another weir offers lazy sockets in this network namespace",
                "protect these interfaces by one `weir run`, or leave `--lazy` out here",
            )),
            renamed => {
                renamed.map_err(failed)?;
                listener.name = name;
                Ok(listener)
            }
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.dir.remove(&self.name);
    }
}

fn unix_socket() -> rustix::io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
}

/// What a socket is called until it listens.
fn unready_name(name: &str) -> String {
    format!("{name}.{}", std::process::id())
}

/// Who made one with such a name.
fn maker_of(unready: &str) -> Option<Pid> {
    let (name, pid) = unready.rsplit_once('.')?;
    is_socket_name(name).then(|| pid.parse().ok().and_then(Pid::from_raw)).flatten()
}

/// Removes what daemons that were killed have left to listen at, in any network namespace.
pub fn remove_left(dir: &RunDir) -> Result<()> {
    for name in &dir.names()? {
        if !is_socket_name(name) {
            if maker_of(name).is_some_and(|maker| test_kill_process(maker) == Err(Errno::SRCH)) {
                dir.remove(name)?;
            }
            continue;
        }
        let address = SocketAddrUnix::new(dir.path_of(name));
        let asked = unix_socket().and_then(|socket| rustix::net::connect(socket, &address?));
        // One with a full backlog would have it wait.
        if asked == Err(Errno::CONNREFUSED) {
            dir.remove(name)?;
        }
    }
    Ok(())
}

/// A group of users, by its name in this host's own file, or its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Group(Gid);

impl FromStr for Group {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let groups = std::fs::read_to_string(GROUPS).unwrap_or_default();
        // NAME:PASSWORD:GID:MEMBERS
        let number = groups.lines().map(|line| line.split(':')).find_map(|mut fields| {
            (fields.next() == Some(text)).then(|| fields.nth(1)).flatten().map(str::to_owned)
        });
        let number = number.as_deref().unwrap_or(text).parse::<u32>().ok();
        // All ones say "none" to chown(2).
        number
            .filter(|number| *number != u32::MAX)
            .map(|number| Self(Gid::from_raw(number)))
            .ok_or_else(|| {
                format!(
                    "there is no group {text:?} in {GROUPS}; `groupadd --system {text}` makes one"
                )
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tempfile::TempDir;

    #[test]
    fn what_a_killed_daemon_has_left_unready_goes_when_its_process_has_gone() {
        let scratch = TempDir::new().unwrap();
        let dir = RunDir::create(&scratch.path().join("weir")).unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let (ours, left) = (unready_name("lazy-1.sock"), format!("lazy-1.sock.{}", child.id()));
        let others = ["lazy-1.sock.0", "lazy-1.sock.x", "eth0.lock"];
        for name in others.into_iter().chain([ours.as_str(), left.as_str()]) {
            dir.write(name, Mode::RUSR, b"").unwrap();
        }
        remove_left(&dir).unwrap();
        let mut names = others.map(String::from).to_vec();
        names.push(ours);
        names.sort();
        assert_eq!(dir.names().unwrap(), names);
    }
}
