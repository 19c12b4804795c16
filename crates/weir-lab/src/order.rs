//! In which order trials are run.

/// Every rate in every mode, `repeats` times. Modes are innermost, so that a machine whose speed drifts
/// slows all of them alike; their order rotates and the rates' order turns round from one repeat to
/// the next, so that none always follows the same one.
pub fn interleaved<R: Copy, M: Copy>(rates: &[R], modes: &[M], repeats: u32) -> Vec<(R, M)> {
    let mut order = Vec::new();
    for repeat in 0..repeats {
        order.extend(one_repeat(rates, modes, repeat));
    }
    order
}

/// One repeat of [`interleaved`].
pub fn one_repeat<R: Copy, M: Copy>(rates: &[R], modes: &[M], repeat: u32) -> Vec<(R, M)> {
    let repeat = repeat as usize;
    let mut order = Vec::new();
    for position in 0..rates.len() {
        let rate = if repeat.is_multiple_of(2) { position } else { rates.len() - 1 - position };
        for turn in 0..modes.len() {
            order.push((rates[rate], modes[(turn + repeat + position) % modes.len()]));
        }
    }
    order
}

/// Each of the first with each of the second, which is innermost.
pub fn pairs<A: Copy, B: Copy>(first: &[A], second: &[B]) -> Vec<(A, B)> {
    first.iter().flat_map(|a| second.iter().map(|b| (*a, *b))).collect()
}

#[cfg(test)]
mod tests {
    use weir_bpf::units::PacketsPerSec;

    use super::*;
    use crate::results::Mode;

    #[test]
    fn every_rate_meets_every_mode_as_often_as_it_is_repeated() {
        let rates = [Some(PacketsPerSec(1e5)), Some(PacketsPerSec(1e6)), None];
        let modes = [Mode::Stock, Mode::Niced, Mode::Weir];
        let order = interleaved(&rates, &modes, 4);
        for rate in rates {
            for mode in modes {
                let times = order.iter().filter(|trial| **trial == (rate, mode)).count();
                assert_eq!(times, 4, "{rate:?} {mode}");
            }
        }
        // No mode always comes first.
        let first: Vec<Mode> = order.chunks(modes.len()).map(|chunk| chunk[0].1).collect();
        assert!(modes.iter().all(|mode| first.contains(mode)), "{first:?}");
    }
}
