//! Programs that ask for lazy sockets, and mean no good: they hurt nobody but themselves.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::lazy::*;
use crate::common::*;
use rustix::fs::{Gid, Uid};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, sockopt};
use rustix::process::{Pid, Resource, Rlimit, Signal, getrlimit, kill_process, prlimit, setrlimit};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use weir_bpf::sys::stat::Stat;
use weir_socket::protocol::{self, HEADER_BYTES, Reply, Request, TEXT_BYTES_MAX};

const NOBODY: u32 = 65534;
const MIB: u64 = 1 << 20;

/// A weir that offers lazy sockets to users other than root, too, and where.
fn for_a_group() -> (Network, Daemon, PathBuf) {
    let (network, daemon) = protected_ipv4(&["--lazy", "--lazy-group", "65534"]);
    let path = daemon_socket(&network);
    (network, daemon, path)
}

fn as_nobody<T: Send>(network: &Network, act: impl FnOnce() -> T + Send) -> T {
    as_user(network, NOBODY, act)
}

/// In the near namespace, as a user who is in the group that may ask; this thread alone.
fn as_user<T: Send>(network: &Network, uid: u32, act: impl FnOnce() -> T + Send) -> T {
    let run = || {
        set_thread_groups(&[]).unwrap();
        let gid = Gid::from_raw(NOBODY);
        set_thread_res_gid(gid, gid, gid).unwrap();
        let uid = Uid::from_raw(uid);
        set_thread_res_uid(uid, uid, uid).unwrap();
        act()
    };
    network.near.run(run).unwrap()
}

/// Whether it could be sent.
fn send(client: &OwnedFd, message: &[u8], fds: &[BorrowedFd<'_>]) -> bool {
    protocol::send(client, message, fds, SendFlags::DONTWAIT).is_ok()
}

/// The answer, or `None` at the connection's end.
fn answer(client: &OwnedFd) -> Option<(Reply, Option<OwnedFd>)> {
    let mut message = [0; HEADER_BYTES + TEXT_BYTES_MAX];
    let (bytes, fds) = protocol::receive(client, &mut message, RecvFlags::empty()).unwrap();
    (bytes > 0).then(|| (Reply::decode(&message[..bytes]).unwrap(), fds.into_iter().next()))
}

/// A connection, and its ring, for a socket that nobody else has.
fn ask(path: &Path, ring_bytes: u64) -> Result<(OwnedFd, OwnedFd), String> {
    let socket = UdpSocket::bind("198.18.0.1:0").unwrap();
    let client = connect_to(path);
    assert!(send(&client, &Request { ring_bytes }.encode(), &[socket.as_fd()]));
    match answer(&client).unwrap() {
        (Reply::Ring { .. }, Some(ring)) => Ok((client, ring)),
        (Reply::Refused(why), None) => Err(why),
        other => panic!("{other:?}"),
    }
}

/// Somebody else is served, and the rules are looked at.
fn assert_others_are_served(network: &Network, daemon: &Daemon, sign: &str) {
    let socket = lazy_socket(network, LAZY);
    assert_eq!(socket.ordinary(), None, "{sign}");
    let heard = daemon.heard();
    let rule = "table inet t { chain c { type filter hook input priority 0; udp dport 1 drop; }; }";
    sh(network, &format!("nft '{rule}'"));
    daemon.said_since(heard, "lazy sockets are ordinary ones for now");
    sh(network, "nft flush ruleset");
    daemon.said_since(heard, "lazy sockets are lazy again");
    network.far_socket("198.18.0.2:0").send_to(sign.as_bytes(), LAZY).unwrap();
    let mut buffer = [0; 64];
    let length = socket.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[..length], sign.as_bytes());
}

