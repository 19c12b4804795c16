//! From the replies that were seen to the figures of a trial.

use weir_bpf::units::Nanos;

use crate::results::latency::Latency;

/// As how long a ping counts in the figure of merit that had no reply, microseconds.
pub const LOST_US: f64 = 1e6;
/// Below so many replies the 99.9th percentile would be the slowest; the 99th with a tenth of them.
const P999_MIN: usize = 1000;

/// Of one trial.
pub(super) struct RoundTrips {
    /// 99th percentile, where those that were lost took [`LOST_US`].
    pub(super) merit: f64,
    pub(super) latency: Latency,
}

/// Of the pings with these numbers, from the first up to before the second; `age` is how long after it
/// was made one was replied to.
pub(super) fn of(age: impl Fn(u32) -> Option<Nanos>, (first, end): (u64, u64)) -> RoundTrips {
    let number = |number: u64| u32::try_from(number).ok();
    let ages = (first..end).map(|ping| number(ping).and_then(&age));
    let mut replied: Vec<f64> = ages.flatten().map(|age| age.0 as f64 / 1000.0).collect();
    replied.sort_by(f64::total_cmp);
    let sent = end.saturating_sub(first);
    let lost = sent - replied.len() as u64;
    let least = |count: usize, permille| {
        (replied.len() >= count).then(|| percentile(&replied, replied.len(), permille)).flatten()
    };
    RoundTrips {
        merit: percentile(&replied, sent as usize, 990).unwrap_or(LOST_US),
        latency: Latency {
            p50_us: least(1, 500),
            p99_us: least(P999_MIN / 10, 990),
            p999_us: least(P999_MIN, 999),
            sent,
            lost,
        },
    }
}

/// The value that so many per mille of `of` are not above, of which these are the lowest, in order.
fn percentile(sorted: &[f64], of: usize, permille: usize) -> Option<f64> {
    let rank = (of * permille).div_ceil(1000).max(1);
    sorted.get(rank - 1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ping `n` takes `n` us; of each 50, so many are lost.
    fn made(lost_of_50: u32) -> impl Fn(u32) -> Option<Nanos> {
        move |number| (number % 50 >= lost_of_50).then(|| Nanos(u64::from(number) * 1000))
    }

    #[test]
    fn only_the_windows_pings_count() {
        let all = of(made(0), (1000, 2000));
        let latency = all.latency;
        assert_eq!((latency.p50_us, latency.p99_us), (Some(1499.0), Some(1989.0)));
        assert_eq!((latency.p999_us, latency.sent, latency.lost), (Some(1998.0), 1000, 0));
        assert_eq!(all.merit, 1989.0);
    }

    #[test]
    fn one_that_is_lost_is_slow_and_no_reply() {
        let some = of(made(1), (1000, 2000));
        assert_eq!((some.merit, some.latency.lost), (LOST_US, 20));
        // Of those that had one.
        assert_eq!((some.latency.p50_us, some.latency.p999_us), (Some(1499.0), None));
        let none = of(made(50), (1000, 2000));
        assert_eq!((none.merit, none.latency.lost, none.latency.p50_us), (LOST_US, 1000, None));
    }

    #[test]
    fn a_percentile_of_too_few_is_left_out() {
        let few = of(made(0), (0, 99));
        assert_eq!((few.latency.p99_us, few.merit), (None, 98.0));
        let nothing = of(made(0), (5, 5));
        assert_eq!((nothing.merit, nothing.latency), (LOST_US, Latency::default()));
    }
}
