//! What a wall is told of its sides: the router's own addresses, whose packets pass; and with `--forward xdp`, whether
//! what the screen has accepted may leave at the driver, or that would take it past something of the operator's. A
//! thread of its own looks: that takes long on a host with many rules or routes.

use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Instant;

use weir_bpf::forward::{Behind, FastPath};
use weir_bpf::sys::divert::{Diversion, Sight};
use weir_bpf::sys::link::Links;
use weir_bpf::sys::local_table::LocalAddresses;
use weir_bpf::units::IfIndex;
use weir_bpf::wall::Wall;

use super::BEAT;
use crate::choice::Forward;
use crate::diverting::{BELIEVED, Diverting, LOOK_ANYWAY};
use crate::error::{Error, Result};
use crate::forwarding::{Forwarding, refused};
use crate::out;

/// The two sides.
pub struct Sides {
    links: Links,
    behind: Behind,
    interfaces: [IfIndex; 2],
    /// From each to the other; none where the kernel forwards.
    ways: Vec<Way>,
}

/// The way from one side to the other.
struct Way {
    ifindex: IfIndex,
    name: String,
    diverting: Diverting,
    forwarding: Forwarding,
    /// What was last said of it.
    said: String,
}

impl Sides {
    /// Begins with two interfaces, which have no wall yet, and to forward between them if the fast path is asked for.
    ///
    /// # Errors
    /// Names the first thing that packets would be taken past.
    pub fn begin(sides: [(IfIndex, &str); 2], wall: &Wall, forward: Forward) -> Result<Self> {
        let way = |(ifindex, name): (IfIndex, &str)| {
            let diverting =
                Diverting::open(ifindex, Sight { protocol: true, ..Sight::default() }, 0)?;
            let (forwarding, said) = (Forwarding::default(), String::new());
            Ok::<_, Error>(Way { ifindex, name: name.to_owned(), diverting, forwarding, said })
        };
        let ways = match forward {
            Forward::Xdp => sides.into_iter().map(way).collect::<Result<_>>()?,
            Forward::Kernel => Vec::new(),
        };
        let interfaces = sides.map(|(ifindex, _)| ifindex);
        let mut told =
            Self { links: Links::open()?, behind: wall.behind(sides)?, interfaces, ways };
        for (number, way) in told.ways.iter_mut().enumerate() {
            if let Some(diversion) = way.passes() {
                return Err(refused(&what(diversion)));
            }
            let path = &mut told.behind.way_from(number);
            way.forwarding.begin(&told.links, way.ifindex, &interfaces, path)?;
        }
        told.tell()?;
        Ok(told)
    }

    /// Follows what is told, and says what changes, while the other end of the channel is there.
    pub fn follow(mut self, serving: &Receiver<()>) {
        let rest = if self.ways.is_empty() { LOOK_ANYWAY } else { BEAT };
        let mut failed = None;
        loop {
            let begun = Instant::now();
            let failure = self.look().err().map(|error| error.to_string());
            if let Some(why) = &failure {
                // Such as that an interface is gone.
                self.stand_down();
                if failed != failure {
                    let forwards = if self.ways.is_empty() {
                        ""
                    } else {
                        ", and the kernel forwards every packet"
                    };
                    out::say(format_args!("own addresses are not followed{forwards}: {why}"));
                }
            }
            failed = failure;
            let rest = rest.max(begun.elapsed());
            if serving.recv_timeout(rest) == Err(RecvTimeoutError::Disconnected) {
                break;
            }
        }
        self.stand_down();
    }

    /// Leaves forwarding to the kernel, which it is in any case once what was told is not believed any more.
    fn stand_down(&mut self) {
        for number in 0..self.ways.len() {
            let _ = self.behind.way_from(number).send_by(&[]);
        }
    }

    fn look(&mut self) -> Result<()> {
        let mut looked = self.ways.is_empty();
        for (number, way) in self.ways.iter_mut().enumerate() {
            looked |= !matches!(way.diverting.follow(), Ok(false));
            let mut path = self.behind.way_from(number);
            if way.diverting.passes_all() {
                path.send_by(&[])?;
            } else if looked {
                way.forwarding.look(&self.links, way.ifindex, &mut path)?;
            }
            way.say();
        }
        if looked { self.tell() } else { Ok(()) }
    }

    /// Tells the wall what the interfaces and the host are, and that all of it holds.
    fn tell(&mut self) -> Result<()> {
        for (number, ifindex) in self.interfaces.into_iter().enumerate() {
            self.behind.set_mac(number, self.links.mac(ifindex)?);
        }
        self.behind.set_local(&LocalAddresses::read(&self.interfaces)?)?;
        self.behind.believe_for(BELIEVED);
        Ok(())
    }
}

impl Way {
    /// What may take packets elsewhere.
    fn passes(&self) -> Option<&Diversion> {
        self.diverting.found().iter().find(|one| one.kind.passes())
    }

    fn say(&mut self) {
        // Said here in a screen's words.
        self.diverting.take_news();
        let now = match self.passes() {
            // What has changed is not read yet.
            None if self.diverting.passes_all() => return,
            Some(diversion) => format!("the kernel forwards every packet: {}", what(diversion)),
            None => self.forwarding.summary(),
        };
        if self.said != now {
            out::say(format_args!("from {}: {now}", self.name));
            self.said = now;
        }
    }
}

fn what(diversion: &Diversion) -> String {
    format!("{} ({})", diversion.kind.what(), diversion.detail)
}
