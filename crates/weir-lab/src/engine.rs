//! The only trial loop: sets a scene up in an arm, opens and closes a window, waits until every packet has
//! ended somewhere, and makes the declared metrics of what was read.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, getpid, kill_process};
use weir_bpf::poll_cost::PollCost;
use weir_bpf::replies::QUESTIONS;
use weir_bpf::sys::ethtool;
use weir_bpf::sys::sched;
use weir_bpf::sys::stat::Stat;
use weir_bpf::sys::task_clock::TaskClock;
use weir_bpf::units::Nice;

use crate::apps::parity::Measure;
use crate::apps::{Job, parity, slots};
use crate::arm::Arm;
use crate::bench::{Begun, Bench, Running, place, poll_in_words};
use crate::error::{Error, Result, cannot};
use crate::experiment::{Ask, Times};
use crate::host::group::Group;
use crate::host::process::Worker;
use crate::host::topology::{Host, SUT_INTERFACE};
use crate::host::wire::{FLOOD_NET, FarInterrupts, Sink, SlowEgress};
use crate::meter::{self, Metered};
use crate::metric::{METRICS, Source, m};
use crate::probe::{Probe, ksoftirqd};
use crate::programs::{Client as RealClient, ClientKind, ClientReport, Place, UDP_MBIT};
use crate::reading::{Counter, Reading};
use crate::run::{Ledger, Setup, Trial};
use crate::scene::{Beside, Books, Client, Need, Scene, Watch};
use crate::stats::{nearest_rank, spread};
use crate::stop::{Stop, until};

/// How long packets that are still queued at the end may take to arrive.
const DRAIN_DEADLINE: Duration = Duration::from_secs(2);
/// The generator works, without sending, before the first packet.
const SPIN_UP: Duration = Duration::from_millis(10);
/// How often what arrives of an echo server's replies is read: long against the microseconds that it takes.
const SLICE: Duration = Duration::from_millis(10);
/// How long a client may take until each of its connections has been used, and a gate until it judges.
const UNDER_WAY_DEADLINE: Duration = Duration::from_secs(10);
/// A program's client that has not ended so long after its time is ended.
const CLIENT_GRACE: Duration = Duration::from_secs(15);
/// With fewer of the packets in full polls than this, those say too little: the CPU time is taken.
const IN_FULL_POLLS_MIN: f64 = 0.02;

/// What a trial saw, before metrics are made of it.
struct Seen {
    before: Reading,
    opened: Reading,
    closed: Reading,
    after: Reading,
    polls: Option<(PollCost, PollCost)>,
    arrivals: Vec<(Instant, u64)>,
    report: Option<ClientReport>,
    metered: Option<Metered>,
    pings: Option<Vec<Option<f64>>>,
    length: Duration,
}

