//! Fair shares: how much of a CPU the packets of each channel may take while it is saturated.
//!
//! Early demultiplexing alone does not help against packets that never fill a queue (Druschel & Banga,
//! section 3: SYNs that are answered by cookie, pings, packets to closed ports). What bounds them is
//! a share of the CPU, max-min fair by weight: who wants less than that gets what he wants, and what he
//! leaves is the others'.

use std::collections::BTreeMap;

use crate::settings::Settings;
use crate::units::{Nanos, Share};

/// A CPU is saturated if it was idle for less than this share of a period, which is where the governor, too, sees no
/// time to spare: servers whose clients wait for answers never use all of it...
pub const IDLE_BELOW: f64 = 0.1;
/// ...and somebody has waited for it for so long.
const WAITED: Nanos = Nanos::from_millis(1);
/// Time that nobody wants is given to those whom no queue bounds only where there is more of it than this share: who
/// waits for the answers to his packets leaves the CPU idle, too, and would get them later.
const SPARE: f64 = 0.2;
/// A ring lacks CPU time if it overflows in so many periods in a row. Once, it was kept waiting for a moment, as by the
/// host of a virtual machine.
const OVERRUN_PERIODS: u32 = 3;
/// By how much limits grow in each period with time to spare, and those of queues wherever their ring does not overflow.
const RELIEF: f64 = 1.05;
/// A limit of all queues together that is so many times what they use limits nobody.
const LOOSE: f64 = 4.0;
/// How much less channels with queues get together in each period in which the ring overflows.
const SQUEEZE: f64 = 0.85;
/// Channels that have used nothing for so long are forgotten.
pub const FORGOTTEN: Nanos = Nanos::from_millis(1000);

/// What bounds a channel's packets besides its share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// A receiver's queue: past that they are discarded anyway.
    Queue,
    /// Nothing: nobody waits for them, and each costs what it costs.
    Nothing,
    /// Nobody knows what they are: they have no limit.
    Unknown,
}

/// What one channel has used since the last look.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Claim {
    /// Which channel: as the caller numbers them.
    pub channel: u32,
    /// What bounds it.
    pub bound: Bound,
    /// Whether it belongs to the protected class, which keeps the network together (ARP, ...) or the host in
    /// reach. Of a channel with a queue its part of the class's share is the least that it may take; of one
    /// without it is all.
    pub protected: bool,
    /// Its weight beside others; 1 is a receiver of nice 0.
    pub weight: f64,
    /// CPU time of packets that were admitted.
    pub used: Nanos,
    /// What those would have cost that were discarded for its limit.
    pub missed: Nanos,
}

/// What happened on a CPU since the last look.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// How long that is.
    pub elapsed: Nanos,
    /// How long the CPU was idle.
    pub idle: Nanos,
    /// How long somebody was runnable and did not run.
    pub waited: Nanos,
    /// Whether a ring may have overflowed.
    pub overrun: bool,
    /// What it took to discard the packets that were over a limit.
    pub shedding: Nanos,
}

/// What is known of a channel.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Share of the CPU, averaged over a period.
    used: f64,
    /// The same with what it missed, averaged over [`FORGOTTEN`].
    wanted: f64,
    quiet_for: Nanos,
    limit: Option<f64>,
}

impl Known {
    fn relieve(&mut self) {
        self.limit = self.limit.map(|limit| limit * RELIEF).filter(|limit| *limit < 1.0);
    }
}

/// The law's state, of one CPU.
#[derive(Clone, Debug, Default)]
pub struct Shares {
    window: Load,
    /// The share of the CPU that would have been idle with all that was missed, of late: averaged over [`FORGOTTEN`].
    left: f64,
    /// For how long that has been looked at.
    seen: Nanos,
    /// Periods in a row in which the ring may have overflowed.
    overruns: u32,
    /// What channels with queues get together, while that is less than all.
    together: Option<f64>,
    saturated: bool,
    known: BTreeMap<u32, Known>,
}

