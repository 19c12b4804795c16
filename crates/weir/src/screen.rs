//! Feedback from user-mode screens: watches the NFQUEUEs of the namespace, and lets the gates discard what they have no
//! room for while the counts say that it would go there. docs/screens.md.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use weir_bpf::alarm::Alarm;
use weir_bpf::gate::QueueProbe;
use weir_bpf::screen::{Admitted, Queue, Queues, Screens};
use weir_bpf::sync::lock;
use weir_bpf::sys::divert::ForwardRules;
use weir_bpf::sys::link::Links;
use weir_bpf::units::IfIndex;
use weir_policy::screen::{Counts, Evidence, Ledger};

use crate::error::Result;
use crate::feedback::Watcher;

/// How often queues are looked for.
const LOOK: Duration = Duration::from_secs(1);
/// How long packets that gates have admitted may take to a queue: a NAPI poll, and more.
const ON_THE_WAY: Duration = Duration::from_millis(2);
/// How often packets are counted while a queue is there.
const COUNT: Duration = Duration::from_millis(100);
/// For how long the gates go by what was counted last: without a look they discard nothing.
const BELIEVED: Duration = Duration::from_secs(1);
/// For how long everything passes after packets were found to go elsewhere.
const DOUBTED: Duration = Duration::from_secs(10);

/// Of the calling thread's network namespace, for what comes in by these interfaces.
pub fn watcher(
    probe: &QueueProbe,
    interfaces: Arc<Mutex<Vec<IfIndex>>>,
) -> Result<Box<dyn Watcher>> {
    Ok(Box::new(ScreenWatch {
        interfaces,
        links: Links::open()?,
        rules: ForwardRules::default(),
        screens: Screens::load(probe)?,
        alarm: Alarm::of(probe)?,
        list: Queues::default(),
        queues: Vec::new(),
        looked: None,
        ledger: None,
        doubted: None,
        seen: Vec::new(),
    }))
}

struct ScreenWatch {
    interfaces: Arc<Mutex<Vec<IfIndex>>>,
    links: Links,
    rules: ForwardRules,
    screens: Screens,
    alarm: Alarm,
    list: Queues,
    queues: Vec<Queue>,
    looked: Option<Instant>,
    /// While the gates count.
    ledger: Option<Ledger>,
    doubted: Option<Instant>,
    /// Of each queue: the most packets that have waited, and how many it had refused for that when last counted.
    seen: Vec<(u32, u32)>,
}

impl Watcher for ScreenWatch {
    fn pause(&self) -> Duration {
        if self.queues.is_empty() { LOOK } else { COUNT }
    }

    /// What fails is tried again; meanwhile the gates' belief runs out.
    fn look(&mut self) {
        if self.looked.is_none_or(|at| at.elapsed() >= LOOK) {
            self.looked = Some(Instant::now());
            let Ok(mut queues) = self.list.read() else { return };
            if !queues.is_empty() && self.rules.need_all(&self.interface_names()) {
                queues.clear();
            }
            if queues.is_empty() && self.queues.is_empty() {
                return;
            }
            if self.screens.follow(&queues).is_err() {
                return;
            }
            if !are_same(&queues, &self.queues) {
                self.seen = queues.iter().map(|queue| (0, queue.dropped)).collect();
            }
            self.queues = queues;
        }
        if self.queues.is_empty() || self.alarm.is_asleep() {
            self.ledger = None;
            return;
        }
        let Some(counts) = self.count() else { return };
        match self.ledger.get_or_insert_with(|| Ledger::new(counts)).judge(counts) {
            Evidence::All if self.doubted.is_none_or(|at| at.elapsed() >= DOUBTED) => {
                self.screens.believe_for(BELIEVED);
            }
            Evidence::Some => {
                self.screens.believe_for(Duration::ZERO);
                self.doubted = Some(Instant::now());
                self.ledger = None;
            }
            Evidence::Unseen => {
                self.screens.believe_for(Duration::ZERO);
                self.ledger = None;
            }
            Evidence::All | Evidence::None => {}
        }
    }
}

impl ScreenWatch {
    fn interface_names(&self) -> Vec<String> {
        let interfaces = lock(&self.interfaces).clone();
        interfaces.iter().filter_map(|each| self.links.name(*each).ok()).collect()
    }

    /// A queue that comes or goes makes counts that tell nothing: it begins anew.
    fn count(&mut self) -> Option<Counts> {
        let queued_before = self.queued()?;
        let admitted = self.screens.admitted().ok()?;
        let unlearned = self.screens.unlearned();
        std::thread::sleep(ON_THE_WAY);
        let queued_after = self.queued()?;
        for (place, limit) in limits(&self.queues, &mut self.seen).enumerate() {
            self.screens.set_limit(place, limit);
        }
        let Admitted { screened, all: forwarded } = admitted;
        Some(Counts { queued_before, screened, forwarded, unlearned, queued_after })
    }

    fn queued(&mut self) -> Option<u64> {
        let queues = self.list.read().ok()?;
        if !are_same(&queues, &self.queues) {
            (self.ledger, self.looked) = (None, None);
            return None;
        }
        let seen = |queue: &Queue| u64::from(queue.sequence.wrapping_add(queue.dropped));
        let sum = queues.iter().map(seen).sum();
        self.queues = queues;
        Some(sum)
    }
}

/// How many packets may wait in each queue; `seen` as of [`ScreenWatch`]. None where that refuses none, or where what
/// waits in the program's socket, which the gates see, is several queues'.
fn limits(queues: &[Queue], seen: &mut [(u32, u32)]) -> impl Iterator<Item = Option<u32>> {
    queues.iter().zip(seen).map(|(queue, (most, dropped))| {
        let refuses = queue.dropped != std::mem::replace(dropped, queue.dropped);
        *most = queue.waiting.max(*most);
        let of_socket = queues.iter().filter(|one| one.port_id == queue.port_id).count();
        (refuses && of_socket == 1).then_some(*most)
    })
}

/// Whether these are the same queues of the same programs.
fn are_same(queues: &[Queue], known: &[Queue]) -> bool {
    let id = |queue: &Queue| (queue.number, queue.port_id);
    queues.iter().map(id).eq(known.iter().map(id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_that_shares_its_socket_has_no_limit_of_its_own() {
        let queue = |number, port_id, dropped| Queue {
            number,
            port_id,
            waiting: 50,
            dropped,
            sequence: 100,
        };
        let of = |queues: [Queue; 3]| limits(&queues, &mut [(100, 7); 3]).collect::<Vec<_>>();
        let alone = of([queue(0, 1, 7), queue(1, 2, 8), queue(2, 3, 9)]);
        assert_eq!(alone, [None, Some(100), Some(100)]);
        let shared = of([queue(0, 1, 7), queue(1, 2, 8), queue(2, 2, 9)]);
        assert_eq!(shared, [None; 3]);
    }
}
