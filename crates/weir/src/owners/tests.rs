//! Real sockets of real processes, found both ways: by the iterators and by `/proc`.

mod sandbox;

use std::io::Read;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, sockopt};
use weir_bpf::channels::Channel;
use weir_bpf::holders::SchedClass;
use weir_bpf::units::{IfIndex, Nice, Uid};
use weir_bpf::verdict::Kind;
use weir_socket::protocol;

use self::sandbox::{Sleeper, bound, sandbox};
use super::*;

const IFINDEX: IfIndex = IfIndex(1);
const PATIENCE: Duration = Duration::from_secs(15);
/// In the environment of the process that is passed a socket.
const RECEIVER: &str = "WEIR_TEST_RECEIVES_A_SOCKET";

/// Both ways to look.
fn ways() -> [Owners; 2] {
    [Holders::open(), Holders::by_proc()].map(|holders| Owners::open_with(holders).unwrap())
}

fn expect_each_way(local: &str, pids: &[i32]) {
    for mut owners in ways() {
        expect(&mut owners, local, pids);
    }
}

fn channel(kind: Kind, local: &str) -> Channel {
    let local: SocketAddr = local.parse().unwrap();
    Channel { local: Some((local.ip(), local.port())), ..Channel::of_kind(kind) }
}

/// The processes that own a UDP channel, and its weight.
fn owner(ownership: &Ownership, local: &str) -> (Vec<Arc<Process>>, Option<Weight>) {
    let owner = ownership.of(&channel(Kind::Udp, local), IFINDEX).unwrap();
    (owner.processes(), owner.weight())
}

/// Waits until the owners are those: what another test starts has all that this process has open until it
/// runs its own program.
fn expect(owners: &mut Owners, local: &str, pids: &[i32]) {
    let mut expected = pids.to_vec();
    expected.sort_unstable();
    let mut found = Vec::new();
    let same = || {
        let (processes, _) = owner(&owners.look().unwrap(), local);
        found = processes.iter().map(|each| each.pid).collect();
        found.sort_unstable();
        found == expected
    };
    assert!(wait(same), "{local} is {found:?}'s, not {expected:?}'s");
}

fn own_pid() -> i32 {
    std::process::id().cast_signed()
}

