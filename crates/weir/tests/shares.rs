//! Fair shares with the real daemon (Druschel & Banga, section 3): packets that never fill a queue are held to
//! a share of a saturated CPU, and a flood of them costs others nothing.
//!
//! On a machine that others use too, the CPU may be away for longer than a ring of 256 lasts. So what the light
//! flow gets is looked at again and again: where a flood can hurt it, it never gets all.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod common;

use std::net::{IpAddr, TcpListener};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use common::*;
use rustix::process::Signal;
use weir_bpf::sys::link::Links;
use weir_bpf::sys::sched;
use weir_bpf::traffic::{FlowSpec, Generator, Transport};
use weir_bpf::units::CpuId;

const SERVICE_PORT: u16 = 7001;
const LISTENER_PORT: u16 = 7002;
const CLOSED_PORT: u16 = 7003;
/// What the service is sent, packets/s.
const LIGHT_PPS: f64 = 500.0;
/// What the flood is: far over its share, and not so much that the ring overflows.
const FLOOD_PPS: f64 = 100_000.0;
/// How long the light flow may be tried, and one try.
const TRIES_MAX: Duration = Duration::from_secs(60);
const ONE_TRY: Duration = Duration::from_millis(400);

/// A host that receives on one CPU, which another process wants too. That CPU is every test's.
struct Host {
    network: Network,
    cpu: CpuId,
    elsewhere: CpuId,
    _busy: Busy,
    _alone: MutexGuard<'static, ()>,
}

/// A process that never sleeps.
struct Busy(Child);

impl Drop for Busy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Host {
    fn new() -> Self {
        static ALONE: Mutex<()> = Mutex::new(());
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let cpus = sched::online_cpus().unwrap();
        let (elsewhere, cpu) = (cpus[0], *cpus.last().unwrap());
        let busy = Busy(Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap());
        sched::set_affinity(pid(&busy.0.id().into()), &[cpu]).unwrap();
        Self { network: Network::ipv4_only(), cpu, elsewhere, _busy: busy, _alone: alone }
    }

    fn start(&self) -> Daemon {
        self.start_with(&[])
    }

    fn start_with(&self, options: &[&str]) -> Daemon {
        let cpu = self.cpu.to_string();
        Daemon::start(&self.network, &[&["--cpus", &cpu], options].concat())
    }

    /// What packets to closed ports may take of the CPU, if that is limited now.
    fn closed_share(&self) -> Option<f64> {
        let status = self.network.interface_status();
        let threads = status["governed"].as_array().unwrap();
        let limits = threads.iter().flat_map(|each| each["limits"].as_array().unwrap());
        let closed = limits.filter(|each| each["kind"] == "closed");
        closed.map(|each| each["share"].as_f64().unwrap()).reduce(f64::max)
    }

    fn flood(&self, generator: &mut Generator, flood: FlowSpec, body: impl FnOnce()) {
        let light = self.network.flow(SERVICE_PORT, Some(LIGHT_PPS));
        generator.set_flows(&[light, flood]).unwrap();
        let generator = &*generator;
        let body = || {
            generator.start();
            body();
        };
        generator.run_while(&self.network.far, Some(self.elsewhere), body).unwrap();
    }

    /// The light flow gets through beside the flood, which is held to its share.
    fn assert_no_harm(&self, flood: FlowSpec, share: &str) {
        let daemon = self.start();
        let service = self.network.near_socket(&format!("{NEAR_IP}:{SERVICE_PORT}"));
        let (received, over) = (AtomicU64::new(0), AtomicBool::new(false));
        let mut generator = self.network.generator();
        std::thread::scope(|scope| {
            scope.spawn(|| consume(&service, self.cpu, &received, &over));
            let _over = Over(&over);
            self.flood(&mut generator, flood, || {
                wait_until("the flood is over its share", || self.network.count(share) > 10_000);
                let mut tries = vec![];
                let wanted = (LIGHT_PPS * ONE_TRY.as_secs_f64() * 0.97) as u64;
                let well = wait(TRIES_MAX, || {
                    let before = received.load(Ordering::Relaxed);
                    std::thread::sleep(ONE_TRY);
                    tries.push(received.load(Ordering::Relaxed) - before);
                    tries.last() >= Some(&wanted)
                });
                assert!(well, "{tries:?} of {wanted}: {}", self.network.interface_status());
            });
        });
        assert_eq!(self.network.count("udp-share"), 0);
        daemon.interrupt();
    }
}

#[test]
fn a_flood_of_closed_ports_hurts_nobody() {
    let host = Host::new();
    host.assert_no_harm(host.network.flow(CLOSED_PORT, Some(FLOOD_PPS)), "closed-share");
}

