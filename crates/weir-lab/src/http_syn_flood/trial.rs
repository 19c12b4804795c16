//! One trial: a client that asks nginx, a flood to the other listener, and where every packet ended.

use std::time::{Duration, Instant};

use rustix::process::Pid;
use weir_bpf::sys::{sched, snmp};
use weir_bpf::traffic::{FlowSpec, Sources, Transport};
use weir_bpf::verdict::Verdict;

use super::client::{Failure, PATIENCE};
use super::{CONNECTIONS, Services, Usage, far_side, nginx};
use crate::bench::{Bench, FLOODED_PORT};
use crate::error::{Error, Result};
use crate::results::http::{Failures, Http};
use crate::results::merit::MeritTrial;
use crate::results::{Ledger, Mode, Trial};
use crate::stop::Stop;
use crate::topology::SUT_INTERFACE;
use crate::trial::{
    DRAIN_DEADLINE, DRAIN_STEP, Flood, SPIN_UP, age_us, check_conservation, statistic,
};
use crate::worker::slots;
use crate::worker_process::{Daemon, Worker};
use crate::{far_end, histogram, interrupts, machine};

/// How long the client may take until it has asked often enough to be under way.
const UNDER_WAY_DEADLINE: Duration = Duration::from_secs(2);
/// A flood is measured from so long after its beginning. What the ring lost then is over by now: a connection whose SYN
/// was among it stands still for the client's patience, and would be an eighth less load for as long.
const UNDER_FLOOD: Duration = PATIENCE.saturating_add(Duration::from_millis(200));
/// Sources of the flood vary in this many bits of the address, and of the port.
const SOURCE_ADDRESS_BITS: u8 = 32 - far_side::FLOOD_SOURCES.1;
const SOURCE_PORT: (u16, u8) = (1 << 15, 15);

/// What a trial is of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    pub(super) mode: Mode,
    pub(super) usage: Usage,
    pub(super) flood: Flood,
    pub(super) warm_up: Duration,
    pub(super) window: Duration,
}

/// Cumulative counters, each with the instant at which it was read.
struct Snapshot {
    at: Instant,
    requests: u64,
    failures: [u64; Failure::ALL.len()],
    took: Vec<u64>,
    loops: Vec<u64>,
    server_cpu_ns: u64,
    client_cpu_ns: u64,
    input_cpu_ns: Option<u64>,
    daemon_cpu_ns: Option<u64>,
    idle_s: f64,
    steal_s: f64,
    kernel_at: Instant,
    packets: Packets,
}

/// Packets, flood and client together, since the host was made.
#[derive(Clone, Copy)]
struct Packets {
    /// Of the flood, since it was aimed.
    sent: u64,
    /// Refused by the ring.
    ring_refused: u64,
    /// Of these, the flood's.
    ring_refused_flood: u64,
    /// Taken from the ring.
    taken: u64,
    discarded: u64,
    /// Handed to TCP.
    segments: u64,
    cookies: u64,
}

struct Observer<'a> {
    bench: &'a Bench,
    mode: Mode,
    services: &'a Services,
    daemon: Option<&'a Daemon>,
    pollers: Vec<Pid>,
}

/// Runs one trial.
///
/// # Errors
/// Where packets do not add up, a process does not come up, or the user stops the run.
pub(super) fn measure(
    bench: &mut Bench,
    services: &Services,
    asked: Asked,
    stop: &Stop,
) -> Result<MeritTrial<Http>> {
    let Asked { mode, usage, flood, .. } = asked;
    let daemon = bench.start_daemon(mode, &[])?;
    if mode.is_interrupted() {
        interrupts::bind(bench, mode)?;
    }
    far_side::bind(bench, mode)?;
    aim(bench, mode, flood)?;
    let bench = &*bench;
    let pollers = bench.pollers(mode)?;
    let observer = Observer { bench, mode, services, daemon: daemon.as_ref(), pollers };
    let before = observer.packets()?; // the flood was aimed anew, so nothing is sent

    let warm_up = if flood == Flood::Off { asked.warm_up } else { asked.warm_up.max(UNDER_FLOOD) };
    let client = start_client(bench, mode, usage, stop)?;
    let (opened, closed) = bench.generate_while(|| {
        stop.sleep(SPIN_UP)?;
        bench.generator.start();
        stop.sleep(warm_up)?;
        let opened = observer.snapshot(&client)?;
        stop.sleep(asked.window)?;
        Ok::<_, Error>((opened, observer.snapshot(&client)?))
    })??;
    drop(client);
    let ledger = drain(&observer, &before, stop)?;
    far_end::release(bench, mode)?;
    if mode.is_interrupted() {
        interrupts::release(bench, mode)?;
    }
    check_conservation(&ledger, mode, flood)?;
    let missed_by_generator = bench.generator.counts(0).missed;
    Ok(figures(&asked, (&opened, &closed), Trial { ledger, missed_by_generator, ..blank(&asked) }))
}

