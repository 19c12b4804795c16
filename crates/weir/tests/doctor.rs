//! `weir doctor` on hosts with one thing wrong, each a network namespace with real packets and real servers: it names
//! the cause and whose it is, and on a host with nothing wrong it finds nothing.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod common;

use std::fs::Permissions;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use common::host::Host;
use common::router::{BEHIND, flow_to, router};
use common::*;
use rustix::net::sockopt;
use rustix::process::Signal;
use serde_json::Value;
use weir_bpf::sys::sched;
use weir_bpf::sys::sock_diag::{LocalSocket, SocketDiag, SocketKind};
use weir_bpf::sys::stat::Stat;
use weir_bpf::traffic::{FlowSpec, Transport};
use weir_bpf::units::Nice;

const PORT: u16 = 7101;
/// What a socket that nobody reads is sent, packets/s; too little to keep a CPU busy.
const TRICKLE: f64 = 2_000.0;
/// How often the doctor is asked until it sees what others' use of this machine may hide for a second.
const LOOKS_MAX: u32 = 30;

/// A network with a host under diagnosis.
fn network() -> Network {
    let network = Network::ipv4_only();
    network.poll_by_napi();
    network
}

impl Host {
    /// memcached, which serves UDP and TCP, on the receiving CPU.
    fn memcached(&self, options: &[&str]) -> Owned {
        let mut command = Command::new("memcached");
        let address = ["-u", "nobody", "-t", "1", "-l", NEAR_IP, "-p", &PORT.to_string()];
        command.args(address).args(options);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let start = || Owned::start_on(self.cpus.cpu, &mut command);
        let server = self.network.near.run(start).unwrap();
        // UDP is the last that it opens.
        let udp = options.contains(&"-U");
        wait_until("memcached serves", || self.has(|it| !udp || it.kind == SocketKind::Udp));
        server
    }

    /// Whether one of the server's sockets is like this.
    fn has(&self, like: impl Fn(&LocalSocket) -> bool) -> bool {
        let sockets = || SocketDiag::open().unwrap().sockets().unwrap();
        let sockets = self.network.near.run(sockets).unwrap();
        sockets.iter().any(|socket| socket.port == PORT && like(socket))
    }

