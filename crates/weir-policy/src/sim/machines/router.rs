//! Mogul & Ramakrishnan's router: a DECstation 3000/300, two Ethernets, with or without screend.
//!
//! From section 6.2: it forwards at most 4,700 packets/s, so a packet costs 213 us. With screend its peak
//! is 2,000 (500 us) and livelock sets in at about 6,000, so what comes before the screening queue costs
//! 167 us. Without, it "would probably livelock somewhat below" 14,880: taken as 13,900, so the driver
//! takes 72 us. The rest follows: IP 95 us, output 46 us, screend 287 us.

use std::collections::VecDeque;

use super::Machine;
use crate::units::Nanos;

const DRIVER: Nanos = Nanos(72_000);
const IP: Nanos = Nanos(95_000);
const OUTPUT: Nanos = Nanos(46_000);
const SCREEND: Nanos = Nanos(287_000);
/// What the polling kernel saves: `ipintrq` and its software interrupt ("slightly improves", 6.5).
const SAVED: Nanos = Nanos(8_000);
/// A round of the polling thread.
const ROUND: Nanos = Nanos(2_000);
/// `ipintrq` and an output queue hold so many (4.2BSD's `IFQ_MAXLEN`).
const QUEUE: usize = 50;
/// The screening queue, and when feedback stops and restarts input (6.6.1).
const SCREEN_QUEUE: usize = 32;
const SCREEN_HIGH: usize = SCREEN_QUEUE * 3 / 4;
const SCREEN_LOW: usize = SCREEN_QUEUE / 4;
const FEEDBACK_TIMEOUT: Nanos = Nanos::from_millis(1);
/// Receive buffers of the interface, and its transmit descriptors (a LANCE has rings of 2^n).
const RING: usize = 32;

/// How the router schedules its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernel {
    /// 4.2BSD's: interrupts first.
    Unmodified,
    /// A polling thread; `None`: a callback goes on until there is nothing left.
    Polling {
        /// How many packets a callback may handle.
        quota: Option<usize>,
        /// Whether a full screening queue stops input.
        feedback: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Receive(usize),
    Transmit(usize),
}

/// The router.
#[derive(Debug)]
pub struct Router {
    kernel: Kernel,
    screened: bool,
    ring: usize,
    ipintrq: usize,
    screen: usize,
    output: VecDeque<()>,
    turn: Turn,
    inhibited_to: Option<Nanos>,
    now: Nanos,
    work: [Work; 3],
    delivered: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    None,
    Driver,
    Forward,
    Transmit,
    Round,
    Screen,
}

impl Router {
    /// A router at rest.
    pub fn new(kernel: Kernel, screened: bool) -> Self {
        Self {
            kernel,
            screened,
            ring: 0,
            ipintrq: 0,
            screen: 0,
            output: VecDeque::new(),
            turn: Turn::Receive(0),
            inhibited_to: None,
            now: Nanos::ZERO,
            work: [Work::None; 3],
            delivered: 0,
        }
    }

    fn unmodified(&mut self, level: usize) -> Option<(Work, Nanos)> {
        match level {
            0 if self.ring > 0 => Some((Work::Driver, DRIVER)),
            1 if self.ipintrq > 0 => {
                let output = if self.screened { Nanos::ZERO } else { OUTPUT };
                Some((Work::Forward, IP + output))
            }
            2 => self.screend(),
            _ => None,
        }
    }

    fn screend(&self) -> Option<(Work, Nanos)> {
        (self.screen > 0).then_some((Work::Screen, SCREEND + OUTPUT))
    }

    fn polling(&mut self, level: usize, quota: usize, feedback: bool) -> Option<(Work, Nanos)> {
        match level {
            1 => self.poll(quota, feedback),
            2 => self.screend(),
            _ => None,
        }
    }

    /// The thread goes round: the receive callback, then the transmit callback, each up to its quota.
    fn poll(&mut self, quota: usize, feedback: bool) -> Option<(Work, Nanos)> {
        let may_receive = self.ring > 0 && !(feedback && self.inhibited());
        match self.turn {
            Turn::Receive(n) if may_receive && n < quota => {
                self.turn = Turn::Receive(n + 1);
                Some((Work::Forward, DRIVER + IP - SAVED))
            }
            Turn::Receive(_) if may_receive || !self.output.is_empty() => {
                self.turn = Turn::Transmit(0);
                Some((Work::Round, ROUND))
            }
            Turn::Transmit(n) if !self.output.is_empty() && n < quota => {
                self.turn = Turn::Transmit(n + 1);
                Some((Work::Transmit, OUTPUT))
            }
            Turn::Transmit(_) if may_receive || !self.output.is_empty() => {
                self.turn = Turn::Receive(0);
                Some((Work::Round, ROUND))
            }
            _ => {
                self.turn = Turn::Receive(0);
                None
            }
        }
    }

    fn inhibited(&mut self) -> bool {
        let over = self.screen <= SCREEN_LOW || self.inhibited_to.is_some_and(|to| to <= self.now);
        if over {
            self.inhibited_to = None;
        }
        self.inhibited_to.is_some()
    }

    fn forward(&mut self) {
        if self.screened {
            self.screen = (self.screen + 1).min(SCREEN_QUEUE);
            if self.screen >= SCREEN_HIGH && self.inhibited_to.is_none() {
                self.inhibited_to = Some(self.now + FEEDBACK_TIMEOUT);
            }
        } else if self.kernel == Kernel::Unmodified {
            self.delivered += 1;
        } else if self.output.len() < QUEUE {
            self.output.push_back(());
        }
    }
}

impl Machine for Router {
    fn arrive(&mut self, _flow: usize) {
        self.ring = (self.ring + 1).min(RING);
    }

    fn begin(&mut self, level: usize, now: Nanos) -> Option<Nanos> {
        self.now = now;
        let (work, cost) = match self.kernel {
            Kernel::Unmodified => self.unmodified(level),
            Kernel::Polling { quota, feedback } => {
                self.polling(level, quota.unwrap_or(usize::MAX), feedback)
            }
        }?;
        self.work[level] = work;
        Some(cost)
    }

    fn end(&mut self, level: usize) {
        match std::mem::replace(&mut self.work[level], Work::None) {
            Work::Driver => {
                self.ring -= 1;
                self.ipintrq = (self.ipintrq + 1).min(QUEUE);
            }
            Work::Forward if self.kernel == Kernel::Unmodified => {
                self.ipintrq -= 1;
                self.forward();
            }
            Work::Forward => {
                self.ring -= 1;
                self.forward();
            }
            Work::Transmit => {
                self.output.pop_front();
                self.delivered += 1;
            }
            Work::Screen => {
                self.screen -= 1;
                self.delivered += 1;
            }
            Work::Round | Work::None => {}
        }
    }

    fn alarm(&self) -> Nanos {
        self.inhibited_to.unwrap_or(Nanos(u64::MAX))
    }

    fn delivered(&self) -> [u64; 2] {
        [self.delivered, 0]
    }
}
