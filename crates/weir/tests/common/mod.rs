//! A network of the test's own, and the real `weir` in it.
//!
//! Nothing here touches an interface that the test did not make. Without root the tests fail.

#![allow(dead_code, reason = "each test file uses a part")]
#![allow(missing_docs, reason = "the names say it, and nobody else uses them")]

pub mod daemon;
pub mod fields;
pub mod host;
pub mod killed;
pub mod lazy;
pub mod path;
pub mod process;
pub mod router;
pub mod saturated;
pub mod screen;

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::Pid;
use serde_json::Value;
use tempfile::NamedTempFile;
use weir_bpf::counters::CountersReader;
use weir_bpf::sys::ethtool;
use weir_bpf::sys::ipv6::{disable_ipv6, quiet_ipv6};
use weir_bpf::sys::link::Links;
use weir_bpf::sys::local_table::LocalAddresses;
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::sysfs::NetSysfs;
use weir_bpf::sys::{sched, snmp};
use weir_bpf::traffic::{FlowSpec, Generator, Sources, Transport};
use weir_bpf::units::{CpuId, IfIndex, MacAddr, PacketsPerSec};
use weir_bpf::verdict::Reason;

pub use daemon::*;
pub use process::{Cpus, Owned};

/// The binary under test.
pub const WEIR: &str = env!("CARGO_BIN_EXE_weir");
/// The protected interface, and its address.
pub const NEAR: &str = "near";
pub const NEAR_IP: &str = "198.18.0.1";
pub const FAR_IP: &str = "198.18.0.2";
pub const NEAR_IP6: &str = "2001:2::1";
pub const FAR_IP6: &str = "2001:2::2";
/// The second interface of a host that has two, and its peer.
pub const NEAR2: &str = "near2";
pub const FAR2: &str = "far2";
/// What the machine's own configuration says is nothing to the tests.
pub const NO_CONFIG: &[&str] = &["--config", "/dev/null"];
/// How long anything may take that has no promised time.
pub const PATIENCE: Duration = Duration::from_secs(15);
/// How long something may be tried again and again, beside others' load.
pub const TRIES_MAX: Duration = Duration::from_secs(60);

/// A host under test (`near`) and its peer (`far`), joined by a veth pair.
pub struct Network {
    pub near: NetNs,
    pub far: NetNs,
    pub ifindex: IfIndex,
    /// How many packets the peer may send that the test has not asked for.
    pub unasked_max: u64,
    generator: OnceLock<Mutex<Generator>>,
}

impl Network {
    pub fn new() -> Self {
        start_what_stays();
        let [near, far] = [NetNs::create(), NetNs::create()].map(|made| made.unwrap());
        let ifindex = near
            .run(|| {
                let links = Links::open().unwrap();
                links.create_veth(NEAR, "far", Some(far.as_fd())).unwrap();
                links.index(NEAR).unwrap()
            })
            .unwrap();
        // IPv6 reports each of the peer's multicast groups once or twice, up to seconds later.
        let network = Self { near, far, ifindex, unasked_max: 4, generator: OnceLock::new() };
        // 198.18.0.9 is for the test that adds it later.
        network.bring_up(
            [NEAR, "far"],
            [&[NEAR_IP, NEAR_IP6], &[FAR_IP, FAR_IP6]],
            &[NEAR_IP, NEAR_IP6, "198.18.0.9"],
        );
        network
    }

    /// A network where every packet is the test's own.
    pub fn ipv4_only() -> Self {
        let mut network = Self::new();
        network.far.run(|| disable_ipv6("far")).unwrap().unwrap();
        network.unasked_max = 0;
        network
    }

    /// Joins the two by a second veth pair, [`NEAR2`] and [`FAR2`], with 198.19.0.1 and 198.19.0.2.
    pub fn add_pair(&self) {
        let create = || Links::open().unwrap().create_veth(NEAR2, FAR2, Some(self.far.as_fd()));
        self.near.run(create).unwrap().unwrap();
        self.bring_up([NEAR2, FAR2], [&["198.19.0.1"], &["198.19.0.2"]], &["198.19.0.1"]);
        self.far.run(|| disable_ipv6(FAR2)).unwrap().unwrap();
    }