impl Shares {
    /// What the protected class's share of a CPU may be, in percent, and is if nobody says.
    pub const CONTROL_PERCENT_RANGE: (f64, f64) = (1.0, 50.0);
    /// See [`Self::CONTROL_PERCENT_RANGE`].
    pub const CONTROL_PERCENT: f64 = 5.0;

    /// The limit of each channel that has one from now on, as a share of the CPU. `control`: what the protected
    /// class may take together, whatever others want.
    pub fn decide(
        &mut self,
        settings: &Settings,
        control: Share,
        load: &Load,
        claims: &[Claim],
    ) -> BTreeMap<u32, f64> {
        self.remember(settings, load, claims);
        if self.window.elapsed >= settings.period {
            let window = std::mem::take(&mut self.window);
            self.overruns = if window.overrun { self.overruns.saturating_add(1) } else { 0 };
            let idle = window.idle.share_of(window.elapsed);
            let is_busy = idle < IDLE_BELOW;
            self.saturated = is_busy && window.waited >= WAITED;
            // Whoever is held to a limit keeps others waiting for less than he wants.
            let is_held = || self.known.values().any(|known| known.limit.is_some());
            if self.saturated || is_busy && is_held() {
                let known = |claim: &&Claim| self.known.contains_key(&claim.channel);
                let active: Vec<Claim> = claims.iter().filter(known).copied().collect();
                self.divide(settings, control, &active);
            } else if idle > SPARE {
                self.relieve();
            } else {
                self.relieve_queues(claims);
            }
            if self.left > SPARE {
                self.leave_what_was_wanted(claims);
            }
        }
        let known = self.known.iter();
        let limits = known.filter_map(|(channel, known)| Some((*channel, known.limit?)));
        limits.collect()
    }

    /// Whether the CPU was saturated in the last period.
    pub fn saturated(&self) -> bool {
        self.saturated
    }

    /// What is known of a channel was of another one that had its number before.
    pub fn forget(&mut self, channel: u32) {
        self.known.remove(&channel);
    }

    fn remember(&mut self, settings: &Settings, load: &Load, claims: &[Claim]) {
        self.window.elapsed += load.elapsed;
        self.window.idle += load.idle;
        self.window.waited += load.waited;
        self.window.overrun |= load.overrun;
        let missed = claims.iter().fold(Nanos::ZERO, |sum, claim| sum + claim.missed);
        // None of it would have been spent on discarding.
        let left =
            (load.idle + load.shedding).share_of(load.elapsed) - missed.share_of(load.elapsed);
        self.seen += load.elapsed;
        // At first, the average of what has been seen.
        let new = load.elapsed.share_of(self.seen.min(FORGOTTEN)).min(1.0);
        self.left += new * (left - self.left);
        let kept = (-load.elapsed.share_of(settings.period)).exp();
        for known in self.known.values_mut() {
            known.used *= kept;
            known.wanted *= 1.0 - new;
            known.quiet_for += load.elapsed;
        }
        for claim in
            claims.iter().filter(|claim| claim.used > Nanos::ZERO || claim.missed > Nanos::ZERO)
        {
            let known = self.known.entry(claim.channel).or_insert(Known {
                used: 0.0,
                wanted: 0.0,
                quiet_for: Nanos::ZERO,
                limit: None,
            });
            known.used += (1.0 - kept) * claim.used.share_of(load.elapsed);
            let wanted = claim.used + claim.missed;
            known.wanted += new * wanted.share_of(load.elapsed);
            known.quiet_for = Nanos::ZERO;
        }
        self.known.retain(|_, known| known.quiet_for < FORGOTTEN);
    }

    /// Who has wanted more than he got wants all there is.
    fn demand(&self, claim: &Claim) -> f64 {
        let known = self.known.get(&claim.channel);
        let held = claim.missed > Nanos::ZERO
            || known.is_some_and(|known| known.limit.is_some_and(|limit| known.used > 0.8 * limit));
        if held { f64::INFINITY } else { known.map_or(0.0, |known| known.used) }
    }