pub fn trial(
    bench: &mut Bench,
    ask: &Ask<'_>,
    scene: &Scene,
    (times, repeat): (Times, u32),
    stop: &Stop,
) -> Result<Trial> {
    let arm = ask.arm;
    bench.prepare(arm, &scene.needs, &scene.apps)?;
    if scene.watch.contains(&Watch::RoundTrips) {
        let pings: f64 = scene.flows.iter().filter(|f| f.light).map(|f| f.load.pps()).sum();
        if pings * (times.warm_up + times.window).as_secs_f64() > f64::from(QUESTIONS) / 2.0 {
            return Err(Error::refused(
                format!("a window of {} s has too many pings", times.window.as_secs()),
                "leave --seconds at 30 or less",
            ));
        }
        bench.watch_replies(arm)?;
    }
    let begun = bench.begin(arm)?;
    bench.start_own(arm, &scene.apps)?;
    if !bench.setups.contains_key(&arm.name) {
        let setup = describe(bench, arm, scene, &begun, stop)?;
        bench.setups.insert(arm.name.clone(), setup);
    }
    if scene.watch.contains(&Watch::Polls)
        && let Some(thread) = bench.pollers(arm)?.first()
    {
        let clock = match bench.clock.take() {
            Some(clock) => clock,
            None => weir_bpf::poll_cost::PollClock::load()?,
        };
        bench.clock.insert(clock).watch(thread.napi_id);
    }
    bench.aim(arm, &scene.flows)?;
    let seen = watch(bench, arm, scene, &begun, times, stop)?;
    bench.end(arm)?;

    let ledger = ledger(scene.books, &seen.before, &seen.after);
    let place = format!("{}, {} at {}", arm.name, ask.case, ask.load);
    check(scene, &seen, ledger.as_ref(), &place)?;
    let mut trial = Trial { repeat, ledger, ..Trial::of(arm, ask.case, ask.load) };
    measure(&mut trial, scene, &seen);
    let missed =
        (0..scene.flows.len()).map(|flow| bench.generator.counts(flow).missed).sum::<u64>();
    trial.set(&m::missed, (!scene.flows.is_empty()).then_some(missed as f64));
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
    let accounts = scene.watch.contains(&Watch::Accounts);
    let pollers: Vec<Pid> = bench.pollers(arm)?.iter().map(|thread| thread.pid).collect();
    let clocks = pollers.iter().filter(|_| accounts).map(|pid| Ok(TaskClock::of(*pid)?));
    let clocks = clocks.collect::<Result<_>>()?;
    let far = || FarInterrupts::bind(&bench.topology, &sut.host, far_nobody(scene, &sut.host));
    let _far = scene.needs.contains(&Need::FarEnd).then(far).transpose()?;
    let slow = scene.egress_mbit.map(|mbit| SlowEgress::attach(&sut.host, mbit));
    let _slow = slow.transpose()?;
    let _sink = scene.sink.then(|| Sink::attach(&sut.host)).transpose()?;
    let mut probe = Probe {
        bench,
        host: &sut.host,
        scene,
        apps: scene.apps.iter().filter_map(|app| sut.app(app)).collect(),
        client: None,
        hog: None,
        interactive: None,
        daemon: begun.daemon.as_ref(),
        pollers,
        clocks,
        ksoftirqd: if accounts { ksoftirqd(bench.sut_cpu)? } else { None },
    };
    let before = probe.read()?;
    if let (Some(replies), true) = (&bench.replies, scene.watch.contains(&Watch::RoundTrips)) {
        replies.clear();
    }
    let beside = Companions::start(bench, arm, &scene.beside)?;
    let flooded = probe.apps.first().filter(|_| scene.stopped).map(|app| app.pids());
    let stopped = flooded.and_then(|pids| Some(Stopped::stop(*pids.first()?))).transpose()?;
    let client = start_client(bench, arm, scene, stop)?;
    probe.hog = beside.hog();
    probe.interactive = beside.interactive();
    probe.client = client.as_ref();
    let flooded = scene.flows.iter().any(|flow| !flow.light);
    let warm_up = if flooded { times.warm_up.max(scene.settle) } else { times.warm_up };

    // The clock stays for the run, and knows one arm's thread.
    let clock = bench.clock.as_ref().filter(|_| scene.watch.contains(&Watch::Polls));
    let polls = || clock.map(weir_bpf::poll_cost::PollClock::read);
    let measured = || {
        stop.sleep(SPIN_UP)?;
        bench.generator.start();
        go(client.as_ref(), true);
        stop.sleep(warm_up)?;
        judged(&probe, stop)?;
        let (real, length) = start_program(&probe, times.window)?.unzip();
        let (opened, first) = (probe.read()?, polls());
        let began = Instant::now();
        let arrivals = arrivals(&probe, length.unwrap_or(times.window), stop)?;
        let (closed, last) = (probe.read()?, polls());
        let elapsed = began.elapsed();
        let report = real.map(|real| report(real, stop)).transpose()?;
        Ok::<_, Error>((opened, closed, arrivals, report, first.zip(last), elapsed))
    };
    let (opened, closed, arrivals, report, polls, length) =
        if scene.without_generator { measured()? } else { bench.generate_while(measured)?? };
    go(client.as_ref(), false);
    // What waits in its queue is to be received, and in good time.
    drop(stopped);
    beside.end();
    let mut after = drain(&probe, &before, stop)?;
    if let Some(client) = client.as_ref().filter(|_| scene.books == Books::Ip) {
        // Its resets are this trial's, and must find room in the ring: a connection that is left would
        // send again in the next trial.
        client.end();
        after = drain(&probe, &before, stop)?;
    }
    let pings = scene.watch.contains(&Watch::RoundTrips).then(|| {
        let numbers = opened.get(Counter::LightSent)..closed.get(Counter::LightSent);
        let age = |number: u64| {
            let replies = bench.replies.as_ref()?;
            Some(replies.age(u32::try_from(number).ok()?)?.0 as f64 / 1e3)
        };
        numbers.map(age).collect()
    });
    let metered = match (&begun.daemon, accounts) {
        (Some(daemon), true) => Some(meter::read(bench, arm, daemon, stop)?),
        _ => None,
    };
    Ok(Seen { before, opened, closed, after, polls, arrivals, report, metered, pings, length })
}

