//! The control law for one NAPI thread: how much of its CPU network input may use, and when.
//!
//! What moves the weight is cost, not fullness. Three kinds of time are told apart on the thread's CPU:
//!
//! - **wasted**: input ran for packets that were discarded. Somebody's queue is full, so what its
//!   consumer lacks is CPU, and input is to yield it.
//! - **stalled**: input waits while a stranger (a process that consumes none of its packets) runs and
//!   every consumer sleeps, its queue empty, or has waited for longer than the timeout. The network
//!   starves, and input is to have more.
//! - **taken**: input ran while a stranger wanted the CPU. This, or the waste, over input's share
//!   makes it yield whatever else is true.
//!
//! The sources are Mogul & Ramakrishnan, *Eliminating Receive Livelock*, sections 6.6 (feedback, with
//! a timeout) and 7 (the user's share), and Druschel & Banga, *Lazy Receiver Processing*, section 2.2
//! (traffic separation).

use crate::settings::{Prefer, Settings};
use crate::units::{Nanos, Weight};

/// The shortest time between two looks. A look costs some 15 us, and each makes the scheduler choose
/// again, which is what it is for while a stranger holds the CPU: EEVDF lets a running process keep the
/// CPU until its slice ends, and looks at that only with the tick (4 ms at 250 Hz).
pub const LOOK_SOONEST: Nanos = Nanos::from_micros(400);
/// The time between two looks under load.
pub const LOOK_USUALLY: Nanos = Nanos::from_millis(2);
/// How much later the next look is after one that found nobody waiting.
const LOOK_LATER: Nanos = Nanos::from_micros(100);

/// Input is held if it waits for strangers for more than this share of the time.
const HELD_FROM: f64 = 0.03;

/// How long a stranger or a flood beside other channels is believed in after it was last seen.
const REMEMBERED: Nanos = Nanos::from_millis(20);

/// How long it is remembered that a flood that fills no queue made the ring overflow, where input cannot be courteous.
/// Whether it still does is tried no sooner: it costs a ringful of everybody's packets if so.
const OVERRUN_REMEMBERED: Nanos = Nanos::from_millis(10_000);
/// How long such a flood is believed in.
const SHED_REMEMBERED: Nanos = Nanos::from_millis(100);

/// Input that does not interrupt is late if it waits for more than this share of the time: more than the kernel's own
/// threads take at a time, of [`LATELY`].
const LATE_FROM: f64 = 0.2;
/// Then it interrupts; whether it has to is tried no sooner, as a ringful of everybody's packets is lost if it has.
const LATE_REMEMBERED: Nanos = Nanos::from_millis(10_000);
/// Strangers compute if this share of the CPU is their fair part: they do not sleep soon.
const COMPUTING_FROM: f64 = 0.2;

/// The CPU has time to spare if it is idle for more than this share of the time.
const SPARE_FROM: f64 = 0.1;

/// How long it is remembered that packets were discarded, or input was over its share. Until then the scheduler has its
/// way where input and consumers have their part: shorter turns would only cost them all.
const TROUBLE_REMEMBERED: Nanos = Nanos::from_millis(10_000);
/// They have it where strangers have less than this share of the CPU.
const PART_FROM: f64 = 0.5;
/// The time between two looks meanwhile.
const LOOK_SELDOM: Nanos = Nanos::from_millis(10);

/// Weight, in nice steps, per millisecond and unit of (wasted - stalled) time.
const BALANCE_PER_MS: f64 = 4.0;
/// Weight, in nice steps, per millisecond and unit of share that input is over its own, or under, or that strangers
/// lack of theirs.
const SHARE_PER_MS: f64 = 4.0;
/// Averages of what strangers have, of how late input is, and of idle time forget with this time constant, which is
/// some turns.
const LATELY: Nanos = Nanos::from_millis(20);
/// Strangers lack some of their fair part if it is more than this share of the CPU.
const SHORT_FROM: f64 = 0.02;
/// Discarded packets are a flood if they cost this share of the CPU, or make the ring overflow.
const FLOOD_FROM: f64 = 0.05;
/// Where input begins when it is to tell channels apart: heavier than every usual process.
const SEPARATING_FROM: f64 = -10.0;
/// It begins where it was when it last did, if that was so lately: who keeps a flood small by its weight loses sight of
/// it now and then.
const SEPARATING_REMEMBERED: Nanos = Nanos::from_millis(1000);