#[test]
fn a_ring_counts_as_long_as_it_is_in_memory() {
    let network = Network::ipv4_only();
    let options = ["--lazy", "--lazy-memory", "4", "--lazy-group", "65534"];
    let daemon = Daemon::start(&network, &options);
    let path = daemon_socket(&network);
    as_nobody(&network, || {
        let kept: Vec<OwnedFd> = (0..4).map(|_| ask(&path, MIB).unwrap().1).collect();
        let why = ask(&path, MIB).unwrap_err();
        let wanted = "rings of uid 65534 have 4 of 4 MiB, 4 of them kept by programs";
        assert!(why.contains(wanted) && why.contains("`weir run --lazy-memory`"), "{why}");
        drop(kept);
        wait_until("they have gone", || ask(&path, MIB).is_ok());
    });
    assert_others_are_served(&network, &daemon, "memory");
}

#[test]
fn the_rings_of_root_are_bounded_too() {
    let network = Network::ipv4_only();
    let _daemon = Daemon::start(&network, &["--lazy", "--lazy-memory", "1"]);
    let path = daemon_socket(&network);
    let asked = || network.near.run(|| ask(&path, MIB)).unwrap();
    let mut rings: Vec<_> = (0..4).map(|_| asked().unwrap()).collect();
    let why = asked().unwrap_err();
    let wanted = "rings of root have 4 of 4 MiB";
    assert!(why.contains(wanted) && why.contains("`weir run --lazy-memory`"), "{why}");
    rings.pop();
    wait_until("one has gone", || asked().is_ok());
}

/// Whoever has a range of user identifiers is as many users as he likes.
#[test]
fn the_rings_of_many_users_count_together() {
    let network = Network::ipv4_only();
    let options = ["--lazy", "--lazy-memory", "1", "--lazy-group", "65534"];
    let daemon = Daemon::start(&network, &options);
    let path = daemon_socket(&network);
    let asked = |uid| as_user(&network, uid, || ask(&path, MIB));
    let mut rings: Vec<_> = (1000..1004).map(|uid| asked(uid).unwrap()).collect();
    let why = asked(1004).unwrap_err();
    let wanted = "rings of all users but root have 4 of 4 MiB";
    assert!(why.contains(wanted) && why.contains("`weir run --lazy-memory`"), "{why}");
    assert_others_are_served(&network, &daemon, "many");
    rings.pop();
    wait_until("one has gone", || asked(1004).is_ok());
}

/// Of the thread that serves programs, a directory of procfs.
fn serving_task(daemon: &Daemon) -> PathBuf {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.pid())).unwrap();
    let mut tasks = tasks.map(|task| task.unwrap().path());
    let is_it = |task: &PathBuf| std::fs::read(task.join("comm")).unwrap() == b"weir-lazy\n";
    tasks.find(is_it).unwrap()
}

fn cpu_time(daemon: &Daemon) -> Duration {
    let times = std::fs::read_to_string(serving_task(daemon).join("schedstat")).unwrap();
    let nanos = times.split(' ').next().map(|nanos| nanos.parse().unwrap());
    Duration::from_nanos(nanos.unwrap())
}

/// Whatever keeps it: the gates do not go on as it has told them.
#[test]
fn nothing_is_bypassed_while_nobody_looks() {
    // PTRACE_SEIZE and PTRACE_INTERRUPT, of one thread, until this process ends.
    const STOP: &str = "import ctypes,sys;c=ctypes.CDLL(None,use_errno=True);t=int(sys.argv[1])\n\
        print([c.ptrace(request,t,None,None) for request in (0x4206,0x4207)],flush=True);sys.stdin.read()\n";
    let (network, daemon, lazy, sender) = with_lazy_socket();
    send_numbers(&sender, 0..1);
    assert_eq!(receive_numbers(&lazy, 0), [0]);
    wait_until("it came by the ring", || network.count("lazy") == 1);
    let mut python = Command::new("python3");
    let task = serving_task(&daemon);
    python.args(["-c", STOP]).arg(task.file_name().unwrap());
    let mut python = python.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut stopped = BufReader::new(python.stdout.take().unwrap()).lines();
    assert_eq!(stopped.next().unwrap().unwrap(), "[0, 0]");
    sh(
        &network,
        "nft 'table inet t { chain c { type filter hook input priority 0; udp dport 9995 counter drop; }; }'",
    );
    wait_until("the rule drops it", || {
        send_numbers(&sender, 1..2);
        !sh(&network, "nft list ruleset").contains("packets 0 ")
    });
    drop(python.stdin.take());
    python.wait().unwrap();
    daemon.said("lazy sockets are ordinary ones for now");
    sh(&network, "nft flush ruleset");
    daemon.said("lazy sockets are lazy again");
    let before = network.count("lazy");
    send_numbers(&sender, 2..3);
    assert_eq!(receive_numbers(&lazy, 2).last(), Some(&2));
    wait_until("it came by the ring", || network.count("lazy") == before + 1);
}

