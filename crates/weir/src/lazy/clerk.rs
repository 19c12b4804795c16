//! Who reads what programs send: a process for each user that asks.
//!
//! A descriptor that a program passes may block whoever closes it, for as long as the program likes: a connection that
//! lingers, a file of a file system that the program itself serves. So the daemon never receives one, and never closes
//! a connection that one may wait on. The user's clerk does, and has nothing open that is the daemon's. A clerk that is
//! blocked keeps its own user from getting lazy sockets until it is killed, and nobody else.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvFlags, ReturnFlags, SendFlags, Shutdown, SocketFlags,
    SocketType, recvmsg, shutdown, socketpair, sockopt,
};
use serde::{Deserialize, Serialize};
use weir_bpf::lazy::LazySocket;
use weir_bpf::sys::caps::{self, CapabilitySet};
use weir_socket::protocol::{HEADER_BYTES, Request, receive, send};

use super::closer::Closer;
use super::{ASK_WITHIN, Client, LOOK_EVERY, RINGS_PER_USER};
use crate::error::{Error, Result};

/// Longest message of a clerk's.
const SAID_BYTES_MAX: usize = 4096;
/// What the daemon tells a clerk of a connection: to serve it...
const SERVE: u8 = 0;
/// ...or to have it open until its own end, when nothing that waits there lingers.
const KEEP: u8 = 1;

/// What a program has asked.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Said {
    /// To make this socket lazy.
    Asked { socket: LazySocket, ring_bytes: u64 },
    /// Something else: why it is refused.
    Wrong(String),
    /// Nothing: it has gone.
    Nothing,
}

/// A user's clerk, seen from the daemon: it serves one connection after the other. Those that wait when its process ends
/// are the next one's.
pub(super) struct Clerk {
    process: Option<Process>,
    /// Killed, and waited for before the next starts: a file on FUSE keeps even a killed process from its end.
    ending: Vec<Child>,
    /// Those that it is to serve; the first it has.
    queue: VecDeque<Client>,
    /// When it last began with one, had no more, or ended.
    since: Instant,
}

struct Process {
    child: Child,
    socket: OwnedFd,
    closer: Closer,
}

impl Process {
    fn start(closer: &Closer) -> std::io::Result<Self> {
        let (socket, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let spawn = |stdin: OwnedFd| {
            Command::new("/proc/self/exe")
                .arg0("weir")
                .arg("lazy-clerk")
                .current_dir("/")
                .env_clear()
                .stdin(stdin)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
        };
        let child = theirs.try_clone().and_then(spawn);
        // Where there is no such process, or it has ended, nobody else has them open.
        closer.close(theirs);
        match child {
            Ok(child) => Ok(Self { child, socket, closer: closer.clone() }),
            Err(error) => {
                closer.close(socket);
                Err(error)
            }
        }
    }

    fn take(&self, what: u8, one: impl AsFd) -> bool {
        send(&self.socket, &[what], &[one.as_fd()], SendFlags::DONTWAIT).is_ok()
    }
}

impl Default for Clerk {
    fn default() -> Self {
        let (ending, queue) = Default::default();
        Self { process: None, ending, queue, since: Instant::now() }
    }
}

impl Drop for Clerk {
    fn drop(&mut self) {
        self.end();
    }
}

impl Clerk {
    /// Readable when the first has been served.
    pub(super) fn fd(&self) -> Option<BorrowedFd<'_>> {
        self.process.as_ref().map(|process| process.socket.as_fd())
    }

    /// Whether there is nothing of it.
    pub(super) fn is_gone(&self) -> bool {
        self.process.is_none() && self.ending.is_empty() && self.queue.is_empty()
    }

    /// Whether it has a process that has nothing to do.
    pub(super) fn is_idle(&self) -> bool {
        self.process.is_some() && self.queue.is_empty()
    }

    pub(super) fn end(&mut self) {
        self.since = Instant::now();
        if let Some(Process { mut child, socket, closer }) = self.process.take() {
            let _ = child.kill();
            closer.close(socket);
            self.ending.push(child);
        }
    }

    fn reap(&mut self) {
        self.ending.retain_mut(|child| matches!(child.try_wait(), Ok(None)));
    }

    /// Has it served, by a process that may yet have to be [started](Clerk::start).
    pub(super) fn serve(&mut self, one: Client) {
        self.queue.push_back(one);
        if self.queue.len() == 1 {
            self.begin();
        }
    }

    /// It serves one connection at a time.
    fn begin(&mut self) {
        self.since = Instant::now();
        let (Some(first), Some(process)) = (self.queue.front(), &self.process) else { return };
        if !process.take(SERVE, first) {
            self.end();
        }
    }

