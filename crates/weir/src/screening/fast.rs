//! `weir screen --forward xdp`: what the screen has accepted leaves at the driver, unless that would take it past
//! something of the operator's.

use std::time::Instant;

use weir_bpf::forward::FastPath;
use weir_bpf::sys::divert::Diversion;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::local_table::LocalAddresses;
use weir_bpf::units::IfIndex;
use weir_bpf::wall::Wall;

use super::BEAT;
use crate::diverting::Diverting;
use crate::error::{Error, Result};
use crate::forwarding::Forwarding;
use crate::host::name_of;

/// The fast path between the two sides.
pub struct Fast {
    links: Links,
    followed_at: Instant,
    ways: [Way; 2],
}

/// The way from one side to the other.
struct Way {
    ifindex: IfIndex,
    diverting: Diverting,
    forwarding: Forwarding,
    /// Why it could not be looked at.
    failed: Option<String>,
    /// What was last said of it.
    said: String,
}

impl Fast {
    /// Begins to forward between two interfaces that have their walls.
    ///
    /// # Errors
    /// Names the first thing that packets would be taken past, or why they could not be sent.
    pub fn begin(links: Links, sides: [IfIndex; 2], wall: &mut Wall) -> Result<Self> {
        let way = |ifindex| {
            let diverting = Diverting::open(ifindex, false, 0)?;
            let forwarding = Forwarding::default();
            let (failed, said) = (None, String::new());
            Ok::<_, Error>(Way { ifindex, diverting, forwarding, failed, said })
        };
        let mut ways = [way(sides[0])?, way(sides[1])?];
        tell(sides, &links, wall)?;
        for (number, way) in ways.iter_mut().enumerate() {
            if let Some(diversion) = way.passes() {
                return Err(Error::refused(
                    format!("the fast path would take packets past this: {diversion}"),
                    "change that, or leave `--forward xdp` out",
                ));
            }
            way.forwarding.begin(&links, way.ifindex, &sides, &mut wall.side(number))?;
            way.said = way.forwarding.summary();
        }
        Ok(Self { links, followed_at: Instant::now(), ways })
    }

    /// Looks again at what is on the way, where that is due; says what has changed. To be called each [`BEAT`] at
    /// least.
    pub fn follow(&mut self, wall: &mut Wall) {
        // A flood of new flows calls it all the time.
        if self.followed_at.elapsed() < BEAT {
            return;
        }
        self.followed_at = Instant::now();
        let sides = self.ways.each_ref().map(|way| way.ifindex);
        for (number, way) in self.ways.iter_mut().enumerate() {
            let looked = way.diverting.follow();
            if way.diverting.passes_all() {
                wall.side(number).set_forwarding(false);
            } else if !matches!(looked, Ok(false)) {
                let told = tell(sides, &self.links, wall).and_then(|()| {
                    way.forwarding.look(&self.links, way.ifindex, &mut wall.side(number))
                });
                // Such as that an interface is gone: the screen goes on.
                way.failed = told.err().map(|error| error.to_string());
                if way.failed.is_some() {
                    wall.side(number).set_forwarding(false);
                }
            }
            way.say(&self.links);
        }
    }
}

impl Way {
    /// What may take packets elsewhere.
    fn passes(&self) -> Option<&Diversion> {
        self.diverting.found().iter().find(|one| one.passes())
    }

    fn say(&mut self, links: &Links) {
        let bar = self.failed.clone().or_else(|| self.passes().map(Diversion::to_string));
        let now = match bar {
            Some(bar) => format!("the kernel forwards every packet: {bar}"),
            None => self.forwarding.summary(),
        };
        if self.said != now {
            let name = name_of(links, self.ifindex).ok().flatten().unwrap_or_default();
            eprintln!("{name}: {now}");
            self.said = now;
        }
    }
}

/// Which interfaces the sides are, and which addresses are the host's.
fn tell(sides: [IfIndex; 2], links: &Links, wall: &mut Wall) -> Result<()> {
    let mut local = LocalAddresses::default();
    for (number, ifindex) in sides.into_iter().enumerate() {
        let Some(name) = name_of(links, ifindex)? else { continue };
        wall.set_side(number, ifindex, &name, links.mac(ifindex)?)?;
        let LocalAddresses { own, broadcast } = LocalAddresses::read(ifindex)?;
        local.own.extend(own);
        local.broadcast.extend(broadcast);
    }
    Ok(wall.set_addresses(&local.own, &local.broadcast)?)
}
