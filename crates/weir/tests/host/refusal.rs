//! What `weir run` does not do, and says why.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use crate::common::*;
use rustix::process::Signal;
use weir_bpf::attach::{AttachMode, DoNothing};

#[test]
fn a_second_daemon_is_refused_and_the_first_named() {
    let (network, first) = protected(&[]);
    let refusal = failure(&network.weir(&["run", NEAR]), 1);
    assert!(refusal.contains(&format!("(pid {})", first.pid().as_raw_nonzero())), "{refusal}");
    assert!(refusal.contains("weir status"), "{refusal}");
    assert_eq!(network.status()["interfaces"][0]["running"], true);
    first.signal(Signal::STOP);
    let resume = format!("after `kill -CONT {}`", first.pid().as_raw_nonzero());
    let is_told = || failure(&network.weir(&["run", NEAR]), 1).contains(&resume);
    wait_until("it is said how to resume the first", is_told);
    first.signal(Signal::CONT);
    first.interrupt();
    network.assert_untouched();
}

/// The XDP program on the protected interface.
fn xdp_id(network: &Network) -> u32 {
    network.links(|links, at| links.xdp(at).unwrap().unwrap().prog_id)
}

/// It stays attached as long as a child of another test has its link, too.
fn detach(network: &Network, program: &mut DoNothing) {
    program.detach();
    let gone = || network.links(|links, at| links.xdp(at).unwrap().is_none());
    wait_until("it is detached", gone);
}

#[test]
fn another_xdp_program_is_named_and_never_replaced() {
    let network = Network::new();
    network.add_pair();
    let rules = ConfigFile::new("screen-beside", "drop\n");
    let mut other = DoNothing::load().unwrap();
    for (mode, name) in [(AttachMode::Native, "native"), (AttachMode::Generic, "generic")] {
        network.near.run(|| other.attach(network.ifindex, NEAR, mode)).unwrap().unwrap();
        let before = xdp_id(&network);
        for attach in ["auto", "native", "generic"] {
            let refusal = failure(&network.weir(&["run", NEAR, "--attach", attach]), 1);
            for expected in [
                format!("weir_nothing (id {before}, {name}, attached by link"),
                "`--attach tc`".into(),
            ] {
                assert!(refusal.contains(&expected), "{expected}: {refusal}");
            }
            // A child of another test holds it, too, until it begins with its program.
            let (_, holders) = refusal.split_once("of pid ").unwrap();
            let (pids, _) = holders.split_once(')').unwrap();
            let own = std::process::id().to_string();
            assert!(pids.split(' ').any(|pid| pid == own), "{refusal}");
        }
        let capture = ["capture", "-i", NEAR, "--attach", "native", "--count"];
        let refusal = failure(&network.weir(&capture), 1);
        assert!(refusal.contains(&format!("weir_nothing (id {before}, {name}")), "{refusal}");
        let screen = ["screen", rules.path(), "--in", NEAR, "--out", NEAR2, "--attach", "native"];
        let refusal = failure(&network.weir(&screen), 1);
        let named = refusal.contains(&format!("weir_nothing (id {before}, {name}"));
        assert!(named && refusal.contains("screen beside it with `--attach tc`"), "{refusal}");
        // At tc there is no fast path, and both options together are refused.
        let refusal = failure(&network.weir(&["run", NEAR, "--forward", "xdp"]), 1);
        assert!(
            refusal.contains("beside it with `--attach tc` without `--forward xdp`"),
            "{refusal}"
        );
        assert_eq!(xdp_id(&network), before);
        detach(&network, &mut other);
    }
    network.assert_untouched();
}

#[test]
fn a_program_attached_by_netlink_has_its_own_remedy() {
    let network = Network::new();
    let other = DoNothing::load().unwrap();
    network.near.run(|| other.attach_by_netlink(network.ifindex)).unwrap().unwrap();
    let before = xdp_id(&network);
    let refusal = failure(&network.weir(&["run", NEAR]), 1);
    let expected = format!("weir_nothing (id {before}, native, attached by netlink)");
    assert!(refusal.contains(&expected), "{refusal}");
    assert!(refusal.contains("`ip link set dev near xdpdrv off`"), "{refusal}");
    assert_eq!(xdp_id(&network), before);
    sh(&network, "ip link set dev near xdpdrv off");
    network.assert_untouched();
}

