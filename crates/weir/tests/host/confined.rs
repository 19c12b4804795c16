//! weir with the capabilities of its unit alone, and in a container as the DaemonSet describes it.

use std::fs;
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use crate::common::lazy::{LAZY, lazy_socket};
use crate::common::*;
use rustix::process::{Signal, kill_process, test_kill_process};
use serde_json::Value;
use weir_bpf::attach::AttachMode;
use weir_bpf::gate::{Gate, QueueProbe};
use weir_bpf::sys::caps::{self, CapabilitySet};
use weir_bpf::sys::sched;
use weir_bpf::units::Nice;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

fn file_of_the_tree(path: &str) -> String {
    fs::read_to_string(Path::new(ROOT).join(path)).unwrap()
}

/// Capabilities of the unit, such as `NET_ADMIN`.
fn of_the_unit() -> Vec<String> {
    let unit = file_of_the_tree("packaging/weir.service");
    let set = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet=")).unwrap();
    set.split(' ').map(|name| name.strip_prefix("CAP_").unwrap().to_owned()).collect()
}

/// What is between two strings.
fn between<'a>(text: &'a str, begin: &str, end: &str) -> &'a str {
    let rest = text.split_once(begin).unwrap_or_else(|| panic!("no {begin}")).1;
    rest.split_once(end).unwrap_or_else(|| panic!("no {end}")).0
}

/// `setpriv`'s option for these alone.
fn bounding(capabilities: &[String]) -> String {
    let kept = capabilities.iter().map(|name| format!(",+{}", name.to_lowercase()));
    format!("--bounding-set=-all{}", kept.collect::<String>())
}

fn set_of(capabilities: &[String]) -> CapabilitySet {
    let each = capabilities.iter().map(|name| CapabilitySet::from_name(name).unwrap());
    each.fold(CapabilitySet::empty(), CapabilitySet::union)
}

#[test]
fn containers_get_the_units_capabilities_and_the_hosts_namespaces() {
    let manifest = file_of_the_tree("deploy/daemonset.yaml");
    let list = between(&manifest, "capabilities: {drop: [ALL], add: [", "]");
    assert_eq!(list.split(", ").collect::<Vec<_>>(), of_the_unit());
    for line in ["hostNetwork: true", "hostPID: true"] {
        assert!(manifest.lines().any(|each| each.trim() == line), "no {line}");
    }
    assert!(!manifest.contains("privileged"), "{manifest}");
    let dockerfile = file_of_the_tree("deploy/Dockerfile");
    let words: Vec<&str> = dockerfile.split_whitespace().collect();
    let added = words.windows(2).filter(|pair| pair[0] == "--cap-add").map(|pair| pair[1]);
    assert_eq!(added.collect::<Vec<_>>(), of_the_unit());
    let image = concat!("weir:", env!("CARGO_PKG_VERSION"));
    assert!(manifest.contains(&format!("image: {image}\n")), "{manifest}");
    assert_eq!(words.iter().filter(|word| **word == image).count(), 2, "{dockerfile}");
    // Default profiles deny bpf() and writing to /sys, whatever the capabilities.
    for (profile, option) in [("seccompProfile", "seccomp"), ("appArmorProfile", "apparmor")] {
        assert!(manifest.contains(&format!("{profile}: {{type: Unconfined}}")), "no {profile}");
        assert!(words.contains(&format!("{option}=unconfined").as_str()), "no {option}");
    }
}

/// Not what weir's own check says of them, but the kernel: without each, something that protection is made of fails.
#[test]
fn the_kernel_asks_for_each_of_the_units_capabilities() {
    let network = Network::new();
    // What fails first, in the order in which weir needs it.
    let fails = |kept: Vec<String>| {
        let act = || {
            caps::confine(set_of(&kept)).unwrap();
            let Ok(probe) = QueueProbe::load() else { return Some("load") };
            let Ok(mut gate) = Gate::load(&probe, AttachMode::Native) else { return Some("load") };
            if gate.attach(network.ifindex, NEAR, AttachMode::Native).is_err() {
                return Some("attach");
            }
            let own = rustix::thread::gettid();
            sched::set_nice(own, Nice(-5)).err().map(|_| "weigh")
        };
        network.near.run(|| std::thread::scope(|scope| scope.spawn(act).join().unwrap())).unwrap()
    };
    let all = of_the_unit();
    assert_eq!(fails(all.clone()), None);
    for (dropped, what) in
        [("BPF", "load"), ("PERFMON", "load"), ("NET_ADMIN", "attach"), ("SYS_NICE", "weigh")]
    {
        let kept: Vec<String> = all.iter().filter(|name| *name != dropped).cloned().collect();
        assert_eq!(kept.len(), all.len() - 1, "{dropped} is not in the unit");
        let failed = fails(kept);
        println!("without CAP_{dropped}: cannot {failed:?}");
        // Without CAP_NET_ADMIN the kernel does not even load it.
        assert!(failed == Some(what) || (dropped, failed) == ("NET_ADMIN", Some("load")));
    }
    assert_eq!(all.len(), 4, "each of them is dropped in turn");
}

