//! The configuration: of the real daemon, and as `weir config` shows it.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::common::*;
use rustix::process::{Pid, Signal};
use serde_json::Value;

fn config(arguments: &[&str]) -> Output {
    Command::new(WEIR).arg("config").args(arguments).output().unwrap()
}

fn shares_and_preference(network: &Network) -> (f64, String) {
    let status = network.interface_status();
    (status["user_share"].as_f64().unwrap(), status["prefer"].as_str().unwrap().into())
}

#[test]
fn a_good_file_is_taken_over_and_a_bad_one_is_not() {
    let network = Network::new();
    let file = ConfigFile::new("reload", "user_share = \"60%\"\n");
    let daemon = Daemon::start(&network, &["--config", file.path()]);
    assert_eq!(shares_and_preference(&network), (0.6, "separation".into()));

    daemon.reload(
        &file,
        "[interface.near]\nuser_share = \"70%\"\nprefer = \"throughput\"\ncpus = \"0\"\n",
    );
    let wanted = (0.7, "throughput".into());
    wait_until("the file is taken over", || shares_and_preference(&network) == wanted);

    // What is right in a file with a mistake does not count either.
    daemon.reload(&file, "user_share = \"80%\"\nprefer = 1\nperiod = \"1h\"\n");
    daemon.said("every setting stays as it was");
    std::fs::remove_file(file.path()).unwrap();
    daemon.signal(Signal::HUP);
    daemon.said("is gone");
    network.wait_until_published_again();
    assert_eq!(shares_and_preference(&network), wanted);

    let messages = daemon.interrupt();
    let path = file.path();
    for said in [
        format!("weir: read {path} again\n"),
        format!("near: user_share 60% -> 70% ({path}:2, for this interface)\n"),
        format!("near: prefer separation -> throughput ({path}:3, for this interface)\n"),
        format!("near: cpus stays left alone: 0 ({path}:4, for this interface) takes effect when"),
        format!("{path}:2: prefer = 1: write \"separation\" or \"throughput\"\n"),
        format!("{path}:3: period = \"1h\": write a time from 1ms to 1s, with its unit"),
        format!("the configuration {path} is gone; put it back, or restart weir"),
    ] {
        assert!(messages.contains(&said), "{said}: {messages}");
    }
    network.assert_untouched();
}

/// Also if the daemon hears of the new name only with the SIGHUP.
#[test]
fn a_file_that_is_read_again_holds_by_the_present_name() {
    let network = Network::new();
    let file = ConfigFile::new("renamed", "");
    let daemon = Daemon::start(&network, &["--config", file.path()]);
    daemon.signal(Signal::STOP);
    sh(&network, "ip link set near down; ip link set near name renamed; ip link set renamed up");
    daemon.reload(&file, "[interface.renamed]\nuser_share = \"70%\"\n");
    daemon.signal(Signal::CONT);
    daemon.said(" again\n");
    network.wait_until_published_again();
    assert_eq!(network.interface_status()["interface"], "renamed");
    assert_eq!(shares_and_preference(&network).0, 0.7);
    assert!(daemon.interrupt().contains("renamed: user_share 50% -> 70%"));
    assert!(network.files().is_empty());
}

/// As on a host with several: threads would let bursts overflow the ring.
#[test]
fn on_one_cpu_softirqs_poll_at_rest_too() {
    let network = Network::ipv4_only();
    let (file, online) = (ConfigFile::new("napi", ""), ConfigFile::new("online", "0\n"));
    let daemon = Daemon::start_told(&online, &network, &["--config", file.path()]);
    assert_eq!(network.threaded(), "0");
    let why = network.interface_status()["not_threaded"].to_string();
    assert!(why.contains("until something is wrong"), "{why}");
    network.assert_left_untouched_by(daemon);
}