    /// Gives both ends of a pair addresses, and makes the peer know the near end's.
    fn bring_up(&self, ends: [&str; 2], addresses: [&[&str]; 2], known: &[&str]) {
        let up = |name: &str, addresses: &[&str]| {
            quiet_ipv6(name).unwrap();
            let links = Links::open().unwrap();
            let ifindex = links.index(name).unwrap();
            links.set_up(ifindex).unwrap();
            for address in addresses {
                let address: IpAddr = address.parse().unwrap();
                let prefix_len = if address.is_ipv4() { 24 } else { 64 };
                links.add_address(ifindex, address, prefix_len).unwrap();
            }
            links.mac(ifindex).unwrap()
        };
        let near_mac = self.near.run(|| up(ends[0], addresses[0])).unwrap();
        let far_mac = self.far.run(|| up(ends[1], addresses[1])).unwrap();
        let know = |name: &str, addresses: &[&str], mac| {
            let links = Links::open().unwrap();
            let ifindex = links.index(name).unwrap();
            for address in addresses {
                links.add_neighbour(ifindex, address.parse().unwrap(), mac).unwrap();
            }
        };
        self.near.run(|| know(ends[0], addresses[1], far_mac)).unwrap();
        self.far.run(|| know(ends[1], known, near_mac)).unwrap();
        for (netns, name, addresses) in
            [(&self.near, ends[0], addresses[0]), (&self.far, ends[1], addresses[1])]
        {
            netns.run(|| wait_until_local(name, addresses)).unwrap();
        }
    }

    /// Has the near end polled by NAPI, as a veth is with GRO: else no generated packet gets there.
    pub fn poll_by_napi(&self) {
        self.near.run(|| ethtool::set_gro(NEAR, true)).unwrap().unwrap();
    }

    /// Does something with the near end's interfaces.
    pub fn links<T: Send>(&self, act: impl FnOnce(&Links, IfIndex) -> T + Send) -> T {
        self.near.run(|| act(&Links::open().unwrap(), self.ifindex)).unwrap()
    }

    pub fn threaded(&self) -> String {
        self.threaded_on(NEAR)
    }

    pub fn threaded_on(&self, name: &str) -> String {
        self.near.run(|| NetSysfs::open().unwrap().read(name, "threaded").unwrap()).unwrap()
    }

    pub fn set_threaded(&self, value: &str) {
        self.write("threaded", value);
    }

    /// An attribute of the near interface's, in sysfs.
    pub fn read(&self, attribute: &str) -> String {
        self.near.run(|| NetSysfs::open().unwrap().read(NEAR, attribute).unwrap()).unwrap()
    }

    pub fn write(&self, attribute: &str, value: &str) {
        self.near.run(|| NetSysfs::open().unwrap().write(NEAR, attribute, value).unwrap()).unwrap();
    }

    /// Has a thread poll without weir, as a veth's does with GRO; the thread.
    pub fn poll_by_thread(&self) -> Pid {
        self.set_threaded("1");
        wait_until("there is a NAPI thread", || self.napi_threads().len() == 1);
        self.napi_threads()[0]
    }

    /// Polls without a packet, and nanoseconds between two, by which interrupts are deferred.
    pub fn deferral(&self) -> [String; 2] {
        ["napi_defer_hard_irqs", "gro_flush_timeout"].map(|attribute| self.read(attribute))
    }

    pub fn set_deferral(&self, polls: &str, nanos: &str) {
        self.write("gro_flush_timeout", nanos);
        self.write("napi_defer_hard_irqs", polls);
    }

    pub fn has_xdp(&self) -> bool {
        self.has_xdp_on(NEAR)
    }

    pub fn has_xdp_on(&self, name: &str) -> bool {
        self.links(|links, _| links.xdp(links.index(name).unwrap()).unwrap().is_some())
    }

