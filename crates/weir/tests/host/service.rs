//! weir as a service: everything from the file, systemd's protocol, the privileges of the unit, the package.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::*;
use rustix::process::Signal;
use serde_json::Value;

const PACKAGING: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging");

fn protect(name: &str) -> ConfigFile {
    let text =
        format!("[interface.{NEAR}]\nprotect = true\nattach = \"native\"\nnapi = \"threads\"\n");
    ConfigFile::new(name, &text)
}

/// A weir that gets everything from the file.
fn service(network: &Network, file: &ConfigFile) -> Owned {
    let mut command = Command::new(WEIR);
    command.args(["run", "--quiet", "--config", file.path()]).stderr(Stdio::piped());
    network.near.run(|| Owned::start(&mut command)).unwrap()
}

/// Ends it; what it has said.
fn ends_well(mut service: Owned) -> String {
    service.terminate();
    service.last_words()
}

#[test]
fn systemd_is_told_what_it_waits_for() {
    let network = Network::new();
    let (file, scratch) = (protect("notify"), killed::temp_dir());
    let path = scratch.path().join("socket");
    let systemd = UnixDatagram::bind(&path).unwrap();
    systemd.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut command = Command::new(WEIR);
    command.args(["run", "--quiet", "--config", file.path()]).env("NOTIFY_SOCKET", &path);
    let mut child = network.near.run(|| Owned::start(command.stderr(Stdio::null()))).unwrap();
    let hears = |word: &str| {
        let mut bytes = [0; 4096];
        loop {
            let length = systemd.recv(&mut bytes).unwrap();
            if String::from_utf8_lossy(&bytes[..length]).lines().any(|line| line == word) {
                return;
            }
        }
    };
    hears("READY=1");
    assert!(network.has_xdp());
    hears("WATCHDOG=1");
    hears("WATCHDOG=1");
    child.terminate();
    hears("STOPPING=1");
    network.assert_untouched();
}

/// It is the service itself that protects the interface again.
#[test]
fn a_service_that_ends_with_a_lost_interface_does_not_advise_to_run_weir() {
    let network = Network::new();
    network.add_pair();
    let both = [NEAR, NEAR2].map(|name| format!("[interface.{name}]\nprotect = true\n")).concat();
    let (file, scratch) = (ConfigFile::new("lost", &both), killed::temp_dir());
    let mut command = Command::new(WEIR);
    command.args(["run", "--quiet", "--config", file.path()]);
    // Nobody listens there.
    command.env("NOTIFY_SOCKET", scratch.path().join("socket")).stderr(Stdio::piped());
    let mut child = network.near.run(|| Owned::start(&mut command)).unwrap();
    network.wait_until_both_are_protected();
    network.links(|links, _| links.delete(links.index(NEAR2).unwrap()).unwrap());
    wait_until("it is lost", || network.check().contains("near2 is no longer protected"));
    child.signal(Signal::TERM);
    assert_eq!(child.end().code(), Some(1));
    let messages = child.last_words();
    assert!(messages.contains("no longer protected: near2; `ip link` lists"), "{messages}");
    network.assert_untouched();
}

#[test]
fn the_file_names_the_interfaces_or_the_error_says_how() {
    let network = Network::new();
    let refusal = failure(&network.weir(&["run"]), 1);
    assert!(
        refusal.contains("no interface is named") && refusal.contains("protect = true"),
        "{refusal}"
    );
    network.add_pair();
    let both = format!(
        "[interface.{NEAR}]\nprotect = true\n[interface.{NEAR2}]\nprotect = true\npolicy = \"off\"\n"
    );
    let file = ConfigFile::new("both", &both);
    let child = service(&network, &file);
    wait_until("both are protected", || network.published().len() == 2);
    let policy = |at: usize| network.published()[at]["policy"].clone();
    assert_eq!([policy(0), policy(1)], ["on", "off"]);
    ends_well(child);
    network.assert_untouched();
}

