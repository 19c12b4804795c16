//! Lazy sockets: a program passes its UDP socket, which shows that it is its own, and is given a ring that the
//! gates fill from then on, until the connection closes. See `weir_socket::protocol`.
//!
//! All that a program can do here is to its own ring: what it sends is read by its user's own [`Clerk`], in a parser
//! that refuses whatever is not a request; no answer is waited for; and connections, rings and their memory are bounded
//! for each user, those included that a program keeps when its connection has ended.

mod clerk;
mod closer;
mod listener;

use std::collections::{BTreeMap, BTreeSet};
use std::io::PipeReader;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, SocketFlags, accept_with, shutdown};
use rustix::process::{Resource, getrlimit};
use weir_bpf::abi;
use weir_bpf::features::rings_are_safe;
use weir_bpf::gate::QueueProbe;
use weir_bpf::lazy::{LazyRings, LazySocket, RingId};
use weir_bpf::sync::lock;
use weir_bpf::sys::divert::{Filters, cgroup_programs};
use weir_bpf::sys::link::Links;
use weir_bpf::sys::stat::Stat;
use weir_bpf::units::IfIndex;
use weir_socket::protocol::{Peer, Reply, send};

use crate::diverting::BELIEVED;
use crate::error::{Error, Result};
use crate::host::named;
use crate::joined::Waiting;
use crate::ready;

pub use clerk::run as run_clerk;
use clerk::{Clerk, Said};
use closer::Closer;
use listener::BACKLOG;
pub use listener::{Group, Listener, remove_left};

/// Rings of one user other than root.
const RINGS_PER_USER: usize = 1024;
/// What one of them may have, so many times, is what they may have together: whoever has a range of user identifiers
/// (subuid(5)) is as many users as he likes. Root may have as much as they.
const USERS_SHARES: u64 = 4;
/// A program asks at once; one that does not is no program of ours. A clerk answers at once, too.
const ASK_WITHIN: Duration = Duration::from_secs(5);
/// Clerks at once of users other than root: whoever has a range of user identifiers has them all ask at once.
const CLERKS_MAX: usize = 64;
/// How often firewall rules are looked for at most while there are lazy sockets: they would be bypassed so long.
const LOOK_EVERY: Duration = Duration::from_millis(500);
const UNSAFE_RINGS: &str = "on this kernel a ring's reader can overwrite the kernel's memory (CVE-2024-41009), so only \
                            root gets one: Linux 6.10, and stable kernels since July 2024, have that cured";

const OUTSIDE: &str = "weir is in a PID namespace of its own, and cannot see the program's control group; run weir in the \
                       host's (`docker run --pid=host`)";
const GONE: &str = "the process that connected has ended, and its control group cannot be seen; connect from one that \
                    stays until the answer";

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
    // Before the thread ends: nobody asks any more.
    _listener: Listener,
    _thread: Waiting,
}

