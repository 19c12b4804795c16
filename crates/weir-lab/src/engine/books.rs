//! What a trial saw: where every packet ended, and whether that adds up.

use std::time::Duration;

use weir_bpf::poll_cost::PollCost;
use weir_bpf::steps::Steps;

use crate::error::{Error, Result};
use crate::programs::Figures;
use crate::reading::{Counter, Reading};
use crate::run::Ledger;
use crate::scene::{Books, Client, Scene};

/// What a window saw.
pub(super) struct Window {
    pub(super) opened: Reading,
    pub(super) closed: Reading,
    pub(super) length: Duration,
    pub(super) polls: Option<(PollCost, PollCost)>,
    pub(super) report: Option<Figures>,
}

/// What a trial saw, before metrics are made of it.
pub(super) struct Seen {
    pub(super) before: Reading,
    pub(super) after: Reading,
    pub(super) window: Window,
    pub(super) pings: Option<Vec<Option<f64>>>,
    pub(super) steps: Vec<Steps>,
}

/// How many requests were received and replied to, and how many replies have arrived or were refused.
fn replies(before: &Reading, after: &Reading) -> [u64; 4] {
    let since = |counter| after.since(before, counter);
    [
        since(Counter::Delivered) + since(Counter::OtherDelivered),
        since(Counter::Replied),
        since(Counter::Arrived) + since(Counter::Done) + since(Counter::Calls),
        since(Counter::RepliesRefused),
    ]
}

/// Whether every request was answered and every answer has arrived, or was refused.
pub(super) fn answered(scene: &Scene, before: &Reading, after: &Reading) -> bool {
    let [received, replied, arrived, refused] = replies(before, after);
    let is_counted =
        matches!(scene.client, Some(Client::Rpc { .. })) || after.has(Counter::Arrived);
    !is_counted || replied == received && replied == arrived + refused
}

/// Where every packet between two readings ended: exact once everything has drained. `None` where
/// packets are not counted.
pub(super) fn ledger(books: Books, before: &Reading, after: &Reading) -> Option<Ledger> {
    let since = |counter| after.since(before, counter);
    let sum = |counters: &[Counter]| counters.iter().copied().map(since).sum::<u64>();
    let sent = sum(&[Counter::FloodSent, Counter::LightSent]);
    let frames = Ledger {
        offered: sent,
        nic_drop: since(Counter::RingDrop),
        discarded: since(Counter::Discarded),
        ..Ledger::default()
    };
    let udp = Ledger {
        late_backlog: since(Counter::LateBacklog),
        late_socket: since(Counter::LateSocket),
        late_other: since(Counter::LateOther),
        delivered: sum(&[Counter::Delivered, Counter::LightDelivered, Counter::OtherDelivered]),
        ..frames
    };
    let ledger = match books {
        Books::None => return None,
        Books::Udp => Ledger { offered: sent + since(Counter::ClientSent), ..udp },
        Books::Ip => {
            let of_udp = udp.late_socket + udp.late_other + udp.delivered;
            let beyond_udp = since(Counter::IpReceived).saturating_sub(of_udp);
            // What the gate answers by SYN cookie does not come to IP.
            let delivered = udp.delivered + since(Counter::Answered);
            Ledger { offered: sent + since(Counter::ClientIpSent), delivered, beyond_udp, ..udp }
        }
        Books::Tcp => Ledger {
            offered: sum(&[Counter::RingDrop, Counter::Taken]).max(sent),
            late_other: since(Counter::Untracked),
            delivered: sum(&[Counter::Segments, Counter::Answered]),
            ..frames
        },
        Books::Ring | Books::Tap => {
            Ledger { delivered: since(Counter::Taken).saturating_sub(frames.discarded), ..frames }
        }
    };
    Some(ledger.closed())
}

/// A trial that contradicts itself is no result.
pub(super) fn check(
    scene: &Scene,
    seen: &Seen,
    ledger: Option<&Ledger>,
    place: &str,
) -> Result<()> {
    let since = |counter| seen.after.since(&seen.before, counter);
    let wrong = |what: String| {
        let problem = format!("{what}, in arm {place}: the run is not a result");
        let remedy =
            "something else may be sending in the lab's namespaces; otherwise please report this";
        Err(Error::refused(problem, remedy))
    };
    if let Some(ledger) = ledger.filter(|ledger| ledger.unaccounted != 0) {
        return wrong(format!("packets do not add up: {ledger:?}"));
    }
    if matches!(scene.books, Books::Ring | Books::Tap) && seen.after.has(Counter::Judged) {
        let (judged, taken) = (since(Counter::Judged), since(Counter::Taken));
        let ended_before = scene.books == Books::Tap && judged <= taken;
        if judged != taken && !ended_before {
            return wrong(format!("the gate counted {judged} of {taken} packets that were taken"));
        }
        let unjudged = seen.after.since(&seen.window.opened, Counter::Unjudged);
        if unjudged > 0 {
            return Err(Error::refused(
                format!("the gate passed {unjudged} of {taken} packets unjudged"),
                "something in the lab's namespace may divert packets; `weir status` there names it",
            ));
        }
    }
    if answered(scene, &seen.before, &seen.after) {
        return Ok(());
    }
    let [received, replied, arrived, refused] = replies(&seen.before, &seen.after);
    wrong(format!(
        "replies do not add up: {received} received, {replied} replied to, {arrived} arrived, {refused} refused"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn books_balance_by_what_they_count() {
        let mut after = Reading::default();
        for (counter, count) in [
            (Counter::FloodSent, 100),
            (Counter::RingDrop, 10),
            (Counter::Discarded, 20),
            (Counter::LateSocket, 5),
            (Counter::Delivered, 65),
            (Counter::Taken, 90),
            (Counter::ClientIpSent, 7),
            (Counter::IpReceived, 77),
        ] {
            after.add(counter, count);
        }
        let before = Reading::default();
        assert_eq!(ledger(Books::Udp, &before, &after).unwrap().unaccounted, 0);
        let ring = ledger(Books::Ring, &before, &after).unwrap();
        assert_eq!((ring.unaccounted, ring.delivered), (0, 70));
        let ip = ledger(Books::Ip, &before, &after).unwrap();
        assert_eq!((ip.unaccounted, ip.beyond_udp), (0, 7));
        assert_eq!(ledger(Books::None, &before, &after), None);
        after.add(Counter::Answered, 3);
        after.add(Counter::FloodSent, 3);
        assert_eq!(ledger(Books::Ip, &before, &after).unwrap().unaccounted, 0);
    }
}