#[test]
fn tc_runs_beside_another_xdp_program() {
    let network = Network::new();
    let mut other = DoNothing::load().unwrap();
    network.near.run(|| other.attach(network.ifindex, NEAR, AttachMode::Native)).unwrap().unwrap();
    let before = xdp_id(&network);
    let first = network.says(&["config", "init", "-"]);
    assert!(first.contains("\nattach = \"tc\" "), "{first}");
    for attach in ["tc", "clsact"] {
        let daemon = Daemon::start(&network, &["--attach", attach]);
        assert_eq!(xdp_id(&network), before);
        let notes = network.interface_status()["notes"].to_string();
        assert!(
            notes.contains("another XDP program runs before the gate (weir_nothing)"),
            "{notes}"
        );
        daemon.interrupt();
        assert_eq!(xdp_id(&network), before);
    }
    detach(&network, &mut other);
    network.assert_untouched();
}

#[test]
fn an_unknown_interface_is_named() {
    let network = Network::new();
    let refusal = failure(&network.weir(&["run", NEAR, "nowhere0"]), 1);
    assert!(refusal.contains("nowhere0") && refusal.contains("ip link"), "{refusal}");
    // As `ip link` shows a VLAN's or a veth's.
    let refusal = failure(&network.weir(&["run", "near@far"]), 1);
    assert!(refusal.contains("leave out @ and what follows"), "{refusal}");
    let refusal = failure(&network.weir(&["channels", "nowhere0"]), 1);
    assert!(refusal.contains("no interface named \"nowhere0\""), "{refusal}");
    network.assert_untouched();
}

#[test]
fn the_loopback_is_refused() {
    let network = Network::new();
    let refusal = failure(&network.weir(&["run", "lo"]), 1);
    assert!(refusal.contains("loopback"), "{refusal}");
    assert_eq!(network.files(), [] as [&str; 0]);
}

#[test]
fn xdp_is_refused_where_packets_have_no_ethernet_header() {
    let network = Network::new();
    sh(&network, "ip tuntap add tun7 mode tun");
    for attach in ["native", "generic"] {
        let refusal = failure(&network.weir(&["run", "tun7", "--attach", attach]), 1);
        assert!(refusal.contains("packets of tun7 have no Ethernet header"), "{refusal}");
        assert!(refusal.contains("`--attach tc`"), "{refusal}");
        assert!(!refusal.contains("forward"), "{refusal}");
    }
    let refusal = failure(&network.weir(&["run", "tun7", "--forward", "xdp"]), 1);
    assert!(refusal.contains("`--attach tc` without `--forward xdp`"), "{refusal}");
    assert_eq!(network.files(), [] as [&str; 0]);
}

#[test]
fn a_cpu_that_is_not_there_is_refused() {
    let network = Network::new();
    let refusal = failure(&network.weir(&["run", NEAR, "--cpus", "0,8000"]), 1);
    assert!(refusal.contains("CPU 8000 is not online"), "{refusal}");
    network.assert_untouched();
}

#[test]
fn too_few_open_files_are_named() {
    let network = Network::new();
    for limit in [5, 10, 20, 40, 60] {
        // Not even those that whoever runs the tests has left open.
        let script = format!(
            "exec 3>&- 4>&- 5>&- 6>&- 7>&-; ulimit -n {limit} && exec \"$0\" run near --config /dev/null"
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script, WEIR]);
        let refusal = failure(&network.near.run(|| command.output().unwrap()).unwrap(), 1);
        assert!(refusal.contains("LimitNOFILE="), "{limit}: {refusal}");
        assert!(!refusal.contains("CAP_BPF"), "{limit}: {refusal}");
    }
    network.assert_untouched();
}

/// One message says it, and of one more nothing is missing.
#[test]
fn as_many_open_files_as_are_asked_for_are_enough() {
    let network = Network::new();
    network.add_pair();
    for (interfaces, needed) in [(&[NEAR][..], 250), (&[NEAR, NEAR2], 300)] {
        let limited = |limit: u64| {
            let script = format!("ulimit -n {limit} && exec \"$0\" run \"$@\" --quiet --lazy");
            let mut command = Command::new("sh");
            command.args(["-c", &script, WEIR]).args(interfaces).args(["--config", "/dev/null"]);
            network.near.run(|| Owned::start(command.stderr(Stdio::piped()))).unwrap()
        };
        for limit in [64, needed - 1] {
            let mut refused = limited(limit);
            assert_eq!(refused.end().code(), Some(1), "{limit}");
            let said = refused.last_words();
            let (count, lines) = (interfaces.len(), said.lines().count());
            assert!(said.contains(&format!("needs {needed} for {count} interface")), "{said}");
            assert!(lines == 1 && said.contains("LimitNOFILE="), "{said}");
        }
        let mut enough = limited(needed);
        wait_until("all are protected", || network.published().len() == interfaces.len());
        enough.terminate();
        let said = enough.last_words();
        assert!(!said.contains("Too many open files") && !said.contains("EMFILE"), "{said}");
    }
    network.assert_untouched();
}

