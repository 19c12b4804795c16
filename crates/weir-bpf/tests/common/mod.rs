//! A network of the test's own. Nothing here touches an interface that the test did not make.

#![allow(dead_code, reason = "each test file uses a part")]

pub mod threaded;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use etherparse::{IpHeaders, IpNumber, PacketBuilder, PacketBuilderStep, TcpHeader};
use weir_bpf::attach::AttachMode;
use weir_bpf::forward::FastPath;
use weir_bpf::gate::{Gate, Policy, QueueProbe};
use weir_bpf::sys::ethtool;
use weir_bpf::sys::ipv6::{disable_ipv6, quiet_ipv6};
use weir_bpf::sys::link::Links;
use weir_bpf::sys::local_table::LocalAddresses;
use weir_bpf::sys::netns::NetNs;
use weir_bpf::sys::packet::PacketSocket;
use weir_bpf::sys::sysfs::NetSysfs;
use weir_bpf::traffic::{FlowSpec, Generator};
use weir_bpf::units::{CpuId, IfIndex, MacAddr, PacketsPerSec};
use weir_bpf::verdict::Reason;

pub const NEAR_IP4: &str = "198.18.0.1";
pub const FAR_IP4: &str = "198.18.0.128";
pub const NEAR_IP6: &str = "2001:2::1";
pub const FAR_IP6: &str = "2001:2::100";
/// Of a second interface of the host under test, and behind it: see [`Network::make_near_a_router`].
pub const OUT_IP4: &str = "198.19.0.1";
pub const BEYOND_IP4: &str = "198.19.0.2";

/// Held by a test that takes the machine's CPUs, or what wakes every gate, for itself.
pub fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A host's own addresses.
pub fn local(own: &[&str]) -> LocalAddresses {
    let own = own.iter().map(|ip| ip.parse().unwrap()).collect();
    LocalAddresses { own, ..Default::default() }
}

/// A host under test (`near`) and its peer (`far`), joined by a veth pair.
pub struct Network {
    pub near: NetNs,
    pub far: NetNs,
    pub near_ifindex: IfIndex,
    pub far_ifindex: IfIndex,
    pub near_mac: MacAddr,
    pub far_mac: MacAddr,
}

impl Network {
    pub fn new() -> Self {
        let [near, far] =
            [NetNs::create(), NetNs::create()].map(|made| made.expect("the tests need root"));
        let (far_ifindex, far_mac) = far
            .run(|| {
                let links = Links::open().unwrap();
                links.create_veth("far", "near", Some(near.as_fd())).unwrap();
                disable_ipv6("far").unwrap();
                let far = links.index("far").unwrap();
                (far, links.mac(far).unwrap())
            })
            .unwrap();
        let (near_ifindex, near_mac) = near
            .run(|| {
                let links = Links::open().unwrap();
                let near = links.index("near").unwrap();
                quiet_ipv6("near").unwrap();
                ethtool::set_gro("near", true).unwrap();
                links.set_up(near).unwrap();
                links.add_address(near, NEAR_IP4.parse().unwrap(), 24).unwrap();
                links.add_address(near, NEAR_IP6.parse().unwrap(), 64).unwrap();
                for address in [FAR_IP4, FAR_IP6] {
                    links.add_neighbour(near, address.parse().unwrap(), far_mac).unwrap();
                }
                (near, links.mac(near).unwrap())
            })
            .unwrap();
        // After its peer has GRO: that is when veth_open() looks whether redirected frames can be
        // taken.
        far.run(|| Links::open().unwrap().set_up(far_ifindex).unwrap()).unwrap();
        near.run(|| {
            let links = Links::open().unwrap();
            wait_until("the link is up", || links.info(near_ifindex).unwrap().oper_up);
            // An IPv6 address gets its route from a work queue, `addrconf_dad_work()`.
            wait_until("the addresses have routes", || {
                let own = LocalAddresses::read(&[near_ifindex]).unwrap().own;
                [NEAR_IP4, NEAR_IP6].iter().all(|ip| own.contains(&ip.parse().unwrap()))
            });
        })
        .unwrap();
        Self { near, far, near_ifindex, far_ifindex, near_mac, far_mac }
    }

    /// Gives the far end, which otherwise only sends what a generator makes, an address of its own.
    pub fn make_far_a_host(&self) {
        let make = || {
            let links = Links::open().unwrap();
            links.add_address(self.far_ifindex, FAR_IP4.parse().unwrap(), 24).unwrap();
            let near = NEAR_IP4.parse().unwrap();
            links.add_neighbour(self.far_ifindex, near, self.near_mac).unwrap();
        };
        self.far.run(make).unwrap();
    }

