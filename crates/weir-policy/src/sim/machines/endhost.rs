//! Druschel & Banga's end host: a SPARCstation 20 that receives short UDP packets, with two processes.
//!
//! From section 4.2: SOFT-LRP's interrupt with demultiplexing takes about 25 us, BSD's hardware and
//! software interrupts about 60. BSD's peak of 7,380 packets/s is 135.5 us a packet, and livelock near
//! 20,000 is 50 us: the software interrupt's dispatch, once for all packets that wait, is taken to be the
//! difference. NI-LRP's 11,163 is 89.6 us, all in the process; SOFT-LRP's 9,760 leaves 77.5 us to it.
//! The paper has no figure from which Early-Demux could be had but its result; see `EAGER`.

use super::Machine;
use crate::units::Nanos;

const BSD_INTERRUPT: Nanos = Nanos(22_000);
const SOFT_DISPATCH: Nanos = Nanos(10_000);
const BSD_SOFT: Nanos = Nanos(28_000);
const BSD_PROCESS: Nanos = Nanos(75_500);
const DEMUX_INTERRUPT: Nanos = Nanos(25_000);
const SOFT_LRP_PROCESS: Nanos = Nanos(77_500);
const NI_LRP_PROCESS: Nanos = Nanos(89_600);
/// What eager processing costs Early-Demux beyond BSD's own stages. Fitted: without it the result is
/// 70 % of SOFT-LRP's, and the paper has 40 to 65 %.
const EAGER: Nanos = Nanos(25_000);
/// `ipqmaxlen`.
const IP_QUEUE: u64 = 50;
/// Packets that a socket's or a channel's queue holds.
const SOCKET_QUEUE: u64 = 32;

/// The four kernels of the paper's figure 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// 4.4BSD.
    Bsd,
    /// Demultiplexing in the interrupt, processing in the software interrupt.
    EarlyDemux,
    /// Demultiplexing in the interrupt, processing in the receiver.
    SoftLrp,
    /// Demultiplexing in the network interface.
    NiLrp,
}

/// The end host.
#[derive(Debug)]
pub struct EndHost {
    kernel: Kernel,
    ring: Vec<usize>,
    ip_queue: Vec<usize>,
    dispatched: bool,
    sockets: [u64; 2],
    used: [u64; 2],
    running: usize,
    delivered: [u64; 2],
}

impl EndHost {
    /// A host at rest.
    pub fn new(kernel: Kernel) -> Self {
        Self {
            kernel,
            ring: Vec::new(),
            ip_queue: Vec::new(),
            dispatched: false,
            sockets: [0; 2],
            used: [0; 2],
            running: 0,
            delivered: [0; 2],
        }
    }

    fn process_cost(&self) -> Nanos {
        match self.kernel {
            Kernel::Bsd | Kernel::EarlyDemux => BSD_PROCESS,
            Kernel::SoftLrp => SOFT_LRP_PROCESS,
            Kernel::NiLrp => NI_LRP_PROCESS,
        }
    }

    fn soft_interrupt(&mut self) -> Option<Nanos> {
        if self.ip_queue.is_empty() {
            self.dispatched = false;
            return None;
        }
        let dispatch = if self.dispatched { Nanos::ZERO } else { SOFT_DISPATCH };
        self.dispatched = true;
        let eager = if self.kernel == Kernel::EarlyDemux { EAGER } else { Nanos::ZERO };
        Some(dispatch + BSD_SOFT + eager)
    }

    /// Whoever has used less of the CPU runs, as UNIX's decaying priorities have it.
    fn process(&mut self) -> Option<Nanos> {
        let wants = [0, 1].map(|process| self.sockets[process] > 0);
        self.running = match wants {
            [false, false] => return None,
            [true, true] => usize::from(self.used[1] < self.used[0]),
            [first, _] => usize::from(!first),
        };
        // A process that slept is owed no more than a little.
        let other = 1 - self.running;
        if !wants[other] {
            self.used[other] =
                self.used[other].max(self.used[self.running].saturating_sub(1_000_000));
        }
        Some(self.process_cost())
    }

    fn enqueue(&mut self, flow: usize) {
        self.sockets[flow] = (self.sockets[flow] + 1).min(SOCKET_QUEUE);
    }

    /// After the interrupt: to the socket's queue or channel, or to the software interrupt.
    fn interrupted(&mut self, flow: usize) {
        match self.kernel {
            Kernel::SoftLrp | Kernel::NiLrp => self.enqueue(flow),
            Kernel::EarlyDemux => {
                let coming = self.ip_queue.iter().filter(|&&f| f == flow).count() as u64;
                if self.sockets[flow] + coming < SOCKET_QUEUE {
                    self.ip_queue.push(flow);
                }
            }
            Kernel::Bsd if (self.ip_queue.len() as u64) < IP_QUEUE => self.ip_queue.push(flow),
            Kernel::Bsd => {}
        }
    }
}

impl Machine for EndHost {
    fn arrive(&mut self, flow: usize) {
        if self.kernel == Kernel::NiLrp {
            self.enqueue(flow);
        } else {
            self.ring.push(flow);
            self.ring.truncate(64);
        }
    }

    fn begin(&mut self, level: usize, _now: Nanos) -> Option<Nanos> {
        match level {
            0 if self.ring.is_empty() => None,
            0 if self.kernel == Kernel::Bsd => Some(BSD_INTERRUPT),
            0 => Some(DEMUX_INTERRUPT),
            1 => self.soft_interrupt(),
            _ => self.process(),
        }
    }

    fn end(&mut self, level: usize) {
        match level {
            0 => {
                let flow = self.ring.remove(0);
                self.interrupted(flow);
            }
            1 => {
                let flow = self.ip_queue.remove(0);
                self.enqueue(flow);
            }
            _ => {
                self.used[self.running] += self.process_cost().0;
                self.sockets[self.running] -= 1;
                self.delivered[self.running] += 1;
            }
        }
    }

    fn delivered(&self) -> [u64; 2] {
        self.delivered
    }
}
