//! The gates sleep while nothing is wrong. What wakes them is the kernel half's affair (`bpf/alarm.h`); this puts them
//! to sleep again, and tells of both.

use std::collections::BTreeMap;
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
    told: Told,
}

/// What was last told of waking.
#[derive(Default)]
struct Told {
    at: Option<Instant>,
    /// How often each cause had woken the gates by then.
    times: BTreeMap<Cause, u64>,
}

impl Told {
    /// What there is to say, if it is time.
    fn news(&mut self, woken: impl Iterator<Item = (Cause, u64)>, now: Instant) -> Option<String> {
        if self.at.is_some_and(|at| now.duration_since(at) < TOLD_EVERY) {
            return None;
        }
        let (mut more, mut causes) = (0, Vec::new());
        for (cause, times) in woken {
            // At its limit a router tries it each second.
            let is_trial = cause == Cause::CpuShare;
            let times = if is_trial { times.min(1) } else { times };
            let before = self.times.insert(cause, times).unwrap_or_default();
            if times > before {
                more += times - before;
                causes.push(cause.description());
            }
        }
        let causes = causes.join("; ");
        let news = match more {
            0 => return None,
            1 => format!("the gate has woken: {causes}"),
            _ => format!("the gate has woken {more} times: {causes}"),
        };
        self.at = Some(now);
        Some(news)
    }
}

impl Sleep {
    /// Of gates that are awake; `allowed`: whether they may sleep.
    pub fn new(alarm: Alarm, allowed: bool) -> Self {
        Self { alarm, allowed, tcp: None, told: Told::default() }
    }

    /// Puts them to sleep, if it is time and TCP's counts are as they were. What there is to say of it.
    pub fn tick(&mut self, allowed: bool, tcp: Option<TcpStats>) -> Option<String> {
        self.compare(tcp);
        self.alarm.keep_awake(!(self.allowed && allowed));
        self.alarm.rest(REST);
        self.told.news(self.alarm.woken(), Instant::now())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_woken_the_gate_since_is_told_and_nothing_else() {
        use Cause::{CpuShare, CpuWait, UdpQueue};
        let (mut told, begin) = (Told::default(), Instant::now());
        let mut news = |secs, woken: &[(Cause, u64)]| {
            told.news(woken.iter().copied(), begin + Duration::from_secs(secs))
        };
        assert_eq!(news(0, &[(UdpQueue, 0), (CpuShare, 0)]), None);
        let wait = format!("the gate has woken: {}", CpuWait.description());
        assert_eq!(news(1, &[(UdpQueue, 0), (CpuWait, 1)]), Some(wait));
        assert_eq!(news(59, &[(UdpQueue, 2), (CpuWait, 1)]), None);
        let udp = format!("the gate has woken 3 times: {}", UdpQueue.description());
        assert_eq!(news(61, &[(UdpQueue, 3), (CpuWait, 1)]), Some(udp));
        assert!(UdpQueue.description().ends_with("in this or another network namespace"));
        let both = [UdpQueue, CpuShare].map(Cause::description).join("; ");
        let both = format!("the gate has woken 2 times: {both}");
        assert_eq!(news(200, &[(UdpQueue, 4), (CpuShare, 9), (CpuWait, 1)]), Some(both));
        assert_eq!(news(300, &[(UdpQueue, 4), (CpuShare, 10), (CpuWait, 1)]), None);
    }
}