    /// A limit for those that want more.
    fn past(&self, claim: &Claim, limit: f64) -> (u32, Option<f64>) {
        (claim.channel, (self.demand(claim) > limit).then_some(limit))
    }

    fn divide(&mut self, settings: &Settings, control: Share, claims: &[Claim]) {
        let protected = self.wants(claims.iter().filter(|claim| claim.protected));
        let reserved_level = level(control.get(), protected);
        // What of the protected class's share is a channel's; nothing if it is no member.
        let reserved =
            |claim: &Claim| if claim.protected { reserved_level * claim.weight } else { 0.0 };
        let known = claims.iter().filter(|claim| claim.bound != Bound::Unknown);
        let (apart, shared): (Vec<Claim>, Vec<Claim>) =
            known.partition(|claim| claim.protected && claim.bound == Bound::Nothing);
        // What has a share of its own is not divided again.
        let taken: f64 = apart.iter().map(|claim| self.demand(claim).min(reserved(claim))).sum();
        let queued = shared.iter().filter(|claim| claim.bound == Bound::Queue);
        // Processes want all of it, and weigh as much as those who receive for them.
        let processes = queued.map(|claim| claim.weight).sum::<f64>().max(1.0);
        let mut wants = self.wants(shared.iter());
        wants.push((processes, f64::INFINITY));
        let level = level(1.0 - taken, wants);
        // Who takes less has no limit.
        let mut limits: Vec<(u32, Option<f64>)> =
            apart.iter().map(|claim| self.past(claim, reserved(claim))).collect();
        let unqueued = shared.iter().filter(|claim| claim.bound == Bound::Nothing);
        limits.extend(unqueued.map(|claim| self.past(claim, level * claim.weight)));
        limits.extend(self.among_queues(settings, reserved, claims));
        // It may have been known before.
        let unknown = claims.iter().filter(|claim| claim.bound == Bound::Unknown);
        limits.extend(unknown.map(|claim| (claim.channel, None)));
        for (channel, limit) in limits {
            if let Some(known) = self.known.get_mut(&channel) {
                known.limit = limit;
            }
        }
    }

    fn wants<'a>(&self, claims: impl Iterator<Item = &'a Claim>) -> Vec<(f64, f64)> {
        claims.map(|claim| (claim.weight, self.demand(claim))).collect()
    }

    /// Channels with queues have no limit but when the ring overflows, which costs all of them packets: then
    /// those that are over their fair part of input's share yield, bit by bit; no protected one to less than its
    /// part of what is reserved.
    fn among_queues(
        &mut self,
        settings: &Settings,
        reserved: impl Fn(&Claim) -> f64,
        claims: &[Claim],
    ) -> Vec<(u32, Option<f64>)> {
        let queues: Vec<Claim> =
            claims.iter().filter(|claim| claim.bound == Bound::Queue).copied().collect();
        let used = |claim: &Claim| self.known.get(&claim.channel).map_or(0.0, |known| known.used);
        let total: f64 = queues.iter().map(used).sum();
        let least = settings.user_share.rest();
        self.together = if self.overruns >= OVERRUN_PERIODS && queues.len() > 1 {
            Some((self.together.unwrap_or(total).min(total.max(least)) * SQUEEZE).max(least))
        } else {
            self.together
                .map(|together| together * RELIEF)
                .filter(|together| *together < LOOSE * total)
        };
        let Some(together) = self.together else {
            return queues.iter().map(|claim| (claim.channel, None)).collect();
        };
        let level = level(together, self.wants(queues.iter()));
        let part = |claim: &Claim| (level * claim.weight).max(reserved(claim));
        queues.iter().map(|claim| self.past(claim, part(claim))).collect()
    }

    /// Of late there was time for all, with what was discarded: then each may have what it has wanted of late, although
    /// for a moment everybody wants the CPU, as when some daemons are asked together. A flood that begins has wanted
    /// nothing yet.
    fn leave_what_was_wanted(&mut self, claims: &[Claim]) {
        // What the protected class may take together is its share.
        let may = |claim: &&Claim| claim.bound == Bound::Nothing && !claim.protected;
        for claim in claims.iter().filter(may) {
            if let Some(known) = self.known.get_mut(&claim.channel) {
                known.limit = known.limit.map(|limit| limit.max(known.wanted));
            }
        }
    }

    /// Unused time is anybody's.
    fn relieve(&mut self) {
        self.together = None;
        self.known.values_mut().for_each(Known::relieve);
    }

    /// Without time to spare, what no queue bounds keeps its limit.
    fn relieve_queues(&mut self, claims: &[Claim]) {
        let overflows = self.overruns > 0;
        if !overflows {
            self.together = self.together.map(|together| together * RELIEF);
        }
        for claim in claims {
            let Some(known) = self.known.get_mut(&claim.channel) else { continue };
            match claim.bound {
                Bound::Queue if !overflows => known.relieve(),
                Bound::Queue | Bound::Nothing => {}
                Bound::Unknown => known.limit = None,
            }
        }
    }
}

