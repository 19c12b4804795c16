//! The control law for one NAPI thread: how much of its CPU network input may use, and when.
//!
//! | regime | entered when | left when | policy | nice |
//! |---|---|---|---|---|
//! | asleep | nothing has been wrong, and nobody crowded, for [`REST`] | | `SCHED_BATCH` | 0 |
//! | isolating | a queue that feeds a receiver was full, or input is over its share | nothing of it for [`REST`] | `SCHED_BATCH` | 0 to 19; down to -10 beside another channel |
//! | shared | other tasks than receivers want the CPU, or input waits for long | neither for [`REMEMBERED`], for [`REST`] while nothing is wrong | `SCHED_OTHER` | the same, but down to -20 |
//!
//! A batch thread interrupts nobody when it wakes, and is not interrupted by the receivers that it wakes: NAPI empties
//! the ring, then the receiver empties its queue, without a timer and with two switches. Beside a task that computes it
//! would wait for the end of that task's slice each time; there it is an ordinary thread.
//!
//! One controller moves the weight in the other two: lighter while input takes more than its share of the CPU from
//! other tasks, or spends more than its part on packets that are discarded; heavier while it spends less. That part is
//! the share while another channel has to be told from the flooded one (Druschel & Banga, *Lazy Receiver Processing*,
//! section 2.2), and next to nothing where there is no other: then a full queue says that the receiver lacks CPU time
//! (Mogul & Ramakrishnan, *Eliminating Receive Livelock*, section 6.6). The share is their section 7's.

use crate::settings::{Prefer, Settings};
use crate::units::{Nanos, Weight};

/// How long it is calm before input sleeps: the law's one hysteresis.
pub const REST: Nanos = Nanos::from_millis(1000);
/// How long another channel, or a competing task, is believed in after it was last seen.
const REMEMBERED: Nanos = Nanos::from_millis(100);
/// The time between two looks while something is wrong.
pub const LOOK_AWAKE: Nanos = Nanos::from_millis(2);
/// While it sleeps, and packets come.
pub const LOOK_ASLEEP: Nanos = Nanos::from_millis(20);
/// While it sleeps, and none do.
pub const LOOK_IDLE: Nanos = Nanos::from_millis(100);
/// Other tasks want the CPU if they have, or are kept from, this part of it.
const CROWDED_FROM: f64 = 0.1;
/// Input's share is worth looking at where it waits for this part of the time: others want the CPU.
const CONTENDED_FROM: f64 = 0.05;
/// What input may spend on discarding where there is nothing to be told apart.
const FEEDBACK: f64 = 0.02;
/// The heaviest that a batch thread is made: more keeps its receivers waiting until their queues are full.
const HEAVIEST_BATCH: f64 = -10.0;
/// Nice steps per period and unit of share that input is off: the average lags by a period, and a faster correction
/// swings from one end to the other.
const STEPS_PER_PERIOD: f64 = 40.0;

/// What happened on a NAPI thread's CPU since the last look. While it sleeps nobody watches the scheduler: then only
/// the first four, and `alarm`, are more than 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// How long that is.
    pub elapsed: Nanos,
    /// CPU time of the thread.
    pub ran: Nanos,
    /// How long it was runnable and did not run.
    pub waited: Nanos,
    /// How often it was given the CPU.
    pub turns: u64,
    /// Whether the kernel has refused a packet for a full queue, or a gate has discarded one.
    pub alarm: bool,
    /// Of `ran`, for packets that were discarded.
    pub wasted: Nanos,
    /// Of `ran`, while a stranger, a task that consumes nothing of what input brings, was runnable on the same CPU.
    pub taken: Nanos,
    /// Strangers' own time.
    pub strangers: Nanos,
    /// Whether packets of one channel were admitted beside another's that were discarded, or the ring may have
    /// overflowed with packets of several, or another input of the same CPU does tell channels apart.
    pub beside: bool,
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
    pub weight: Weight,
    /// Whether it is `SCHED_BATCH`, and not `SCHED_OTHER`.
    pub batch: bool,
    /// Whether input is over its share, which no queue tells: gates are to be awake.
    pub over_share: bool,
    /// When to look again, if nothing rings before.
    pub look_in: Nanos,
}