    /// What the doctor says of this host.
    fn diagnosis(&self, code: i32) -> Value {
        let output = self.network.weir(&["doctor", "--json"]);
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Asks the doctor while these packets come in, until it has found this cause; the finding.
    fn finds(&self, cause: &str, flows: &[FlowSpec]) -> Value {
        let mut said = Vec::new();
        let found = self.while_sent(flows, || {
            (0..LOOKS_MAX).find_map(|_| {
                let output = self.network.weir(&["doctor", "--json"]);
                let diagnosis: Value = serde_json::from_slice(&output.stdout).unwrap();
                let findings = diagnosis["findings"].as_array().unwrap();
                let finding = findings.iter().find(|each| each["cause"] == cause).cloned();
                assert!(finding.is_none() || output.status.code() == Some(1), "{output:?}");
                said.push(diagnosis);
                finding
            })
        });
        found.unwrap_or_else(|| panic!("no {cause}: {said:#?}"))
    }

    fn flow(&self, rate: Option<f64>) -> FlowSpec {
        self.network.flow(PORT, rate)
    }

    fn sh(&self, script: &str) -> String {
        sh(&self.network, script)
    }
}

fn says(finding: &Value, field: &str, word: &str) {
    assert!(finding[field].to_string().contains(word), "no {word:?} in {field} of {finding:#}");
}

#[test]
fn nothing_is_found_on_a_host_that_is_well() {
    let host = Host::of(network);
    let _server = host.memcached(&["-U", &PORT.to_string()]);
    let diagnosis = host.while_sent(&[host.flow(Some(100.0))], || host.diagnosis(0));
    assert_eq!((&diagnosis["verdict"], &diagnosis["schema"]), (&"well".into(), &1.into()));
    assert!(diagnosis["findings"].as_array().unwrap().is_empty(), "{diagnosis:#}");
    assert!(diagnosis["unseen"].as_array().unwrap().is_empty(), "{diagnosis:#}");
    host.network.assert_untouched();
}

#[test]
fn a_socket_that_nobody_reads_is_found_with_its_process() {
    let host = Host::of(network);
    let server = host.memcached(&["-U", &PORT.to_string()]);
    server.signal(Signal::STOP);
    let finding = host.finds("socket-full", &[host.flow(Some(TRICKLE))]);
    says(&finding, "what", "nobody reads it");
    says(&finding, "whose", &format!("udp {NEAR_IP}:{PORT}, memcached (pid {}", server.id()));
    says(&finding, "advice", &format!("/proc/{}/stack", server.id()));
}

#[test]
fn a_process_that_is_stopped_or_frozen_is_to_be_continued() {
    let host = Host::of(network);
    let server = host.memcached(&["-U", &PORT.to_string()]);
    server.signal(Signal::STOP);
    let finding = host.finds("socket-full", &[host.flow(Some(TRICKLE))]);
    says(&finding, "what", "its process is stopped, by a signal");
    says(&finding, "advice", &format!("sudo kill -CONT {}", server.id()));
    server.signal(Signal::CONT);
    // PTRACE_SEIZE and PTRACE_INTERRUPT, of each thread; the first is the last of these.
    let debug = format!(
        "import ctypes, os, time\n\
         for tid in sorted(map(int, os.listdir('/proc/{}/task')), reverse=True):\n \
         for request in 0x4206, 0x4207: ctypes.CDLL(None).ptrace(request, tid, None, None)\n\
         time.sleep(600)",
        server.id()
    );
    let debugger = Owned::start(Command::new("python3").args(["-c", &debug]));
    let pid = server.id().cast_signed();
    wait_until("it is held", || Stat::of(pid).is_some_and(|stat| stat.is_held()));
    let finding = host.finds("socket-full", &[host.flow(Some(TRICKLE))]);
    says(&finding, "what", "a debugger holds its process");
    says(&finding, "advice", &format!("in its debugger, python3 (pid {})", debugger.id()));
    assert!(!finding["advice"].to_string().contains("kill -CONT"), "{finding:#}");
    drop(debugger);
    // Of each version that can freeze here.
    let roots = ["", "unified", "freezer"].map(|root| Path::new("/sys/fs/cgroup").join(root));
    let name = format!("weir-test-{}-doctor", server.id());
    let mut frozen = 0;
    for group in roots.map(|root| root.join(&name)) {
        if std::fs::create_dir(&group).is_err() {
            continue;
        }
        let write = |file: &str, text: &str| std::fs::write(group.join(file), text);
        let files = [("cgroup.freeze", "1", "0"), ("freezer.state", "FROZEN", "THAWED")];
        for (file, freeze, thaw) in files.iter().filter(|(file, ..)| group.join(file).exists()) {
            frozen += 1;
            write("cgroup.procs", &server.id().to_string()).unwrap();
            write(file, freeze).unwrap();
            let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                host.finds("socket-full", &[host.flow(Some(TRICKLE))])
            }));
            write(file, thaw).unwrap();
            let finding = found.unwrap();
            says(&finding, "what", "its process's control group is frozen");
            says(&finding, "advice", &format!("thaw {}", group.display()));
            std::fs::write(group.with_file_name("cgroup.procs"), server.id().to_string()).unwrap();
        }
        std::fs::remove_dir(&group).unwrap();
    }
    assert!(frozen > 0, "the test needs a control group that can be frozen");
}

