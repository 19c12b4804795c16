//! `weir run --ab`: slices in which weir protects, and slices in shadow, on the traffic that there is; and by how much
//! they differ.
//!
//! Each slice is a `weir run` of its own, so that nothing is compared but what a user gets. Which slice of a pair comes
//! first is chance: a drift of the traffic then falls on both sides, and the test of the differences is exact.
//!
//! The time of softirqs is measured at their tracepoints. `/proc/stat` has it by sampling at timer ticks, which an idle
//! CPU does not have, and NAPI threads' time exactly: to compare those two would be to blame the threads.

use std::ffi::OsString;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{BufRead, BufReader, Read};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use serde::Serialize;
use serde_json::json;
use signal_hook::consts::signal::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use weir_bpf::gate::QueueProbe;
use weir_bpf::softirq::Softirqs;
use weir_lab::stats::rank::{Design, Shift};

use crate::cli::RunArgs;
use crate::console::Console;
use crate::doctor::{self, Reading};
use crate::error::{Error, Result};
use crate::signals;

/// A difference's interval covers it with a confidence of 95 %.
const LEVEL: f64 = 0.05;
/// A slice begins with so much of its time that is not measured: threads move, queues fill or drain.
const SETTLING_PART: u32 = 10;
/// Options that a slice is not given.
const OWN: [&str; 2] = ["--ab", "--pairs"];
const OWN_FLAGS: [&str; 2] = ["--json", "--quiet"];

/// What is compared.
#[derive(Clone, Copy, Debug, Serialize)]
struct Figures {
    /// UDP datagrams that programs have read.
    delivered_pps: f64,
    /// UDP packets that the kernel has dropped at sockets.
    late_drop_pps: f64,
    /// CPUs that receive softirqs and NAPI threads have taken.
    receive_cpus: f64,
}

