//! A capture's packets: `bpf/tap.bpf.c`.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use crate::abi;
use crate::accounts::until;
use crate::attach::{self, AttachMode, Attachment};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::filter::{Filter, chain};
use crate::object::{globals, load};
use crate::record::{record, records};
pub use crate::ring::Reader;
use crate::skeleton::tap::{TapSkel, TapSkelBuilder, types};
use crate::sys::packet::PacketSocket;
use crate::units::IfIndex;

/// Most bytes of a packet that are copied.
pub const SNAPLEN_MAX: u32 = abi::TAP_SNAPLEN as u32;

/// How long a circuit breaker stays open (Mogul & Ramakrishnan, section 8.1).
pub const PAUSE: Duration = Duration::from_millis(1);

const TAP: &str = "the tap";

/// What a tap is to do.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// So many bytes of a packet are copied at most: 1 to [`SNAPLEN_MAX`].
    pub snaplen: u32,
    /// Size of the ring, a power of two of pages.
    pub ring_bytes: u32,
    /// Copy nothing.
    pub count_only: bool,
    /// Take the packets that the interface receives.
    pub received: bool,
    /// Take those that it sends.
    pub sent: bool,
    /// After so many packets that match within [`PAUSE`], take none for as long; 0: never.
    pub breaker_batch: u32,
    /// Be in the driver, for received packets alone; else at a packet socket.
    pub in_driver: bool,
}

/// How many packets there were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Packets that came by, in the directions that are wanted.
    pub seen: u64,
    /// Those that matched the filter.
    pub matched: u64,
    /// Their bytes.
    pub matched_bytes: u64,
    /// Those that matched, and the ring had no room for.
    pub dropped: u64,
    /// Those that came by while the circuit breaker was open, and were not looked at.
    pub paused: u64,
}

/// A packet, as far as it was copied.
#[derive(Clone, Copy, Debug)]
pub struct Tapped<'a> {
    /// When, since the epoch.
    pub time: Duration,
    /// How long it was, in bytes, without the tag.
    pub wire_len: u32,
    /// The VLAN tag that was taken off behind the addresses: its protocol and what follows, as sent.
    pub vlan: Option<[u8; 4]>,
    /// What was copied of it.
    pub data: &'a [u8],
}

/// A tap on one interface. It ends with it.
pub struct Tap {
    skel: TapSkel<'static>,
    /// Held.
    _filter: Option<OwnedFd>,
    in_driver: bool,
    socket: Option<PacketSocket>,
    /// In the driver.
    link: Option<Attachment>,
}

impl Tap {
    /// Loads a tap; it sees nothing yet.
    ///
    /// # Errors
    /// Without the privilege, for want of memory for the ring, or if the kernel refuses the filter.
    pub fn load(options: &Options, filter: Option<&Filter>) -> Result<Self> {
        let in_driver = options.in_driver;
        let skel = load::<TapSkelBuilder>(TAP, |open| {
            open.maps.tapped.set_max_entries(options.ring_bytes)?;
            let constants = globals(open.maps.rodata_data.as_deref_mut());
            constants.snaplen = options.snaplen.clamp(1, SNAPLEN_MAX);
            constants.filtered = filter.is_some();
            constants.breaker_batch = options.breaker_batch;
            constants.breaker_pause_ns = PAUSE.as_nanos() as u64;
            constants.count_only = options.count_only;
            constants.ignore_received = !options.received;
            constants.ignore_sent = !options.sent;
            // An array holds programs of one type.
            open.progs.weir_tap.set_autoload(!in_driver);
            open.progs.weir_tap_copy.set_autoload(!in_driver);
            open.progs.weir_tap_xdp.set_autoload(in_driver);
            open.progs.weir_tap_copy_x.set_autoload(in_driver);
            open.progs.weir_tap_end.set_autoload(in_driver);
            Ok(())
        })?;
        let progs = &skel.progs;
        let (take, missed) = if in_driver {
            (progs.weir_tap_copy_x.as_fd(), Some(progs.weir_tap_end.as_fd()))
        } else {
            (progs.weir_tap_copy.as_fd(), None)
        };
        let filter = chain(TAP, &skel.maps.stages, filter, take, missed)?;
        Ok(Self { skel, _filter: filter, in_driver, socket: None, link: None })
    }