#[test]
fn the_command_line_overrides_the_file() {
    let network = Network::new();
    let text = "user_share = \"60%\"\nnice = 5\nattach = \"native\"\n[interface.near]\nnice = 7\n";
    let file = ConfigFile::new("override", text);
    let options = ["--config", file.path(), "--user-share", "75%", "--attach", "generic"];
    let daemon = Daemon::start(&network, &options);
    let status = network.interface_status();
    assert_eq!((&status["nice"], &status["attach"]), (&7.into(), &"generic".into()));
    assert_eq!(shares_and_preference(&network).0, 0.75);
    // As long as it was given on the command line, the file changes nothing.
    daemon.reload(
        &file,
        "user_share = \"50%\"\nprefer = \"throughput\"\nattach = \"native\"\nnice = 7\n",
    );
    let wanted = (0.75, "throughput".into());
    wait_until("the file is taken over", || shares_and_preference(&network) == wanted);
    let messages = daemon.interrupt();
    assert!(!messages.contains("attach stays") && !messages.contains("user_share"), "{messages}");
    network.assert_untouched();
}

#[test]
fn a_bad_file_protects_nothing() {
    let network = Network::new();
    let file = ConfigFile::new("start", "# weir\nuser_share = \"100%\"\n");
    let refusal = failure(&network.weir(&["run", NEAR, "--config", file.path()]), 1);
    let said = format!("weir: {}:2: user_share = \"100%\": write a percentage from", file.path());
    assert!(refusal.starts_with(&said), "{refusal}");
    file.write("\ncpus = \"0,8000\"\n");
    let refusal = failure(&network.weir(&["run", NEAR, "--config", file.path()]), 1);
    let said = format!("CPU 8000 is not online ({}:2); choose from", file.path());
    assert!(refusal.contains(&said), "{refusal}");
    network.assert_untouched();
}

/// A daemon that is started by this command in a terminal, and that terminal. script(1) makes one, and closes it when it
/// is killed.
fn start_in_terminal(network: &Network, starter: &str) -> (Owned, Pid) {
    let run = format!("{starter} {WEIR} run {NEAR} --config /dev/null --quiet");
    let mut command = Command::new("script");
    command.args(["--quiet", "--return", "--command", &run, "/dev/null"]);
    command.stdin(Stdio::null()).stdout(File::create("/dev/null").unwrap());
    let terminal = network.near.run(|| Owned::start(&mut command)).unwrap();
    network.wait_until_published();
    let daemon = pid(&network.interface_status()["pid"]);
    // With its terminal, it reads its configuration again.
    let started = network.interface_status()["since"].clone();
    hang_up(network, daemon);
    assert_eq!(network.interface_status()["since"], started);
    (terminal, daemon)
}

/// Sends a SIGHUP, and waits until it has been obeyed.
fn hang_up(network: &Network, daemon: Pid) {
    rustix::process::kill_process(daemon, Signal::HUP).unwrap();
    network.wait_until_published_again();
}

#[test]
fn a_terminal_that_is_closed_stops_the_daemon() {
    let network = Network::new();
    // Whoever runs the tests may have started them by nohup(1).
    drop(start_in_terminal(&network, "exec env --default-signal=HUP"));
    wait_until("everything is put back", || network.is_untouched());
}

#[test]
fn a_daemon_that_is_started_by_nohup_outlives_its_terminal() {
    let network = Network::new();
    let (terminal, daemon) = start_in_terminal(&network, "exec >/dev/null 2>&1 nohup");
    drop(terminal);
    hang_up(&network, daemon);
    assert_eq!(pid(&network.interface_status()["pid"]), daemon);
    rustix::process::kill_process(daemon, Signal::TERM).unwrap();
    wait_until("everything is put back", || network.is_untouched());
}

