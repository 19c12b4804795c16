//! The declared metrics, made of what a trial saw.

use weir_bpf::steps::Steps;
use weir_bpf::trace::Step;

use super::books::{Seen, Window};
use crate::metric::{METRICS, Metric, Source, m};
use crate::run::Trial;
use crate::stats::{median, nearest_rank};

/// With fewer of the packets in full polls than this, those say too little: the CPU time is taken.
const IN_FULL_POLLS_MIN: f64 = 0.02;

pub(super) fn measure(trial: &mut Trial, seen: &Seen) {
    let (before, after, Window { opened, closed, .. }) = (&seen.before, &seen.after, &seen.window);
    for metric in METRICS {
        let value = match metric.source {
            Source::Rate(counter, times) => closed.per_s(opened, counter).map(|rate| rate * times),
            Source::Ratio(over, under, times) => {
                closed.ratio(opened, over, under).map(|ratio| ratio * times)
            }
            Source::WholeRatio(over, under) => after.ratio(before, over, under),
            Source::Growth(counter) => {
                closed.has(counter).then(|| closed.since(opened, counter) as f64)
            }
            Source::Period(counter, times) => {
                closed.per_s(opened, counter).filter(|rate| *rate > 0.0).map(|rate| times / rate)
            }
            Source::Quantile(histogram, share, times) => {
                closed.quantile_ns(opened, histogram, share).map(|ns| ns * times)
            }
            Source::Given => None,
        };
        trial.set(metric, value);
    }
    trial.set(&m::window_s, Some(seen.window.length.as_secs_f64()));
    polls(trial, seen);
    steps(trial, &seen.steps);
    if let Some(pings) = &seen.pings {
        round_trips(trial, pings);
    }
    for (metric, value) in seen.window.report.iter().flatten() {
        trial.set(metric, *value);
    }
}

/// Cost per packet by polls that took a whole budget, which never wait; else by CPU time.
fn polls(trial: &mut Trial, seen: &Seen) {
    let Some((first, last)) = &seen.window.polls else { return };
    let packets = last.packets.saturating_sub(first.packets) as f64;
    let full = last.full_packets.saturating_sub(first.full_packets) as f64;
    let share = if packets > 0.0 { (full / packets).min(1.0) } else { 0.0 };
    trial.set(&m::in_full_polls, Some(share));
    let by_cpu = trial.get(&m::cpu_ns_per_packet);
    let by_polls = last.quantile_ns_since(first, 0.5).filter(|_| share >= IN_FULL_POLLS_MIN);
    trial.set(&m::ns_per_packet, by_polls.or(by_cpu));
}

/// Percentiles of the round trips, of which one that does not come to an end is the longest, and how many do not.
fn round_trips(trial: &mut Trial, pings: &[Option<f64>]) {
    let lost = pings.iter().filter(|ping| ping.is_none()).count() as f64;
    let of = [(&m::rtt_p50_us, 500), (&m::rtt_p99_us, 990), (&m::rtt_p999_us, 999)];
    percentiles(trial, pings.iter().map(|ping| ping.unwrap_or(f64::INFINITY)).collect(), of);
    let in_row = pings.split(Option::is_some).map(<[_]>::len).max();
    trial.set(&m::pings_lost_in_row, in_row.map(|count| count as f64));
    trial.set(&m::pings_sent, Some(pings.len() as f64));
    trial.set(&m::pings_lost, Some(lost));
}

/// Percentiles of values, in permille; but for the median, one that no whole value would lie beyond is left out.
fn percentiles<const N: usize>(
    trial: &mut Trial,
    mut values: Vec<f64>,
    of: [(&'static Metric, usize); N],
) {
    values.sort_by(f64::total_cmp);
    for (metric, permille) in of {
        let is_enough = values.len() * (1000 - permille) >= 1000 || permille == 500;
        let value = nearest_rank(&values, permille).filter(|value| value.is_finite());
        trial.set(metric, value.filter(|_| is_enough));
    }
}

/// When packets were where, and the distribution from input's schedule to IP. A step that did not happen for half of
/// the packets is left out: else its median would be of others than those that it stands beside.
fn steps(trial: &mut Trial, steps: &[Steps]) {
    if steps.is_empty() {
        return;
    }
    let us = |steps: &Steps, step: Step| steps[step as usize].map(|ns| ns.0 as f64 / 1e3);
    for (step, metric) in [
        (Step::Scheduled, &m::scheduled_us),
        (Step::Polled, &m::began_us),
        (Step::Received, &m::at_ip_us),
        (Step::Woken, &m::woken_us),
        (Step::Runs, &m::runs_us),
    ] {
        let times = steps.iter().map(|steps| us(steps, step).unwrap_or(f64::INFINITY));
        trial.set(metric, median(times));
    }
    let poll = |steps: &Steps| Some(us(steps, Step::Received)? - us(steps, Step::Scheduled)?);
    let polls: Vec<f64> = steps.iter().filter_map(poll).collect();
    trial.set(&m::traced, Some(polls.len() as f64));
    percentiles(
        trial,
        polls,
        [(&m::poll_p50_us, 500), (&m::poll_p90_us, 900), (&m::poll_p99_us, 990)],
    );
}

#[cfg(test)]
mod tests {
    use weir_bpf::units::Nanos;

    use super::*;
    use crate::run::Load;

    #[test]
    fn a_packet_that_input_was_not_scheduled_for_says_nothing_of_polling() {
        let at = |[a, b, c, d, e]: [u64; 5]| {
            [a, b, c, 0, d, e].map(|us| (us != 0).then_some(Nanos(us * 1000)))
        };
        let mut trial = Trial::of("weir", "alone", Load::Off);
        steps(&mut trial, &[at([2, 3, 5, 6, 7]), at([0, 0, 4, 0, 0]), at([2, 3, 9, 0, 0])]);
        assert_eq!((trial.get(&m::traced), trial.get(&m::poll_p50_us)), (Some(2.0), Some(3.0)));
        assert_eq!((trial.get(&m::at_ip_us), trial.get(&m::runs_us)), (Some(5.0), None));
        let mut untraced = Trial::of("weir", "untraced", Load::Off);
        steps(&mut untraced, &[]);
        assert!(untraced.values.is_empty());
    }

    #[test]
    fn a_ping_that_is_lost_is_no_reply_and_a_percentile_of_too_few_is_left_out() {
        let mut trial = Trial::of("weir", "pings", Load::Off);
        let pings: Vec<Option<f64>> =
            (0..1000).map(|n| (n % 50 != 0).then_some(f64::from(n) + 1000.0)).collect();
        round_trips(&mut trial, &pings);
        assert_eq!(trial.get(&m::pings_lost), Some(20.0));
        assert_eq!((trial.get(&m::rtt_p50_us), trial.get(&m::rtt_p999_us)), (Some(1510.0), None));
        assert_eq!(trial.get(&m::rtt_p99_us), None);
        let mut few = Trial::of("weir", "pings", Load::Off);
        round_trips(&mut few, &[Some(1.0); 99]);
        assert_eq!((few.get(&m::rtt_p99_us), few.get(&m::rtt_p50_us)), (None, Some(1.0)));
    }
}
