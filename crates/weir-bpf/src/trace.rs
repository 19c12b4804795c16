//! The way of single packets through the kernel: `bpf/trace.bpf.c`.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use libbpf_rs::Link;
use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Enum, Typedef};

use crate::abi;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::filter::{Filter, chain};
use crate::object::{attach_all, globals, load};
use crate::record::record;
pub use crate::ring::Reader;
use crate::skeleton::trace::{TraceSkel, TraceSkelBuilder, types};
use crate::sys::packet::PacketSocket;
use crate::units::{CpuId, IfIndex, Nanos};
pub use crate::verdict::Step;

const TRACE: &str = "the trace";
const NANOS_PER_SEC: u32 = 1_000_000_000;

impl Step {
    /// Whether nothing comes after it.
    pub fn is_last(self) -> bool {
        matches!(self, Self::Read | Self::Sent | Self::Dropped | Self::Consumed)
    }
}

/// A packet has come to a step.
#[derive(Clone, Debug)]
pub struct Event {
    /// The packet's number.
    pub packet: u64,
    /// When, `CLOCK_MONOTONIC`.
    pub at: Nanos,
    /// Where to.
    pub step: Step,
    /// On which CPU.
    pub cpu: CpuId,
    /// The thread that ran there, whoever's work it did; of [`Step::Woken`], the thread that was woken.
    pub tid: u32,
    /// Its name.
    pub comm: String,
    /// The interface of [`Step::Egress`] and [`Step::Sent`], and the kernel's reason of [`Step::Dropped`].
    pub detail: u32,
    /// The address of the kernel's code that has dropped it.
    pub place: u64,
}

/// A packet that is followed from here on.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// That it was received.
    pub event: Event,
    /// The same, since the epoch.
    pub time: Duration,
    /// When the poll was asked for that has brought it; `None` if that is not known, as if packets came while it polled.
    pub scheduled: Option<Nanos>,
    /// When that poll began.
    pub polled: Option<Nanos>,
    /// A softirq received it, on top of the event's thread; else that thread did.
    pub by_softirq: bool,
    /// How long it was, in bytes.
    pub wire_len: u32,
    /// What was copied of it: its headers.
    pub data: Vec<u8>,
}

/// What a trace tells.
#[derive(Clone, Debug)]
pub enum Told {
    /// Of a new packet.
    Arrival(Arrival),
    /// Of a known one.
    Event(Event),
}

/// Follows packets. It ends with it.
pub struct Trace {
    // Before the programs.
    links: Vec<Link>,
    socket: Option<PacketSocket>,
    skel: TraceSkel<'static>,
    /// Held.
    _filter: Option<OwnedFd>,
}

impl Trace {
    /// Loads a trace of so many packets a second at most; it follows none yet.
    ///
    /// # Errors
    /// Without the privilege, on a kernel that lacks one of the tracepoints, or if it refuses the filter.
    pub fn load(per_second: u32, filter: Option<&Filter>) -> Result<Self> {
        let skel = load::<TraceSkelBuilder>(TRACE, |open| {
            let btf = Btf::from_vmlinux()?;
            let progs = &mut open.progs;
            let has = |tracepoint: &str| {
                btf.type_by_name::<Typedef<'_>>(&format!("btf_trace_{tracepoint}")).is_some()
            };
            progs.weir_readable.set_autoload(has("sk_data_ready"));
            progs.weir_readable_old.set_autoload(!has("sk_data_ready"));
            progs.weir_read.set_autoload(has("sock_recv_length"));
            let constants = globals(open.maps.rodata_data.as_deref_mut());
            constants.filtered = filter.is_some();
            constants.budget = per_second.div_ceil(NANOS_PER_SEC / abi::TRACE_WINDOW_NS as u32);
            Ok(())
        })?;
        let take = skel.progs.weir_trace_take.as_fd();
        let filter = chain(TRACE, &skel.maps.stages, filter, take, None)?;
        Ok(Self { links: Vec::new(), socket: None, skel, _filter: filter })
    }

