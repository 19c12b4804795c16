//! What those weigh who receive a channel's packets: as the scheduler weighs them, so do their packets (Druschel
//! & Banga, section 3: processing at the receiver's priority).

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex};

use rustix::event::{EventfdFlags, eventfd};
use weir_bpf::channels::Channel;
use weir_bpf::sync::lock;
use weir_bpf::verdict::Kind;

use weir_policy::Bound;

use crate::error::{Error, Result};
use crate::shares::{self, ShareSettings};

/// Asked for by the threads that look after a saturated CPU; answered by another ([`super::weigher`]), as finding owners
/// takes milliseconds.
pub(super) struct Receivers {
    settings: Mutex<Arc<ShareSettings>>,
    wanted: Mutex<Wanted>,
    /// Readable once channels are wanted of which nothing is known.
    called: OwnedFd,
    weights: Mutex<BTreeMap<Channel, f64>>,
    /// Ports of flooded listeners, and whether they have been seen to have connections.
    served: Mutex<BTreeMap<u16, bool>>,
}

/// Something to wait for.
pub(super) fn event() -> Result<OwnedFd> {
    eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
        .map_err(|errno| Error::system("make an event for the governor", errno))
}

/// It happens.
pub(super) fn call(event: &OwnedFd) {
    let _ = rustix::io::write(event, &1_u64.to_ne_bytes());
}

#[derive(Default)]
struct Wanted {
    now: BTreeSet<Channel>,
    /// What was wanted when this was last answered.
    before: BTreeSet<Channel>,
}

impl Receivers {
    /// Who weighs what, if the user says so.
    pub(super) fn new(settings: ShareSettings) -> Result<Self> {
        Ok(Self {
            settings: Mutex::new(Arc::new(settings)),
            wanted: Mutex::default(),
            called: event()?,
            weights: Mutex::default(),
            served: Mutex::default(),
        })
    }

    /// Readable once somebody is to find out at once what is wanted: at a flood's start, who has clients.
    pub(super) fn called(&self) -> BorrowedFd<'_> {
        self.called.as_fd()
    }

    /// What the user has decided.
    pub(super) fn settings(&self) -> Arc<ShareSettings> {
        Arc::clone(&lock(&self.settings))
    }

    /// What he has decided now. What was known went by what he had decided before.
    pub(super) fn decide(&self, settings: ShareSettings) {
        *lock(&self.settings) = Arc::new(settings);
        self.set(BTreeMap::new());
    }

    /// Weights of these channels are wanted.
    pub(super) fn want(&self, channels: &[Channel]) {
        let mut wanted = lock(&self.wanted);
        let mut calls = false;
        for channel in channels {
            calls |= wanted.now.insert(*channel) && !wanted.before.contains(channel);
        }
        if calls {
            call(&self.called);
        }
    }

    /// Those that have been asked for since this was last called.
    pub(super) fn take_wanted(&self) -> BTreeSet<Channel> {
        let _ = rustix::io::read(&self.called, &mut [0; 8]);
        let mut wanted = lock(&self.wanted);
        wanted.before = std::mem::take(&mut wanted.now);
        wanted.before.clone()
    }

    /// What is known from now on; 1 is a process of nice 0.
    pub(super) fn set(&self, weights: BTreeMap<Channel, f64>) {
        *lock(&self.weights) = weights;
    }

    /// Of these listeners' ports, those have connections now. Whoever has had clients may have some again.
    pub(super) fn serve(&self, listening: BTreeSet<u16>, connected: &BTreeSet<u16>) {
        let mut served = lock(&self.served);
        for port in listening {
            *served.entry(port).or_default() |= connected.contains(&port);
        }
    }

    /// These listeners' ports have clients: the gate has seen segments of connections, which may be over when the kernel
    /// is asked.
    pub(super) fn have_clients(&self, ports: impl Iterator<Item = u16>) {
        lock(&self.served).extend(ports.map(|port| (port, true)));
    }

    /// What a channel's packets weigh.
    ///
    /// Requests past a listener's queue weigh what it weighs, unless it is known to have no clients, need not be in
    /// reach, and has other receivers beside it; so do strays, which may answer a cookie, as long as there are such
    /// requests.
    /// `besides`: the channels that there are.
    pub(super) fn weigh(&self, channel: &Channel, besides: &[Channel]) -> f64 {
        let (_, usual) = shares::usual(channel.kind);
        let received = received(channel);
        let receiver = self.weight(&received);
        if received == *channel {
            return receiver.unwrap_or(usual);
        }
        let said = self.settings().weight(&Channel::of_kind(channel.kind), &[]);
        let alone = if self.awaits(channel, besides) { 1.0 } else { usual };
        said.unwrap_or(alone) * receiver.unwrap_or(1.0)
    }

    /// Whether somebody is taken to wait for what a listener is sent beside its connections. Its first client may, but
    /// beside other receivers a listener without any is not believed.
    fn awaits(&self, channel: &Channel, besides: &[Channel]) -> bool {
        let received = received(channel);
        let requests = Channel { kind: Kind::TcpRequest, ..*channel };
        let is_served = |port| lock(&self.served).get(&port).copied().unwrap_or(true);
        let served = received.local_port().is_some_and(is_served);
        let believed =
            served || self.settings().protects(&received) || !has_others(channel, besides);
        believed && besides.contains(&requests)
    }

    /// What bounds a channel's packets. Requests that somebody waits for are delivered, by cookie: whoever discards some
    /// costs each of the listener's clients a second. They are limited as what has a queue is: beside other receivers'
    /// packets, while the ring overflows.
    pub(super) fn bound(&self, channel: &Channel, besides: &[Channel]) -> Bound {
        // The fast path, which asks for no limit, and what has no account of its own.
        if *channel == Channel::of_kind(Kind::Forward) {
            return Bound::Unknown;
        }
        if channel.kind != Kind::TcpRequest || !self.awaits(channel, besides) {
            return shares::usual(channel.kind).0;
        }
        if has_others(channel, besides) { Bound::Queue } else { Bound::Unknown }
    }

    /// A channel's; as far as the user has said, if its receivers are not known.
    fn weight(&self, channel: &Channel) -> Option<f64> {
        let known = lock(&self.weights).get(channel).copied();
        known.or_else(|| self.settings().weight(channel, &[]))
    }
}

