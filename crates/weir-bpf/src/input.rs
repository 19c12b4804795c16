//! What network input costs the CPU that a NAPI thread runs on, and whom: `bpf/input.bpf.c`.

use std::mem::{MaybeUninit, offset_of};
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, Skel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, RingBuffer, RingBufferBuilder};
use rustix::process::Pid;

use crate::accounts::Accounts;
use crate::error::{Error, LOAD_REMEDY, Result};
use crate::gate::QueueProbe;
use crate::mapped::Mapped;
use crate::skeleton::input::{InputSkel, InputSkelBuilder, types};
use crate::sys::sched;
use crate::units::{CpuId, Nanos};

/// How many NAPI threads can be governed at once. `WEIR_INPUTS` in `bpf/abi.h`.
pub const INPUTS_MAX: usize = 64;
/// `WEIR_BATCH_PART` in `bpf/abi.h`.
const BATCH_PART: u64 = 4;

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
    /// Of it, past the timeout each time that it waited, or past a quarter of that with no consumer
    /// runnable.
    pub stalled: Nanos,
    /// Strangers' time on its CPU.
    pub strangers: Nanos,
    /// What they would have had of the time in which they were runnable, had all that were runnable had the same.
    pub entitled: Nanos,
    /// How long that CPU has been idle.
    pub idle: Nanos,
    /// How long somebody has waited for it.
    pub crowded: Nanos,
    /// How long it was runnable and did not run, beyond 0.5 ms each time (`WEIR_LATE_NS` in `bpf/abi.h`); not
    /// yet for as long as it waits.
    pub late: Nanos,
    /// Packets that it has taken from the ring.
    pub packets: u64,
    /// Of them, discarded.
    pub discarded: u64,
    /// Of those, because their channels were over their share of the CPU.
    pub shed: u64,
    /// Packets of other channels that were admitted meanwhile.
    pub beside: u64,
    /// Polls that found as much as a small ring holds: it may have overflowed.
    pub overruns: u32,
    /// Of these, those whose last poll admitted packets of several channels.
    pub mixed: u32,
    /// Of these, those that found some more (`WEIR_CONTENDED_POLLS` in `bpf/abi.h`).
    pub contended: u32,
    /// What discarding one packet has cost of late, driver included; none if none was.
    pub discard_cost: Option<Nanos>,
}

/// The scheduler's tracepoints, watched for up to [`INPUTS_MAX`] NAPI threads.
pub struct Inputs {
    _skel: InputSkel<'static>,
    shared: Arc<Shared>,
    news: MapHandle,
}

impl Inputs {
    /// Loads and attaches the programs; nothing is watched yet.
    ///
    /// # Errors
    /// Without the privilege, or on a kernel that lacks one of the tracepoints.
    pub fn load(probe: &QueueProbe) -> Result<Self> {
        let storage = Box::leak(Box::new(MaybeUninit::uninit()));
        let mut open = InputSkelBuilder::default().open(storage).map_err(failed("open"))?;
        let cpus = sched::online_cpus()?.last().map_or(0, |last| last.0) + 1;
        open.maps.cpus.set_max_entries(cpus).map_err(failed("size"))?;
        if let Some(bss) = open.maps.bss_data.as_deref_mut() {
            bss.own_tgid = std::process::id();
        }
        let polls = &probe.maps().napi_polls;
        open.maps.napi_polls.reuse_fd(polls.as_fd()).map_err(failed("share"))?;
        let accounts = &probe.maps().accounts;
        open.maps.accounts.reuse_fd(accounts.as_fd()).map_err(failed("share"))?;
        let mut skel = open.load().map_err(failed("load"))?;
        let clone = |map: &libbpf_rs::Map<'_>| MapHandle::try_from(map).map_err(failed("share"));
        let shared = Shared {
            cpus: Mapped::of(skel.maps.cpus.as_fd(), cpus as usize)?,
            inputs: Mapped::of(skel.maps.inputs.as_fd(), INPUTS_MAX)?,
            accounts: Accounts::of(skel.maps.accounts.as_fd(), cpus)?,
            numbers: clone(&skel.maps.input_of_thread)?,
            free: Mutex::new((0..INPUTS_MAX as u32).rev().collect()),
        };
        let news = clone(&skel.maps.news)?;
        skel.attach().map_err(failed("attach"))?;
        Ok(Self { _skel: skel, shared: Arc::new(shared), news })
    }

    /// Watches a NAPI thread until the answer is dropped. `timeout` is how long it may be kept waiting
    /// while consumers have work before that counts as stalled.
    ///
    /// # Errors
    /// [`Error::Refused`] if [`INPUTS_MAX`] are watched already.
    pub fn watch(&self, thread: Pid, timeout: Nanos) -> Result<Input> {
        let taken = self.shared.free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let number = taken.ok_or_else(|| Error::Refused {
            problem: format!("{INPUTS_MAX} NAPI threads are governed already"),
            remedy: "give interfaces fewer queues: `ethtool -L`".into(),
        })?;
        // From here on dropping it gives the place back.
        let input = Input { number, thread, shared: Arc::clone(&self.shared) };
        self.shared.inputs.write(number, types::weir_input::default());
        input.set_timeout(timeout);
        let key = thread.as_raw_nonzero().get().to_ne_bytes();
        self.shared
            .numbers
            .update(&key, &number.to_ne_bytes(), MapFlags::ANY)
            .map_err(failed("watch a NAPI thread with"))?;
        Ok(input)
    }