/// Name, how many digits after the point, and which figure.
type Column = (&'static str, usize, fn(&Figures) -> f64);
const COLUMNS: [Column; 3] = [
    ("delivered/s", 0, |of| of.delivered_pps),
    ("late drops/s", 0, |of| of.late_drop_pps),
    ("CPUs receiving", 2, |of| of.receive_cpus),
];

/// Two slices next to each other.
#[derive(Clone, Copy, Debug, Serialize)]
struct Pair {
    /// Whether the one in shadow was the first.
    shadow_first: bool,
    shadow: Figures,
    on: Figures,
}

/// By how much a figure is higher while weir protects.
#[derive(Debug, Serialize)]
struct Difference {
    figure: &'static str,
    /// Hodges and Lehmann's estimate, of the pairs' differences.
    estimate: f64,
    /// Where it lies with a confidence of 95 %; `null` of fewer than 6 pairs.
    interval: Option<(f64, f64)>,
    /// The chance of differences at least as uneven if there was none (Wilcoxon's signed-rank test).
    p: f64,
}

/// Compares, and ends with the host as it was before.
///
/// # Errors
/// If a slice cannot protect, or a signal comes before the first pair is complete.
pub fn run(args: &RunArgs, slice: Duration) -> Result<()> {
    let stop = signals::catch(&[SIGINT, SIGTERM, SIGQUIT, SIGHUP])?;
    let mut console = Console::open();
    let probe = QueueProbe::load()?;
    let softirqs = Softirqs::load(&probe)?;
    softirqs.watch(true)?;
    let mut pairs: Vec<Pair> = Vec::new();
    let mut failed = None;
    while pairs.len() < args.pairs as usize {
        // What they say is the same each time.
        let told = pairs.is_empty().then_some(&mut console);
        let pair = match measure(args, (slice, &stop), &softirqs, told) {
            Ok(Some(pair)) => pair,
            Ok(None) => break,
            // Ctrl-C has reached a slice that was starting, too.
            Err(_) if signals::comes(&stop, Duration::ZERO) => break,
            Err(error) => {
                failed = Some(error);
                break;
            }
        };
        pairs.push(pair);
        match args.json {
            true => console.event("pair", &pair),
            false => console.line(&describe(pairs.len(), &pair)),
        }
    }
    if pairs.is_empty() {
        return Err(failed.unwrap_or_else(|| {
            Error::refused("no pair of slices is complete", "wait for one, or take shorter slices")
        }));
    }
    let differences: Vec<Difference> =
        COLUMNS.iter().filter_map(|of| difference(&pairs, of)).collect();
    match args.json {
        true => console
            .event("differences", &json!({ "pairs": pairs.len(), "differences": differences })),
        false => {
            let lines =
                differences.iter().zip(COLUMNS).map(|(each, of)| conclude(each, of, pairs.len()));
            lines.for_each(|line| console.line(&line));
        }
    }
    console.end()?;
    // What there was until then has been told.
    failed.map_or(Ok(()), Err)
}

/// A pair of slices; `None` if a signal came first. What they say goes to the console.
fn measure(
    args: &RunArgs,
    (slice, stop): (Duration, &UnixStream),
    softirqs: &Softirqs,
    mut console: Option<&mut Console>,
) -> Result<Option<Pair>> {
    let shadow_first = RandomState::new().build_hasher().finish().is_multiple_of(2);
    let policies = if shadow_first { ["shadow", "on"] } else { ["on", "shadow"] };
    let mut figures = Vec::new();
    for policy in policies {
        let mut running = Slice::start(policy)?;
        let of = running.measure(&args.interfaces, (slice, stop), softirqs)?;
        // A terminal's Ctrl-C has reached it, too.
        let said = running.end()?;
        if let Some(console) = &mut console {
            let lines = said.lines().map(|line| line.strip_prefix("weir: ").unwrap_or(line));
            lines.for_each(|line| console.say(&format!("policy {policy}: {line}")));
        }
        let Some(of) = of else { return Ok(None) };
        figures.push(of);
    }
    let [first, second] = figures[..] else { return Ok(None) };
    let (shadow, on) = if shadow_first { (first, second) } else { (second, first) };
    Ok(Some(Pair { shadow_first, shadow, on }))
}

/// A `weir run` like this one, with a policy of its own. Dropping it ends it.
struct Slice {
    child: Child,
    said: Option<JoinHandle<String>>,
}

impl Slice {
    /// Starts it, and waits until it protects.
    fn start(policy: &str) -> Result<Self> {
        let failed = |source| Error::system("start a slice of `weir run`", source);
        let mut command = Command::new("/proc/self/exe");
        // Before what is given, in which `--` may end the options.
        command.arg0("weir").args(["run", "--policy", policy, "--json", "--quiet", "--slice"]);
        command.args(arguments(std::env::args_os().skip(2)));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(failed)?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let said = stderr.map(|mut stderr| {
            std::thread::spawn(move || {
                let mut said = String::new();
                // What is not UTF-8 is not weir's.
                let _ = stderr.read_to_string(&mut said);
                said
            })
        });
        let mut slice = Self { child, said };
        let mut ready = String::new();
        let read = stdout.map(|stdout| BufReader::new(stdout).read_line(&mut ready));
        match read {
            Some(Ok(1..)) => Ok(slice),
            // It has ended.
            _ => Err(slice.end().err().unwrap_or_else(|| ended("it stopped before it was ready"))),
        }
    }

    /// Lets it settle, and measures; `None` if a signal came.
    fn measure(
        &mut self,
        interfaces: &[String],
        (time, stop): (Duration, &UnixStream),
        softirqs: &Softirqs,
    ) -> Result<Option<Figures>> {
        if signals::comes(stop, time / SETTLING_PART) {
            return Ok(None);
        }
        let mut stopped = false;
        let mut in_softirqs = Ok(0.0);
        // Looks take time of their own, before and after.
        let reading = doctor::read_while(interfaces, || {
            let (before, began) = (used(softirqs), Instant::now());
            stopped = signals::comes(stop, time);
            let share = |before| {
                let used = used(softirqs)?.saturating_sub(before);
                Ok(used.div_duration_f64(began.elapsed()))
            };
            in_softirqs = before.and_then(share);
        })?;
        let in_softirqs = in_softirqs?;
        (!stopped).then(|| Figures::of(&reading, in_softirqs)).transpose()
    }

    fn end(&mut self) -> Result<String> {
        let _ = kill_process(Pid::from_child(&self.child), Signal::INT);
        let status =
            self.child.wait().map_err(|source| Error::system("wait for a slice", source))?;
        let said = self.said.take().and_then(|said| said.join().ok()).unwrap_or_default();
        if status.success() { Ok(said) } else { Err(ended(said.trim_end())) }
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.end();
        }
    }
}

fn ended(said: &str) -> Error {
    let said = said.lines().last().unwrap_or_default();
    let said = said.strip_prefix("weir: ").unwrap_or(said);
    Error::refused(
        format!("a slice of `weir run` has failed: {said}"),
        "see what it says without `--ab`",
    )
}

/// In a slice: ends when the one who compares does, however that ends.
pub fn end_with_parent() -> Result<()> {
    let parent = getppid();
    set_parent_process_death_signal(Some(Signal::INT))
        .map_err(|errno| Error::system("ask for a signal when the parent ends", errno))?;
    if getppid() == parent {
        return Ok(());
    }
    Err(Error::refused("the parent process has ended", "start `weir run --ab` again"))
}

