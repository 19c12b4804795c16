//! Packets on their way in, counted and never held one by one: flows, and the rings they fill.

use fastrand::Rng;

use crate::units::Nanos;

/// Packets per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct PacketsPerSec(pub f64);

impl PacketsPerSec {
    /// So many thousands.
    pub fn kilo(thousands: f64) -> Self {
        Self(thousands * 1e3)
    }

    /// So many millions.
    pub fn mega(millions: f64) -> Self {
        Self(millions * 1e6)
    }

    fn per_ns(self) -> f64 {
        self.0 / 1e9
    }
}

/// Input that comes and goes. Each pause and each burst is 0.5 to 1.5 times as long as said here.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bursts {
    /// How long packets come.
    pub on: Nanos,
    /// How long they do not.
    pub off: Nanos,
}

/// When the packets of a flow arrive.
#[derive(Clone, Debug)]
pub struct Arrivals {
    per_ns: f64,
    bursts: Option<Bursts>,
    on: bool,
    changes_at: u64,
    at: u64,
    /// Part of the next packet.
    part: f64,
}

impl Arrivals {
    /// A flow of `rate` on average over its bursts' `on` time; where in its period it starts is random.
    pub fn new(rate: PacketsPerSec, bursts: Option<Bursts>, rng: &mut Rng) -> Self {
        let changes_at = bursts.map_or(u64::MAX, |b| rng.u64(0..=b.on.0));
        Self { per_ns: rate.per_ns(), bursts, on: true, changes_at, at: 0, part: rng.f64() }
    }

    /// How many came until `now`.
    pub fn until(&mut self, now: Nanos, rng: &mut Rng) -> u64 {
        let mut came = self.part;
        while self.at < now.0 {
            let end = now.0.min(self.changes_at);
            if self.on {
                came += self.per_ns * (end - self.at) as f64;
            }
            self.at = end;
            self.change(rng);
        }
        let whole = came.floor();
        self.part = came - whole;
        whole as u64
    }

    /// When the next comes, if nothing changes before; never later than it does.
    pub fn next(&self) -> Nanos {
        if self.per_ns <= 0.0 {
            return Nanos(u64::MAX);
        }
        if !self.on {
            return Nanos(self.changes_at);
        }
        let wait = ((1.0 - self.part) / self.per_ns).ceil() as u64 + 1;
        Nanos((self.at + wait).min(self.changes_at))
    }

    /// Comes at another rate from now on.
    pub(super) fn set_rate(&mut self, rate: PacketsPerSec) {
        self.per_ns = rate.per_ns();
    }

    fn change(&mut self, rng: &mut Rng) {
        let Some(bursts) = self.bursts else { return };
        if self.at == self.changes_at {
            self.on = !self.on;
            let usual = if self.on { bursts.on.0 } else { bursts.off.0 };
            self.changes_at += (usual / 2 + rng.u64(0..=usual)).max(1);
        }
    }
}

/// A NIC's ring: what finds no entry is gone, and costs the host nothing. Holds counts by flow.
#[derive(Clone, Debug)]
pub struct Ring {
    entries: u64,
    by_flow: Vec<u64>,
    total: u64,
}

impl Ring {
    /// An empty ring for so many flows.
    pub fn new(entries: u64, flows: usize) -> Self {
        Self { entries, by_flow: vec![0; flows], total: 0 }
    }

    /// How many packets wait.
    pub fn len(&self) -> u64 {
        self.total
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.total == 0
    }

    /// Puts in what fits of what came while nobody took anything; leaves in `came` what did not fit.
    pub fn put(&mut self, came: &mut [u64], rng: &mut Rng) {
        let room = self.entries - self.total;
        let taken = share_out(room, came, rng);
        for ((held, came), taken) in self.by_flow.iter_mut().zip(came).zip(taken) {
            *held += taken;
            *came -= taken;
            self.total += taken;
        }
    }

    /// Takes up to so many, of each flow as many as its part of the ring.
    pub fn take(&mut self, most: u64, rng: &mut Rng) -> Vec<u64> {
        let taken = share_out(most, &self.by_flow, rng);
        for (held, taken) in self.by_flow.iter_mut().zip(&taken) {
            *held -= taken;
            self.total -= taken;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_come_as_are_sent() {
        let mut rng = Rng::with_seed(1);
        let mut flow = Arrivals::new(PacketsPerSec::kilo(100.0), None, &mut rng);
        let came: u64 =
            (1..=1000).map(|us| flow.until(Nanos::from_micros(us * 10), &mut rng)).sum();
        assert!((999..=1001).contains(&came), "{came}");
        let bursts = Bursts { on: Nanos::from_millis(1), off: Nanos::from_millis(3) };
        let mut flow = Arrivals::new(PacketsPerSec::kilo(100.0), Some(bursts), &mut rng);
        let came = flow.until(Nanos::from_millis(4000), &mut rng);
        assert!((95_000..105_000).contains(&came), "{came}");
    }

    #[test]
    fn a_full_ring_drops_from_all_alike() {
        let mut rng = Rng::with_seed(1);
        let mut ring = Ring::new(256, 2);
        let mut came = [3_000, 1_000];
        ring.put(&mut came, &mut rng);
        assert_eq!((ring.len(), came.iter().sum::<u64>()), (256, 4_000 - 256));
        let taken = ring.take(64, &mut rng);
        assert!(taken[0].abs_diff(48) <= 1 && taken.iter().sum::<u64>() == 64, "{taken:?}");
    }
}