/// The law's state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Governor {
    regime: Regime,
    nice: f64,
    /// The share of the CPU that input takes from strangers, averaged over the period.
    taken: f64,
    /// The same of what goes to packets that are discarded.
    wasted: f64,
    /// Since something was last wrong.
    calm_for: Nanos,
    /// Since others last wanted the CPU.
    alone_for: Nanos,
    /// Since another channel was last seen beside a flooded one.
    apart_for: Nanos,
}

impl Default for Governor {
    fn default() -> Self {
        Self {
            regime: Regime::Asleep,
            nice: f64::from(Weight::NORMAL.nice()),
            taken: 0.0,
            wasted: 0.0,
            calm_for: REST,
            alone_for: REST,
            apart_for: REST,
        }
    }
}

impl Governor {
    /// What to do after what was seen.
    #[must_use]
    pub fn decide(mut self, settings: &Settings, seen: &Observation) -> (Self, Action) {
        let over_share = self.remember(settings, seen);
        self.regime = self.next_regime();
        self.nice = match self.regime {
            Regime::Asleep => f64::from(Weight::NORMAL.nice()),
            Regime::Isolating | Regime::Shared => self.next_nice(settings, seen.elapsed),
        };
        let look_in = match self.regime {
            Regime::Asleep if seen.ran == Nanos::ZERO => LOOK_IDLE,
            Regime::Asleep => LOOK_ASLEEP,
            Regime::Isolating | Regime::Shared => LOOK_AWAKE,
        };
        let action = Action {
            regime: self.regime,
            weight: Weight::nearest(self.nice),
            batch: self.regime != Regime::Shared,
            over_share,
            look_in,
        };
        (self, action)
    }

    /// What of input's share it uses: for [`Settings::beside`].
    pub fn used(&self) -> f64 {
        self.taken.max(self.wasted)
    }

    /// Whether it tells a flood of its own from other channels. Other inputs of the CPU, which would starve at a
    /// lighter weight, are to join it.
    pub fn tells_apart(&self) -> bool {
        self.wasted > FEEDBACK && self.apart_for < REMEMBERED
    }

    /// Whether input is over its share.
    fn remember(&mut self, settings: &Settings, seen: &Observation) -> bool {
        // An exponential average that forgets with the time constant of one period.
        let kept = (-seen.elapsed.share_of(settings.period)).exp();
        let average = |old: f64, now: Nanos| kept * old + (1.0 - kept) * now.share_of(seen.elapsed);
        self.taken = average(self.taken, seen.taken);
        self.wasted = average(self.wasted, seen.wasted);
        let since = |before: Nanos, again: bool| {
            if again { Nanos::ZERO } else { before + seen.elapsed }
        };
        // Asleep, nobody knows whom input takes time from, but it would not wait for itself.
        let unwatched = self.regime == Regime::Asleep
            && seen.waited.share_of(seen.elapsed) > CONTENDED_FROM
            && seen.ran.share_of(seen.elapsed) > settings.user_share.rest();
        let over = unwatched || self.used() > settings.user_share.rest();
        self.calm_for = since(self.calm_for, seen.alarm || seen.wasted > Nanos::ZERO || over);
        // Whoever runs while no packets come is nobody's affair.
        let comes = seen.ran + seen.waited > Nanos::ZERO;
        let wanted = (seen.strangers + seen.taken).share_of(seen.elapsed) > CROWDED_FROM;
        // Awake, it waits because it is light, and the scheduler is watched.
        let waits = self.regime == Regime::Asleep
            && seen.waited.0 > settings.timeout.0.saturating_mul(seen.turns.max(1));
        self.alone_for = since(self.alone_for, comes && wanted || waits);
        self.apart_for = since(self.apart_for, seen.beside);
        over
    }

    fn next_regime(&self) -> Regime {
        if self.alone_for < REMEMBERED {
            Regime::Shared
        } else if self.calm_for < REST {
            Regime::Isolating
        } else if self.alone_for < REST {
            Regime::Shared
        } else {
            Regime::Asleep
        }
    }