/// How long packets wait in the ring while input separates, so that each poll takes more of them. A ring
/// of 256 entries, a veth's, fills in as much at 5 million packets per second, an application's queue
/// of 50 at 1 million.
const WAIT: Nanos = Nanos::from_micros(50);
/// The same while the ring does not overflow, and strangers want the CPU, or no queue is full: each end of waiting is a
/// timer's interrupt and two switches, which whoever runs pays for.
const WAIT_LONGER: Nanos = Nanos::from_micros(200);
/// What happened on a NAPI thread's CPU since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Observation {
    /// How long that is.
    pub elapsed: Nanos,
    /// CPU time of the thread.
    pub ran: Nanos,
    /// Of it, for packets that were discarded.
    pub wasted: Nanos,
    /// Of `ran`, while a stranger was runnable on the same CPU.
    pub taken: Nanos,
    /// How long the thread was runnable while a stranger ran.
    pub held: Nanos,
    /// Of it, with every consumer asleep, or beyond the timeout.
    pub stalled: Nanos,
    /// Strangers' own time.
    pub had: Nanos,
    /// What they would have had of the time in which they were runnable, had all that were runnable had the same.
    pub entitled: Nanos,
    /// Whether a stranger ran or wanted to.
    pub strangers: bool,
    /// Whether as many packets waited in the ring as a small one holds: some may be lost unseen.
    pub overrun: bool,
    /// Whether packets of one channel were admitted beside another's that were discarded.
    pub beside: bool,
    /// Whether the ring may have overflowed with admitted packets of several channels.
    pub mixed: bool,
    /// Whether as many such packets came in a row as a small ring holds. A few full polls less, with waits between
    /// them, are also what clients make that wait for answers.
    pub contended: bool,
    /// How long the CPU was idle.
    pub idle: Nanos,
    /// How long input was kept waiting, by whomever, beyond what a small ring holds.
    pub late: Nanos,
    /// Packets that were taken from the ring.
    pub packets: u64,
    /// Whether most of what was discarded was over its channel's share of the CPU: no queue was full of it.
    pub shed: bool,
    /// Whether packets of this input were admitted while another input of the same CPU told a flood from
    /// other channels ([`Governor::tells_apart`]).
    pub joined: bool,
}

/// How long the thread is to run at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Patience {
    /// As the scheduler has it.
    #[default]
    Usual,
    /// Long turns: what waits has piled up.
    Patient,
    /// Short turns, and soon: the ring must not overflow.
    Prompt,
    /// Waits until whoever runs sleeps, and then takes all that is in the ring.
    Courteous,
}

/// What the governor is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Doing {
    /// Nobody but consumers wants the CPU: input takes what they leave. While there is time to spare it interrupts
    /// nobody, and is not interrupted.
    #[default]
    Yielding,
    /// Input, consumers and strangers share the CPU: as the scheduler has it while nobody lacks anything.
    Balancing,
    /// Input takes up to its share, to tell a flood from other channels, or beside an input that does.
    Separating,
}

/// What is to be done until the next look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Action {
    /// The thread's weight.
    pub weight: Weight,
    /// The length of its turns.
    pub patience: Patience,
    /// How long packets wait in the ring before they are polled; `None`: not at all.
    pub wait: Option<Nanos>,
    /// When to look again; `None`: when there is news.
    pub look_in: Option<Nanos>,
    /// Why.
    pub doing: Doing,
}

/// The law's state.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Governor {
    nice: f64,
    taken: f64,
    wasted: f64,
    /// The share of the CPU that strangers have, of late.
    had: f64,
    /// The same of what is fair.
    entitled: f64,
    /// The share of the time for which the CPU is idle, of late.
    idle: f64,
    /// Since a stranger was last seen.
    alone_for: Nanos,
    /// Since a flood was last seen beside another channel.
    apart_for: Nanos,
    /// Since the ring last overflowed with several channels' packets.
    contended_for: Nanos,
    /// Since the ring may last have overflowed.
    kept_up_for: Nanos,
    /// Since a flood was last seen beside another channel that fills no queue.
    shed_for: Nanos,
    /// Since one last made the ring overflow.
    overrun_for: Nanos,
    /// The share of the time for which input is late, of late.
    late: f64,
    /// Since that was too much.
    late_for: Nanos,
    /// Since packets were discarded, or input was over its share.
    trouble_for: Nanos,
    /// Since another input did that on the same CPU while packets of this one were admitted.
    joined_for: Nanos,
    /// Since input last ran or wanted to.
    quiet_for: Nanos,
    /// Since it last told channels apart.
    separated_for: Nanos,
    /// Its weight then, in nice steps.
    separated_at: f64,
    doing: Doing,
    look_in: Nanos,
}

