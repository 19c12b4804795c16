//! Packets on their way in, counted and never held one by one: flows, and the rings they fill.

use fastrand::Rng;
use weir_policy::Nanos;

/// A constant flow of packets to one consumer.
#[derive(Clone, Debug)]
pub struct Flow {
    /// Index of the consumer.
    pub to: usize,
    per_ns: f64,
    at: Nanos,
    /// Part of the next packet.
    part: f64,
}

impl Flow {
    pub fn new(to: usize, per_second: f64) -> Self {
        Self { to, per_ns: per_second / 1e9, at: Nanos::ZERO, part: 0.5 }
    }

    /// How many came until `now`.
    pub fn until(&mut self, now: Nanos) -> u64 {
        let came = self.part + self.per_ns * (now - self.at).0 as f64;
        (self.at, self.part) = (now, came.fract());
        came as u64
    }

    /// When the next comes; never later than it does.
    pub fn next(&self) -> Nanos {
        self.at + Nanos(((1.0 - self.part) / self.per_ns).ceil() as u64 + 1)
    }
}

/// A NIC's ring: what finds no entry is gone, and costs the host nothing. Holds counts by flow.
#[derive(Clone, Debug)]
pub struct Ring {
    by_flow: Vec<u64>,
}

impl Ring {
    /// A veth's.
    const ENTRIES: u64 = 256;

    /// An empty ring for so many flows.
    pub fn new(flows: usize) -> Self {
        Self { by_flow: vec![0; flows] }
    }

    /// How many packets wait.
    pub fn len(&self) -> u64 {
        self.by_flow.iter().sum()
    }

    /// Puts in what fits of what came while nobody took anything; says how many did not fit.
    pub fn put(&mut self, came: &[u64], rng: &mut Rng) -> u64 {
        let taken = share_out(Self::ENTRIES - self.len(), came, rng);
        for (held, taken) in self.by_flow.iter_mut().zip(&taken) {
            *held += taken;
        }
        came.iter().sum::<u64>() - taken.iter().sum::<u64>()
    }

    /// Takes up to so many, of each flow as many as its part of the ring.
    pub fn take(&mut self, most: u64, rng: &mut Rng) -> Vec<u64> {
        let taken = share_out(most, &self.by_flow, rng);
        for (held, taken) in self.by_flow.iter_mut().zip(&taken) {
            *held -= taken;
        }
        taken
    }
}

/// Of each kind as many as its part of the whole, at most `most` together; what does not divide falls to
/// anybody.
fn share_out(most: u64, held: &[u64], rng: &mut Rng) -> Vec<u64> {
    let total: u64 = held.iter().sum();
    if total <= most {
        return held.to_vec();
    }
    let mut taken: Vec<u64> = held.iter().map(|&n| n * most / total).collect();
    let mut left = most - taken.iter().sum::<u64>();
    while left > 0 {
        // Drawn as from a bag: a kind with more in it is drawn more often.
        let mut draw = rng.u64(0..total);
        let at = held.iter().position(|&n| {
            let here = draw < n;
            draw = draw.saturating_sub(n);
            here
        });
        if let Some(at) = at
            && taken[at] < held[at]
        {
            taken[at] += 1;
            left -= 1;
        }
    }
    taken
}
