//! Points in time as text, in UTC.

use std::time::{Duration, SystemTime};

/// `2026-11-21T20:38:21Z`, as RFC 3339 has it.
pub fn timestamp(at: SystemTime) -> String {
    humantime::format_rfc3339_seconds(at).to_string()
}

/// `20:38:21`.
pub fn time(at: SystemTime) -> String {
    timestamp(at).chars().skip(11).take(8).collect()
}

/// `2026-11-21T20:38:21.000000001Z`; `None` after the year 9999.
pub fn precise_timestamp(since_epoch: Duration) -> Option<String> {
    const YEAR_10000_SECS: u64 = 253_402_300_800;
    let at = SystemTime::UNIX_EPOCH.checked_add(since_epoch)?;
    (since_epoch.as_secs() < YEAR_10000_SECS)
        .then(|| humantime::format_rfc3339_nanos(at).to_string())
}