    fn next_nice(&self, settings: &Settings, elapsed: Nanos) -> f64 {
        let share = settings.user_share.rest();
        let apart = settings.prefer == Prefer::Separation && self.apart_for < REMEMBERED;
        let (part, heaviest) = match (apart, self.regime) {
            // Packets that are discarded for want of CPU time are not saved by waiting for it longer.
            (false, Regime::Shared) => (share, f64::from(Weight::NORMAL.nice())),
            (false, _) => (FEEDBACK.min(share), f64::from(Weight::NORMAL.nice())),
            (true, Regime::Shared) => (share, f64::from(Weight::HEAVIEST.nice())),
            (true, _) => (share, HEAVIEST_BATCH),
        };
        let over = (self.wasted - part).max(self.taken - share);
        // A shorter period than the usual one lags less than the looks do.
        let period = settings.period.max(Settings::default().period);
        let step = STEPS_PER_PERIOD * over * elapsed.share_of(period);
        (self.nice + step).clamp(heaviest, f64::from(Weight::LIGHTEST.nice()))
    }
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
        let is = (action.regime, action.weight.nice(), action.batch);
        assert_eq!(is, (regime, nice, batch));
    }

    #[test]
    fn busy_input_sleeps_while_nothing_is_wrong() {
        let ran = Observation { elapsed: MS, ran: MS, ..Default::default() };
        is(after(9, &ran), Regime::Asleep, 0, true);
        assert_eq!(after(9, &ran).look_in, LOOK_ASLEEP);
        let idle = Observation { elapsed: MS, ..Default::default() };
        assert_eq!(after(9, &idle).look_in, LOOK_IDLE);
    }

    #[test]
    fn an_alarm_wakes_it_at_once_and_a_second_of_calm_ends_it() {
        let alarm = Observation { elapsed: MS, alarm: true, ..Default::default() };
        let (governor, action) = shown(Governor::default(), 1, &alarm);
        is(action, Regime::Isolating, 0, true);
        let calm = Observation { elapsed: MS, ..Default::default() };
        let (governor, action) = shown(governor, 999, &calm);
        assert_eq!(action.regime, Regime::Isolating);
        is(shown(governor, 2, &calm).1, Regime::Asleep, 0, true);
    }

    #[test]
    fn who_is_flooded_alone_gets_the_cpu_and_beside_another_channel_input_does() {
        let flooded =
            Observation { elapsed: MS, ran: MS, wasted: Nanos(300_000), ..Default::default() };
        is(after(40, &flooded), Regime::Isolating, 19, true);
        let beside = Observation { beside: true, ..flooded };
        is(after(40, &beside), Regime::Isolating, -10, true);
        // But no more than its share.
        is(after(60, &Observation { wasted: MS, ..beside }), Regime::Isolating, 19, true);
        let settings = Settings { prefer: Prefer::Throughput, ..Settings::default() };
        let (_, action) = (0..40)
            .fold(Governor::default().decide(&settings, &beside), |last, _| {
                last.0.decide(&settings, &beside)
            });
        assert_eq!(action.weight, Weight::LIGHTEST);
    }

    #[test]
    fn beside_a_task_that_computes_it_is_an_ordinary_thread_within_its_share() {
        let shared = Observation { elapsed: MS, ran: MS, strangers: MS, ..Default::default() };
        is(after(9, &shared), Regime::Shared, 0, false);
        let over = Observation { taken: Nanos(900_000), ..shared };
        is(after(60, &over), Regime::Shared, 19, false);
    }

    #[test]
    fn asleep_it_notices_that_it_waits_or_takes_too_much() {
        let waits = Observation {
            elapsed: MS * 20,
            ran: MS,
            waited: MS * 6,
            turns: 2,
            ..Default::default()
        };
        is(after(1, &waits), Regime::Shared, 0, false);
        is(after(1, &Observation { turns: 12, ..waits }), Regime::Asleep, 0, true);
        let much = Observation { ran: MS * 12, turns: 1000, ..waits };
        is(after(1, &much), Regime::Isolating, 0, true);
    }
}
