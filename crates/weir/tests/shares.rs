//! Fair shares (Druschel & Banga, section 3): packets that never fill a queue are held to a share of a
//! saturated CPU, and a flood of them costs others nothing.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod common;

use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use common::*;
use weir_bpf::sys::sched;
use weir_bpf::traffic::{FlowSpec, Transport};
use weir_bpf::units::{CpuId, PacketsPerSec};

const SERVICE_PORT: u16 = 7001;

struct Host {
    network: Network,
    cpu: CpuId,
    elsewhere: CpuId,
}

#[test]
fn hand() {
    let network = Network::ipv4_only();
    let cpus = sched::online_cpus().unwrap();
    let host = Host { network, cpu: *cpus.last().unwrap(), elsewhere: cpus[0] };
    let cpu = host.cpu.to_string();
    let daemon =
        (std::env::var("NOWEIR").is_err()).then(|| Daemon::start(&host.network, &["--cpus", &cpu]));
    if daemon.is_none() {
        host.network.near.run(|| std::fs::write("/proc/self/comm", "x")).unwrap().unwrap();
    }
    let route = || {
        std::process::Command::new("ip")
            .args(["route", "add", "198.18.128.0/17", "via", FAR_IP])
            .status()
            .unwrap()
    };
    assert!(host.network.near.run(route).unwrap().success());
    let listener = host.network.near.run(|| TcpListener::bind((NEAR_IP, 7000)).unwrap()).unwrap();
    let service = host.network.near_socket(&format!("{NEAR_IP}:{SERVICE_PORT}"));
    let rate: f64 = std::env::var("RATE").unwrap_or("400000".into()).parse().unwrap();
    let syn = FlowSpec {
        transport: Transport::TcpSyn,
        address: ("198.18.128.0".parse().unwrap(), NEAR_IP.parse().unwrap()),
        random_address_bits: 8,
        random_port_bits: 12,
        port: (4096, 7000),
        ..host.network.flow(7000, Some(rate))
    };
    let victim = host.network.flow(SERVICE_PORT, Some(2_000.0));
    let mut generator = host.network.generator();
    generator.set_flows(&[victim, syn]).unwrap();
    let received = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    let work = AtomicU64::new(0);
    let generator = &generator;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sched::pin_current_thread(host.cpu).unwrap();
            service.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
            while !over.load(Ordering::Relaxed) {
                if service.recv(&mut [0; 64]).is_ok() {
                    received.fetch_add(1, Ordering::Relaxed);
                    let until = Instant::now() + Duration::from_micros(300);
                    while Instant::now() < until {}
                    work.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let body = || {
            generator.start();
            for _ in 0..12 {
                let before = (received.load(Ordering::Relaxed), Instant::now());
                std::thread::sleep(Duration::from_millis(500));
                let now = received.load(Ordering::Relaxed);
                println!("{:.0}/s", (now - before.0) as f64 / before.1.elapsed().as_secs_f64());
            }
            if daemon.is_some() {
                println!("{}", host.network.interface_status()["governed"]);
            }
        };
        generator.run_while(&host.network.far, Some(host.elsewhere), body).unwrap();
        over.store(true, Ordering::Relaxed);
    });
    drop(listener);
    for reason in
        ["tcp-syn", "tcp-request", "tcp-request-share", "udp-room", "udp-full", "udp-share"]
    {
        println!("{reason} {}", host.network.count(reason));
    }
    daemon.map(Daemon::interrupt);
}