    /// The NAPI threads of the protected interface.
    pub fn napi_threads(&self) -> Vec<Pid> {
        let threads = self.near.run(|| weir_bpf::sys::napi::napi_threads(self.ifindex, NEAR));
        threads.unwrap().unwrap().into_iter().map(|thread| thread.pid).collect()
    }

    /// weir's files about this network.
    pub fn files(&self) -> Vec<String> {
        weir_files(&self.near)
    }

    /// Everything that weir turns is as the network was made.
    pub fn is_untouched(&self) -> bool {
        self.threaded() == "0" && !self.has_xdp() && self.files().is_empty()
    }

    /// Ends the daemon by Ctrl-C; afterwards all is as the network was made.
    pub fn assert_left_untouched_by(&self, daemon: Daemon) {
        daemon.interrupt();
        self.assert_untouched();
    }

    pub fn assert_untouched(&self) {
        assert_eq!(self.threaded(), "0");
        assert_eq!(self.deferral(), ["0", "0"]);
        assert!(!self.has_xdp());
        assert_eq!(self.files(), [] as [&str; 0]);
    }

    /// Runs a `weir` command to its end.
    pub fn weir(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(WEIR);
        command.args(arguments);
        if arguments.first() == Some(&"run") {
            command.args(isolation(arguments));
        }
        self.near.run(|| command.output().unwrap()).unwrap()
    }

    /// The JSON object that `weir` prints.
    pub fn json(&self, arguments: &[&str]) -> Value {
        serde_json::from_str(&self.says(arguments)).unwrap()
    }

    /// What a `weir` command that succeeds prints.
    pub fn says(&self, arguments: &[&str]) -> String {
        success(&self.weir(arguments))
    }

    /// What `weir status --check` prints, whatever it finds.
    pub fn check(&self) -> String {
        String::from_utf8(self.weir(&["status", "--check"]).stdout).unwrap()
    }

    /// What `weir status --json` says: also what it finds out itself, such as whether a daemon runs.
    pub fn status(&self) -> Value {
        self.json(&["status", "--json"])
    }

    /// What daemons have published last of this network's interfaces.
    pub fn published(&self) -> Vec<Value> {
        published(&self.near)
    }

    /// Waits until a daemon protects something.
    pub fn wait_until_published(&self) {
        wait_until("the status is published", || !self.published().is_empty());
    }

    /// Waits until a daemon has published once more.
    pub fn wait_until_published_again(&self) {
        let updated = || self.interface_status()["updated"].clone();
        let before = updated();
        wait_until("the next status", || updated() != before);
    }

    /// What is published of the only interface.
    pub fn interface_status(&self) -> Value {
        let [status]: [Value; 1] = self.published().try_into().unwrap();
        assert_eq!(status["schema"], 1);
        status
    }

    /// The same of one interface of several.
    pub fn status_of(&self, name: &str) -> Value {
        let found = self.published().into_iter().find(|each| each["interface"] == name);
        found.unwrap_or_else(|| panic!("no status of {name}"))
    }

    /// The counters of the gate that is there now.
    pub fn counters_on(&self, name: &str) -> CountersReader {
        let map = self.status_of(name)["counters_map_id"].as_u64().unwrap();
        CountersReader::open(map.try_into().unwrap()).unwrap()
    }

    /// Packets under a reason, as the gate has counted them by now.
    pub fn count(&self, reason: &str) -> u64 {
        self.count_on(NEAR, reason)
    }

    pub fn count_on(&self, name: &str, reason: &str) -> u64 {
        let found = Reason::ALL.into_iter().find(|each| each.name() == reason);
        let found = found.unwrap_or_else(|| panic!("no reason {reason}"));
        self.counters_on(name).counters().unwrap().get(found).packets
    }

