//! What `weir capture` says: each second what was counted, and at the end what there was.

use std::time::{Instant, SystemTime};

use serde::Serialize;
use weir_bpf::tap::Counts;

use super::args::CaptureArgs;
use super::output::Output;
use crate::clock;
use crate::console::Console;
use crate::error::Result;

/// Why a capture has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// It was told to; or it was to count for somebody who has gone.
    Signal,
    /// There were as many packets as were wanted.
    Packets,
    /// The time is over.
    Duration,
}

/// Prints it.
pub struct Printer {
    json: bool,
    /// Whether each second has a line.
    lines: bool,
    pub console: Console,
    last: (Instant, Counts),
}

#[derive(Serialize)]
struct Line {
    time: String,
    seen_pps: u64,
    matched_pps: u64,
    matched_bytes_per_second: u64,
    dropped_pps: u64,
}

impl Printer {
    /// Prints nothing yet.
    pub fn new(args: &CaptureArgs) -> Self {
        let last = (Instant::now(), Counts::default());
        Self { json: args.json, lines: args.count, console: Console::open(), last }
    }

    /// The tap sees packets from now on.
    pub fn ready(&mut self, args: &CaptureArgs) {
        if self.json {
            let ready = serde_json::json!({ "interface": args.interface });
            return self.console.event("ready", &ready);
        }
        let how = if args.count {
            "counting".to_owned()
        } else {
            format!("capturing up to {} bytes of each packet", args.snaplen)
        };
        self.console.say(&format!("{how} on {}; Ctrl-C ends it", args.interface));
    }

    /// What a second has brought.
    pub fn line(&mut self, counts: &Counts) {
        if !self.lines {
            return;
        }
        let now = Instant::now();
        let (before, last) = std::mem::replace(&mut self.last, (now, *counts));
        let seconds = now.duration_since(before).as_secs_f64();
        let rate = |now: u64, last: u64| ((now - last) as f64 / seconds).round() as u64;
        let at = SystemTime::now();
        let line = Line {
            time: clock::timestamp(at),
            seen_pps: rate(counts.seen, last.seen),
            matched_pps: rate(counts.matched, last.matched),
            matched_bytes_per_second: rate(counts.matched_bytes, last.matched_bytes),
            dropped_pps: rate(counts.dropped, last.dropped),
        };
        if self.json {
            return self.console.event("status", &line);
        }
        let Line { seen_pps, matched_pps, matched_bytes_per_second, .. } = line;
        self.console.line(&format!(
            "{}  {matched_pps}/s matched, {:.1} Mbit/s, of {seen_pps}/s seen",
            clock::time(at),
            matched_bytes_per_second as f64 * 8e-6,
        ));
    }

    /// What there was in all; then as [`Console::end`].
    pub fn summary(
        mut self,
        counts: &Counts,
        output: Option<&Output>,
        ended_by: Option<&Ending>,
    ) -> Result<()> {
        let Counts { seen, matched, matched_bytes, dropped, paused } = *counts;
        let written = output.map(Output::packets);
        if self.json {
            let summary = serde_json::json!({
                "interface_packets": seen,
                "matched": matched,
                "matched_bytes": matched_bytes,
                "dropped": dropped,
                // Not looked at, while the circuit breaker was open.
                "paused": paused,
                "written": written,
                "files": output.map(Output::files),
                // None: an error has.
                "ended_by": ended_by,
            });
            self.console.event("summary", &summary);
            return self.console.end();
        }
        let mut text = format!("{seen} packets seen, {matched} matched");
        if paused > 0 {
            text += &format!(", {paused} not taken while the circuit breaker was open");
        }
        if let Some(written) = written {
            text += &format!(
                ", {written} written, {dropped} dropped because they could not be written in time"
            );
            if dropped > 0 {
                text += " (try a larger --buffer, a smaller --snaplen, or a filter)";
            }
            let lost = matched.saturating_sub(written + dropped);
            // Behind the last of `-c`, others may have matched.
            if lost > 0 && !matches!(ended_by, Some(Ending::Packets)) {
                text += &format!(", {lost} lost because the output could not be written any more");
            }
        }
        self.console.say(&text);
        self.console.end()
    }
}
