//! Figures as people read them.

/// Three significant digits: what a median of a few trials can carry.
fn three_digits(value: f64) -> f64 {
    if value == 0.0 {
        return 0.0;
    }
    let step = 10f64.powf(value.abs().log10().floor() - 2.0);
    (value / step).round() * step
}

/// `value` with at most three digits and without idle zeros.
fn trimmed(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 100.0 => 0,
        v if v >= 10.0 => 1,
        _ => 2,
    };
    let text = format!("{value:.digits$}");
    let text =
        if digits > 0 { text.trim_end_matches('0').trim_end_matches('.') } else { text.as_str() };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Packets per second: `355 k`, `1.6 M`, `812`.
pub(super) fn rate(pps: f64) -> String {
    // Rounded first, so that 999,600 is 1 M and not 1000 k.
    let rounded = three_digits(pps);
    match rounded.abs() {
        v if !v.is_finite() || v >= 1e12 => format!("{pps:.1e}"),
        v if v >= 1e6 => format!("{} M", trimmed(rounded / 1e6)),
        v if v >= 1e3 => format!("{} k", trimmed(rounded / 1e3)),
        _ => trimmed(rounded),
    }
}

/// A range of rates: `5.01-5.13 M`, or one rate where both ends read the same.
pub(super) fn rates(low: f64, high: f64) -> String {
    let (low, high) = (rate(low), rate(high));
    if low == high {
        return high;
    }
    match (low.split_once(' '), high.split_once(' ')) {
        (Some((value, unit)), Some((_, other))) if unit == other => format!("{value}-{high}"),
        _ => format!("{low}-{high}"),
    }
}

/// A share of 1: `95 %`, `0.6 %`. Only what is really all is `100 %`, only nothing is `0 %`.
pub(super) fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        0.0 => "0 %".to_owned(),
        p if p > 0.0 && p < 0.1 => "<0.1 %".to_owned(),
        // Rounded down: 99.97 must not read as 100, nor 99.7 as 99.6 for a bit's sake.
        p if (99.0..100.0).contains(&p) => {
            format!("{} %", trimmed((p * 10.0 + 1e-6).floor() / 10.0))
        }
        p if p.abs() < 9.95 => format!("{} %", trimmed((p * 10.0).round() / 10.0)),
        p => format!("{p:.0} %"),
    }
}

/// Age of a packet: `85 us`, `1.2 ms`, `3.4 s`.
pub(super) fn age(us: Option<f64>) -> String {
    let Some(us) = us else { return ABSENT.to_owned() };
    let rounded = three_digits(us);
    match rounded.abs() {
        v if v >= 1e6 => format!("{} s", trimmed(rounded / 1e6)),
        v if v >= 1e3 => format!("{} ms", trimmed(rounded / 1e3)),
        _ => format!("{} us", trimmed(rounded)),
    }
}

/// Stands where there is no figure.
pub(super) const ABSENT: &str = "-";

/// An integer with its thousands set apart: `1,234,567`.
pub(super) fn count(value: u128) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (position, digit) in digits.chars().enumerate() {
        if position > 0 && (digits.len() - position).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `one thing`, `2 things`.
pub(super) fn plural(number: usize, thing: &str) -> String {
    if number == 1 { format!("{number} {thing}") } else { format!("{number} {thing}s") }
}

/// Text from a file, fit for a terminal or a page: a result may come from another machine, and an
/// escape sequence in it must not reach the reader's terminal.
pub(super) fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn rates_read_as_people_write_them() {
        for (pps, text) in [
            (0.0, "0"),
            (0.4, "0.4"),
            (812.0, "812"),
            (999.6, "1 k"),
            (2_134.0, "2.13 k"),
            (99_960.0, "100 k"),
            (355_123.0, "355 k"),
            (999_600.0, "1 M"),
            (1_600_000.0, "1.6 M"),
            (5_129_000.0, "5.13 M"),
            (12_345_678.0, "12.3 M"),
        ] {
            assert_eq!(rate(pps), text, "{pps}");
        }
        assert_eq!(rates(5.01e6, 5.13e6), "5.01-5.13 M");
        assert_eq!(rates(990e3, 1.1e6), "990 k-1.1 M");
        assert_eq!(rates(1e3, 1001.0), "1 k");
    }

    #[test]
    fn a_share_is_never_rounded_to_all_or_nothing() {
        for (share, text) in [
            (0.0, "0 %"),
            (0.0004, "<0.1 %"),
            (0.006, "0.6 %"),
            (0.0996, "10 %"),
            (0.41, "41 %"),
            (0.997, "99.7 %"),
            (0.9997, "99.9 %"),
            (1.0, "100 %"),
            (1.034, "103 %"),
        ] {
            assert_eq!(percent(share), text, "{share}");
        }
    }

    #[test]
    fn ages_and_counts() {
        assert_eq!(age(None), "-");
        assert_eq!(age(Some(85.2)), "85.2 us");
        assert_eq!(age(Some(1_234.0)), "1.23 ms");
        assert_eq!(age(Some(3.4e6)), "3.4 s");
        assert_eq!(count(0), "0");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(clean("6.18\u{1b}[2J\n"), "6.18 [2J ");
    }

    proptest! {
        #[test]
        fn a_rate_stays_short_and_near(pps in 1.0f64..1e11) {
            let text = rate(pps);
            prop_assert!(text.len() <= 8, "{}", text);
            let (value, scale) = match text.split_once(' ') {
                Some((value, "k")) => (value, 1e3),
                Some((value, _)) => (value, 1e6),
                None => (text.as_str(), 1.0),
            };
            let back = value.parse::<f64>().unwrap() * scale;
            prop_assert!((back - pps).abs() <= pps * 0.0051, "{} is {}", pps, text);
        }
    }
}
