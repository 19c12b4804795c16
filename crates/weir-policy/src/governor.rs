//! The control law for one NAPI thread: how much of its CPU network input may use, and when.
//!
//! | regime | entered when | left when | policy | nice | interrupts |
//! |---|---|---|---|---|---|
//! | asleep | nothing has been wrong for [`REST`], and no other task wants the CPU | | `SCHED_BATCH` | 0 | as usual |
//! | isolating | packets are discarded; a queue was full, or input is over its share | none for [`REST`]; nothing of the rest for [`TRIAL`] | `SCHED_BATCH` | 19 after discards, else 0; beside another channel -10 to 19 | as usual |
//! | shared | other tasks than receivers want the CPU, or receivers keep a ring waiting until it overflows | they do not, or no packets come for about [`REST`] | `SCHED_OTHER`, the shortest slice | -20 to 19 | deferred |
//!
//! A batch thread interrupts nobody when it wakes, and is not interrupted by the receivers that it wakes: NAPI empties
//! the ring, then the receiver empties its queue, without a timer and with two switches. Beside a task that computes it
//! would wait for the end of that task's slice each time, and so would its receivers, whose queues hold less than comes
//! meanwhile. There it is an ordinary thread that preempts: with the shortest slice, as the scheduler chooses by deadlines;
//! heavy, so that its deadline comes first up to the end of the other's slice, within its share; and with interrupts
//! deferred, as one that comes right after it has run does not preempt, and nothing asks the scheduler again before its
//! tick. Receivers that have much to do when their turn comes, by their number, their buffers or what they do for a packet,
//! are such tasks as well, where packets are lost meanwhile that they or another channel had room for. That input waits for long does not tell one case from the
//! other, so the scheduler is watched for a moment before anything is changed.
//!
//! A full queue says that its receiver lacks CPU time, so input yields to it (Mogul & Ramakrishnan, *Eliminating Receive
//! Livelock*, section 6.6). But while another channel has to be told from the flooded one (Druschel & Banga, *Lazy Receiver
//! Processing*, section 2.2), and beside tasks that are no receivers, a controller moves the weight: lighter while input
//! takes more than its share of the CPU from those tasks, or spends more than that on packets that are discarded; heavier
//! while it is less and, beside another channel, the ring overflows. The share is Mogul & Ramakrishnan's, section 7.

use crate::settings::{Prefer, Settings};
use crate::units::{Nanos, Nice};

/// How long it is calm before input sleeps: the law's one hysteresis.
pub const REST: Nanos = Nanos::from_millis(1000);
/// How long it is looked whether something is wrong here: a queue was full, but maybe on another CPU, or CPU time alone is
/// short. Twice as long as whoever goes on ringing is silent (`bpf/alarm.h`).
const TRIAL: Nanos = Nanos::from_millis(200);
/// How long another channel is believed in after it was last seen.
pub const REMEMBERED: Nanos = Nanos::from_millis(100);
/// The time between two looks while there is something to divide: with other tasks, or by shares of channels...
pub const LOOK_AWAKE: Nanos = Nanos::from_millis(2);
/// ...and while there is not: a look takes time of the CPU that is flooded, and the ring fills meanwhile.
const LOOK_ALONE: Nanos = Nanos::from_millis(10);
/// For so long after the scheduler is watched anew, receivers are not yet known from other tasks.
pub const WARM_UP: Nanos = Nanos::from_millis(20);
/// Other tasks want the CPU if they have, or are kept from, this part of it...
const CROWDED_FROM: f64 = 0.1;
/// ...on an average with this time constant: a task that runs for a moment does not.
const CROWDED_OVER: Nanos = Nanos::from_millis(10);
/// The time between two polls beside other tasks: the first, and while packets are lost the first in which at most
/// [`POLL_ADMITTED`] are admitted and at most [`POLL_PACKETS`] come. A nanosecond short of what people set: whose it is
/// is told by its value.
pub const POLL_INTERVALS: [Nanos; 4] =
    [Nanos(199_999), Nanos(99_999), Nanos(49_999), Nanos(24_999)];