#[test]
fn check_says_everything_that_is_wrong() {
    let file = ConfigFile::new("check", "user_share = \"50%\"\n[interface.eth0]\nnice = 0\n");
    let good = config(&["check", file.path()]);
    assert_eq!(success(&good), format!("{}: valid\n", file.path()));
    file.write("user_shar = \"50%\"\n\n[interface.eth0]\ntimeout = \"1s\"\n");
    let wrong = failure(&config(&["check", file.path()]), 1);
    let lines: Vec<&str> = wrong.lines().collect();
    assert_eq!(lines.len(), 2, "{wrong}");
    let first = format!("weir: {}:1: there is no setting \"user_shar\"; the settings", file.path());
    assert!(lines[0].starts_with(&first), "{wrong}");
    let second =
        format!("weir: {}:4: timeout = \"1s\": write a time from 100us to 100ms", file.path());
    assert!(lines[1].starts_with(&second), "{wrong}");
    for (contradicts, whose) in [
        ("forward = \"xdp\"\nattach = \"tc\"\n", "interfaces without a section"),
        ("attach = \"tc\"\n[interface.eth0]\nforward = \"xdp\"\n", "eth0"),
    ] {
        file.write(contradicts);
        let wrong = failure(&config(&["check", file.path()]), 1);
        assert!(wrong.contains(&format!("the gate of {whose} is to be elsewhere")), "{wrong}");
    }
    let missing = failure(&config(&["check", "/nonexistent"]), 1);
    assert!(missing.contains("cannot read /nonexistent: No such file"), "{missing}");
    assert!(!missing.contains("--config"), "{missing}");
    failure(&config(&["check", "--nonsense"]), 2);
}

#[test]
fn a_pipe_is_read_as_a_file_and_not_waited_for_if_nobody_writes() {
    let dir = tempfile::tempdir().unwrap();
    let checked = |script: &str| {
        let mut command = Command::new("timeout");
        command.args(["30", "bash", "-c", script]).env("weir", WEIR).current_dir(dir.path());
        command.output().unwrap()
    };
    let refusal = failure(&checked("mkfifo fifo && exec $weir config check fifo"), 1);
    assert!(
        refusal.contains("cannot read fifo: it is a pipe that nobody writes into"),
        "{refusal}"
    );
    // Whoever has opened it may take his time.
    for script in [
        "(sleep 0.5; echo 'nice = 0' >fifo) & exec $weir config check fifo",
        "(sleep 3; echo 'nice = 0') >fifo & exec $weir config check fifo",
        "(sleep 3; echo 'nice = 0') | $weir config check /dev/stdin",
        "exec $weir config check <(echo 'nice = 0')",
        "exec $weir config check <(:)",
    ] {
        let valid = success(&checked(script));
        assert!(valid.ends_with(": valid\n"), "{script}: {valid}");
    }
}

#[test]
fn show_names_the_source_of_every_setting() {
    let text = "user_share = \"60%\"\nperiod = \"20ms\"\n[interface.eth0]\nuser_share = \"70%\"\n";
    let file = ConfigFile::new("show", text);
    let options = ["show", "--config", file.path(), "--timeout", "2ms", "--nice", "-3"];
    let shown = success(&config(&[&options[..], &["--json"]].concat()));
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!((&shown["schema"], &shown["file"]), (&1.into(), &file.path().into()));
    let [any, eth0] = &shown["interfaces"].as_array().unwrap()[..] else { panic!("{shown}") };
    assert_eq!((&any["interface"], &eth0["interface"]), (&Value::Null, &"eth0".into()));
    let is = |interface: &Value, key: &str, value: Value, source: &str, line: Value| {
        let expected = serde_json::json!({ "value": value, "source": source, "line": line });
        assert_eq!(interface["settings"][key], expected, "{key}");
    };
    is(any, "user_share", "60%".into(), "file", 1.into());
    is(eth0, "user_share", "70%".into(), "interface", 4.into());
    is(eth0, "period", "20ms".into(), "file", 2.into());
    is(eth0, "timeout", "2ms".into(), "flag", Value::Null);
    is(eth0, "nice", (-3).into(), "flag", Value::Null);
    is(eth0, "prefer", "separation".into(), "default", Value::Null);
    is(eth0, "selective", false.into(), "default", Value::Null);
    is(eth0, "protect", false.into(), "default", Value::Null);
    is(eth0, "cpus", Value::Null, "default", Value::Null);

    let named = config(&[&options[..], &["eth0", "nowhere0"]].concat());
    let hint = String::from_utf8_lossy(&named.stderr);
    assert!(hint.contains("no interface named \"nowhere0\""), "{hint}");
    let table = success(&named);
    let path = file.path();
    let lines: [String; 11] = [
        format!("file: {path}"),
        "eth0".into(),
        format!("  user_share  70%         {path}:4, for this interface"),
        format!("  period      20ms        {path}:2"),
        "  timeout     2ms         command line".into(),
        "  prefer      separation  default".into(),
        "  selective   false       default".into(),
        "  syn_cookies true        default".into(),
        "  napi        as needed   default".into(),
        "  cpus        left alone  default".into(),
        "  protect     true        command line".into(),
    ];
    assert_has_lines(&table, lines);
}