    /// The same by the published status, for what is compared with something else that is published.
    pub fn published_count(&self, reason: &str) -> u64 {
        let status = self.status_of(NEAR);
        let mut reasons = status["reasons"].as_array().unwrap().iter();
        reasons.find(|each| each["reason"] == reason).unwrap()["packets"].as_u64().unwrap()
    }

    /// Waits until the gate has seen all that was sent.
    pub fn wait_for_calm(&self) {
        let counters = self.counters_on(NEAR);
        let seen = || counters.counters().unwrap().total().packets;
        wait_until("nothing is on its way", || {
            let before = seen();
            std::thread::sleep(Duration::from_millis(50));
            seen() == before
        });
    }

    /// It looks for what is back every 5 s, and beside others' load it takes its time to protect it.
    pub fn wait_until_both_are_protected(&self) {
        let both = || self.check() == "protected: near, near2\n";
        assert!(wait(TRIES_MAX, both), "{}", self.status());
    }

    /// Packets that UDP's receive queues have refused.
    pub fn late_drops(&self) -> u64 {
        self.near.run(snmp::udp_stats).unwrap().unwrap().rcvbuf_errors
    }

    pub fn near_socket(&self, address: &str) -> UdpSocket {
        socket(&self.near, address)
    }

    pub fn far_socket(&self, address: &str) -> UdpSocket {
        socket(&self.far, address)
    }
}

/// Generated load, all of it by the first pair.
impl Network {
    /// The peer's generator, loaded when it is first asked for.
    pub fn generator(&self) -> MutexGuard<'_, Generator> {
        let load = || Generator::load(Links::open().unwrap().index("far").unwrap()).unwrap();
        let generator = self.generator.get_or_init(|| Mutex::new(self.far.run(load).unwrap()));
        generator.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends these flows, from this CPU if one is named, while `body` runs.
    pub fn while_sent<T>(
        &self,
        flows: &[FlowSpec],
        cpu: Option<CpuId>,
        body: impl FnOnce(&Generator) -> T,
    ) -> T {
        let mut generator = self.generator();
        generator.set_flows(flows).unwrap();
        let body = || {
            generator.start();
            body(&generator)
        };
        generator.run_while(&self.far, cpu, body).unwrap()
    }

    /// How many packets of a flow were sent since flows were last set.
    pub fn sent(&self, flow: usize) -> u64 {
        self.generator().counts(flow).sent
    }

    /// Packets for which the ring behind an interface of the peer had no room.
    pub fn ring_drops(&self, far: &str) -> u64 {
        let drops = || {
            let links = Links::open().unwrap();
            links.stats(links.index(far).unwrap()).unwrap().tx_dropped
        };
        self.far.run(drops).unwrap()
    }

    /// UDP packets to a port of [`NEAR_IP`]; without a rate, as many as can be made.
    pub fn flow(&self, port: u16, rate: Option<f64>) -> FlowSpec {
        let address = (FAR_IP.parse().unwrap(), NEAR_IP.parse().unwrap());
        let flow = FlowSpec::udp(self.macs(), address, (4096, port));
        FlowSpec { rate: rate.map(PacketsPerSec), ..flow }
    }

    /// TCP segments of no connection to this port, from 64 addresses that are there, so that they are answered.
    pub fn tcp_flow(&self, transport: Transport, port: u16, pps: f64) -> FlowSpec {
        let flow = self.flow(port, Some(pps));
        self.links(|links, near| {
            for last in 64..128 {
                let ip = IpAddr::from([198, 18, 0, last]);
                links.add_neighbour(near, ip, flow.mac.0).unwrap();
            }
        });
        FlowSpec {
            transport,
            address: ("198.18.0.64".parse().unwrap(), flow.address.1),
            sources: Sources::Random { address_bits: 6, port_bits: 12 },
            ..flow
        }
    }

    /// The peer's, and the protected interface's.
    pub fn macs(&self) -> (MacAddr, MacAddr) {
        (mac(&self.far, "far"), mac(&self.near, NEAR))
    }
}