/// Packets that a poll may bring to receivers beside other tasks: less than the 50 small ones that a socket's queue holds
/// at first (`net.core.rmem_default`). Receivers that alone keep input waiting have taken more at once.
const POLL_ADMITTED: f64 = 32.0;
/// Packets that a poll may find: half of the smallest usual ring, a veth's.
const POLL_PACKETS: f64 = 128.0;
/// A thread that is not eligible when the scheduler chooses, as one that has just run is not, waits for the other's tick. So
/// the scheduler is made to choose this often between two looks...
const TURNS: u32 = 4;
/// ...if so many packets come meanwhile: three quarters of the smallest usual ring, a veth's.
const TURNS_FROM: f64 = 192.0;
/// A flood is told from other channels where it costs this part of the CPU.
const FLOOD_FROM: f64 = 0.02;
/// The heaviest that a batch thread is made: more keeps its receivers waiting until their queues are full. The heavier it
/// is, the more it discards that they had time for.
const HEAVIEST_BATCH: f64 = -10.0;
/// How much lighter it becomes as long as its ring does not overflow: as if it were over its share by so much.
const RELIEF: f64 = 0.05;
/// Nice steps per period and unit of share that input is off: the average lags by a period, and a faster correction
/// swings from one end to the other.
const STEPS_PER_PERIOD: f64 = 40.0;

/// What happened on a NAPI thread's CPU since the last look. `waits` and `over` are told while the law sleeps, the times
/// while the scheduler is watched.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// How long that is.
    pub elapsed: Nanos,
    /// CPU time of the thread.
    pub ran: Nanos,
    /// Whether it waited for longer than [`Settings::timeout`] a turn, or for so long that its ring may have overflowed.
    pub waits: bool,
    /// Whether it waited for the CPU though it ran for more than its share, or though its ring was full again and again.
    pub over: bool,
    /// Whether the kernel has refused a packet for a full queue, or a gate has discarded one.
    pub alarm: bool,
    /// Of `ran`, for packets that were discarded.
    pub wasted: Nanos,
    /// Of `ran`, while a stranger, a task that consumes nothing of what input brings, was runnable on the same CPU.
    pub taken: Nanos,
    /// Waited while a stranger ran.
    pub held: Nanos,
    /// Strangers' own time.
    pub strangers: Nanos,
    /// Time of tasks that hardly weigh anything. They are entitled to nothing, and a batch thread waits for them.
    pub light: Nanos,
    /// Receivers' own time, where one or another has been runnable for long. A batch thread waits for them, too.
    pub busy: Nanos,
    /// Whether the ring may have overflowed.
    pub overran: bool,
    /// Packets that it took from the ring.
    pub packets: u64,
    /// Of these, discarded.
    pub discarded: u64,
    /// Whether packets of one channel were admitted beside another's that were discarded, or the ring may have
    /// overflowed with packets of several.
    pub beside: bool,
    /// Whether it joins another input of the same CPU, which tells channels apart.
    pub joins: bool,
}

impl Observation {
    /// Whether no packets have come: the thread has neither run nor waited for strangers.
    fn silent(&self) -> bool {
        self.ran + self.held == Nanos::ZERO
    }

    /// What tasks that are no receivers had of the CPU, or were kept from.
    fn others(&self) -> Nanos {
        self.strangers + self.taken + self.light
    }
}

/// What the law is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Regime {
    /// Nothing is wrong.
    #[default]
    Asleep,
    /// Receivers have less than they could have.
    Isolating,
    /// Other tasks want the CPU, too.
    Shared,
}

/// What is to be done until the next look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Action {
    /// Why.
    pub regime: Regime,
    /// The thread's weight.
    pub weight: Nice,
    /// Whether it is `SCHED_BATCH`, which preempts nobody. Else it is `SCHED_OTHER`, with the shortest slice.
    pub batch: bool,
    /// The time between two polls, if not the next packet is to start one.
    pub poll_every: Option<Nanos>,
    /// Whether input is over its share, which no queue tells: gates are to try whether there is something to discard.
    pub over_share: bool,
    /// Whether the scheduler is to be watched.
    pub watch: bool,
    /// When to look again, if nothing rings before; `None`: not until then.
    pub look_in: Option<Nanos>,
    /// How often whoever looks is to wake until then: while he runs, the scheduler has to choose again.
    pub turns: u32,
}

