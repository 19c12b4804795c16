//! What `weir status` and `weir reset` print.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use indicatif::HumanCount;
use weir_bpf::attach::AttachMode;
use weir_bpf::counters::Counter;
use weir_bpf::features;
use weir_bpf::gate::Policy;
use weir_bpf::sys::netns::NetNs;
use weir_bpf::units::PacketsPerSec;
use weir_bpf::verdict::{Reason, Verdict};

use crate::channel_name;
use crate::choice::choice_text;
use crate::cli::{ResetArgs, StatusArgs};
use crate::error::Result;
use crate::governor::observed::{LimitRow, Observed};
use crate::host::Host;
use crate::metrics;
use crate::out;
use crate::privilege;
use crate::restore;
use crate::rundir::{RUN_DIR, RunDir};
use crate::sleep::SleepStatus;
use crate::softirq::{CpuShares, LimitStatus};
use crate::status::{DiversionStatus, InterfaceStatus, MASTER_JUDGES, Overview};
use crate::threading::NotThreaded;
use crate::walls::WallStatus;

/// What `--check` exits with if it cannot tell how things stand.
const UNKNOWN: u8 = 4;
/// What it exits with if every daemon hangs.
const HANGS: u8 = 5;
/// Where to look if no daemon runs: one that can protect nothing ends, and systemd starts it again and again.
const WHY: &str = "if weir is a service, `systemctl status weir` says why";

/// `weir status`. What daemons have published is root's alone.
pub fn status(args: &StatusArgs) -> Result<ExitCode> {
    let mut overview = match overview(args.all_namespaces) {
        Err(error) if args.check => {
            out::print(|out| writeln!(out, "unknown: {error}"))?;
            return Ok(ExitCode::from(UNKNOWN));
        }
        read => read?,
    };
    let standing = Standing::of(&overview);
    if args.json || !(args.check || args.openmetrics) {
        overview.kernel_lacks = features::lacks();
    }
    if args.json {
        out::json(&overview)?;
    } else if args.check {
        // 1 would say how things stand.
        if let Err(error) = out::print(|out| writeln!(out, "{}", standing.text)) {
            out::say(format_args!("weir: {error}"));
            return Ok(ExitCode::from(UNKNOWN));
        }
    } else if args.openmetrics {
        let text = metrics::openmetrics(&overview.interfaces, args.all_namespaces);
        out::raw(text.as_bytes())?;
    } else {
        out::print(|out| table(out, &overview, &standing))?;
        if overview.interfaces.is_empty() && runs_elsewhere() {
            out::line(
                "weir runs in another network namespace: `sudo weir status --all-namespaces`",
            );
        }
    }
    Ok(if args.check { ExitCode::from(standing.code) } else { ExitCode::SUCCESS })
}

fn overview(all_namespaces: bool) -> Result<Overview> {
    let dir = RunDir::open(Path::new(RUN_DIR))?;
    let netns = if all_namespaces { None } else { Some(NetNs::current()?.inode()) };
    Overview::read(dir.as_ref(), netns)
}

fn runs_elsewhere() -> bool {
    overview(true).is_ok_and(|all| all.interfaces.iter().any(|each| each.running))
}

/// How things stand, for monitoring.
struct Standing {
    code: u8,
    text: String,
}

