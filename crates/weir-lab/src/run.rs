//! The only result: a head that says what made it, and trials. Everything else is computed from these.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::machine::Machine;
use crate::metric::Metric;

/// Version of the results' schema.
pub const SCHEMA: u32 = 3;

/// How much is sent.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd, Serialize, Deserialize)]
#[serde(into = "Value", try_from = "Value")]
pub enum Load {
    /// Nothing of the flood; for clients that pace themselves: their own pace.
    Off,
    /// Packets per second.
    Rate(f64),
    /// As much as the generator can.
    Top,
}

impl Load {
    /// A rate to compare by: the top is above every rate.
    pub fn pps(self) -> f64 {
        match self {
            Self::Off => 0.0,
            Self::Rate(rate) => rate,
            Self::Top => f64::INFINITY,
        }
    }

    /// Reads `0`, `250000`, `250k`, `1.5M` or `top`.
    pub fn parse(text: &str) -> std::result::Result<Self, String> {
        match text {
            "top" => return Ok(Self::Top),
            "0" => return Ok(Self::Off),
            _ => {}
        }
        let (number, unit) = match text.as_bytes().last() {
            Some(b'k' | b'K') => (&text[..text.len() - 1], 1e3),
            Some(b'M') => (&text[..text.len() - 1], 1e6),
            _ => (text, 1.0),
        };
        match number.parse::<f64>() {
            Ok(number) if (1.0..=2e8).contains(&(number * unit)) => Ok(Self::Rate(number * unit)),
            _ => {
                Err("a rate is 0, or 1 to 200M packets/s, such as 250000, 100k, 1.5M, or top"
                    .into())
            }
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.pad("0"),
            Self::Rate(rate) if *rate >= 1e6 => f.pad(&format!("{:.2} M", rate / 1e6)),
            Self::Rate(rate) if *rate >= 1e3 => f.pad(&format!("{:.0} k", rate / 1e3)),
            Self::Rate(rate) => f.pad(&format!("{rate:.0}")),
            Self::Top => f.pad("top"),
        }
    }
}

impl From<Load> for Value {
    fn from(load: Load) -> Self {
        match load {
            Load::Off => 0.into(),
            Load::Rate(rate) => rate.into(),
            Load::Top => "top".into(),
        }
    }
}

impl TryFrom<Value> for Load {
    type Error = &'static str;

    fn try_from(kept: Value) -> std::result::Result<Self, Self::Error> {
        match (kept.as_str(), kept.as_f64()) {
            (Some("top"), _) => Ok(Self::Top),
            (_, Some(0.0)) => Ok(Self::Off),
            (_, Some(rate)) if rate > 0.0 => Ok(Self::Rate(rate)),
            _ => Err("a load is a rate of 0 or more, or \"top\""),
        }
    }
}

/// Where every packet of a trial ended, in packets, from before its first until everything has drained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ledger {
    pub offered: u64,
    /// Refused by the full receive ring.
    pub nic_drop: u64,
    pub discarded: u64,
    /// Dropped between the driver and UDP: no memory for an skb, or a full backlog queue.
    pub late_backlog: u64,
    /// Dropped at a full socket, skb built (UDP `RcvbufErrors`).
    pub late_socket: u64,
    /// Any other drop of the UDP layer (`InErrors` that are not `RcvbufErrors`, `NoPorts`).
    pub late_other: u64,
    /// Received by applications, or by what else the experiment counts as the end.
    pub delivered: u64,
    /// Received by IP and not for UDP: TCP, ICMP, fragments, malformed, forwarded.
    pub beyond_udp: u64,
    /// In no counter: must be 0.
    pub unaccounted: i64,
}

impl Ledger {
    /// Dropped by the kernel after an skb was built.
    pub fn late(&self) -> u64 {
        self.late_backlog + self.late_socket + self.late_other
    }

    /// With what is in no counter.
    pub fn closed(mut self) -> Self {
        let ends = self.nic_drop + self.discarded + self.late() + self.delivered + self.beyond_udp;
        self.unaccounted = self.offered as i64 - ends as i64;
        self
    }
}