/// The sockets' counters are read some time before the kernel's of all together.
#[test]
fn a_flood_that_ends_as_the_look_begins_is_not_one_for_want_of_memory() {
    const LOOKS: u64 = 10;
    let host = Host::of(network);
    let _unread = host.network.near_socket(&format!("{NEAR_IP}:{PORT}"));
    let look = || {
        let mut command = Command::new(WEIR);
        command.args(["doctor", "--json"]).stdout(Stdio::piped());
        host.network.near.run(|| command.spawn().unwrap()).unwrap()
    };
    for at in 0..LOOKS {
        let look = host.while_sent(&[host.flow(Some(5.0 * TRICKLE))], || {
            wait_until("the queue is full", || host.has(|socket| socket.drops > 0));
            let look = look();
            std::thread::sleep(Duration::from_millis(10 * at));
            look
        });
        let diagnosis = String::from_utf8(look.wait_with_output().unwrap().stdout).unwrap();
        assert!(!diagnosis.contains("udp-memory"), "{diagnosis}");
        assert!(!diagnosis.contains("not open any more"), "{diagnosis}");
    }
}

/// What is short is checked before the kernel looks for a socket.
#[test]
fn wrong_checksums_are_told_without_a_socket() {
    const SENDS: &str = "import socket,struct,time\n\
        u=socket.socket(socket.AF_INET,socket.SOCK_RAW,17)\n\
        t=socket.socket(socket.AF_INET,socket.SOCK_RAW,6)\n\
        while True:\n\
        \tu.sendto(struct.pack('!4H',9,7101,12,1)+b'four',('198.18.0.1',0))\n\
        \tt.sendto(struct.pack('!2H2I4H',9,7101,1,0,0x5002,9,1,0),('198.18.0.1',0))\n\
        \ttime.sleep(0.01)\n";
    let host = Host::of(network);
    let _unread = host.network.near_socket(&format!("{NEAR_IP}:{PORT}"));
    let mut sender = Command::new("timeout");
    sender.args(["60", "python3", "-c", SENDS]).stderr(Stdio::null());
    let _sender = host.network.far.run(|| Owned::start(&mut sender)).unwrap();
    let told = |notes: String| {
        notes.contains(" datagrams/s and ") && notes.contains(" segments/s come with wrong")
    };
    wait_until("both are told", || told(host.diagnosis(0)["notes"].to_string()));
}

#[test]
fn fragments_for_which_there_is_no_memory_are_found() {
    let host = Host::of(network);
    let first = FlowSpec { transport: Transport::FirstFragment, ..host.flow(Some(TRICKLE)) };
    let finding = host.finds("fragments-lost", &[first]);
    says(&finding, "what", "0 datagrams/s put together");
    says(&finding, "advice", "net.ipv4.ipfrag_high_thresh=");
}

/// Then no counter of the kernel's tells.
#[test]
fn what_weir_discards_is_told_with_where_to_look() {
    let host = Host::of(network);
    let _socket = host.network.near_socket(&format!("{NEAR_IP}:{PORT}"));
    let daemon = Daemon::start(&host.network, &[]);
    let finding = host.finds("early-discard", &[host.flow(Some(10.0 * TRICKLE))]);
    says(&finding, "what", "most as udp-full");
    says(&finding, "advice", &format!("sudo weir channels {NEAR}"));
    daemon.interrupt();
}

/// What it would be told of without weir, which leaves nothing to lose at the socket.
#[test]
fn a_process_that_is_stopped_is_found_beside_weir() {
    let host = Host::of(network);
    let daemon = Daemon::start(&host.network, &[]);
    let server = host.memcached(&["-U", &PORT.to_string()]);
    server.signal(Signal::STOP);
    let finding = host.finds("early-discard", &[host.flow(Some(10.0 * TRICKLE))]);
    says(&finding, "what", "its process is stopped, by a signal");
    says(&finding, "whose", &format!("udp {NEAR_IP}:{PORT}, memcached (pid {}", server.id()));
    says(&finding, "advice", &format!("sudo kill -CONT {}", server.id()));
    says(&finding, "advice", &format!("sudo weir channels {NEAR}"));
    daemon.interrupt();
}