#[test]
fn an_interface_that_is_not_there_yet_does_not_keep_the_others_from_protection() {
    let network = Network::new();
    let both = format!(
        "[interface.{NEAR2}]\nprotect = true\nuser_share = \"70%\"\n[interface.{NEAR}]\nprotect = true\n"
    );
    let file = ConfigFile::new("not-yet", &both);
    // Named by somebody who waits for an answer, it is refused.
    let refusal = failure(&network.weir(&["run", NEAR, NEAR2, "--config", file.path()]), 1);
    assert!(refusal.contains("no interface") && refusal.contains(NEAR2), "{refusal}");

    let child = service(&network, &file);
    let check = || {
        let output = network.weir(&["status", "--check"]);
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    };
    wait_until("one is protected", || {
        let (code, said) = check();
        code == Some(1) && !said.starts_with("starting")
    });
    assert!(check().1.starts_with("degraded: near2 is not yet protected: "), "{:?}", check());
    let status = network.status();
    let attach = [0, 1]
        .map(|at| (&status["interfaces"][at]["interface"], &status["interfaces"][at]["attach"]));
    assert_eq!(attach, [(&NEAR.into(), &"tcx".into()), (&NEAR2.into(), &Value::Null)]);
    // `kill 0` would be for whoever asks.
    assert_eq!(status["interfaces"][1]["guardian_pid"], Value::Null);
    let metrics = network.says(&["status", "--openmetrics"]);
    let lines =
        ["weir_protected{interface=\"near\"} 1.0", "weir_protected{interface=\"near2\"} 0.0"];
    assert_has_lines(&metrics, lines);
    network.says(&["status"]);

    network.add_pair();
    network.wait_until_both_are_protected();
    let status = network.status();
    let shares = [0, 1].map(|at| status["interfaces"][at]["user_share"].as_f64().unwrap());
    assert!(shares.contains(&0.7), "{shares:?}");
    let messages = ends_well(child);
    assert!(messages.contains("near2 is not protected yet: "), "{messages}");
    network.assert_untouched();
}

#[test]
fn what_a_reload_means_to_an_interface_that_is_not_there_yet_is_told() {
    let network = Network::new();
    let near = format!("[interface.{NEAR}]\nprotect = true\n");
    let file = ConfigFile::new("less", &format!("{near}[interface.{NEAR2}]\nprotect = true\n"));
    let child = service(&network, &file);
    wait_until("one is protected", || network.says(&["status"]).contains("near  protected"));
    file.write(&format!("user_share = \"70%\"\n{near}"));
    child.signal(Signal::HUP);
    let share = || network.published()[0]["user_share"].as_f64();
    wait_until("the file is read again", || share() == Some(0.7));
    let messages = ends_well(child);
    for said in ["user_share 50% -> 70% (", "protect stays true: false (default) takes effect when"]
    {
        assert!(messages.contains(&format!("weir: near2: {said}")), "no {said} in {messages}");
    }
}

/// The one that is missing is the only one by which packets could leave.
#[test]
fn a_fast_path_without_its_egress_does_not_keep_the_rest_from_protection() {
    let network = Network::new();
    let section = |name| format!("[interface.{name}]\nprotect = true\nforward = \"xdp\"\n");
    let file = ConfigFile::new("no-egress", &(section(NEAR) + &section(NEAR2)));
    let child = service(&network, &file);
    wait_until("one is protected", || network.says(&["status"]).contains("near  protected"));
    let messages = ends_well(child);
    for said in ["near2 is not protected yet: ", "no other interface to send by"] {
        assert!(messages.contains(said), "{messages}");
    }
    network.assert_untouched();
}

/// At a boot, rules may be there first.
#[test]
fn what_bars_the_fast_path_keeps_nothing_from_protection() {
    let network = Network::new();
    network.add_pair();
    let section = |name| format!("[interface.{name}]\nprotect = true\nforward = \"xdp\"\n");
    let file = ConfigFile::new("barred", &(section(NEAR) + &section(NEAR2)));
    let rule = "nft 'table ip t { chain c { type filter hook forward priority 0; counter; }; }'";
    for (set, unset, bar) in [
        (rule, "nft delete table ip t", "chain c has rules"),
        ("tc qdisc add dev near root pfifo", "tc qdisc del dev near root", "discipline pfifo"),
    ] {
        sh(&network, set);
        let child = service(&network, &file);
        for name in [NEAR, NEAR2] {
            let protected = format!("{name}  protected");
            wait_until(&protected, || network.says(&["status"]).contains(&protected));
        }
        let messages = ends_well(child);
        assert!(messages.contains(bar), "{messages}");
        sh(&network, unset);
    }
    network.assert_untouched();
}

/// A shell's usual one is 1,024, which lasts for some 18 interfaces.
#[test]
fn the_soft_limit_on_open_files_is_raised() {
    let network = Network::new();
    let mut command = Command::new("sh");
    let script = "ulimit -Sn 100 && exec \"$0\" \"$@\"";
    command
        .args(["-c", script, WEIR, "run", NEAR, "--quiet", "--attach", "native"])
        .args(NO_CONFIG);
    let mut child = network.near.run(|| Owned::start(command.stderr(Stdio::null()))).unwrap();
    network.wait_until_published();
    child.terminate();
    network.assert_untouched();
}

