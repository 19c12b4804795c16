//! A host that is polled by a NAPI thread, on real packets.

use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::sync::MutexGuard;
use std::time::Duration;

use rustix::process::Pid;
use weir_bpf::attach::AttachMode;
use weir_bpf::gate::{Gate, QueueProbe};
use weir_bpf::input::{Input, Inputs};
use weir_bpf::sys::napi::{NapiThread, napi_threads};
use weir_bpf::sys::sched;
use weir_bpf::traffic::{FlowSpec, Generator};
use weir_bpf::units::CpuId;
use weir_bpf::verdict::Verdict;

use super::{FAR_IP4, NEAR_IP4, Network, alone, wait_until};

pub const PORT: u16 = 5000;
pub const MS: u64 = 1_000_000;
const SPIN: &str = "while :; do :; done";

/// A veth with a gate, polled by one thread on one CPU.
pub struct Bench {
    pub inputs: Inputs,
    pub gate: Gate,
    pub thread: Pid,
    pub cpu: CpuId,
    pub network: Network,
    pub probe: QueueProbe,
    /// The CPU is every test's.
    _alone: MutexGuard<'static, ()>,
}

impl Bench {
    /// With the gate in its driver.
    pub fn new() -> Self {
        Self::at(AttachMode::Native)
    }

    pub fn at(mode: AttachMode) -> Self {
        Self::of(|| Network::gated(mode))
    }

    /// With the fast path of forwarding in front of it.
    pub fn forwarding() -> Self {
        Self::of(Network::forwarding)
    }

    fn of(gated: impl FnOnce() -> (Network, Gate, QueueProbe)) -> Self {
        let alone = alone();
        let (network, gate, probe) = gated();
        let cpu = *sched::online_cpus().unwrap().last().unwrap();
        let thread = napi_thread_on(cpu, &network);
        let inputs = Inputs::load(&probe).unwrap();
        Self { inputs, gate, thread, cpu, network, probe, _alone: alone }
    }

    pub fn watch(&self) -> Input {
        let input = self.inputs.add(self.thread).unwrap();
        input.watch(true).unwrap();
        input
    }

    /// A socket of the host under test, and one of its peer's that sends there.
    pub fn sockets(&self) -> (UdpSocket, UdpSocket) {
        self.sockets_at(PORT)
    }

    pub fn sockets_at(&self, port: u16) -> (UdpSocket, UdpSocket) {
        let near = self.network.bind(NEAR_IP4, port);
        let far = self.network.far.run(|| UdpSocket::bind((FAR_IP4, port)).unwrap()).unwrap();
        far.connect((NEAR_IP4, port)).unwrap();
        near.connect((FAR_IP4, port)).unwrap();
        far.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        near.set_read_timeout(None).unwrap();
        (near, far)
    }

    /// A process on the thread's CPU. This one, with all its threads, counts as weir.
    pub fn process(&self, script: &str, input: Stdio, output: Stdio) -> Process {
        let mut command = Command::new("sh");
        command.args(["-c", script]).stdin(input).stdout(output);
        let process = Process(command.spawn().unwrap());
        sched::set_affinity(process.pid(), &[self.cpu]).unwrap();
        process
    }

    pub fn stranger(&self) -> Process {
        self.process(SPIN, Stdio::null(), Stdio::null())
    }

    pub fn flow(&self, port: u16, rate: f64) -> FlowSpec {
        self.network.flow(port, Some(rate))
    }

    pub fn generator(&self) -> Generator {
        self.network.generator()
    }

    /// Sends these flows, from another CPU if there is one, until `enough`.
    pub fn send(
        &self,
        generator: &mut Generator,
        flows: &[FlowSpec],
        enough: impl FnMut() -> bool,
    ) {
        let elsewhere = sched::online_cpus().unwrap()[0];
        let body = |_: &Generator| wait_until("enough has been seen", enough);
        self.network.while_sent(generator, flows, Some(elsewhere), body);
    }

    pub fn gate_discarded(&self) -> u64 {
        self.gate.counters().unwrap().verdict(Verdict::Discard).packets
    }
}

/// The NAPI thread of a network's near end.
pub fn napi_thread(network: &Network) -> NapiThread {
    network.set_threaded("1");
    let thread = || {
        let threads = || napi_threads(network.near_ifindex, "near").unwrap();
        wait_until("there is a NAPI thread", || threads().len() == 1);
        threads().remove(0)
    };
    network.near.run(thread).unwrap()
}

/// The same, on this CPU from now on.
pub fn napi_thread_on(cpu: CpuId, network: &Network) -> Pid {
    let thread = napi_thread(network).pid;
    sched::set_affinity(thread, &[cpu]).unwrap();
    thread
}

/// A process of the test's own, ended with it.
pub struct Process(Child);

impl Process {
    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.0)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