impl Default for Governor {
    fn default() -> Self {
        Self {
            nice: f64::from(Weight::LIGHTEST.nice()),
            taken: 0.0,
            wasted: 0.0,
            had: 0.0,
            entitled: 0.0,
            idle: 0.0,
            alone_for: REMEMBERED,
            apart_for: REMEMBERED,
            contended_for: REMEMBERED,
            kept_up_for: REMEMBERED,
            shed_for: SHED_REMEMBERED,
            overrun_for: OVERRUN_REMEMBERED,
            late: 0.0,
            late_for: LATE_REMEMBERED,
            trouble_for: TROUBLE_REMEMBERED,
            joined_for: REMEMBERED,
            quiet_for: REMEMBERED,
            separated_for: SEPARATING_REMEMBERED,
            separated_at: SEPARATING_FROM,
            doing: Doing::Yielding,
            look_in: LOOK_USUALLY,
        }
    }
}

impl Governor {
    /// What to do after what was seen.
    #[must_use]
    pub fn decide(mut self, settings: &Settings, seen: &Observation) -> (Self, Action) {
        self.remember(settings, seen);
        let before = self.doing;
        self.doing = self.what_to_do(settings);
        self.nice = match self.doing {
            Doing::Yielding if self.has_spare_time() => f64::from(Weight::NORMAL.nice()),
            Doing::Yielding => f64::from(Weight::LIGHTEST.nice()),
            Doing::Balancing if self.is_well() => f64::from(Weight::NORMAL.nice()),
            Doing::Balancing => {
                // What input was about before says nothing of who is there now.
                let goes_on = before == self.doing && self.quiet_for < REMEMBERED;
                let from = if goes_on { self.nice } else { 0.0 };
                self.balanced(from, settings, seen)
            }
            Doing::Separating => {
                let lately = self.separated_for < SEPARATING_REMEMBERED;
                let from = if lately { self.separated_at } else { SEPARATING_FROM };
                self.at_share(from, settings, seen.elapsed)
            }
        };
        if self.doing == Doing::Separating {
            self.separated_at = self.nice;
        }
        self.look_in = match self.doing {
            Doing::Balancing if self.is_well() => LOOK_SELDOM,
            _ => next_look(self.look_in, seen),
        };
        let action = Action {
            weight: Weight::nearest(self.nice),
            patience: self.patience(seen),
            wait: self.wait(),
            look_in: self.wants_look().then_some(self.look_in),
            doing: self.doing,
        };
        (self, action)
    }

    /// The share of the CPU that goes to packets that are discarded, averaged over the period.
    pub const fn wasted(&self) -> f64 {
        self.wasted
    }

    /// The share of the CPU that input takes from strangers, averaged over the period.
    pub const fn taken(&self) -> f64 {
        self.taken
    }

    /// What of input's share it uses: for [`Settings::beside`].
    pub fn used(&self) -> f64 {
        self.taken.max(self.wasted)
    }

    /// Whether it tells a flood of its own from other channels. Other inputs of the CPU, which would
    /// starve at a lighter weight, are to join it.
    pub fn tells_apart(&self) -> bool {
        self.doing == Doing::Separating && self.is_apart()
    }