/// The law's state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Governor {
    nice: f64,
    /// The share of the CPU that input takes from strangers, or that goes to packets that are discarded if that is more:
    /// averaged over the period.
    used: f64,
    /// Since something was last wrong.
    calm_for: Nanos,
    /// The share of the CPU that others have, or are kept from, while input runs: averaged over [`CROWDED_OVER`].
    others: f64,
    /// The share of the time in which receivers have work left of earlier packets: rises as fast, falls in [`REST`].
    busy: f64,
    /// Polls that the packets of a millisecond need, averaged over [`CROWDED_OVER`].
    polls: f64,
    /// Since another channel was last seen beside a flooded one.
    apart_for: Nanos,
    /// For how long the scheduler has been watched, if it is.
    watched_for: Option<Nanos>,
}

impl Default for Governor {
    fn default() -> Self {
        Self {
            nice: f64::from(Nice::NORMAL.0),
            used: 0.0,
            calm_for: REST,
            others: 0.0,
            busy: 0.0,
            polls: 0.0,
            apart_for: REST,
            watched_for: None,
        }
    }
}

impl Governor {
    /// What to do after what was seen.
    #[must_use]
    pub fn decide(mut self, settings: &Settings, seen: &Observation) -> (Self, Action) {
        let over_share = self.remember(settings, seen);
        let regime = self.regime();
        let apart = self.separates(settings, seen);
        let alone = regime == Regime::Isolating && !apart;
        self.nice = match regime {
            Regime::Asleep => f64::from(Nice::NORMAL.0),
            Regime::Isolating | Regime::Shared => self.next_nice(settings, regime, apart, seen),
        };
        // To its receivers, once they are known: their queues were full.
        let yields = alone && self.discards() && self.knows_receivers();
        self.watched_for = self.next_watch(settings, regime, seen);
        let look_in = match regime {
            Regime::Asleep => self.watched_for.map(|_| WARM_UP),
            Regime::Shared if !seen.silent() => Some(LOOK_AWAKE),
            Regime::Isolating | Regime::Shared => Some(LOOK_ALONE),
        };
        let fills = seen.packets as f64 * LOOK_AWAKE.share_of(seen.elapsed) > TURNS_FROM;
        let action = Action {
            regime,
            weight: if yields { Nice::LIGHTEST } else { Nice::nearest(self.nice) },
            batch: regime != Regime::Shared,
            poll_every: (regime == Regime::Shared).then(|| self.interval()),
            over_share,
            watch: self.watched_for.is_some(),
            look_in,
            turns: if regime == Regime::Shared && fills { TURNS } else { 1 },
        };
        (self, action)
    }

    /// What of input's share it uses: for [`Settings::beside`].
    pub fn used(&self) -> f64 {
        self.used
    }

    /// Whether it tells a flood of its own from other channels, by what itself has seen. Other inputs of the CPU, which
    /// would starve at a lighter weight, are to join it.
    pub fn tells_apart(&self) -> bool {
        self.discards() && self.used > FLOOD_FROM && self.apart_for < REMEMBERED
    }