fn wait(mut condition: impl FnMut() -> bool) -> bool {
    let begin = Instant::now();
    while !condition() {
        if begin.elapsed() > PATIENCE {
            return false;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    true
}

fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    assert!(wait(condition), "waited in vain until {what}");
}

#[test]
fn a_plain_socket_is_its_processs() {
    sandbox(|| {
        let _socket = bound("127.0.0.1:5000");
        let _listener = TcpListener::bind("127.0.0.1:5000").unwrap();
        for mut owners in ways() {
            expect(&mut owners, "127.0.0.1:5000", &[own_pid()]);
            let ownership = owners.look().unwrap();
            for kind in [Kind::Udp, Kind::Tcp] {
                let owner = ownership.of(&channel(kind, "127.0.0.1:5000"), IFINDEX).unwrap();
                let processes = owner.processes();
                let process = processes.iter().find(|each| each.pid == own_pid()).unwrap();
                assert_eq!(process.uid, Uid(0));
                assert_eq!(process.user.as_deref(), Some("root"));
                let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
                assert_eq!(process.comm, comm.trim_end());
            }
            let nobodys = ownership.of(&channel(Kind::Udp, "127.0.0.1:5001"), IFINDEX).unwrap();
            assert!(nobodys.sockets.is_empty());
        }
    });
}

#[test]
fn an_inherited_socket_is_both_processs_and_then_the_childs() {
    sandbox(|| {
        let socket = bound("127.0.0.1:5000");
        let child = Sleeper::with(socket.try_clone().unwrap());
        let both = [own_pid(), child.pid()];
        expect_each_way("127.0.0.1:5000", &both);
        drop(socket);
        expect_each_way("127.0.0.1:5000", &[child.pid()]);
    });
}

/// As a server's workers inherit what their parent has bound.
#[test]
fn of_several_alike_the_one_that_has_used_most_cpu_time_is_first() {
    sandbox(|| {
        let socket = bound("127.0.0.1:5000");
        let parent = Sleeper::with(socket.try_clone().unwrap());
        let computes = ["sh", "-c", "while :; do :; done"];
        let worker = Sleeper::run(&computes, socket);
        let same = |pids: &[i32]| pids == [worker.pid(), parent.pid()];
        for mut owners in ways() {
            wait_until("the worker is first", || {
                let (processes, _) = owner(&owners.look().unwrap(), "127.0.0.1:5000");
                same(&processes.iter().map(|each| each.pid).collect::<Vec<_>>())
            });
        }
    });
}

#[test]
fn a_passed_socket_is_its_receivers() {
    if std::env::var_os(RECEIVER).is_some() {
        return receive_a_socket();
    }
    sandbox(|| {
        let socket = bound("127.0.0.1:5000");
        let (ours, theirs) = UnixStream::pair().unwrap();
        protocol::send(&ours, b"x", &[socket.as_fd()], SendFlags::empty()).unwrap();
        drop(socket);
        // On its way it is nobody's, but still there.
        for mut owners in ways() {
            expect(&mut owners, "127.0.0.1:5000", &[]);
            let ownership = owners.look().unwrap();
            let owner = ownership.of(&channel(Kind::Udp, "127.0.0.1:5000"), IFINDEX).unwrap();
            assert_eq!(owner.sockets.len(), 1);
            assert_eq!(owner.weight(), None);
        }
        // This very test, which is the receiver there.
        let mut test = Command::new(std::env::current_exe().unwrap());
        test.args(["--exact", "owners::tests::a_passed_socket_is_its_receivers"]);
        test.env(RECEIVER, "").stdout(Stdio::null());
        let receiver = Sleeper::spawn(test, theirs);
        expect_each_way("127.0.0.1:5000", &[receiver.pid()]);
    });
}

/// The receiver of the test above: a process of its own, with its end of the pair as standard input.
fn receive_a_socket() {
    let stdin = std::io::stdin();
    let (_, received) = protocol::receive(&stdin, &mut [0], RecvFlags::empty()).unwrap();
    assert_eq!(received.len(), 1);
    // Until the sender has ended.
    let _ = stdin.lock().read(&mut [0]);
}

#[test]
fn members_of_a_reuseport_group_and_shared_sockets_weigh_as_their_heaviest() {
    sandbox(|| {
        let member = || {
            let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
            sockopt::set_socket_reuseport(&socket, true).unwrap();
            rustix::net::bind(&socket, &"0.0.0.0:5000".parse::<SocketAddr>().unwrap()).unwrap();
            socket
        };
        let light = Sleeper::run(&["nice", "-n", "5", "sleep", "100"], member());
        let heavy = Sleeper::run(&["nice", "-n", "-3", "sleep", "100"], member());
        let shared = bound("127.0.0.1:5001");
        let _idle = Sleeper::run(&["chrt", "-i", "0", "sleep", "100"], shared.try_clone().unwrap());
        let niced = Sleeper::run(&["nice", "-n", "19", "sleep", "100"], shared);
        // The test may itself run niced.
        let own = rustix::process::getpriority_process(None).unwrap();
        let nice = |by: i32| (own + by).clamp(-20, 19);
        let expected = [(heavy.pid(), nice(-3)), (light.pid(), nice(5))];
        for mut owners in ways() {
            let of = |ownership: &Ownership| -> Vec<_> {
                let (processes, _) = owner(ownership, "127.0.0.1:5000");
                processes.iter().map(|each| (each.pid, each.nice.unwrap().0)).collect()
            };
            let idle_too = |ownership: &Ownership| {
                let (processes, weight) = owner(ownership, "127.0.0.1:5001");
                (processes.len(), weight) == (2, Some(Weight(15)))
            };
            wait_until("they are nice", || {
                let ownership = owners.look().unwrap();
                of(&ownership) == expected && idle_too(&ownership)
            });
            let ownership = owners.look().unwrap();
            let (processes, weight) = owner(&ownership, "127.0.0.1:5000");
            assert_eq!(weight, Some(processes[0].weight));
            assert!(processes[0].weight > processes[1].weight);
            let (processes, weight) = owner(&ownership, "127.0.0.1:5001");
            assert_eq!((processes.len(), weight), (2, Some(Weight(15))));
            assert_eq!((processes[0].pid, processes[0].nice), (niced.pid(), Some(Nice(19))));
            assert_eq!((processes[1].weight, processes[1].nice), (Weight(3), None));
        }
    });
}

#[test]
fn a_heavier_thread_makes_its_process_heavier() {
    sandbox(|| {
        let _socket = bound("127.0.0.1:5000");
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                rustix::process::setpriority_process(None, -7).unwrap();
                while !done.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            });
            for mut owners in ways() {
                wait_until("the thread is heavy", || {
                    let (_, weight) = owner(&owners.look().unwrap(), "127.0.0.1:5000");
                    weight == Some(Weight(4904))
                });
            }
            done.store(true, Ordering::Relaxed);
            thread.join().unwrap();
        });
    });
}