    fn remember(&mut self, settings: &Settings, seen: &Observation) {
        // An exponential average that forgets with the time constant of one period.
        let kept = (-seen.elapsed.share_of(settings.period)).exp();
        let average = |old: f64, now: Nanos| kept * old + (1.0 - kept) * now.share_of(seen.elapsed);
        self.taken = average(self.taken, seen.taken);
        self.wasted = average(self.wasted, seen.wasted);
        let kept = (-seen.elapsed.share_of(LATELY)).exp();
        let average = |old: f64, now: Nanos| kept * old + (1.0 - kept) * now.share_of(seen.elapsed);
        self.had = average(self.had, seen.had);
        self.entitled = average(self.entitled, seen.entitled);
        self.late = average(self.late, seen.late);
        self.idle = average(self.idle, seen.idle);
        let since = |before: Nanos, again: bool| {
            if again { Nanos::ZERO } else { before + seen.elapsed }
        };
        self.alone_for = since(self.alone_for, seen.strangers);
        // A trickle that nobody reads costs nothing worth telling apart.
        let flood = seen.overrun || (self.wasted > FLOOD_FROM && !seen.shed);
        self.apart_for = since(self.apart_for, seen.beside && flood);
        let goes_on = self.contended_for < REMEMBERED && seen.mixed;
        self.contended_for = since(self.contended_for, seen.contended || goes_on);
        self.kept_up_for = since(self.kept_up_for, seen.overrun);
        let shed = seen.beside && seen.shed;
        self.shed_for = since(self.shed_for, shed);
        self.overrun_for = since(self.overrun_for, shed && seen.overrun);
        self.late_for = since(self.late_for, self.late > LATE_FROM);
        let trouble = seen.wasted > Nanos::ZERO || self.over_share(settings) > 0.0;
        self.trouble_for = since(self.trouble_for, trouble);
        // Who is flooded itself has no claim to a second share.
        self.joined_for = since(self.joined_for, seen.joined && self.wasted <= FLOOD_FROM);
        self.quiet_for = since(self.quiet_for, seen.ran + seen.held > Nanos::ZERO);
        self.separated_for = since(self.separated_for, self.doing == Doing::Separating);
    }

    fn what_to_do(&self, settings: &Settings) -> Doing {
        let apart = self.is_apart() || self.joined_for < REMEMBERED;
        if settings.prefer == Prefer::Separation && apart {
            Doing::Separating
        } else if self.strangers() {
            Doing::Balancing
        } else {
            Doing::Yielding
        }
    }

    /// Whether there is a flood to be told from other channels.
    fn is_apart(&self) -> bool {
        let overflows = self.is_shed() && self.overrun_for < OVERRUN_REMEMBERED;
        overflows || self.is_courteous() || self.apart_for.min(self.contended_for) < REMEMBERED
    }

    /// Whether it is one that fills no queue.
    fn is_shed(&self) -> bool {
        self.shed_for < SHED_REMEMBERED
    }

    /// How far input is over its share; below zero: how much of it is left.
    fn over_share(&self, settings: &Settings) -> f64 {
        self.used() - settings.user_share.rest()
    }

    /// Lighter by what is wasted, heavier by what is stalled; over the share, lighter.
    fn balanced(&self, from: f64, settings: &Settings, seen: &Observation) -> f64 {
        let waste = seen.wasted.share_of(seen.elapsed) - seen.stalled.share_of(seen.elapsed);
        let step = BALANCE_PER_MS * waste;
        let short = self.entitled - self.had;
        let step = if short > SHORT_FROM { step.max(SHARE_PER_MS * short) } else { step };
        let over = self.over_share(settings);
        let step = if over > 0.0 { step.max(SHARE_PER_MS * over) } else { step };
        within_reach(from + step * seen.elapsed.as_millis())
    }

    /// Heavier until the share is reached, lighter beyond it, the faster the further away.
    fn at_share(&self, from: f64, settings: &Settings, elapsed: Nanos) -> f64 {
        within_reach(from + SHARE_PER_MS * self.over_share(settings) * elapsed.as_millis())
    }

    fn patience(&self, seen: &Observation) -> Patience {
        match self.doing {
            Doing::Separating if self.is_courteous() => Patience::Courteous,
            Doing::Separating => Patience::Prompt,
            Doing::Yielding if self.has_spare_time() => Patience::Courteous,
            Doing::Balancing if self.is_well() => Patience::Usual,
            Doing::Balancing if seen.held > Nanos::ZERO => Patience::Patient,
            Doing::Balancing | Doing::Yielding => Patience::Usual,
        }
    }

