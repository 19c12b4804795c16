//! Lazy sockets: a program passes its UDP socket, which shows that it is its own, and is given a ring that the
//! gates fill from then on, until the connection closes. See `weir_socket::protocol`.
//!
//! All that a program can do here is to its own ring: what it sends is read by a parser that refuses whatever is not
//! a request, no answer is waited for, and rings are bounded in number and size for each user.

use std::collections::BTreeMap;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::fs::{Gid, Mode};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags, SocketType, UCred, accept_with,
    bind, listen, recvmsg, sendmsg, socket_with, sockopt,
};
use weir_bpf::gate::QueueProbe;
use weir_bpf::lazy::{LAZY_SOCKETS_MAX, LazyRings, LazySocket};
use weir_bpf::sys::divert::{Filters, cgroup_programs};
use weir_bpf::sys::netns;
use weir_socket::protocol::{HEADER_BYTES, Reply, Request, is_socket_name, socket_name};

use crate::error::{Error, Result};
use crate::host::Host;
use crate::rundir::RunDir;

/// Rings of one user other than root.
const RINGS_PER_USER: usize = 1024;
/// A program asks at once; one that does not is no program of ours.
const ASK_WITHIN: Duration = Duration::from_secs(5);
/// How often firewall rules are looked for while there are lazy sockets: they would be bypassed so long.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const BACKLOG: i32 = 128;
const ROOT: Mode = Mode::from_raw_mode(0o600);
const ROOT_AND_GROUP: Mode = Mode::from_raw_mode(0o660);
const GROUPS: &str = "/etc/group";

/// What the thread and the daemon tell each other.
#[derive(Default)]
struct Shared {
    /// Why no packet may be put on a ring, as the daemon knows.
    diverted: Option<String>,
    /// What the user should know.
    news: Vec<String>,
    summary: String,
}

/// Who makes sockets lazy. Dropping it ends all of that.
pub struct LazyServer {
    shared: Arc<Mutex<Shared>>,
    stop: Arc<OwnedFd>,
    thread: Option<std::thread::JoinHandle<()>>,
    listener: Listener,
}

/// Where programs ask.
pub struct Listener {
    socket: OwnedFd,
    dir: Rc<RunDir>,
    name: String,
}

impl LazyServer {
    /// Offers lazy sockets on these interfaces: at most so many bytes of rings to each user but root.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn start(
        listener: Listener,
        probe: &QueueProbe,
        interfaces: Vec<String>,
        bytes_per_user: u64,
    ) -> Result<Self> {
        let failed = |source| Error::system("start the thread of lazy sockets", source);
        let asked = listener.socket.try_clone().map_err(failed)?;
        let stop = eventfd(0, EventfdFlags::CLOEXEC).map_err(|errno| failed(errno.into()))?;
        let (shared, stop) = (Arc::<Mutex<Shared>>::default(), Arc::new(stop));
        let server = Server {
            listener: asked,
            stop: Arc::clone(&stop),
            rings: LazyRings::of(probe)?,
            filters: Filters::default(),
            interfaces,
            bytes_per_user,
            users: BTreeMap::new(),
            clients: Vec::new(),
            held: None,
            shared: Arc::clone(&shared),
        };
        let thread = std::thread::Builder::new()
            .name("weir-lazy".into())
            .spawn(move || server.run())
            .map_err(failed)?;
        Ok(Self { shared, stop, thread: Some(thread), listener })
    }

    /// Tells why the gates put no packet on any ring, if so.
    pub fn set_diverted(&self, why: Option<String>) {
        lock(&self.shared).diverted = why;
    }

    /// What the user should know that has changed since this was last asked.
    pub fn take_news(&self) -> Vec<String> {
        std::mem::take(&mut lock(&self.shared).news)
    }

    /// One line for the status.
    pub fn summary(&self) -> String {
        lock(&self.shared).summary.clone()
    }
}

