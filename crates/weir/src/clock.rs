//! Points in time as text, in UTC.

use std::time::{SystemTime, UNIX_EPOCH};

const DAY_SECS: u64 = 86_400;

/// `2026-11-21T20:38:21Z`, as RFC 3339 has it.
pub fn timestamp(at: SystemTime) -> String {
    let secs = at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let (year, month, day) = date_of_day(secs / DAY_SECS);
    format!("{year:04}-{month:02}-{day:02}T{}Z", time_of_day(secs))
}

/// `20:38:21`.
pub fn time(at: SystemTime) -> String {
    time_of_day(at.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()))
}

fn time_of_day(secs: u64) -> String {
    let secs = secs % DAY_SECS;
    format!("{:02}:{:02}:{:02}", secs / 3600, secs / 60 % 60, secs % 60)
}

/// Year, month and day of a day since 1970-01-01, in the Gregorian calendar. Years begin in March
/// here, so that the leap day is the last (H. Hinnant, "chrono-Compatible Low-Level Date Algorithms").
fn date_of_day(day: u64) -> (u64, u64, u64) {
    let day = day + 719_468;
    let (era, day_of_era) = (day / 146_097, day % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let march_month = (5 * day_of_year + 2) / 153;
    let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    (year, month, day_of_year - (153 * march_month + 2) / 5 + 1)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn known_points_in_time() {
        for (secs, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_795_293_501, "2026-11-21T20:38:21Z"),
        ] {
            assert_eq!(timestamp(UNIX_EPOCH + Duration::from_secs(secs)), text);
        }
        assert_eq!(time(UNIX_EPOCH + Duration::from_secs(1_795_293_501)), "20:38:21");
    }
}