/// Waits until the gate judges: what may divert packets, as a scene's sink may, is read before it does.
fn judged(probe: &Probe<'_>, stop: &Stop) -> Result<()> {
    let deadline = Instant::now() + UNDER_WAY_DEADLINE;
    let mut last = probe.read()?;
    while probe.scene.books == Books::Ring && last.has(Counter::Judged) {
        stop.sleep(SLICE)?;
        let now = probe.read()?;
        if now.since(&last, Counter::Unjudged) == 0 || Instant::now() > deadline {
            break;
        }
        last = now;
    }
    Ok(())
}

/// Where a packet ends that is to bind the far end's interrupts.
fn far_nobody(scene: &Scene, host: &Host) -> IpAddr {
    match scene.needs.contains(&Need::AnswersDropped) {
        // It ends where the answers to the flood do.
        true => Ipv4Addr::from_bits(FLOOD_NET.0.to_bits() + 1).into(),
        false => host.address.0,
    }
}

/// Starts a scene's client, if it is a program; returns it and how long it sends from now on.
fn start_program(probe: &Probe<'_>, window: Duration) -> Result<Option<(RealClient, Duration)>> {
    let (Some(kind), bench) = (probe.scene.program, probe.bench) else { return Ok(None) };
    let directory = bench.topology.directory("clients")?;
    let seconds = (window.as_secs_f64().round() as u64).max(1);
    let place = Place {
        netns: &bench.topology.generator_path,
        cpu: bench.generator_cpu,
        address: probe.host.address.1,
        directory: &directory,
    };
    Ok(Some((RealClient::start(kind, &place, seconds)?, Duration::from_secs(seconds))))
}

/// Waits until a program has ended, and reads what it says.
fn report(mut real: RealClient, stop: &Stop) -> Result<ClientReport> {
    until(CLIENT_GRACE, || stop.check().map(|()| (!real.is_running()).then_some(())))?;
    real.finish()
}

/// Lets a client of the lab's own send, or not.
fn go(client: Option<&Worker>, go: bool) {
    if let Some(client) = client {
        client.shared().get(slots::GO).store(go.into(), Ordering::Release);
        client.shared().get(slots::STOP).store((!go).into(), Ordering::Release);
    }
}