/// With a loose reverse path filter all routes are read at each look.
#[test]
fn asking_again_and_again_does_not_have_the_rules_read_again_and_again() {
    let network = Network::ipv4_only();
    let script = "echo 2 >/proc/sys/net/ipv4/conf/near/rp_filter; ip route add default via 198.18.0.2
        seq 30000 | awk '{ printf \"route add 10.%d.%d.0/24 via 198.18.0.2\\n\", $1 / 256, $1 % 256 }' | ip -b -";
    sh(&network, script);
    let daemon = Daemon::start(&network, &["--lazy", "--lazy-group", "65534"]);
    let path = daemon_socket(&network);
    let asked = || as_nobody(&network, || ask(&path, 64 << 10).unwrap());
    let before = cpu_time(&daemon);
    let _ring = asked();
    let first = cpu_time(&daemon) - before;
    (0..20).for_each(|_| drop(asked()));
    let all = cpu_time(&daemon) - before;
    println!("the first took {first:?}, and 20 more {:?}", all - first);
    assert!(all < 4 * first, "{first:?} {all:?}");
}

/// A TCP connection whose close(2) waits for a peer that does not read.
fn lingering(network: &Network) -> (TcpStream, TcpStream) {
    let listener = network.far.run(|| TcpListener::bind("198.18.0.2:0").unwrap()).unwrap();
    let to = listener.local_addr().unwrap();
    let mut near = network.near.run(|| TcpStream::connect(to).unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    // A buffer that is full may only wait for acknowledgements of what the peer still has room for.
    near.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    while near.write(&[0; 65536]).is_ok() {}
    sockopt::set_socket_linger(&near, Some(Duration::from_secs(600))).unwrap();
    (near, far)
}

#[test]
fn a_descriptor_that_cannot_be_closed_delays_nobody_else() {
    let (network, daemon, path) = for_a_group();
    // One that is received, one that waits behind a request, one behind a connection that is only closed.
    let blocks: Vec<_> = (0..3).map(|_| lingering(&network)).collect();
    let request = Request { ring_bytes: MIB }.encode();
    let udp = network.near.run(|| UdpSocket::bind("198.18.0.1:0").unwrap()).unwrap();
    let (near, far): (Vec<TcpStream>, Vec<TcpStream>) = blocks.into_iter().unzip();
    // Whoever closes last waits, and is not to be this test.
    daemon.signal(Signal::STOP);
    let clients: Vec<OwnedFd> = as_nobody(&network, || (0..3).map(|_| connect_to(&path)).collect());
    assert!(send(&clients[0], &request, &[near[0].as_fd()]));
    assert!(send(&clients[1], &request, &[udp.as_fd()]));
    assert!(send(&clients[1], &request, &[near[1].as_fd()]));
    assert!(send(&clients[2], b"", &[near[2].as_fd()]));
    drop(near);
    daemon.signal(Signal::CONT);
    assert_others_are_served(&network, &daemon, "blocked");
    drop(clients);
    assert_others_are_served(&network, &daemon, "still blocked");
    // What waits for a clerk that is killed waits for the next.
    kill_clerks(&daemon);
    assert_others_are_served(&network, &daemon, "killed");
    drop(far);
}

/// Those that have not been killed: to end takes some time on a busy machine.
fn clerks(daemon: &Daemon) -> Vec<Pid> {
    let parent = format!("PPid:\t{}\n", daemon.pid().as_raw_nonzero());
    let processes = std::fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap());
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let clerks = pids.filter(|pid| {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let is_clerk = status.starts_with("Name:\tweir-lazy-clerk\n") && status.contains(&parent);
        let killed = status.contains("\nSigPnd:\t0000000000000100\n");
        is_clerk && !killed && Stat::of(*pid).is_some_and(|stat| !stat.is_ending())
    });
    clerks.map(|pid| Pid::from_raw(pid).unwrap()).collect()
}