#[test]
fn too_few_queues_for_xdp_are_named() {
    let network = Network::new();
    sh(
        &network,
        "ip link add few numrxqueues 1 numtxqueues 1 type veth peer name many numrxqueues 2 numtxqueues 2
         ip link set few up; ip link set many up",
    );
    for refused in [
        &["run", "few", "--attach", "native"][..],
        &["capture", "-i", "few", "--attach", "native", "--count"],
    ] {
        let refusal = failure(&network.weir(refused), 1);
        assert!(
            refusal.contains("fewer receive queues than its peer has send queues"),
            "{refusal}"
        );
    }
    assert_eq!(network.files(), [] as [&str; 0]);
}

#[test]
fn missing_capabilities_are_named() {
    let network = Network::new();
    let run = |dropped: &str| {
        let mut command = Command::new("setpriv");
        command.args(["--bounding-set", dropped, "--inh-caps", "-all", WEIR, "run", NEAR]);
        command.args(NO_CONFIG);
        failure(&network.near.run(|| command.output().unwrap()).unwrap(), 1)
    };
    let refusal = run("-net_admin,-sys_nice");
    assert!(refusal.contains("lacks CAP_NET_ADMIN, CAP_SYS_NICE;"), "{refusal}");
    let refusal = run("-sys_admin,-bpf,-perfmon");
    assert!(refusal.contains("lacks CAP_BPF, CAP_PERFMON;"), "{refusal}");
    network.assert_untouched();
}

/// As a container runtime does whose profile does not know CAP_BPF: bpf() alone is answered with EPERM.
const FILTERED: &str = r#"
import ctypes, os, struct, sys
load, jump, answer = 0x20, 0x15, 6
program = [(load, 0, 0, 0), (jump, 0, 1, 321), (answer, 0, 0, 0x50001), (answer, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in program))
prctl = ctypes.CDLL(None, use_errno=True).prctl
assert prctl(38, 1, 0, 0, 0) == 0 and prctl(22, 2, struct.pack("HP", 4, ctypes.addressof(code))) == 0
os.execv(sys.argv[1], sys.argv[1:])
"#;

#[test]
fn a_seccomp_filter_is_named() {
    let network = Network::new();
    let mut command = Command::new("python3");
    command.args(["-c", FILTERED, WEIR, "run", NEAR]).args(NO_CONFIG);
    let refusal = failure(&network.near.run(|| command.output().unwrap()).unwrap(), 1);
    assert!(refusal.contains("seccomp=unconfined"), "{refusal}");
    assert!(!refusal.contains("needs root"), "{refusal}");
    network.assert_untouched();
}

#[test]
fn capabilities_alone_do_not_make_root() {
    let network = Network::new();
    let given = "-all,+net_admin,+bpf,+perfmon,+sys_nice";
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "12345", "--clear-groups", "--inh-caps", given]);
    command.args(["--ambient-caps", given, WEIR, "run", NEAR]).args(NO_CONFIG);
    let refusal = failure(&network.near.run(|| command.output().unwrap()).unwrap(), 1);
    assert!(refusal.contains("runs as user 12345") && refusal.contains("as root"), "{refusal}");
    network.assert_untouched();
}

#[test]
fn without_sys_admin_the_gate_still_works() {
    let network = Network::new();
    // /sys shows the host's interfaces then, not this namespace's: threading is out of reach.
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set", "-sys_admin", "--inh-caps", "-all", WEIR, "run", NEAR]);
    command.args(NO_CONFIG);
    command.args(["--quiet", "--attach", "native"]).stderr(std::process::Stdio::null());
    let mut child = network.near.run(|| Owned::start(&mut command)).unwrap();
    network.wait_until_published();
    assert!(network.interface_status()["not_threaded"].is_string());
    assert!(network.has_xdp());
    child.signal(rustix::process::Signal::INT);
    assert!(child.wait().unwrap().success());
    network.assert_untouched();
}