/// What a slice is given of the arguments of `weir run`: all but those that it has otherwise.
fn arguments(mut given: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut kept = Vec::new();
    while let Some(argument) = given.next() {
        let option = argument.to_string_lossy();
        if OWN.contains(&option.as_ref()) {
            given.next();
        } else if !OWN.iter().any(|own| option.starts_with(&format!("{own}=")))
            && !OWN_FLAGS.contains(&option.as_ref())
        {
            kept.push(argument);
        }
    }
    kept
}

/// What receive softirqs have used, on all CPUs.
fn used(softirqs: &Softirqs) -> Result<Duration> {
    let used = softirqs.read()?.iter().map(|times| times.used.0).sum();
    Ok(Duration::from_nanos(used))
}

impl Figures {
    /// `in_softirqs`: CPUs that received there.
    fn of(reading: &Reading, in_softirqs: f64) -> Result<Self> {
        let udp = reading.udp.as_ref().ok_or_else(|| {
            Error::refused(
                "UDP's counters cannot be read",
                "mount /proc: `mount -t proc proc /proc`",
            )
        })?;
        let in_threads: f64 = reading.cpus.iter().map(|cpu| cpu.napi_threads).sum();
        Ok(Self {
            delivered_pps: udp.delivered_pps,
            late_drop_pps: udp.queue_full_pps + udp.memory_pps,
            receive_cpus: in_softirqs + in_threads,
        })
    }
}

fn difference(pairs: &[Pair], (figure, _, of): &Column) -> Option<Difference> {
    let all = |side: fn(&Pair) -> &Figures| -> Vec<f64> {
        pairs.iter().map(|pair| of(side(pair))).collect()
    };
    let (shadow, on) = (all(|pair| &pair.shadow), all(|pair| &pair.on));
    let Shift { estimate, interval, p } = Design::Pairs.shift(&shadow, &on, LEVEL)?;
    Some(Difference { figure, estimate, interval, p })
}

/// `pair 3 (on, shadow): delivered/s 431 -> 9876, ...`
fn describe(number: usize, pair: &Pair) -> String {
    let order = if pair.shadow_first { "shadow, on" } else { "on, shadow" };
    let column = |(name, digits, of): Column| {
        format!("{name} {:.digits$} -> {:.digits$}", of(&pair.shadow), of(&pair.on))
    };
    format!("pair {number} ({order}), shadow -> on: {}", COLUMNS.map(column).join(", "))
}

/// `late drops/s: -9120 (-9340 to -8800, 95 % confidence, 6 pairs)`
fn conclude(each: &Difference, (name, digits, _): Column, pairs: usize) -> String {
    let of = match each.interval {
        Some((from, to)) => {
            format!("{from:+.digits$} to {to:+.digits$}, 95 % confidence, {pairs} pairs")
        }
        None => format!("no interval: {} pairs are needed", Design::Pairs.needed(LEVEL)),
    };
    let found = match each.interval {
        Some((from, to)) if from > 0.0 || to < 0.0 => "",
        _ => "; no difference is shown",
    };
    format!("with weir, {name}: {:+.digits$} ({of}){found}", each.estimate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slice_is_given_all_but_what_is_its_own() {
        let given = "eth0 --ab 60s --pairs=8 --json --attach tc --quiet --ab=1s eth1";
        let kept = arguments(given.split(' ').map(OsString::from));
        assert_eq!(kept, ["eth0", "--attach", "tc", "eth1"]);
    }

    #[test]
    fn a_difference_has_an_interval_from_six_pairs_on() {
        let figures =
            |delivered_pps: f64| Figures { delivered_pps, late_drop_pps: 5.0, receive_cpus: 0.5 };
        let pair = |n: u32| Pair {
            shadow_first: n.is_multiple_of(2),
            shadow: figures(100.0 + f64::from(n)),
            on: figures(200.0 + 3.0 * f64::from(n)),
        };
        let pairs: Vec<Pair> = (0..6).map(pair).collect();
        let said = |pairs: &[Pair], column: Column| {
            conclude(&difference(pairs, &column).unwrap(), column, pairs.len())
        };
        assert_eq!(
            said(&pairs, COLUMNS[0]),
            "with weir, delivered/s: +105 (+100 to +110, 95 % confidence, 6 pairs)"
        );
        assert_eq!(
            said(&pairs[..5], COLUMNS[0]),
            "with weir, delivered/s: +104 (no interval: 6 pairs are needed); no difference is shown"
        );
        assert!(said(&pairs, COLUMNS[1]).contains("no difference is shown"));
    }
}