    /// A gate for the near end, which has these addresses, and the probe that it needs.
    pub fn gate(&self, place: AttachMode, own: &[&str], broadcast: &[&str]) -> (Gate, QueueProbe) {
        let probe = QueueProbe::load().expect("the tests need root");
        let mut gate = Gate::load(&probe, place).unwrap();
        gate.configure(self.near_mac, Policy::On);
        let broadcast = broadcast.iter().map(|ip| ip.parse().unwrap()).collect();
        gate.set_local(&LocalAddresses { broadcast, ..local(own) }).unwrap();
        (gate, probe)
    }

    /// One whose host under test is behind a gate, and whose peer answers for itself.
    pub fn gated(mode: AttachMode) -> (Self, Gate, QueueProbe) {
        let network = Self::new();
        network.make_far_a_host();
        let (mut gate, probe) = network.gate(mode, &[NEAR_IP4], &[]);
        network.attach(&mut gate, mode);
        (network, gate, probe)
    }

    /// Has the host under test forward to [`BEYOND_IP4`]; where that leaves, by so long packets at most.
    pub fn make_near_a_router(&self, mtu: u32) -> IfIndex {
        let make = || {
            let links = Links::open().unwrap();
            links.create_veth("out", "far2", Some(self.far.as_fd())).unwrap();
            let out = links.index("out").unwrap();
            let far2 = || {
                let links = Links::open().unwrap();
                let far2 = links.index("far2").unwrap();
                disable_ipv6("far2").unwrap();
                // Else it takes no frame that is redirected.
                ethtool::set_gro("far2", true).unwrap();
                links.set_up(far2).unwrap();
                links.mac(far2).unwrap()
            };
            let far2_mac = self.far.run(far2).unwrap();
            quiet_ipv6("out").unwrap();
            std::fs::write("/proc/sys/net/ipv4/conf/near/forwarding", "1").unwrap();
            NetSysfs::open().unwrap().write("out", "mtu", &mtu.to_string()).unwrap();
            links.set_up(out).unwrap();
            links.add_address(out, OUT_IP4.parse().unwrap(), 24).unwrap();
            links.add_neighbour(out, BEYOND_IP4.parse().unwrap(), far2_mac).unwrap();
            out
        };
        self.near.run(make).unwrap()
    }

    /// One whose host under test forwards to [`BEYOND_IP4`], by the fast path in front of a gate.
    pub fn forwarding() -> (Self, Gate, QueueProbe) {
        let network = Self::new();
        network.make_far_a_host();
        let out = network.make_near_a_router(1500);
        let probe = QueueProbe::load().expect("the tests need root");
        let load = || {
            let mut gate = Gate::load_forwarding(&probe).unwrap();
            gate.send_by(&[out]).unwrap();
            gate
        };
        let mut gate = network.near.run(load).unwrap();
        gate.configure(network.near_mac, Policy::On);
        gate.set_local(&local(&[NEAR_IP4, OUT_IP4])).unwrap();
        network.attach(&mut gate, AttachMode::Native);
        (network, gate, probe)
    }

    /// Sends what the far end has put together itself, as if it came from a wire.
    pub fn sender(&self) -> PacketSocket {
        self.far.run(|| PacketSocket::sender(self.far_ifindex).unwrap()).unwrap()
    }

    /// What the gate says of one packet: the reason whose counter moved, and only it, by one packet
    /// of this length, and its verdict. In the near namespace.
    pub fn judge(&self, gate: &Gate, packet: &[u8]) -> Reason {
        let before = gate.counters().unwrap();
        let verdict = gate.test_run(packet, self.near_ifindex).unwrap();
        let after = gate.counters().unwrap();
        let moved: Vec<Reason> =
            Reason::ALL.into_iter().filter(|r| after.get(*r) != before.get(*r)).collect();
        assert_eq!(moved.len(), 1, "one packet, one reason: {moved:?}");
        let (old, new) = (before.get(moved[0]), after.get(moved[0]));
        assert_eq!(new.packets - old.packets, 1);
        assert_eq!(new.bytes - old.bytes, packet.len() as u64);
        assert_eq!(verdict, moved[0].verdict(), "{moved:?}");
        moved[0]
    }

    /// A datagram of the peer's, as it comes by Ethernet.
    pub fn datagram(&self, to: &str, port: u16, payload: &[u8]) -> Vec<u8> {
        let mut packet = Vec::new();
        self.to(to, 64).udp(40_000, port).write(&mut packet, payload).unwrap();
        packet
    }