    /// Where news arrives of inputs that were armed.
    ///
    /// # Errors
    /// For want of memory.
    pub fn news(&self) -> Result<News> {
        let numbers = Arc::new(Mutex::new(Vec::new()));
        let into = Arc::clone(&numbers);
        let mut builder = RingBufferBuilder::new();
        builder
            .add(&self.news, move |bytes| {
                if let Ok(number) = bytes.try_into().map(u32::from_ne_bytes) {
                    into.lock().unwrap_or_else(PoisonError::into_inner).push(number);
                }
                0
            })
            .map_err(failed("listen to"))?;
        Ok(News { ring: builder.build().map_err(failed("listen to"))?, numbers })
    }
}

/// What the tracepoints tell at once.
pub struct News {
    ring: RingBuffer<'static>,
    numbers: Arc<Mutex<Vec<u32>>>,
}

impl News {
    /// Waits, so long at most, to the next whole millisecond, and says of which inputs there is news
    /// ([`Input::number`]).
    ///
    /// # Errors
    /// When the kernel refuses to wait; not for a signal.
    pub fn wait(&mut self, most: Duration) -> Result<Vec<u32>> {
        // The library waits for whole milliseconds, and cuts off the rest: not at all for less than one.
        match self.ring.poll(whole_millis(most)) {
            Err(error) if error.kind() != libbpf_rs::ErrorKind::Interrupted => {
                return Err(failed("listen to")(error));
            }
            _ => {}
        }
        Ok(std::mem::take(&mut *self.numbers.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// At least so long, in whole milliseconds.
fn whole_millis(time: Duration) -> Duration {
    Duration::from_millis(u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
}

/// A NAPI thread that is watched, until this is dropped.
pub struct Input {
    number: u32,
    thread: Pid,
    shared: Arc<Shared>,
}

impl Input {
    /// Which it is, in [`News`].
    pub fn number(&self) -> u32 {
        self.number
    }

    /// What has happened until now. Not one instant: the thread may run meanwhile.
    pub fn read(&self) -> InputCounters {
        let input = self.shared.inputs.read(self.number);
        let cpu = self.shared.cpus.read(input.cpu);
        let (mut held, mut stalled) = (input.held_ns, input.stalled_ns);
        // It waits: that much of it has happened by now.
        if input.waiting != 0 {
            let now = cpu.stranger_ns.saturating_sub(input.stranger_then_ns);
            let alone = cpu.alone_ns.saturating_sub(input.alone_then_ns);
            held += now;
            stalled += alone.saturating_sub(input.timeout_ns / BATCH_PART)
                + now.saturating_sub(alone).saturating_sub(input.timeout_ns);
        }
        let discard_cost = input.vain_ns.checked_div(input.vain_packets);
        InputCounters {
            ran: Nanos(input.ran_ns),
            taken: Nanos(input.taken_ns),
            intruded: input.intruded,
            woken: input.woken,
            wasted: Nanos(input.wasted_ns),
            held: Nanos(held),
            stalled: Nanos(stalled),
            strangers: Nanos(cpu.stranger_ns),
            entitled: Nanos(cpu.entitled_ns),
            idle: Nanos(cpu.idle_ns),
            crowded: Nanos(cpu.crowded_ns),
            late: Nanos(input.late_ns),
            packets: input.packets,
            discarded: input.discarded,
            shed: input.shed,
            beside: input.beside,
            overruns: input.overruns,
            mixed: input.mixed,
            contended: input.contended,
            discard_cost: discard_cost.map(Nanos),
        }
    }

    /// What the packets of each channel cost, on every CPU.
    pub fn accounts(&self) -> &Accounts {
        &self.shared.accounts
    }

    /// Where it runs, or last ran.
    pub fn cpu(&self) -> CpuId {
        CpuId(self.shared.inputs.read(self.number).cpu)
    }

    /// Asks to be told, once, when a stranger holds it or another channel is live beside one that is
    /// full.
    pub fn arm(&self) {
        let armed = offset_of!(types::weir_input, armed);
        self.shared.inputs.set(self.number, armed, 1_u32);
    }

    /// Sets how long it may be kept waiting before that counts as stalled.
    pub fn set_timeout(&self, timeout: Nanos) {
        let at = offset_of!(types::weir_input, timeout_ns);
        self.shared.inputs.set(self.number, at, timeout.0);
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        // Fails only if it is not there, and a thread's end takes nothing away that was.
        let _ = self.shared.numbers.delete(&self.thread.as_raw_nonzero().get().to_ne_bytes());
        self.shared.discount(self.number);
        self.shared.free.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
    }
}

/// What the handles of one load have in common.
struct Shared {
    cpus: Mapped<types::weir_cpu>,
    inputs: Mapped<types::weir_input>,
    accounts: Accounts,
    numbers: MapHandle,
    free: Mutex<Vec<u32>>,
}

impl Shared {
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

fn failed(operation: &'static str) -> impl Fn(libbpf_rs::Error) -> Error {
    move |source| Error::Bpf {
        operation,
        object: "the governor's tracepoints".into(),
        source,
        remedy: Some(LOAD_REMEDY.into()),
    }
}