fn kill_clerks(daemon: &Daemon) {
    // One that has nothing more to do ends by itself.
    let kill = |clerk: &Pid| match kill_process(*clerk, Signal::KILL) {
        Err(Errno::SRCH) => false,
        sent => {
            sent.unwrap();
            true
        }
    };
    assert!(clerks(daemon).iter().filter(|clerk| kill(clerk)).count() > 0);
}

/// Whoever has a range of user identifiers is as many users as he likes.
#[test]
fn many_users_at_once_have_few_processes() {
    have_many_descriptors();
    let (network, daemon, path) = for_a_group();
    let clients: Vec<OwnedFd> =
        (10_000..10_200).map(|uid| as_user(&network, uid, || connect_to(&path))).collect();
    let udp = network.near.run(|| UdpSocket::bind("198.18.0.1:0").unwrap()).unwrap();
    let request = Request { ring_bytes: MIB }.encode();
    assert!(clients.iter().all(|client| send(client, &request, &[udp.as_fd()])));
    assert!(clients.iter().all(|client| answer(client).is_some()));
    let clerks = clerks(&daemon).len();
    assert!(clerks <= 65, "{clerks}");
    assert_others_are_served(&network, &daemon, "crowd of users");
}

#[test]
fn descriptors_that_cannot_be_closed_do_not_keep_the_daemon_from_its_end() {
    let (network, daemon, path) = for_a_group();
    let (near, _far): (Vec<TcpStream>, Vec<TcpStream>) =
        (0..3).map(|_| lingering(&network)).unzip();
    let pass = |near: &TcpStream| {
        let client = as_nobody(&network, || connect_to(&path));
        assert!(send(&client, b"", &[near.as_fd()]));
    };
    let mut near = near.into_iter();
    // One that the clerk has, one that waits for it. Whoever closes last waits, and is not to be this test.
    daemon.signal(Signal::STOP);
    near.by_ref().take(2).for_each(|near| pass(&near));
    daemon.signal(Signal::CONT);
    let socket = lazy_socket(&network, LAZY);
    assert_eq!(socket.ordinary(), None, "connections are accepted in turn");
    // One that may not even have been accepted.
    daemon.signal(Signal::STOP);
    near.for_each(|near| pass(&near));
    daemon.signal(Signal::CONT);
    daemon.interrupt();
}

/// An unprivileged client can have that many wait at 4 MiB of `net.core.wmem_max`.
const SMALL_MESSAGES: usize = 10_000;

#[test]
fn a_descriptor_behind_many_messages_delays_nobody_else() {
    let (network, daemon, path) = for_a_group();
    let (near, far) = lingering(&network);
    // All wait before the first is read, as no more are taken then. Some are empty, as the end is.
    daemon.signal(Signal::STOP);
    let client = as_nobody(&network, || connect_to(&path));
    sockopt::set_socket_send_buffer_size_force(&client, 8 << 20).unwrap();
    assert!((0..SMALL_MESSAGES).all(|at| send(&client, &[0][at % 2..], &[])));
    assert!(send(&client, &[0], &[near.as_fd()]));
    drop((near, client));
    daemon.signal(Signal::CONT);
    assert_others_are_served(&network, &daemon, "deep");
    as_nobody(&network, || ask(&path, MIB).expect("a stuck clerk is replaced"));
    drop(far);
}