    fn wait(&self) -> Option<Nanos> {
        let keeps_up = self.kept_up_for >= REMEMBERED;
        match self.doing {
            Doing::Separating if self.is_courteous() => None,
            Doing::Separating if keeps_up && (self.strangers() || self.is_shed()) => {
                Some(WAIT_LONGER)
            }
            Doing::Separating => Some(WAIT),
            Doing::Balancing | Doing::Yielding => None,
        }
    }

    /// Whether there is such a flood, and everybody who runs is soon done with what he was brought: input has its turn
    /// without interrupting anybody, and no consumer's queue runs dry meanwhile.
    fn is_courteous(&self) -> bool {
        self.is_shed() && self.late_for >= LATE_REMEMBERED && self.entitled < COMPUTING_FROM
    }

    /// Whether consumers get all that they want of the CPU, whenever input runs. While no packets come that is not
    /// known of what will come.
    fn has_spare_time(&self) -> bool {
        self.idle > SPARE_FROM && self.quiet_for < REMEMBERED
    }

    /// Whether the scheduler does well by itself: nothing is lost, and both sides have their part.
    fn is_well(&self) -> bool {
        self.trouble_for >= TROUBLE_REMEMBERED && self.had < PART_FROM
    }

    fn strangers(&self) -> bool {
        self.alone_for < REMEMBERED
    }

    /// Whether anything is to be expected without news. A stranger that holds input, or a flood beside
    /// another channel, is news.
    fn wants_look(&self) -> bool {
        self.doing != Doing::Yielding && self.quiet_for < REMEMBERED
    }
}

fn within_reach(nice: f64) -> f64 {
    nice.clamp(f64::from(Weight::HEAVIEST.nice()), f64::from(Weight::LIGHTEST.nice()))
}