impl LazyServer {
    /// Offers lazy sockets on these interfaces: at most so many bytes of rings to each user, and more to root.
    pub fn start(
        listener: Listener,
        probe: &QueueProbe,
        interfaces: Arc<Mutex<Vec<IfIndex>>>,
        bytes_per_user: u64,
    ) -> Result<Self> {
        let shared = Arc::<Mutex<Shared>>::default();
        let server = Server {
            listener: listener.socket,
            rings: LazyRings::of(probe)?,
            filters: Filters::default(),
            links: Links::open()?,
            interfaces,
            bytes_per_user,
            users: BTreeMap::new(),
            clients: Vec::new(),
            closer: Closer::start().map_err(|source| Error::system("start a thread", source))?,
            clients_max: clients_max(),
            rings_are_safe: rings_are_safe(),
            held: None,
            found: None,
            look_at: Instant::now(),
            start_at: Instant::now(),
            accept_at: Instant::now(),
            shared: Arc::clone(&shared),
        };
        let thread = Waiting::spawn("weir-lazy", move |ended| server.run(&ended))?;
        Ok(Self { shared, _listener: listener, _thread: thread })
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

/// Who has connected.
struct Client {
    /// What waits at a connection may block whoever closes it, unless that is a process that ends (`inet_release()`). So
    /// one that no clerk has drained stays open until then.
    connection: ManuallyDrop<OwnedFd>,
    who: Peer,
    /// When its process started (see [`started`]).
    started: Option<u64>,
    since: Instant,
    /// Why it gets no ring, whatever it asks.
    refusal: Option<String>,
    ring: Option<Ring>,
}

impl AsFd for Client {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}

impl Client {
    fn is_late(&self) -> bool {
        self.ring.is_none() && self.since.elapsed() > ASK_WITHIN
    }
}

#[derive(Clone, Copy)]
struct Ring {
    socket: LazySocket,
    id: RingId,
    bytes: u64,
}

/// What programs of one user have.
#[derive(Default)]
struct User {
    connections: usize,
    bytes: u64,
    /// Rings whose connections have ended, while somebody keeps them in memory. Their bytes count.
    kept: Vec<Ring>,
    clerk: Clerk,
}

struct Server {
    listener: &'static OwnedFd,
    rings: LazyRings,
    filters: Filters,
    links: Links,
    /// By number, as names change.
    interfaces: Arc<Mutex<Vec<IfIndex>>>,
    bytes_per_user: u64,
    users: BTreeMap<u32, User>,
    /// Those that have a ring, and those that have not asked.
    clients: Vec<Client>,
    closer: Closer,
    clients_max: usize,
    /// A reader of one cannot harm the kernel.
    rings_are_safe: bool,
    held: Option<String>,
    /// What the last look has found.
    found: Option<String>,
    /// When the rules are looked at next, if there is a ring.
    look_at: Instant,
    /// When clerks may be started: not at once again where that has failed.
    start_at: Instant,
    /// The same of connections that are to be accepted.
    accept_at: Instant,
    shared: Arc<Mutex<Shared>>,
}

impl Drop for Server {
    /// Nobody looks at the rules any more.
    fn drop(&mut self) {
        self.rings.hold(true);
    }
}

impl Server {
    fn run(mut self, ended: &PipeReader) {
        self.publish();
        loop {
            let all: usize = self.users.values().map(|user| user.connections).sum();
            let all = all + self.closer.open();
            // More than can be told that there are too many.
            let crowded = all >= self.clients_max + BACKLOG as usize;
            let rests = Instant::now() < self.accept_at;
            let come = if crowded || rests { PollFlags::empty() } else { PollFlags::IN };
            let mut fds = vec![(ended.as_fd(), PollFlags::IN), (self.listener.as_fd(), come)];
            fds.extend(self.clients.iter().map(|one| {
                // One with a ring takes no more: whether it hangs up is all there is to see.
                let asks = if one.ring.is_none() { PollFlags::IN } else { PollFlags::empty() };
                (one.as_fd(), asks)
            }));
            let clerks = self.users.iter().filter_map(|(uid, user)| Some((*uid, user.clerk.fd()?)));
            let (uids, clerks): (Vec<u32>, Vec<_>) = clerks.unzip();
            fds.extend(clerks.into_iter().map(|fd| (fd, PollFlags::IN)));
            let timeout = match self.rings.is_empty() {
                true => LOOK_EVERY,
                false => self.look_at.saturating_duration_since(Instant::now()).min(LOOK_EVERY),
            };
            // Without users there is nothing to look for.
            let waits = rests || crowded || !self.users.is_empty();
            let timeout = Some(timeout).filter(|_| waits);
            let ready = match ready::wait_for(fds, timeout) {
                Ok(ready) => ready,
                Err(errno) => {
                    let news =
                        format!("no socket is lazy any more: cannot wait for programs: {errno}");
                    return lock(&self.shared).news.push(news);
                }
            };
            if ready[0] {
                return;
            }
            let (of_clients, of_clerks) = ready[2..].split_at(self.clients.len());
            // The kernel waits for all CPUs at the end of each ring. So one of each user's ends in a round: in between
            // others are served, and the rules are looked at.
            let mut ended = BTreeSet::new();
            // From the last to the first, as they may go.
            for at in (0..self.clients.len()).rev() {
                let client = &self.clients[at];
                let is_due = of_clients[at] || client.is_late();
                if is_due && (client.ring.is_none() || ended.insert(client.who.uid)) {
                    self.tend(at);
                }
            }
            for (uid, _) in uids.into_iter().zip(of_clerks).filter(|(_, ready)| **ready) {
                self.hear(uid);
            }
            if ready[1] {
                self.accept();
            }
            self.sweep();
            self.start_clerks();
            if !self.rings.is_empty() && Instant::now() >= self.look_at {
                self.look();
            }
            self.publish();
        }
    }

    fn accept(&mut self) {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        // The rest in the next round: whoever connects in a loop must not keep the rules from being looked at.
        for _ in 0..BACKLOG {
            let connection = match accept_with(self.listener, flags) {
                Ok(connection) => connection,
                Err(errno) => {
                    // Without a descriptor for it, it waits, and would be told of all the time.
                    if errno != Errno::AGAIN {
                        self.accept_at = Instant::now() + LOOK_EVERY;
                    }
                    break;
                }
            };
            let connection = ManuallyDrop::new(connection);
            let Ok(who) = Peer::of(&*connection) else { continue };
            // At once: it may have ended by the time that it has asked, or already.
            let started = started(who.pid).filter(|_| Peer::is_there(&*connection));
            let kept: usize = self.users.values().map(|user| user.kept.len()).sum();
            let user = self.users.entry(who.uid).or_default();
            user.connections += 1;
            let own = user.connections + user.kept.len();
            // More than can be told so. They must not keep others out for as long as this user's clerk is stuck.
            let crowd = own > RINGS_PER_USER + BACKLOG as usize && who.uid != 0;
            if crowd && user.clerk.keep(&*connection) {
                user.connections -= 1;
                self.closer.close(ManuallyDrop::into_inner(connection));
                continue;
            }
            let refusal = if !self.rings_are_safe && who.uid != 0 {
                Some(UNSAFE_RINGS.to_owned())
            } else if own > RINGS_PER_USER && who.uid != 0 {
                Some(format!("uid {} has {RINGS_PER_USER} already; close some", who.uid))
            } else if self.clients.len() + kept >= self.clients_max {
                Some(format!(
                    "there are {} already; a higher limit of open files (LimitNOFILE=) lets weir \
                     have up to {}",
                    self.clients_max,
                    abi::LAZY_SOCKETS
                ))
            } else {
                None
            };
            let refused = refusal.is_some();
            let since = Instant::now();
            let client = Client { connection, who, started, since, refusal, ring: None };
            if refused { self.have_served(client) } else { self.clients.push(client) }
        }
    }

    /// A client has asked, or gone, or done neither in time.
    fn tend(&mut self, at: usize) {
        let client = self.clients.swap_remove(at);
        match client.ring {
            Some(_) => self.forget(client),
            None => self.have_served(client),
        }
    }

    /// Whatever its connection has is its user's clerk's business.
    fn have_served(&mut self, client: Client) {
        self.users.entry(client.who.uid).or_default().clerk.serve(client);
    }

    /// Starts clerks, root's first, then that of who has waited longest.
    fn start_clerks(&mut self) {
        if Instant::now() < self.start_at {
            return;
        }
        let users = self.users.iter_mut();
        let waiting =
            users.filter_map(|(uid, user)| Some((*uid != 0, user.clerk.waits_since()?, *uid)));
        let mut waiting: Vec<_> = waiting.collect();
        waiting.sort_unstable();
        for (is_other, _, uid) in waiting {
            if is_other && !self.has_room_for_clerk() {
                return;
            }
            if let Err(error) = self.users.entry(uid).or_default().clerk.start(&self.closer) {
                lock(&self.shared).news.push(format!("no lazy socket was made: {error}"));
                self.start_at = Instant::now() + LOOK_EVERY;
                return;
            }
        }
    }

    /// Where there are as many as there may be, one that has nothing to do makes room.
    fn has_room_for_clerk(&mut self) -> bool {
        let clerks = self.users.values().filter(|user| user.clerk.fd().is_some());
        if clerks.count() < CLERKS_MAX {
            return true;
        }
        let idle = self.users.values_mut().find(|user| user.clerk.is_idle());
        idle.map(|user| user.clerk.end()).is_some()
    }

    /// A clerk has served somebody, or ended.
    fn hear(&mut self, uid: u32) {
        let user = self.users.get_mut(&uid);
        let Some((mut client, said)) = user.and_then(|user| user.clerk.served()) else { return };
        let reply = match (client.refusal.take(), said) {
            (_, Said::Nothing) => return self.forget(client),
            (Some(why), _) | (None, Said::Wrong(why)) => Err(why),
            (None, Said::Asked { socket, ring_bytes }) => {
                self.register(&client, socket, ring_bytes)
            }
        };
        match reply {
            Ok((ring, fd)) => {
                client.ring = Some(ring);
                let reply = Reply::Ring { bytes: ring.bytes };
                match send(&client, &reply.encode(), &[fd.as_fd()], SendFlags::DONTWAIT) {
                    Ok(()) => self.clients.push(client),
                    Err(_) => self.forget(client),
                }
            }
            Err(why) => {
                let _ = send(&client, &Reply::Refused(why).encode(), &[], SendFlags::DONTWAIT);
                self.forget(client);
            }
        }
    }

    fn register(
        &mut self,
        client: &Client,
        socket: LazySocket,
        bytes: u64,
    ) -> std::result::Result<(Ring, OwnedFd), String> {
        let who = client.who;
        if let Some(why) = lock(&self.shared).diverted.clone() {
            return Err(why);
        }
        self.sweep();
        // One that is lazy already is told so below.
        if let Some(why) = self.over_quota(who.uid, bytes).filter(|_| !self.rings.has(socket)) {
            return Err(why);
        }
        // Else whoever asks in a loop would have them read in a loop. So a new ring may get past a rule as long as one
        // that is there; root's may not.
        let is_due = who.uid == 0 || Instant::now() >= self.look_at;
        let found = if is_due { self.look() } else { self.found.clone() };
        if let Some(why) = found {
            return Err(why);
        }
        let past = past_its_group(who.pid, client.started);
        // Ticks are too coarse for one that has its number at once.
        if let Some(why) = past.or_else(|| (!Peer::is_there(client)).then(|| GONE.into())) {
            return Err(why);
        }
        let size = u32::try_from(bytes).map_err(|error| error.to_string())?;
        let (fd, id) = self.rings.add(socket, size).map_err(|error| error.to_string())?;
        self.users.entry(who.uid).or_default().bytes += bytes;
        Ok((Ring { socket, id, bytes }, fd))
    }

    /// Why a user gets no ring of so many bytes more.
    fn over_quota(&self, uid: u32, bytes: u64) -> Option<String> {
        let over = |whose: &str, users: &[&User], most: u64| {
            let have: u64 = users.iter().map(|user| user.bytes).sum();
            let kept = users.iter().flat_map(|user| &user.kept).map(|ring| ring.bytes).sum();
            let kept = match kept {
                0 => String::new(),
                kept => format!(
                    ", {} of them kept by programs for sockets that are not lazy any more",
                    kept >> 20
                ),
            };
            (have + bytes > most).then(|| {
                format!(
                    "rings of {whose} have {} of {} MiB{kept}, and {} KiB more are asked for; `weir \
                     run --lazy-memory` allows more",
                    have >> 20,
                    most >> 20,
                    bytes >> 10
                )
            })
        };
        let own: Vec<&User> = self.users.get(&uid).into_iter().collect();
        let most = self.bytes_per_user * USERS_SHARES;
        if uid == 0 {
            return over("root", &own, most);
        }
        let all: Vec<&User> =
            self.users.iter().filter(|(uid, _)| **uid != 0).map(|(_, user)| user).collect();
        over(&format!("uid {uid}"), &own, self.bytes_per_user)
            .or_else(|| over("all users but root", &all, most))
    }

    /// One that has been drained.
    fn forget(&mut self, client: Client) {
        let user = self.users.entry(client.who.uid).or_default();
        user.connections = user.connections.saturating_sub(1);
        if let Some(ring) = client.ring {
            user.kept.push(ring);
            if let Err(error) = self.rings.remove(ring.socket) {
                lock(&self.shared).news.push(error.to_string());
            }
            if self.rings.is_empty() && self.held.take().is_some() {
                self.rings.hold(false);
            }
        }
        let connection = ManuallyDrop::into_inner(client.connection);
        // The program sees the end at once.
        let _ = shutdown(&connection, Shutdown::Both);
        self.closer.close(connection);
    }

    /// Gives users back what has gone out of memory, and tends to their clerks.
    fn sweep(&mut self) {
        // If that cannot be seen, all count that have been.
        let in_memory = self.users.values().any(|user| !user.kept.is_empty());
        let in_memory = in_memory.then(|| self.rings.in_memory().ok()).flatten();
        for user in self.users.values_mut() {
            if let Some(in_memory) = &in_memory {
                user.kept.retain(|ring| {
                    let kept = in_memory.contains(&ring.id);
                    user.bytes -= if kept { 0 } else { ring.bytes };
                    kept
                });
            }
            user.clerk.tend();
        }
        self.users.retain(|_, user| {
            user.connections > 0 || !user.kept.is_empty() || !user.clerk.is_gone()
        });
    }

    /// What the kernel would do to packets first.
    fn bypassed(&mut self) -> Option<String> {
        let interfaces = lock(&self.interfaces).clone();
        let found = match named(&self.links, &interfaces) {
            Ok(named) => self.filters.read(&named),
            Err(error) => return Some(error.to_string()),
        };
        let first = found.first()?;
        let others = match found.len() {
            1 => String::new(),
            count => format!(" (and {} more)", count - 1),
        };
        Some(format!("packets would get past the kernel's rules: {first}{others}"))
    }

    /// Looks at the rules, and holds all rings while there is something that they would bypass.
    fn look(&mut self) -> Option<String> {
        let found = self.bypassed();
        self.found.clone_from(&found);
        if !self.rings.is_empty() {
            if found.is_some() != self.held.is_some() {
                self.rings.hold(found.is_some());
                let news = match &found {
                    Some(why) => format!("lazy sockets are ordinary ones for now: {why}"),
                    None => "lazy sockets are lazy again".into(),
                };
                lock(&self.shared).news.push(news);
            }
            self.held.clone_from(&found);
        }
        let rest = self.filters.rest().max(LOOK_EVERY);
        self.look_at = Instant::now() + rest;
        // If the next look is late, whatever keeps this thread, nothing is bypassed; so after what was found has been told.
        self.rings.believe_for(rest + BELIEVED);
        found
    }

    fn publish(&self) {
        let bytes: u64 = self.users.values().map(|user| user.bytes).sum();
        let kept: usize = self.users.values().map(|user| user.kept.len()).sum();
        let kept = match kept {
            0 => String::new(),
            count => format!(", {count} of them kept for sockets that are not lazy any more"),
        };
        let held = self.held.as_ref().map(|why| format!("; held: {why}")).unwrap_or_default();
        let count = self.rings.len();
        lock(&self.shared).summary =
            format!("lazy sockets: {count}, rings of {} KiB{kept}{held}", bytes >> 10);
    }
}

/// Tells a process from a later one with its number: clock ticks since boot. `None` if it has ended.
fn started(pid: i32) -> Option<u64> {
    Stat::of(pid)?.start_ticks()
}

/// What the process that has connected would be given past its control group, or why that cannot be told.
fn past_its_group(pid: i32, since: Option<u64>) -> Option<String> {
    if pid == 0 {
        return Some(OUTSIDE.into());
    }
    let programs = cgroup_programs(pid);
    // Looked at last: if it is there now, the group was its own.
    let is_there = since.is_some() && started(pid) == since;
    if is_there { programs } else { Some(GONE.into()) }
}

/// How many may have connected: each takes a descriptor, and the daemon has use for others.
fn clients_max() -> usize {
    let limit = getrlimit(Resource::Nofile).current;
    let half = limit.map_or(usize::MAX, |limit| usize::try_from(limit / 2).unwrap_or(usize::MAX));
    half.min(abi::LAZY_SOCKETS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_control_group_is_believed_only_of_the_process_that_connected() {
        let pid = std::process::id().cast_signed();
        let own = started(pid);
        assert!(own.is_some());
        assert_ne!(past_its_group(pid, own).as_deref(), Some(GONE));
        // Its number was another's, or nobody's, when it connected.
        for since in [own.map(|ticks| ticks - 1), None] {
            assert_eq!(past_its_group(pid, since).as_deref(), Some(GONE));
        }
        assert_eq!(past_its_group(0, None).as_deref(), Some(OUTSIDE));
    }
}