/// A root of its own, as a container has it, with what the manifest mounts; or the host's.
struct Confined<'a> {
    network: &'a Network,
    root: Option<PathBuf>,
}

impl Confined<'_> {
    /// A `weir` command with the unit's capabilities alone, in a mount namespace of its own.
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-ec"]);
        let weigh = format!("setpriv --inh-caps=-all --no-new-privs {}", bounding(&of_the_unit()));
        let script = match &self.root {
            None => format!("mount -t sysfs none /sys; exec {weigh} {WEIR} \"$@\""),
            // `/proc` is the host's, as its processes are; a runtime makes `/proc/sys` read-only.
            Some(root) => format!(
                "cd {}
                 for dir in usr bin lib lib64; do [ ! -e /$dir ] || mount --bind -o ro /$dir $dir; done
                 mount --bind {WEIR} weir
                 mount --rbind /proc proc; mount --bind proc/sys proc/sys
                 mount -o remount,bind,ro proc/sys
                 mount --bind /dev/null dev/null
                 mount -t sysfs none sys; mount --bind /run/weir run/weir
                 exec chroot . {weigh} /weir \"$@\"",
                root.display()
            ),
        };
        command.args([&script, "sh"]).args(arguments);
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.network.near.run(|| self.command(arguments).output().unwrap()).unwrap()
    }

    /// Starts a daemon, and waits until it protects.
    fn start(&self, arguments: &[&str]) -> Owned {
        let start = || Owned::start(self.command(arguments).stderr(Stdio::null()));
        let child = self.network.near.run(start).unwrap();
        let pid = i64::from(child.id());
        wait_until("it protects", || {
            let status = &self.network.status()["interfaces"][0];
            status["pid"] == pid && status["attach"].is_string()
        });
        child
    }
}

/// Neither of them puts anything back.
fn kill_with_its_guardian(network: &Network, mut child: Owned) {
    let guardian = pid(&network.interface_status()["guardian_pid"]);
    child.signal(Signal::STOP);
    kill_process(guardian, Signal::KILL).unwrap();
    // Its parent, which is stopped, would never hear of its end.
    child.kill().unwrap();
    child.wait().unwrap();
    wait_until("the guardian has ended", || test_kill_process(guardian).is_err());
    assert_eq!(network.threaded(), "1");
}

/// A full socket's packets are discarded, and its neighbour's arrive.
fn protects(network: &Network) {
    let status = network.interface_status();
    assert_eq!(status["not_threaded"], serde_json::Value::Null, "{status}");
    assert!(!status["governed"].as_array().unwrap().is_empty(), "{status}");
    let (_full, read) =
        (network.near_socket("198.18.0.1:5000"), network.near_socket("198.18.0.1:5001"));
    let sender: UdpSocket = network.far_socket("198.18.0.2:0");
    wait_until("the gate discards", || {
        for _ in 0..32 {
            sender.send_to(&[0; 1000], "198.18.0.1:5000").unwrap();
        }
        network.count("udp-full") > 0
    });
    sender.send_to(b"packet", "198.18.0.1:5001").unwrap();
    assert_eq!(read.recv(&mut [0; 16]).unwrap(), 6);
}

#[test]
fn with_the_units_capabilities_everything_works() {
    let network = Network::new();
    let text = format!("[interface.{NEAR}]\nprotect = true\nattach = \"native\"\n");
    let text = format!("napi = \"threads\"\n{text}");
    let file = ConfigFile::new("confined", &format!("user_share = \"60%\"\n{text}"));
    let confined = Confined { network: &network, root: None };
    let run = ["run", "--quiet", "--lazy", "--awake", "--config", file.path()];
    let daemon = confined.start(&run);
    protects(&network);
    assert_eq!(confined.run(&["status", "--check"]).status.code(), Some(0));
    assert_eq!(network.interface_status()["user_share"], 0.6);
    file.write(&format!("user_share = \"70%\"\n{text}"));
    assert!(confined.run(&["config", "check", file.path()]).status.success());
    daemon.signal(Signal::HUP);
    wait_until("it has read the file", || network.interface_status()["user_share"] == 0.7);
    let lazy = lazy_socket(&network, LAZY);
    assert_eq!(lazy.ordinary(), None);
    network.far_socket("198.18.0.2:0").send_to(b"packet", LAZY).unwrap();
    assert_eq!(lazy.recv(&mut [0; 16]).unwrap(), 6);
    wait_until("it was put on the ring", || network.count("lazy") > 0);
    drop(lazy);
    kill_with_its_guardian(&network, daemon);
    success(&confined.run(&["reset"]));
    network.assert_untouched();
}