/// Starts a scene's client, if it is one of the lab's own; it waits for [`go`], or is under way.
fn start_client(bench: &Bench, arm: &Arm, scene: &Scene, stop: &Stop) -> Result<Option<Worker>> {
    let Some(client) = scene.client.clone() else { return Ok(None) };
    let (slot, under_way) = match client {
        Client::Http { connections, .. } => (slots::DELIVERED, connections.into()),
        // A rate of calls is from the end of one to the end of another.
        Client::Rpc { .. } => (slots::CALLS, 1),
        Client::Tcp { .. } | Client::Parity(..) => (slots::DELIVERED, 0),
    };
    let job = Job::Client(bench.sut(arm).host.address.1, client);
    let client = Worker::start(&bench.topology.generator_path, bench.generator_cpu, job)?;
    let is_under_way = || (client.count(slot) >= under_way).then_some(());
    until(UNDER_WAY_DEADLINE, || stop.check().map(|()| is_under_way()))?.ok_or_else(|| {
        let problem = format!("the server does not answer in arm {}, without any flood", arm.name);
        Error::refused(problem, "is the machine overloaded? try again")
    })?;
    Ok(Some(client))
}

/// Lasts a window, and reads what arrives at the far end between its slices where that is watched.
fn arrivals(probe: &Probe<'_>, window: Duration, stop: &Stop) -> Result<Vec<(Instant, u64)>> {
    if !probe.scene.watch.contains(&Watch::Replies) {
        return stop.sleep(window).map(|()| vec![]);
    }
    let began = Instant::now();
    let mut readings = vec![(began, probe.arrived()?)];
    let slices = (window.as_micros() / SLICE.as_micros()).max(1) as u32;
    for slice in 1..=slices {
        // What is left over of the window lengthens its last slice.
        let ends = if slice == slices { window } else { SLICE * slice };
        stop.sleep(ends.saturating_sub(began.elapsed()))?;
        readings.push((Instant::now(), probe.arrived()?));
    }
    Ok(readings)
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

/// Whether every request was answered and every answer has arrived, or was refused.
fn answered(scene: &Scene, before: &Reading, after: &Reading) -> bool {
    let since = |counter| after.since(before, counter);
    if matches!(scene.client, Some(Client::Rpc { .. })) {
        let received: u64 =
            [Counter::Delivered, Counter::OtherDelivered].into_iter().map(since).sum();
        let replied = since(Counter::Replied);
        return replied == received && since(Counter::Done) + since(Counter::Calls) == replied;
    }
    if after.has(Counter::Arrived) {
        let echoed = since(Counter::Delivered);
        let replied = since(Counter::Replied);
        return replied == echoed
            && replied == since(Counter::Arrived) + since(Counter::RepliesRefused);
    }
    true
}

/// Where every packet between two readings ended: exact once everything has drained. `None` where
/// packets are not counted.
fn ledger(books: Books, before: &Reading, after: &Reading) -> Option<Ledger> {
    let since = |counter| after.since(before, counter);
    let sent = since(Counter::FloodSent) + since(Counter::LightSent);
    let received: u64 = [Counter::Delivered, Counter::LightDelivered, Counter::OtherDelivered]
        .into_iter()
        .map(since)
        .sum();
    let common = Ledger {
        offered: sent,
        nic_drop: since(Counter::RingDrop),
        discarded: since(Counter::Discarded),
        ..Ledger::default()
    };
    let late = Ledger {
        late_backlog: since(Counter::LateBacklog),
        late_socket: since(Counter::LateSocket),
        late_other: since(Counter::LateOther),
        delivered: received,
        ..common
    };
    let ledger = match books {
        Books::None => return None,
        Books::Udp => late,
        Books::Client => Ledger { offered: since(Counter::ClientSent), ..late },
        Books::Ip => {
            let udp = late.late_socket + late.late_other + late.delivered;
            Ledger {
                offered: sent + since(Counter::ClientIpSent),
                beyond_udp: since(Counter::IpReceived).saturating_sub(udp),
                ..late
            }
        }
        Books::Tcp => {
            let all = since(Counter::RingDrop) + since(Counter::Taken);
            Ledger { offered: all.max(sent), delivered: since(Counter::Segments), ..common }
        }
        Books::Ring => {
            Ledger { delivered: since(Counter::Taken).saturating_sub(common.discarded), ..common }
        }
    };
    Some(ledger.closed())
}

/// A trial that contradicts itself is no result.
fn check(scene: &Scene, seen: &Seen, ledger: Option<&Ledger>, place: &str) -> Result<()> {
    let since = |counter| seen.after.since(&seen.before, counter);
    let wrong = |what: String| {
        let problem = format!("{what}, in arm {place}: the run is not a result");
        let remedy =
            "something else may be sending in the lab's namespaces; otherwise please report this";
        Err(Error::refused(problem, remedy))
    };
    if let Some(ledger) = ledger.filter(|ledger| ledger.unaccounted != 0) {
        return wrong(format!("packets do not add up: {ledger:?}"));
    }
    if scene.books == Books::Ring && seen.after.has(Counter::Judged) {
        let (judged, taken) = (since(Counter::Judged), since(Counter::Taken));
        if judged != taken {
            return wrong(format!("the gate counted {judged} of {taken} packets that were taken"));
        }
        let unjudged = seen.after.since(&seen.opened, Counter::Unjudged);
        if unjudged > 0 {
            return Err(Error::refused(
                format!("the gate passed {unjudged} of {taken} packets unjudged"),
                "something in the lab's namespace may divert packets; `weir status` there names it",
            ));
        }
    }
    if answered(scene, &seen.before, &seen.after) {
        return Ok(());
    }
    wrong(format!(
        "replies do not add up: {} received, {} replied to, {} arrived, {} refused",
        since(Counter::Delivered) + since(Counter::OtherDelivered),
        since(Counter::Replied),
        since(Counter::Arrived) + since(Counter::Done) + since(Counter::Calls),
        since(Counter::RepliesRefused)
    ))
}

fn measure(trial: &mut Trial, scene: &Scene, seen: &Seen) {
    let Seen { before, opened, closed, after, .. } = seen;
    for metric in METRICS {
        let value = match metric.source {
            Source::Rate(counter, times) => closed.per_s(opened, counter).map(|rate| rate * times),
            Source::Ratio(over, under, times) => {
                closed.ratio(opened, over, under).map(|ratio| ratio * times)
            }
            Source::WholeRatio(over, under) => after.ratio(before, over, under),
            Source::Total(counter) => {
                after.has(counter).then(|| after.since(before, counter) as f64)
            }
            Source::Quantile(histogram, share, times) => {
                closed.quantile_ns(opened, histogram, share).map(|ns| ns * times)
            }
            Source::Given => None,
        };
        trial.set(metric, value);
    }
    trial.set(&m::window_s, Some(seen.length.as_secs_f64()));
    derived(trial, seen);
    polls(trial, seen);
    trial.set(&m::echo_steady, steadiness(&seen.arrivals));
    if let Some(pings) = &seen.pings {
        round_trips(trial, pings);
    }
    if let Some((kind, report)) = scene.program.zip(seen.report.as_ref()) {
        reported(trial, kind, report);
    }
    if let Some(metered) = seen.metered.filter(|metered| metered.charged > 0) {
        let input = after.since(before, Counter::NapiPerf) as f64;
        let sum = metered.discarding.map(|ns| (metered.charged + ns) as f64 / input);
        trial.set(&m::meter_sum, sum.filter(|_| input > 0.0));
        trial.set(&m::meter_flooded, Some(metered.flooded as f64 / metered.charged as f64));
    }
}

/// Figures made of several counters.
fn derived(trial: &mut Trial, seen: &Seen) {
    let Seen { before, opened, closed, after, .. } = seen;
    let whole = |counter| after.since(before, counter) as f64;
    let per = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole);
    let window = |counter| closed.since(opened, counter) as f64;
    let taken =
        trial.ledger.map_or(0, |ledger| ledger.offered - ledger.nic_drop.min(ledger.offered));
    if after.has(Counter::InputCpu) {
        trial.set(&m::cpu_ns_per_packet, per(whole(Counter::InputCpu), taken as f64));
    }
    if after.has(Counter::Done) {
        trial.set(&m::failed, Some(window(Counter::ClientLost)));
        let done = window(Counter::Done);
        trial.set(&m::trip_us, per(seen.length.as_secs_f64() * 1e6, done));
    }
    if after.has(Counter::Segments) {
        let lost = window(Counter::RingDrop) - window(Counter::RingDropFlood);
        trial.set(&m::client_lost_pps, per(lost.max(0.0), seen.length.as_secs_f64()));
    }
}

