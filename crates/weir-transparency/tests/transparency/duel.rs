//! The same case in two worlds, one with the gate and one without, and what differs.

use std::collections::BTreeMap;
use std::fmt;

use weir_bpf::attach::{AttachMode, DoNothing};
use weir_bpf::counters::Counters;
use weir_bpf::gate::{Gate, Policy};
use weir_bpf::probe::QueueProbe;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::local_table::LocalAddresses;
use weir_bpf::sys::sched;
use weir_bpf::units::MacAddr;
use weir_bpf::verdict::Defect;

use crate::frame::NEAR_MAC;
use crate::network::{NEAR_ADDRESSES, cpu, wait_until};
use crate::world::{Log, World};

/// Whether a case overloads somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queues {
    /// Nobody: what each application receives is the same, byte for byte, in the same order.
    Free,
    /// Some queues are full: whatever an application receives without weir, it receives with it.
    Full,
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
    mode: AttachMode,
    probe: QueueProbe,
}

impl Duel {
    pub fn new(mode: AttachMode) -> Self {
        let duel = Self::packet_by_packet(mode);
        if !mode.is_xdp() {
            for world in [&duel.with, &duel.without] {
                world.network.poll_without_xdp();
            }
        }
        duel
    }

    /// At tc, each packet is looked at when the one before it has arrived.
    pub fn packet_by_packet(mode: AttachMode) -> Self {
        // The order in which things happen is the order in which they are done.
        sched::pin_current_thread(cpu()).unwrap();
        let probe = QueueProbe::load().expect("the test needs root");
        let (with, without) = (World::new(), World::new());
        sched::set_fifo_current_thread(2).unwrap();
        let mut duel = Self { with, without, mode, probe };
        duel.set_defect(None);
        duel
    }

    /// Attaches the gate anew, with one of its rules broken or with none.
    pub fn set_defect(&mut self, defect: Option<Defect>) {
        self.with.gate = None;
        let gate = match defect {
            Some(defect) => Gate::load_with_defect(&self.probe, self.mode, defect),
            None => Gate::load(&self.probe, self.mode),
        };
        let mut gate = gate.unwrap();
        gate.configure(MacAddr(NEAR_MAC), Policy::On);
        let own = NEAR_ADDRESSES.map(|address| address.parse().unwrap()).to_vec();
        let broadcast = vec!["198.18.0.255".parse().unwrap()];
        gate.set_local(&LocalAddresses { own, broadcast, ..Default::default() }).unwrap();
        let ifindex = self.with.network.near_ifindex;
        self.with.near(|| gate.attach(ifindex, "near", self.mode).unwrap());
        self.with.network.poll_in_thread();
        self.with.gate = Some(gate);
    }

    /// Any XDP program at all changes what a veth charges for a packet. So, where the capacity of a queue
    /// matters, the world without weir gets one that does nothing.
    fn set_idle(&mut self, wanted: bool) {
        if wanted == self.without.idle.is_some() {
            return;
        }
        // It may take its time, where other processes want the CPU.
        self.without.idle = None;
        let ifindex = self.without.network.near_ifindex;
        let is_free = || Links::open().unwrap().xdp(ifindex).unwrap().is_none();
        wait_until("the last program has gone", || self.without.near(is_free));
        let idle = wanted.then(|| {
            let mut idle = DoNothing::load().unwrap();
            self.without.near(|| idle.attach(ifindex, "near", self.mode).unwrap());
            idle
        });
        self.without.idle = idle;
        self.without.network.poll_in_thread();
    }

    pub fn counters(&self) -> Counters {
        self.with.gate.as_ref().unwrap().counters().unwrap()
    }

    /// Runs a case in both worlds.
    pub fn run(&mut self, queues: Queues, case: impl Fn(&mut World)) -> Vec<Difference> {
        self.set_idle(queues == Queues::Full && self.mode.is_xdp());
        // One after the other: what the queue probe knows of a port, it knows of one world's.
        let log = |world: &mut World| {
            world.start_numbers();
            case(world);
            world.finish()
        };
        let (mut with, mut without) = (log(&mut self.with), log(&mut self.without));
        for world in [&mut self.with, &mut self.without] {
            for name in std::mem::take(&mut world.disregarded) {
                with.remove(name);
                without.remove(name);
            }
        }
        compare(queues, &with, &without)
    }
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
