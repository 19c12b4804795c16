//! What those weigh who receive a channel's packets: as the scheduler weighs them, so do their packets (Druschel
//! & Banga, section 3: processing at the receiver's priority).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use weir_bpf::channels::Channel;
use weir_bpf::sync::lock;
use weir_bpf::units::Nanos;
use weir_bpf::verdict::Kind;

use crate::shares::{self, ShareSettings};

/// How long it is remembered that a listener's clients were there: as the kernel remembers a connection that it
/// has closed (`TCP_TIMEWAIT_LEN`).
const REMEMBERED: Nanos = Nanos::from_millis(60_000);

/// Asked for by the threads that look after a saturated CPU; answered by the daemon's main loop, as finding owners
/// takes milliseconds.
#[derive(Default)]
pub(super) struct Receivers {
    settings: Mutex<Arc<ShareSettings>>,
    wanted: Mutex<BTreeSet<Channel>>,
    weights: Mutex<BTreeMap<Channel, f64>>,
    /// When these kinds, at these local ports, last had a packet; without a port, those whose port is not known.
    last: Mutex<BTreeMap<(Kind, Option<u16>), Nanos>>,
}

impl Receivers {
    /// Who weighs what, if the user says so.
    pub(super) fn new(settings: ShareSettings) -> Self {
        Self { settings: Mutex::new(Arc::new(settings)), ..Self::default() }
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
    pub(super) fn want(&self, channels: impl Iterator<Item = Channel>) {
        lock(&self.wanted).extend(channels);
    }

    /// Those that have been asked for since this was last called.
    pub(super) fn take_wanted(&self) -> BTreeSet<Channel> {
        std::mem::take(&mut *lock(&self.wanted))
    }

    /// What is known from now on; 1 is a process of nice 0.
    pub(super) fn set(&self, weights: BTreeMap<Channel, f64>) {
        *lock(&self.weights) = weights;
    }

    /// These channels have had packets. Those of listeners are remembered.
    pub(super) fn came(&self, channels: impl Iterator<Item = Channel>, now: Nanos) {
        let mut last = lock(&self.last);
        last.retain(|_, last| now - *last < REMEMBERED);
        let theirs =
            channels.filter(|channel| matches!(channel.kind, Kind::Tcp | Kind::TcpRequest));
        last.extend(theirs.map(|channel| ((channel.kind, channel.local_port()), now)));
    }

    /// What a channel's packets weigh.
    ///
    /// Requests past a listener's queue weigh what it weighs if it has clients, or must be in reach; then strays, which
    /// may answer a cookie, do so as long as there are such requests. Else nobody is known to wait for either.
    pub(super) fn weigh(&self, channel: &Channel) -> f64 {
        let (_, usual) = shares::usual(channel.kind);
        let received = received(channel);
        let receiver = self.weight(&received);
        if received == *channel {
            return receiver.unwrap_or(usual);
        }
        let settings = self.settings();
        let said = settings.weight(&Channel::of_kind(channel.kind), &[]);
        let port = received.local_port();
        let serves = settings.protects(&received) || self.has_come(Kind::Tcp, port);
        let awaited =
            serves && (channel.kind == Kind::TcpRequest || self.has_come(Kind::TcpRequest, port));
        said.unwrap_or(if awaited { 1.0 } else { usual }) * receiver.unwrap_or(1.0)
    }

    fn has_come(&self, kind: Kind, port: Option<u16>) -> bool {
        let last = lock(&self.last);
        [port, None].into_iter().any(|port| last.contains_key(&(kind, port)))
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

#[cfg(test)]
mod tests {
    use weir_bpf::verdict::Kind::{Tcp, TcpRequest, TcpStray};

    use super::*;

    const LATER: Nanos = Nanos(REMEMBERED.0 - 1);

    fn at(kind: Kind, port: u16) -> Channel {
        Channel { local: Some(([198, 18, 0, 1].into(), port)), ..Channel::of_kind(kind) }
    }

    #[test]
    fn what_a_listener_is_sent_weighs_what_it_weighs_while_it_has_clients() {
        let (_, unawaited) = shares::usual(TcpRequest);
        for (came, port, [request, stray]) in [
            (vec![], 80, [unawaited, unawaited]),
            (vec![at(TcpRequest, 80)], 80, [unawaited, unawaited]),
            (vec![at(Tcp, 80)], 80, [1.0, unawaited]),
            (vec![at(Tcp, 80)], 81, [unawaited, unawaited]),
            (vec![at(Tcp, 80), at(TcpRequest, 80)], 80, [1.0, 1.0]),
            (vec![at(Tcp, 80), at(TcpRequest, 81)], 81, [unawaited, unawaited]),
            // For more channels than there are accounts, one that has no port.
            (vec![Channel::of_kind(Tcp)], 80, [1.0, unawaited]),
            // It must be in reach.
            (vec![at(TcpRequest, 22)], 22, [1.0, 1.0]),
        ] {
            let receivers = Receivers::new(ShareSettings::default());
            receivers.came(came.iter().copied(), Nanos(0));
            receivers.came([].into_iter(), LATER);
            let weigh = |kind| receivers.weigh(&at(kind, port));
            assert_eq!([weigh(TcpRequest), weigh(TcpStray)], [request, stray], "{came:?} {port}");
        }
        let receivers = Receivers::new(ShareSettings::default());
        receivers.came([at(Tcp, 80)].into_iter(), Nanos(0));
        receivers.came([].into_iter(), REMEMBERED);
        assert_eq!(receivers.weigh(&at(TcpRequest, 80)), unawaited);
        receivers.came([at(Tcp, 80)].into_iter(), REMEMBERED);
        receivers.set([(at(Tcp, 80), 0.5)].into());
        assert_eq!(receivers.weigh(&at(TcpRequest, 80)), 0.5);
    }
}
