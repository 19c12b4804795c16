//! What `weir status` says of daemons that run, begin, hang or are gone.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use crate::common::*;
use rustix::process::Signal;
use serde_json::Value;

/// In a mount namespace of its own: a leftover state file in a fresh `/run/weir` on the file system
/// that `prepare` mounts at `/run`, its lock file `$lock`, and another file `$twin` with the same
/// inode number on another file system. `weir status` is run while `held` is locked.
fn leftovers_while_locked(prepare: &str, held: &str) -> usize {
    // A fresh tmpfs numbers its files one after the other, so the twin is soon found.
    let script = r#"
        set -e
        mkdir "$dir" && mount -t tmpfs none "$dir" && cd "$dir"
        mkdir elsewhere lower upper work
        mount -t tmpfs none elsewhere
        $prepare
        mkdir /run/weir
        touch /run/weir/4-2.state.json
        lock=/run/weir/4-2.lock; touch $lock
        inode=$(stat -c %i $lock)
        for number in $(seq 100); do
            twin=elsewhere/$number; touch $twin
            [ $(stat -c %i $twin) -lt $inode ] || break
        done
        [ $(stat -c %i $twin) = $inode ]
        eval exec flock "$held" "$weir" status --all-namespaces --json
    "#;
    let dir = std::env::temp_dir().join(format!("weir-test-{}-status", std::process::id()));
    let script = script.replace("$prepare", prepare);
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .envs([("weir", WEIR), ("held", held), ("dir", dir.to_str().unwrap())])
        .output()
        .unwrap();
    std::fs::remove_dir(&dir).unwrap();
    let status: Value = serde_json::from_str(&success(&output)).unwrap();
    status["leftovers"].as_array().unwrap().len()
}

#[test]
fn a_lock_is_told_from_one_on_another_file_system() {
    for prepare in [
        "mount -t tmpfs none /run",
        // Where stat(2) may tell another device than /proc/locks.
        "mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work none /run",
    ] {
        assert_eq!(leftovers_while_locked(prepare, "$lock"), 0, "{prepare}");
        assert_eq!(leftovers_while_locked(prepare, "$twin"), 1, "{prepare}");
    }
}

#[test]
fn to_others_than_root_it_says_who_may_see_it() {
    let (network, daemon) = protected_ipv4(&[]);
    let run = |arguments: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups", WEIR, "status"]);
        network.near.run(|| command.args(arguments).output().unwrap()).unwrap()
    };
    let refused = failure(&run(&[]), 1);
    assert!(refused.contains("status.json is root's alone; run it as root"), "{refused}");
    // It is not said of what it cannot tell that it is not protected.
    let unknown = run(&["--check"]);
    let said = String::from_utf8_lossy(&unknown.stdout);
    assert_eq!((unknown.status.code(), said.lines().count()), (Some(4), 1), "{unknown:?}");
    assert!(said.starts_with("unknown: ") && said.contains("run it as root"), "{said}");
    daemon.interrupt();
}

/// As a container without the host's has it.
#[test]
fn a_daemon_in_a_pid_namespace_of_its_own_is_known_by_its_number_here() {
    let network = Network::new();
    let file = ConfigFile::new("pidns", "");
    let mut command = Command::new("unshare");
    // Its mount of /proc hides the threads of NAPI, which are the host's.
    let run = [
        "--pid", "--fork", "--kill-child", "--mount-proc", WEIR, "run", NEAR, "--quiet", "--config",
    ];
    command.args(run).arg(file.path()).stderr(std::process::Stdio::null());
    let _unshare = network.near.run(|| Owned::start(&mut command)).unwrap();
    network.wait_until_published();
    let status = network.status()["interfaces"][0].clone();
    assert_eq!(status["running"], true, "{status}");
    let daemon = pid(&status["pid"]);
    let comm = std::fs::read_to_string(format!("/proc/{}/comm", daemon.as_raw_nonzero()));
    assert_eq!(comm.unwrap(), "weir\n");
    let stop = format!("`kill {}`", daemon.as_raw_nonzero());
    for command in ["reset", "run"] {
        let refusal = failure(&network.weir(&[command, NEAR]), 1);
        assert!(refusal.contains(&stop), "{refusal}");
    }
    rustix::process::kill_process(daemon, rustix::process::Signal::TERM).unwrap();
    wait_until("everything is put back", || network.is_untouched());
}

#[test]
fn a_port_is_not_degraded_once_its_master_is_protected() {
    let (network, daemon) = protected(&[]);
    sh(
        &network,
        "ip link add bridge type bridge; ip link set near master bridge up; ip link set bridge up",
    );
    wait_until("its packets go to the bridge", || {
        network.check().contains("degraded: near: the interface's packets go to its master")
    });
    assert!(network.says(&["status"]).contains("protect the master instead"));
    let run = || {
        let mut command = Command::new(WEIR);
        command.args(["run", "bridge", "--quiet"]).args(NO_CONFIG);
        Owned::start(command.stderr(Stdio::null()))
    };
    let mut master = network.near.run(run).unwrap();
    wait_until("both are protected", || network.check() == "protected: near, bridge\n");
    let text = network.says(&["status"]);
    assert!(text.contains("costs nothing, as its master is protected"), "{text}");
    assert!(!text.contains("protect the master instead"), "{text}");
    master.terminate();
    daemon.interrupt();
}

