//! Fair shares with the real daemon (Druschel & Banga, section 3): packets that never fill a queue are held to
//! a share of a saturated CPU, and a flood of them costs others nothing.
//!
//! On a machine that others use too, the CPU may be away for longer than a ring of 256 lasts. So what the light
//! flow gets is looked at again and again: where a flood can hurt it, it never gets all.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::Duration;

use common::saturated::*;
use common::*;
use rustix::net::sockopt;
use weir_bpf::sys::ethtool;
use weir_bpf::traffic::{FlowSpec, Transport};

const SERVICE_PORT: u16 = 7001;
const LISTENER_PORT: u16 = 7002;
const CLOSED_PORT: u16 = 7003;
const PROTECTED_PORT: u16 = 7004;
/// What the service is sent, packets/s.
const LIGHT_PPS: f64 = 500.0;
/// How long the light flow is tried at a time.
const ONE_TRY: Duration = Duration::from_millis(400);
/// How long it is watched that something does not happen, at most.
const LONG: Duration = Duration::from_secs(2);

fn listen(host: &Host) -> TcpListener {
    host.network.near.run(|| TcpListener::bind((NEAR_IP, LISTENER_PORT)).unwrap()).unwrap()
}

/// The light flow gets through beside the flood, which is held to its share. Then something else is done beside it.
fn assert_no_harm(
    host: &Host,
    daemon: Daemon,
    (flood, share): (FlowSpec, &str),
    besides: impl FnOnce(),
) {
    let service = host.network.near_socket(&format!("{NEAR_IP}:{SERVICE_PORT}"));
    let light = host.network.flow(SERVICE_PORT, Some(LIGHT_PPS));
    while_consuming(&[&service], host.cpus.cpu, |received| {
        host.while_sent(&[light, flood], || {
            wait_until("the flood is over its share", || host.network.count(share) > 10_000);
            let mut tries = vec![];
            let wanted = (LIGHT_PPS * ONE_TRY.as_secs_f64() * 0.97) as u64;
            let well = wait(TRIES_MAX, || {
                let before = received.load(Ordering::Relaxed);
                std::thread::sleep(ONE_TRY);
                tries.push(received.load(Ordering::Relaxed) - before);
                tries.last() >= Some(&wanted)
            });
            assert!(well, "{tries:?} of {wanted}: {}", host.network.interface_status());
            besides();
        });
    });
    assert_eq!(host.network.count("udp-share"), 0);
    daemon.interrupt();
}

#[test]
fn a_flood_of_closed_ports_hurts_nobody() {
    let host = Host::new();
    let flood = host.network.flow(CLOSED_PORT, Some(FLOOD_PPS));
    assert_no_harm(&host, host.start(&[]), (flood, "closed-share"), || ());
}

#[test]
fn a_flood_of_connection_requests_hurts_nobody() {
    let host = Host::new();
    let _listener = listen(&host);
    // Requests that nobody answers make room for others at once, which the listener may take.
    let expire = || std::fs::write("/proc/sys/net/ipv4/tcp_synack_retries", "0").unwrap();
    host.network.near.run(expire).unwrap();
    let flood = host.network.tcp_flow(Transport::TcpSyn, LISTENER_PORT, FLOOD_PPS);
    assert_no_harm(&host, host.start(&[]), (flood, "tcp-request-share"), || {
        let taken = host.network.count("tcp-syn");
        wait_until("some have expired", || host.network.count("tcp-syn") > taken + 100);
        // Nobody is known to wait for an answer: beside processes of weight 1.
        wait_until("they weigh little", || host.holds("tcp-request", LISTENER_PORT, 0.0..0.06));
        wait_until("a limit is told, by fields that are described", || {
            let thread = host.network.interface_status()["governed"][0].clone();
            let is_told = thread["limits"][0].is_object();
            if is_told {
                fields::STATUS.has_all_of(&[thread], &["limits", "share"]);
            }
            is_told
        });
    });
}

/// A flood that stock answers by cookies beside its clients costs none of them an answer.
#[test]
fn a_listener_that_has_clients_goes_on_answering_requests_past_its_queue() {
    const REQUESTS_PPS: f64 = 50_000.0;
    let host = Host::new();
    let listener = listen(&host);
    let daemon = host.start(&[]);
    let flood = host.network.tcp_flow(Transport::TcpSyn, LISTENER_PORT, REQUESTS_PPS);
    let connect = || TcpStream::connect((NEAR_IP, LISTENER_PORT)).unwrap();
    host.while_sent(&[flood], || {
        let counts =
            || ["tcp-request", "tcp-request-share"].map(|reason| host.network.count(reason));
        // One that stays.
        let client = host.network.far.run(connect).unwrap();
        let _kept = (client, listener.accept().unwrap());
        let is_saturated = || host.network.interface_status()["governed"][0]["doing"] == "shared";
        wait_long("the CPU is saturated", is_saturated);
        wait_long("requests past the queue are answered, and none is discarded", || {
            let before = counts();
            std::thread::sleep(2 * ONE_TRY);
            let now = counts();
            now[0] > before[0] + REQUESTS_PPS as u64 / 4 && now[1] == before[1]
        });
        let before = counts();
        std::thread::sleep(LONG / 2);
        let [answered, discarded] = [0, 1].map(|at| counts()[at] - before[at]);
        // By the weight of packets that nobody waits for it would be half of them.
        assert!(discarded < answered / 10, "{discarded} discarded, {answered} answered");
    });
    daemon.interrupt();
}

