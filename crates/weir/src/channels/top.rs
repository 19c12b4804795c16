//! `weir top`: the channels with most packets, again and again.

use std::io::{self, IsTerminal, Write};

use console::{Term, truncate_str};
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use weir_bpf::gate::Policy;

use super::rows::{ChannelRow, Report};
use super::watch::Watch;
use super::{NEEDED, table};
use crate::cli::TopArgs;
use crate::error::{Error, Result};
use crate::governor::observed::Observed;
use crate::out;
use crate::privilege;
use crate::signals;
use crate::status::InterfaceStatus;

/// `xterm`'s: the alternate screen, which leaves what was on the other one as it was.
const ENTER: &str = "\x1b[?1049h";
const LEAVE: &str = "\x1b[?1049l";
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K";
const CLEAR_BELOW: &str = "\x1b[J";

/// Runs the command.
pub fn run(args: &TopArgs) -> Result<()> {
    privilege::check_for("weir top", &NEEDED)?;
    if args.interval.is_zero() {
        return Err(Error::refused(
            "the view needs an interval above 0",
            "leave out `--interval 0`",
        ));
    }
    let stop = signals::catch(&[SIGINT, SIGTERM, SIGQUIT, SIGHUP])?;
    let mut watch = Watch::open(args.interface.as_deref(), true)?;
    // Dropped, and the terminal as before, ere an error is told.
    let mut screen = Screen::enter()?;
    let mut left = args.count;
    while left != Some(0) {
        let Some(mut report) = watch.report(args.interval, |time| !signals::comes(&stop, time))?
        else {
            return Ok(());
        };
        watch.refresh()?;
        order(&mut report);
        if !out::or_gone(screen.show(&view(watch.running(), &report)))? {
            return Ok(());
        }
        left = left.map(|left| left - 1);
    }
    Ok(())
}

/// The fastest first; those that stood still are left out.
fn order(report: &mut Report) {
    let rate = |row: &ChannelRow| row.figures.rates.map_or(0.0, |rates| rates.offered_pps.0);
    for interface in &mut report.interfaces {
        interface.channels.retain(|row| rate(row) > 0.0);
        interface.channels.sort_by(|a, b| rate(b).total_cmp(&rate(a)));
    }
}

fn view(running: &[InterfaceStatus], report: &Report) -> Vec<u8> {
    let mut out = Vec::new();
    let written = running.iter().try_for_each(|status| summary(&mut out, status));
    // Memory takes everything.
    let _ = written.and_then(|()| writeln!(out)).and_then(|()| table::write(&mut out, report));
    out
}

/// What the interface's daemon says of the last second.
fn summary(out: &mut impl Write, status: &InterfaceStatus) -> io::Result<()> {
    if let Some(silence) = status.silence() {
        return writeln!(out, "{}: {silence}", status.interface);
    }
    let policy = match status.policy {
        Policy::On => "on",
        Policy::Shadow => "shadow",
        Policy::Off => "off",
    };
    let rates = &status.rates;
    let ring = rates.ring_drops().map_or_else(|| "?".into(), |rate| format!("{:.0}/s", rate.0));
    writeln!(
        out,
        "{}: policy {policy}; ring drops {ring}; late drops {:.0}/s, of all interfaces",
        status.interface, rates.late_drop_pps.0
    )?;
    for observed in &status.governed {
        writeln!(out, "  {}", input(observed))?;
    }
    match &status.not_threaded {
        Some(why) => writeln!(out, "  received in softirq: {why}"),
        None if status.governed.is_empty() => writeln!(out, "  received in threads, no governor"),
        None => Ok(()),
    }
}

/// A NAPI thread and its regime.
fn input(observed: &Observed) -> String {
    let (cpu, weight) = (observed.cpu, observed.weight());
    let (used, wasted) = (observed.used * 100.0, observed.wasted * 100.0);
    format!("CPU {cpu}: receiving takes {used:.0}% ({wasted:.0}% for discards), {weight}")
}

/// A terminal, or a file that gets one view below the other, as does a terminal that knows no cursor.
struct Screen {
    is_terminal: bool,
}

impl Screen {
    fn enter() -> Result<Self> {
        let is_dumb = std::env::var_os("TERM").is_some_and(|name| name == "dumb");
        let is_terminal = io::stdout().is_terminal() && !is_dumb;
        if is_terminal {
            let failed = |error| Error::system("write to the terminal", error);
            io::stdout().lock().write_all(ENTER.as_bytes()).map_err(failed)?;
            // What a panic says is to be read where the user is then.
            let usual = std::panic::take_hook();
            std::panic::set_hook(Box::new(move |info| {
                leave();
                usual(info);
            }));
        }
        Ok(Self { is_terminal })
    }

    fn show(&mut self, view: &[u8]) -> io::Result<()> {
        let view = out::safe(view);
        let mut out = String::new();
        if self.is_terminal {
            let (rows, columns) = Term::stdout().size();
            out.push_str(HOME);
            // The last row stays empty: a line feed there would scroll.
            for line in view.split('\n').take(rows.saturating_sub(1).into()) {
                // A line that went on in the next row would push the first one out.
                out.extend([CLEAR_LINE, &truncate_str(line, columns.into(), ""), "\n"]);
            }
            out.push_str(CLEAR_BELOW);
        } else {
            out.extend([view.as_str(), "\n"]);
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(out.as_bytes())?;
        stdout.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        if self.is_terminal {
            leave();
        }
    }
}

fn leave() {
    // A terminal that is gone needs nothing.
    let mut stdout = io::stdout().lock();
    let _ = stdout.write_all(LEAVE.as_bytes()).and_then(|()| stdout.flush());
}
