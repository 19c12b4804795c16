//! What a configuration wants of an interface and its NAPI threads.

use std::fmt;

use serde::{Deserialize, Serialize};
use weir_bpf::cpulist::CpuList;
use weir_bpf::gate::Policy;
use weir_bpf::units::Nice;

use crate::choice::{Attach, Napi};

/// What to do on an interface.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where the gate goes.
    pub attach: Attach,
    /// Whether it discards.
    pub policy: Policy,
    /// Whether receive packet steering is switched off.
    pub rps_off: bool,
    /// What the governor goes by.
    pub governor: weir_policy::Settings,
    /// Whether heavy sources are shed before light ones.
    pub selective: bool,
    /// Whether the gate answers connection requests by SYN cookie.
    pub syn_cookies: bool,
    /// TCP ports of the protected class.
    pub protected_ports: Vec<u16>,
    /// Who is to poll NAPI.
    pub napi: Napi,
    /// Whether the fast path forwards.
    pub forward: bool,
    /// What NAPI threads are to be like.
    pub threads: ThreadSettings,
}

impl Settings {
    /// Whether the governor is to move the threads' weight, or to wake gates where softirqs poll.
    pub fn want_governor(&self) -> bool {
        let limited = self.napi != Napi::Threads && self.policy == Policy::On;
        limited || self.threads.weight == ThreadWeight::Governed
    }
}

/// What weight NAPI threads are given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ThreadWeight {
    /// None: it is left alone.
    Untouched,
    /// The same at all times.
    Fixed(Nice),
    /// What the governor decides.
    Governed,
}

impl ThreadWeight {
    /// The weight that threads keep, if that is weir's to say.
    pub fn fixed(self) -> Option<Nice> {
        match self {
            Self::Fixed(nice) => Some(nice),
            Self::Untouched | Self::Governed => None,
        }
    }

    /// What a new thread is set to.
    pub fn at_first(self) -> Option<Nice> {
        match self {
            Self::Untouched => None,
            Self::Fixed(nice) => Some(nice),
            Self::Governed => Some(Nice::NORMAL),
        }
    }
}

impl fmt::Display for ThreadWeight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Untouched => f.write_str("weight left alone"),
            Self::Fixed(nice) => write!(f, "nice {nice}"),
            Self::Governed => f.write_str("governed"),
        }
    }
}

/// What NAPI threads are to be like.
#[derive(Clone, Debug)]
pub struct ThreadSettings {
    /// Their weight.
    pub weight: ThreadWeight,
    /// Where they may run; `None` leaves alone.
    pub cpus: Option<CpuList>,
}

impl ThreadSettings {
    /// What there is to say about them where no thread polls.
    pub fn unused(&self) -> impl Iterator<Item = String> {
        let nice = self.weight.fixed().map(|_| "--nice");
        let cpus = self.cpus.as_ref().map(|_| "--cpus");
        let options = nice.into_iter().chain(cpus);
        options.map(|option| format!("`{option}` has no effect: no thread polls this interface"))
    }
}