#[test]
fn a_daemon_that_reports_nothing_is_said_to() {
    let (network, daemon) = protected(&[]);
    let text = || network.says(&["status"]);
    assert!(!text().contains("reported nothing"), "{}", text());
    let silent = || network.status()["interfaces"][0]["silent_secs"].clone();
    assert_eq!(silent(), Value::Null);
    daemon.signal(Signal::STOP);
    wait_until("the status says so", || text().contains("has reported nothing for "));
    assert!(silent().as_u64() >= Some(5), "{}", silent());
    let passes = "its gate passes everything";
    let text_then = text();
    assert!(text_then.contains(passes), "{text_then}");
    // Nor is what it did when it was last heard of told as if it still did.
    for old in ["late drops", "governor:", "the gate is"] {
        assert!(!text_then.contains(old), "{old}: {text_then}");
    }
    assert!(text_then.contains("\nnear  not protected now\n"), "{text_then}");
    assert!(network.check().contains(passes), "{}", network.check());
    for command in [&["top", "--count", "1", "--interval", "1ms"][..], &["channels"]] {
        let said = network.says(command);
        assert!(said.starts_with("near: its daemon has reported nothing for "), "{said}");
        assert!(said.contains(passes) && !said.contains("policy"), "{said}");
    }
    let metrics = network.says(&["status", "--openmetrics"]);
    assert_has_lines(&metrics, ["weir_discarding{interface=\"near\"} 0.0"]);
    daemon.signal(Signal::CONT);
    wait_until("it reports again", || !text().contains("reported nothing"));
    network.assert_left_untouched_by(daemon);
}

fn set_written(network: &Network, suffix: &str, at: SystemTime) {
    let name = network.files().into_iter().find(|name| name.ends_with(suffix)).unwrap();
    let file = File::open(Path::new("/run/weir").join(name)).unwrap();
    file.set_modified(at).unwrap();
}

/// As it looks when somebody has set the clock back or forward since; the daemon's own is another, too.
#[test]
fn whoever_sets_the_clock_a_daemon_is_silent_for_as_long_as_it_is() {
    let network = Network::new();
    let daemon = Daemon::start_by(a_day_ahead(), &network, &[]);
    assert_eq!(network.check(), "protected: near\n");
    daemon.signal(Signal::STOP);
    let (hour, now) = (Duration::from_secs(3600), SystemTime::now());
    for written in [now + hour, now - hour] {
        set_written(&network, ".status.json", written);
        wait_until("it is seen", || network.check().starts_with("degraded: near: its daemon has"));
        let silent = network.status()["interfaces"][0]["silent_secs"].as_u64().unwrap();
        assert!(silent < hour.as_secs(), "{silent}");
    }
    daemon.signal(Signal::CONT);
    wait_until("it reports again", || network.check() == "protected: near\n");
    network.assert_left_untouched_by(daemon);
}

#[test]
fn a_daemon_that_has_not_reported_yet_is_said_to_start() {
    let network = Network::new();
    let mut command = Command::new(WEIR);
    command.args(["run", NEAR, "--quiet"]).args(NO_CONFIG).stderr(Stdio::null());
    let mut daemon = network.near.run(|| Owned::start(&mut command)).unwrap();
    let recorded = || network.files().iter().any(|name| name.ends_with(".state.json"));
    wait_until("it has begun", recorded);
    daemon.signal(Signal::STOP);
    assert_eq!(network.status()["interfaces"][0]["running"], true, "at once");
    // The clock has been set back since.
    set_written(&network, ".state.json", SystemTime::now() + Duration::from_secs(3600));
    let refusal = failure(&network.weir(&["channels"]), 1);
    assert!(refusal.contains("has not written its status yet"), "{refusal}");
    let said = || String::from_utf8(network.weir(&["status", "--check"]).stdout).unwrap();
    wait_until("it is seen", || !said().starts_with("weir does not run"));
    assert_eq!(said(), "starting: near: its daemon does not protect it yet\n");
    let text = network.says(&["status"]);
    assert!(text.contains("\nnear  starting\n") && !text.contains("degraded"), "{text}");
    assert_eq!(network.status()["interfaces"][0]["silent_secs"], Value::Null);
    daemon.signal(Signal::CONT);
    wait_until("it protects", || said() == "protected: near\n");
    daemon.signal(Signal::TERM);
    assert!(daemon.end().success());
    network.assert_untouched();
}

#[test]
fn a_daemon_that_has_no_room_for_its_status_runs_and_reports_nothing() {
    // A page each for the lock and the record; an inode each, and the directory's.
    for size in ["8k", "1m,nr_inodes=3"] {
        let network = Network::new();
        let (daemon, _) = Daemon::start_apart(&network, size, &[]);
        let pid = daemon.pid().as_raw_nonzero().to_string();
        let weir = |arguments: &[&str]| {
            let mut command = Command::new("nsenter");
            command.args(["--mount", "--target", &pid, WEIR]).args(arguments);
            network.near.run(|| command.output().unwrap()).unwrap()
        };
        wait_until("it is seen", || weir(&["status", "--check"]).status.code() == Some(1));
        let said = String::from_utf8(weir(&["status"]).stdout).unwrap();
        assert!(said.contains("degraded: near: its daemon has reported nothing"), "{said}");
        // It is told all that it has to be.
        assert!(
            !said.contains("passes everything") && said.contains("`df -i /run/weir`"),
            "{said}"
        );
        let refusal = failure(&weir(&["channels"]), 1);
        assert!(
            refusal.contains("the daemon that protects near has not written its status"),
            "{refusal}"
        );
        assert!(refusal.contains("`df -i /run/weir`"), "{refusal}");
        daemon.interrupt();
        network.assert_untouched();
    }
}