fn aim(bench: &mut Bench, mode: Mode, flood: Flood) -> Result<()> {
    let host = &bench.sut(mode).host;
    let rate = match flood {
        Flood::Off => return bench.set_flows(mode, &[]),
        Flood::Paced(rate) => Some(rate),
        Flood::Top => None,
    };
    let address = (far_side::FLOOD_SOURCES.0.into(), host.address.1);
    let flow = FlowSpec {
        transport: Transport::TcpSyn,
        sources: Sources::Random { address_bits: SOURCE_ADDRESS_BITS, port_bits: SOURCE_PORT.1 },
        rate,
        ..FlowSpec::udp(host.mac, address, (SOURCE_PORT.0, FLOODED_PORT))
    };
    bench.set_flows(mode, &[flow])
}

/// Starts the client and waits until each of its connections has been used.
fn start_client(bench: &Bench, mode: Mode, usage: Usage, stop: &Stop) -> Result<Worker> {
    let server = std::net::SocketAddr::new(bench.sut(mode).host.address.1, nginx::PORT);
    let arguments = [
        "http-client".into(),
        "--server".into(),
        server.to_string(),
        "--connections".into(),
        CONNECTIONS.to_string(),
        "--usage".into(),
        usage.name().into(),
    ];
    let client = Worker::start(&bench.topology.generator_path, bench.generator_cpu, &arguments)?;
    let deadline = Instant::now() + UNDER_WAY_DEADLINE;
    while client.delivered() < CONNECTIONS as u64 {
        if Instant::now() > deadline {
            return Err(Error::refused(
                format!("nginx does not answer in mode {mode}, without any flood"),
                "is the machine overloaded? try again",
            ));
        }
        stop.sleep(DRAIN_STEP)?;
    }
    Ok(client)
}

/// Waits until every packet has ended somewhere.
fn drain(observer: &Observer<'_>, before: &Packets, stop: &Stop) -> Result<Ledger> {
    let deadline = Instant::now() + DRAIN_DEADLINE;
    loop {
        let ledger = observer.packets()?.ledger_since(before);
        if ledger.unaccounted == 0 || Instant::now() > deadline {
            return Ok(ledger);
        }
        stop.sleep(DRAIN_STEP)?;
    }
}

impl Packets {
    /// The client's packets that came to the ring: what the generator did not send.
    fn client_since(&self, before: &Self) -> u64 {
        let all = self.ring_refused - before.ring_refused + self.taken - before.taken;
        all.saturating_sub(self.sent - before.sent)
    }

    /// Every packet between two looks: exact once everything has drained.
    fn ledger_since(&self, before: &Self) -> Ledger {
        let offered = self.sent - before.sent + self.client_since(before);
        let nic_drop = self.ring_refused - before.ring_refused;
        let discarded = self.discarded - before.discarded;
        let delivered = self.segments - before.segments;
        let unaccounted = offered as i64 - (nic_drop + discarded + delivered) as i64;
        Ledger { offered, nic_drop, discarded, delivered, unaccounted, ..Ledger::default() }
    }
}

impl Observer<'_> {
    fn packets(&self) -> Result<Packets> {
        let (host, topology) = (&self.bench.sut(self.mode).host, &self.bench.topology);
        let own = |file| statistic(&host.sysfs, SUT_INTERFACE, file);
        let tcp = host.netns.run(snmp::tcp_stats)??;
        Ok(Packets {
            sent: self.bench.generator.counts(0).sent,
            ring_refused: statistic(
                &topology.generator_sysfs,
                &host.generator_ifname,
                "tx_dropped",
            )?,
            // Of redirected frames alone, veth tells both ends.
            ring_refused_flood: own("rx_dropped")?,
            taken: own("rx_packets")?,
            discarded: match self.daemon {
                Some(daemon) => daemon.counters.counters()?.verdict(Verdict::Discard).packets,
                None => 0,
            },
            segments: tcp.in_segs,
            cookies: tcp.syn_cookies_sent,
        })
    }

    fn snapshot(&self, client: &Worker) -> Result<Snapshot> {
        let bench = self.bench;
        // The figures that matter most first, from memory, within a microsecond.
        let at = Instant::now();
        let requests = client.delivered();
        let failures = Failure::ALL.map(|failure| client.count(failure.slot()));
        let took = histogram::snapshot(client.shared(), slots::HISTOGRAM);
        let loops = histogram::snapshot(bench.speed.shared(), slots::HISTOGRAM);
        let cpu_ns = |pid| -> Result<u64> { Ok(sched::cpu_time(pid)?.0) };
        let input: Vec<u64> = self.pollers.iter().map(|pid| cpu_ns(*pid)).collect::<Result<_>>()?;
        Ok(Snapshot {
            at,
            requests,
            failures,
            took,
            loops,
            server_cpu_ns: cpu_ns(self.services.nginx.worker)?,
            client_cpu_ns: cpu_ns(client.pid())?,
            input_cpu_ns: (!input.is_empty()).then(|| input.iter().sum()),
            daemon_cpu_ns: self.daemon.map(Daemon::cpu_time).transpose()?.map(|time| time.0),
            idle_s: machine::idle_s(bench.sut_cpu),
            steal_s: machine::steal_s(bench.sut_cpu),
            kernel_at: Instant::now(),
            packets: self.packets()?,
        })
    }
}

