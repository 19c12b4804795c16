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
        Daemon::start(&self.network, &["--cpus", &self.cpu.to_string()])
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