/// As many as this process may have at all.
fn have_many_descriptors() {
    let own = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: own.maximum, ..own }).unwrap();
}

#[test]
fn connections_are_bounded_and_do_not_use_up_the_daemons_descriptors() {
    let network = Network::ipv4_only();
    have_many_descriptors();
    // What a service manager gives a daemon: it is to raise the first of both.
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -S -n 512 && exec {WEIR} \"$@\""), "sh"]);
    let options = ["--awake", "--lazy", "--lazy-group", "65534"];
    let daemon = Daemon::start_by(command, &network, &options);
    let path = daemon_socket(&network);
    as_nobody(&network, || {
        let silent: Vec<OwnedFd> = (0..1100).map(|_| connect_to(&path)).collect();
        let refused = ask(&path, MIB).map(drop);
        assert!(refused.as_ref().is_err_and(|why| why.contains("close some")), "{refused:?}");
        silent
    });
    assert_others_are_served(&network, &daemon, "crowd");
    let served = || as_nobody(&network, || ask(&path, MIB).is_ok());
    wait_until("the silent have been sent away", served);

    // As many as there may be at all wait for a clerk that is stuck.
    let (near, _far) = lingering(&network);
    daemon.signal(Signal::STOP);
    let stuck = as_nobody(&network, || connect_to(&path));
    assert!(send(&stuck, b"", &[near.as_fd()]));
    drop(near);
    daemon.signal(Signal::CONT);
    let crowd: Vec<OwnedFd> =
        as_nobody(&network, || (0..4500).map(|_| connect_to(&path)).collect());
    let socket = lazy_socket(&network, LAZY);
    assert_eq!(socket.ordinary(), None, "root's are heard");
    drop((stuck, crowd));
}

/// Each takes five seconds, and others that connect wait behind them.
#[test]
fn descriptors_that_cannot_be_closed_keep_no_others_out() {
    have_many_descriptors();
    let (network, daemon, path) = for_a_group();
    let (near, _far): (Vec<TcpStream>, Vec<TcpStream>) =
        (0..8).map(|_| lingering(&network)).unzip();
    // All wait before the first is read.
    daemon.signal(Signal::STOP);
    let stuck = as_nobody(&network, || connect_to(&path));
    assert!(near.iter().all(|near| send(&stuck, &[0], &[near.as_fd()])));
    drop(near);
    daemon.signal(Signal::CONT);
    std::thread::scope(|scope| {
        let crowd =
            || as_nobody(&network, || (0..4500).map(|_| connect_to(&path)).collect::<Vec<_>>());
        let crowd = scope.spawn(crowd);
        let mut before = 0;
        wait_until("all have connected, or find no more room", || {
            std::thread::sleep(Duration::from_millis(300));
            let now = descriptors(&daemon);
            crowd.is_finished() || std::mem::replace(&mut before, now) == now
        });
        assert_others_are_served(&network, &daemon, "crowd behind them");
        drop(crowd.join().unwrap());
    });
}

/// The kernel waits for all CPUs at the end of each ring.
#[test]
fn the_end_of_many_rings_delays_nobody_else() {
    have_many_descriptors();
    let (network, daemon, path) = for_a_group();
    let rings: Vec<_> =
        as_nobody(&network, || (0..500).map(|_| ask(&path, 64 << 10).unwrap()).collect());
    drop(rings);
    assert_others_are_served(&network, &daemon, "ended");
}

fn descriptors(daemon: &Daemon) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap().count()
}

