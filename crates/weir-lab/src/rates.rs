//! Rates as a person writes them.

/// Packets per second; infinite: as fast as the generator can.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate(pub f64);

const RANGE_PPS: std::ops::RangeInclusive<f64> = 1_000.0..=200_000_000.0;

/// Reads `250000`, `250k`, `1.5M` or `top`.
///
/// # Errors
/// A message that says what is allowed.
pub fn parse_rate(text: &str) -> Result<Rate, String> {
    if text == "top" {
        return Ok(Rate(f64::INFINITY));
    }
    let (number, unit) = match text.as_bytes().last() {
        Some(b'k' | b'K') => (&text[..text.len() - 1], 1e3),
        Some(b'M') => (&text[..text.len() - 1], 1e6),
        _ => (text, 1.0),
    };
    match number.parse::<f64>() {
        Ok(number) if RANGE_PPS.contains(&(number * unit)) => Ok(Rate(number * unit)),
        _ => Err("a rate is 1k to 200M packets/s, such as 250000, 100k, 1.5M, or top".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_as_people_write_them() {
        assert_eq!(parse_rate("100k"), Ok(Rate(100_000.0)));
        assert_eq!(parse_rate("1.5M"), Ok(Rate(1_500_000.0)));
        assert_eq!(parse_rate("250000"), Ok(Rate(250_000.0)));
        assert_eq!(parse_rate("top"), Ok(Rate(f64::INFINITY)));
        for bad in ["", "k", "-1k", "0", "999", "1G", "nan", "inf", "1e99"] {
            assert!(parse_rate(bad).is_err(), "{bad}");
        }
    }
}