#[test]
fn monitoring_gets_an_exit_code() {
    let network = Network::new();
    let check = |code: i32, text: &str| {
        let output = network.weir(&["status", "--check"]);
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!((output.status.code(), said.lines().count()), (Some(code), 1), "{output:?}");
        assert!(said.contains(text), "{said}");
    };
    let down = "weir does not run (if weir is a service, `systemctl status weir` says why)";
    check(3, down);
    let told = network.says(&["status"]);
    assert!(told.contains("protects one; if weir is a service, `systemctl status weir`"), "{told}");
    let daemon = Daemon::start(&network, &[]);
    check(0, &format!("protected: {NEAR}"));
    daemon.interrupt();
    let daemon = Daemon::start(&network, &["--policy", "off"]);
    check(1, "degraded: near: its policy discards nothing");
    daemon.interrupt();
    check(3, down);
}

#[test]
fn metrics_are_those_of_the_status() {
    let network = Network::new();
    let metrics = || network.says(&["status", "--openmetrics"]);
    assert!(metrics().ends_with("# EOF\n"));
    let daemon = Daemon::start(&network, &[]);
    let socket = network.near_socket("198.18.0.1:5000");
    network.far_socket("198.18.0.2:0").send_to(b"x", "198.18.0.1:5000").unwrap();
    socket.recv(&mut [0; 8]).unwrap();
    wait_until("it is published", || network.published_count("udp-room") == 1);
    let text = metrics();
    let lines = [
        "# TYPE weir_packets counter",
        "weir_packets_total{interface=\"near\",verdict=\"pass\",reason=\"udp-room\"} 1",
        "weir_packets_total{interface=\"near\",verdict=\"discard\",reason=\"udp-full\"} 0",
        "weir_protected{interface=\"near\"} 1.0",
        "weir_discarding{interface=\"near\"} 1.0",
        "weir_udp_late_drops_total{interface=\"near\"} 0",
    ];
    assert_has_lines(&text, lines);
    // Each sample once, or the whole file is refused.
    let samples: Vec<&str> =
        text.lines().filter_map(|line| line.rsplit_once(' ')).map(|(name, _)| name).collect();
    let distinct: std::collections::HashSet<&str> = samples.iter().copied().collect();
    assert_eq!(distinct.len(), samples.len());
    daemon.interrupt();
}

/// The node exporter's user may have a hand in the directory that its textfile collector reads; root's timer writes there.
#[test]
fn the_textfile_replaces_no_file_that_a_link_in_its_directory_names() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/metrics.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    let command = docs.lines().find(|line| line.contains("F=DIR/weir.prom")).unwrap();
    let network = Network::new();
    let scratch = killed::temp_dir();
    let path = |name: &str| scratch.path().join(name);
    let directories = ["collected", "roots"].map(path);
    directories.iter().for_each(|each| std::fs::create_dir(each).unwrap());
    std::fs::write(path("roots/file"), "root's").unwrap();
    let [collected, _] = &directories;
    let found = format!(
        "{}:{}",
        Path::new(WEIR).parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    for (name, to) in
        [("weir.prom.new", "roots/file"), ("weir.prom.new", "roots/none"), ("weir.prom", "roots")]
    {
        std::os::unix::fs::symlink(path(to), collected.join(name)).unwrap();
        let mut shell = Command::new("sh");
        shell.args(["-c", &command.replace("DIR", collected.to_str().unwrap())]);
        shell.env("PATH", &found);
        assert!(network.near.run(|| shell.status()).unwrap().unwrap().success());
        assert_eq!(std::fs::read_to_string(path("roots/file")).unwrap(), "root's", "{name}");
        assert_eq!(std::fs::read_dir(path("roots")).unwrap().count(), 1, "{name}");
        let file = collected.join("weir.prom");
        assert!(std::fs::symlink_metadata(&file).unwrap().is_file(), "{name}");
        assert!(std::fs::read_to_string(&file).unwrap().ends_with("# EOF\n"), "{name}");
        std::fs::remove_file(file).unwrap();
    }
}

