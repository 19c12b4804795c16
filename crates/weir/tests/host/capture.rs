//! `weir capture` beside the real tcpdump: the same packets under the same filters, and files that it can read.

use std::fs;
use std::io::Read;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::captures::*;
use crate::common::*;
use nix::sys::socket::{LinkAddr, MsgFlags, SockaddrLike, send};
use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption as Statistic;
use pcap_file::pcapng::{Block, PcapNgReader};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use weir_bpf::sys::link::Links;
use weir_bpf::units::MacAddr;

/// Each runs other instructions: loads of every size, absolute and by index, arithmetic, memory, what the kernel has
/// taken off, and jumps far and near.
const FILTERS: [&str; 16] = [
    "",
    "udp port 5000",
    "tcp[tcpflags] & tcp-syn != 0",
    "tcp[((tcp[12] & 0xf0) >> 2)] = 0x78",
    "icmp or arp or ether proto 0x88cc",
    "vlan",
    "vlan 5 and udp",
    "ip6 or vlan 6",
    "ether multicast or ether host 02:00:00:00:00:09",
    "len > 100 or greater 1000",
    "not net 198.18.0.0/24",
    "ip[0] & 0xf != 5",
    "portrange 4000-5500 and not dst host 198.18.0.1",
    "udp[4:2] / (ip[8] - 62) = 11 and ip[2:2] - 20 = udp[4:2]",
    "ip[6:2] & 0x1fff != 0 or ip[4:2] = 77",
    "ether[1000:4] = 0 and ip[ip[9]] > 0",
];

/// A capture that runs, weir's or tcpdump's.
pub struct Running(Owned);

impl Running {
    /// Starts it near, and waits until it says that it captures.
    pub fn start(network: &Network, mut command: Command) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = network.near.run(|| Owned::start(&mut command)).unwrap();
        let mut said = String::new();
        let stderr = child.stderr.as_mut().unwrap();
        while !said.contains("Ctrl-C ends it\n") && !said.contains("listening on") {
            let mut byte = [0];
            let read = stderr.read(&mut byte).unwrap();
            assert!(read > 0, "it ended: {said}");
            said.push(byte[0].into());
        }
        Self(child)
    }

    pub fn weir(network: &Network, arguments: &[&str]) -> Self {
        Self::weir_on(network, NEAR, arguments)
    }

    pub fn weir_on(network: &Network, interface: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new(WEIR);
        command.args(["capture", "-i", interface]).args(arguments);
        Self::start(network, command)
    }

    /// One that says on standard output that it captures.
    fn json(network: &Network, arguments: &[&str]) -> Self {
        let mut command = Command::new(WEIR);
        command.args(["capture", "-i", NEAR]).args(arguments);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::inherit());
        let mut child = network.near.run(|| Owned::start(&mut command)).unwrap();
        let mut said = [0; 1];
        while said != *b"\n" {
            assert_eq!(child.stdout.as_mut().unwrap().read(&mut said).unwrap(), 1, "it ended");
        }
        Self(child)
    }

    fn pid(&self) -> Pid {
        self.0.pid()
    }

    /// Ctrl-C; its last words.
    pub fn interrupt(self) -> String {
        self.0.signal(Signal::INT);
        self.end()
    }

    pub fn end(self) -> String {
        self.end_with(0)
    }

    /// Waits until it ends with this exit code; its last words.
    pub fn end_with(mut self, code: i32) -> String {
        let said = self.0.last_words();
        assert_eq!(self.0.wait().unwrap().code(), Some(code), "{said}");
        said
    }
}

/// The real one, which writes to a file. Its ring has room for all that a test sends.
pub fn tcpdump(network: &Network, to: &Path, filter: &str) -> Running {
    let mut command = Command::new("tcpdump");
    command.args(["-i", NEAR, "-U", "--immediate-mode", "-Z", "root", "-s", "4096", "-w"]);
    command.arg(to).arg(filter);
    Running::start(network, command)
}