/// The water level of a max-min fair division by weight: each gets the smaller of what he wants and the level
/// times his weight, and together they get `capacity`, or all that they want. `wants`: weights and demands.
fn level(capacity: f64, mut wants: Vec<(f64, f64)>) -> f64 {
    wants.retain(|(weight, _)| *weight > 0.0);
    wants.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
    let mut left = capacity;
    let mut weights: f64 = wants.iter().map(|(weight, _)| weight).sum();
    for (weight, demand) in wants {
        if demand / weight * weights >= left {
            return left / weights;
        }
        left -= demand;
        weights -= weight;
    }
    f64::INFINITY
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Nanos = Nanos::from_millis(1);
    const FULL: Load =
        Load { elapsed: MS, idle: Nanos::ZERO, waited: MS, overrun: false, shedding: Nanos::ZERO };
    const SERVER: u32 = 20;
    const FLOOD: u32 = 21;

    fn claim(channel: u32, bound: Bound, used_us: u64) -> Claim {
        let weight = if bound == Bound::Nothing { 1.0 / 32.0 } else { 1.0 };
        let used = Nanos::from_micros(used_us);
        Claim { channel, bound, protected: false, weight, used, missed: Nanos::ZERO }
    }

    fn protected(channel: u32, bound: Bound, used_us: u64) -> Claim {
        Claim { protected: true, weight: 1.0, ..claim(channel, bound, used_us) }
    }

    fn control() -> Share {
        Share::percent(Shares::CONTROL_PERCENT).unwrap()
    }

    fn after(looks: u32, load: &Load, claims: &[Claim]) -> (Shares, BTreeMap<u32, f64>) {
        let mut shares = Shares::default();
        let mut limits = BTreeMap::new();
        for _ in 0..looks {
            limits = shares.decide(&Settings::default(), control(), load, claims);
        }
        (shares, limits)
    }

    #[test]
    fn who_wants_little_gets_it_and_the_rest_is_divided_by_weight() {
        let is = |level: f64, wanted: f64| assert!((level - wanted).abs() < 1e-9, "{level}");
        is(level(1.0, vec![(1.0, f64::INFINITY), (1.0, 0.2)]), 0.8);
        is(level(1.0, vec![(1.0, f64::INFINITY), (3.0, f64::INFINITY)]), 0.25);
        is(level(0.5, vec![(1.0, 0.3), (1.0, 0.1), (2.0, 9.0)]), 0.4 / 3.0);
        assert_eq!(level(1.0, vec![(1.0, 0.3), (0.0, 5.0)]), f64::INFINITY);
        assert_eq!(level(1.0, vec![]), f64::INFINITY);
    }

    #[test]
    fn nobody_has_a_limit_while_the_cpu_is_not_saturated() {
        let claims = [claim(SERVER, Bound::Queue, 200), claim(FLOOD, Bound::Nothing, 700)];
        let idle = |percent: u64| Load { idle: Nanos::from_micros(10 * percent), ..FULL };
        assert_eq!(after(50, &idle(12), &claims).1, BTreeMap::new());
        assert_ne!(after(50, &idle(5), &claims).1, BTreeMap::new());
        let alone = Load { waited: Nanos::ZERO, ..FULL };
        assert_eq!(after(50, &alone, &claims).1, BTreeMap::new());
    }

    #[test]
    fn a_weight_is_taken_over_while_a_limit_keeps_others_from_waiting() {
        let mut shares = Shares::default();
        let mut limit = |weight, load: &Load| {
            let claims = [Claim { weight, missed: MS, ..claim(FLOOD, Bound::Nothing, 30) }];
            let mut decide = || shares.decide(&Settings::default(), control(), load, &claims);
            (0..50).map(|_| decide()).last().and_then(|limits| limits.get(&FLOOD).copied())
        };
        let unhindered = Load { waited: Nanos::ZERO, ..FULL };
        assert_eq!(limit(0.01, &unhindered), None);
        assert_eq!(limit(0.01, &FULL), Some(0.01 / 1.01));
        assert_eq!(limit(0.05, &unhindered), Some(0.05 / 1.05));
    }

    #[test]
    fn a_flood_without_a_queue_is_held_to_its_weight_and_a_server_is_not() {
        let claims = [claim(SERVER, Bound::Queue, 280), claim(FLOOD, Bound::Nothing, 600)];
        let (_, limits) = after(50, &FULL, &claims);
        assert_eq!(limits.keys().copied().collect::<Vec<_>>(), [FLOOD]);
        let limit = limits.get(&FLOOD).copied().unwrap_or_default();
        assert!((0.015..0.03).contains(&limit), "{limit}");
    }

    #[test]
    fn one_flooded_queue_alone_has_no_limit() {
        let overrun = Load { overrun: true, ..FULL };
        assert_eq!(after(50, &overrun, &[claim(SERVER, Bound::Queue, 700)]).1, BTreeMap::new());
    }

    #[test]
    fn of_two_queues_the_larger_yields_when_the_ring_overflows() {
        let claims = [claim(SERVER, Bound::Queue, 50), claim(FLOOD, Bound::Queue, 800)];
        assert_eq!(after(50, &FULL, &claims).1, BTreeMap::new());
        let overrun = Load { overrun: true, ..FULL };
        let (_, limits) = after(200, &overrun, &claims);
        assert_eq!(limits.keys().copied().collect::<Vec<_>>(), [FLOOD]);
        let limit = limits.get(&FLOOD).copied().unwrap_or_default();
        assert!((0.44..0.46).contains(&limit), "{limit}");
    }

    #[test]
    fn a_ring_that_was_kept_waiting_for_a_moment_limits_nobody() {
        let claims = [claim(SERVER, Bound::Queue, 50), claim(FLOOD, Bound::Queue, 800)];
        let (mut shares, _) = after(50, &FULL, &claims);
        for look in 0..1_000 {
            let load = Load { overrun: look % 50 < 15, ..FULL };
            let limits = shares.decide(&Settings::default(), control(), &load, &claims);
            assert!(limits.is_empty(), "{limits:?} at {look}");
        }
    }

    #[test]
    fn limits_go_when_there_is_time_to_spare() {
        let mut claims = [claim(SERVER, Bound::Queue, 280), claim(FLOOD, Bound::Nothing, 600)];
        let (mut shares, _) = after(50, &FULL, &claims);
        claims[1] = Claim { used: Nanos::from_micros(20), missed: MS, ..claims[1] };
        let spare = Load { idle: Nanos::from_micros(500), ..FULL };
        for _ in 0..2_000 {
            // It takes what it may.
            let limits = shares.decide(&Settings::default(), control(), &spare, &claims);
            let limit = limits.get(&FLOOD).copied().unwrap_or(1.0);
            claims[1].used = Nanos((limit * 1e6) as u64);
        }
        let limits = shares.decide(&Settings::default(), control(), &spare, &claims);
        assert!(limits.is_empty(), "{limits:?}");
    }

    /// What a flood uses and misses of each look that wants so much of the CPU.
    fn wanting(claim: Claim, share: f64, limits: &BTreeMap<u32, f64>) -> Claim {
        let used = limits.get(&claim.channel).map_or(share, |limit| limit.min(share));
        let time = |share: f64| Nanos((share * 1e6) as u64);
        Claim { used: time(used), missed: time(share - used), ..claim }
    }

    /// As of some daemons that are asked together, beside pings.
    #[test]
    fn a_moment_without_time_takes_nothing_from_what_was_wanted_while_there_was_time_for_all() {
        let mut claims = [claim(SERVER, Bound::Queue, 200), claim(FLOOD, Bound::Nothing, 250)];
        let between = Load { idle: Nanos::from_micros(500), ..FULL };
        let (mut shares, mut limits) = after(5_000, &between, &claims);
        let mut missed = |wanted: f64, looks: u32| {
            let mut missed = Nanos::ZERO;
            for look in 0..looks {
                let load = if look % 100 < 40 { FULL } else { between };
                claims[1] = wanting(claims[1], wanted, &limits);
                limits = shares.decide(&Settings::default(), control(), &load, &claims);
                missed += claims[1].missed;
            }
            missed.share_of(MS * u64::from(looks)) / wanted
        };
        assert!(missed(0.25, 2_000) < 0.02);
        // Of what is more than there is time for, it gets no more than without this.
        assert!(missed(1.9, 2_000) > 0.8);
    }

    #[test]
    fn a_flood_that_pauses_keeps_its_limit() {
        let mut claims = [claim(SERVER, Bound::Queue, 50), claim(FLOOD, Bound::Nothing, 0)];
        let (mut shares, mut limits) = (Shares::default(), BTreeMap::new());
        for look in 0..4_000 {
            let floods = look % 200 < 100;
            claims[1] = wanting(claims[1], if floods { 1.9 } else { 0.0 }, &limits);
            let pause = Load { idle: Nanos::from_micros(950), ..FULL };
            let load = if floods { FULL } else { pause };
            limits = shares.decide(&Settings::default(), control(), &load, &claims);
            assert!(look < 1_000 || limits.contains_key(&FLOOD), "at {look}");
        }
    }

    #[test]
    fn who_takes_anothers_number_does_not_take_his_limit() {
        let claims = [claim(SERVER, Bound::Queue, 280), claim(FLOOD, Bound::Nothing, 600)];
        let (mut shares, limits) = after(50, &FULL, &claims);
        assert!(limits.contains_key(&FLOOD));
        shares.forget(FLOOD);
        let anew = [claims[0], Claim { used: Nanos::ZERO, ..claims[1] }];
        let limits = shares.decide(&Settings::default(), control(), &FULL, &anew);
        assert!(limits.is_empty(), "{limits:?}");
    }

    #[test]
    fn who_has_been_quiet_takes_no_part() {
        let busy = [claim(SERVER, Bound::Queue, 280), claim(FLOOD, Bound::Nothing, 600)];
        let quiet = (0..10).map(|channel| claim(channel, Bound::Queue, 0));
        let all: Vec<Claim> = busy.into_iter().chain(quiet).collect();
        assert_eq!(after(50, &FULL, &all).1, after(50, &FULL, &busy).1);
    }

    #[test]
    fn what_is_unknown_has_no_limit_and_the_protected_class_has_its_own() {
        let claims = [claim(1, Bound::Unknown, 500), protected(2, Bound::Nothing, 400)];
        assert_eq!(after(50, &FULL, &claims).1, BTreeMap::from([(2, 0.05)]));
    }

    /// As requests are of a listener that is seen to have clients.
    #[test]
    fn what_is_unknown_from_now_on_loses_its_limit() {
        let (mut shares, limits) = after(50, &FULL, &[claim(FLOOD, Bound::Nothing, 900)]);
        assert_eq!(limits.len(), 1);
        let claims = [claim(FLOOD, Bound::Unknown, 900)];
        let limits =
            (0..50).map(|_| shares.decide(&Settings::default(), control(), &FULL, &claims));
        assert_eq!(limits.last(), Some(BTreeMap::new()));
    }

    /// The CPU is no more saturated, and has no time to spare, either.
    const BETWEEN: Load = Load { idle: Nanos::from_micros(150), ..FULL };

    #[test]
    fn between_saturated_and_spare_what_has_no_queue_keeps_its_limit_and_the_unknown_has_none() {
        let flood = claim(FLOOD, Bound::Nothing, 900);
        let (mut shares, limits) = after(50, &FULL, &[flood]);
        assert_eq!(limits.len(), 1);
        let mut last = |claim| {
            let claims = [claim];
            let mut decide = || shares.decide(&Settings::default(), control(), &BETWEEN, &claims);
            (0..50).map(|_| decide()).last()
        };
        assert_eq!(last(flood), Some(limits));
        assert_eq!(last(Claim { bound: Bound::Unknown, ..flood }), Some(BTreeMap::new()));
    }

    #[test]
    fn between_saturated_and_spare_queues_lose_their_limits() {
        let mut claims = [claim(SERVER, Bound::Queue, 50), claim(FLOOD, Bound::Queue, 800)];
        let (mut shares, limits) = after(200, &Load { overrun: true, ..FULL }, &claims);
        assert_eq!(limits.len(), 1);
        // It takes what it may.
        claims[1] = Claim { used: Nanos::from_micros(450), missed: MS, ..claims[1] };
        let limits =
            (0..400).map(|_| shares.decide(&Settings::default(), control(), &BETWEEN, &claims));
        assert_eq!(limits.last(), Some(BTreeMap::new()));
    }

    #[test]
    fn the_protected_class_has_one_share_and_a_flood_of_one_leaves_the_others_theirs() {
        let both = [protected(1, Bound::Nothing, 400), protected(2, Bound::Nothing, 300)];
        assert_eq!(after(50, &FULL, &both).1, BTreeMap::from([(1, 0.025), (2, 0.025)]));
        let one = [protected(1, Bound::Nothing, 400), protected(2, Bound::Nothing, 10)];
        let (_, limits) = after(200, &FULL, &one);
        assert_eq!(limits.keys().copied().collect::<Vec<_>>(), [1]);
        let limit = limits.get(&1).copied().unwrap_or_default();
        assert!((0.039..0.041).contains(&limit), "{limit}");
    }

    #[test]
    fn a_protected_queue_keeps_its_part_when_the_ring_overflows() {
        let overrun = Load { overrun: true, ..FULL };
        let light = |claim: Claim| Claim { weight: 0.01, ..claim };
        let flood = claim(FLOOD, Bound::Queue, 800);
        let limit = |claims: &[Claim]| after(400, &overrun, claims).1.get(&SERVER).copied();
        // Its weight would give it half a percent.
        let held = limit(&[light(claim(SERVER, Bound::Queue, 100)), flood]);
        assert!(held.is_some_and(|limit| limit < 0.006), "{held:?}");
        assert_eq!(limit(&[light(protected(SERVER, Bound::Queue, 100)), flood]), Some(0.05));
        // Others in the class have their parts of it.
        let many = [light(protected(SERVER, Bound::Queue, 100)), protected(1, Bound::Nothing, 0)];
        assert_eq!(limit(&[&many[..], &[flood]].concat()), Some(0.05));
        let quiet = limit(&[light(protected(SERVER, Bound::Queue, 30)), flood]);
        assert_eq!(quiet, None);
    }
}