#[test]
fn livelock_is_found_with_what_it_costs_whom() {
    let host = Host::of(network);
    let _server = host.memcached(&["-U", &PORT.to_string()]);
    host.network.write("queues/rx-0/rps_cpus", &format!("{:x}", 1 << host.cpus.cpu.0));
    let finding = host.finds("livelock", &[host.flow(None)]);
    says(&finding, "what", &format!("packets/s by {NEAR}"));
    says(&finding, "what", &host.cpus.cpu.to_string());
    says(&finding, "advice", &format!("weir run {NEAR}"));
    // What is steered is more than the CPU takes.
    let finding = host.finds("backlog-full", &[host.flow(None)]);
    says(&finding, "whose", "RPS is on for rx-0 of near");
}

#[test]
fn one_queue_for_many_cpus_is_found_with_the_command() {
    let host = Host::of(network);
    let thread = host.network.poll_by_thread();
    sched::set_affinity(thread, &[host.cpus.cpu]).unwrap();
    // Whoever else wants that CPU now is not to hide it.
    sched::set_nice(thread, Nice(-20)).unwrap();
    let finding = host.finds("one-cpu-receives", &[host.flow(None)]);
    says(&finding, "what", "1 receive queue");
    let advice = finding["advice"][0].as_str().unwrap();
    assert!(advice.starts_with(&format!("sudo ethtool -L {NEAR} rx ")), "{advice}");
    // It works, too.
    host.sh(advice.strip_prefix("sudo ").unwrap().split_once("    ").unwrap().0);
}

#[test]
fn a_router_whose_egress_queue_is_full_is_told_so() {
    let host = Host::of(router);
    host.sh("tc qdisc add dev near2 root tbf rate 1mbit burst 5k limit 6k");
    let flood = flow_to(&host.network, BEHIND, (4096, PORT), 10.0 * TRICKLE);
    let finding = host.finds("egress-full", &[flood]);
    says(&finding, "what", "by which near2 sends (tbf) is full");
    says(&finding, "advice", &format!("sudo weir run {NEAR}"));
    assert_eq!(finding["weir"], "contains");
    // None of this is routed.
    let script = "import socket\ns=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n\
                  while True: s.sendto(bytes(1000),('198.19.0.2',9))";
    let mut python = Command::new("python3");
    python.args(["-c", script]);
    let _own = host.network.near.run(|| Owned::start(&mut python)).unwrap();
    let finding = host.finds("egress-full", &[]);
    assert_eq!(finding["weir"], "none", "{finding:#}");
}

#[test]
fn a_class_that_loses_most_of_what_it_is_handed_is_told_so() {
    let host = Host::of(router);
    host.sh("tc qdisc add dev near2 root handle 1: htb default 1
         tc class add dev near2 parent 1: classid 1:1 htb rate 1gbit
         tc class add dev near2 parent 1: classid 1:2 htb rate 100kbit
         tc qdisc add dev near2 parent 1:2 pfifo limit 20
         tc filter add dev near2 parent 1: protocol ip u32 match ip dport 9 0xffff flowid 1:2");
    let to = |port, rate| flow_to(&host.network, BEHIND, (4096, port), rate);
    let finding = host.finds("egress-full", &[to(9, 0.2 * TRICKLE), to(PORT, 4.0 * TRICKLE)]);
    says(&finding, "what", "by which near2 sends (htb, pfifo; class 1:2) is full");
}

/// UDP's memory is the whole machine's, and its limit is not shown in other network namespaces. Only sockets that hold
/// more than a page feel the limit, and this is put back
/// by a process of its own, however the test ends.
#[test]
fn udp_without_memory_is_told_from_a_full_queue() {
    let host = Host::of(network);
    let hoard = host.network.near_socket(&format!("{NEAR_IP}:{PORT}"));
    sockopt::set_socket_recv_buffer_size_force(&hoard, 16 << 20).unwrap();
    // The kernel counts each CPU's first megabyte late (`SK_MEMORY_PCPU_RESERVE`).
    host.while_sent(&[host.flow(Some(10.0 * TRICKLE))], || {
        wait_until("much waits in the queue", || host.has(|socket| socket.queued > 4 << 20));
    });
    let script = "f=/proc/sys/net/ipv4/udp_mem; exec 9<$f; flock 9; old=$(cat $f); echo 1 2 3 > $f; echo set; read end || :; echo $old > $f";
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
    let mut limit = command.spawn().unwrap();
    std::io::Read::read_exact(limit.stdout.as_mut().unwrap(), &mut [0; 4]).unwrap();
    let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        host.finds("udp-memory", &[host.flow(Some(TRICKLE))])
    }));
    let _ = limit.stdin.take().unwrap().write_all(b"end\n");
    assert!(limit.wait().unwrap().success());
    let finding = found.unwrap();
    says(&finding, "what", "net.ipv4.udp_mem");
    says(&finding, "weir_does", "these are not");
    says(&finding, "whose", &format!("udp {NEAR_IP}:{PORT}, doctor"));
}

