//! Holds channels to their share of a CPU while it is saturated: between the meter's accounts and the law
//! ([`weir_policy::Shares`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use weir_bpf::abi;
use weir_bpf::accounts::{Account, Accounts, monotonic_now, until};
use weir_bpf::channels::Channel;
use weir_bpf::input::InputCounters;
use weir_bpf::units::{CpuId, Nanos, Permille};
use weir_bpf::verdict::Kind;
use weir_policy::governor::REST;
use weir_policy::shares::FORGOTTEN;
use weir_policy::{Claim, Load, Settings, Shares};

use super::receivers::Receivers;

/// How long a limit holds if nobody sets it again. Whoever looks does so each few milliseconds; if it cannot,
/// nobody is to be limited for long.
const HOLDS: Nanos = Nanos::from_millis(50);
// The law forgets a channel when another may take its account.
const _: () = assert!(FORGOTTEN.0 == abi::ACCOUNT_IDLE_NS as u64);

/// One CPU's division, as far as the NAPI thread sees it that it is kept for.
pub(super) struct Fair {
    receivers: Arc<Receivers>,
    cpu: Option<CpuId>,
    shares: Shares,
    /// As they were at the last look, by place.
    last: BTreeMap<u32, Account>,
    limited: BTreeMap<u32, f64>,
    /// Until when requests are answered at the gate.
    answers_until: Nanos,
}

impl Fair {
    pub(super) fn new(receivers: Arc<Receivers>) -> Self {
        let (shares, last, limited) = Default::default();
        Self { receivers, cpu: None, shares, last, limited, answers_until: Nanos::ZERO }
    }

    /// Looks at what every channel has used, and sets limits, if that is wanted.
    pub(super) fn look(
        &mut self,
        accounts: &Accounts,
        cpu: CpuId,
        settings: &Settings,
        seen: &Seen<'_>,
    ) {
        if self.cpu != Some(cpu) {
            self.end(accounts);
            *self = Self { cpu: Some(cpu), ..Self::new(Arc::clone(&self.receivers)) };
        }
        let rules = self.receivers.settings();
        if !rules.enforce {
            return self.rest(accounts);
        }
        let now: BTreeMap<u32, Account> =
            accounts.read(cpu).into_iter().map(|account| (account.place, account)).collect();
        // What was idle before the first look, while nobody watched, is not known.
        if self.last.is_empty() {
            self.last = now;
            return;
        }
        for (place, account) in &now {
            if self.last.get(place).is_some_and(|last| last.channel != account.channel) {
                self.shares.forget(*place);
            }
        }
        let since = monotonic_now() - FORGOTTEN;
        let active = now.values().filter(|account| account.used >= since);
        let channels: Vec<Channel> = active.map(|account| account.channel).collect();
        let serving = now.values().filter(|account| account.serves);
        self.receivers.have_clients(serving.filter_map(|account| account.channel.local_port()));
        let mut shed = 0;
        let mut claim = |account: &Account| {
            let channel = &account.channel;
            // A place may have become another channel's, whose kind's account then has all that it was ever charged at
            // once; but a CPU has had no more than so much time.
            let last = self.last.get(&account.place).filter(|last| last.channel == *channel);
            let last = last.filter(|last| last.charged <= account.charged);
            let charged = last.map_or(account.charged, |last| last.charged);
            // What one costs that nobody has admitted yet may be all the time there is.
            let cost = account.cost.unwrap_or(seen.elapsed);
            let over = last.map_or(0, |last| account.shed.wrapping_sub(last.shed)).into();
            shed += over;
            Claim {
                channel: account.place,
                bound: self.receivers.bound(channel, &channels),
                protected: rules.protects(channel),
                weight: self.receivers.weigh(channel, &channels),
                used: (account.charged - charged).min(seen.elapsed),
                missed: cost * over,
            }
        };
        let claims: Vec<Claim> = now.values().map(&mut claim).collect();
        let limits = self.shares.decide(settings, rules.control, &seen.load(shed), &claims);
        // Who is held to a limit may keep nobody waiting.
        if self.shares.saturated() || !limits.is_empty() {
            self.receivers.want(&channels);
        }
        let is_request = |claim: &Claim| now[&claim.channel].channel.kind == Kind::TcpRequest;
        if claims.iter().any(|claim| claim.used > Nanos::ZERO && is_request(claim)) {
            self.have_answered(accounts, cpu);
        }
        self.last = now;
        let until = until(HOLDS);
        for (place, limit) in &limits {
            // At least a thousandth, as less would be nothing.
            let share = Permille::of(*limit).clamp(Permille(1), Permille(1000));
            accounts.limit(cpu, *place, share, until);
        }
        for place in self.limited.keys().filter(|place| !limits.contains_key(place)) {
            accounts.unlimit(cpu, *place);
        }
        self.limited = limits;
    }

    /// There are requests past a listener's queue. The gate answers them from when the CPU is saturated until there have
    /// been none for a while: it is not saturated any more because they are answered so.
    fn have_answered(&mut self, accounts: &Accounts, cpu: CpuId) {
        if self.shares.saturated() || self.answers_until > monotonic_now() {
            self.answers_until = until(REST);
            accounts.short(cpu, Kind::TcpRequest, self.answers_until);
        }
    }

    /// Who is held to which share of the CPU.
    pub(super) fn limits(&self) -> Vec<(Channel, f64)> {
        let limit = |(place, limit): (&u32, &f64)| Some((self.last.get(place)?.channel, *limit));
        self.limited.iter().filter_map(limit).collect()
    }

    /// Nothing is known any more, nor looked at for a while.
    pub(super) fn rest(&mut self, accounts: &Accounts) {
        self.end(accounts);
        (self.shares, self.last) = Default::default();
    }

    /// Nobody is limited from now on.
    pub(super) fn end(&mut self, accounts: &Accounts) {
        let Some(cpu) = self.cpu else { return };
        for place in std::mem::take(&mut self.limited).into_keys() {
            accounts.unlimit(cpu, place);
        }
    }
}

/// Two readings of a thread's counters, and the time between them.
pub(super) struct Seen<'a> {
    pub(super) elapsed: Nanos,
    pub(super) last: &'a InputCounters,
    pub(super) now: &'a InputCounters,
}

impl Seen<'_> {
    /// With so many packets discarded for a limit.
    fn load(&self, shed: u64) -> Load {
        Load {
            shedding: self.now.discard_cost.unwrap_or_default() * shed,
            elapsed: self.elapsed,
            idle: self.now.idle - self.last.idle,
            waited: self.now.crowded - self.last.crowded,
            overrun: self.now.overruns != self.last.overruns,
        }
    }
}