/// ...once they are more than the CPU has time for, as the gate answers them: unless a rule is on their way, or it is told
/// not to.
#[test]
fn a_listener_is_answered_for_by_cookie_while_nothing_forbids_it() {
    const CLIENTS: usize = 20;
    const RULE: &str =
        "table ip t { chain c { type filter hook input priority 0; tcp dport 9 drop; }; }";
    let host = Host::new();
    let listener = listen(&host);
    // Else it takes no frames of XDP's.
    host.network.far.run(|| ethtool::set_gro("far", true)).unwrap().unwrap();
    let file = ConfigFile::new("cookies", "");
    let daemon = host.start(&["--config", file.path()]);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut stream, mut asked) = (stream.unwrap(), [0; 4]);
            // A client that has gone is not the server's affair.
            let _ = stream.read_exact(&mut asked).and_then(|()| stream.write_all(&asked));
        }
    });
    let serve = || {
        for _ in 0..CLIENTS {
            let address = (NEAR_IP, LISTENER_PORT).to_socket_addrs().unwrap().next().unwrap();
            let mut stream = TcpStream::connect_timeout(&address, TRIES_MAX).unwrap();
            stream.set_read_timeout(Some(TRIES_MAX)).unwrap();
            stream.write_all(b"ping").unwrap();
            stream.read_exact(&mut [0; 4]).unwrap();
        }
    };
    let grown = |time| {
        let before = host.network.count("tcp-cookie");
        std::thread::sleep(time);
        host.network.count("tcp-cookie") - before
    };
    let why = || host.network.interface_status()["no_syn_cookies"].clone();
    let answers = || {
        wait_long("the gate answers", || why().is_null() && grown(ONE_TRY) > 1000);
        host.network.far.run(serve).unwrap();
        // They were gone whenever the kernel was asked for its connections.
        let weighs = |&(_, share): &(u64, f64)| share > 0.1;
        wait_until("it is known to have clients", || host.limits("tcp-request").iter().all(weighs));
    };
    let rests = |because: &str| {
        wait_until("it says why not", || why().as_str().is_some_and(|why| why.contains(because)));
        assert_eq!(grown(LONG / 4), 0);
    };
    let flood = host.network.tcp_flow(Transport::TcpSyn, LISTENER_PORT, FLOOD_PPS);
    host.while_sent(&[flood], || {
        answers();
        sh(&host.network, &format!("nft '{RULE}'"));
        rests("table ip t, chain c has rules");
        sh(&host.network, "nft delete table ip t");
        answers();
        for (text, because) in [
            ("syn_cookies = false\n", "syn_cookies is false"),
            ("[shares]\nenforce = false\n", "no shares are enforced"),
        ] {
            daemon.reload(&file, text);
            rests(because);
        }
        daemon.reload(&file, "");
        answers();
    });
    daemon.interrupt();
}

/// Not even a connection of the listener whose port it is sent to, which is protected: strays are not.
#[test]
fn a_flood_of_acknowledgements_hurts_nobody() {
    let host = Host::new();
    let listener = listen(&host);
    let connect = || TcpStream::connect((NEAR_IP, LISTENER_PORT)).unwrap();
    let mut client = host.network.far.run(connect).unwrap();
    let mut server = listener.accept().unwrap().0;
    for stream in [&client, &server] {
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(TRIES_MAX)).unwrap();
    }
    let flood = host.network.tcp_flow(Transport::TcpAck, LISTENER_PORT, FLOOD_PPS);
    let rule = |port| format!("[[shares.weight]]\nport = {port}\nweight = 1\n");
    let shares = format!("[shares]\nprotected = [{LISTENER_PORT}]\ncontrol = \"20%\"\n");
    let text = shares + &rule(LISTENER_PORT) + &rule(SERVICE_PORT);
    let file = ConfigFile::new("strays", &text);
    let daemon = host.start(&["--config", file.path()]);
    assert_no_harm(&host, daemon, (flood, "tcp-stray-share"), || {
        let mut talk = || {
            let mut heard = [0; 4];
            client.write_all(b"ping").unwrap();
            server.read_exact(&mut heard).unwrap();
            server.write_all(b"pong").unwrap();
            client.read_exact(&mut heard).unwrap();
        };
        (0..100).for_each(|_| talk());
        // 1/32 beside two receivers, which weigh 1 while they receive, and processes, which weigh as much as
        // both: nothing of the protected class's share.
        wait_long("its share is small", || {
            talk();
            host.holds("tcp-stray", LISTENER_PORT, 0.012..0.02)
        });
        // Each round is a segment.
        wait_until("all are counted", || host.network.count("tcp-segment") >= 100);
        assert_eq!(host.network.count("tcp-share"), 0);
    });
}

