//! Who weighs what with the real daemon, by process, unit, control group and port; and connections to a peer's
//! protected port.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod common;

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::saturated::*;
use common::*;
use weir_bpf::traffic::Transport;

/// Listeners whose process, unit, group or port has a rule.
const BY_PROCESS: u16 = 7001;
const BY_UNIT: u16 = 7002;
const BY_CGROUP: u16 = 7003;
const BY_PORT: u16 = 7004;

/// A process that calls itself so and has a listener open, alone.
fn holder(host: &Host, port: u16, comm: &str) -> Owned {
    let directory = killed::temp_dir();
    let program = directory.path().join(comm);
    std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
    let listen = || TcpListener::bind((NEAR_IP, port)).unwrap();
    let listener = host.network.near.run(listen).unwrap();
    let mut command = Command::new(&program);
    command.arg("1000").stdin(Stdio::from(OwnedFd::from(listener))).stdout(Stdio::null());
    Owned::start(&mut command)
}

/// A control group of the test's own, where weir looks for units: in systemd's hierarchy, or in version 2's.
struct Group {
    root: PathBuf,
    path: String,
}

impl Group {
    fn new(path: String) -> Self {
        let roots = ["systemd", "unified", ""].map(|name| Path::new("/sys/fs/cgroup").join(name));
        let root = roots.into_iter().find(|root| root.join("cgroup.procs").exists());
        let root = root.expect("a hierarchy of control groups is mounted");
        fs::create_dir_all(root.join(&path[1..])).unwrap();
        Self { root, path }
    }

    fn take(&self, holder: &Owned) {
        let procs = self.root.join(&self.path[1..]).join("cgroup.procs");
        fs::write(procs, holder.id().to_string()).unwrap();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let mut path = Path::new(&self.path[1..]);
        // A process that has been reaped may leave its group a little later.
        while !path.as_os_str().is_empty() {
            wait(PATIENCE, || fs::remove_dir(self.root.join(path)).is_ok());
            path = path.parent().unwrap_or(Path::new(""));
        }
    }
}

/// Strays to a listener weigh 1/32 of what it weighs, which is what its rule says. Processes weigh 1.
#[test]
fn a_receiver_weighs_what_the_rule_of_its_process_unit_or_group_says() {
    let host = Host::new();
    let own = std::process::id();
    let unit = Group::new(format!("/weirtest{own}.slice/weir-test-{own}.service"));
    let group = Group::new(format!("/weir-test-{own}"));
    let ports = [BY_PROCESS, BY_UNIT, BY_CGROUP, BY_PORT];
    let named = |port| if port == BY_PROCESS { "weir-named" } else { "weir-other" };
    let holders = ports.map(|port| holder(&host, port, named(port)));
    unit.take(&holders[1]);
    group.take(&holders[2]);
    let rules = |weights: [f64; 4]| {
        let whose = [
            "process = \"weir-named\"".to_owned(),
            format!("unit = \"weir-test-{own}.service\""),
            format!("cgroup = \"{}\"", group.path),
            format!("port = {BY_PORT}"),
        ];
        let rules = whose.iter().zip(weights);
        rules.map(|(whose, weight)| rule(whose, weight)).collect::<String>()
    };
    let weights = [0.5, 0.25, 0.125, 1.0];
    let others = [0.25, 0.5, 1.0, 0.125];
    let file = ConfigFile::new("rules", &rules(weights));
    let daemon = host.start(&["--config", file.path()]);
    let flows = ports.map(|port| host.network.tcp_flow(Transport::TcpAck, port, FLOOD_PPS / 4.0));
    host.while_sent(&flows, || {
        // A CPU that is not saturated for a while raises limits bit by bit, so they are looked at again and again.
        let hold = |weights: [f64; 4]| {
            let limits = host.limits("tcp-stray");
            ports.into_iter().zip(weights).all(|(port, weight)| {
                let part = (weight / 32.0 * 0.8)..(weight / 32.0 * 1.3);
                limits.iter().any(|(of, share)| *of == u64::from(port) && part.contains(share))
            })
        };
        wait_long("each has its share", || hold(weights));
        daemon.reload(&file, &rules(others));
        wait_long("each has another one", || hold(others));
    });
    daemon.interrupt();
    drop(holders);
}

fn rule(whose: &str, weight: f64) -> String {
    format!("[[shares.weight]]\n{whose}\nweight = {weight}\n")
}

/// The gate knows the ports from the start, and new ones from a SIGHUP on.
#[test]
fn connections_to_a_peers_protected_port_are_told_apart() {
    const BGP: u16 = 179;
    const OWN: u16 = 5179;
    let network = Network::ipv4_only();
    let file = ConfigFile::new("peers", "");
    let daemon = Daemon::start(&network, &["--config", file.path()]);
    let listen = |port| network.far.run(|| TcpListener::bind((FAR_IP, port)).unwrap()).unwrap();
    let _listeners = [BGP, OWN].map(listen);
    let connect =
        |port: u16| network.near.run(|| TcpStream::connect((FAR_IP, port)).unwrap()).unwrap();
    let _bgp = connect(BGP);
    wait_until("it is seen", || network.count("tcp-peer") > 0);
    let peers = network.count("tcp-peer");
    let _other = connect(OWN);
    wait_until("so is the other", || network.count("tcp-client") > 0);
    assert_eq!(network.count("tcp-peer"), peers);
    daemon.reload(&file, &format!("[shares]\nprotected = [{OWN}]\n"));
    daemon.said("shares.protected");
    let _again = connect(OWN);
    wait_until("it is protected", || network.count("tcp-peer") > peers);
    let report = network.json(&["channels", "--json", "--interval", "0"]);
    let channels = report["interfaces"][0]["channels"].as_array().unwrap();
    let names: Vec<_> = channels.iter().map(|each| each["name"].as_str().unwrap()).collect();
    for port in [BGP, OWN] {
        let name = format!("tcp-peer {NEAR_IP} to port {port}");
        assert!(names.contains(&name.as_str()), "{names:?}");
    }
    daemon.interrupt();
}