    /// Whether input is over its share.
    fn remember(&mut self, settings: &Settings, seen: &Observation) -> bool {
        // Exponential averages, which forget with a time constant.
        let average = |old: f64, now: f64, over: Nanos| {
            let kept = (-seen.elapsed.share_of(over)).exp();
            kept * old + (1.0 - kept) * now
        };
        let share = |part: Nanos| part.share_of(seen.elapsed);
        let used = share(seen.taken.max(seen.wasted));
        self.used = average(self.used, used, averaged_over(settings));
        let since = |before: Nanos, again: bool| {
            if again { Nanos::ZERO } else { before + seen.elapsed }
        };
        let over = self.used > settings.user_share.rest();
        let known = self.knows_receivers();
        self.apart_for = since(self.apart_for, seen.beside);
        let busy =
            if known && settings.prefer == Prefer::Separation { seen.busy } else { Nanos::ZERO };
        self.calm_for = since(self.calm_for, seen.wasted > Nanos::ZERO);
        let overran = seen.overran && share(busy) > CROWDED_FROM;
        if seen.alarm || seen.over || over || overran {
            self.calm_for = self.calm_for.min(REST - TRIAL);
        }
        if seen.silent() {
            // Whoever runs while no packets come is nobody's affair; but a sender that pauses is to find a thread that
            // still preempts.
            self.others = average(self.others, 0.0, Nanos(REST.0 / 2));
        } else {
            // Where their queues are full they lose nothing by a ring that overflows, but another channel does.
            let lose =
                if self.discards() { self.separates(settings, seen) } else { self.calm_for < REST };
            let busy = if lose { busy } else { Nanos::ZERO };
            let others = if known { seen.others() } else { Nanos::ZERO };
            self.others = average(self.others, share(others + busy), CROWDED_OVER);
        }
        let busy = if known { share(seen.busy) } else { 0.0 };
        self.busy = average(self.busy, busy, if busy > self.busy { CROWDED_OVER } else { REST });
        let admitted = seen.packets.saturating_sub(seen.discarded) as f64;
        let beside_others = share(seen.others()) > CROWDED_FROM;
        let few = if beside_others { admitted / POLL_ADMITTED } else { 0.0 };
        let polls = few.max(seen.packets as f64 / POLL_PACKETS);
        self.polls = average(self.polls, polls * share(Nanos::from_millis(1)), CROWDED_OVER);
        over
    }

    /// Whether another channel is to be told from a flooded one, here or by an input beside.
    fn separates(&self, settings: &Settings, seen: &Observation) -> bool {
        settings.prefer == Prefer::Separation && (self.apart_for < REMEMBERED || seen.joins)
    }

    /// Whether packets have been discarded here of late, and not only, maybe, elsewhere.
    fn discards(&self) -> bool {
        self.calm_for < REST - TRIAL
    }

    /// Whether the scheduler has been watched for long enough to tell receivers from strangers.
    fn knows_receivers(&self) -> bool {
        self.watched_for.is_some_and(|watched| watched >= WARM_UP)
    }

    fn regime(&self) -> Regime {
        if self.others > CROWDED_FROM {
            Regime::Shared
        } else if self.calm_for < REST {
            Regime::Isolating
        } else {
            Regime::Asleep
        }
    }

    /// While something is wrong; and where input waits for long, until it is known for whom: the next packets show it,
    /// if some come within [`REST`].
    fn next_watch(&self, settings: &Settings, regime: Regime, seen: &Observation) -> Option<Nanos> {
        let awake = settings.awake || regime != Regime::Asleep;
        match self.watched_for {
            None => (awake || seen.waits).then_some(Nanos::ZERO),
            Some(before) => {
                // One look more, once receivers are known.
                let learning = seen.silent() && before < REST;
                (awake || before < WARM_UP || learning).then_some(before + seen.elapsed)
            }
        }
    }

    /// Each poll interrupts whoever runs, and should bring no more than a queue has room for; how much that is shows where
    /// it was too much. Receivers that have work left lose nothing by the longest, and save switches; those that have
    /// done all wait for packets, and whoever sends these for them.
    fn interval(&self) -> Nanos {
        let fits = |every: &Nanos| self.polls * every.as_millis() <= 1.0;
        let [longest, shorter, .., shortest] = POLL_INTERVALS;
        if self.calm_for >= REST {
            return if self.busy > CROWDED_FROM { longest } else { shorter };
        }
        POLL_INTERVALS.into_iter().find(fits).unwrap_or(shortest)
    }

    fn next_nice(
        &self,
        settings: &Settings,
        regime: Regime,
        apart: bool,
        seen: &Observation,
    ) -> f64 {
        let (heaviest, relieved) = match regime {
            // Packets that are discarded for want of CPU time are not saved by waiting for it longer.
            Regime::Shared => (f64::from(Nice::HEAVIEST.0), false),
            // Its receivers have a better use for the time that the ring does not need.
            _ if apart => (HEAVIEST_BATCH, !seen.overran),
            _ => (f64::from(Nice::NORMAL.0), false),
        };
        let over = self.used - settings.user_share.rest();
        let off = if relieved { over.max(RELIEF) } else { over };
        let step = STEPS_PER_PERIOD * off * seen.elapsed.share_of(averaged_over(settings));
        (self.nice + step).clamp(heaviest, f64::from(Nice::LIGHTEST.0))
    }
}