#[test]
fn a_flood_of_connection_requests_hurts_nobody() {
    let host = Host::new();
    let listen = || TcpListener::bind((NEAR_IP, LISTENER_PORT)).unwrap();
    let _listener = host.network.near.run(listen).unwrap();
    // 198.18.0.64 to .127 are there, so that they are answered.
    let know = |mac| {
        let links = Links::open().unwrap();
        for last in 64..128 {
            let ip = IpAddr::from([198, 18, 0, last]);
            links.add_neighbour(links.index(NEAR).unwrap(), ip, mac).unwrap();
        }
    };
    let flow = host.network.flow(LISTENER_PORT, Some(FLOOD_PPS));
    host.network.near.run(|| know(flow.mac.0)).unwrap();
    let flood = FlowSpec {
        transport: Transport::TcpSyn,
        address: ("198.18.0.64".parse().unwrap(), flow.address.1),
        random_address_bits: 6,
        random_port_bits: 12,
        ..flow
    };
    host.assert_no_harm(flood, "tcp-request-share");
}

#[test]
fn nobody_is_limited_while_there_is_time_to_spare() {
    let host = Host::new();
    let host = Host { _busy: Busy(Command::new("true").spawn().unwrap()), ..host };
    let daemon = host.start();
    let little = host.network.flow(CLOSED_PORT, Some(2_000.0));
    let seen = || host.network.count("udp-no-socket");
    host.flood(&mut host.network.generator(), little, || {
        wait_until("packets have been seen", || seen() > 2_000);
    });
    assert_eq!(host.network.count("closed-share"), 0);
    daemon.interrupt();
}

#[test]
fn without_enforcement_nobody_is_limited_and_with_it_he_is() {
    let host = Host::new();
    let file = ConfigFile::new("enforce", "[shares]\nenforce = false\n");
    let daemon = host.start_with(&["--config", file.path()]);
    let passed = || host.network.count("udp-no-socket");
    let flood = host.network.flow(CLOSED_PORT, Some(FLOOD_PPS));
    host.flood(&mut host.network.generator(), flood, || {
        // With a share it would be held to it long before.
        wait_long("the flood has been seen", || passed() > 50_000);
        assert_eq!((host.network.count("closed-share"), host.closed_share()), (0, None));
        assert_eq!(host.network.interface_status()["shares_enforced"], false);
        file.write("[shares]\nenforce = true\n");
        daemon.signal(Signal::HUP);
        wait_long("it is limited", || host.network.count("closed-share") > 10_000);
        assert_eq!(host.network.interface_status()["shares_enforced"], true);
        file.write("[shares]\nenforce = false\n");
        daemon.signal(Signal::HUP);
        wait_until("it is not limited", || {
            let status = host.network.interface_status();
            status["shares_enforced"] == false && host.closed_share().is_none()
        });
        let (discarded, before) = (host.network.count("closed-share"), passed());
        wait_long("it passes", || passed() > before + 50_000);
        // What a limit discards that was set before lasts for 50 ms.
        let since = host.network.count("closed-share") - discarded;
        assert!(since < FLOOD_PPS as u64 / 2, "{since}");
    });
    daemon.interrupt();
}

#[test]
fn a_kinds_weight_that_is_raised_is_taken_over() {
    let host = Host::new();
    let weight = |weight: f64| format!("[[shares.weight]]\nkind = \"closed\"\nweight = {weight}\n");
    let file = ConfigFile::new("weight", &weight(0.01));
    let daemon = host.start_with(&["--config", file.path()]);
    let flood = host.network.flow(CLOSED_PORT, Some(FLOOD_PPS));
    // A CPU that is not saturated for a while raises limits bit by bit, so they are looked at again and again.
    let holds = |shares: std::ops::Range<f64>| {
        host.closed_share().is_some_and(|share| shares.contains(&share))
    };
    host.flood(&mut host.network.generator(), flood, || {
        // Beside processes, which weigh 1, its part is 0.01 / 1.01.
        wait_long("its share is small", || holds(0.005..0.0125));
        file.write(&weight(0.05));
        daemon.signal(Signal::HUP);
        wait_long("its share is larger", || holds(0.04..0.06));
    });
    let messages = daemon.interrupt();
    let news =
        format!("shares.weight 0.01 of kind closed -> 0.05 of kind closed ({}:1)", file.path());
    assert!(messages.contains(&news), "{messages}");
}

/// What others do on this CPU may leave it without want for a while.
fn wait_long(what: &str, condition: impl FnMut() -> bool) {
    assert!(wait(TRIES_MAX, condition), "waited in vain until {what}");
}