/// Twice as soon while input is held, a little later each time while it is not.
fn next_look(last: Nanos, seen: &Observation) -> Nanos {
    if seen.held.share_of(seen.elapsed) > HELD_FROM {
        Nanos(last.0 / 2).max(LOOK_SOONEST)
    } else {
        (last + LOOK_LATER).min(LOOK_USUALLY)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = Nanos::from_millis(1);

    fn after(looks: u32, seen: &Observation) -> (Governor, Action) {
        let settings = Settings::default();
        let first = Governor::default().decide(&settings, seen);
        (1..looks).fold(first, |(governor, _), _| governor.decide(&settings, seen))
    }

    #[test]
    fn nobody_else_there_input_takes_what_is_left() {
        let (_, action) = after(3, &Observation { elapsed: MS, ran: MS, ..Default::default() });
        assert_eq!((action.weight, action.look_in), (Weight::LIGHTEST, None));
    }

    #[test]
    fn stalled_input_becomes_heavier_and_wasted_lighter() {
        let seen = Observation { elapsed: MS, ran: MS, strangers: true, ..Default::default() };
        let stalled = Observation { held: MS, stalled: MS, had: MS, ..seen };
        // Until it is known that strangers have more than their part.
        assert_eq!(after(3, &stalled).1.weight, Weight::NORMAL);
        let stalled = after(20, &stalled).1;
        assert!(stalled.weight.nice() < -5, "{stalled:?}");
        assert_eq!(stalled.look_in, Some(LOOK_SOONEST));
        let wasted = after(3, &Observation { wasted: Nanos(300_000), ..seen }).1;
        assert!(wasted.weight.nice() > 2, "{wasted:?}");
    }

    #[test]
    fn input_over_its_share_yields() {
        let seen = Observation { elapsed: MS, strangers: true, ran: MS, ..Default::default() };
        let over = after(40, &Observation { taken: Nanos(600_000), ..seen }).1;
        assert!(over.weight.nice() > 3, "{over:?}");
        let far_over = after(40, &Observation { taken: Nanos(900_000), ..seen }).1;
        assert_eq!(far_over.weight, Weight::LIGHTEST);
        let under = after(40, &Observation { taken: Nanos(400_000), ..seen }).1;
        assert_eq!(under.weight, Weight::NORMAL);
    }

    #[test]
    fn a_flood_beside_another_channel_is_told_from_it() {
        let seen =
            Observation { elapsed: MS, beside: true, overrun: true, ran: MS, ..Default::default() };
        let little = after(10, &Observation { wasted: Nanos(100_000), ..seen }).1;
        assert_eq!((little.doing, little.patience), (Doing::Separating, Patience::Prompt));
        assert!(little.weight.nice() < -10, "{little:?}");
        let much = after(60, &Observation { wasted: Nanos(700_000), ..seen }).1;
        assert!(much.weight.nice() > 0, "{much:?}");
        // Where throughput is preferred, a flood is not looked at for others' sake.
        let settings = Settings { prefer: Prefer::Throughput, ..Default::default() };
        let (_, action) = Governor::default().decide(&settings, &seen);
        assert_eq!(action.doing, Doing::Yielding);
    }

    #[test]
    fn a_flood_that_was_out_of_sight_is_met_as_it_was_left() {
        let settings = Settings::default();
        let flood = Observation {
            elapsed: MS,
            beside: true,
            overrun: true,
            ran: MS,
            wasted: Nanos(700_000),
            ..Default::default()
        };
        let calm = Observation {
            elapsed: MS,
            ran: MS,
            taken: Nanos(500_000),
            strangers: true,
            ..Default::default()
        };
        // As it was left, and as it is met again after so many calm looks.
        let again = |calm_looks: u32| {
            let mut governor = after(60, &flood).0;
            let mut left = None;
            for _ in 0..calm_looks {
                let (next, action) = governor.decide(&settings, &calm);
                governor = next;
                left = (action.doing == Doing::Separating).then_some(action.weight).or(left);
            }
            assert_eq!(governor.doing, Doing::Balancing);
            let seen = Observation { overrun: true, beside: true, ..calm };
            let (_, met) = governor.decide(&settings, &seen);
            assert_eq!(met.doing, Doing::Separating);
            (left.unwrap().nice(), met.weight.nice())
        };
        let (left, met) = again(30);
        assert!(left > 0 && (met - left).abs() <= 1, "{met} after {left}");
        let (_, met) = again(1030);
        assert!(met <= -10, "{met}");
    }

    #[test]
    fn beside_an_input_that_separates_a_light_one_does_too() {
        let seen = Observation { elapsed: MS, joined: true, ..Default::default() };
        let (governor, light) = after(10, &seen);
        assert_eq!((light.doing, light.weight), (Doing::Separating, Weight::HEAVIEST));
        assert!(!governor.tells_apart());
        let flooded = after(30, &Observation { ran: MS, wasted: MS, ..seen }).1;
        assert_eq!((flooded.doing, flooded.weight), (Doing::Yielding, Weight::LIGHTEST));
    }

    #[test]
    fn what_is_past_is_forgotten() {
        let seen = Observation { elapsed: MS, strangers: true, ..Default::default() };
        let (mut governor, _) = after(1, &seen);
        let quiet = Observation { elapsed: MS, ..Default::default() };
        for _ in 0..20 {
            governor = governor.decide(&Settings::default(), &quiet).0;
        }
        let (_, action) = governor.decide(&Settings::default(), &quiet);
        assert_eq!((action.doing, action.look_in), (Doing::Yielding, None));
    }

    #[test]
    fn an_overflow_with_several_channels_packets_is_a_flood_to_tell_apart() {
        let seen = Observation { elapsed: MS, ran: MS, overrun: true, ..Default::default() };
        assert_eq!(after(3, &seen).1.doing, Doing::Yielding);
        // It may be no overflow; only where it was one already, it still is.
        let mixed = Observation { mixed: true, ..seen };
        assert_eq!(after(3, &mixed).1.doing, Doing::Yielding);
        let (governor, several) = after(3, &Observation { contended: true, ..mixed });
        assert_eq!(several.doing, Doing::Separating);
        assert!(several.weight.nice() <= -10, "{several:?}");
        let later = (0..100).fold((governor, several), |(governor, _), _| {
            governor.decide(&Settings::default(), &mixed)
        });
        assert_eq!(later.1.doing, Doing::Separating);
    }

    #[test]
    fn nothing_is_looked_at_while_no_input_comes() {
        let seen = Observation { elapsed: MS, strangers: true, ..Default::default() };
        let (_, action) = after(30, &seen);
        assert_eq!((action.weight, action.look_in), (Weight::NORMAL, None));
    }
}
