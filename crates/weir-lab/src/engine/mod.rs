//! The only trial loop: sets a scene up in an arm, opens and closes a window, waits until every packet has
//! ended somewhere, and makes the declared metrics of what was read.

mod books;
mod figures;
mod setup;
mod watches;

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use weir_bpf::replies::QUESTIONS;
use weir_bpf::sys::task_clock::TaskClock;
use weir_bpf::units::Nice;

use self::books::{Seen, Window, answered, check, ledger};
use self::figures::measure;
use self::setup::describe;
use self::watches::Watching;
use crate::apps::{Job, slots};
use crate::arm::Arm;
use crate::bench::{Begun, Bench};
use crate::error::{Error, Result};
use crate::experiment::{Ask, Times};
use crate::host::group::group_of;
use crate::host::process::Process;
use crate::host::wire::{FLOOD_NET, far_interrupts, sink, slow_egress};
use crate::meter;
use crate::probe::Probe;
use crate::programs::Place;
use crate::reading::{Counter, Reading};
use crate::run::Trial;
use crate::scene::{Beside, Books, Client, Need, Scene, Watch};
use crate::stop::{Stop, until, wait_for};

/// How long packets that are still queued at the end may take to arrive.
const DRAIN_DEADLINE: Duration = Duration::from_secs(2);
/// The generator works, without sending, before the first packet.
const SPIN_UP: Duration = Duration::from_millis(10);
/// Between two looks whether the gate judges.
const SLICE: Duration = Duration::from_millis(10);
/// How long a client may take until each of its connections has been used, and a gate until it judges.
const UNDER_WAY_DEADLINE: Duration = Duration::from_secs(10);

pub fn trial(
    bench: &mut Bench,
    ask: &Ask<'_>,
    scene: &Scene,
    (times, repeat): (Times, u32),
    stop: &Stop,
) -> Result<Trial> {
    let arm = ask.arm;
    bench.prepare(arm, &scene.needs, &scene.apps)?;
    if scene.watch == Some(Watch::RoundTrips) {
        let pings: f64 = scene.flows.iter().filter(|f| f.light).map(|f| f.load.pps()).sum();
        if pings * (times.warm_up + times.window).as_secs_f64() > f64::from(QUESTIONS) / 2.0 {
            return Err(Error::refused(
                format!("a window of {} s has too many pings", times.window.as_secs()),
                "leave --seconds at 30 or less",
            ));
        }
    }
    // As a host's queues are there before weir is.
    let slow = scene.egress_mbit.map(|mbit| slow_egress(&bench.sut(arm).host, mbit));
    let _slow = slow.transpose()?;
    if !bench.setups.contains_key(&arm.name) {
        // With a daemon of its own: what it counts for this wakes a gate.
        let begun = bench.begin(arm, &scene.apps)?;
        let setup = describe(bench, arm, scene, &begun, stop)?;
        bench.setups.insert(arm.name.clone(), setup);
    }
    let begun = bench.begin(arm, &scene.apps)?;
    bench.aim(arm, &scene.flows)?;
    let seen = watch(bench, arm, scene, &begun, times, stop)?;
    drop(begun);
    let ledger = ledger(scene.books, &seen.before, &seen.after);
    let place = format!("{}, {} at {}", arm.name, ask.case, ask.load);
    check(scene, &seen, ledger.as_ref(), &place)?;
    let mut trial = Trial { repeat, ledger, ..Trial::of(&arm.name, ask.case, ask.load) };
    measure(&mut trial, &seen);
    Ok(trial)
}