impl Drop for LazyServer {
    fn drop(&mut self) {
        // Nobody asks any more.
        let _ = self.listener.dir.remove(&self.listener.name);
        let _ = rustix::io::write(&self.stop, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
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
        let path = dir.path_of(&name);
        let address = SocketAddrUnix::new(&path).map_err(failed)?;
        let socket = unix_socket().map_err(failed)?;
        if bind(&socket, &address) == Err(Errno::ADDRINUSE) {
            return Err(Error::refused(
                "another weir offers lazy sockets in this network namespace",
                "protect these interfaces by one `weir run`, or leave `--lazy` out here",
            ));
        }
        let listener = Self { socket, dir, name };
        // Until it listens nobody can connect, whatever the process's umask has left of the file's mode.
        rustix::fs::chmod(&path, if group.is_some() { ROOT_AND_GROUP } else { ROOT })
            .map_err(failed)?;
        if let Some(Group(gid)) = group {
            rustix::fs::chown(&path, None, Some(*gid)).map_err(|errno| {
                Error::system("give a group the socket for lazy sockets (CAP_CHOWN)", errno)
            })?;
        }
        listen(&listener.socket, BACKLOG).map_err(failed)?;
        Ok(listener)
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

/// Removes what daemons that were killed have left to listen at, in any network namespace.
///
/// # Errors
/// If the directory cannot be read or written.
pub fn remove_left(dir: &RunDir) -> Result<()> {
    for name in dir.names()?.iter().filter(|name| is_socket_name(name)) {
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

/// Who has connected.
struct Client {
    connection: OwnedFd,
    who: UCred,
    since: Instant,
    ring: Option<Registered>,
}

#[derive(Clone, Copy)]
struct Registered {
    socket: LazySocket,
    bytes: u64,
}

#[derive(Clone, Copy, Default)]
struct Use {
    connections: usize,
    bytes: u64,
}

struct Server {
    listener: OwnedFd,
    stop: Arc<OwnedFd>,
    rings: LazyRings,
    filters: Filters,
    interfaces: Vec<String>,
    bytes_per_user: u64,
    users: BTreeMap<u32, Use>,
    clients: Vec<Client>,
    held: Option<String>,
    shared: Arc<Mutex<Shared>>,
}

impl Drop for Server {
    /// Nobody looks at the rules any more.
    fn drop(&mut self) {
        self.rings.hold(true);
    }
}

impl Server {
    fn run(mut self) {
        self.publish();
        loop {
            let mut fds = vec![
                PollFd::new(&*self.stop, PollFlags::IN),
                PollFd::new(&self.listener, PollFlags::IN),
            ];
            fds.extend(self.clients.iter().map(|one| PollFd::new(&one.connection, PollFlags::IN)));
            let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY.subsec_nanos().into() };
            // Without clients there is nothing to look for.
            let timeout = (!self.clients.is_empty()).then_some(&timeout);
            if !matches!(poll(&mut fds, timeout), Ok(_) | Err(Errno::INTR)) {
                return;
            }
            let ready: Vec<bool> = fds.iter().map(|fd| !fd.revents().is_empty()).collect();
            if ready[0] {
                return;
            }
            // From the last to the first, as they may go.
            for at in (0..self.clients.len()).rev() {
                let late = self.clients[at].ring.is_none()
                    && self.clients[at].since.elapsed() > ASK_WITHIN;
                if ready[2 + at] || late {
                    self.serve(at, late);
                }
            }
            if ready[1] {
                self.accept();
            }
            self.look();
            self.publish();
        }
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // The rest in the next round: whoever connects in a loop must not keep the rules from being looked at.
        for _ in 0..BACKLOG {
            let Ok(connection) = accept_with(&self.listener, flags) else { break };
            let Ok(who) = sockopt::socket_peercred(&connection) else { continue };
            let used = self.users.entry(who.uid.as_raw()).or_default();
            let full = used.connections >= RINGS_PER_USER && !who.uid.is_root();
            if full || self.clients.len() >= LAZY_SOCKETS_MAX {
                let why = format!("there are {} lazy sockets already", used.connections);
                answer(&connection, &Reply::Refused(why), None);
                continue;
            }
            used.connections += 1;
            self.clients.push(Client { connection, who, since: Instant::now(), ring: None });
        }
    }

    /// A client has asked, or gone.
    fn serve(&mut self, at: usize, late: bool) {
        let client = &self.clients[at];
        if client.ring.is_some() || late {
            return self.forget(at);
        }
        let (who, request) = (client.who, read_request(&client.connection));
        let Some(request) = request else { return self.forget(at) };
        let reply = request.and_then(|(request, socket)| self.register(who, request, &socket));
        match reply {
            Ok((registered, ring)) => {
                let reply = Reply::Ring { bytes: registered.bytes };
                let sent = answer(&self.clients[at].connection, &reply, Some(&ring));
                self.clients[at].ring = Some(registered);
                if !sent {
                    self.forget(at);
                }
            }
            Err(why) => {
                answer(&self.clients[at].connection, &Reply::Refused(why), None);
                self.forget(at);
            }
        }
    }

    fn register(
        &mut self,
        who: UCred,
        request: Request,
        socket: &OwnedFd,
    ) -> std::result::Result<(Registered, OwnedFd), String> {
        let socket = LazySocket::of(socket.as_fd()).map_err(|error| error.to_string())?;
        if let Some(why) = lock(&self.shared).diverted.clone() {
            return Err(why);
        }
        if let Some(why) = self.bypassed() {
            return Err(why);
        }
        if let Some(why) = cgroup_programs(who.pid.as_raw_nonzero().get()) {
            return Err(why);
        }
        let used = self.users.entry(who.uid.as_raw()).or_default();
        let bytes = request.ring_bytes;
        if used.bytes + bytes > self.bytes_per_user && !who.uid.is_root() {
            return Err(format!(
                "rings of uid {} have {} of {} MiB, and {} KiB more are asked for; `weir run \
                 --lazy-memory` allows more",
                who.uid.as_raw(),
                used.bytes >> 20,
                self.bytes_per_user >> 20,
                bytes >> 10
            ));
        }
        let size = u32::try_from(bytes).map_err(|error| error.to_string())?;
        let ring = self.rings.add(socket, size).map_err(|error| error.to_string())?;
        used.bytes += bytes;
        Ok((Registered { socket, bytes }, ring))
    }

    fn forget(&mut self, at: usize) {
        let client = self.clients.swap_remove(at);
        let user = client.who.uid.as_raw();
        let used = self.users.entry(user).or_default();
        used.connections = used.connections.saturating_sub(1);
        if let Some(registered) = client.ring {
            used.bytes = used.bytes.saturating_sub(registered.bytes);
            if let Err(error) = self.rings.remove(registered.socket) {
                lock(&self.shared).news.push(error.to_string());
            }
        }
        if used.connections == 0 {
            self.users.remove(&user);
        }
    }

    /// What the kernel would do to packets first.
    fn bypassed(&mut self) -> Option<String> {
        let found = self.filters.read(&self.interfaces);
        let first = found.first()?;
        let others = match found.len() {
            1 => String::new(),
            count => format!(" (and {} more)", count - 1),
        };
        Some(format!("packets would get past the kernel's rules: {first}{others}"))
    }

    /// Holds all rings while there is something that they would bypass.
    fn look(&mut self) {
        if self.rings.is_empty() {
            return;
        }
        let held = self.bypassed();
        if held.is_some() != self.held.is_some() {
            self.rings.hold(held.is_some());
            let news = match &held {
                Some(why) => format!("lazy sockets are ordinary ones for now: {why}"),
                None => "lazy sockets are lazy again".into(),
            };
            lock(&self.shared).news.push(news);
        }
        self.held = held;
    }

    fn publish(&self) {
        let bytes: u64 = self.users.values().map(|used| used.bytes).sum();
        let held = self.held.as_ref().map(|why| format!("; held: {why}")).unwrap_or_default();
        lock(&self.shared).summary =
            format!("lazy sockets: {}, rings of {} KiB{held}", self.rings.len(), bytes >> 10);
    }
}

/// What a client asks, with its socket; `None` if it has gone, or not asked yet.
fn read_request(connection: &OwnedFd) -> Option<std::result::Result<(Request, OwnedFd), String>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    // One byte more tells a message that is too long.
    let mut message = [0; HEADER_BYTES + 1];
    let received = recvmsg(
        connection,
        &mut [IoSliceMut::new(&mut message)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT,
    )
    .ok()?;
    let mut sockets: Vec<OwnedFd> = control
        .drain()
        .filter_map(|message| match message {
            RecvAncillaryMessage::ScmRights(fds) => Some(fds),
            _ => None,
        })
        .flatten()
        .collect();
    if received.bytes == 0 {
        return None;
    }
    let request = Request::decode(&message[..received.bytes]).map_err(|error| error.to_string());
    Some(request.and_then(|request| match (sockets.pop(), sockets.len()) {
        (Some(socket), 0) => Ok((request, socket)),
        _ => Err("a request comes with one socket".into()),
    }))
}

/// Whether it was sent: nobody is waited for.
fn answer(connection: &OwnedFd, reply: &Reply, ring: Option<&OwnedFd>) -> bool {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds: Vec<_> = ring.iter().map(|ring| ring.as_fd()).collect();
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
        return false;
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    let message = reply.encode();
    sendmsg(connection, &[std::io::IoSlice::new(&message)], &mut control, flags).is_ok()
}
