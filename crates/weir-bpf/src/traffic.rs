//! The lab's load generator: `bpf/traffic.bpf.c` run on live frames.
//!
//! One CPU writes packets with `BPF_PROG_TEST_RUN` and redirects them into a veth, millions per
//! second. Rates hold without sleeping: the program compares the clock with its schedule. The
//! receiver's ring is looked at before a packet is handed over: what finds it full ends here, at no
//! cost to the receiver, as in a NIC.

mod payloads;
mod spec;
mod template;

use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, BorrowedFd};

use libbpf_rs::{Link, libbpf_sys};

use crate::abi;
use crate::accounts::monotonic_now;
use crate::attach::{AttachMode, Attachment, by_link};
use crate::error::{Error, Result};
use crate::mapped::Mapped;
use crate::object::{globals, load};
use crate::skeleton::traffic::TrafficSkelBuilder;
use crate::skeleton::traffic::types::{bss as Globals, weir_traffic_flow as Flow};
use crate::sys::link::Links;
use crate::sys::netns::NetNs;
use crate::sys::sched;
use crate::test_run;
use crate::units::{CpuId, IfIndex, Nice};

use self::spec::{ETHERNET_LEN, refused};
pub use self::spec::{Flaw, FlowSpec, Lengths, STAMP_LEN, Sources, Stamp, Transport};

/// Runs per system call, each of up to 32 looks at the clock. What ends the load ends the call, too.
const RUNS_PER_CALL: i32 = 1 << 17;
/// Packets between two flushes of redirected frames: what is due waits for at most as many.
const RUNS_PER_BATCH: u32 = 64;

const GENERATOR: &str = "the traffic generator";

/// Packets per flow since the flows were last set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlowCounts {
    /// Handed to the generator's device.
    pub sent: u64,
    /// Due while the receiver's ring was full, and not handed over. They have numbers among those sent.
    pub refused: u64,
    /// Fell due while the generator's CPU was elsewhere, and were not sent.
    pub missed: u64,
}

/// A veth pair that nothing ever passes. Running a program that is attached nowhere costs milliseconds
/// per call: the kernel's XDP dispatcher is rebuilt each time.
fn make_spare() -> Result<IfIndex> {
    const NEAR: &str = "surplus0";
    let links = Links::open()?;
    links.create_veth(NEAR, "surplus1", None)?;
    links.index(NEAR)
}

/// A loaded generator. It sends only within [`Generator::run_while`].
///
/// The kernel objects stay until the process ends: a process is expected to load one.
pub struct Generator {
    program: BorrowedFd<'static>,
    _spare_link: Attachment,
    _handed_link: Link,
    /// The program's global variables. Those that are no single number are written while no run could read them.
    globals: Mapped<Globals>,
    frame_len: usize,
}

impl Generator {
    /// Loads the generator in the calling thread's network namespace. The frames leave by `output`; see
    /// [`Generator::set_output`].
    ///
    /// # Errors
    /// Without the privilege, where there is a generator already, or where an interface takes no XDP
    /// program.
    pub fn load(output: IfIndex) -> Result<Self> {
        let spare = make_spare()?;
        let mut skel = load::<TrafficSkelBuilder>(GENERATOR, |_| Ok(()))?;
        let bss = globals(skel.maps.bss_data.as_deref_mut());
        bss.output_ifindex = output.0;
        bss.output_netns = NetNs::current()?.number();
        let skel = Box::leak(Box::new(skel));
        let handed_link =
            skel.progs.weir_handed.attach().map_err(Error::bpf("attach", GENERATOR))?;
        let program = skel.progs.weir_traffic.as_fd();
        let spare_link =
            by_link(program, spare, "the generator's spare interface", AttachMode::Native)?;
        Ok(Self {
            program,
            _spare_link: spare_link,
            _handed_link: handed_link,
            globals: Mapped::of(skel.maps.bss.as_fd(), 1)?,
            frame_len: 0,
        })
    }

    /// Replaces all flows; they wait for [`Generator::start`]. Takes the generator exclusively, so
    /// it is not running.
    ///
    /// # Errors
    /// A flow that contradicts itself, or more than [`abi::TRAFFIC_FLOWS`].
    pub fn set_flows(&mut self, specs: &[FlowSpec]) -> Result<()> {
        if specs.len() > abi::TRAFFIC_FLOWS {
            return Err(refused(format!("{} flows were asked for", specs.len())));
        }
        let mut flows = [Flow::default(); abi::TRAFFIC_FLOWS];
        let mut frames = Vec::new();
        for (flow, spec) in flows.iter_mut().zip(specs) {
            frames.push(template::write(spec, flow)?);
        }
        let start_len = frames.iter().map(|frame| frame.start_len).max().unwrap_or(0) as u32;
        self.frame_len = frames.iter().map(|frame| frame.len).max().unwrap_or(0);
        for (flow, frame) in flows.iter_mut().zip(&frames) {
            flow.surplus = (self.frame_len - frame.len) as u16;
            flow.enabled = 1;
        }
        self.globals.set(0, offset_of!(Globals, flows), flows);
        self.globals.set(0, offset_of!(Globals, start_len), start_len);
        Ok(())
    }