#[test]
fn show_names_the_source_of_what_holds_of_shares() {
    let text = "[shares]\ncontrol = \"7%\"\nprotected = [5000, 5001]\n\
        [[shares.weight]]\nport = 53\nweight = 4\n[[shares.weight]]\nkind = \"icmp\"\nweight = 0.1\n";
    let file = ConfigFile::new("show-shares", text);
    success(&config(&["check", file.path()]));
    let shown = success(&config(&["show", "--config", file.path(), "--json"]));
    let shares = serde_json::from_str::<Value>(&shown).unwrap()["shares"].clone();
    let line = |line: usize| ("file", Value::from(line));
    for (key, value, (source, line)) in [
        ("enforce", Value::from(true), ("default", Value::Null)),
        ("control", "7%".into(), line(2)),
        ("protected", vec![5000, 5001].into(), line(3)),
    ] {
        let expected = serde_json::json!({ "value": value, "source": source, "line": line });
        assert_eq!(shares["settings"][key], expected, "{key}");
    }
    let weights = serde_json::json!([
        { "by": "port", "of": "53", "value": 4.0, "source": "file", "line": 4 },
        { "by": "kind", "of": "icmp", "value": 0.1, "source": "file", "line": 7 },
    ]);
    assert_eq!(shares["weights"], weights);
    let table = success(&config(&["show", "eth0", "--config", file.path()]));
    let path = file.path();
    let lines: [String; 6] = [
        "shares, on every interface".into(),
        "  enforce     true              default".into(),
        format!("  control     7%                {path}:2"),
        format!("  protected   [5000,5001]       {path}:3"),
        format!("  weight      4 of port 53      {path}:4"),
        format!("  weight      0.1 of kind icmp  {path}:7"),
    ];
    assert_has_lines(&table, lines);
    let nothing = success(&config(&["show", "--config", "/dev/null"]));
    assert!(nothing.contains("\n  protected   usual       default\n"), "{nothing}");
}

/// In a mount namespace of its own, where `/etc` has nothing but what `prepare` puts there.
fn with_etc(prepare: &str) -> Output {
    let script =
        format!("mount -t tmpfs none /etc && mkdir /etc/weir && {prepare} exec $weir config show");
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", &script]).env("weir", Path::new(WEIR));
    command.output().unwrap()
}

#[test]
fn the_usual_file_is_read_if_it_exists() {
    let without = success(&with_etc(""));
    assert!(without.starts_with("file: none (/etc/weir/weir.toml does not exist)\n"), "{without}");
    let with = success(&with_etc("echo 'user_share = \"61%\"' >/etc/weir/weir.toml;"));
    assert!(with.contains("user_share  61%         /etc/weir/weir.toml:1\n"), "{with}");
    let bad = failure(&with_etc("echo nonsense >/etc/weir/weir.toml;"), 1);
    assert!(bad.starts_with("weir: /etc/weir/weir.toml:1: "), "{bad}");
    // What is there and cannot be read is not passed over.
    let directory = failure(&with_etc("mkdir /etc/weir/weir.toml;"), 1);
    assert!(directory.contains("cannot read the configuration /etc/weir/weir.toml"), "{directory}");
}
