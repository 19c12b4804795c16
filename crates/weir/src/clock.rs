//! Points in time as text, in UTC.

use std::time::SystemTime;

/// `2026-11-21T20:38:21Z`, as RFC 3339 has it.
pub fn timestamp(at: SystemTime) -> String {
    humantime::format_rfc3339_seconds(at).to_string()
}

/// `20:38:21`.
pub fn time(at: SystemTime) -> String {
    timestamp(at).chars().skip(11).take(8).collect()
}