    /// Sends what follows by another interface. Takes the generator exclusively, so it is not
    /// running.
    pub fn set_output(&mut self, output: IfIndex) {
        self.globals.set(0, offset_of!(Globals, output_ifindex), output.0);
        // To be found anew.
        self.globals.set(0, offset_of!(Globals, wire_ring), 0_u64);
    }

    /// Starts every flow that was set, its schedule beginning now.
    pub fn start(&self) {
        for flow in 0..abi::TRAFFIC_FLOWS {
            self.globals.set(0, in_flow(flow, offset_of!(Flow, next_q16)), 0_u64);
            self.globals.set(0, in_flow(flow, offset_of!(Flow, burst_left)), 0_u16);
        }
        // Last: who reads it finds the rest, and a later time. Else a schedule could begin centuries ahead.
        self.globals.set(0, offset_of!(Globals, start_ns), monotonic_now().0);
    }

    /// Stops every flow: at most the packet that is being made is still sent.
    pub fn stop(&self) {
        self.globals.set(0, offset_of!(Globals, start_ns), 0_u64);
    }

    /// What a flow has sent so far.
    pub fn counts(&self, flow: usize) -> FlowCounts {
        assert!(flow < abi::TRAFFIC_FLOWS, "flow {flow} of {}", abi::TRAFFIC_FLOWS);
        let count = |offset| self.globals.get(0, in_flow(flow, offset));
        FlowCounts {
            sent: count(offset_of!(Flow, sent)),
            refused: count(offset_of!(Flow, refused)),
            missed: count(offset_of!(Flow, missed)),
        }
    }

    /// Makes packets on a thread in `netns`, on `cpu` if one is named, while `body` runs, which
    /// calls [`Generator::start`] when it is ready. However `body` ends, no packet is sent after it.
    ///
    /// # Errors
    /// When the kernel refuses the run.
    pub fn run_while<T>(
        &self,
        netns: &NetNs,
        cpu: Option<CpuId>,
        body: impl FnOnce() -> T,
    ) -> Result<T> {
        /// Ends the load also when `body` panics.
        struct End<'a>(&'a Generator);
        impl Drop for End<'_> {
            fn drop(&mut self) {
                self.0.stop();
                self.0.set_over(true);
            }
        }
        self.set_over(false);
        std::thread::scope(|scope| {
            let end = End(self);
            let generating = scope.spawn(|| {
                netns.run(|| {
                    // The caller may have raised its own weight; the load is not to have it.
                    sched::set_nice(rustix::thread::gettid(), Nice(0))?;
                    if let Some(cpu) = cpu {
                        sched::pin_current_thread(cpu)?;
                    }
                    self.run()
                })
            });
            let outcome = body();
            drop(end);
            match generating.join() {
                Ok(ran) => ran??,
                Err(panic) => std::panic::resume_unwind(panic),
            }
            Ok(outcome)
        })
    }

    fn set_over(&self, is_over: bool) {
        self.globals.set(0, offset_of!(Globals, is_over), u32::from(is_over));
    }

    fn is_over(&self) -> bool {
        self.globals.get::<u32>(0, offset_of!(Globals, is_over)) != 0
    }

    /// Makes packets on the calling thread, in its network namespace, until it is over.
    fn run(&self) -> Result<()> {
        let frame = vec![0_u8; self.frame_len.max(ETHERNET_LEN)];
        let options = libbpf_sys::bpf_test_run_opts {
            repeat: RUNS_PER_CALL,
            batch_size: RUNS_PER_BATCH,
            flags: libbpf_sys::BPF_F_TEST_XDP_LIVE_FRAMES,
            ..Default::default()
        };
        while !self.is_over() {
            match test_run::run(self.program, &frame, &[], options) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => {
                    return Err(Error::system("generate", "traffic", error));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

/// Where a flow has what is so far behind its beginning.
const fn in_flow(flow: usize, offset: usize) -> usize {
    offset_of!(Globals, flows) + flow * size_of::<Flow>() + offset
}
