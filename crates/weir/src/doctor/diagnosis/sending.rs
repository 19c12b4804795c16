//! What is lost on its way out.

use weir_bpf::egress::is_read;

use super::super::reading::{EgressReading, InterfaceReading, Reading};
use super::finding::{Cause, Finding, Help, Sureness, hindered};
use super::words::{count, percent};

/// A queue that drops fewer packets, or a smaller share of what it is handed, does what it is for: it tells TCP how fast to
/// send.
const DROPS_PER_SEC: f64 = 10.0;
const DROPS_SHARE: f64 = 0.1;
/// TCP fills a queue until it drops, and then lets it drain: one that is too small for what it is handed is as full at
/// both looks.
const STAYS_FULL: f64 = 0.9;

pub(super) fn egress_full(reading: &Reading, interface: &InterfaceReading) -> Option<Finding> {
    let share = |queue: &EgressReading| queue.drop_pps / (queue.drop_pps + queue.sent_pps);
    let is_full = |queue: &&EgressReading| {
        let stays_full = queue.waiting_bytes > 0
            && f64::from(queue.waiting_bytes) >= STAYS_FULL * f64::from(queue.waiting_bytes_most);
        queue.drop_pps >= DROPS_PER_SEC && share(queue) >= DROPS_SHARE && stays_full
    };
    // A class's losses may be little of the whole.
    let class = interface.egress_classes.iter().filter(is_full);
    let worst = class.max_by(|one, other| one.drop_pps.total_cmp(&other.drop_pps));
    let queue = interface.egress.as_ref().filter(is_full).or(worst)?;
    let name = &interface.name;
    // Packets that are to leave by it come by others.
    let at = reading.best_of(|each| each.name != *name && !interface.lower.contains(&each.name));
    // GRO may have made one of two.
    let forwards = reading.ip.as_ref().is_some_and(|ip| ip.forwarded_pps >= queue.drop_pps / 2.0);
    let (weir, weir_does) = match (forwards, is_read(&queue.kinds)) {
        (false, _) => (
            Help::None,
            "nothing: hardly any of this is routed from another interface, and what this host sends passes no gate"
                .into(),
        ),
        (true, false) => (
            Help::None,
            "nothing: it reads the fill of pfifo, bfifo and tbf alone (docs/egress.md)".into(),
        ),
        (true, true) => {
            let does = "discards such packets where they come in, before the work of forwarding them; the egress sends \
                        no more for that";
            (Help::Contains, hindered(reading, at, does))
        }
    };
    let look = format!(
        "tc -s -d qdisc show dev {name}    (whose limit it is: a higher rate, if the link has one, or less for it)"
    );
    let class = queue.class.as_ref().map_or_else(String::new, |class| format!("; class {class}"));
    let weir_first = (weir == Help::Contains).then(|| reading.try_weir(at));
    Some(Finding {
        cause: Cause::EgressFull,
        sureness: Sureness::Measured,
        what: format!(
            "The queue by which {name} sends ({}{class}) is full: it drops {} packets/s, {} of what it is handed; {} \
             packets ({} KiB) wait in it",
            queue.kinds.join(", "),
            count(queue.drop_pps),
            percent(share(queue)),
            count(queue.waiting.into()),
            queue.waiting_bytes.div_ceil(1024)
        ),
        whose: Some(name.clone()),
        weir,
        weir_does,
        advice: weir_first.into_iter().chain([look]).collect(),
    })
}