    /// A TCP segment without data.
    pub fn segment(&self, from: IpAddr, to: IpAddr, header: TcpHeader) -> Vec<u8> {
        let mut packet = Vec::new();
        self.packet(from, to, 64).tcp_header(header).write(&mut packet, &[]).unwrap();
        packet
    }

    /// The same with a hop limit.
    pub fn datagram_of_ttl(&self, to: &str, ttl: u8, port: u16) -> Vec<u8> {
        let mut packet = Vec::new();
        self.to(to, ttl).udp(40_000, port).write(&mut packet, &[0; 24]).unwrap();
        packet
    }

    /// A packet of the peer's, of any protocol.
    pub fn of_protocol(&self, to: &str, ttl: u8, protocol: u8) -> Vec<u8> {
        let mut packet = Vec::new();
        self.to(to, ttl).write(&mut packet, IpNumber(protocol), &[0; 40]).unwrap();
        packet
    }

    fn to(&self, to: &str, ttl: u8) -> PacketBuilderStep<IpHeaders> {
        let to: IpAddr = to.parse().unwrap();
        let from = if to.is_ipv4() { FAR_IP4 } else { FAR_IP6 };
        self.packet(from.parse().unwrap(), to, ttl)
    }

    fn packet(&self, from: IpAddr, to: IpAddr, ttl: u8) -> PacketBuilderStep<IpHeaders> {
        let builder = PacketBuilder::ethernet2(self.far_mac.0, self.near_mac.0);
        match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => builder.ipv4(from.octets(), to.octets(), ttl),
            (IpAddr::V6(from), IpAddr::V6(to)) => builder.ipv6(from.octets(), to.octets(), ttl),
            _ => unreachable!("one family"),
        }
    }

    /// Attaches it to the near end.
    pub fn attach(&self, gate: &mut Gate, mode: AttachMode) {
        self.near.run(|| gate.attach(self.near_ifindex, "near", mode)).unwrap().unwrap();
    }

    /// UDP packets of the peer's to this port: so many a second, or as many as there can be.
    pub fn flow(&self, port: u16, rate: Option<f64>) -> FlowSpec {
        let address = (FAR_IP4.parse().unwrap(), NEAR_IP4.parse().unwrap());
        let flow = FlowSpec::udp((self.far_mac, self.near_mac), address, (4096, port));
        FlowSpec { rate: rate.map(PacketsPerSec), ..flow }
    }

    pub fn generator(&self) -> Generator {
        self.far.run(|| Generator::load(self.far_ifindex).unwrap()).unwrap()
    }

    /// Does something while the peer sends these flows, from this CPU.
    pub fn while_sent<T>(
        &self,
        generator: &mut Generator,
        flows: &[FlowSpec],
        cpu: Option<CpuId>,
        body: impl FnOnce(&Generator) -> T,
    ) -> T {
        generator.set_flows(flows).unwrap();
        let generator = &*generator;
        let body = || {
            generator.start();
            body(generator)
        };
        generator.run_while(&self.far, cpu, body).unwrap()
    }

    /// The same until enough is sent; how many packets of each flow were.
    pub fn send(
        &self,
        generator: &mut Generator,
        flows: &[FlowSpec],
        enough: impl Fn(&Generator) -> bool,
    ) -> Vec<u64> {
        self.while_sent(generator, flows, None, |generator| {
            wait_until("enough is sent", || enough(generator));
        });
        (0..flows.len()).map(|flow| generator.counts(flow).sent).collect()
    }

    pub fn set_threaded(&self, value: &str) {
        let write = || NetSysfs::open().unwrap().write("near", "threaded", value).unwrap();
        self.near.run(write).unwrap();
    }

    /// Packets that found the near end's ring full, until now.
    pub fn ring_full(&self) -> u64 {
        let stats = || Links::open().unwrap().stats(self.far_ifindex).unwrap();
        self.far.run(stats).unwrap().tx_dropped
    }

    /// A UDP socket of the host under test.
    pub fn bind(&self, address: &str, port: u16) -> UdpSocket {
        let address = SocketAddr::new(address.parse::<IpAddr>().unwrap(), port);
        let socket = self.near.run(|| UdpSocket::bind(address).unwrap()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        socket
    }
}

/// Waits until the condition holds; fails the test after 10 s.
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Tells threads to end, also when a test fails.
pub struct Raise<'a>(pub &'a AtomicBool);

impl Drop for Raise<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