/// Cost per packet by polls that took a whole budget, which never wait; else by CPU time.
fn polls(trial: &mut Trial, seen: &Seen) {
    let Some((first, last)) = &seen.polls else { return };
    let packets = last.packets.saturating_sub(first.packets) as f64;
    let full = last.full_packets.saturating_sub(first.full_packets) as f64;
    let share = if packets > 0.0 { (full / packets).min(1.0) } else { 0.0 };
    trial.set(&m::in_full_polls, Some(share));
    trial.set(&m::handled_pps, Some(packets / seen.length.as_secs_f64()));
    let quantile = |share| last.quantile_ns_since(first, share);
    trial.set(&m::ns_p25, quantile(0.25));
    trial.set(&m::ns_p75, quantile(0.75));
    let by_cpu = trial.get(&m::cpu_ns_per_packet);
    let by_polls = quantile(0.5).filter(|_| share >= IN_FULL_POLLS_MIN);
    trial.set(&m::ns_per_packet, by_polls.or(by_cpu));
}

/// The slowest slice's rate of arrivals, of the median slice's.
fn steadiness(readings: &[(Instant, u64)]) -> Option<f64> {
    let rates = readings.windows(2).map(|pair| {
        let (from, to) = (pair[0], pair[1]);
        (to.1 - from.1) as f64 / (to.0 - from.0).as_secs_f64()
    });
    let slices = spread(rates);
    (readings.len() > 2 && slices.median > 0.0).then(|| slices.min / slices.median)
}