#[test]
fn interfaces_of_one_name_in_several_namespaces_are_told_apart() {
    let networks = [Network::new(), Network::new()];
    let daemons = networks.each_ref().map(|network| Daemon::start(network, &[]));
    let text = networks[0].says(&["status", "--all-namespaces", "--openmetrics"]);
    for network in &networks {
        let netns = network.near.inode();
        let line = format!("weir_protected{{interface=\"near\",netns=\"{netns}\"}} 1.0");
        assert_has_lines(&text, [line]);
    }
    for (network, daemon) in networks.iter().zip(daemons) {
        network.assert_left_untouched_by(daemon);
    }
}

/// Where the metrics are, and what Prometheus asks for.
const AT: &str = "127.0.0.1:9463";
const GET: &str = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";

/// Asks the metrics' endpoint on the near side, as Prometheus does.
fn ask(network: &Network, address: &str, request: &str) -> std::io::Result<String> {
    network
        .near
        .run(|| {
            let mut stream = TcpStream::connect_timeout(&address.parse().unwrap(), PATIENCE)?;
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.write_all(request.as_bytes())?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        })
        .unwrap()
}

#[test]
fn metrics_are_served_on_loopback_if_the_file_says_so() {
    let network = Network::new();
    sh(&network, "ip link set lo up");
    let daemon = Daemon::start(&network, &[]);
    assert!(ask(&network, AT, GET).is_err(), "off by default");
    daemon.interrupt();
    let file = ConfigFile::new("metrics", &format!("metrics = \"{AT}\"\n"));
    let daemon = Daemon::start(&network, &["--config", file.path()]);
    let line = "\nweir_protected{interface=\"near\"} 1.0\n";
    let mut answer = String::new();
    wait_until("the interface is in the metrics", || {
        answer = ask(&network, AT, GET).unwrap();
        answer.contains(line)
    });
    assert!(
        answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text;"),
        "{answer}"
    );
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(
        head.contains(&format!("Content-Length: {}", body.len())) && body.ends_with("# EOF\n"),
        "{answer}"
    );
    // Clients that say nothing, or half of what they want, keep nobody waiting.
    let connect = || {
        let mut client = TcpStream::connect(AT).unwrap();
        client.write_all(b"GET /metrics").unwrap();
        [client, TcpStream::connect(AT).unwrap()]
    };
    let silent = network.near.run(|| [(); 50].map(|()| connect())).unwrap();
    assert!(ask(&network, AT, GET).unwrap().contains(line));
    drop(silent);
    for (request, status) in
        [("GET / HTTP/1.1\r\n\r\n", "404"), ("POST /metrics HTTP/1.1\r\n\r\n", "405")]
    {
        let answer = ask(&network, AT, request).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    // As from a probe, or with a parameter.
    let asked = |request: &str| ask(&network, AT, &GET.replacen("GET /metrics", request, 1));
    assert!(asked("GET /metrics?name=weir").unwrap().contains(line));
    for (request, status) in [("HEAD /metrics?", "200"), ("HEAD /?/metrics", "404")] {
        let answer = asked(request).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
        assert!(answer.ends_with("\r\n\r\n") && !answer.contains("Length: 0\r"), "{answer}");
    }
    assert!(!ask(&network, AT, &"x".repeat(5000)).is_ok_and(|answer| answer.contains("200")));
    // Another one cannot have the port: it protects all the same.
    network.add_pair();
    let second = ["run", "--quiet", NEAR2, "--config", file.path()];
    let mut command = Command::new(WEIR);
    command.args(second).stderr(Stdio::piped());
    let child = network.near.run(|| Owned::start(&mut command)).unwrap();
    wait_until("both are protected", || network.published().len() == 2);
    let said = ends_well(child);
    assert!(said.contains("metrics cannot be served at 127.0.0.1:9463"), "{said}");
    network.assert_left_untouched_by(daemon);
}

/// Below 1024, where a user cannot have it: weir keeps what it takes.
#[test]
fn metrics_are_served_once_the_port_is_free() {
    const AT: &str = "127.0.0.1:946";
    let network = Network::new();
    sh(&network, "ip link set lo up");
    let other = network.near.run(|| TcpListener::bind(AT).unwrap()).unwrap();
    let file = ConfigFile::new("taken", &format!("metrics = \"{AT}\"\n"));
    let daemon = Daemon::start(&network, &["--config", file.path()]);
    let told = "metrics cannot be served at 127.0.0.1:946: Address already in use";
    daemon.said(told);
    daemon.said("`ss -ltnp sport = :946` tells whose it is");
    drop(other);
    wait_until("the metrics are there", || {
        ask(&network, AT, GET).is_ok_and(|answer| answer.starts_with("HTTP/1.1 200 OK"))
    });
    let said = daemon.interrupt();
    assert_eq!(said.matches(told).count(), 1, "{said}");
}

/// Any user may connect, as fast as he can.
#[test]
fn metrics_are_served_beside_clients_that_connect_all_the_time() {
    let network = Network::new();
    sh(&network, "ip link set lo up");
    let file = ConfigFile::new("crowded", &format!("metrics = \"{AT}\"\n"));
    let daemon = Daemon::start(&network, &["--config", file.path()]);
    let script = format!(
        r"
import socket
kept=[]
while True:
    client=socket.socket(); client.setblocking(False)
    client.connect_ex(('127.0.0.1',9463)); kept.append(client)
    try: client.send(b{GET:?})
    except OSError: pass
    if len(kept)==500: print('crowded',flush=True)
    if len(kept)>500: kept.pop(0).close()
"
    );
    let mut command = Command::new("python3");
    command.args(["-c", &script]).stdout(Stdio::piped());
    let mut crowd = network.near.run(|| command.spawn().unwrap()).unwrap();
    let mut said = BufReader::new(crowd.stdout.take().unwrap());
    said.read_line(&mut String::new()).unwrap();
    for _ in 0..20 {
        let answer = ask(&network, AT, GET).unwrap();
        assert!(answer.contains("\nweir_protected{interface=\"near\"} 1.0\n"), "{answer}");
    }
    crowd.kill().unwrap();
    crowd.wait().unwrap();
    daemon.interrupt();
}

/// On a host in livelock a start takes minutes; killed and begun anew it would never be done.
#[test]
fn a_start_may_take_as_long_as_it_needs() {
    let unit = std::fs::read_to_string(format!("{PACKAGING}/weir.service")).unwrap();
    assert_has_lines(&unit, ["Type=notify", "TimeoutStartSec=infinity"]);
}

/// What the unit leaves to root is enough, and each of it is needed.
#[test]
fn the_units_privileges_are_enough_and_none_is_more_than_that() {
    let unit = std::fs::read_to_string(format!("{PACKAGING}/weir.service")).unwrap();
    let capabilities = unit.lines().find_map(|line| line.strip_prefix("CapabilityBoundingSet="));
    let names: Vec<String> = capabilities
        .unwrap()
        .split(' ')
        .map(|name| name.replace("CAP_", "+").to_lowercase())
        .collect();
    let network = Network::new();
    let file = protect("unit");
    let run = |kept: &[String]| {
        let script = "mount -t sysfs none /sys && exec setpriv --inh-caps=-all --no-new-privs --bounding-set \"$0\" \"$@\"";
        let set = [&["-all".to_owned()], kept].concat().join(",");
        let mut command = Command::new("unshare");
        command.args([
            "--mount",
            "sh",
            "-c",
            script,
            &set,
            WEIR,
            "run",
            "--quiet",
            "--config",
            file.path(),
        ]);
        command
    };
    let mut all = run(&names);
    let mut child = network.near.run(|| Owned::start(all.stderr(Stdio::null()))).unwrap();
    network.wait_until_published();
    let status = network.interface_status();
    assert_eq!(status["not_threaded"], serde_json::Value::Null, "{status}");
    assert!(!status["governed"].as_array().unwrap().is_empty(), "{status}");
    child.terminate();
    network.assert_untouched();
    for dropped in &names {
        let kept: Vec<String> = names.iter().filter(|name| *name != dropped).cloned().collect();
        let refusal = failure(&network.near.run(|| run(&kept).output().unwrap()).unwrap(), 1);
        let name = format!("CAP_{}", dropped[1..].to_uppercase());
        assert!(refusal.contains(&format!("lacks {name};")), "{refusal}");
    }
}

#[test]
fn a_first_file_is_written_once_and_is_valid() {
    let network = Network::new();
    let scratch = killed::temp_dir();
    let missing = format!("{}/new/weir.toml", scratch.path().display());
    let refusal = failure(&network.weir(&["config", "init", &missing]), 1);
    assert!(refusal.contains("No such file or directory"), "{refusal}");
    let path = format!("{}/weir.toml", scratch.path().display());
    let said = network.says(&["config", "init", &path]);
    assert!(said.contains(&format!("`sudo weir run --config {path}`")), "{said}");
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains(&format!("[interface.{NEAR}]\nprotect = true\n")), "{text}");
    assert!(network.weir(&["config", "check", &path]).status.success());
    let refusal = failure(&network.weir(&["config", "init", &path]), 1);
    assert!(refusal.contains("weir does not overwrite it"), "{refusal}");
    let example = format!("{PACKAGING}/weir.toml");
    assert!(network.weir(&["config", "check", &example]).status.success());
}