#[test]
fn nobody_is_limited_while_there_is_time_to_spare() {
    let mut host = Host::new();
    host.busy = Owned::start(&mut Command::new("true"));
    let daemon = host.start(&[]);
    let little = host.network.flow(CLOSED_PORT, Some(2_000.0));
    let counts = || ["udp-no-socket", "closed-share"].map(|reason| host.network.count(reason));
    host.while_sent(&[little], || {
        // Whoever else keeps the CPU busy for a period may cost some.
        wait_long("packets have been seen and none was limited", || {
            let before = counts();
            std::thread::sleep(2 * ONE_TRY);
            let now = counts();
            now[0] > before[0] + 500 && now[1] == before[1]
        });
    });
    daemon.interrupt();
}

#[test]
fn without_enforcement_nobody_is_limited_and_with_it_he_is() {
    let host = Host::new();
    let file = ConfigFile::new("enforce", "[shares]\nenforce = false\n");
    let daemon = host.start(&["--config", file.path()]);
    let passed = || host.network.count("udp-no-socket");
    let flood = host.network.flow(CLOSED_PORT, Some(FLOOD_PPS));
    host.while_sent(&[flood], || {
        // With a share it would be held to it long before.
        wait_long("the flood has been seen", || passed() > 100_000);
        assert_eq!((host.network.count("closed-share"), host.limits("closed")), (0, vec![]));
        assert_eq!(host.network.interface_status()["shares_enforced"], false);
        daemon.reload(&file, "[shares]\nenforce = true\n");
        wait_long("it is limited", || host.network.published_count("closed-share") > 10_000);
        assert_eq!(host.network.interface_status()["shares_enforced"], true);
        daemon.reload(&file, "[shares]\nenforce = false\n");
        wait_until("it is not limited", || {
            let status = host.network.interface_status();
            status["shares_enforced"] == false && host.limits("closed").is_empty()
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
    let daemon = host.start(&["--config", file.path()]);
    let flood = host.network.flow(CLOSED_PORT, Some(FLOOD_PPS));
    // A CPU that is not saturated for a while raises limits bit by bit, so they are looked at again and again.
    let holds = |shares| host.holds("closed", 0, shares);
    host.while_sent(&[flood], || {
        // Beside processes, which weigh 1, its part is 0.01 / 1.01.
        wait_long("its share is small", || holds(0.005..0.0125));
        daemon.reload(&file, &weight(0.05));
        wait_long("its share is larger", || holds(0.04..0.06));
    });
    let messages = daemon.interrupt();
    let news =
        format!("shares.weight 0.01 of kind closed -> 0.05 of kind closed ({}:1)", file.path());
    assert!(messages.contains(&news), "{messages}");
}

/// Where the ring overflows although no queue does, and input takes more than its share, receivers are held to their
/// part of that by weight; a protected one to no less than its part of the class's share, however little it weighs.
#[test]
fn a_protected_port_keeps_its_part_while_the_ring_overflows() {
    /// And what each is sent, packets/s.
    const PORTS: [(u16, f64); 2] = [(SERVICE_PORT, 500_000.0), (PROTECTED_PORT, 100_000.0)];
    /// Of the protected class.
    const SHARE: f64 = 0.2;
    let mut host = Host::new();
    // The receivers have all that input leaves.
    host.busy = Owned::start(&mut Command::new("true"));
    let host = host;
    let rules = format!("[[shares.weight]]\nport = {PROTECTED_PORT}\nweight = 0.01\n");
    let shares = |protected: &[u16]| {
        format!(
            "user_share = \"80%\"\n[shares]\ncontrol = \"20%\"\nprotected = {protected:?}\n{rules}"
        )
    };
    let file = ConfigFile::new("protected", &shares(&[]));
    let daemon = host.start(&["--config", file.path()]);
    let services = PORTS.map(|(port, _)| host.network.near_socket(&format!("{NEAR_IP}:{port}")));
    for service in &services {
        sockopt::set_socket_recv_buffer_size_force(service, 64 << 20).unwrap();
    }
    let flows = PORTS.map(|(port, pps)| host.network.flow(port, Some(pps)));
    while_consuming(&services.each_ref(), host.cpus.cpu, |_| {
        host.while_sent(&flows, || {
            let is_short = || host.holds("udp", PROTECTED_PORT, 0.0..SHARE / 2.0);
            let short = wait(TRIES_MAX, is_short);
            assert!(short, "not held to what it weighs: {}", host.network.interface_status());
            daemon.reload(&file, &shares(&[PROTECTED_PORT]));
            wait_until("it is protected", || !is_short());
            assert!(!wait(LONG, || host.holds("udp", PROTECTED_PORT, 0.0..SHARE * 0.95)));
            daemon.reload(&file, &shares(&[]));
            wait_long("it is held to that again", is_short);
        });
    });
    daemon.interrupt();
}