/// The runtime is not there: its namespaces, mounts and capabilities are, by the manifest.
#[test]
fn a_container_of_the_daemonset_protects_and_its_successor_cleans_up() {
    let manifest = file_of_the_tree("deploy/daemonset.yaml");
    let config = between(&manifest, "weir.toml: |\n", "---").replace("eth0", NEAR);
    let arguments: Vec<&str> = between(&manifest, "args: [", "]").split(", ").collect();
    let mounted: Vec<&str> =
        manifest.split("mountPath: ").skip(1).map(|rest| rest.split_once('}').unwrap().0).collect();
    assert_eq!(mounted, ["/etc/weir", "/sys", "/run/weir"]);
    let root = killed::temp_dir();
    let root = root.path();
    for dir in ["usr", "bin", "lib", "lib64", "proc", "sys", "dev", "run/weir", "etc/weir"] {
        fs::create_dir_all(root.join(dir)).unwrap();
    }
    fs::create_dir_all("/run/weir").unwrap();
    for file in ["weir", "dev/null"] {
        fs::write(root.join(file), "").unwrap();
    }
    let config = format!("napi = \"threads\"\n{config}");
    fs::write(root.join("etc/weir/weir.toml"), config).unwrap();
    let network = Network::new();
    // At tc, where the gate goes by itself, a veth is polled by threads with GRO alone.
    network.poll_by_napi();
    let container = Confined { network: &network, root: Some(root.to_owned()) };
    let daemon = container.start(&arguments);
    protects(&network);
    assert_eq!(container.run(&["status", "--check"]).status.code(), Some(0));
    kill_with_its_guardian(&network, daemon);
    let mut daemon = container.start(&arguments);
    protects(&network);
    daemon.terminate();
    network.assert_untouched();
}

/// What the kubelet would start anew: neither a daemon that starts, however long that takes, nor one that cannot write.
#[test]
fn the_daemonsets_probes_find_a_daemon_that_hangs() {
    let manifest = file_of_the_tree("deploy/daemonset.yaml");
    let unit = file_of_the_tree("packaging/weir.service");
    let watchdog: u64 = between(&unit, "WatchdogSec=", "\n").parse().unwrap();
    let network = Network::new();
    let path = format!("{}:{}", Path::new(WEIR).parent().unwrap().display(), env!("PATH"));
    let answers = |prepare: &str| {
        ["readinessProbe", "livenessProbe"].map(|kind| {
            let script = between(between(&manifest, kind, "}\n"), "[sh, -c, '", "']");
            let mut command = Command::new("unshare");
            command.args(["--mount", "sh", "-c", &format!("{prepare}{script}")]);
            command.env("PATH", &path).stdout(Stdio::null());
            network.near.run(|| command.status().unwrap()).unwrap().success()
        })
    };
    let written_before = |suffix: &str, secs: u64| {
        let name = network.files().into_iter().find(|name| name.ends_with(suffix)).unwrap();
        let path = Path::new("/run/weir").join(name);
        // As a daemon of an earlier version writes it, which has no time but the file's.
        let mut written: Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        written.as_object_mut().unwrap().remove("written_at");
        fs::write(&path, written.to_string()).unwrap();
        let file = fs::File::open(&path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(secs)).unwrap();
    };
    assert_eq!(answers(""), [false, true]);
    let daemon = Daemon::spawn(&network, &[]);
    let recorded = || network.files().iter().any(|name| name.ends_with(".state.json"));
    wait_until("it has begun", recorded);
    daemon.signal(Signal::STOP);
    written_before(".state.json", 30);
    assert_eq!(answers(""), [false, true], "{}", network.check());
    written_before(".state.json", 2 * watchdog);
    assert!(answers("")[1], "{}", network.check());
    daemon.signal(Signal::CONT);
    wait_until("it protects", || network.check() == "protected: near\n");

    daemon.signal(Signal::STOP);
    for (secs, expected) in [(watchdog - 20, true), (watchdog + 20, false)] {
        written_before(".status.json", secs);
        assert_eq!(answers(""), [expected; 2], "{secs} s: {}", network.check());
    }
    let cannot_write = "mount --bind /run/weir /run/weir; mount -o remount,bind,ro /run/weir; ";
    assert_eq!(answers(cannot_write), [true; 2]);
    daemon.signal(Signal::CONT);
    wait_until("it reports again", || answers("") == [true; 2]);
    network.assert_left_untouched_by(daemon);
}