/// Sends frames from far.
pub fn replay(network: &Network, frames: &[Vec<u8>]) {
    let open = || {
        let (family, flags) = (AddressFamily::PACKET, SocketFlags::CLOEXEC);
        let socket = socket_with(family, SocketType::RAW, flags, None).unwrap();
        let mut all = nix::ifaddrs::getifaddrs().unwrap();
        let is_far = |it: &nix::ifaddrs::InterfaceAddress| {
            it.interface_name == "far" && it.address.is_some_and(|it| it.as_link_addr().is_some())
        };
        let address = all.find(is_far).unwrap().address.unwrap();
        let link: &LinkAddr = address.as_link_addr().unwrap();
        assert!(link.len() > 0);
        nix::sys::socket::bind(socket.as_raw_fd(), link).unwrap();
        socket
    };
    let socket = network.far.run(open).unwrap();
    for frame in frames {
        send(socket.as_raw_fd(), frame, MsgFlags::empty()).unwrap();
    }
}

/// One of everything that can be sent.
fn frames() -> Vec<Vec<u8>> {
    let frames = packets().into_iter().map(|Captured(data, _)| data);
    let long = udp_to(NEAR_MAC, NEAR_IP, 5000, &[0; 1200]);
    frames.filter(|frame| frame.len() >= ETHERNET).chain([long]).collect()
}

pub fn read_pcap(path: &Path) -> Vec<Vec<u8>> {
    let Ok(mut reader) = PcapReader::new(fs::File::open(path).unwrap()) else { return vec![] };
    std::iter::from_fn(|| Some(reader.next_packet()?.ok()?.data.into_owned())).collect()
}

/// Which of those that were sent are among these packets.
pub fn which(sent: &[Vec<u8>], packets: &[Vec<u8>]) -> Vec<bool> {
    sent.iter().map(|frame| packets.contains(frame)).collect()
}

/// What a file of weir's has: packets, and the numbers of its statistics block.
#[derive(Default)]
pub struct Written {
    pub packets: Vec<Vec<u8>>,
    pub wire_lens: Vec<u32>,
    pub seen: u64,
    pub matched: u64,
    pub dropped: u64,
    pub delivered: u64,
}