/// What a trial is of, before anything is known.
fn blank(asked: &Asked) -> Trial {
    Trial {
        replies: None,
        mode: asked.mode,
        purpose: asked.usage.name().into(),
        target_pps: asked.flood.target_pps(),
        window_s: 0.0,
        offered_pps: 0.0,
        nic_drop_pps: 0.0,
        discarded_pps: 0.0,
        late_drop_pps: 0.0,
        delivered_pps: 0.0,
        bystander_offered_pps: 0.0,
        bystander_delivered_pps: 0.0,
        user_cpu: 0.0,
        sut_loop_ns: 0.0,
        steal: 0.0,
        age_p50_us: None,
        age_p99_us: None,
        missed_by_generator: 0,
        ledger: Ledger::default(),
    }
}

/// The figures of the window, each counter over its own interval.
fn figures(
    asked: &Asked,
    (opened, closed): (&Snapshot, &Snapshot),
    whole: Trial,
) -> MeritTrial<Http> {
    let window_s = (closed.at - opened.at).as_secs_f64();
    let kernel_s = (closed.kernel_at - opened.kernel_at).as_secs_f64();
    let per_s = |of: fn(&Snapshot) -> u64| of(closed).saturating_sub(of(opened)) as f64 / window_s;
    let kernel_per_s = |of: fn(&Packets) -> u64| {
        of(&closed.packets).saturating_sub(of(&opened.packets)) as f64 / kernel_s
    };
    let share = |of: fn(&Snapshot) -> u64| per_s(of) / 1e9;
    let offered_pps = kernel_per_s(|p| p.sent);
    let nic_drop_pps = kernel_per_s(|p| p.ring_refused_flood);
    let client_lost_pps = kernel_per_s(|p| p.ring_refused.saturating_sub(p.ring_refused_flood));
    let client_pps = closed.packets.client_since(&opened.packets) as f64 / kernel_s;
    let client_taken_pps = (client_pps - client_lost_pps).max(0.0);
    let discarded_pps = kernel_per_s(|p| p.discarded);
    let flood_taken_pps = kernel_per_s(|p| p.segments) - client_taken_pps;
    let failed = |failure: Failure| {
        let index = failure.slot() - slots::FAILURES;
        closed.failures[index].saturating_sub(opened.failures[index])
    };
    let age = |percentile| age_us(&opened.took, &closed.took, percentile);
    let since = |of: fn(&Snapshot) -> Option<u64>| {
        of(closed).zip(of(opened)).map(|(now, then)| now.saturating_sub(then))
    };
    MeritTrial {
        load: Trial {
            window_s,
            offered_pps,
            nic_drop_pps,
            discarded_pps,
            delivered_pps: if asked.flood == Flood::Off { 0.0 } else { flood_taken_pps.max(0.0) },
            bystander_offered_pps: client_pps,
            bystander_delivered_pps: client_taken_pps,
            user_cpu: share(|s| s.server_cpu_ns),
            sut_loop_ns: histogram::percentile(&opened.loops, &closed.loops, 10.0).unwrap_or(0)
                as f64,
            steal: (closed.steal_s - opened.steal_s) / window_s,
            ..whole
        },
        merit: per_s(|s| s.requests),
        input_cpu_ns: since(|s| s.input_cpu_ns),
        daemon_cpu_ns: since(|s| s.daemon_cpu_ns),
        detail: Http {
            took_p50_us: age(50.0),
            took_p99_us: age(99.0),
            failures: Failures {
                timeout: failed(Failure::Timeout),
                reset: failed(Failure::Reset),
                refused: failed(Failure::Refused),
                answer: failed(Failure::Answer),
            },
            cookies_pps: kernel_per_s(|p| p.cookies),
            client_lost_pps,
            server_cpu: share(|s| s.server_cpu_ns),
            idle_cpu: (closed.idle_s - opened.idle_s) / window_s,
            client_cpu: share(|s| s.client_cpu_ns),
        },
    }
}
