//! What network input costs the CPU that a NAPI thread runs on, and whom: `bpf/input.bpf.c`. And what it has refused,
//! where that wakes the gates: `bpf/refusals.h`.

use std::collections::BTreeSet;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::{Arc, Mutex};

use libbpf_rs::btf::Btf;
use libbpf_rs::btf::types::{Enum, Typedef};
use libbpf_rs::skel::OpenSkel;
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, num_possible_cpus};
use rustix::process::Pid;

use crate::abi;
use crate::accounts::Accounts;
use crate::error::{Error, Result};
use crate::mapped::Mapped;
use crate::object::{attach_all, globals, hear, load};
use crate::probe::{QueueProbe, share};
use crate::skeleton::input::{InputSkel, InputSkelBuilder, types};
use crate::sync::lock;
use crate::sys::stat::Stat;
use crate::units::{CpuId, Nanos, Permille};

/// The CPU that a thread last ran on, in `/proc/PID/stat` (proc_pid_stat(5)).
const PROCESSOR: usize = 39;
/// The only place of a map that has one.
const FIRST: [u8; 4] = 0_u32.to_ne_bytes();
const TRACEPOINTS: &str = "the governor's tracepoints";

/// What is known of one NAPI thread since it is watched. Times only grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InputCounters {
    /// Its CPU time.
    pub ran: Nanos,
    /// Of it, while a stranger, a process that input does not wake, waited for the same CPU.
    pub taken: Nanos,
    /// How often that began.
    pub intruded: u64,
    /// Of it, because the thread was woken, not because its turn came.
    pub woken: u64,
    /// Of it, for packets that the gate discarded.
    pub wasted: Nanos,
    /// How long it was runnable and a stranger ran.
    pub held: Nanos,
    /// Strangers' time on its CPU.
    pub strangers: Nanos,
    /// How long that CPU has been idle.
    pub idle: Nanos,
    /// Of it, how long processes ran that hardly weigh anything.
    pub light: Nanos,
    /// How long processes that input wakes ran, where for more than a millisecond one or another was runnable.
    pub busy: Nanos,
    /// How long somebody has waited for it.
    pub crowded: Nanos,
    /// Packets that it has taken from the ring.
    pub packets: u64,
    /// Of them, discarded.
    pub discarded: u64,
    /// Packets of other channels that were admitted meanwhile.
    pub beside: u64,
    /// Polls that found as much as a small ring holds: it may have overflowed.
    pub overruns: u32,
    /// Of these, those that go on, and whose last poll admitted packets of several channels
    /// (`WEIR_CONTENDED_POLLS` in `bpf/abi/`).
    pub contended: u32,
    /// What discarding one packet has cost of late, driver included; none if none was.
    pub discard_cost: Option<Nanos>,
    /// How often it was found to wait long, while nobody watched.
    pub waits: u32,
    /// How often it was found to be over its share, or its ring full again and again, while nobody watched.
    pub over: u32,
    /// Where it runs, or last ran.
    pub cpu: CpuId,
}

impl InputCounters {
    /// As an earlier reading to compare a later one with: another CPU's times are no measure for this one's.
    #[must_use]
    pub fn before(self, later: &Self) -> Self {
        if self.cpu == later.cpu {
            return self;
        }
        let Self { strangers, idle, light, busy, crowded, cpu, .. } = *later;
        Self { strangers, idle, light, busy, crowded, cpu, ..self }
    }
}

/// The scheduler's tracepoints, watched for up to [`abi::INPUTS`] NAPI threads while one of them wants that.
pub struct Inputs {
    shared: Arc<Shared>,
}