pub fn read_pcapng(path: &Path) -> Written {
    let mut reader = PcapNgReader::new(fs::File::open(path).unwrap()).unwrap();
    let mut written = Written::default();
    while let Some(block) = reader.next_block() {
        match block.unwrap() {
            Block::EnhancedPacket(packet) => {
                written.packets.push(packet.data.into_owned());
                written.wire_lens.push(packet.original_len);
            }
            Block::InterfaceStatistics(block) => {
                for option in block.options {
                    match option {
                        Statistic::IsbIfRecv(number) => written.seen = number,
                        Statistic::IsbFilterAccept(number) => written.matched = number,
                        Statistic::IsbOsDrop(number) => written.dropped = number,
                        Statistic::IsbUsrDeliv(number) => written.delivered = number,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    written
}

/// How many packets the real tcpdump reads in a file, and that it has nothing to say against it.
fn tcpdump_reads(path: &Path) -> usize {
    let output = Command::new("tcpdump").args(["-n", "-r"]).arg(path).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains("truncated"), "{said}");
    output
        .stdout
        .split(|byte| *byte == b'\n')
        .filter(|line| line.starts_with(b"2") || line.first().is_some_and(u8::is_ascii_digit))
        .count()
}

#[test]
fn filters_match_what_they_match_for_tcpdump() {
    let network = Network::ipv4_only();
    let dir = killed::temp_dir();
    let ours = |number: usize| dir.path().join(format!("{number}.pcapng"));
    let theirs = |number: usize| dir.path().join(format!("{number}.pcap"));
    let start = |(number, filter): (usize, &&str)| {
        let weir = Running::weir(&network, &["-w", ours(number).to_str().unwrap(), "--", filter]);
        (weir, tcpdump(&network, &theirs(number), filter))
    };
    let running: Vec<_> = FILTERS.iter().enumerate().map(start).collect();
    let sent = frames();
    replay(&network, &sent);
    let replayed = |packets: &[Vec<u8>]| which(&sent, packets);
    assert_eq!(FILTERS[0], "");
    wait_until("tcpdump has everything", || !replayed(&read_pcap(&theirs(0))).contains(&false));
    for (number, (weir, tcpdump)) in running.into_iter().enumerate() {
        let filter = FILTERS[number];
        let said = weir.interrupt();
        let written = read_pcapng(&ours(number));
        let count = written.packets.len();
        let expected = format!("{count} matched, {count} written, 0 dropped");
        assert!(said.contains(&expected), "{filter}: {said}");
        // Those that the host sends by itself came before either had begun, or after.
        let ours = replayed(&written.packets);
        let theirs = || replayed(&read_pcap(&theirs(number)));
        // On a signal tcpdump leaves what waits for it.
        wait(PATIENCE, || theirs() == ours);
        drop(tcpdump.interrupt());
        assert_eq!(ours, theirs(), "{filter}");
        assert_eq!((written.matched, written.dropped), (count as u64, 0), "{filter}");
        assert!(written.seen >= sent.len() as u64 && written.delivered == count as u64);
        assert_eq!(tcpdump_reads(&dir.path().join(format!("{number}.pcapng"))), count, "{filter}");
        let tells_apart = ours.contains(&true) && ours.contains(&false);
        assert!(tells_apart || filter.is_empty(), "{filter}: {ours:?}");
    }
}

/// In the driver tags are still in the packets, so `udp port 5000` does not match those behind one, as it does for
/// tcpdump.
#[test]
fn filters_in_the_driver_match_the_same() {
    let network = Network::ipv4_only();
    let dir = killed::temp_dir();
    let sent = frames();
    let filters = [
        "",
        "vlan 5 and udp",
        "tcp[((tcp[12] & 0xf0) >> 2)] = 0x78",
        "len > 100 or ip[0] & 0xf != 5 or icmp",
        "inbound and udp[4:2] / (ip[8] - 62) = 11 and not vlan",
    ];
    let warm_up = udp_to(MacAddr([2, 0, 0, 0, 0, 10]), NEAR_IP, 9, b"not among those sent");
    for (number, filter) in filters.into_iter().enumerate() {
        let (ours, theirs) =
            (dir.path().join(format!("{number}.pcapng")), dir.path().join(format!("{number}")));
        let arguments = ["--attach", "native", "-w", ours.to_str().unwrap(), "--", filter];
        let weir = Running::weir(&network, &arguments);
        let tcpdump = tcpdump(&network, &theirs, "");
        // Other hosts' frames end in the driver until the other capture has been noticed.
        wait_until("tcpdump has other hosts' frames", || {
            replay(&network, std::slice::from_ref(&warm_up));
            read_pcap(&theirs).contains(&warm_up)
        });
        wait_until("tcpdump has everything", || {
            replay(&network, &sent);
            read_pcap(&theirs).contains(&sent[sent.len() - 1])
        });
        weir.interrupt();
        tcpdump.interrupt();
        // Of what tcpdump has seen, the same that it finds in the file, where tags are in the packets, too.
        let matching = dir.path().join("matching");
        let mut command = Command::new("tcpdump");
        let filter = filter.trim_start_matches("inbound and ");
        let read = command.arg("-r").arg(&theirs).arg("-w").arg(&matching).arg(filter).output();
        assert!(read.unwrap().status.success());
        let ours = which(&sent, &read_pcapng(&ours).packets);
        assert_eq!(ours, which(&sent, &read_pcap(&matching)), "{filter}");
        assert!(ours.contains(&true), "{filter}");
    }
}

#[test]
fn on_lo_each_packet_is_there_once() {
    let network = Network::ipv4_only();
    let dir = killed::temp_dir();
    let path = dir.path().join("lo.pcapng");
    sh(&network, "ip link set lo up");
    let (to, from) = ("127.0.0.1:5000", "127.0.0.1:0");
    let (socket, sender) = (network.near_socket(to), network.near_socket(from));
    let capture = Running::weir_on(&network, "lo", &["-w", path.to_str().unwrap()]);
    (0..50).for_each(|_| assert_eq!(sender.send_to(b"once", to).unwrap(), 4));
    (0..50).for_each(|_| assert_eq!(socket.recv(&mut [0; 64]).unwrap(), 4));
    capture.interrupt();
    assert_eq!(read_pcapng(&path).packets.len(), 50);
}

/// At either place: what is few passes, what comes at once is taken up to a batch, and the host loses nothing.
#[test]
fn the_circuit_breaker_pauses_the_tap_and_not_the_host() {
    const OWN: usize = 100;
    let network = Network::ipv4_only();
    let dir = killed::temp_dir();
    let others = udp_to(MacAddr([2, 0, 0, 0, 0, 9]), NEAR_IP, 5000, b"fourteen bytes");
    let socket = network.near_socket("198.18.0.1:5000");
    let sender = network.far_socket("198.18.0.2:0");
    for place in ["socket", "native"] {
        let path = dir.path().join(place);
        let arguments = |batch| {
            ["--attach", place, "--direction", "in", batch, "--json", "-w", path.to_str().unwrap()]
        };
        let summary = |mut capture: Running| -> Value {
            kill_process(capture.pid(), Signal::INT).unwrap();
            let mut text = String::new();
            capture.0.stdout.as_mut().unwrap().read_to_string(&mut text).unwrap();
            serde_json::from_str(text.lines().last().unwrap()).unwrap()
        };
        let capture = Running::json(&network, &arguments("--circuit-breaker=10"));
        for _ in 0..OWN {
            replay(&network, &vec![others.clone(); 20]);
            sender.send_to(b"for the host", "198.18.0.1:5000").unwrap();
            assert_eq!(socket.recv(&mut [0; 64]).unwrap(), 12, "{place}");
        }
        let end = summary(capture);
        let count = |name: &str| end[name].as_u64().unwrap();
        assert!(count("paused") > 0 && count("written") >= 10, "{place}: {end}");
        assert_eq!(
            count("written") + count("paused"),
            count("interface_packets"),
            "{place}: {end}"
        );
        assert_eq!(read_pcapng(&path).packets.len() as u64, count("written"), "{place}");

        let capture = Running::json(&network, &arguments("--circuit-breaker"));
        replay(&network, &vec![others.clone(); 200]);
        // Behind them: what is still in the interface's ring is not captured.
        sender.send_to(b"for the host", "198.18.0.1:5000").unwrap();
        assert_eq!(socket.recv(&mut [0; 64]).unwrap(), 12, "{place}");
        let end = summary(capture);
        assert_eq!(
            (end["paused"].as_u64(), end["written"].as_u64()),
            (Some(0), Some(201)),
            "{place}: {end}"
        );
    }
}

#[test]
fn packets_are_cut_counted_and_divided_among_files() {
    let network = Network::ipv4_only();
    let dir = killed::temp_dir();
    let path = dir.path().join("cut.pcapng");
    let frame = udp_to(NEAR_MAC, NEAR_IP, 5000, &[7; 1000]);
    let sent = vec![frame.clone(); 500];
    let arguments = ["-w", path.to_str().unwrap(), "-s", "96", "-c", "3", "--direction", "in"];
    // Not among those above: of what comes first, tcpdump 4.99 misses some under `inbound`.
    let cut = Running::weir(&network, &[&arguments[..], &["inbound"]].concat());
    let rotated = dir.path().join("many.pcapng");
    let arguments = ["-w", rotated.to_str().unwrap(), "--rotate-size", "100k", "--keep", "2"];
    let many = Running::weir(&network, &[&arguments[..], &["udp port 5000"]].concat());
    // It reads all at once.
    kill_process(many.pid(), Signal::STOP).unwrap();
    // What a pipe's reader has it has at once.
    let mut piped = Running::weir(&network, &["-w", "-"]);
    let mut command = Command::new("tcpdump");
    command.args(["-n", "-c", "1", "-r", "-"]);
    command.stdin(piped.0.stdout.take().unwrap()).stdout(Stdio::piped()).stderr(Stdio::null());
    let tcpdump = command.spawn().unwrap();
    // It holds the pipe's end.
    drop(command);
    for some in sent.chunks(50) {
        replay(&network, some);
        std::thread::yield_now();
    }
    let said = cut.end();
    assert!(said.contains("3 written"), "{said}");
    let written = read_pcapng(&path);
    assert!(written.packets.iter().all(|packet| packet == &frame[..96]));
    assert_eq!(written.wire_lens, [frame.len() as u32; 3]);
    let printed = tcpdump.wait_with_output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    assert!(printed.contains("198.18.0.1.5000: UDP, length 1000"), "{printed}");
    // Its reader has gone, which is no error.
    replay(&network, &sent[..1]);
    let said = piped.end();
    assert!(said.contains("packets seen"));
    assert!(said.contains("nobody reads standard output any more"), "{said}");
    assert_every_one_is_told(&said);

    kill_process(many.pid(), Signal::CONT).unwrap();
    let said = many.interrupt();
    assert!(said.contains("501 written, 0 dropped"), "{said}");
    let mut names: Vec<String> = fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("many_"))
        .collect();
    names.sort();
    assert_eq!(names.len(), 2, "{names:?}");
    let counts: Vec<Written> =
        names.iter().map(|name| read_pcapng(&dir.path().join(name))).collect();
    assert!(names.iter().all(|name| tcpdump_reads(&dir.path().join(name)) > 0));
    // One packet more, at most, with what stands before and behind it.
    let length = fs::metadata(dir.path().join(&names[0])).unwrap().len();
    assert!((100_000..100_000 + 1_300).contains(&length), "{length}");
    assert_eq!((counts[1].matched, counts[1].delivered), (501, 501));
}

/// The gate at tc goes on discarding beside a tap, and the tap sees what it discards; a ring that is full loses
/// packets of the capture, and nothing of the host's.
#[test]
fn it_runs_beside_a_gate_and_tells_what_it_could_not_write() {
    let network = Network::ipv4_only();
    let dir = killed::temp_dir();
    let path = dir.path().join("flood.pcapng");
    // Generated packets reach a veth only with NAPI.
    network.poll_by_napi();
    let daemon = Daemon::start(&network, &["--attach", "tc"]);
    let full = network.near_socket("198.18.0.1:5000");
    let arguments = ["-w", path.to_str().unwrap(), "--buffer", "4096", "--direction", "in"];
    let capture = Running::weir(&network, &[&arguments[..], &["udp port 5000"]].concat());
    let flood = network.flow(5000, Some(100_000.0));
    network.while_sent(&[flood], None, |_| {
        wait_until("the gate discards", || network.count("udp-full") > 1000);
    });
    let sent = network.sent(0);
    let diversions = network.interface_status()["diversions"].clone();
    let passing = |each: &Value| each["passes_all"] == true;
    assert!(!diversions.as_array().unwrap().iter().any(passing), "{diversions}");
    let said = capture.interrupt();
    let written = read_pcapng(&path);
    assert_eq!(written.matched, written.delivered + written.dropped, "{said}");
    assert!(written.dropped > 0 && written.matched <= sent && written.matched > 1000, "{said}");
    assert!(said.contains("larger --buffer"), "{said}");
    assert_eq!(tcpdump_reads(&path) as u64, written.delivered);
    drop(full);
    daemon.interrupt();
}

/// What a capture of such frames says in the end.
fn until_the_disk_is_full(network: &Network, capture: Command, frame: &[u8]) -> String {
    let mut full = Running::start(network, capture);
    let until = Instant::now() + PATIENCE;
    while full.0.try_wait().unwrap().is_none() {
        replay(network, &vec![frame.to_vec(); 20]);
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
    let said = full.end_with(1);
    assert!(said.contains("No space left on device"), "{said}");
    said
}

/// Of packets that matched, each is in one of the counts that are said.
fn assert_every_one_is_told(said: &str) {
    let count = |what: &str| -> u64 {
        let before = said.split_once(what).unwrap_or_else(|| panic!("{said}")).0;
        before.rsplit(' ').next().unwrap().parse().unwrap()
    };
    let lost = count(" lost because the output could not be written any more");
    assert!(lost > 0, "{said}");
    assert_eq!(count(" matched"), count(" written") + count(" dropped") + lost, "{said}");
}

/// Standard output is not cut: somebody else may write to that file, too.
#[test]
fn on_a_full_disk_the_packets_that_fit_are_in_the_file_and_what_was_there_stays() {
    const DISK: usize = 1 << 16;
    const BEFORE: usize = 40_000;
    let network = Network::ipv4_only();
    let dir = killed::temp_dir();
    let (disk, copy) = (dir.path().join("disk"), dir.path().join("copy.pcapng"));
    fs::create_dir(&disk).unwrap();
    let frame = udp_to(NEAR_MAC, NEAR_IP, 5000, &[7; 1000]);
    for options in ["-w $DISK/file", "-w - >> $DISK/file"] {
        let script = format!(
            "mount -t tmpfs -o size={DISK} none $DISK && head -c {BEFORE} /dev/zero > $DISK/file \
             && {WEIR} capture -i {NEAR} {options}; code=$?; cp $DISK/file $COPY; exit $code"
        );
        let mut command = Command::new("unshare");
        command.env("DISK", &disk).env("COPY", &copy).args(["--mount", "sh", "-c", &script]);
        let said = until_the_disk_is_full(&network, command, &frame);
        assert_every_one_is_told(&said);
        let bytes = fs::read(&copy).unwrap();
        if options.contains(">>") {
            assert!(bytes.len() > BEFORE && bytes[..BEFORE].iter().all(|byte| *byte == 0));
            continue;
        }
        let packets = tcpdump_reads(&copy);
        assert!(said.contains(&format!(", {packets} written")), "{packets}: {said}");
        assert!([0, packets as u64].contains(&read_pcapng(&copy).delivered), "{packets}");
        // Another would not have fitted, with what stands before and behind it.
        assert!(bytes.len() + frame.len() + 40 > DISK, "{}", bytes.len());
    }
}

/// A full disk may leave no room for what the next file begins with.
#[test]
fn on_a_full_disk_a_rotation_leaves_no_empty_file() {
    let network = Network::ipv4_only();
    let dir = killed::temp_dir();
    let (disk, left) = (dir.path().join("disk"), dir.path().join("left"));
    fs::create_dir(&disk).unwrap();
    fs::create_dir(&left).unwrap();
    // The first file is full when the disk is.
    let script = format!(
        "mount -t tmpfs -o size=100k none $DISK && {WEIR} capture -i {NEAR} --rotate-size 100k \
         -w $DISK/many.pcapng; code=$?; cp $DISK/* $LEFT; exit $code"
    );
    let mut command = Command::new("unshare");
    command.env("DISK", &disk).env("LEFT", &left).args(["--mount", "sh", "-c", &script]);
    let frame = udp_to(NEAR_MAC, NEAR_IP, 5000, &[7; 1000]);
    let said = until_the_disk_is_full(&network, command, &frame);
    assert!(said.contains("_00002_"), "{said}");
    let names: Vec<_> = fs::read_dir(&left).unwrap().map(|file| file.unwrap().path()).collect();
    let [first] = &names[..] else { panic!("{names:?}: {said}") };
    assert!(tcpdump_reads(first) > 0, "{said}");
}

#[test]
fn what_ends_it_early_costs_no_packet_that_was_written() {
    let network = Network::ipv4_only();
    let dir = killed::temp_dir();
    // Killed: promiscuous mode goes with it.
    let promiscuous = || sh(&network, "ip -d link show near").contains("promiscuity 1");
    let path = dir.path().join("killed.pcapng");
    let mut killed = Running::weir(&network, &["-w", path.to_str().unwrap()]);
    assert!(promiscuous());
    killed.0.kill().unwrap();
    killed.0.wait().unwrap();
    wait_until("nothing is promiscuous", || !promiscuous());

    // The interface goes.
    let path = dir.path().join("gone.pcapng");
    let gone = Running::weir(&network, &["-w", path.to_str().unwrap()]);
    replay(&network, &frames());
    network.links(|links, ifindex| links.delete(ifindex).unwrap());
    let said = gone.end_with(1);
    assert!(said.contains("near is down or gone"), "{said}");
    let written = read_pcapng(&path);
    assert_eq!(written.packets.len() as u64, written.delivered);
    assert!(written.packets.len() >= frames().len());
}

/// One that comes back under the same name, before it is missed, is another.
#[test]
fn it_goes_on_with_the_interface_that_it_began_with_and_with_no_other() {
    let network = Network::ipv4_only();
    for options in [&["--count"][..], &["--count", "--attach", "native"]] {
        let mut gone = Running::weir(&network, options);
        sh(&network, "ip link set near down && ip link set near up");
        let began = Instant::now();
        wait_until("the interface has been looked at", || began.elapsed().as_secs() >= 2);
        assert!(gone.0.try_wait().unwrap().is_none(), "{options:?}: it ended");
        sh(
            &network,
            "ip link del near && ip link add near type veth peer name far && ip link set near up",
        );
        wait_until("it ends", || gone.0.try_wait().unwrap().is_some());
        let said = gone.end_with(1);
        assert!(said.contains("near is down or gone"), "{said}");
    }
}

#[test]
fn it_outlives_its_terminal_if_it_was_told_to() {
    let network = Network::ipv4_only();
    let dir = killed::temp_dir();
    let path = dir.path().join("long.pcapng");
    let mut command = Owned::ignoring_hangups(WEIR);
    command.args(["capture", "-i", NEAR, "-w", path.to_str().unwrap()]);
    let capture = Running::start(&network, command);
    capture.0.signal(Signal::HUP);
    // More than may come before it hears of the signal.
    let frame = udp_to(NEAR_MAC, NEAR_IP, 5000, &[7; 1000]);
    wait_until("it goes on", || {
        replay(&network, std::slice::from_ref(&frame));
        fs::metadata(&path).unwrap().len() > 100 * 1000
    });
    capture.interrupt();
    assert!(read_pcapng(&path).packets.len() > 50);
}

#[test]
fn what_is_asked_for_wrongly_is_refused_with_a_remedy() {
    let network = Network::ipv4_only();
    let refusal = |arguments: &[&str]| {
        failure(&network.weir(&[&["capture", "-i", NEAR], arguments].concat()), 1)
    };
    let said = refusal(&["--count", "udp", "prot", "53"]);
    assert!(said.contains("\"udp prot 53\" does not compile"), "{said}");
    assert!(said.contains("man pcap-filter"), "{said}");
    let said = refusal(&["-w", "/nonexistent/x"]);
    assert!(said.contains("cannot write /nonexistent/x: No such file"), "{said}");
    assert!(refusal(&["-w", "x", "--keep", "3"]).contains("--rotate-size"));
    let said = refusal(&["--count", "ip6 protochain 17"]);
    assert!(said.contains("cannot run in the kernel: it is a loop"), "{said}");
    let said = refusal(&["--count", "--circuit-breaker", "250"]);
    assert!(said.contains("write `--circuit-breaker=250`"), "{said}");
    assert!(refusal(&["-w", "-", "--json"]).contains("write to a file"));
    network.links(|links: &Links, ifindex| links.set_down(ifindex).unwrap());
    assert!(refusal(&["--count"]).contains("`ip link set near up`"));
    let said = failure(&network.weir(&["capture", "-i", "eth99", "--count"]), 1);
    assert!(said.contains("no interface named \"eth99\""), "{said}");
    let said = failure(&network.weir(&["capture", "-i", "any", "--count"]), 1);
    assert!(said.contains("`tcpdump -i any`"), "{said}");
    let said = failure(&network.weir(&["capture", "-i", NEAR]), 2);
    assert!(said.contains("--count"), "{said}");
}

#[test]
fn counts_are_printed_each_second_and_as_json() {
    let network = Network::ipv4_only();
    let run = |arguments: &[&str]| {
        let all = [&["capture", "-i", NEAR, "--count", "--duration", "2s"], arguments].concat();
        network.weir(&all)
    };
    let output = std::thread::scope(|scope| {
        let running = scope.spawn(|| run(&["--json", "udp"]));
        while !running.is_finished() {
            replay(&network, &frames());
            std::thread::yield_now();
        }
        running.join().unwrap()
    });
    let lines: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["event"], "ready");
    let status = &lines[1];
    assert_eq!(status["event"], "status");
    let number = |value: &Value| value.as_u64().unwrap();
    assert!(number(&status["matched_pps"]) > 0, "{status}");
    assert!(number(&status["matched_pps"]) < number(&status["seen_pps"]), "{status}");
    let summary = lines.last().unwrap();
    assert_eq!((&summary["event"], &summary["ended_by"]), (&"summary".into(), &"duration".into()));
    assert!(summary["written"].is_null() && number(&summary["matched"]) > 0, "{summary}");
}
