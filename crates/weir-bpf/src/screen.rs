//! User-mode screens: programs that decide on packets, which wait for them in NFQUEUEs. `bpf/screen.bpf.c`,
//! `bpf/screen.h`.

use std::mem::offset_of;
use std::os::fd::AsFd;
use std::time::Duration;

use libbpf_rs::skel::OpenSkel;
use libbpf_rs::{Link, MapHandle};

use crate::abi;
use crate::accounts::until;
use crate::error::{Error, Result};
use crate::mapped::Mapped;
use crate::object::{hear, load};
use crate::probe::{QueueProbe, share};
use crate::record::{each, records};
use crate::skeleton::screen::{ScreenSkel, ScreenSkelBuilder, types};
use crate::sys::netns::NetNs;
use crate::sys::procfile::ProcFile;

const QUEUES: &str = "/proc/thread-self/net/netfilter/nfnetlink_queue";
const HEARER: &str = "what hears the queues of user-mode screens";

/// One NFQUEUE that a program reads, as the kernel tells it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its number.
    pub number: u16,
    /// The program's netlink address.
    pub port_id: u32,
    /// Packets that wait for a verdict.
    pub waiting: u32,
    /// Packets that it has refused because too many waited.
    pub dropped: u32,
    /// Packets that it has taken, and those that the program's socket had no room for. Wraps.
    pub sequence: u32,
}

/// The kernel's list of queues, of the network namespace of the thread that reads it first.
pub struct Queues(ProcFile);

impl Default for Queues {
    fn default() -> Self {
        Self(ProcFile::new(QUEUES))
    }
}

impl Queues {
    /// The queues; none where the kernel has no NFQUEUE.
    ///
    /// # Errors
    /// If the list is malformed.
    pub fn read(&mut self) -> Result<Vec<Queue>> {
        let text = self.0.read().unwrap_or_default();
        text.lines().map(queue).collect::<Option<_>>().ok_or_else(|| {
            Error::refused(format!("{QUEUES} is malformed"), "please report it, with the file")
        })
    }
}

/// Number, address, packets that wait, copy mode, copy range, dropped, dropped for the socket, sequence
/// (`nfnetlink_queue.c`, `seq_show()`).
fn queue(line: &str) -> Option<Queue> {
    let field = |at: usize| line.split_ascii_whitespace().nth(at)?.parse::<u32>().ok();
    let number = field(0)?.try_into().ok()?;
    let (port_id, waiting) = (field(1)?, field(2)?);
    Some(Queue { number, port_id, waiting, dropped: field(5)?, sequence: field(7)? })
}

/// Packets that gates have admitted to be forwarded, since they were loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Admitted {
    /// To where a screen's queue has refused some a short while ago.
    pub screened: u64,
    /// To anywhere.
    pub all: u64,
}

/// Hears what queues refuse, while there are any.
pub struct Screens {
    skel: ScreenSkel<'static>,
    polls: MapHandle,
    shared: Mapped<types::weir_screen>,
    sockets: Link,
    /// While there is a queue.
    refused: Option<Link>,
    /// By number and address, those that the gates know.
    known: Vec<(u16, u32)>,
}

impl Screens {
    /// Loads what hears them; no queue is known yet.
    ///
    /// # Errors
    /// Without the privilege, or on a kernel that lacks what it takes.
    pub fn load(probe: &QueueProbe) -> Result<Self> {
        let maps = probe.maps();
        let skel = load::<ScreenSkelBuilder>(HEARER, |open| {
            share!(open, probe);
            Ok(())
        })?;
        Ok(Self {
            polls: MapHandle::try_from(&maps.napi_polls).map_err(Error::bpf("share", HEARER))?,
            shared: Mapped::of(maps.screen.as_fd(), 1)?,
            sockets: skel.progs.weir_netlink.attach().map_err(Error::bpf("attach", HEARER))?,
            refused: None,
            known: Vec::new(),
            skel,
        })
    }