/// One measurement: which, and a flat row of declared metrics.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Trial {
    pub arm: String,
    pub case: String,
    pub load: Load,
    /// Which repeat, from 0: trials of one repeat stand together in time.
    pub repeat: u32,
    /// Figures by metric; absent: not measured, or nothing to measure it by.
    #[serde(flatten)]
    pub values: BTreeMap<String, f64>,
    /// Where every packet ended, in trials that count packets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ledger: Option<Ledger>,
}

impl Trial {
    /// One without a figure, the first of its repeats.
    pub fn of(arm: &str, case: &str, load: Load) -> Self {
        let (arm, case) = (arm.to_owned(), case.to_owned());
        Self { arm, case, load, repeat: 0, values: BTreeMap::new(), ledger: None }
    }

    pub fn get(&self, metric: &Metric) -> Option<f64> {
        self.values.get(metric.id).copied()
    }

    /// Sets a figure, if there is one.
    pub fn set(&mut self, metric: &Metric, value: Option<f64>) {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            self.values.insert(metric.id.to_owned(), rounded(value));
        }
    }
}

/// To six significant digits: no probe is more exact, and files stay small.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

/// What ran where in one arm, as read back from the kernel.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// CPU and context of the driver's poll, such as `CPU 1 at nice 19, NAPI thread`.
    pub driver_poll: String,
    /// CPU and context of the gate, or `none`.
    pub gate: String,
    /// CPU of the application, and its session.
    pub application: String,
    /// How the gate is attached: `none`, `native`, `generic` or `tc`.
    pub attach: String,
    pub gro: bool,
    pub tso: bool,
    /// Receive packet steering mask of the receiving interface, hexadecimal.
    pub rps_cpus: String,
    /// How many packets of this run a socket's buffer holds on this path, counted; absent where the
    /// generator sends nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_depth_packets: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rcvbuf_bytes: Option<u32>,
    /// `weir run` and its options, or `none`.
    pub daemon: String,
}

/// What made a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Head {
    pub schema: u32,
    pub experiment: String,
    pub weir_version: String,
    /// Commit that the lab was built from, or `unknown`.
    pub commit: String,
    pub uncommitted: bool,
    pub command: Vec<String>,
    /// When it began (RFC 3339).
    pub started_at: String,
    pub duration_s: f64,
    pub quick: bool,
    pub window_s: f64,
    /// Versions of the programs that nobody here wrote.
    pub programs: BTreeMap<String, String>,
    pub machine: Machine,
    pub setup: BTreeMap<String, Setup>,
}

/// A result.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    pub head: Head,
    /// The trials, in the order in which they ran.
    pub trials: Vec<Trial>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_as_people_write_them_and_as_kept() {
        for (text, load) in [
            ("0", Load::Off),
            ("100k", Load::Rate(1e5)),
            ("1.5M", Load::Rate(1.5e6)),
            ("250000", Load::Rate(2.5e5)),
            ("top", Load::Top),
        ] {
            assert_eq!(Load::parse(text), Ok(load));
            let kept = serde_json::to_string(&load).unwrap();
            assert_eq!(serde_json::from_str::<Load>(&kept).unwrap(), load);
        }
        for bad in ["", "k", "-1k", "0.5", "1G", "nan", "inf", "1e99"] {
            assert!(Load::parse(bad).is_err(), "{bad}");
        }
        assert!(serde_json::from_str::<Load>("-1").is_err());
        assert!(serde_json::from_str::<Load>("\"most\"").is_err());
    }

    #[test]
    fn a_ledger_tells_what_is_in_no_counter() {
        let ledger = Ledger { offered: 10, nic_drop: 3, delivered: 5, ..Ledger::default() };
        assert_eq!(ledger.closed().unaccounted, 2);
    }

    #[test]
    fn figures_keep_six_digits_and_only_finite_ones() {
        assert_eq!(rounded(123_456_789.0), 123_457_000.0);
        let mut trial = Trial::of("a", "c", Load::Top);
        trial.set(&crate::metric::m::steal, Some(f64::NAN));
        trial.set(&crate::metric::m::loss, None);
        assert!(trial.values.is_empty());
        trial.set(&crate::metric::m::loss, Some(0.25));
        assert_eq!(trial.get(&crate::metric::m::loss), Some(0.25));
    }
}