    /// Begins, on an interface of the calling thread's network namespace. With `promiscuous`, the interface receives
    /// other hosts' packets too as long as the tap is there.
    ///
    /// # Errors
    /// Without CAP_NET_RAW, or if the interface is down or gone.
    pub fn attach(&mut self, ifindex: IfIndex, ifname: &str, promiscuous: bool) -> Result<()> {
        let failed = |source| Error::system("capture on", ifname, source);
        let socket = if self.in_driver {
            let program = self.skel.progs.weir_tap_xdp.as_fd();
            self.link = Some(attach::by_link(program, ifindex, ifname, AttachMode::Native)?);
            // For promiscuous mode, and for what happens to the interface.
            PacketSocket::silent(ifindex, promiscuous)
        } else {
            PacketSocket::open(self.skel.progs.weir_tap.as_fd(), ifindex, promiscuous)
        };
        self.socket = Some(socket.map_err(failed)?);
        Ok(())
    }

    /// Has frames for other hosts end in the driver for as long from now, once they have been copied: to be said again
    /// and again, while nobody else wants them. At first they do not.
    pub fn end_others(&mut self, time: Duration) {
        let bss = globals(self.skel.maps.bss_data.as_deref_mut());
        bss.end_others_until_ns = if time.is_zero() { 0 } else { until(time).0 };
    }

    /// Takes no more packets; those that are in the ring stay.
    pub fn detach(&mut self) {
        self.link = None;
        self.socket = None;
    }

    /// What has happened to the interface since this was last asked, such as `ENETDOWN`.
    ///
    /// # Errors
    /// That.
    pub fn check(&self) -> std::io::Result<()> {
        self.socket.as_ref().map_or(Ok(()), PacketSocket::check)
    }

    /// How many packets there were so far.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn counts(&self) -> Result<Counts> {
        let mut total = Counts::default();
        let cpus = records(&self.skel.maps.counts, 0).map_err(Error::bpf("ask", TAP))?;
        for cpu in cpus as Vec<types::weir_tap_counts> {
            total.seen += cpu.seen;
            total.matched += cpu.matched;
            total.matched_bytes += cpu.matched_bytes;
            total.dropped += cpu.dropped;
            total.paused += cpu.paused;
        }
        Ok(total)
    }

    /// Reads the ring: `each` is told every packet, and can break off, which loses that packet.
    ///
    /// # Errors
    /// For want of memory.
    pub fn reader<'a>(
        &self,
        mut each: impl FnMut(Tapped<'_>) -> ControlFlow<()> + 'a,
    ) -> Result<Reader<'a>> {
        let mut clock = Clock::default();
        let told = move |bytes: &[u8]| match parse(bytes, &mut clock).map(&mut each) {
            Some(ControlFlow::Break(())) => -libc::ECANCELED,
            Some(ControlFlow::Continue(())) | None => 0,
        };
        Reader::of(&self.skel.maps.tapped, told).map_err(Error::bpf("read", TAP))
    }
}

fn parse<'a>(bytes: &'a [u8], clock: &mut Clock) -> Option<Tapped<'a>> {
    let about: types::weir_tap_record = record(bytes)?;
    let [a, b] = about.vlan_protocol_be.to_ne_bytes();
    let [c, d] = about.vlan_tci.to_be_bytes();
    Some(Tapped {
        time: clock.real(Duration::from_nanos(about.time_ns)),
        wire_len: about.wire_len,
        vlan: (about.vlan_present != 0).then_some([a, b, c, d]),
        data: bytes.get(size_of_val(&about)..)?.get(..about.captured_len as usize)?,
    })
}