    /// Tells the gates which queues there are; one that keeps its place keeps its limit. More than
    /// [`abi::SCREEN_QUEUES`] are taken for none.
    ///
    /// # Errors
    /// When the kernel does not tell whose they are.
    pub fn follow(&mut self, queues: &[Queue]) -> Result<()> {
        let screened = &self.skel.progs.weir_screened;
        hear(&mut self.refused, screened, !queues.is_empty(), HEARER)?;
        let netns = NetNs::current()?.number();
        let sockets = self.sockets()?;
        let mut followed = self.followed();
        let fits = queues.len() <= abi::SCREEN_QUEUES;
        let ids: Vec<_> = queues.iter().map(|queue| (queue.number, queue.port_id)).collect();
        for (place, (it, id)) in followed.iter_mut().zip(&ids).enumerate() {
            let socket = sockets.iter().find(|socket| socket.port_id == id.1);
            it.sock = socket.map_or(0, |socket| socket.sock);
            it.port_id = id.1;
            if self.known.get(place) != Some(id) {
                it.limit = 0;
            }
        }
        self.known = ids;
        self.shared.set(0, offset_of!(types::weir_screen, netns), netns);
        self.shared.set(0, offset_of!(types::weir_screen, queue), followed);
        let count = if fits { queues.len() as u32 } else { 0 };
        self.shared.set(0, offset_of!(types::weir_screen, queues), count);
        Ok(())
    }

    /// Has the gates believe for so long that what is known to go to a queue does: they discard what it has no room
    /// for. At first they do not.
    pub fn believe_for(&self, time: Duration) {
        let until = if time.is_zero() { 0 } else { until(time).0 };
        self.shared.set(0, offset_of!(types::weir_screen, believed_until_ns), until);
    }

    /// Tells the gates how many packets may wait in the queue at this place of those that are followed; none where it
    /// refuses none for their number.
    pub fn set_limit(&self, place: usize, limit: Option<u32>) {
        if place < abi::SCREEN_QUEUES {
            let at = offset_of!(types::weir_screen, queue)
                + place * size_of::<types::weir_screen_queue>()
                + offset_of!(types::weir_screen_queue, limit);
            self.shared.set(0, at, limit.unwrap_or(0));
        }
    }

    /// How many packets queues have refused that the gates could not know to go there, since any moment.
    pub fn unlearned(&self) -> u64 {
        self.shared.get(0, offset_of!(types::weir_screen, unlearned))
    }

    /// What the gates have admitted. Not one instant: packets arrive meanwhile.
    ///
    /// # Errors
    /// When the kernel refuses a map lookup.
    pub fn admitted(&self) -> Result<Admitted> {
        let polls: Vec<types::weir_poll> =
            records(&self.polls, 0).map_err(Error::bpf("read", HEARER))?;
        Ok(polls.iter().fold(Admitted::default(), |sum, poll| Admitted {
            screened: sum.screened + poll.forwarded[1],
            all: sum.all + poll.forwarded[0] + poll.forwarded[1],
        }))
    }

    /// As the gates know them.
    fn followed(&self) -> [types::weir_screen_queue; abi::SCREEN_QUEUES] {
        self.shared.get(0, offset_of!(types::weir_screen, queue))
    }

    fn sockets(&self) -> Result<Vec<types::weir_screen_socket>> {
        let mut found = Vec::new();
        each(&self.sockets, "the iterator of netlink sockets", |socket| found.push(socket))?;
        Ok(found)
    }
}

impl Drop for Screens {
    fn drop(&mut self) {
        self.believe_for(Duration::ZERO);
        self.shared.set(0, offset_of!(types::weir_screen, queues), 0_u32);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_is_understood() {
        let line = "    3  41234    17 2 65531     5     6      400  1";
        let queue = queue(line);
        let wanted = Queue { number: 3, port_id: 41_234, waiting: 17, dropped: 5, sequence: 400 };
        assert_eq!(queue, Some(wanted));
        assert_eq!(super::queue("3 41234 17"), None);
    }

    #[test]
    fn a_queue_that_is_followed_on_keeps_its_limit() {
        let mut screens = Screens::load(&QueueProbe::load().unwrap()).unwrap();
        let queue =
            |number, port_id| Queue { number, port_id, waiting: 0, dropped: 0, sequence: 0 };
        let limits = |screens: &Screens| screens.followed().map(|each| each.limit);
        let (first, second) = (queue(3, 41_234), queue(4, 41_235));
        screens.follow(&[first, second]).unwrap();
        screens.set_limit(0, Some(17));
        screens.set_limit(1, Some(18));
        screens.follow(&[first, second]).unwrap();
        assert_eq!(limits(&screens)[..2], [17, 18]);
        screens.follow(&[first, queue(5, 41_235)]).unwrap();
        assert_eq!(limits(&screens)[..2], [17, 0]);
        screens.follow(&[queue(3, 41_236)]).unwrap();
        assert_eq!(limits(&screens)[0], 0);
    }
}
