//! `weir trace`: the ways of real packets.

use std::io::{BufRead, BufReader, Read};
use std::process::{ChildStderr, ChildStdout, Command, Stdio};
use std::sync::mpsc;
use std::thread;

use crate::common::router::{BEHIND, Router};
use crate::common::*;
use rustix::process::Signal;
use serde_json::Value;

/// A trace that runs near.
struct Tracing {
    child: Owned,
    out: BufReader<ChildStdout>,
    err: BufReader<ChildStderr>,
}

impl Tracing {
    fn start(network: &Network, arguments: &[&str]) -> Self {
        Self::start_by(Command::new(WEIR), network, arguments)
    }

    fn start_by(mut command: Command, network: &Network, arguments: &[&str]) -> Self {
        // A packet that is missed is not waited for for ever.
        command.args(["trace", NEAR, "--duration", "30s"]).args(arguments).stdin(Stdio::null());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = network.near.run(|| Owned::start(&mut command)).unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut err = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        if arguments.contains(&"--json") {
            out.read_line(&mut said).unwrap();
        } else {
            err.read_line(&mut said).unwrap();
        }
        assert!(said.contains(r#""event":"ready""#) || said.contains("Ctrl-C ends it"), "{said}");
        Self { child, out, err }
    }

    /// What it prints until it ends.
    fn end(mut self) -> String {
        let (mut out, mut err) = (String::new(), String::new());
        self.out.read_to_string(&mut out).unwrap();
        self.err.read_to_string(&mut err).unwrap();
        assert!(self.child.wait().unwrap().success(), "{err}");
        assert_eq!(err.replace("no packet came by that was to be followed\n", ""), "");
        out
    }

    fn interrupt(self) -> String {
        self.child.signal(Signal::INT);
        self.end()
    }

    /// The same as JSON: packets, and the summary.
    fn lines(text: &str) -> (Vec<Value>, Value) {
        let mut lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let summary = lines.pop().unwrap();
        assert_eq!(summary["event"], "summary");
        assert!(lines.iter().all(|line| line["event"] == "packet"), "{lines:?}");
        (lines, summary)
    }
}

/// The steps of a packet, which come in their order.
fn steps(packet: &Value) -> Vec<&str> {
    let steps = packet["steps"].as_array().unwrap();
    let times: Vec<f64> = steps.iter().map(|step| step["at_us"].as_f64().unwrap()).collect();
    assert!(times.is_sorted(), "{packet}");
    steps.iter().map(|step| step["step"].as_str().unwrap()).collect()
}

fn last(packet: &Value) -> &Value {
    packet["steps"].as_array().unwrap().last().unwrap()
}

/// This thread's number.
fn tid() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// Waits until a thread of this process sleeps: what wakes it then is the packet.
fn wait_until_asleep(tid: i32) {
    let stat = format!("/proc/self/task/{tid}/stat");
    let sleeps = || std::fs::read_to_string(&stat).unwrap().contains(") S ");
    wait_until("it sleeps", || (0..10).all(|_| sleeps()));
}

#[test]
fn a_trace_that_nobody_reads_ends() {
    let network = Network::new();
    for arguments in [&["udp"][..], &["--json", "udp"]] {
        let Tracing { mut child, mut out, .. } = Tracing::start(&network, arguments);
        let sender = network.far_socket(&format!("{FAR_IP}:0"));
        let send = || sender.send_to(b"packet", format!("{NEAR_IP}:5000")).unwrap();
        send();
        // As `head -1`.
        out.read_line(&mut String::new()).unwrap();
        drop(out);
        let mut ended = None;
        wait_until("it ends", || {
            send();
            ended = child.try_wait().unwrap();
            ended.is_some()
        });
        assert!(ended.unwrap().success());
    }
}

#[test]
fn a_trace_outlives_its_terminal_if_it_was_told_to() {
    let network = Network::new();
    let sender = network.far_socket(&format!("{FAR_IP}:0"));
    // More than may come before it hears of the signal.
    let arguments = ["--json", "-c", "100", "udp", "port", "5999"];
    let mut tracing = Tracing::start_by(Owned::ignoring_hangups(WEIR), &network, &arguments);
    tracing.child.signal(Signal::HUP);
    wait_until("it ends", || {
        sender.send_to(b"packet", format!("{NEAR_IP}:5999")).unwrap();
        tracing.child.try_wait().unwrap().is_some()
    });
    assert_eq!(Tracing::lines(&tracing.end()).0.len(), 100);
    let tracing = Tracing::start_by(Owned::ignoring_hangups(WEIR), &network, &arguments);
    assert_eq!(Tracing::lines(&tracing.interrupt()).0.len(), 0);
}

#[test]
fn a_datagram_is_followed_to_the_thread_that_reads_it() {
    let network = Network::new();
    for (near, far) in [(NEAR_IP, FAR_IP), (NEAR_IP6, FAR_IP6)] {
        let at = |ip: &str, port: u16| {
            if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") }
        };
        let (reader, sender) =
            (network.near_socket(&at(near, 5000)), network.far_socket(&at(far, 4000)));
        reader.set_nonblocking(false).unwrap();
        // The second one is read long after it has come.
        let tracing = Tracing::start(&network, &["-c", "2", "--json", "udp", "port", "5000"]);
        let (begun, begins) = mpsc::channel();
        let read = |begun: mpsc::Sender<i32>| {
            begun.send(tid()).unwrap();
            reader.recv(&mut [0; 100]).unwrap();
        };
        let reader_tid = thread::scope(|scope| {
            scope.spawn({
                let begun = begun.clone();
                || read(begun)
            });
            let tid = begins.recv().unwrap();
            wait_until_asleep(tid);
            sender.send_to(b"one", at(near, 5000)).unwrap();
            tid
        });
        sender.send_to(b"another", at(near, 5001)).unwrap();
        sender.send_to(b"two", at(near, 5000)).unwrap();
        thread::sleep(PATIENCE / 100);
        read(begun);
        let (packets, summary) = Tracing::lines(&tracing.end());
        assert_eq!(packets.len(), 2, "{packets:?}");
        let what = format!("udp {far} port 4000 > {near} port 5000");
        assert_eq!(packets[0]["packet"], what.as_str());
        let way = steps(&packets[0]);
        assert!(way.ends_with(&["received", "queued", "woken", "runs", "read"]), "{way:?}");
        assert!(["scheduled", "polled"].iter().any(|step| way.contains(step)), "{way:?}");
        assert!(steps(&packets[1]).ends_with(&["received", "queued", "read"]), "{packets:?}");
        assert_eq!(last(&packets[0])["tid"], reader_tid);
        assert_eq!(last(&packets[1])["tid"], tid());
        assert!(last(&packets[1])["at_us"].as_f64().unwrap() > 1e5, "{packets:?}");
        assert_eq!(summary["packets"], 2);
        let times = summary["times"].as_array().unwrap();
        let row = times.iter().find(|row| row["from"] == "received" && row["to"] == "queued");
        assert_eq!(row.unwrap()["packets"], 2);
    }
}

#[test]
fn what_is_dropped_is_told_with_the_reason_and_what_is_forwarded_with_the_egress() {
    let router = Router::new();
    let network = &router.network;
    network.poll_by_napi();
    let tracing = Tracing::start(network, &["-c", "40", "--json", "udp"]);
    let flows =
        [router.flow(NEAR_IP, (4000, 5999), 100.0), router.flow(BEHIND, (4000, 5000), 100.0)];
    let mut text = String::new();
    router.while_sent(&flows, || text = tracing.end());
    let (packets, summary) = Tracing::lines(&text);
    let to = |port: &str| {
        let found = packets.iter().find(|it| it["packet"].as_str().unwrap().ends_with(port));
        found.unwrap_or_else(|| panic!("{packets:?}"))
    };
    let closed = last(to("5999"));
    assert_eq!((&closed["step"], &closed["reason"]), (&"dropped".into(), &"NO_SOCKET".into()));
    assert!(closed["function"].as_str().unwrap().contains("udp"), "{closed}");
    let forwarded = to("5000");
    assert!(steps(forwarded).ends_with(&["received", "egress", "sent"]), "{packets:?}");
    assert_eq!(last(forwarded)["interface"], NEAR2);
    assert_eq!((&summary["packets"], &summary["lost_events"]), (&40.into(), &0.into()));
    let all = [&packets[..], &[summary]].concat();
    fields::TRACE.has_all_of(&all, &["reason", "interface", "p99_us", "ends"]);
    fields::TRACE.has_only(&all);
}

#[test]
fn fragments_of_a_datagram_that_is_answered_are_not_called_dropped() {
    let network = Network::new();
    let traced = |options: &[&str]| {
        let tracing = Tracing::start(&network, &[options, &["-c", "3", "src", FAR_IP]].concat());
        run_in(&network.far, &format!("ping -c 1 -W 5 -s 4000 {NEAR_IP}"));
        tracing.end()
    };
    run_in(&network.far, &format!("ping -c 1 -W 5 {NEAR_IP}"));
    let (packets, summary) = Tracing::lines(&traced(&["--json"]));
    assert!(packets.iter().all(|packet| last(packet)["step"] == "consumed"), "{packets:#?}");
    assert!(!summary["ends"].to_string().contains("dropped"), "{summary}");
    let text = traced(&[]);
    assert!(text.contains("done with, as part of a datagram"), "{text}");
}

#[test]
fn what_the_gate_discards_at_tc_is_told() {
    let network = Network::new();
    let unread = network.near_socket(&format!("{NEAR_IP}:5000"));
    let daemon = Daemon::start(&network, &["--napi", "softirq", "--attach", "tc"]);
    let sender = network.far_socket(&format!("{FAR_IP}:4000"));
    let send = || sender.send_to(&[0; 1000], format!("{NEAR_IP}:5000")).unwrap();
    wait_until("the gate discards", || {
        for _ in 0..100 {
            send();
        }
        network.count("udp-full") > 0
    });
    let tracing = Tracing::start(&network, &["-c", "100", "--json", "udp"]);
    for _ in 0..100 {
        send();
    }
    let (packets, _) = Tracing::lines(&tracing.end());
    // The kernel is asked now and then whether it would still refuse them.
    assert!(packets.iter().any(|it| last(it)["reason"] == "TC_INGRESS"), "{packets:?}");
    drop(unread);
    network.assert_left_untouched_by(daemon);
}

#[test]
fn tcp_is_followed_to_the_reader_and_a_text_has_it_all() {
    let network = Network::new();
    let listener =
        network.near.run(|| std::net::TcpListener::bind((NEAR_IP, 8080)).unwrap()).unwrap();
    let filter = "tcp dst port 8080 and tcp[tcpflags] & tcp-push != 0";
    let tracing = Tracing::start(&network, &["-c", "1", filter]);
    let (begun, begins) = mpsc::channel();
    let serve = || {
        let (mut connection, _) = listener.accept().unwrap();
        begun.send(tid()).unwrap();
        connection.read_exact(&mut [0; 500]).unwrap();
    };
    thread::scope(|scope| {
        let serving = scope.spawn(serve);
        let mut client =
            network.far.run(|| std::net::TcpStream::connect((NEAR_IP, 8080)).unwrap()).unwrap();
        wait_until_asleep(begins.recv().unwrap());
        std::io::Write::write_all(&mut client, &[7; 500]).unwrap();
        serving.join().unwrap();
    });
    let text = tracing.end();
    for part in [
        &format!("> {NEAR_IP} port 8080, 566 bytes\n"),
        "received by ",
        "in the socket's queue\n",
        "wakes ",
        " runs\n",
        "read by ",
        "1 packets; microseconds from step to step\n",
        "runs -> read\n",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
}

/// `SO_RCVLOWAT` has the kernel tell a socket's readers of what is in its queue, each time.
const TELLS_ITS_READERS: &str = "
import select, socket
listener = socket.create_server(('198.18.0.1', 8080))
print(flush=True)
connection = listener.accept()[0]
select.select([connection], [], [])
for _ in range(20000):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
connection.recv(500)
";

#[test]
fn whoever_has_a_socket_tells_no_trace_again_and_again() {
    let network = Network::new();
    let mut command = Command::new("python3");
    command.args(["-c", TELLS_ITS_READERS]).stdout(Stdio::piped());
    let mut server = network.near.run(|| Owned::start(&mut command)).unwrap();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
    let filter = "tcp dst port 8080 and tcp[tcpflags] & tcp-push != 0";
    let tracing = Tracing::start(&network, &["-c", "1", "--json", filter]);
    let mut client =
        network.far.run(|| std::net::TcpStream::connect((NEAR_IP, 8080)).unwrap()).unwrap();
    std::io::Write::write_all(&mut client, &[7; 500]).unwrap();
    assert!(server.wait().unwrap().success());
    let (packets, summary) = Tracing::lines(&tracing.end());
    let way = steps(&packets[0]);
    assert_eq!(way.iter().filter(|step| **step == "queued").count(), 1, "{}", way.len());
    assert_eq!((way.last(), &summary["lost_events"]), (Some(&"read"), &0.into()));
}

#[test]
fn mistakes_are_told() {
    let network = Network::new();
    let said = |arguments: &[&str], code: i32| {
        failure(&network.weir(&[&["trace"], arguments].concat()), code)
    };
    assert!(said(&["nowhere"], 1).contains("nowhere"));
    assert!(said(&["any"], 1).contains("`any` is no interface"));
    assert!(said(&[NEAR, "upd"], 1).contains("upd"));
    assert!(said(&[NEAR, "--rate", "1"], 2).contains("--rate"));
    assert!(said(&[], 2).contains("IFACE"));
    let ended = network.weir(&["trace", NEAR, "--duration", "1s", "port", "1"]);
    assert!(ended.status.success());
    let said = String::from_utf8(ended.stderr).unwrap();
    assert!(said.ends_with("no packet came by that was to be followed\n"), "{said}");
}

/// Of a flood, as many as are asked for; the rest is not followed, and costs no event.
#[test]
fn a_flood_is_followed_in_part() {
    let network = Network::new();
    network.poll_by_napi();
    let reader = network.near_socket(&format!("{NEAR_IP}:5000"));
    let flood = network.flow(5000, Some(20_000.0));
    let tracing = Tracing::start(&network, &["--summary", "--json", "--rate", "100"]);
    network.while_sent(&[flood], None, |generator| {
        wait_until("many are sent", || {
            drain(&reader);
            generator.counts(0).sent > 20_000
        });
    });
    let (packets, summary) = Tracing::lines(&tracing.interrupt());
    assert!(packets.is_empty());
    let followed = summary["packets"].as_u64().unwrap();
    assert!(followed >= 10, "{summary}");
    assert!(summary["skipped"].as_u64().unwrap() > 5 * followed, "{summary}");
    assert_eq!(summary["lost_events"], 0, "{summary}");
}

#[test]
fn in_a_time_namespace_packets_come_when_they_do() {
    let network = Network::ipv4_only();
    let _reader = network.near_socket(&format!("{NEAR_IP}:5000"));
    let sender = network.far_socket(&format!("{FAR_IP}:0"));
    let now = || sh(&network, "date -u +%FT%T").trim_end().to_owned();
    let before = now();
    let arguments = ["-c", "1", "--json", "udp", "port", "5000"];
    let tracing = Tracing::start_by(a_day_ahead(), &network, &arguments);
    sender.send_to(b"one", format!("{NEAR_IP}:5000")).unwrap();
    let (packets, _) = Tracing::lines(&tracing.end());
    let time = packets[0]["time"].as_str().unwrap();
    assert!(before.as_str() <= time && &time[..before.len()] <= now().as_str(), "{packets:?}");
}