impl Inputs {
    /// Loads the programs; nothing is watched yet.
    ///
    /// # Errors
    /// Without the privilege, or on a kernel that lacks one of the tracepoints.
    pub fn load(probe: &QueueProbe) -> Result<Self> {
        let cpus =
            num_possible_cpus().map_err(Error::bpf("count the CPUs for", TRACEPOINTS))? as u32;
        let skel = load::<InputSkelBuilder>(TRACEPOINTS, |open| {
            open.maps.cpus.set_max_entries(cpus)?;
            globals(open.maps.bss_data.as_deref_mut()).own_tgid = std::process::id();
            let rodata = globals(open.maps.rodata_data.as_deref_mut());
            let btf = Btf::from_vmlinux()?;
            // Before Linux 6.3 nothing tells who takes packets from sockets.
            let tells_receptions =
                btf.type_by_name::<Typedef<'_>>("btf_trace_sock_recv_length").is_some();
            open.progs.weir_received.set_autoload(tells_receptions);
            [rodata.syn_cookies_sent, rodata.listen_drops, rodata.backlog_drops] = places(
                &btf,
                ["LINUX_MIB_SYNCOOKIESSENT", "LINUX_MIB_LISTENDROPS", "LINUX_MIB_TCPBACKLOGDROP"],
            );
            share!(open, probe);
            Ok(())
        })?;
        let numbers = MapHandle::try_from(&skel.maps.input_of_thread)
            .map_err(Error::bpf("share", TRACEPOINTS))?;
        let at_poll_end = MapHandle::try_from(&probe.maps().at_poll_end)
            .map_err(Error::bpf("share", TRACEPOINTS))?;
        let shared = Shared {
            cpus: Mapped::of(skel.maps.cpus.as_fd(), cpus as usize)?,
            inputs: Mapped::of(skel.maps.inputs.as_fd(), abi::INPUTS)?,
            strains: Mapped::of(skel.maps.strains.as_fd(), abi::INPUTS)?,
            accounts: Accounts::of(skel.maps.accounts.as_fd(), cpus)?,
            numbers,
            free: Mutex::new((0..abi::INPUTS as u32).rev().collect()),
            watch: Mutex::new(Watch {
                skel,
                at_poll_end,
                wanted_by: BTreeSet::new(),
                links: vec![],
                receptions_wanted_by: BTreeSet::new(),
                receptions: None,
            }),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// A NAPI thread, until the answer is dropped. It is not watched yet ([`Input::watch`]).
    ///
    /// # Errors
    /// [`Error::Refused`] if there are [`abi::INPUTS`] already.
    pub fn add(&self, thread: Pid) -> Result<Input> {
        let taken = lock(&self.shared.free).pop();
        let number = taken.ok_or_else(|| {
            Error::refused(
                format!("{} NAPI threads are governed already", abi::INPUTS),
                "give interfaces fewer queues: `ethtool -L`",
            )
        })?;
        // From here on dropping it gives the place back.
        let input = Input { number, thread, shared: Arc::clone(&self.shared) };
        // Where it ran last: the kernel half tells only while somebody is watched.
        let stat = Stat::read(&format!("/proc/{}/stat", thread.as_raw_nonzero()));
        let cpu = stat.and_then(|stat| stat.field(PROCESSOR)).unwrap_or_default();
        self.shared.inputs.write(number, types::weir_input { cpu, ..Default::default() });
        let key = thread.as_raw_nonzero().get().to_ne_bytes();
        let noted = self.shared.numbers.update(&key, &number.to_ne_bytes(), MapFlags::ANY);
        noted.map_err(Error::bpf("watch a NAPI thread with", TRACEPOINTS))?;
        lock(&self.shared.watch).hear_polls(true)?;
        Ok(input)
    }
}

/// The programs, attached while somebody wants it: while nothing is wrong they cost nothing.
struct Watch {
    skel: InputSkel<'static>,
    /// What is done where each poll ends, as long as there is a thread to wake the governor for.
    at_poll_end: MapHandle,
    wanted_by: BTreeSet<u32>,
    links: Vec<Link>,
    receptions_wanted_by: BTreeSet<u32>,
    /// Of the tracepoint that each reception of a packet passes.
    receptions: Option<Link>,
}

impl Watch {
    fn hear_polls(&self, wanted: bool) -> Result<()> {
        let program = self.skel.progs.weir_polled.as_fd().as_raw_fd().to_ne_bytes();
        let done = match wanted {
            true => self.at_poll_end.update(&FIRST, &program, MapFlags::ANY),
            false => self.at_poll_end.delete(&FIRST),
        };
        done.map_err(Error::bpf("attach", TRACEPOINTS))
    }

    fn attach(&mut self) -> Result<()> {
        let progs = &self.skel.progs;
        // Who is woken, and by whom, before who runs.
        let all = [&progs.weir_waking, &progs.weir_wakeup, &progs.weir_migrate, &progs.weir_switch];
        self.links = attach_all(TRACEPOINTS, all)?;
        globals(self.skel.maps.bss_data.as_deref_mut()).watched = 1;
        Ok(())
    }

    fn attach_receptions(&mut self) -> Result<()> {
        let received = &self.skel.progs.weir_received;
        if received.autoload() && hear(&mut self.receptions, received, true, TRACEPOINTS)? {
            let bss = globals(self.skel.maps.bss_data.as_deref_mut());
            bss.receptions = bss.receptions.wrapping_add(1);
            bss.receptions_unseen = 0;
        }
        Ok(())
    }

    fn detach_receptions(&mut self) {
        if self.receptions.is_some() {
            globals(self.skel.maps.bss_data.as_deref_mut()).receptions_unseen = 1;
            self.receptions = None;
        }
    }

    fn detach(&mut self) {
        globals(self.skel.maps.bss_data.as_deref_mut()).watched = 0;
        self.detach_receptions();
        self.links.clear();
    }
}

/// A NAPI thread that is watched, until this is dropped.
pub struct Input {
    number: u32,
    thread: Pid,
    shared: Arc<Shared>,
}

impl Input {
    /// Which it is.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Watches it, from now on or no more. Counters stand still while nobody is watched.
    ///
    /// # Errors
    /// When the kernel refuses a tracepoint.
    pub fn watch(&self, wanted: bool) -> Result<()> {
        let mut watch = lock(&self.shared.watch);
        if !wanted {
            watch.wanted_by.remove(&self.number);
            watch.receptions_wanted_by.remove(&self.number);
            if watch.wanted_by.is_empty() {
                watch.detach();
            }
            return Ok(());
        }
        watch.wanted_by.insert(self.number);
        watch.receptions_wanted_by.insert(self.number);
        if !watch.links.is_empty() {
            return watch.attach_receptions();
        }
        // Of an earlier time nothing is known to be as it was.
        let bss = globals(watch.skel.maps.bss_data.as_deref_mut());
        bss.watch = bss.watch.wrapping_add(1);
        self.shared.forget_the_present();
        let attached = watch.attach_receptions().and_then(|()| watch.attach());
        if attached.is_err() {
            watch.detach();
        }
        attached
    }

    /// Whether it matters to this input, while it is watched, who takes packets from sockets. While it does to none,
    /// whoever did still does.
    ///
    /// # Errors
    /// When the kernel refuses the tracepoint.
    pub fn watch_receptions(&self, wanted: bool) -> Result<()> {
        let mut watch = lock(&self.shared.watch);
        if wanted {
            watch.receptions_wanted_by.insert(self.number);
            return watch.attach_receptions();
        }
        watch.receptions_wanted_by.remove(&self.number);
        if watch.receptions_wanted_by.is_empty() {
            watch.detach_receptions();
        }
        Ok(())
    }

    /// Has its alarm rung ([`Cause::CpuWait`], [`Cause::CpuShare`]) when it waits for a turn for longer than that, or
    /// has more than this share of its CPU, or a ring that is full again and again, while others want the CPU, each once a
    /// second at most; `None`: no more.
    ///
    /// [`Cause::CpuWait`]: crate::verdict::Cause::CpuWait
    /// [`Cause::CpuShare`]: crate::verdict::Cause::CpuShare
    pub fn alarm(&self, bounds: Option<(Nanos, f64)>) {
        let (wait, share) = bounds.unwrap_or_default();
        let set = |offset, value: u64| self.shared.strains.set(self.number, offset, value);
        // Field by field, as the kernel half goes on counting in the others; what has been before is no matter.
        set(offset_of!(types::weir_strain, seen_ns), 0);
        set(offset_of!(types::weir_strain, share), Permille::of(share).0.into());
        set(offset_of!(types::weir_strain, wait_ns), wait.0);
    }

    /// What has happened until now. Not one instant: the thread may run meanwhile.
    pub fn read(&self) -> InputCounters {
        let input = self.shared.inputs.read(self.number);
        let cpu = self.shared.cpus.read(input.cpu);
        let mut held = input.held_ns;
        // It waits: that much of it has happened by now.
        if input.waiting != 0 {
            held += cpu.stranger_ns.saturating_sub(input.stranger_then_ns);
        }
        let discard_cost = input.vain_ns.checked_div(input.vain_packets);
        let strain = self.shared.strains.read(self.number);
        InputCounters {
            ran: Nanos(input.ran_ns),
            taken: Nanos(input.taken_ns),
            intruded: input.intruded,
            woken: input.woken,
            wasted: Nanos(input.wasted_ns),
            held: Nanos(held),
            strangers: Nanos(cpu.stranger_ns),
            idle: Nanos(cpu.idle_ns),
            light: Nanos(cpu.light_ns),
            busy: Nanos(cpu.busy_ns),
            crowded: Nanos(cpu.crowded_ns),
            packets: input.packets,
            discarded: input.discarded,
            beside: input.beside,
            overruns: input.overruns,
            contended: input.contended,
            discard_cost: discard_cost.map(Nanos),
            waits: strain.waits,
            over: strain.over,
            cpu: CpuId(input.cpu),
        }
    }

    /// What the packets of each channel cost, on every CPU.
    pub fn accounts(&self) -> &Accounts {
        &self.shared.accounts
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        // Taking programs away is not refused.
        let _ = self.watch(false);
        // Fails only if it is not there, and a thread's end takes nothing away that was.
        let _ = self.shared.numbers.delete(&self.thread.as_raw_nonzero().get().to_ne_bytes());
        self.shared.discount(self.number);
        let mut free = lock(&self.shared.free);
        free.push(self.number);
        if free.len() == abi::INPUTS {
            // Nothing is done there for no thread.
            let _ = lock(&self.shared.watch).hear_polls(false);
        }
    }
}

/// What the handles of one load have in common.
struct Shared {
    cpus: Mapped<types::weir_cpu>,
    inputs: Mapped<types::weir_input>,
    strains: Mapped<types::weir_strain>,
    accounts: Accounts,
    numbers: MapHandle,
    free: Mutex<Vec<u32>>,
    watch: Mutex<Watch>,
}

impl Shared {
    /// Nobody is known to run or to wait, anywhere; what has been counted stays.
    fn forget_the_present(&self) {
        for number in 0..abi::INPUTS as u32 {
            let input = self.inputs.read(number);
            let forgotten = types::weir_input {
                waiting: 0,
                polled_ns: 0,
                carried_ns: 0,
                full_polls: 0,
                ..input
            };
            self.inputs.write(number, forgotten);
        }
        for number in 0..self.cpus.len() {
            let types::weir_cpu { stranger_ns, crowded_ns, idle_ns, light_ns, busy_ns, .. } =
                self.cpus.read(number);
            let forgotten = types::weir_cpu {
                stranger_ns,
                crowded_ns,
                idle_ns,
                light_ns,
                busy_ns,
                ..Default::default()
            };
            self.cpus.write(number, forgotten);
        }
    }

    /// An input that was let go is counted on no CPU any more.
    fn discount(&self, number: u32) {
        let input = self.inputs.read(number);
        if input.waiting != 0 {
            self.cpus.decrement(input.cpu, offset_of!(types::weir_cpu, waiting));
        }
        if input.polled_ns != 0 {
            self.cpus.decrement(input.home, offset_of!(types::weir_cpu, inputs));
        }
    }
}

/// Values of the kernel's enumerators, which may have none of the names: 0 then.
fn places<const N: usize>(btf: &Btf<'_>, names: [&str; N]) -> [u32; N] {
    let mut places = [0; N];
    for enumerators in btf.type_by_kind::<Enum<'_>>() {
        for one in enumerators.iter() {
            let name = names.iter().position(|name| one.name == Some(name.as_ref()));
            if let Some(at) = name {
                places[at] = u32::try_from(one.value).unwrap_or(0);
            }
        }
    }
    places
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_times_of_two_cpus_are_not_compared() {
        let seconds = |number: u64| Nanos(number * 1_000_000_000);
        let of = |cpu, strangers| InputCounters {
            strangers: seconds(strangers),
            ran: seconds(1),
            cpu: CpuId(cpu),
            ..Default::default()
        };
        assert_eq!(of(0, 2).before(&of(0, 3)), of(0, 2));
        assert_eq!(of(0, 2).before(&of(1, 5)), of(1, 5));
    }
}