/// The channel by which its receiver is known: of what a listener is sent beside its connections, the listener's.
pub(super) fn received(channel: &Channel) -> Channel {
    let is_of_listener = matches!(channel.kind, Kind::TcpRequest | Kind::TcpStray);
    Channel { kind: if is_of_listener { Kind::Tcp } else { channel.kind }, ..*channel }
}

/// Whether there are packets of other receivers than this channel's.
fn has_others(channel: &Channel, besides: &[Channel]) -> bool {
    let mut others =
        besides.iter().filter(|each| received(each) != received(channel)).map(|each| each.kind);
    others.any(|kind| shares::usual(kind).0 == Bound::Queue)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use weir_bpf::units::IfIndex;
    use weir_bpf::verdict::Kind::{Tcp, TcpRequest, TcpStray};

    use super::*;
    use crate::ready;

    fn at(kind: Kind, port: u16) -> Channel {
        Channel { local: Some(([198, 18, 0, 1].into(), port)), ..Channel::of_kind(kind) }
    }

    #[test]
    fn who_is_new_calls_at_once_and_nobody_calls_twice() {
        let receivers = Receivers::new(ShareSettings::default()).unwrap();
        let called = || ready::wait([receivers.called()], Some(Duration::ZERO)).unwrap()[0];
        receivers.want(&[at(Tcp, 80)]);
        assert!(called());
        assert_eq!(receivers.take_wanted(), [at(Tcp, 80)].into());
        receivers.want(&[at(Tcp, 80)]);
        assert!(!called());
        receivers.want(&[at(Tcp, 80), at(TcpRequest, 81)]);
        assert!(called());
    }

    #[test]
    fn what_a_listener_is_sent_weighs_what_it_weighs_while_it_has_clients() {
        let (_, unawaited) = shares::usual(TcpRequest);
        for (served, requests, port, [request, stray]) in [
            (&[][..], true, 80, [unawaited, unawaited]),
            (&[80], true, 80, [1.0, 1.0]),
            (&[80], true, 81, [unawaited, unawaited]),
            (&[80], false, 80, [unawaited, unawaited]),
            // It must be in reach.
            (&[], true, 22, [1.0, 1.0]),
            // Nobody has looked yet.
            (&[], true, 82, [1.0, 1.0]),
            (&[], false, 82, [unawaited, unawaited]),
        ] {
            let receivers = Receivers::new(ShareSettings::default()).unwrap();
            receivers.serve([22, 80, 81].into(), &served.iter().copied().collect());
            // Its clients are gone.
            receivers.serve([22, 80, 81].into(), &BTreeSet::new());
            let another = at(Kind::Udp, 53);
            let besides =
                if requests { vec![at(TcpRequest, port), another] } else { vec![another] };
            let weigh = |kind| receivers.weigh(&at(kind, port), &besides);
            let weights = [weigh(TcpRequest), weigh(TcpStray)];
            assert_eq!(weights, [request, stray], "{served:?} {requests} {port}");
        }
        let receivers = Receivers::new(ShareSettings::default()).unwrap();
        receivers.set([(at(Tcp, 80), 0.5)].into());
        assert_eq!(receivers.weigh(&at(TcpRequest, 80), &[at(TcpRequest, 80)]), 0.5);
        // A listener's first client has nobody to give way to.
        receivers.serve([80].into(), &BTreeSet::new());
        assert_eq!(receivers.weigh(&at(TcpRequest, 80), &[at(TcpRequest, 80)]), 0.5);
        let besides = [at(TcpRequest, 80), at(Kind::Udp, 53)];
        assert_eq!(receivers.weigh(&at(TcpRequest, 80), &besides), 0.5 * unawaited);
    }

    #[test]
    fn what_the_fast_path_forwards_is_never_limited() {
        let receivers = Receivers::new(ShareSettings::default()).unwrap();
        let forward = Channel::of_kind(Kind::Forward);
        let by_an_egress = Channel { egress: Some(IfIndex(7)), ..forward };
        let besides = [forward, by_an_egress, at(Kind::Udp, 53)];
        let bounds = besides.map(|channel| receivers.bound(&channel, &besides));
        assert_eq!(bounds, [Bound::Unknown, Bound::Queue, Bound::Queue]);
    }

    #[test]
    fn requests_are_limited_beside_other_receivers_alone() {
        let requests = at(TcpRequest, 80);
        let own = [requests, at(Tcp, 80), at(TcpStray, 80), Channel::of_kind(Kind::Icmp)];
        let beside = [requests, at(Tcp, 80), at(Kind::Udp, 53)];
        for (served, besides, bound) in [
            (&[80][..], &own[..], Bound::Unknown),
            (&[80], &beside, Bound::Queue),
            (&[], &own, Bound::Unknown),
            (&[], &beside, Bound::Nothing),
        ] {
            let receivers = Receivers::new(ShareSettings::default()).unwrap();
            receivers.serve([80].into(), &served.iter().copied().collect());
            assert_eq!(receivers.bound(&requests, besides), bound, "{served:?} {besides:?}");
            assert_eq!(receivers.bound(&at(TcpStray, 80), besides), Bound::Nothing);
        }
    }
}