/// From before the first packet until all have ended.
fn watch(
    bench: &Bench,
    arm: &Arm,
    scene: &Scene,
    begun: &Begun,
    times: Times,
    stop: &Stop,
) -> Result<Seen> {
    let sut = bench.sut(arm);
    let accounts = scene.watch == Some(Watch::Accounts);
    let threads = bench.pollers(arm)?;
    let clocks = threads.iter().filter(|_| accounts).map(|thread| Ok(TaskClock::of(thread.pid)?));
    let nobody = match scene.needs.contains(&Need::AnswersDropped) {
        // The packet ends where the answers to the flood do.
        true => Ipv4Addr::from_bits(FLOOD_NET.0.to_bits() + 1),
        false => sut.host.address.0,
    };
    let far = || far_interrupts(&bench.topology, &sut.host, nobody);
    let _far = scene.needs.contains(&Need::FarEnd).then(far).transpose()?;
    let _sink = scene.sink.then(|| sink(&sut.host)).transpose()?;
    let mut probe = Probe {
        bench,
        host: &sut.host,
        scene,
        apps: scene.apps.iter().filter_map(|app| begun.app(sut, app)).collect(),
        client: None,
        beside: None,
        daemon: begun.daemon.as_ref(),
        follows: arm.nat,
        pollers: threads.iter().map(|thread| thread.pid).collect(),
        clocks: clocks.collect::<Result<_>>()?,
    };
    let watching = Watching::begin(&probe, &threads)?;
    let before = probe.read()?;
    if let Some(kind) = scene.beside {
        let (netns, cpu) = (&sut.host.netns, bench.cpu(arm));
        let beside = probe.beside.insert(Process::worker(netns, cpu, Nice(0), Job::Beside(kind))?);
        if kind == Beside::GroupHog {
            beside.after = Some(Box::new(group_of(beside.pid())?));
        }
    }
    let flooded = probe.apps.first().filter(|_| scene.stopped);
    let stopped = flooded.map(|app| app.stop()).transpose()?;
    probe.client = start_client(bench, arm, scene, stop)?;
    let (warm_up, window) = (scene.warm_up(times.warm_up), scene.window(times.window));

    let measured = || {
        stop.sleep(SPIN_UP)?;
        bench.generator.start();
        stop.sleep(warm_up)?;
        judged(&probe, stop)?;
        let real = start_program(&probe, arm, window)?;
        let (opened, first) = (probe.read()?, watching.polls());
        let began = Instant::now();
        stop.sleep(window)?;
        let (closed, last) = (probe.read()?, watching.polls());
        let length = began.elapsed();
        begun.daemon.iter().try_for_each(|daemon| daemon.process.still_runs())?;
        probe.beside.iter().try_for_each(Process::still_runs)?;
        let report = real.zip(scene.program.as_ref());
        let report = report.map(|(real, (kind, _))| kind.report(real, stop)).transpose()?;
        Ok::<_, Error>(Window { opened, closed, length, polls: first.zip(last), report })
    };
    let window =
        if scene.without_generator { measured()? } else { bench.generate_while(measured)?? };
    probe.client.iter().for_each(|client| client.set(slots::STOP));
    // What waits in its queue is to be received, and in good time.
    drop(stopped);
    probe.beside.iter().for_each(Process::end);
    let mut after = drain(&probe, &before, stop)?;
    if let Some(client) = probe.client.as_ref().filter(|_| scene.books == Books::Ip) {
        // Its resets are this trial's, and must find room in the ring: a connection that is left would
        // send again in the next trial.
        client.end();
        after = drain(&probe, &before, stop)?;
    }
    if let Some(daemon) = begun.daemon.as_ref().filter(|_| accounts) {
        meter::read(bench, arm, daemon, stop, &mut after)?;
    }
    let pings = watching.pings(&window.opened, &window.closed);
    let steps = watching.steps(&window.opened, &window.closed);
    Ok(Seen { before, after, window, pings, steps })
}

/// Waits until the gate judges: what may divert packets, as a scene's sink may, is read before it does.
fn judged(probe: &Probe<'_>, stop: &Stop) -> Result<()> {
    let mut last = probe.read()?;
    if !matches!(probe.scene.books, Books::Ring | Books::Tap) || !last.has(Counter::Judged) {
        return Ok(());
    }
    until(UNDER_WAY_DEADLINE, || {
        stop.sleep(SLICE)?;
        let now = probe.read()?;
        let unjudged = now.since(&last, Counter::Unjudged);
        last = now;
        Ok((unjudged == 0).then_some(()))
    })
    .map(drop)
}

/// Starts a scene's client, if it is a program, which sends for a window from now on.
fn start_program(probe: &Probe<'_>, arm: &Arm, window: Duration) -> Result<Option<Process>> {
    let (Some((kind, more)), bench) = (&probe.scene.program, probe.bench) else {
        return Ok(None);
    };
    let place = Place {
        netns: &bench.topology.generator,
        cpu: bench.client_cpu(arm),
        address: probe.host.address.1,
        directory: bench.topology.directory("clients")?,
    };
    place.client(kind, more, window.as_secs()).map(Some)
}

/// Starts a scene's client, if it is one of the lab's own, and waits until it is under way.
fn start_client(bench: &Bench, arm: &Arm, scene: &Scene, stop: &Stop) -> Result<Option<Process>> {
    let Some(client) = scene.client.clone() else { return Ok(None) };
    let (slot, under_way) = match client {
        Client::Http { connections, .. } => (slots::DELIVERED, connections.into()),
        // A rate of calls is from the end of one to the end of another.
        Client::Rpc { .. } => (slots::CALLS, 1),
        Client::Tcp { .. } | Client::Parity(..) => (slots::DELIVERED, 0),
    };
    let job = Job::Client(bench.sut(arm).host.address.1.into(), client);
    let (netns, cpu) = (&bench.topology.generator, bench.client_cpu(arm));
    let client = Process::worker(netns, cpu, Nice(0), job)?;
    let is_under_way = || (client.count(slot) >= under_way).then_some(());
    let problem = format!("the server does not answer in arm {}, without any flood", arm.name);
    let ask = || stop.check().map(|()| is_under_way());
    wait_for(UNDER_WAY_DEADLINE, ask, (&problem, "is the machine overloaded? try again"))?;
    Ok(Some(client))
}

/// Waits until every packet has ended somewhere.
fn drain(probe: &Probe<'_>, before: &Reading, stop: &Stop) -> Result<Reading> {
    let (mut last, mut now) = (None, Reading::default());
    until(DRAIN_DEADLINE, || {
        stop.check()?;
        now = probe.read()?;
        let ledger = ledger(probe.scene.books, before, &now);
        let balanced = ledger.is_none_or(|ledger| ledger.unaccounted == 0);
        // What IP has received may still be on its way to an application.
        let at_rest = probe.scene.books != Books::Ip || last.replace(ledger) == Some(ledger);
        Ok((balanced && at_rest && answered(probe.scene, before, &now)).then_some(()))
    })?;
    Ok(now)
}