/// Percentiles of the round trips that came to an end; a percentile of too few is left out.
fn round_trips(trial: &mut Trial, pings: &[Option<f64>]) {
    let mut replied: Vec<f64> = pings.iter().flatten().copied().collect();
    replied.sort_by(f64::total_cmp);
    for (metric, permille, least) in
        [(&m::rtt_p50_us, 500, 1), (&m::rtt_p99_us, 990, 100), (&m::rtt_p999_us, 999, 1000)]
    {
        let value = nearest_rank(&replied, permille).filter(|_| replied.len() >= least);
        trial.set(metric, value);
    }
    let in_row = pings.split(Option::is_some).map(<[_]>::len).max();
    trial.set(&m::pings_lost_in_row, in_row.map(|count| count as f64));
    trial.set(&m::pings_sent, Some(pings.len() as f64));
    trial.set(&m::pings_lost, Some((pings.len() - replied.len()) as f64));
}

/// What a program says of itself.
fn reported(trial: &mut Trial, kind: ClientKind, report: &ClientReport) {
    let (throughput, asked) = match kind {
        ClientKind::Iperf3Udp { .. } => (&m::throughput_mbit, Some(UDP_MBIT)),
        ClientKind::Iperf3Tcp => (&m::throughput_mbit, None),
        ClientKind::Dnsperf { rate } => (&m::per_s, rate),
        _ => (&m::per_s, None),
    };
    trial.set(throughput, Some(report.throughput));
    trial.set(&m::loss, report.lost);
    trial.set(&m::took_p50_us, report.p50_us.or(report.mean_us));
    trial.set(&m::took_p99_us, report.p99_us);
    trial.set(&m::failed, Some(report.errors as f64));
    trial.set(&m::sent_share, asked.zip(report.offered).map(|(asked, sent)| sent / asked));
}