impl Standing {
    fn of(overview: &Overview) -> Self {
        let running: Vec<_> = overview.interfaces.iter().filter(|each| each.running).collect();
        let dead = overview.interfaces.iter().filter(|each| !each.running);
        let mut wrong: Vec<String> = dead
            .map(|each| match each.unprotected() {
                Some(loss) => format!("{} is {loss}", each.interface),
                None => format!("{}: its daemon has died", each.interface),
            })
            .collect();
        wrong.extend(overview.leftovers.iter().map(|each| {
            let known =
                |one: &&InterfaceStatus| (one.ifindex, one.netns) == (each.ifindex, each.netns);
            let name = overview.interfaces.iter().find(known).map(|one| one.interface.clone());
            let name = name.unwrap_or_else(|| format!("interface number {}", each.ifindex.0));
            format!("{name}: knobs may still be turned, `sudo weir reset`")
        }));
        for status in &running {
            wrong.extend(shortcoming(status).map(|what| format!("{}: {what}", status.interface)));
        }
        let left = overview.walls.iter().flatten().filter(|wall| !wall.judges);
        wrong.extend(left.map(wall_text));
        let names: Vec<&str> = running.iter().map(|each| each.interface.as_str()).collect();
        let starting = running.iter().filter(|status| status.starts()).count();
        let state = if wrong.len() == starting { "starting" } else { "degraded" };
        // One that reports is not to be started anew for another that hangs beside it.
        let hangs = running.iter().any(|each| each.hangs())
            && running.iter().all(|each| each.hangs() || each.loss.is_some());
        let (code, text) = match (running.is_empty(), wrong.is_empty()) {
            (true, true) => (3, format!("weir does not run ({WHY})")),
            (true, false) => (3, format!("weir does not run ({WHY}); {}", wrong.join("; "))),
            (false, true) => (0, format!("protected: {}", names.join(", "))),
            (false, false) if hangs => (HANGS, format!("hangs: {}", wrong.join("; "))),
            (false, false) => (1, format!("{state}: {}", wrong.join("; "))),
        };
        Self { code, text }
    }
}

/// Why an interface is not protected in full though its daemon runs.
fn shortcoming(status: &InterfaceStatus) -> Option<String> {
    if let Some(silence) = status.silence() {
        return Some(silence);
    }
    if status.starts() {
        return Some("its daemon does not protect it yet".into());
    }
    if let Some(pid) = status.guardian_pid.filter(|_| status.guardian_is_stopped) {
        return Some(format!(
            "its guardian is stopped, and would not restore what a killed daemon leaves: `sudo kill -CONT {pid}`"
        ));
    }
    if status.has_no_guardian {
        return Some(
            "it has no guardian, so nobody would restore what a killed daemon leaves; its log says why, and it tries again"
                .into(),
        );
    }
    if status.policy != Policy::On {
        return Some("its policy discards nothing".into());
    }
    if let Some(why @ NotThreaded::SetBack) = &status.not_threaded {
        return Some(format!("{why}, so NAPI is in softirq"));
    }
    if let Some(past) = status.bypass() {
        return Some(past);
    }
    let costs = |each: &&DiversionStatus| each.passes_all && each.cost != MASTER_JUDGES;
    let Some(diversion) = status.diversions.iter().find(costs) else {
        let none = status.no_governor.as_ref().map(|why| format!("no governor: {why}"));
        return none.or_else(|| status.ungoverned().next());
    };
    let limited = status.softirq_limit.as_ref().map_or("", |_| " within the softirq limit");
    let DiversionStatus { description, detail, .. } = diversion;
    Some(format!("{description} ({detail}), so everything{limited} passes"))
}