#[test]
fn a_connection_for_which_there_is_no_descriptor_waits_and_takes_no_cpu() {
    let (network, daemon, path) = for_a_group();
    // All that it may have are open.
    let is_free = |fd: &u64| !Path::new(&format!("/proc/{}/fd/{fd}", daemon.pid())).exists();
    let few = Rlimit { current: (0..).find(is_free), ..getrlimit(Resource::Nofile) };
    let usual = prlimit(Some(daemon.pid()), Resource::Nofile, few).unwrap();
    let client = as_nobody(&network, || connect_to(&path));
    let before = cpu_time(&daemon);
    std::thread::sleep(Duration::from_secs(1));
    let used = cpu_time(&daemon) - before;
    assert!(used < Duration::from_millis(50), "{used:?}");
    prlimit(Some(daemon.pid()), Resource::Nofile, usual).unwrap();
    let udp = network.near.run(|| UdpSocket::bind("198.18.0.1:0").unwrap()).unwrap();
    assert!(send(&client, &Request { ring_bytes: MIB }.encode(), &[udp.as_fd()]));
    assert!(answer(&client).is_some(), "it has waited");
    // Meanwhile the daemon could not see what may divert packets.
    wait_until("it sees that again", || as_nobody(&network, || ask(&path, MIB).is_ok()));
    assert_others_are_served(&network, &daemon, "few descriptors");
}

/// As of a container: whoever is outside has no number there.
#[test]
fn a_program_that_the_daemons_pid_namespace_does_not_see_is_told_so_and_leaves_nothing_open() {
    let network = Network::ipv4_only();
    let mut command = Command::new("unshare");
    let run =
        ["--pid", "--fork", "--kill-child", "--mount-proc", WEIR, "run", NEAR, "--quiet", "--lazy"];
    command.args(run).stderr(Stdio::null());
    let _unshare = network.near.run(|| Owned::start(&mut command)).unwrap();
    network.wait_until_published();
    let daemon = pid(&network.status()["interfaces"][0]["pid"]);
    let path = daemon_socket(&network);
    let descriptors =
        || std::fs::read_dir(format!("/proc/{}/fd", daemon.as_raw_nonzero())).unwrap().count();
    let before = descriptors();
    for _ in 0..30 {
        let why = network.near.run(|| ask(&path, MIB).unwrap_err()).unwrap();
        assert!(why.contains("is in a PID namespace of its own"), "{why}");
    }
    wait_until("all is closed", || descriptors() <= before + 3);
    kill_process(daemon, Signal::TERM).unwrap();
    wait_until("everything is put back", || network.is_untouched());
}

#[test]
fn a_program_that_does_not_see_the_daemons_pid_namespace_has_a_lazy_socket() {
    let (network, daemon) = protected_ipv4(&["--lazy"]);
    let script = "import socket\ns=socket.socket(2,2);s.bind(('198.18.0.1',9995));print('bound',flush=True)\n\
        print(s.recv(9).decode())\n";
    let arguments = ["--pid", "--fork", "--kill-child", "timeout", "30", "python3", "-c", script];
    let mut python = preloaded(&network, "unshare", &arguments);
    let mut lines = BufReader::new(python.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().unwrap(), "bound");
    network.far_socket("198.18.0.2:0").send_to(b"here", LAZY).unwrap();
    assert_eq!(lines.next().unwrap(), "here");
    let output = python.wait_with_output().unwrap();
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    wait_until("it came by the ring", || network.count("lazy") == 1);
    daemon.interrupt();
}

