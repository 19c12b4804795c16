//! The same case in two worlds, one with the gate and one without, and what differs.

use std::collections::BTreeMap;
use std::fmt;

use weir_bpf::counters::Counters;
use weir_bpf::gate::{AttachRequest, Gate, Policy, QueueProbe};
use weir_bpf::sys::sched;
use weir_bpf::units::MacAddr;
use weir_bpf::verdict::Defect;

use crate::frame::NEAR_MAC;
use crate::network::{NEAR_ADDRESSES, cpu};
use crate::world::{Log, World};

/// Whether a case overloads somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queues {
    /// Nobody: what each application receives is the same, byte for byte, in the same order.
    Free,
    /// Some queues are full: whatever an application receives without weir, it receives with it.
    Full,
}

/// Where the gate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Native,
    Generic,
}

impl Mode {
    fn request(self) -> AttachRequest {
        match self {
            Self::Native => AttachRequest::Native,
            Self::Generic => AttachRequest::Generic,
        }
    }

    /// Any XDP program at all changes what a veth charges for a packet, so the world without weir gets a
    /// program that does nothing where a queue's capacity matters.
    fn changes_charges(self) -> bool {
        true
    }
}

/// What one application received with weir, and did not without it, or the other way round.
#[derive(Debug)]
pub struct Difference {
    pub application: &'static str,
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.application, self.what)
    }
}

pub struct Duel {
    pub with: World,
    pub without: World,
    mode: Mode,
    gate: Option<Gate>,
    idle: Option<Gate>,
    probe: QueueProbe,
}

impl Duel {
    pub fn new(mode: Mode) -> Self {
        // The order in which things happen is the order in which they are done.
        sched::pin_current_thread(cpu()).unwrap();
        let probe = QueueProbe::load().expect("the test needs root");
        let (with, without) = (World::new(), World::new());
        sched::set_fifo_current_thread(2).unwrap();
        let mut duel = Self { with, without, mode, gate: None, idle: None, probe };
        duel.set_defect(None);
        duel
    }

    /// Attaches the gate anew, with one of its rules broken or with none.
    pub fn set_defect(&mut self, defect: Option<Defect>) {
        self.gate = None;
        let gate = match defect {
            Some(defect) => Gate::load_with_defect(&self.probe, defect),
            None => Gate::load(&self.probe),
        };
        self.gate = Some(attach(&self.with, gate.unwrap(), self.mode, Policy::On));
    }

    fn set_idle(&mut self, wanted: bool) {
        if wanted == self.idle.is_some() {
            return;
        }
        if wanted {
            let gate = Gate::load(&self.probe).unwrap();
            self.idle = Some(attach(&self.without, gate, self.mode, Policy::Off));
        } else {
            self.idle = None;
            self.without.network.poll_in_thread();
        }
    }

    pub fn counters(&self) -> Counters {
        self.gate.as_ref().unwrap().counters().unwrap()
    }

    /// Tells the gate that something may divert packets.
    pub fn gate(&mut self) -> &mut Gate {
        self.gate.as_mut().unwrap()
    }

    /// Runs a case in both worlds.
    pub fn run(&mut self, queues: Queues, case: impl Fn(&mut World)) -> Vec<Difference> {
        self.set_idle(queues == Queues::Full && self.mode.changes_charges());
        // One after the other: what the queue probe knows of a port, it knows of one world's.
        let log = |world: &mut World| {
            world.start_numbers();
            case(world);
            world.finish()
        };
        compare(queues, &log(&mut self.with), &log(&mut self.without))
    }
}

fn attach(world: &World, mut gate: Gate, mode: Mode, policy: Policy) -> Gate {
    gate.configure(MacAddr(NEAR_MAC), policy);
    let own = NEAR_ADDRESSES.map(|address| address.parse().unwrap());
    gate.set_addresses(&own, &["198.18.0.255".parse().unwrap()]).unwrap();
    world.near(|| gate.attach(world.network.near_ifindex, "near", mode.request()).unwrap());
    world.network.poll_in_thread();
    gate
}

type Logs = BTreeMap<&'static str, Log>;

fn compare(queues: Queues, with: &Logs, without: &Logs) -> Vec<Difference> {
    let mut names: Vec<_> = with.keys().chain(without.keys()).copied().collect();
    names.sort_unstable();
    names.dedup();
    let of = |logs: &'_ Logs, name| logs.get(name).cloned().unwrap_or_default();
    let mut differences = Vec::new();
    for name in names {
        let (with, without) = (of(with, name), of(without, name));
        if with == without {
            continue;
        }
        let missing = beyond(&without, &with);
        let more = beyond(&with, &without);
        let what = match queues {
            Queues::Full if missing.is_empty() => continue,
            _ if missing.is_empty() && more.is_empty() => "in another order".to_owned(),
            _ => format!(
                "{} received without weir, {} with it; {} missing: {}; {} more: {}",
                without.len(),
                with.len(),
                missing.len(),
                show(&missing),
                more.len(),
                show(&more)
            ),
        };
        differences.push(Difference { application: name, what });
    }
    differences
}

/// Entries of one log that are not in the other, as often.
fn beyond(log: &Log, other: &Log) -> Log {
    let mut other = other.clone();
    let mut rest = Log::new();
    for entry in log {
        match other.iter().position(|known| known == entry) {
            Some(at) => drop(other.remove(at)),
            None => rest.push(entry.clone()),
        }
    }
    rest
}

fn show(log: &Log) -> String {
    let first = |entry: &Vec<u8>| entry[..entry.len().min(40)].escape_ascii().to_string();
    log.iter().take(2).map(first).collect::<Vec<_>>().join(", ")
}