#[test]
fn a_dual_stack_socket_receives_both_families() {
    sandbox(|| {
        let _socket = bound("[::]:5000");
        for mut owners in ways() {
            for local in ["127.0.0.1:5000", "[::1]:5000", "198.18.0.1:5000", "[2001:2::1]:5000"] {
                expect(&mut owners, local, &[own_pid()]);
            }
        }
    });
}

#[test]
fn a_connected_socket_is_beside_the_one_that_is_not() {
    sandbox(|| {
        let any = bound("127.0.0.1:5000");
        let connected = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None).unwrap();
        sockopt::set_socket_reuseaddr(&connected, true).unwrap();
        sockopt::set_socket_reuseaddr(&any, true).unwrap();
        let local: SocketAddr = "127.0.0.1:5000".parse().unwrap();
        rustix::net::bind(&connected, &local).unwrap();
        rustix::net::connect(&connected, &"127.0.0.1:9".parse::<SocketAddr>().unwrap()).unwrap();
        let child = Sleeper::with(connected);
        let both = [own_pid(), child.pid()];
        expect_each_way("127.0.0.1:5000", &both);
    });
}

#[test]
fn a_process_in_another_pid_namespace_has_the_number_that_it_has_here() {
    sandbox(|| {
        let socket = bound("127.0.0.1:5000");
        let outer =
            Sleeper::run(&["unshare", "--pid", "--fork", "--kill-child", "sleep", "100"], socket);
        let children = format!("/proc/{0}/task/{0}/children", outer.pid());
        let inner = || -> Option<i32> {
            let pid = std::fs::read_to_string(&children).ok()?.trim().parse().ok()?;
            let comm = std::fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
            (comm == "sleep\n").then_some(pid)
        };
        wait_until("it has its child", || inner().is_some());
        let both = [outer.pid(), inner().unwrap()];
        expect_each_way("127.0.0.1:5000", &both);
    });
}

/// A control group of the test's own, in systemd's hierarchy if that is a version 1 one.
struct TestGroup(PathBuf);

impl TestGroup {
    fn new(name: &str) -> Self {
        let v1 = Path::new("/sys/fs/cgroup/systemd");
        Self::within(if v1.is_dir() { v1 } else { Path::new("/sys/fs/cgroup") }, name)
    }