/// The one that connected may have been in a group that a program is attached to.
#[test]
fn whoever_has_the_number_of_the_process_that_connected_lends_it_no_control_group() {
    // Of a PID namespace, the next number can be chosen.
    let script = r"
import os, socket, struct, subprocess, sys, time
path, weir = sys.argv[1], sys.argv[2:]
daemon = subprocess.Popen(weir, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
kept = []
def ask(client):
    udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); udp.bind(('198.18.0.1', 0)); kept.append(udp)
    socket.send_fds(client, [struct.pack('=8sIIQ', b'weirlazy', 1, 0, 1 << 20)], [udp.fileno()])
    answer, *_ = socket.recv_fds(client, 2000, 1)
    return answer[24:].decode() if answer[12] else 'a ring'
def client():
    kept.append(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
    return kept[-1]
while not os.path.exists(path): time.sleep(0.01)
first = client(); first.connect(path); print(ask(first))
def accepted(): # The daemon's socket had a longer name before.
    with open('/proc/net/unix') as all: return sum(each[5] == '03' and path in each[-1] for each in map(str.split, all))
second, (ends, end) = client(), os.pipe()
connected = os.fork()
if connected == 0:
    second.connect(path); os.read(ends, 1); os._exit(0)
while accepted() < 2: time.sleep(0.01)
os.write(end, b'x'); os.waitpid(connected, 0)
successor = 0
while successor != connected:
    with open('/proc/sys/kernel/ns_last_pid', 'w') as last: last.write(str(connected - 1))
    successor = os.fork()
    if successor == 0: time.sleep(100)
print(ask(second))
daemon.terminate(); daemon.wait()
";
    let network = Network::ipv4_only();
    let path = daemon_socket(&network);
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc", "timeout", "60"]);
    command.args(["python3", "-c", script]).arg(path);
    command.args([WEIR, "run", NEAR, "--quiet", "--lazy"]);
    let output = network.near.run(|| command.output().unwrap()).unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let (first, second) = said.split_once('\n').unwrap();
    assert_eq!(first, "a ring", "{}", String::from_utf8_lossy(&output.stderr));
    assert!(second.contains("the process that connected has ended"), "{said}");
    wait_until("everything is put back", || network.is_untouched());
}

/// Whatever is sent, with whatever descriptors: it is answered, or the connection ends, and nothing stays open.
#[test]
fn any_bytes_and_descriptors_are_survived() {
    let (network, daemon, path) = for_a_group();
    // The daemon opens some files when it first looks at the rules.
    assert_others_are_served(&network, &daemon, "first");
    let before = descriptors(&daemon);
    let mut random = fastrand::Rng::with_seed(18);
    let (null, (read, write)) = (File::open("/dev/null").unwrap(), rustix::pipe::pipe().unwrap());
    let directory = File::open("/").unwrap();
    as_nobody(&network, || {
        let unbound = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        for _ in 0..1000 {
            let udp = UdpSocket::bind("198.18.0.1:0").unwrap();
            let client = connect_to(&path);
            for _ in 0..random.usize(1..4) {
                let mut message = Request { ring_bytes: 1 << random.u32(15..28) }.encode().to_vec();
                match random.u8(0..5) {
                    0 => {}
                    1 | 2 => message[random.usize(0..HEADER_BYTES)] ^= 1 << random.u8(0..8),
                    3 => message.resize(random.usize(0..64), random.u8(..)),
                    _ => message = (0..random.usize(0..64)).map(|_| random.u8(..)).collect(),
                }
                let any = [
                    udp.as_fd(),
                    udp.as_fd(),
                    unbound.as_fd(),
                    null.as_fd(),
                    read.as_fd(),
                    write.as_fd(),
                    directory.as_fd(),
                    client.as_fd(),
                ];
                let fds: Vec<_> =
                    (0..random.usize(0..4)).map(|_| any[random.usize(0..any.len())]).collect();
                send(&client, &message, &fds);
            }
            if random.bool() {
                answer(&client);
            }
        }
    });
    assert_others_are_served(&network, &daemon, "noise");
    wait_until("nothing is left open", || descriptors(&daemon) <= before);
}

#[test]
fn a_program_that_does_not_see_where_weir_listens_is_told_how_to_reach_it() {
    let (network, _daemon) = protected_ipv4(&["--lazy"]);
    let bind = "import socket; socket.socket(2,2).bind(('198.18.0.1',9995))";
    let hidden = format!("mount -t tmpfs none /run/weir && exec python3 -c \"{bind}\"");
    let unshare = preloaded(&network, "unshare", &["--mount", "sh", "-c", &hidden]);
    let said = String::from_utf8(unshare.wait_with_output().unwrap().stderr).unwrap();
    assert!(said.contains("bind-mount /run/weir into the program's container"), "{said}");
}