pub fn mac(netns: &NetNs, name: &str) -> MacAddr {
    let mac = || {
        let links = Links::open().unwrap();
        links.mac(links.index(name).unwrap()).unwrap()
    };
    netns.run(mac).unwrap()
}

/// A file of the test's own, such as a configuration.
pub struct ConfigFile(NamedTempFile);

impl ConfigFile {
    pub fn new(name: &str, text: &(impl AsRef<[u8]> + ?Sized)) -> Self {
        let (start, end) = (killed::prefix(), format!("-{name}.toml"));
        let file = tempfile::Builder::new().prefix(&start).suffix(&end).tempfile();
        let file = Self(file.unwrap());
        file.write(text);
        file
    }

    pub fn write(&self, text: &(impl AsRef<[u8]> + ?Sized)) {
        std::fs::write(&self.0, text).unwrap();
    }

    pub fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }
}

/// What to add to the options of `weir run`.
fn isolation(options: &[&str]) -> &'static [&'static str] {
    if options.contains(&"--config") { &[] } else { NO_CONFIG }
}

/// weir's files about a namespace.
pub fn weir_files(netns: &NetNs) -> Vec<String> {
    let prefix = format!("{}-", netns.inode());
    let Ok(entries) = std::fs::read_dir("/run/weir") else { return Vec::new() };
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.trim_start_matches('.').starts_with(&prefix)).collect()
}

/// What daemons have published last of a namespace's interfaces, in the order of `ip link`.
pub fn published(netns: &NetNs) -> Vec<Value> {
    let is_status = |name: &String| name.ends_with(".status.json") && !name.starts_with('.');
    let names = weir_files(netns).into_iter().filter(is_status);
    let mut published: Vec<Value> = names.filter_map(|name| read_status(&name)).collect();
    published.sort_by_key(|status| status["ifindex"].as_u64());
    published
}

/// Reads it; `None` if its daemon takes it away meanwhile. One that was replaced meanwhile may be read in part.
fn read_status(name: &str) -> Option<Value> {
    let mut status = None;
    wait_until(&format!("{name} is whole"), || match std::fs::read(format!("/run/weir/{name}")) {
        Err(error) if error.kind() == ErrorKind::NotFound => true,
        text => {
            status = serde_json::from_slice(&text.unwrap()).ok();
            status.is_some()
        }
    });
    status
}

/// An IPv6 address gets its route from a work queue, `addrconf_dad_work()`.
fn wait_until_local(name: &str, addresses: &[&str]) {
    let ifindex = Links::open().unwrap().index(name).unwrap();
    let addresses: Vec<IpAddr> = addresses.iter().map(|ip| ip.parse().unwrap()).collect();
    wait_until("the addresses have routes", || {
        let own = LocalAddresses::read(&[ifindex]).unwrap().own;
        addresses.iter().all(|ip| own.contains(ip))
    });
}