    fn within(root: &Path, name: &str) -> Self {
        let path = root.join(format!("weir-test-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    /// Of half the usual weight, where the kernel weighs groups.
    fn of_half_the_weight() -> Option<Self> {
        let v1 = Path::new("/sys/fs/cgroup/cpu");
        let (root, file, half) = if v1.is_dir() {
            (v1, "cpu.shares", "512")
        } else {
            (Path::new("/sys/fs/cgroup"), "cpu.weight", "50")
        };
        let group = Self::within(root, "half.service");
        std::fs::write(group.0.join(file), half).ok()?;
        Some(group)
    }

    fn take(&self, pid: i32) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
    }

    fn name(&self) -> &str {
        self.0.file_name().unwrap().to_str().unwrap()
    }
}

impl Drop for TestGroup {
    fn drop(&mut self) {
        wait(|| std::fs::remove_dir(&self.0).is_ok());
    }
}

#[test]
fn a_process_that_is_moved_is_in_its_new_group_at_the_next_look() {
    sandbox(|| {
        let first = TestGroup::new("a.service");
        let second = TestGroup::new("\u{1b}[2Jb.service");
        let child = Sleeper::with(bound("127.0.0.1:5000"));
        let mut ways = ways();
        for group in [&first, &second, &first] {
            group.take(child.pid());
            for owners in &mut ways {
                // A child of another test may have it, too, until it begins with its program.
                expect(owners, "127.0.0.1:5000", &[child.pid()]);
                let (processes, _) = owner(&owners.look().unwrap(), "127.0.0.1:5000");
                let found = processes[0].cgroup.clone().unwrap();
                let expected = group.name().replace('\u{1b}', "\\x1b");
                assert_eq!(found.unit.as_deref(), Some(expected.as_str()));
                assert_eq!(processes[0].place(), Some(expected));
            }
        }
        drop(child);
    });
}

#[test]
fn a_light_group_makes_its_processes_lighter() {
    let Some(group) = TestGroup::of_half_the_weight() else {
        println!("skipped: the cpu controller is not switched on in the root group");
        return;
    };
    sandbox(|| {
        let sleeper = Sleeper::with(bound("127.0.0.1:5000"));
        for mut owners in ways() {
            expect(&mut owners, "127.0.0.1:5000", &[sleeper.pid()]);
            group.take(sleeper.pid());
            wait_until("it is in the group", || {
                let (processes, weight) = owner(&owners.look().unwrap(), "127.0.0.1:5000");
                let [process] = &processes[..] else { return false };
                let usual = Weight::of(SchedClass::Fair(process.nice.unwrap()));
                process.group_weight == 0.5 && weight == Some(usual.times(0.5))
            });
        }
    });
}

#[test]
fn a_process_that_ends_has_nothing_and_breaks_nothing() {
    sandbox(|| {
        let socket = bound("127.0.0.1:5000");
        let child = Sleeper::with(socket.try_clone().unwrap());
        expect_each_way("127.0.0.1:5000", &[own_pid(), child.pid()]);
        drop(child);
        expect_each_way("127.0.0.1:5000", &[own_pid()]);
        // Some end while a look is under way.
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    drop(Sleeper::with(socket.try_clone().unwrap()));
                }
            });
            for mut owners in ways() {
                for _ in 0..100 {
                    let found = owner(&owners.look().unwrap(), "127.0.0.1:5000").0;
                    assert!(found.iter().any(|each| each.pid == own_pid()), "{found:?}");
                }
            }
            done.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn another_network_namespaces_sockets_are_not_ours() {
    sandbox(|| {
        let _theirs = bound("127.0.0.1:5000");
        sandbox(|| {
            let _ours = bound("127.0.0.1:5001");
            for mut owners in ways() {
                expect(&mut owners, "127.0.0.1:5001", &[own_pid()]);
                let ownership = owners.look().unwrap();
                let theirs = channel(Kind::Udp, "127.0.0.1:5000");
                assert!(ownership.of(&theirs, IFINDEX).unwrap().sockets.is_empty());
            }
        });
    });
}