#[test]
fn a_flood_of_connection_requests_is_found_with_its_listener() {
    flooded_with_requests("SYN cookies", &[]);
}

/// The queue of requests is limited before the listener's backlog is full.
#[test]
fn so_it_is_where_they_are_dropped_instead() {
    flooded_with_requests("are dropped", &["tcp_syncookies=0", "tcp_max_syn_backlog=128"]);
}

fn flooded_with_requests(told: &str, settings: &[&str]) {
    let host = Host::of(network);
    for setting in settings {
        host.sh(&format!("sysctl -qw net.ipv4.{setting}"));
    }
    let _server = host.memcached(&[]);
    let flood = host.network.tcp_flow(Transport::TcpSyn, PORT, 20_000.0);
    // Of the same port, and nobody asks it.
    host.sh("ip address add 198.18.0.9/32 dev near");
    let bind = || TcpListener::bind(("198.18.0.9", PORT)).unwrap();
    let _other = host.network.near.run(bind).unwrap();
    let finding = host.finds("syn-flood", &[flood]);
    says(&finding, "what", told);
    says(&finding, "whose", &format!("tcp {NEAR_IP}:{PORT}, memcached"));
}

#[test]
fn a_program_that_does_not_accept_is_found() {
    let host = Host::of(network);
    let server = host.memcached(&["-b", "2"]);
    server.signal(Signal::STOP);
    let address: SocketAddr = format!("{NEAR_IP}:{PORT}").parse().unwrap();
    let connect = || TcpStream::connect_timeout(&address, Duration::from_millis(20));
    let mut connected = Vec::new();
    let client = || connected.extend(host.network.far.run(connect).unwrap().ok());
    while_doing(client, || {
        let finding = host.finds("accept-queue-full", &[host.flow(Some(1.0))]);
        says(&finding, "whose", &format!("tcp {NEAR_IP}:{PORT}, memcached (pid {}", server.id()));
    });
}

#[test]
fn nat_is_nothing_wrong_but_told() {
    let host = Host::of(network);
    host.sh("nft 'add table ip n; add chain ip n c { type nat hook prerouting priority -100; }; \
             add rule ip n c udp dport 53 dnat to 198.18.0.9'");
    // What it does not name is weir's.
    let notes = host.diagnosis(0)["notes"].to_string();
    assert!(!notes.contains("translated"), "{notes}");
    let told = "on near rules translate what comes to these ports (udp 53: ";
    assert!(notes.contains(told) && notes.contains("): packets to these ports pass"), "{notes}");
    host.sh("nft add rule ip n c dnat to 198.18.0.9");
    let diagnosis = host.diagnosis(0);
    let notes = diagnosis["notes"].to_string();
    assert!(
        notes.contains("may be translated") && notes.contains("discard nothing early"),
        "{notes}"
    );
}

