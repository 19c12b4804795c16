//! `weir screen --forward xdp`: what the screen has accepted leaves at the driver, unless that would take it past
//! something of the operator's. A thread of its own looks: that takes long on a host with many rules or routes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use weir_bpf::forward::{Behind, FastPath};
use weir_bpf::sys::divert::Diversion;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::local_table::LocalAddresses;
use weir_bpf::units::IfIndex;
use weir_bpf::wall::Wall;

use super::BEAT;
use crate::diverting::{BELIEVED, Diverting};
use crate::error::{Error, Result};
use crate::forwarding::{Forwarding, refused};
use crate::out;

/// The fast path between the two sides.
pub struct Fast {
    links: Links,
    behind: Behind,
    ways: [Way; 2],
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

impl Fast {
    /// Begins to forward between two interfaces, which have no wall yet.
    ///
    /// # Errors
    /// Names the first thing that packets would be taken past.
    pub fn begin(sides: [(IfIndex, &str); 2], wall: &Wall) -> Result<Self> {
        let way = |(ifindex, name): (IfIndex, &str)| {
            let diverting = Diverting::open(ifindex, false, 0)?;
            let (forwarding, said) = (Forwarding::default(), String::new());
            Ok::<_, Error>(Way { ifindex, name: name.to_owned(), diverting, forwarding, said })
        };
        let ways = [way(sides[0])?, way(sides[1])?];
        let mut fast = Self { links: Links::open()?, behind: wall.behind(sides)?, ways };
        for (number, way) in fast.ways.iter_mut().enumerate() {
            if let Some(diversion) = way.passes() {
                return Err(refused(&what(diversion)));
            }
            let interfaces = sides.map(|(ifindex, _)| ifindex);
            let path = &mut fast.behind.way_from(number);
            way.forwarding.begin(&fast.links, way.ifindex, &interfaces, path)?;
        }
        fast.tell()?;
        Ok(fast)
    }

    /// Follows what is on the way, and says what changes, until it is to stop and the thread is unparked.
    pub fn follow(mut self, stop: &AtomicBool) {
        let mut failed = None;
        while !stop.load(Ordering::Relaxed) {
            let begun = Instant::now();
            let failure = self.look().err().map(|error| error.to_string());
            if let Some(why) = &failure {
                // Such as that an interface is gone.
                self.stand_down();
                if failed != failure {
                    out::say(format_args!("the kernel forwards every packet: {why}"));
                }
            }
            failed = failure;
            thread::park_timeout(BEAT.max(begun.elapsed()));
        }
        self.stand_down();
    }

    /// Leaves forwarding to the kernel, which it is in any case once what was told is not believed any more.
    fn stand_down(&mut self) {
        for number in 0..self.ways.len() {
            self.behind.way_from(number).set_forwarding(false);
        }
    }

    fn look(&mut self) -> Result<()> {
        let mut looked = false;
        for (number, way) in self.ways.iter_mut().enumerate() {
            looked |= !matches!(way.diverting.follow(), Ok(false));
            let mut path = self.behind.way_from(number);
            if way.diverting.passes_all() {
                path.set_forwarding(false);
            } else if looked {
                way.forwarding.look(&self.links, way.ifindex, &mut path)?;
            }
            way.say();
        }
        if looked { self.tell() } else { Ok(()) }
    }

    /// Tells the wall what the interfaces and the host are, and that all of it holds.
    fn tell(&mut self) -> Result<()> {
        let mut local = LocalAddresses::default();
        for (number, way) in self.ways.iter().enumerate() {
            self.behind.set_mac(number, self.links.mac(way.ifindex)?);
            let LocalAddresses { own, broadcast, unsure } = LocalAddresses::read(way.ifindex)?;
            local.own.extend(own);
            local.broadcast.extend(broadcast);
            local.unsure.extend(unsure);
        }
        self.behind.set_local(&local)?;
        self.behind.believe_for(BELIEVED);
        Ok(())
    }
}

impl Way {
    /// What may take packets elsewhere.
    fn passes(&self) -> Option<&Diversion> {
        self.diverting.found().iter().find(|one| one.passes())
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
