//! A router that speaks BGP and BFD with its neighbour (BIRD at both ends), while it is flooded.

#![allow(clippy::unwrap_used, reason = "the helpers of tests are tests too")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use common::router::{BEHIND, flow_to, router};
use common::*;
use tempfile::TempDir;
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::sched;
use weir_bpf::units::{CpuId, Nice};

const BIRD: &str = "/usr/sbin/bird";
const BIRDC: &str = "/usr/sbin/birdc";
const PORT: u16 = 5000;
/// Of each of two flows: one to a socket that nobody reads, and one that is forwarded.
const FLOOD_PPS: f64 = 400_000.0;
/// Of each, so that the flood lasts long against what BFD takes to notice.
const FLOOD_PACKETS: u64 = 1_000_000;
/// Of BFD. Half a second, where the usual setting for a fast link is three times 50 ms: the test's machine may be busy.
const BFD: &str = "interval 100 ms; multiplier 5;";

/// A BIRD that runs.
struct Bird {
    child: Owned,
    control: PathBuf,
}

impl Bird {
    fn start(netns: &NetNs, dir: &Path, interface: &str, ends: [&str; 2], cpu: CpuId) -> Self {
        let [own, peer] = ends;
        let number = |address: &str| 65000 + u32::from(address == NEAR_IP);
        let (config, control) = (dir.join(interface), dir.join(format!("{interface}.ctl")));
        let text = format!(
            "router id {own};
             timeformat protocol iso long ms;
             protocol device {{}}
             protocol bfd {{
                 interface \"{interface}\" {{ {BFD} }};
                 neighbor {peer} dev \"{interface}\";
             }}
             protocol bgp neighbour {{
                 local {own} as {}; neighbor {peer} as {};
                 direct; bfd; connect delay time 1; connect retry time 1; error wait time 1, 2;
                 ipv4 {{ import all; export none; }};
             }}\n",
            number(own),
            number(peer),
        );
        fs::write(&config, text).unwrap();
        let mut command = Command::new(BIRD);
        command.arg("-f").arg("-c").arg(&config).arg("-s").arg(&control);
        command.arg("-P").arg(dir.join(format!("{interface}.pid")));
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let child = netns.run(|| Owned::start_on(cpu, &mut command)).unwrap();
        Self { child, control }
    }

    /// The line of the neighbour: its state, and since when.
    fn line(&self, of: &str, first: &str) -> String {
        let mut command = Command::new(BIRDC);
        let output = command.arg("-s").arg(&self.control).args(["show", of]);
        let output = output.args(if of == "bfd" { &["sessions"][..] } else { &[] });
        let printed = String::from_utf8(output.output().unwrap().stdout).unwrap();
        let line = printed.lines().find(|line| line.starts_with(first)).unwrap_or_default();
        line.to_owned()
    }

    fn bfd(&self, peer: &str) -> String {
        self.line("bfd", peer)
    }

    fn bgp(&self) -> String {
        self.line("protocols", "neighbour")
    }
}

/// A router under weir and its neighbour, each with a BIRD.
struct Pair {
    // In this order they end.
    _weir: Daemon,
    router: Bird,
    neighbour: Bird,
    _dir: TempDir,
    network: Network,
}

impl Pair {
    fn start(network: Network, (cpu, elsewhere): (CpuId, CpuId)) -> Self {
        let weir = Daemon::start_sleepy(&network, &["--cpus", &cpu.to_string()]);
        let dir = killed::temp_dir();
        let router = Bird::start(&network.near, dir.path(), NEAR, [NEAR_IP, FAR_IP], cpu);
        let neighbour = Bird::start(&network.far, dir.path(), "far", [FAR_IP, NEAR_IP], elsewhere);
        // The generator shares its CPU.
        sched::set_nice(neighbour.child.pid(), Nice(-20)).unwrap();
        Self { _weir: weir, router, neighbour, _dir: dir, network }
    }

    /// The sessions' states at both ends, and since when they last.
    fn sessions(&self) -> [String; 4] {
        let [router, neighbour] = [&self.router, &self.neighbour];
        [neighbour.bfd(NEAR_IP), router.bfd(FAR_IP), neighbour.bgp(), router.bgp()]
    }

    fn is_up(&self) -> bool {
        let [one, other, bgp, other_bgp] = self.sessions();
        [one, other].iter().all(|line| line.contains(" Up "))
            && [bgp, other_bgp].iter().all(|line| line.contains("Established"))
    }

    /// Whether these are the sessions of then: up, and since the same moment, which BIRD tells to a millisecond or two.
    fn are_those_of(&self, before: &[String; 4]) -> bool {
        let same = |(now, then): (&String, &String)| {
            let (now, then) = (words(now), words(then));
            (now.1 - then.1).abs() < 0.1 && now.0 == then.0
        };
        self.sessions().iter().zip(before).all(same)
    }

    /// Packets that the router has sent on.
    fn sent_on(&self) -> u64 {
        self.network.links(|links, _| links.stats(links.index(NEAR2).unwrap()).unwrap().tx_packets)
    }
}

/// A line's words without its time of day, and that in seconds.
fn words(line: &str) -> (Vec<&str>, f64) {
    let is_time = |word: &&str| word.contains(':');
    let (time, others): (Vec<&str>, Vec<&str>) = line.split_whitespace().partition(is_time);
    let parts = time.concat();
    let seconds = parts.split(':').map(|part| part.parse::<f64>().unwrap());
    (others, seconds.fold(0.0, |sum, part| 60.0 * sum + part))
}

#[test]
fn bfd_and_bgp_stay_up_while_the_router_is_flooded() {
    let cpus = Cpus::take();
    let (cpu, elsewhere) = (cpus.cpu, cpus.elsewhere);
    let network = router();
    let _unread = network.near_socket(&format!("{NEAR_IP}:{PORT}"));
    let flows = [NEAR_IP, BEHIND].map(|to| flow_to(&network, to, (4096, PORT), FLOOD_PPS));
    let pair = Pair::start(network, (cpu, elsewhere));
    wait_until("the sessions are up", || pair.is_up());
    let (before, sent_on) = (pair.sessions(), pair.sent_on());
    pair.network.while_sent(&flows, Some(elsewhere), |generator| {
        wait_until("the flood has lasted", || {
            [0, 1].iter().all(|flow| generator.counts(*flow).sent > FLOOD_PACKETS)
        });
    });
    // An end that was down would say so, or since when it is up again.
    assert!(pair.are_those_of(&before), "{:#?}\nbefore: {before:#?}", pair.sessions());
    assert!(pair.sent_on() > sent_on, "nothing was forwarded");
    wait_until("the gate has discarded", || pair.network.count("udp-full") > 0);
}