#[test]
fn a_file_that_cannot_be_written_whole_is_not_left_in_part() {
    let network = Network::new();
    let scratch = killed::temp_dir();
    let script = r#"mount -t tmpfs -o size=4k none "$dir" && cd "$dir" && head -c 4096 /dev/zero >full
        $weir config init "$dir/weir.toml"; $weir doctor --record "$dir/record"; ls"#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]);
    command.envs([("weir", WEIR), ("dir", scratch.path().to_str().unwrap())]);
    let output = network.near.run(|| command.output().unwrap()).unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "full\n", "{output:?}");
}

#[test]
fn output_that_cannot_be_written_is_an_error_and_one_that_nobody_reads_is_none() {
    /// What runs until it is stopped, here once it has said that it cannot write.
    const TO_FULL: &str = "to_full() {
        : >said; $weir \"$@\" >/dev/full 2>said & for each in $(seq 200); do
            grep -q 'cannot write to standard output: No space' said && break; sleep 0.1
        done
        kill -INT $!; wait $!; code=$?; grep -q 'not complete; make room' said || code=99; return $code
    }; ";
    let network = Network::new();
    network.add_pair();
    let scratch = killed::temp_dir();
    std::fs::write(scratch.path().join("rules"), "accept udp\n").unwrap();
    for (script, code) in [
        ("to_full run near --config /dev/null --json", 1),
        ("to_full screen rules --in near --out near2 --fail open --json", 1),
        ("$weir run near --config /dev/null --ab 1s --pairs 1 --json >/dev/full", 1),
        ("timeout --preserve-status -s INT 5 $weir run near --config /dev/null | true", 0),
        ("timeout 20 $weir capture -i near --count >/dev/full", 1),
        ("timeout 20 $weir capture -i near --count | head -1", 0),
        ("$weir config init first >/dev/full", 1),
        ("$weir config init second | true", 0),
        ("$weir config check /nonexistent 2>/dev/full", 1),
        ("$weir screen --check rules >/dev/full", 1),
        ("$weir screen --check /nonexistent 2>/dev/full", 1),
        ("$weir --help >/dev/full", 1),
        ("$weir --help | true", 0),
        ("$weir capture -i near --count --json --duration 1s >/dev/full", 1),
    ] {
        let mut command = Command::new("bash");
        command.args(["-o", "pipefail", "-c", &format!("{TO_FULL}{script}")]).env("weir", WEIR);
        command.current_dir(scratch.path());
        let output = network.near.run(|| command.output().unwrap()).unwrap();
        assert_eq!(output.status.code(), Some(code), "{script}: {output:?}");
        network.assert_untouched();
    }
}