/// A process that does not run until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn stop(pid: Pid) -> Result<Self> {
        kill_process(pid, Signal::STOP).map_err(cannot("stop", "the flooded application"))?;
        Ok(Self(pid))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

/// The processes beside the applications. The groups go after the processes in them.
struct Companions {
    workers: Vec<(Beside, Worker)>,
    _groups: Vec<Group>,
}

impl Companions {
    fn start(bench: &Bench, arm: &Arm, beside: &[Beside]) -> Result<Self> {
        let (mut workers, mut groups) = (vec![], vec![]);
        for one in beside {
            let job = match one {
                Beside::Hog(_) | Beside::GroupHog => Job::Compute { idle: false, yields: false },
                Beside::IdleHog => Job::Compute { idle: true, yields: false },
                Beside::Spinner => Job::Compute { idle: true, yields: true },
                Beside::Interactive => Job::Interactive,
            };
            let worker = Worker::start(&bench.sut(arm).host.netns_path, bench.sut_cpu, job)?;
            match one {
                Beside::Hog(nice) => sched::set_nice(worker.pid(), Nice(*nice))?,
                Beside::GroupHog => groups.push(Group::of(worker.pid())?),
                Beside::IdleHog | Beside::Spinner | Beside::Interactive => {}
            }
            workers.push((*one, worker));
        }
        Ok(Self { workers, _groups: groups })
    }

    /// Ends them; they are waited for when this is dropped.
    fn end(&self) {
        for (_, worker) in &self.workers {
            let _ = kill_process(worker.pid(), Signal::KILL);
        }
    }

    /// The one whose work counts.
    fn hog(&self) -> Option<&Worker> {
        let works = |one: &Beside| !matches!(one, Beside::Spinner | Beside::Interactive);
        self.workers.iter().find(|(one, _)| works(one)).map(|(_, worker)| worker)
    }

    fn interactive(&self) -> Option<&Worker> {
        self.workers.iter().find(|(one, _)| *one == Beside::Interactive).map(|(_, it)| it)
    }
}

/// What ran where in an arm that is set up, read back from the kernel rather than from what was asked for.
fn describe(
    bench: &mut Bench,
    arm: &Arm,
    scene: &Scene,
    begun: &Begun,
    stop: &Stop,
) -> Result<Setup> {
    let counted = !scene.without_generator
        && matches!(scene.books, Books::Udp | Books::Ip)
        && arm.bare.is_none();
    let depth = if counted { Some(bench.queue_depth(arm, stop)?) } else { None };
    let bench = &*bench;
    let sut = bench.sut(arm);
    let host = &sut.host;
    let driver_poll = poll_in_words(bench, arm)?;
    let attach = begun.daemon.as_ref().map_or("none", |daemon| &daemon.attach);
    let application = scene.apps.first().and_then(|app| sut.app(app)).map(Running::pids);
    let application = application.and_then(|pids| pids.first().copied());
    Ok(Setup {
        gate: match (&arm.bare, attach) {
            (Some(bare), _) => format!("a bare program: {bare:?}"),
            (None, "none") => "none".into(),
            _ => driver_poll.clone(),
        },
        driver_poll,
        application: match application {
            Some(pid) => format!("{}, {}", place(pid)?, session(pid)),
            None => "none".into(),
        },
        attach: attach.to_owned(),
        gro: host.netns.run(|| ethtool::gro(SUT_INTERFACE))??,
        tso: bench.topology.generator.run(|| ethtool::tso(&host.generator_ifname))??,
        rps_cpus: host.sysfs.read(SUT_INTERFACE, "queues/rx-0/rps_cpus")?.trim().to_owned(),
        queue_depth_packets: depth.map(|depth| depth.0),
        rcvbuf_bytes: depth.map(|depth| depth.1),
        daemon: arm.daemon.as_ref().map_or("none".into(), |spec| {
            let binary =
                spec.binary.as_ref().map_or("weir".into(), |path| path.display().to_string());
            [&[binary, "run".into()], &spec.options[..]].concat().join(" ")
        }),
    })
}