    /// Begins, with packets that an interface of the calling thread's network namespace receives.
    ///
    /// # Errors
    /// Without CAP_NET_RAW, if the interface is down or gone, or if the kernel refuses a tracepoint.
    pub fn attach(&mut self, ifindex: IfIndex, ifname: &str) -> Result<()> {
        let progs = &self.skel.progs;
        // What comes last is heard of first.
        self.links = attach_all(
            TRACE,
            [
                &progs.weir_consumed,
                &progs.weir_freed,
                &progs.weir_sent,
                &progs.weir_at_egress,
                &progs.weir_copied,
                &progs.weir_read,
                &progs.weir_readable,
                &progs.weir_readable_old,
                &progs.weir_switched,
                &progs.weir_waking,
                &progs.weir_polled,
                &progs.weir_left,
                &progs.weir_entered,
                &progs.weir_raised,
                &progs.weir_received,
            ],
        )?;
        let socket = PacketSocket::open(progs.weir_trace_tap.as_fd(), ifindex, false);
        self.socket = Some(socket.map_err(|source| Error::system("trace", ifname, source))?);
        Ok(())
    }

    /// Follows so many packets from now on, and then no more.
    pub fn follow(&mut self, packets: u64) {
        let left = packets.try_into().unwrap_or(i64::MAX);
        globals(self.skel.maps.bss_data.as_deref_mut()).left = left;
    }

    /// How many packets were not followed, as there were too many at once, and how many events were lost.
    pub fn missed(&self) -> (u64, u64) {
        let bss = globals(self.skel.maps.bss_data.as_deref());
        (bss.skipped, bss.lost)
    }

    /// What has happened to the interface since this was last asked, such as `ENETDOWN`.
    ///
    /// # Errors
    /// That.
    pub fn check(&self) -> std::io::Result<()> {
        self.socket.as_ref().map_or(Ok(()), PacketSocket::check)
    }

    /// Reads the ring: `each` is told everything, of one packet in the order in which it happened on each CPU.
    ///
    /// # Errors
    /// For want of memory.
    pub fn reader<'a>(&self, mut each: impl FnMut(Told) + 'a) -> Result<Reader<'a>> {
        let mut clock = Clock::default();
        let told = move |bytes: &[u8]| {
            parse(bytes, &mut clock).into_iter().for_each(&mut each);
            0
        };
        Reader::of(&self.skel.maps.events, told).map_err(Error::bpf("read", TRACE))
    }
}

fn parse(bytes: &[u8], clock: &mut Clock) -> Option<Told> {
    let event = event(record(bytes)?)?;
    if event.step != Step::Received {
        return Some(Told::Event(event));
    }
    let arrival: types::weir_trace_arrival = record(bytes)?;
    let known = |at: u64| (at != 0 && at <= event.at.0).then_some(Nanos(at));
    let captured = (arrival.captured_len as usize).min(abi::TRACE_SNAPLEN);
    Some(Told::Arrival(Arrival {
        time: clock.real(Duration::from_nanos(event.at.0)),
        scheduled: known(arrival.scheduled_ns),
        polled: known(arrival.began_ns),
        by_softirq: arrival.softirq == 1,
        wire_len: arrival.wire_len,
        data: arrival.bytes[..captured].to_vec(),
        event,
    }))
}

fn event(it: types::weir_trace_event) -> Option<Event> {
    let comm: Vec<u8> =
        it.comm.iter().map(|byte| byte.cast_unsigned()).take_while(|byte| *byte != 0).collect();
    Some(Event {
        packet: it.packet,
        at: Nanos(it.at_ns),
        step: Step::of(it.step)?,
        cpu: CpuId(it.cpu),
        tid: it.tid,
        comm: String::from_utf8_lossy(&comm).into_owned(),
        detail: it.detail,
        place: it.place,
    })
}

/// The running kernel's reasons to drop packets, by number, such as `NO_SOCKET`.
pub fn drop_reasons() -> HashMap<u32, String> {
    let Ok(btf) = Btf::from_vmlinux() else { return HashMap::new() };
    let Some(reasons) = btf.type_by_name::<Enum<'_>>("skb_drop_reason") else {
        return HashMap::new();
    };
    let short = |name: &str| {
        let short = name.strip_prefix("SKB_DROP_REASON_").or_else(|| name.strip_prefix("SKB_"));
        short.unwrap_or(name).to_owned()
    };
    let named = reasons.iter().filter_map(|it| Some((it.value as u32, short(it.name?.to_str()?))));
    named.collect()
}