#[test]
fn the_package_has_what_it_should_and_depends_on_what_it_needs() {
    let scratch = killed::temp_dir();
    let mut make = Command::new(format!("{PACKAGING}/deb"));
    // Level 0: this is about what is in it.
    let output = make.arg(WEIR).arg(scratch.path()).env("DEB_COMPRESSION", "0").output().unwrap();
    let deb = success(&output).trim().to_owned();
    let dpkg =
        |option: &str| success(&Command::new("dpkg-deb").args([option, &deb]).output().unwrap());
    let contents = dpkg("--contents");
    for file in [
        "-rwxr-xr-x root/root", // of /usr/bin/weir, which comes first
        "./usr/bin/weir\n",
        "./lib/systemd/system/weir.service\n",
        "./usr/share/man/man1/weir-run.1.gz\n",
        "./usr/share/man/man1/weir-doctor.1.gz\n",
        "./usr/share/man/man1/weir-config-init.1.gz\n",
        "./usr/share/bash-completion/completions/weir\n",
        "./usr/share/zsh/vendor-completions/_weir\n",
        "./usr/share/doc/weir/copyright\n",
        "./usr/share/doc/weir/examples/weir.toml\n",
    ] {
        assert!(contents.contains(file), "no {file} in {contents}");
    }
    assert!(!contents.contains("guardian") && !contents.contains("generated"), "{contents}");
    let fields = dpkg("--field");
    for dependency in ["libc6 (>= 2.", "libelf1 (>= 0.", "zlib1g (>= 1:1."] {
        assert!(fields.contains(dependency), "no {dependency} in {fields}");
    }
}