/// `weir reset`.
pub fn reset(args: &ResetArgs) -> Result<ExitCode> {
    privilege::check("weir reset")?;
    let done = restore::reset(&Host::open()?, &args.interfaces)?;
    if done.restored.is_empty() && done.errors.is_empty() {
        out::line("nothing to put back in this network namespace");
    }
    // Whoever no longer reads does not keep the exit code from being true.
    let _ = out::print(|out| done.restored.iter().try_for_each(|each| writeln!(out, "{each}")));
    for error in &done.errors {
        out::say(format_args!("weir: {error}"));
    }
    Ok(if done.errors.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn table(out: &mut impl Write, overview: &Overview, standing: &Standing) -> io::Result<()> {
    if overview.interfaces.is_empty() && overview.leftovers.is_empty() {
        writeln!(out, "no interface is protected; `sudo weir run IFACE` protects one; {WHY}")?;
    } else {
        writeln!(out, "{}\n", standing.text)?;
    }
    for (number, interface) in overview.interfaces.iter().enumerate() {
        if number > 0 {
            writeln!(out)?;
        }
        one_interface(out, interface)?;
    }
    for leftover in &overview.leftovers {
        writeln!(
            out,
            "not running, but knobs may still be turned ({}); `sudo weir reset` in its network namespace puts \
             them back; if that is gone, remove the file",
            leftover.state_file
        )?;
    }
    for wall in overview.walls.iter().flatten() {
        writeln!(out, "{}", wall_text(wall))?;
    }
    if overview.walls.is_none() {
        writeln!(out, "whether walls of `weir screen` stand here is not seen; run it as root")?;
    }
    for lack in &overview.kernel_lacks {
        writeln!(out, "this kernel lacks {}: {}", lack.feature, lack.cost)?;
    }
    Ok(())
}

fn wall_text(wall: &WallStatus) -> String {
    let (name, text) = (&wall.interface, wall.text());
    let remedy = if wall.judges {
        String::new()
    } else {
        format!(
            "; `{}` {}",
            wall.remedy(),
            if wall.screen_pid.is_some() { "continues it" } else { "removes it" }
        )
    };
    format!("wall at {name}: {text}{remedy}")
}

fn one_interface(out: &mut impl Write, status: &InterfaceStatus) -> io::Result<()> {
    let unprotected = status.unprotected();
    let state = match &unprotected {
        Some(loss) => loss,
        None if status.starts() => "starting",
        None if status.stalled => "not protected now",
        None if status.running => "protected",
        None => "not running any more",
    };
    writeln!(out, "{}  {state}", status.interface)?;
    if let Some(silence) = status.silence() {
        writeln!(out, "  {silence}; what follows is from before")?;
    }
    let guardian = status.guardian_pid.filter(|_| status.running);
    let guardian = guardian.map_or_else(String::new, |pid| format!(" (guardian {pid})"));
    writeln!(
        out,
        "  pid {}{guardian}, since {}, network namespace {}",
        status.pid, status.since, status.netns
    )?;
    // Nothing more is known.
    if status.attach.is_none() {
        return Ok(());
    }
    if status.running {
        protection(out, status)?;
    }
    for knob in &status.knobs {
        writeln!(out, "  turned {}: {} -> {}", knob.knob, knob.old, knob.new)?;
    }
    counts(out, status)
}

/// What its daemon does.
fn protection(out: &mut impl Write, status: &InterfaceStatus) -> io::Result<()> {
    let policy = match status.policy {
        Policy::On => "on",
        Policy::Shadow => "shadow, so nothing is discarded",
        Policy::Off => "off",
    };
    let diverted = match status.diversions.iter().any(|each| each.passes_all) {
        true if status.softirq_limit.is_some() => {
            ", everything within the softirq limit passes: see the diversions"
        }
        true => ", everything passes: see the diversions",
        false => "",
    };
    writeln!(
        out,
        "  gate at {}, policy {policy}{diverted} ({})",
        status.attach.map_or("", AttachMode::description),
        status.attach_reason
    )?;
    if status.reports() {
        writeln!(out, "  {}", sleep(&status.sleep, status.rates.ring_drops().is_some()))?;
    }
    writeln!(out, "  NAPI {}", napi(status))?;
    if status.reports() {
        work(out, status)?;
    }
    let prefer = choice_text(&status.prefer);
    writeln!(out, "  user share {}, prefer {prefer}", status.user_share)?;
    for DiversionStatus { description, detail, cost, .. } in &status.diversions {
        writeln!(out, "  diversion: {description} ({detail}): {cost}")?;
    }
    for note in status.notes.iter().cloned().chain(status.ungoverned()) {
        writeln!(out, "  note: {note}")?;
    }
    Ok(())
}

/// What the governor and the limit of softirqs do now.
fn work(out: &mut impl Write, status: &InterfaceStatus) -> io::Result<()> {
    let rings_hold = rings_hold(status);
    // Threads that poll nothing are not told of.
    for observed in status.governed.iter().filter(|_| status.not_threaded.is_none()) {
        writeln!(out, "  governor: {}", governor(observed, rings_hold))?;
        for limit in &observed.limits {
            writeln!(out, "  held to its share: {}", held(limit))?;
        }
    }
    if !status.governed.is_empty() && !status.shares_enforced {
        writeln!(out, "  shares: metered, but not enforced (enforce = false)")?;
    }
    if let Some(limit) = &status.softirq_limit {
        writeln!(out, "  softirq limit: {}", softirq_limit(limit))?;
    }
    Ok(())
}

/// What has happened.
fn counts(out: &mut impl Write, status: &InterfaceStatus) -> io::Result<()> {
    let mut verdicts = status.verdicts.iter().filter(|each| each.counter.packets > 0);
    let mut reasons = status.reasons.iter().filter(|each| each.counter.packets > 0);
    let lazy = verdicts.any(|each| each.verdict == Verdict::Deliver.name());
    let forwarded = reasons.any(|each| each.reason == Reason::Forwarded.name());
    if status.silent_for.is_none() {
        let tell = |what: &str, rate| format!("{what} {}", per_second(rate));
        let rates = status.rates.told(status.policy, (lazy, forwarded), tell).join(", ");
        writeln!(out, "  {rates}")?;
    }
    row_of(out, ["VERDICT", "REASON", "PACKETS", "BYTES"])?;
    writeln!(out)?;
    for verdict in &status.verdicts {
        row(out, [&verdict.verdict, "(all)"], verdict.counter, &verdict.description)?;
        for reason in &status.reasons {
            if reason.verdict == verdict.verdict && reason.counter.packets > 0 {
                let names = [reason.verdict.as_str(), &reason.reason];
                row(out, names, reason.counter, &reason.description)?;
            }
        }
    }
    Ok(())
}

fn per_second(rate: PacketsPerSec) -> String {
    format!("{}/s", HumanCount(rate.0.round() as u64))
}

/// `sees_ring`: whether ring drops would be seen.
fn sleep(sleep: &SleepStatus, sees_ring: bool) -> String {
    let state = match (sleep.asleep, sees_ring) {
        (true, true) => "asleep, as nothing is wrong",
        (true, false) => {
            "asleep, as nothing is wrong that shows here: ring drops do not (a veth's are its peer's)"
        }
        (false, _) => "awake",
    };
    let woken = sleep.woken.iter();
    let woken = woken.map(|by| format!("{} ({})", by.description, HumanCount(by.times)));
    let woken: Vec<String> = woken.collect();
    let wakes = if woken.is_empty() { "" } else { "; woken by: " };
    format!("the gate is {state}{wakes}{}", woken.join(", "))
}

fn row(
    out: &mut impl Write,
    [verdict, reason]: [&str; 2],
    Counter { packets, bytes }: Counter,
    description: &str,
) -> io::Result<()> {
    row_of(out, [verdict, reason, &packets.to_string(), &bytes.to_string()])?;
    writeln!(out, "  {description}")
}

fn row_of(out: &mut impl Write, [verdict, reason, packets, bytes]: [&str; 4]) -> io::Result<()> {
    let reasons = Reason::ALL.into_iter().map(|each| each.name().len()).max().unwrap_or(0);
    write!(out, "  {verdict:<13} {reason:<reasons$} {packets:>14} {bytes:>16}")
}

fn napi(status: &InterfaceStatus) -> String {
    if let Some(why) = &status.not_threaded {
        return format!("in softirq: {why}");
    }
    let pids: Vec<String> = status.napi_threads.iter().map(i32::to_string).collect();
    let threads = if pids.is_empty() { "none now".into() } else { pids.join(", ") };
    match status.nice {
        Some(nice) => format!("threads {threads}, nice {nice}"),
        None if status.governed.is_empty() => format!("threads {threads}, nice left alone"),
        None => format!("threads {threads}, governed"),
    }
}

/// What receive softirqs may take, and do.
fn softirq_limit(limit: &LimitStatus) -> String {
    let cpu = |cpu: &CpuShares| {
        let (taken, used) = (cpu.taken * 100.0, cpu.used * 100.0);
        format!("; of CPU {} taken {taken:.0}%, used {used:.0}%", cpu.cpu)
    };
    let cpus: String = limit.cpus.iter().map(cpu).collect();
    format!(
        "{:.1}% of a CPU that processes want; discarded for it {}{cpus}",
        limit.input_share * 100.0,
        limit.discarded
    )
}

/// A channel that is over its share of a saturated CPU.
fn held(limit: &LimitRow) -> String {
    let local = limit.address.zip(limit.port);
    let name = channel_name::text(&limit.kind, local, limit.interface.as_deref());
    format!("{name}, at most {:.1}% of the CPU", limit.share * 100.0)
}

/// Whether the rate that rings are estimated to hold is to be told. It is too low if more has just come without ring
/// drops: in polls of few packets each costs more, as what a poll itself costs is in it.
fn rings_hold(status: &InterfaceStatus) -> bool {
    let estimated: f64 = status.governed.iter().filter_map(|each| each.r_ring_pps).sum();
    let has_dropped = status.rates.ring_drops().is_some_and(|drops| drops.0 > 0.0);
    status.rates.seen_pps.0 <= estimated || has_dropped
}

/// What the governor does with one thread.
fn governor(observed: &Observed, ring_holds: bool) -> String {
    let percent = |share: f64| format!("{:.0}%", share * 100.0);
    let mut ring = String::new();
    if let Some(cost) = observed.c_gate_ns {
        ring += &format!("; a discarded packet costs {cost:.0} ns");
    }
    if let Some(rate) = observed.r_ring_pps.filter(|_| ring_holds) {
        ring += &format!(", so the ring holds up to {}", per_second(PacketsPerSec(rate)));
    }
    let (used, waited) = (percent(observed.used), percent(observed.waited));
    let times = match observed.doing == "asleep" {
        // Nobody watches the scheduler.
        true => format!("used {used} of the CPU, waited {waited}"),
        false => format!(
            "used {used} of the CPU ({} for discards, {} while other tasks waited), waited {waited} ({} for other tasks)",
            percent(observed.wasted),
            percent(observed.taken),
            percent(observed.held)
        ),
    };
    let (Observed { pid, cpu, .. }, weight) = (observed, observed.weight());
    let own = observed.own_cpu * 100.0;
    format!("thread {pid} on CPU {cpu}: {weight}; {times}{ring}; the governor itself {own:.1}%")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Rates;

    #[test]
    fn a_ring_is_not_said_to_hold_less_than_it_has_just_held() {
        let observed: Observed = serde_json::from_value(serde_json::json!({
            "pid": 7, "cpu": 0, "nice": 0, "doing": "shared", "used": 0.5, "waited": 0.0,
            "wasted": 0.5, "taken": 0.0, "held": 0.0, "c_gate_ns": 5702.0, "discarding_ns": 1,
            "r_ring_pps": 87_689.0, "own_cpu": 0.0, "limits": [],
        }))
        .unwrap();
        let told = |threads, seen, ring_drops, ring_drops_counted| {
            let rates = Rates {
                seen_pps: PacketsPerSec(seen),
                ring_drop_pps: PacketsPerSec(ring_drops),
                ring_drops_counted,
                ..Rates::default()
            };
            let governed = vec![observed.clone(); threads];
            let status = InterfaceStatus { rates, governed, ..InterfaceStatus::default() };
            let mut out = Vec::new();
            protection(&mut out, &status).unwrap();
            let text = String::from_utf8(out).unwrap();
            assert!(text.contains("costs 5702 ns"), "{text}");
            text.contains("ns, so the ring holds up to 87,689/s")
        };
        assert!(told(1, 80_000.0, 0.0, true));
        assert!(!told(1, 149_992.0, 0.0, true) && !told(1, 149_992.0, 0.0, false));
        assert!(told(1, 149_992.0, 9.0, true));
        assert!(told(2, 149_992.0, 0.0, true), "each has a ring");
    }

    #[test]
    fn what_is_held_is_named_as_everywhere() {
        let row = |kind: &str, port: Option<u16>, interface: Option<&str>| LimitRow {
            kind: kind.into(),
            address: port.map(|_| [198, 18, 0, 1].into()),
            port,
            interface: interface.map(Into::into),
            share: 0.25,
        };
        let peers = held(&row("tcp-peer", Some(179), None));
        assert_eq!(peers, "tcp-peer 198.18.0.1 to port 179, at most 25.0% of the CPU");
        let routed = held(&row("forward", None, Some("eth1")));
        assert_eq!(routed, "forward via eth1, at most 25.0% of the CPU");
    }
}
