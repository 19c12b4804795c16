//! Figures as people read them.

use crate::metric::Unit;

/// Stands where there is no figure.
pub const ABSENT: &str = "-";

/// A scale: from this size on, its name, and at most so many decimals.
type Scale = (f64, &'static str, usize);

const RATES: &[Scale] = &[(1e9, " G", 2), (1e6, " M", 2), (1e3, " k", 2), (1.0, "", 1)];
/// Of nanoseconds.
const TIMES: &[Scale] = &[(1e9, " s", 1), (1e6, " ms", 1), (1e3, " us", 1), (1.0, " ns", 0)];
const PLAIN: &[Scale] = &[(1.0, "", 2)];

/// A figure in at most three significant digits: `1.20 M`, `591 k`, `12.3 %`, `0.97`, `2.0 ms`.
pub fn figure(unit: Unit, value: f64) -> String {
    match unit {
        Unit::Pps | Unit::PerSecond | Unit::Count => scaled(value, RATES),
        Unit::Mbit | Unit::Ratio => scaled(value, PLAIN),
        Unit::Share => percent(value * 100.0),
        Unit::Seconds => scaled(value * 1e9, TIMES),
        Unit::Micros => scaled(value * 1e3, TIMES),
        Unit::Millis => scaled(value * 1e6, TIMES),
        Unit::Nanos => scaled(value, TIMES),
    }
}

/// As on an axis: without idle zeros.
pub fn tick(unit: Unit, value: f64) -> String {
    let text = figure(unit, value);
    let (number, name) = text.split_once(' ').unwrap_or((&text, ""));
    let number = match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    };
    format!("{number} {name}").trim_end().to_owned()
}

fn scaled(value: f64, scales: &[Scale]) -> String {
    // Rounded first, so that 999,600 is 1.00 M and not 1000 k.
    let value: f64 = format!("{value:.2e}").parse().unwrap_or(value);
    let fits = scales.iter().find(|(from, ..)| value.abs() >= *from);
    let &(from, name, most) = fits.or(scales.last()).unwrap_or(&(1.0, "", 2));
    let text = digits(value / from, most);
    // Below the first scale a whole number is a count of single things.
    format!(
        "{}{name}",
        if most == 1 && name.is_empty() { text.trim_end_matches(".0") } else { &text }
    )
}

fn digits(value: f64, most: usize) -> String {
    let decimals = match value.abs() {
        size if size >= 100.0 => 0,
        size if size >= 10.0 => 1,
        _ => 2,
    };
    format!("{value:.*}", most.min(decimals))
}

/// Only what is really all is `100 %`, only nothing is `0 %`.
fn percent(percent: f64) -> String {
    match percent {
        0.0 => "0 %".to_owned(),
        size if size.abs() < 0.01 => "<0.01 %".to_owned(),
        size if (99.9..100.0).contains(&size) => "99.9 %".to_owned(),
        _ => scaled(percent, PLAIN) + " %",
    }
}

/// Text fit for a terminal or a page: a result may come from another machine, and an escape sequence in it
/// must not reach the reader's terminal.
pub fn clean(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_read_as_people_write_them() {
        for (unit, value, text) in [
            (Unit::Pps, 0.0, "0"),
            (Unit::Pps, 4.0, "4"),
            (Unit::Pps, 81.24, "81.2"),
            (Unit::Pps, 745.2, "745"),
            (Unit::Pps, 999.6, "1.00 k"),
            (Unit::PerSecond, 591_234.0, "591 k"),
            (Unit::Pps, 999_600.0, "1.00 M"),
            (Unit::Pps, 1_200_000.0, "1.20 M"),
            (Unit::Count, 12_345_678.0, "12.3 M"),
            (Unit::Share, 0.0, "0 %"),
            (Unit::Share, 0.000_01, "<0.01 %"),
            (Unit::Share, 0.006, "0.60 %"),
            (Unit::Share, 0.1234, "12.3 %"),
            (Unit::Share, 0.9997, "99.9 %"),
            (Unit::Share, 1.0, "100 %"),
            (Unit::Ratio, 0.97, "0.97"),
            (Unit::Mbit, 941.3, "941"),
            (Unit::Micros, 230.4, "230 us"),
            (Unit::Micros, 2_000.0, "2.0 ms"),
            (Unit::Micros, 999.7, "1.0 ms"),
            (Unit::Millis, 3_400.0, "3.4 s"),
            (Unit::Nanos, 41.2, "41 ns"),
        ] {
            assert_eq!(figure(unit, value), text, "{unit:?} {value}");
        }
        assert_eq!(tick(Unit::Pps, 2e6), "2 M");
        assert_eq!(tick(Unit::Pps, 2.5e6), "2.5 M");
        assert_eq!(tick(Unit::Pps, 500e3), "500 k");
        assert_eq!(tick(Unit::Pps, 0.0), "0");
        assert_eq!(clean("6.18\u{1b}[2J\n"), "6.18 [2J ");
    }
}