#[test]
fn a_bridge_is_to_be_protected_and_not_its_port() {
    let host = Host::of(network);
    host.sh("ip link add br0 type bridge; ip link set near master br0; ip address del 198.18.0.1/24 dev near; \
             ip address add 198.18.0.1/24 dev br0; ip link set br0 up");
    let _socket = host.network.near_socket(&format!("{NEAR_IP}:{PORT}"));
    let file = host.while_sent(&[host.flow(Some(TRICKLE))], || {
        wait_until("the bridge hands packets up", || host.has(|socket| socket.drops > 0));
        host.network.says(&["config", "init", "-"])
    });
    for section in ["[interface.br0]\nprotect = true\n", "[interface.near]\nprotect = false\n"] {
        assert!(file.contains(section), "{file}");
    }
}

#[test]
fn another_users_look_says_what_it_did_not_see() {
    let host = Host::of(network);
    let server = host.memcached(&["-U", &PORT.to_string()]);
    server.signal(Signal::STOP);
    // Anybody can run it, wherever it was built.
    let dir = killed::temp_dir();
    std::fs::set_permissions(&dir, Permissions::from_mode(0o755)).unwrap();
    let copy = dir.path().join("doctor");
    std::fs::copy(WEIR, &copy).unwrap();
    let mut command = Command::new("setpriv");
    command
        .args(["--reuid", "12345", "--regid", "12345", "--clear-groups"])
        .arg(&copy)
        .arg("doctor");
    let output = host.while_sent(&[host.flow(Some(TRICKLE))], || {
        wait_until("packets are dropped", || host.has(|socket| socket.drops > 0));
        host.network.near.run(|| command.output().unwrap()).unwrap()
    });
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(said.starts_with("wrong: one finding"), "{said}");
    assert!(said.contains("whose process is not seen") && said.contains("(possible)"), "{said}");
    assert!(said.contains("not seen: "), "{said}");
    assert!(said.lines().count() <= 12, "{said}");
}

#[test]
fn what_was_recorded_is_diagnosed_elsewhere_and_never_overwritten() {
    let host = Host::new();
    let network = &host.network;
    let server = host.memcached(&["-U", &PORT.to_string()]);
    let dir = killed::temp_dir();
    let path = dir.path().join("ticket.json");
    let path = path.to_str().unwrap();
    let recorded = network.weir(&["doctor", "--record", path]);
    drop(server);
    let from = network.weir(&["doctor", "--from", path]);
    assert_eq!(recorded.stdout, from.stdout);
    let long = ["doctor", "--seconds", "3600", "--record"];
    let refusal = failure(&network.weir(&[&long[..], &[path]].concat()), 1);
    assert!(refusal.contains(&format!("cannot create {path}: File exists")), "{refusal}");
    std::fs::write(path, "{}x").unwrap();
    let refusal = failure(&network.weir(&["doctor", "--from", path]), 1);
    assert!(refusal.contains("give a file that `weir doctor --record` wrote"), "{refusal}");
    let refusal = failure(&network.weir(&["doctor", "--from", "/dev/zero"]), 1);
    assert!(refusal.contains("cannot read /dev/zero: it is larger than"), "{refusal}");
    let refusal = failure(&network.weir(&["doctor", "absent"]), 1);
    assert!(refusal.contains("no interface named \"absent\""), "{refusal}");
}

#[test]
fn a_record_is_begun_before_the_look_and_a_signal_ends_that_early() {
    let host = Host::new();
    let network = &host.network;
    let dir = killed::temp_dir();
    let path = dir.path().join("early.json");
    let text = path.to_str().unwrap();
    failure(&network.weir(&["doctor", "absent", "--record", text]), 1);
    assert!(!path.exists(), "nothing came of it");
    let mut command = Command::new(WEIR);
    command.args(["doctor", "--seconds", "3600", "--record", text]).stdout(Stdio::null());
    let mut doctor = network.near.run(|| Owned::start(&mut command)).unwrap();
    wait_until("the file is there", || path.exists());
    doctor.signal(Signal::INT);
    doctor.wait().unwrap();
    let from = network.weir(&["doctor", "--from", text, "--json"]);
    let diagnosis: Value = serde_json::from_slice(&from.stdout).unwrap();
    assert!(diagnosis["seconds"].as_f64().unwrap() < 3600.0, "{diagnosis}");
}