fn socket(ns: &NetNs, address: &str) -> UdpSocket {
    let address: SocketAddr = address.parse().unwrap();
    let socket = ns.run(|| UdpSocket::bind(address).unwrap()).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

impl Drop for Network {
    fn drop(&mut self) {
        reset(&self.near);
    }
}

/// After a failed test, nothing of it stays in /run/weir.
pub fn reset(netns: &NetNs) {
    let reset = || Command::new(WEIR).arg("reset").stdout(Stdio::null()).status();
    let _ = netns.run(|| wait(PATIENCE, || reset().is_ok_and(|status| status.success())));
}

/// Waits until the condition holds; whether it did in time. The time for which this machine's CPUs were
/// away, as far as this thread or another that only sleeps overslept, does not count, up to ten times the limit.
pub fn wait(limit: Duration, mut condition: impl FnMut() -> bool) -> bool {
    const NAPS_MS: [u64; 2] = [5, 50];
    let (started, others, mut own) = (Instant::now(), overslept(), Duration::ZERO);
    loop {
        let look = Instant::now();
        if condition() {
            return true;
        }
        let took = look.elapsed();
        let away = own.max(overslept().saturating_sub(others));
        let left = (limit + away.min(limit * 10)).saturating_sub(started.elapsed());
        if left.is_zero() {
            return false;
        }
        // A look that runs a program takes CPU time from what is waited for.
        let [least, most] = NAPS_MS.map(Duration::from_millis);
        own += nap((3 * took).min(left).clamp(least, most));
    }
}

/// Sleeps; by how much longer than that.
fn nap(time: Duration) -> Duration {
    let asleep = Instant::now();
    std::thread::sleep(time);
    asleep.elapsed().saturating_sub(time + Duration::from_millis(1))
}

/// To be called before there is a namespace of the test's, for what is started here and stays.
fn start_what_stays() {
    killed::mark();
    overslept();
}

/// By how much a thread that only sleeps has overslept since the first call: also while a condition is looked at.
fn overslept() -> Duration {
    static SLEEPS: Once = Once::new();
    static OVERSLEPT_US: AtomicU64 = AtomicU64::new(0);
    let sleep = || {
        loop {
            let us = u64::try_from(nap(Duration::from_millis(20)).as_micros()).unwrap();
            OVERSLEPT_US.fetch_add(us, Ordering::Relaxed);
        }
    };
    SLEEPS.call_once(|| drop(std::thread::spawn(sleep)));
    Duration::from_micros(OVERSLEPT_US.load(Ordering::Relaxed))
}

/// Waits until the condition holds; fails the test if it takes too long.
pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    assert!(wait(PATIENCE, condition), "waited in vain until {what}");
}

/// Packets in a socket's queue. Afterwards it is empty.
pub fn drain(socket: &UdpSocket) -> u64 {
    socket.set_nonblocking(true).unwrap();
    let mut count = 0;
    while socket.recv(&mut [0; 64]).is_ok() {
        count += 1;
    }
    count
}

/// What the script prints that the near end runs.
pub fn sh(network: &Network, script: &str) -> String {
    run_in(&network.near, script)
}

pub fn run_in(netns: &NetNs, script: &str) -> String {
    let run = || Command::new("sh").args(["-e", "-c", script]).output().unwrap();
    let output = netns.run(run).unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs weir in a time namespace, whose clocks are a day ahead of the kernel's.
pub fn a_day_ahead() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--time", "--monotonic", "86400", "--boottime", "86400", WEIR]);
    command
}

/// A process by number.
pub fn pid(number: &Value) -> Pid {
    Pid::from_raw(number.as_i64().unwrap().try_into().unwrap()).unwrap()
}

/// Standard output of a command that succeeded.
pub fn success(output: &Output) -> String {
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout.clone()).unwrap()
}

pub fn assert_has_lines<S: AsRef<str>>(text: &str, lines: impl IntoIterator<Item = S>) {
    for line in lines {
        let line = line.as_ref();
        assert!(text.lines().any(|each| each == line), "no {line} in {text}");
    }
}

/// Standard error of a command that failed with this exit code.
pub fn failure(output: &Output, code: i32) -> String {
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Sets it, however a scope ends.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Receives on this CPU until it is over.
fn consume(socket: &UdpSocket, cpu: CpuId, received: &AtomicU64, over: &AtomicBool) {
    sched::pin_current_thread(cpu).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    while !over.load(Ordering::Relaxed) {
        if socket.recv(&mut [0; 64]).is_ok() {
            received.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Receives by each of these on this CPU while `body` runs, which is given how many packets they have.
pub fn while_consuming<T>(
    sockets: &[&UdpSocket],
    cpu: CpuId,
    body: impl FnOnce(&AtomicU64) -> T,
) -> T {
    let (received, over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let _over = Over(&over);
        for socket in sockets {
            scope.spawn(|| consume(socket, cpu, &received, &over));
        }
        body(&received)
    })
}

/// Does `act` over and over while `body` runs.
pub fn while_doing<T>(mut act: impl FnMut() + Send, body: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&over);
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                act();
            }
        });
        body()
    })
}
