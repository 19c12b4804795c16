//! How often senders are told that their packets are prohibited. Whoever forges a source would have the messages sent to
//! it, so each destination is told once a second at most (as by the kernel's `net.ipv4.icmp_ratelimit`), and all
//! together as often as the kernel tells (`net.ipv4.icmp_msgs_per_sec`).

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// At most so many in [`EVERY`], so that twice as many destinations are remembered.
const MOST: u32 = 1000;
const EVERY: Duration = Duration::from_secs(1);

/// Whom the screen has told in the last second or two.
#[derive(Debug)]
pub struct Rejections {
    since: Instant,
    count: u32,
    told: HashMap<IpAddr, Instant>,
}

impl Rejections {
    /// Nobody has been told yet.
    pub fn new(now: Instant) -> Self {
        Self { since: now, count: 0, told: HashMap::new() }
    }

    /// Whether this one may be told now.
    pub fn may_tell(&mut self, to: IpAddr, now: Instant) -> bool {
        let is_recent = |at: &Instant| now.duration_since(*at) < EVERY;
        if !is_recent(&self.since) {
            (self.since, self.count) = (now, 0);
            self.told.retain(|_, at| is_recent(at));
        }
        self.count < MOST && !self.told.get(&to).is_some_and(is_recent)
    }

    /// It has been told.
    pub fn tell(&mut self, to: IpAddr, now: Instant) {
        self.count += 1;
        self.told.insert(to, now);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn each_is_told_once_a_second_and_all_together_a_thousand_times() {
        let begin = Instant::now();
        let mut rejections = Rejections::new(begin);
        let mut told = |address: u32, millis| {
            let (to, now) =
                (Ipv4Addr::from_bits(address).into(), begin + Duration::from_millis(millis));
            let may = rejections.may_tell(to, now);
            if may {
                rejections.tell(to, now);
            }
            (may, rejections.told.len())
        };
        assert!(told(1, 900).0 && !told(1, 900).0 && told(2, 950).0);
        // The thousand are counted anew, but no second has passed for the first.
        assert!(!told(1, 1100).0 && !told(1, 1899).0 && told(1, 1900).0);
        assert_eq!((10..5000).filter(|address| told(*address, 2000).0).count(), 999);
        assert!(!told(1, 2899).0, "the thousand are told");
        assert!(told(1, 3000).0 && !told(10, 2999).0);
        let remembered = (3000..9000).map(|millis| told(millis as u32 + 9000, millis).1).max();
        assert!(remembered.unwrap() <= 2 * MOST as usize, "{remembered:?}");
    }
}