/// The time constant of what input uses. Over less than the time between two looks it would follow whose slice a look
/// happened to see.
fn averaged_over(settings: &Settings) -> Nanos {
    settings.period.max(LOOK_ALONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = Nanos::from_millis(1);

    /// The same is seen in so many looks.
    fn shown(governor: Governor, looks: u32, seen: &Observation) -> (Governor, Action) {
        let settings = Settings::default();
        let first = governor.decide(&settings, seen);
        (1..looks).fold(first, |(governor, _), _| governor.decide(&settings, seen))
    }

    fn after(looks: u32, seen: &Observation) -> Action {
        shown(Governor::default(), looks, seen).1
    }

    fn is(action: Action, regime: Regime, nice: i32, batch: bool) {
        let is = (action.regime, action.weight.0, action.batch);
        assert_eq!(is, (regime, nice, batch));
    }

    #[test]
    fn busy_input_sleeps_while_nothing_is_wrong() {
        let ran = Observation { elapsed: MS, ran: MS, ..Default::default() };
        let action = after(9, &ran);
        is(action, Regime::Asleep, 0, true);
        assert_eq!((action.look_in, action.watch), (None, false));
    }

    #[test]
    fn an_alarm_wakes_it_at_once_and_a_second_of_calm_ends_it() {
        let alarm = Observation { elapsed: MS, alarm: true, ..Default::default() };
        let (governor, action) = shown(Governor::default(), 1, &alarm);
        is(action, Regime::Isolating, 0, true);
        let calm = Observation { elapsed: MS, ..Default::default() };
        // The queue may be one that another thread fills.
        is(shown(governor, 199, &calm).1, Regime::Isolating, 0, true);
        is(shown(governor, 201, &calm).1, Regime::Asleep, 0, true);
        let discards = Observation { wasted: Nanos(1000), ..calm };
        let (governor, action) = shown(governor, 1, &discards);
        is(action, Regime::Isolating, 0, true);
        // To whom it yields is known then.
        is(shown(governor, 30, &calm).1, Regime::Isolating, 19, true);
        let (governor, action) = shown(governor, 999, &calm);
        is(action, Regime::Isolating, 0, true);
        is(shown(governor, 2, &calm).1, Regime::Asleep, 0, true);
    }

    #[test]
    fn who_is_flooded_alone_gets_the_cpu_and_beside_another_channel_input_does() {
        let flooded =
            Observation { elapsed: MS, ran: MS, wasted: Nanos(300_000), ..Default::default() };
        is(after(40, &flooded), Regime::Isolating, 19, true);
        let beside = Observation { beside: true, overran: true, ..flooded };
        is(after(40, &beside), Regime::Isolating, -10, true);
        // As long as the ring does not overflow, receivers need the time more.
        let fits = Observation { overran: false, ..beside };
        is(after(40, &fits), Regime::Isolating, 8, true);
        is(after(99, &fits), Regime::Isolating, 19, true);
        // But no more than its share.
        is(after(60, &Observation { wasted: MS, ..beside }), Regime::Isolating, 19, true);
        let settings = Settings { prefer: Prefer::Throughput, ..Settings::default() };
        let (_, action) = (0..40)
            .fold(Governor::default().decide(&settings, &beside), |last, _| {
                last.0.decide(&settings, &beside)
            });
        assert_eq!(action.weight, Nice::LIGHTEST);
    }

    /// Else two inputs of a CPU would keep each other at it for as long as the flood lasts.
    #[test]
    fn who_only_joins_another_input_does_as_it_does_but_is_joined_by_none() {
        let flooded =
            Observation { elapsed: MS, ran: MS, wasted: Nanos(300_000), ..Default::default() };
        let joins = Observation { joins: true, overran: true, ..flooded };
        let (governor, action) = shown(Governor::default(), 40, &joins);
        is(action, Regime::Isolating, -10, true);
        assert!(!governor.tells_apart());
        assert!(shown(governor, 1, &Observation { beside: true, ..joins }).0.tells_apart());
    }

    #[test]
    fn beside_a_task_that_computes_it_preempts_within_its_share() {
        let alarm = Observation { elapsed: MS, alarm: true, ..Default::default() };
        let shared = Observation { ran: MS, strangers: MS, ..alarm };
        // Who is a receiver is not known at once.
        let (governor, action) = shown(Governor::default(), 20, &shared);
        is(action, Regime::Isolating, 0, true);
        let (governor, action) = shown(governor, 9, &shared);
        is(action, Regime::Shared, -14, false);
        assert_eq!((action.poll_every, action.turns), (Some(POLL_INTERVALS[0]), 1));
        // Where packets are lost, no more come with a poll than a queue holds.
        let fast = Observation { packets: 600, ..shared };
        let (_, action) = shown(governor, 40, &fast);
        assert_eq!((action.poll_every, action.turns), (Some(POLL_INTERVALS[2]), TURNS));
        // Those that are discarded need no room.
        let unread = Observation { discarded: 550, ..fast };
        assert_eq!(shown(governor, 40, &unread).1.poll_every, Some(POLL_INTERVALS[0]));
        let over = Observation { taken: Nanos(900_000), alarm: false, ..shared };
        let (governor, action) = shown(governor, 60, &over);
        is(action, Regime::Shared, 19, false);
        // Once that task pauses, nobody is to be yielded to.
        let alone = Observation { elapsed: MS, ran: MS, ..Default::default() };
        is(shown(governor, 100, &alone).1, Regime::Isolating, 0, true);
    }

    #[test]
    fn receivers_that_keep_a_ring_waiting_are_preempted_too() {
        let fast = Observation { packets: 600, discarded: 550, ..Default::default() };
        let busy = Observation { elapsed: MS, ran: MS, busy: MS, ..fast };
        let settings = Settings { awake: true, ..Settings::default() };
        let looks = |governor: Governor, looks: u32, settings: &Settings, seen: &Observation| {
            let first = governor.decide(settings, seen);
            (1..looks).fold(first, |(governor, _), _| governor.decide(settings, seen))
        };
        // Nothing is lost by it.
        let (governor, action) = looks(Governor::default(), 40, &settings, &busy);
        is(action, Regime::Asleep, 0, true);
        let overran = Observation { overran: true, ..busy };
        let (_, action) = looks(governor, 20, &settings, &overran);
        is(action, Regime::Shared, -20, false);
        // Their queues are full, so that little of it is admitted.
        assert_eq!(action.poll_every, Some(POLL_INTERVALS[0]));
        let discards = Observation { wasted: Nanos(100_000), beside: true, ..busy };
        is(looks(governor, 20, &settings, &discards).1, Regime::Shared, -20, false);
        // Alone it yields to them: their queues are full, and more is not to be had.
        let alone = Observation { beside: false, overran: true, ..discards };
        is(looks(governor, 200, &settings, &alone).1, Regime::Isolating, 19, true);
        // A stream's packets are admitted: a poll brings them as many as the ring has room for.
        let stream = Observation { discarded: 0, ..overran };
        let (governor, action) = looks(governor, 40, &settings, &stream);
        assert_eq!(action.poll_every, Some(POLL_INTERVALS[0]));
        // Beside a stranger, no more than a queue holds.
        let beside = Observation { strangers: MS, ..stream };
        assert_eq!(looks(governor, 40, &settings, &beside).1.poll_every, Some(POLL_INTERVALS[2]));
        // They are short of CPU time, and that is all.
        let rests = Observation { busy: Nanos(50_000), beside: false, ..discards };
        is(looks(governor, 40, &settings, &rests).1, Regime::Isolating, 19, true);
        let settings = Settings { prefer: Prefer::Throughput, ..settings };
        is(looks(governor, 40, &settings, &discards).1, Regime::Isolating, 19, true);
    }

    #[test]
    fn beside_a_task_that_computes_a_pause_of_the_sender_ends_nothing() {
        let shared = Observation { elapsed: MS, ran: MS, strangers: MS, ..Default::default() };
        let awake = Observation { alarm: true, ..shared };
        let (governor, _) = shown(Governor::default(), 40, &awake);
        let pause = Observation { elapsed: MS, strangers: MS, ..Default::default() };
        let (paused, action) = shown(governor, 999, &pause);
        is(action, Regime::Shared, -20, false);
        assert_eq!(action.look_in, Some(LOOK_ALONE));
        assert_eq!(shown(paused, 1500, &pause).1.regime, Regime::Asleep);
        // Packets that wait for the task's turn to end have come.
        let waiting = Observation { held: MS, ..pause };
        is(shown(governor, 5000, &waiting).1, Regime::Shared, -20, false);
    }

    #[test]
    fn asleep_it_watches_until_a_packet_shows_for_whom_it_waits() {
        let waits = Observation { elapsed: REST, waits: true, ..Default::default() };
        let pause = Observation { elapsed: WARM_UP, strangers: WARM_UP, ..Default::default() };
        let (watching, _) = shown(Governor::default(), 1, &waits);
        let (watching, action) = shown(watching, 20, &pause);
        is(action, Regime::Asleep, 0, true);
        assert_eq!((action.look_in, action.watch), (Some(WARM_UP), true));
        let packet = Observation { ran: MS, ..pause };
        is(shown(watching, 1, &packet).1, Regime::Shared, -20, false);
        // But not for ever.
        let (_, action) = shown(watching, 40, &pause);
        assert_eq!((action.look_in, action.watch), (None, false));
    }

    #[test]
    fn asleep_it_finds_out_for_whom_it_waits_and_what_is_over_the_share() {
        // Threads do not wake to the nanosecond.
        let late = MS * 20 + Nanos(90_000);
        let waits = Observation { elapsed: late, waits: true, ..Default::default() };
        let (watching, action) = shown(Governor::default(), 1, &waits);
        is(action, Regime::Asleep, 0, true);
        assert_eq!((action.look_in, action.watch), (Some(WARM_UP), true));
        // For its receivers: it goes on sleeping.
        let behind = Observation { elapsed: late, ran: MS, ..Default::default() };
        let (_, action) = shown(watching, 1, &behind);
        assert_eq!((action.look_in, action.watch), (Some(WARM_UP), true));
        let (_, action) = shown(watching, 2, &behind);
        is(action, Regime::Asleep, 0, true);
        assert_eq!((action.look_in, action.watch), (None, false));
        // For others, of whom nothing is believed at first.
        let others = Observation { strangers: MS * 15, ..behind };
        is(shown(watching, 1, &others).1, Regime::Asleep, 0, true);
        let (_, action) = shown(watching, 2, &others);
        is(action, Regime::Shared, -20, false);
        // Its receivers wait for packets...
        assert_eq!(action.poll_every, Some(POLL_INTERVALS[1]));
        // ...or packets for them, which is remembered.
        let behind = Observation { busy: MS * 15, ..others };
        let (governor, action) = shown(watching, 2, &behind);
        assert_eq!(action.poll_every, Some(POLL_INTERVALS[0]));
        assert_eq!(shown(governor, 20, &others).1.poll_every, Some(POLL_INTERVALS[0]));
        assert_eq!(shown(governor, 200, &others).1.poll_every, Some(POLL_INTERVALS[1]));
        // A batch thread waits for those, too, that are entitled to nothing.
        let light = Observation { light: MS * 15, ..behind };
        is(shown(watching, 2, &light).1, Regime::Shared, -20, false);
        let over = Observation { elapsed: MS * 20, over: true, ..Default::default() };
        let (governor, action) = shown(Governor::default(), 1, &over);
        is(action, Regime::Isolating, 0, true);
        assert!(action.watch && !action.over_share);
        // Nobody else wants the CPU: that was all.
        let calm = Observation { elapsed: MS, ran: MS, ..Default::default() };
        is(shown(governor, 199, &calm).1, Regime::Isolating, 0, true);
        is(shown(governor, 201, &calm).1, Regime::Asleep, 0, true);
        // Another task does.
        let taken = Observation { strangers: MS, taken: MS, ..calm };
        assert!(shown(governor, 40, &taken).1.over_share);
    }
}
