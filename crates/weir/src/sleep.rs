//! The gates sleep while nothing is wrong. What wakes them is the kernel half's affair (`bpf/alarm.h`); this puts them
//! to sleep again, and tells of both.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weir_bpf::alarm::{Alarm, Cause};
use weir_bpf::sys::snmp::TcpStats;
use weir_policy::governor::REST;

/// Of waking is told so seldom: a flood that comes and goes is not to fill a log.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Whether the gates look at packets, and what made them: for `weir status`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SleepStatus {
    /// Whether they let everything pass unseen.
    pub asleep: bool,
    /// How often they fell asleep.
    pub slept: u64,
    /// How often each cause woke them.
    pub woken: Vec<Woken>,
    /// The kernel's number of the BPF map by which they are woken.
    pub alarm_map_id: u32,
}

/// A cause that has woken the gates.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Woken {
    /// Which.
    pub cause: String,
    /// What that is.
    pub description: String,
    /// How often.
    pub times: u64,
}

/// Puts the gates to sleep.
pub struct Sleep {
    alarm: Alarm,
    /// Whether they may sleep at all.
    allowed: bool,
    tcp: Option<TcpStats>,
    told: Option<Instant>,
    told_times: u64,
}

impl Sleep {
    /// Of gates that are awake; `allowed`: whether they may sleep.
    pub fn new(alarm: Alarm, allowed: bool) -> Self {
        Self { alarm, allowed, tcp: None, told: None, told_times: 0 }
    }

    /// Puts them to sleep, if it is time and TCP's counts are as they were. What there is to say of it.
    pub fn tick(&mut self, allowed: bool, tcp: Option<TcpStats>) -> Option<String> {
        self.compare(tcp);
        self.alarm.keep_awake(!(self.allowed && allowed));
        self.alarm.rest(REST);
        let (mut times, mut last) = (0, None);
        for (cause, woken) in self.alarm.woken().filter(|(_, woken)| *woken > 0) {
            // At its limit a router tries it each second.
            let told = if cause == Cause::CpuShare { 1 } else { woken };
            (times, last) = (times + told, Some(cause));
        }
        let more = times - self.told_times;
        let last =
            last.filter(|_| more > 0 && self.told.is_none_or(|at| at.elapsed() >= TOLD_EVERY));
        let news = last.map(|cause| match more {
            1 => format!("the gate has woken: {}", cause.description()),
            _ => format!("the gate has woken {more} times: {}", cause.description()),
        });
        if news.is_some() {
            (self.told, self.told_times) = (Some(Instant::now()), times);
        }
        news
    }

    /// No tracepoint tells of a listener or a connection that has no room. The kernel counts them: has it, since the last
    /// time?
    fn compare(&mut self, tcp: Option<TcpStats>) {
        let Some(now) = tcp else { return };
        let Some(before) = self.tcp.replace(now) else { return };
        let refused = |tcp: TcpStats| tcp.syn_cookies_sent + tcp.listen_drops;
        if refused(now) != refused(before) {
            self.alarm.ring(Cause::TcpQueue);
        }
        if now.backlog_drops != before.backlog_drops {
            self.alarm.ring(Cause::TcpBacklog);
        }
    }

    /// For `weir status`.
    pub fn status(&self) -> SleepStatus {
        let woken = self.alarm.woken().filter(|(_, times)| *times > 0);
        let woken = woken.map(|(cause, times): (Cause, u64)| Woken {
            cause: cause.name().into(),
            description: cause.description().into(),
            times,
        });
        SleepStatus {
            asleep: self.alarm.is_asleep(),
            slept: self.alarm.slept(),
            woken: woken.collect(),
            alarm_map_id: self.alarm.map_id(),
        }
    }
}