    /// Has its process keep a connection that is not served, so that the caller may close it. Whether there is one, and
    /// it had room: what it has is closed at its end.
    pub(super) fn keep(&mut self, one: impl AsFd) -> bool {
        let Some(process) = &self.process else { return false };
        let taken = process.take(KEEP, one);
        if !taken {
            self.end();
        }
        taken
    }

    /// Since when it has had somebody to serve, and no process; none while the last has not ended.
    pub(super) fn waits_since(&mut self) -> Option<Instant> {
        self.reap();
        let waits = self.process.is_none() && self.ending.is_empty() && !self.queue.is_empty();
        waits.then_some(self.since)
    }

    pub(super) fn start(&mut self, closer: &Closer) -> std::io::Result<()> {
        self.process = Some(Process::start(closer)?);
        self.begin();
        Ok(())
    }

    /// The first, and what it has said; nothing more waits at its connection, nor ever will.
    pub(super) fn served(&mut self) -> Option<(Client, Said)> {
        let mut message = [0; SAID_BYTES_MAX];
        let said = match receive(self.fd()?, &mut message, RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => return None,
            received => {
                received.ok().and_then(|(bytes, _)| serde_json::from_slice(&message[..bytes]).ok())
            }
        };
        let served = said.and_then(|said| Some((self.queue.pop_front()?, said)));
        if served.is_some() {
            self.begin();
        } else {
            self.end();
        }
        served
    }

    /// From time to time: ends it if it has nothing to do or is stuck.
    pub(super) fn tend(&mut self) {
        self.reap();
        let waited = self.since.elapsed();
        match (self.process.is_some(), self.queue.is_empty()) {
            (true, true) if waited > LOOK_EVERY => self.end(),
            // What it waits for is gone with it, so the next gets further.
            (true, false) if waited > ASK_WITHIN => self.end(),
            _ => {}
        }
    }
}

/// A clerk's own life.
pub fn run() -> Result<()> {
    // For the reader of `ps`: started through /proc/self/exe, it would be called "exe".
    let _ = rustix::thread::set_name(c"weir-lazy-clerk");
    caps::confine(CapabilitySet::empty())?;
    let daemon = std::io::stdin();
    let mut kept = Vec::new();
    loop {
        let mut what = [0];
        let (bytes, fds) = receive(&daemon, &mut what, RecvFlags::empty())
            .map_err(|errno| Error::system("hear from the daemon", errno))?;
        let Some(connection) = fds.into_iter().next().filter(|_| bytes > 0) else { return Ok(()) };
        if what == [KEEP] {
            kept.push(connection);
            // As many as its user may have: it ends.
            if kept.len() == RINGS_PER_USER {
                return Ok(());
            }
            continue;
        }
        let said = listen_to(&connection);
        drop(connection);
        let said = serde_json::to_vec(&said).unwrap_or_default();
        // If it was not sent, the daemon is gone or ends this.
        let _ = send(&daemon, &said[..said.len().min(SAID_BYTES_MAX)], &[], SendFlags::DONTWAIT);
    }
}

/// Takes what waits at a connection, closes what came with it, and has it take no more.
fn listen_to(connection: &OwnedFd) -> Said {
    let said = read_request(connection);
    let _ = shutdown(connection, Shutdown::Read);
    // An empty message would look like the end. Now each has a sender, for whom there is no room (`put_cmsg()`).
    let _ = sockopt::set_socket_passcred(connection, true);
    loop {
        let mut no_room = RecvAncillaryBuffer::default();
        match recvmsg(connection, &mut [], &mut no_room, RecvFlags::DONTWAIT) {
            Ok(message) if message.flags.contains(ReturnFlags::CTRUNC) => {}
            // Told once, before what waits, of a peer that has left messages unread.
            Err(Errno::CONNRESET) => {}
            _ => return said,
        }
    }
}

fn read_request(connection: &OwnedFd) -> Said {
    // One byte more tells a message that is too long.
    let mut message = [0; HEADER_BYTES + 1];
    let Ok((bytes, mut fds)) = receive(connection, &mut message, RecvFlags::DONTWAIT) else {
        return Said::Nothing;
    };
    if bytes == 0 && fds.is_empty() {
        return Said::Nothing;
    }
    // There is room for more, so that a second one is noticed.
    let socket = fds.pop().filter(|_| fds.is_empty());
    let asked = Request::decode(&message[..bytes]).map_err(|error| error.to_string());
    let asked = asked.and_then(|request| {
        let socket = socket.ok_or("a request comes with one socket")?;
        let socket = LazySocket::of(socket.as_fd()).map_err(|error| error.to_string())?;
        Ok((socket, request.ring_bytes))
    });
    match asked {
        Ok((socket, ring_bytes)) => Said::Asked { socket, ring_bytes },
        Err(why) => Said::Wrong(why),
    }
}