/// Whom the scheduler weighs a process with.
fn session(pid: Pid) -> &'static str {
    let autogroup = std::fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
    // A server's worker process is in its master's. Not getsid(2) by rustix, which takes a session
    // of 0, one that was begun outside the PID namespace, for impossible.
    let session = |pid: Pid| Stat::of(pid.as_raw_nonzero().get()).and_then(|stat| stat.session());
    match (session(pid) != session(getpid()), autogroup.is_ok_and(|text| text.trim() == "1")) {
        (true, true) => "a session of its own, autogroup on",
        (true, false) => "a session of its own, no autogroup",
        (false, true) => "in the lab's session, autogroup on",
        (false, false) => "in the lab's session, no autogroup",
    }
}

/// Mbit/s of a parity conversation's payload, from packets or bytes per second.
pub fn mbit(measure: Measure, per_s: f64) -> f64 {
    let bytes = if measure.is_udp() { parity::DATAGRAM_BYTES as f64 } else { 1.0 };
    per_s * bytes * 8.0 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Load;

    #[test]
    fn the_slowest_slice_is_held_against_the_median() {
        let began = Instant::now();
        let at = |ms, packets| (began + Duration::from_millis(ms), packets);
        // 1,000, 400 and, in twice the time, 1,800 packets.
        let readings = [at(0, 50), at(10, 1_050), at(20, 1_450), at(40, 3_250)];
        assert!((steadiness(&readings).unwrap() - 40.0 / 90.0).abs() < 1e-9);
        // Where nothing comes, nothing is steady.
        assert_eq!(steadiness(&[at(0, 50), at(10, 50)]), None);
    }

    fn blank() -> Trial {
        Trial {
            arm: "weir".into(),
            case: "pings".into(),
            load: Load::Off,
            repeat: 0,
            values: std::collections::BTreeMap::new(),
            ledger: None,
        }
    }

    #[test]
    fn a_ping_that_is_lost_is_no_reply_and_a_percentile_of_too_few_is_left_out() {
        let mut trial = blank();
        let pings: Vec<Option<f64>> =
            (0..1000).map(|n| (n % 50 != 0).then_some(f64::from(n) + 1000.0)).collect();
        round_trips(&mut trial, &pings);
        assert_eq!(trial.get(&m::pings_lost), Some(20.0));
        assert_eq!((trial.get(&m::rtt_p50_us), trial.get(&m::rtt_p999_us)), (Some(1499.0), None));
        let mut few = blank();
        round_trips(&mut few, &[Some(1.0); 99]);
        assert_eq!((few.get(&m::rtt_p99_us), few.get(&m::rtt_p50_us)), (None, Some(1.0)));
    }

    #[test]
    fn books_balance_by_what_they_count() {
        let mut after = Reading::default();
        for (counter, count) in [
            (Counter::FloodSent, 100),
            (Counter::RingDrop, 10),
            (Counter::Discarded, 20),
            (Counter::LateSocket, 5),
            (Counter::Delivered, 65),
            (Counter::Taken, 90),
            (Counter::ClientIpSent, 7),
            (Counter::IpReceived, 77),
        ] {
            after.add(counter, count);
        }
        let before = Reading::default();
        assert_eq!(ledger(Books::Udp, &before, &after).unwrap().unaccounted, 0);
        let ring = ledger(Books::Ring, &before, &after).unwrap();
        assert_eq!((ring.unaccounted, ring.delivered), (0, 70));
        let ip = ledger(Books::Ip, &before, &after).unwrap();
        assert_eq!((ip.unaccounted, ip.beyond_udp), (0, 7));
        assert_eq!(ledger(Books::None, &before, &after), None);
    }
}