#[test]
fn wrong_usage_exits_with_2() {
    let network = Network::new();
    for bad in [&["run", NEAR, "--nice", "20"][..], &["nonsense"], &[]] {
        failure(&network.weir(bad), 2);
    }
}

#[test]
fn arguments_that_are_not_utf_8_are_refused_and_a_file_may_have_such_a_name() {
    let odd = OsStr::from_bytes(b"\xff");
    let output = Command::new(WEIR).arg("run").arg(odd).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && said.contains("invalid UTF-8"), "{said}");
    let output = Command::new(WEIR).args(["config", "check"]).arg(odd).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && said.contains("No such file"), "{said}");
}

#[test]
fn without_proc_it_is_said_how_to_have_it() {
    let network = Network::new();
    for arguments in ["status", "status --check", "channels", "run near --ab 1s", "explain x"] {
        let mut command = Command::new("unshare");
        let script = format!("umount -l /proc && exec {WEIR} {arguments}");
        command.args(["--mount", "sh", "-c", &script]);
        let output = network.near.run(|| command.output().unwrap()).unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("`mount -t proc proc /proc`"), "{arguments}: {said}");
    }
}

#[test]
fn without_sys_or_a_run_that_can_be_written_it_is_said_how_to_have_them() {
    let network = Network::new();
    for (prepare, remedy) in [
        ("umount -R -l /sys", "`mount -t sysfs sysfs /sys`"),
        ("mount -t tmpfs -o ro none /run", "`mount -t tmpfs none /run`"),
        (
            "mount --bind /run /run && mkdir -p /run/weir && mount -o remount,bind,ro /run",
            "`mount -t tmpfs none /run`",
        ),
    ] {
        let mut command = Command::new("unshare");
        let script = format!("{prepare} && exec {WEIR} run near --config /dev/null");
        command.args(["--mount", "sh", "-c", &script]);
        let said = failure(&network.near.run(|| command.output().unwrap()).unwrap(), 1);
        assert!(said.contains(remedy), "{prepare}: {said}");
    }
    network.assert_untouched();
}

/// Weir to which the kernel refuses this system call, by its numbers on x86-64 and on arm64, as a service's sandbox may.
fn refused(call: [u32; 2]) -> Command {
    const SCRIPT: &str = "import ctypes, os, struct, sys
nr = int(sys.argv[1 + ['x86_64', 'aarch64'].index(os.uname().machine)])
code = (0x20, 0, 0, 0, 0x15, 0, 1, nr, 6, 0, 0, 0x50001, 6, 0, 0, 0x7fff0000)
code = ctypes.create_string_buffer(struct.pack('HBBI' * 4, *code))
filter = ctypes.create_string_buffer(struct.pack('HQ', 4, ctypes.addressof(code)))
assert ctypes.CDLL(None).prctl(22, 2, filter) == 0
os.execv(sys.argv[3], sys.argv[3:])";
    let mut command = Command::new("python3");
    command.args(["-c", SCRIPT]).args(call.map(|number| number.to_string())).arg(WEIR);
    command
}

/// As `RestrictRealtime=` of a service does it.
#[test]
fn a_kernel_that_refuses_real_time_priority_is_told_of() {
    const SCHED_SETSCHEDULER: [u32; 2] = [144, 119];
    let network = Network::new();
    let daemon = Daemon::start_by(refused(SCHED_SETSCHEDULER), &network, &[]);
    let notes = network.interface_status()["notes"].to_string();
    assert!(notes.contains("cpu.rt_runtime_us") && notes.contains("CAP_SYS_NICE"), "{notes}");
    let messages = daemon.interrupt();
    assert_eq!(messages.matches("cpu.rt_runtime_us").count(), 1, "{messages}");
}

#[test]
fn a_daemon_whose_governor_cannot_start_says_so_and_why() {
    /// What wakes the governor.
    const EVENTFD2: [u32; 2] = [290, 19];
    let network = Network::new();
    let daemon = Daemon::start_by(refused(EVENTFD2), &network, &[]);
    let status = network.interface_status();
    assert!(status["no_governor"].is_string(), "{status}");
    let check = network.check();
    assert!(check.starts_with("degraded: near: no governor: cannot "), "{check}");
    let messages = daemon.interrupt();
    assert!(messages.contains("1 NAPI thread(s), weight left alone"), "{messages}");
    assert!(!messages.contains("governed"), "{messages}");
    network.assert_untouched();
}
