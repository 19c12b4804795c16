//! How a screen begins, ends, and takes another's place.

use std::io::BufRead;
use std::process::Stdio;

use libbpf_rs::{MapCore, MapHandle};
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use weir_bpf::parser::Parser;

use super::*;

/// What `weir status --check` says where no daemon runs, and nothing else is wrong.
const DOWN: &str = "weir does not run (if weir is a service, `systemctl status weir` says why)\n";

/// A dead screen accepts no flow again that was forgotten.
#[test]
fn a_flow_in_use_is_not_forgotten() {
    let (path, _rules, mut screen) = screened(RULES, &["--idle", "2s"]);
    let (client, server, there) = ends(&path, 5000);
    echoes(&client, &server, &there);
    screen.kill();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(4) {
        echoes(&client, &server, &there);
    }
    // As long as it may be remembered, nothing is sent.
    server.set_read_timeout(Some(Duration::from_millis(3500))).unwrap();
    server.recv(&mut [0; 16]).unwrap_err();
    assert!(!arrives(&client, &server, &there), "it is forgotten");
}

#[test]
fn a_screen_that_is_to_fail_open_does_so_when_it_is_stopped_and_when_it_is_killed() {
    let (path, _rules, mut screen) = screened(RULES, &["--fail", "open"]);
    let (client, server, there) = ends(&path, 5001);
    assert!(!arrives(&client, &server, &there));
    screen.signal(Signal::STOP);
    wait_until("a stopped screen lets packets pass", || arrives(&client, &server, &there));
    screen.signal(Signal::CONT);
    wait_until("it goes on", || !arrives(&client, &server, &there));
    screen.kill();
    wait_until("a dead one lets packets pass", || arrives(&client, &server, &there));
    clear(&path);
}

/// Whoever changes interfaces may hold the kernel's lock (RTNL) for longer than a screen is believed to live.
#[test]
fn new_flows_are_judged_while_somebody_changes_interfaces() {
    const HOLDS: &str = include_str!("holds_rtnl.py");
    for (place, fail) in [("tc", "closed"), ("native", "closed"), ("tc", "open")] {
        let (path, _rules, screen) = screened(RULES, &["--attach", place, "--fail", fail]);
        let server = socket(&path.server, &format!("{SERVER}:5000"));
        let closed = socket(&path.server, &format!("{SERVER}:5001"));
        let mut holder = Command::new("timeout");
        holder.args(["30", "python3", "-c", HOLDS, "in"]);
        holder.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut holder = path.router.run(|| holder.spawn().unwrap()).unwrap();
        let mut held = String::new();
        let mut said = std::io::BufReader::new(holder.stdout.take().unwrap());
        said.read_line(&mut held).unwrap();
        assert_eq!(held, "held\n");
        let begun = Instant::now();
        for port in (4000..).take_while(|_| begun.elapsed() < Duration::from_millis(2500)) {
            let client = socket(&path.client, &format!("198.18.0.2:{port}"));
            assert!(arrives(&client, &server, &format!("{SERVER}:5000")), "{place}: flow {port}");
            assert!(!arrives(&client, &closed, &format!("{SERVER}:5001")), "{place}, {fail}");
        }
        drop(holder.stdin.take());
        holder.wait().unwrap();
        drop(screen);
    }
}

#[test]
fn a_screen_that_another_has_replaced_takes_nothing_away() {
    let path = Path::new();
    let rules = ConfigFile::new("rules", RULES);
    let (client, server, there) = ends(&path, 5000);
    let closed = socket(&path.server, "198.19.0.2:5001");
    for options in [["--attach", "tc"], ["--attach", "native"]] {
        let options = [&options[..], &["--fail", "open"]].concat();
        let mut first = Screen::start(&path, &rules, &options);
        let _second = Screen::start(&path, &rules, &options);
        first.signal(Signal::TERM);
        first.child.wait().unwrap();
        echoes(&client, &server, &there);
        assert!(!arrives(&client, &closed, "198.19.0.2:5001"));
    }
}

#[test]
fn mistakes_are_told_with_their_place_and_nothing_is_attached() {
    let rules = ConfigFile::new("screening-wrong", "accept tcp\naccept udp to any prot 53\n");
    let check = |path: &str| {
        let output = Command::new(WEIR).args(["screen", path, "--check"]).output().unwrap();
        failure(&output, 1)
    };
    let said = check(rules.path());
    assert!(said.contains("line 2, column 19: \"prot\" has no place here"), "{said}");
    rules.write("# accept udp\n\n");
    let said = check(rules.path());
    assert!(said.contains("has no rule"), "{said}");
    let said = check("/dev/zero");
    assert!(said.contains("cannot read /dev/zero: it is larger than"), "{said}");
}

#[test]
fn where_one_side_is_not_to_be_had_the_other_stays_open() {
    let path = Path::new();
    let rules = ConfigFile::new("screening-sides", "drop\n");
    sh(&path.router, "ip tuntap add tun0 mode tun; ip link set tun0 up");
    for (outside, says) in [
        ("nosuch", "no interface named"),
        ("in", "cannot be both sides"),
        ("lo", "lo is the loopback interface"),
        ("tun0", "packets of tun0 have no Ethernet header"),
    ] {
        let output = path.weir(&["screen", rules.path(), "--in", "in", "--out", outside]);
        let said = failure(&output, 1);
        assert!(said.contains(says), "{said}");
        let left = path.weir(&["screen", "--clear", "in"]);
        let left = String::from_utf8(left.stderr).unwrap();
        assert_eq!(left, "in: there was no wall\n", "of {outside}");
    }
}

/// What `weir status` says in three forms, and whether the doctor finds that a wall was left.
fn said_of_walls(path: &Path) -> (Value, String, String, bool) {
    let text = |output: std::process::Output| String::from_utf8(output.stdout).unwrap();
    let json = |command| -> Value {
        serde_json::from_slice(&path.weir(&[command, "--json"]).stdout).unwrap()
    };
    let check = path.weir(&["status", "--check"]);
    assert_eq!(check.status.code(), Some(3), "no weir runs: {check:?}");
    let findings = json("doctor")["findings"].clone();
    let found = findings.as_array().unwrap().iter().any(|each| each["cause"] == "wall-left");
    let status = json("status");
    fields::STATUS.has_all_of(std::slice::from_ref(&status), &["walls"]);
    (status["walls"].clone(), text(path.weir(&["status"])), text(check), found)
}

#[test]
fn a_wall_that_was_left_is_told_and_so_is_a_screen_that_runs() {
    for (place, fail) in [("tc", "closed"), ("native", "closed"), ("native", "open")] {
        let (path, _rules, mut screen) = screened(RULES, &["--attach", place, "--fail", fail]);
        let pid = screen.child.id();
        let (walls, text, check, found) = said_of_walls(&path);
        assert_eq!(walls[0]["screen_pid"], pid, "{walls}");
        assert_eq!(walls[1]["fail_open"], fail == "open", "{walls}");
        assert!(text.contains(&format!("wall at in: its screen runs, pid {pid}\n")), "{text}");
        assert!(check == DOWN && !found, "{check}");
        let passes =
            if fail == "open" { "passes" } else { "is dropped, but for flows that were accepted" };
        assert_eq!(walls[0]["judges"], true, "{walls}");
        screen.signal(Signal::STOP);
        let status = || path.weir(&["status", "--json"]).stdout;
        wait_until("it does not judge", || {
            let status: Value = serde_json::from_slice(&status()).unwrap();
            status["walls"][1]["judges"] == false
        });
        let (walls, text, check, found) = said_of_walls(&path);
        let says = format!(
            "wall at in: its screen, pid {pid}, is stopped or gets no CPU time: what is forwarded {passes}; `sudo kill -CONT {pid}` continues it"
        );
        assert_eq!(walls[0]["screen_pid"], pid, "{walls}");
        assert!(text.contains(&says) && check.contains(&says) && found, "{text}{check}");
        screen.signal(Signal::CONT);
        screen.kill();
        let (walls, text, check, found) = said_of_walls(&path);
        let says = format!(
            "wall at out: no screen judges: what is forwarded {passes}; `sudo weir screen --clear out` removes it"
        );
        assert!(walls[1]["interface"] == "out" && walls[1]["screen_pid"].is_null(), "{walls}");
        assert!(text.contains(&says) && check.contains(&says), "{text}{check}");
        assert!(found);
        clear(&path);
        let (walls, text, check, found) = said_of_walls(&path);
        assert!(walls == serde_json::json!([]) && !found, "{walls}");
        assert!(!text.contains("wall") && check == DOWN, "{text}{check}");
    }
}

/// A bridge has no driver that takes a program.
#[test]
fn a_screen_that_is_refused_changes_nothing() {
    for place in ["tc", "native"] {
        let path = Path::new();
        let rules = ConfigFile::new(&format!("screening-refused-{place}"), RULES);
        sh(&path.router, "ip link add bridge type bridge; ip link set bridge up");
        let mut screen = Screen::start(&path, &rules, &["--attach", place]);
        let (client, server, there) = ends(&path, 5000);
        echoes(&client, &server, &there);
        let sides = ["--in=in", "--out=bridge", "--attach=native"];
        let said = failure(&path.weir(&[&["screen", rules.path()], &sides[..]].concat()), 1);
        assert!(said.contains("cannot put a wall in front of bridge"), "{said}");
        echoes(&client, &server, &there);
        let stats = screen.stats();
        assert_eq!(of_rule(&stats, "port 5000", "packets"), 4, "by the wall that stood: {stats}");
        let left = path.weir(&["screen", "--clear", "bridge"]);
        assert_eq!(String::from_utf8(left.stderr).unwrap(), "bridge: there was no wall\n");
        let link = sh(&path.router, "ip link show in");
        assert_eq!(link.contains("prog/xdp"), place == "native", "{link}");
    }
}

#[test]
fn a_screen_at_another_place_takes_over_what_stands_there() {
    for (place, other) in [("tc", "native"), ("native", "tc")] {
        let path = Path::new();
        let rules = ConfigFile::new(&format!("screening-from-{place}"), RULES);
        Screen::start(&path, &rules, &["--attach", place]).kill();
        let mut screen = Screen::start(&path, &rules, &["--attach", other]);
        let (client, server, there) = ends(&path, 5000);
        let closed = socket(&path.server, &format!("{SERVER}:5001"));
        echoes(&client, &server, &there);
        assert!(!arrives(&client, &closed, &format!("{SERVER}:5001")), "from {place}");
        screen.kill();
        clear(&path);
        echoes(&client, &closed, &format!("{SERVER}:5001"));
    }
}

#[test]
fn a_wall_that_is_gone_leaves_no_queueing_discipline_of_its_own() {
    let path = Path::new();
    sh(&path.router, "tc qdisc add dev out clsact");
    let rules = ConfigFile::new("screening-clsact", RULES);
    // The second finds the first one's.
    for _ in 0..2 {
        Screen::start(&path, &rules, &[]).kill();
    }
    let cleared = path.weir(&["screen", "--clear", "in", "--clear", "out", "--clear", "out"]);
    let said = String::from_utf8(cleared.stderr).unwrap();
    let expected = "in: the wall is gone\nout: the wall is gone\nout: there was no wall\n";
    assert_eq!(said, expected);
    assert_eq!(sh(&path.router, "tc qdisc show dev in clsact"), "");
    assert!(sh(&path.router, "tc qdisc show dev out clsact").contains("clsact"));
}

/// Lets nobody write to the maps of a screen's verdicts any more.
fn freeze_verdicts(screen: &Screen) {
    let fds = std::fs::read_dir(format!("/proc/{}/fdinfo", screen.child.pid())).unwrap();
    // What it has open for a moment may be gone by now.
    let texts = fds.filter_map(|fd| std::fs::read_to_string(fd.unwrap().path()).ok());
    let ids = texts.filter_map(|text| {
        let id = text.lines().find_map(|line| line.strip_prefix("map_id:"))?;
        id.trim().parse().ok()
    });
    let maps = ids.map(|id| MapHandle::from_map_id(id).unwrap());
    let frozen = maps.filter(|map| map.name() == "accepted" || map.name() == "denied");
    assert_eq!(frozen.map(|map| map.freeze().unwrap()).count(), 2);
}

#[test]
fn a_verdict_that_the_kernel_does_not_take_ends_no_screen() {
    let (path, _rules, mut screen) = screened(RULES, &[]);
    let client = socket(&path.client, "198.18.0.2:4000");
    let servers = [5000, 5001, 5002].map(|port| socket(&path.server, &format!("{SERVER}:{port}")));
    let to = [5000, 5001, 5002].map(|port| format!("{SERVER}:{port}"));
    echoes(&client, &servers[0], &to[0]);
    freeze_verdicts(&screen);
    // One is not to be denied and the other not to be accepted.
    for _ in 0..2 {
        assert!(!arrives(&client, &servers[1], &to[1]) && !arrives(&client, &servers[2], &to[2]));
    }
    echoes(&client, &servers[0], &to[0]);
    let stats = screen.stats();
    assert_eq!(stats["untold"], 4, "{stats}");
    assert_eq!(of_rule(&stats, "port 5000", "lost"), 2, "{stats}");
    let said = screen.interrupt();
    assert_eq!(said.matches("cannot tell the wall").count(), 1, "{said}");
}

/// What a screen says that ends of its own accord, and fails.
fn last_words(screen: &mut Screen) -> String {
    assert_eq!(screen.child.end().code(), Some(1));
    screen.child.last_words()
}

#[test]
fn a_screen_without_its_wall_fails() {
    for (place, remove) in [
        ("native", "ip link set in xdpdrv off"),
        ("tc", "tc qdisc del dev in clsact"),
        ("tc", "ip link del in"),
    ] {
        let (path, _rules, mut screen) = screened(RULES, &["--attach", place]);
        sh(&path.router, remove);
        let said = last_words(&mut screen);
        assert!(said.contains("the wall of in is gone"), "{remove}: {said}");
        assert!(said.contains("out stays closed"), "{remove}: {said}");
        assert!(!said.contains("Kernel"), "{remove}: {said}");
    }
}

#[test]
fn a_screen_names_a_renamed_interface_as_it_is_called_now() {
    let (path, _rules, mut screen) = screened(RULES, &["--log"]);
    sh(
        &path.router,
        "ip link set in down && ip link set in name renamed && ip link set renamed up",
    );
    let client = socket(&path.client, "198.18.0.2:4000");
    client.send_to(b"there", format!("{SERVER}:5000")).unwrap();
    assert_eq!(screen.event("decision")["interface"], "renamed");
    let said = screen.interrupt();
    assert!(
        said.contains("renamed stays closed; `weir screen --clear renamed` opens it"),
        "{said}"
    );
    let cleared = path.weir(&["screen", "--clear", "renamed", "--clear", "out"]);
    let cleared = String::from_utf8(cleared.stderr).unwrap();
    assert_eq!(cleared, "renamed: the wall is gone\nout: the wall is gone\n");
}

/// A filter that accepts every packet, so that none behind it sees one.
fn accept_all(options: &str) -> String {
    format!("tc filter add dev in ingress {options} protocol all u32 match u32 0 0 flowid 1:1")
}

#[test]
fn no_filter_passes_packets_by_a_wall() {
    let path = Path::new();
    let rules = ConfigFile::new("screening-before", RULES);
    sh(&path.router, "tc qdisc add dev in clsact");
    sh(&path.router, &accept_all(""));
    let mut screen = Screen::start(&path, &rules, &[]);
    sh(&path.router, &accept_all(""));
    let (client, server, there) = ends(&path, 5000);
    let closed = socket(&path.server, &format!("{SERVER}:5001"));
    assert!(!arrives(&client, &closed, &format!("{SERVER}:5001")), "filters come behind the wall");
    echoes(&client, &server, &there);
    sh(&path.router, &accept_all("chain 1 pref 1"));
    screen.stats();
    screen.kill();
    clear(&path);
    sh(&path.router, &accept_all("pref 1"));
    let said = failure(&path.weir(&["screen", rules.path(), "--in", "in", "--out", "out"]), 1);
    assert!(
        said.contains("on in, and may pass packets by it: a tc filter with preference 1"),
        "{said}"
    );
}

#[test]
fn a_screen_fails_once_a_filter_comes_before_its_wall() {
    let (path, _rules, mut screen) = screened(RULES, &[]);
    // Of filters with the wall's preference, the newest is the first.
    sh(&path.router, "tc filter add dev in ingress pref 1 protocol all bpf bytecode '1,6 0 0 0'");
    let said = last_words(&mut screen);
    assert!(
        said.contains("has come before the wall of in, and may pass packets by it: a tc filter"),
        "{said}"
    );
    assert!(said.contains("in stays closed"), "{said}");
}

#[test]
fn a_screen_that_another_has_replaced_fails_and_a_wall_in_use_is_not_cleared() {
    let path = Path::new();
    let rules = ConfigFile::new("screening-in-use", RULES);
    let mut first = Screen::start(&path, &rules, &[]);
    let mut second = Screen::start(&path, &rules, &["--attach", "native"]);
    assert!(last_words(&mut first).contains("the wall of in is gone"));
    let said = failure(&path.weir(&["screen", "--clear", "in"]), 1);
    assert!(said.contains(&format!("process {}", second.child.pid())), "{said}");
    second.stats();
}

/// An Ethernet frame to the router's `in`.
fn frame(ethertype: u16, payload: &[u8]) -> Vec<u8> {
    let [router, client] = [0x01, 0x02].map(|last| [2, 0, 0, 0, 1, last]);
    [&router[..], &client, &ethertype.to_be_bytes(), payload].concat()
}

/// A UDP datagram from the client, from port 4000 to 5000, with these options.
fn ip4(to: [u8; 4], options: &[u8]) -> Vec<u8> {
    let header_len = 20 + options.len() as u8;
    let header = [0x40 | (header_len / 4), 0, 0, header_len + 8, 0, 0, 0, 0, 64, 17, 0, 0];
    let udp = [0x0f, 0xa0, 0x13, 0x88, 0, 8, 0, 0];
    frame(0x0800, &[&header[..], &[198, 18, 0, 2], &to, options, &udp].concat())
}

/// A pcap file of packets: when they were captured, in seconds, how long they were, and what there is of them.
fn capture_with(packets: &[(u64, usize, Vec<u8>)]) -> Vec<u8> {
    let header = PcapHeader { snaplen: 1 << 18, ..PcapHeader::default() };
    let mut writer = PcapWriter::with_header(Vec::new(), header).unwrap();
    for (secs, len, data) in packets {
        let packet = PcapPacket::new(Duration::from_secs(*secs), *len as u32, data);
        writer.write_packet(&packet).unwrap();
    }
    writer.into_writer()
}

/// A pcap file of these.
fn capture_of(frames: &[Vec<u8>]) -> Vec<u8> {
    let packets: Vec<_> = frames.iter().map(|frame| (1, frame.len(), frame.clone())).collect();
    capture_with(&packets)
}

/// What answers a frame of [`ip4()`] without options.
fn answer_to(frame: &[u8]) -> Vec<u8> {
    let [head, source, destination, source_port, port, rest] =
        [0..26, 26..30, 30..34, 34..36, 36..38, 38..frame.len()].map(|at| &frame[at]);
    [head, destination, source, port, source_port, rest].concat()
}

/// What `weir screen --explain` says of a capture on standard error, and its lines.
fn explain(path: &Path, rules: &ConfigFile, capture: &ConfigFile) -> (String, Vec<Value>) {
    let output = path.weir(&["screen", rules.path(), "--explain", capture.path(), "--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (String::from_utf8(output.stderr).unwrap(), lines)
}

/// What the rules are not asked of is said to pass or to be dropped as the wall has it.
#[test]
fn a_capture_is_explained_as_the_wall_has_it() {
    let (path, rules, mut screen) = screened("accept udp to 198.19.0.0/24 log\n", &[]);
    let [server, own, group] = [[198, 19, 0, 2], [198, 18, 0, 1], [224, 0, 1, 1]];
    let link_local =
        [&[0x60, 0, 0, 0, 0, 0, 59, 64, 0xfe, 0x80][..], &[1; 14], &[0xfe, 0x80], &[1; 14]];
    let tags = [[0, 1, 0x81, 0]; 3].concat();
    let mut cut = ip4(server, &[]);
    cut.truncate(30);
    let cases = [
        (frame(0x0806, &[0; 28]), "pass", "ARP", "own"),
        (frame(0x88cc, &[0; 28]), "pass", "ethertype 0x88cc", "own"),
        (frame(0x86dd, &link_local.concat()), "pass", "proto 59", "own"),
        (ip4(group, &[]), "pass", "udp", "own"),
        (cut, "drop", "malformed", "unclear"),
        (
            frame(0x8100, &[&tags[..], &[0, 1, 8, 0], &[0; 40]].concat()),
            "drop",
            "too many VLAN tags",
            "unclear",
        ),
        (frame(0x8847, &[0; 40]), "drop", "MPLS", "unclear"),
        (frame(0x8848, &[0; 40]), "drop", "MPLS", "unclear"),
        (frame(0x8863, &[0; 40]), "pass", "ethertype 0x8863", "own"),
        (frame(0x8864, &[0; 40]), "drop", "PPPoE", "unclear"),
        (frame(0x88e5, &[0; 40]), "drop", "MACsec", "unclear"),
        (frame(0x8100, &[&[0, 1, 0x88, 0x64][..], &[0; 40]].concat()), "drop", "PPPoE", "unclear"),
        (ip4(server, &[131, 3, 4, 0]), "drop", "udp", "unclear"),
        (ip4(server, &[]), "accept", "udp", "asked"),
        // The rules alone are asked.
        (ip4(own, &[]), "drop", "udp", "own"),
    ];
    let mut parser = Parser::load().unwrap();
    let ifindex = path.router.run(|| Links::open().unwrap().index("in").unwrap()).unwrap();
    for (frame, _, packet, outcome) in &cases {
        let before = screen.stats()["outcomes"][outcome].as_u64().unwrap();
        path.router.run(|| parser.deliver(frame, ifindex).unwrap()).unwrap();
        let count = screen.stats()["outcomes"][outcome].as_u64().unwrap();
        assert!(count > before, "{packet} is not {outcome}");
    }
    let frames: Vec<_> = cases.iter().map(|(frame, ..)| frame.clone()).collect();
    let capture = ConfigFile::new("capture", &capture_of(&frames));
    let (said, lines) = explain(&path, &rules, &capture);
    assert!(said.contains("does not show the router's own addresses"), "{said}");
    assert_eq!(lines.len(), cases.len());
    for (line, (_, action, packet, outcome)) in lines.iter().zip(&cases) {
        assert_eq!(
            (&line["schema"], &line["action"]),
            (&1.into(), &Value::from(*action)),
            "{line}"
        );
        assert!(line["packet"].as_str().unwrap().starts_with(packet), "{line}");
        let is_judged = *packet == "udp" && *outcome != "unclear" && *action != "pass";
        let starts = if is_judged { "" } else { outcome };
        assert!(line["rule"].as_str().unwrap().starts_with(starts), "{line}");
    }
}

/// What is not Ethernet is not taken for it, and what is compressed is named with this command.
#[test]
fn a_capture_of_another_link_type_or_a_compressed_one_is_not_judged() {
    use pcap_file::pcapng::PcapNgWriter;
    use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
    use pcap_file::pcapng::blocks::interface_description::InterfaceDescriptionBlock;
    let path = Path::new();
    let rules = ConfigFile::new("screening-links", "accept udp\n");
    let mut writer = PcapNgWriter::new(Vec::new()).unwrap();
    for linktype in [pcap_file::DataLink::ETHERNET, pcap_file::DataLink::LINUX_SLL] {
        let interface = InterfaceDescriptionBlock { linktype, snaplen: 0, options: vec![] };
        writer.write_pcapng_block(interface).unwrap();
    }
    let data = ip4([198, 19, 0, 2], &[]);
    for interface_id in [0, 1] {
        let original_len = data.len() as u32;
        let (data, timestamp) = ((&data).into(), Duration::from_secs(1));
        let block =
            EnhancedPacketBlock { interface_id, timestamp, original_len, data, options: vec![] };
        writer.write_pcapng_block(block).unwrap();
    }
    let (said, lines) = explain(&path, &rules, &ConfigFile::new("capture", &writer.into_inner()));
    assert_eq!((&lines[0]["action"], &lines[1]["action"]), (&"accept".into(), &"-".into()));
    assert!(lines[1]["rule"].as_str().unwrap().starts_with("of a link type"), "{}", lines[1]);
    assert!(said.contains("LINUX_SLL"), "{said}");
    let (said, _) = explain(&path, &rules, &ConfigFile::new("capture", b"\x1f\x8b\x08\0"));
    assert!(said.contains("`zcat FILE | weir screen RULES --explain -`"), "{said}");
    let output = Command::new(WEIR).args(["screen", rules.path(), "--check"]).output().unwrap();
    assert!(output.stdout.ends_with(b": 1 rule\n"), "{output:?}");
}

/// What `weir screen --explain` does with each of these packets, by the rule that accepts what goes to the server.
fn actions(packets: &[(u64, usize, Vec<u8>)], options: &[&str]) -> Vec<(String, String)> {
    let path = Path::new();
    let rules = ConfigFile::new("screening-actions", "accept udp to 198.19.0.0/24\n");
    let capture = ConfigFile::new("capture", &capture_with(packets));
    let command = ["screen", rules.path(), "--explain", capture.path(), "--json"];
    let output = path.weir(&[&command, options].concat());
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    lines
        .map(|line| ["action", "rule"].map(|field| line[field].as_str().unwrap().to_owned()))
        .map(|[action, rule]| (action, rule))
        .collect()
}

#[test]
fn a_packet_that_is_too_long_ends_no_explanation() {
    let short = ip4([198, 19, 0, 2], &[]);
    let mut long = short.clone();
    long.resize(100_000, 0);
    let actions = actions(&[(1, long.len(), long), (1, short.len(), short)], &[]);
    assert_eq!(actions.len(), 2, "{actions:?}");
    assert_eq!(actions[0], ("-".into(), "too long to be judged".into()));
    assert_eq!(actions[1].0, "accept");
}

#[test]
fn a_packet_is_explained_before_the_next_is_captured() {
    let path = Path::new();
    let rules = ConfigFile::new("screening-live", "drop udp\n");
    let mut command = Command::new(WEIR);
    command.args(["screen", rules.path(), "--explain", "-"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut screen = path.router.run(|| Owned::start(&mut command)).unwrap();
    let mut stdin = screen.stdin.take().unwrap();
    stdin.write_all(&capture_of(&[ip4([198, 19, 0, 2], &[])])).unwrap();
    let mut lines = std::io::BufReader::new(screen.stdout.take().unwrap()).lines();
    let (tells, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || tells.send(lines.next().unwrap().unwrap()));
    let line = told.recv_timeout(PATIENCE).unwrap();
    assert!(line.contains("drop   udp"), "{line}");
    drop(stdin);
}

#[test]
fn a_quiet_flow_is_explained_anew() {
    let request = ip4([198, 19, 0, 2], &[]);
    let reply = answer_to(&request);
    let at = |secs: u64, frame: &[u8]| (secs, frame.len(), frame.to_vec());
    let packets = [at(1, &request), at(200, &reply), at(400, &reply), at(800, &reply)];
    let judged = |options: &[&str]| {
        actions(&packets, options).into_iter().map(|(action, _)| action).collect::<Vec<_>>()
    };
    assert_eq!(judged(&[]), ["accept", "accept", "accept", "drop"]);
    assert_eq!(judged(&["--idle", "1h"]), ["accept"; 4]);
}

/// As many as the wall remembers: accepted ones, and established ones.
#[test]
fn no_more_flows_are_remembered_for_an_explanation_than_by_the_wall() {
    let request = |number: u16| {
        let mut frame = ip4([198, 19, 0, 2], &[]);
        frame[34..36].copy_from_slice(&number.to_be_bytes());
        (1, frame.len(), frame)
    };
    let reply = |number: u16| {
        let (secs, len, frame) = request(number);
        (secs, len, answer_to(&frame))
    };
    let mut packets: Vec<_> = (0..2049).map(request).collect();
    packets.extend([reply(0), reply(2048)]);
    let actions = actions(&packets, &["--flows", "1024"]);
    assert_eq!([&actions[2049].0, &actions[2050].0], ["drop", "accept"]);
}

#[test]
fn a_packet_is_explained_that_was_captured_as_far_as_its_headers_go() {
    let mut request = ip4([198, 19, 0, 2], &[]);
    let whole = 1042;
    request[16..18].copy_from_slice(&1028_u16.to_be_bytes());
    request[38..40].copy_from_slice(&1008_u16.to_be_bytes());
    let reply = answer_to(&request);
    for len in [0, 10, 20, 30, 36, 39] {
        let actions = actions(&[(1, whole, request[..len].to_vec())], &[]);
        assert_eq!(actions, [("-".into(), "the missing part decides".into())], "{len}");
    }
    let actions = actions(&[(1, whole, request), (1, whole, reply)], &[]);
    assert_eq!([&actions[0].0, &actions[1].0], ["accept"; 2]);
    assert!(actions[1].1.starts_with("in answer to"), "{actions:?}");
}

#[test]
fn what_a_screen_prints_has_its_time_and_interface_and_is_described() {
    let path = Path::new();
    let rules = ConfigFile::new("screening-times", "drop udp log\n");
    let (mut screen, ready) = Screen::start_and_tell(&path, &rules, &[]);
    let client = socket(&path.client, "198.18.0.2:4000");
    client.send_to(b"there", format!("{SERVER}:5000")).unwrap();
    let decision = screen.event("decision");
    assert_eq!((&decision["schema"], &decision["interface"]), (&1.into(), &"in".into()));
    let stats = screen.stats();
    screen.signal(Signal::HUP);
    let lines = [ready, decision, stats, screen.event("summary"), screen.event("reloaded")];
    for line in &lines {
        let time = humantime::parse_rfc3339(line["time"].as_str().unwrap()).unwrap();
        assert!(time.elapsed().unwrap() < PATIENCE, "{line}");
    }
    let capture = ConfigFile::new("capture", &capture_of(&[ip4([198, 19, 0, 2], &[])]));
    let explained = explain(&path, &rules, &capture).1;
    let all = [&lines[..], &explained].concat();
    fields::SCREEN.has_all_of(&all, &["rejections", "not-held", "number"]);
    fields::SCREEN.has_only(&all);
}

/// An interface's name may have any character, and what stands between a rule's words any space.
#[test]
fn no_name_and_no_rule_moves_the_cursor() {
    let path = Path::new();
    let rules = ConfigFile::new("screening-names", "drop\u{2028}udp\x0blog\n");
    sh(&path.router, "ip link set in down; ip link set in name \"$(printf 'in\\033[2J')\"");
    sh(&path.router, "ip link set \"$(printf 'in\\033[2J')\" up");
    let mut command = Command::new(WEIR);
    command.args(["screen", rules.path(), "--in", "in\x1b[2J", "--out", "out"]);
    let mut screen = path.router.run(|| Owned::start(command.stdout(Stdio::piped()))).unwrap();
    let mut lines = std::io::BufReader::new(screen.stdout.take().unwrap()).lines();
    let mut line = || lines.next().unwrap().unwrap();
    assert!(line().starts_with("screening between in\\x1b[2J and out by 1 rule;"));
    let client = socket(&path.client, "198.18.0.2:4000");
    client.send_to(b"there", format!("{SERVER}:5000")).unwrap();
    let decision = line();
    assert!(decision.contains(" in\\x1b[2J drop   udp"), "{decision}");
    assert!(decision.contains("(line 1: drop\\u{2028}udp\\x0blog)"), "{decision}");
    screen.signal(Signal::INT);
    let rest: Vec<_> = std::iter::from_fn(|| lines.next()).map(Result::unwrap).collect();
    assert!(rest.iter().any(|line| line.ends_with("line 1: drop\\u{2028}udp\\x0blog")), "{rest:?}");

    let capture = ConfigFile::new("capture", &capture_of(&[ip4([198, 19, 0, 2], &[])]));
    let explained = path.weir(&["screen", rules.path(), "--explain", capture.path()]).stdout;
    let explained = String::from_utf8(explained).unwrap();
    assert!(explained.ends_with("(line 1: drop\\u{2028}udp\\x0blog)\n"), "{explained}");
    let rules = ConfigFile::new("screening-c1", "drop\u{85}udp\n");
    let command = ["screen", rules.path(), "--explain", capture.path(), "--json"];
    let explained = String::from_utf8(path.weir(&command).stdout).unwrap();
    assert!(explained.contains("\"line 1: drop\\u0085udp\""), "{explained:?}");
}

/// A reader may stop to read, as `less` does, or a log that is full.
#[test]
fn a_screen_judges_while_nobody_reads_what_it_prints() {
    let (path, _rules, mut screen) = screened("accept udp log\n", &[]);
    let server = socket(&path.server, &format!("{SERVER}:5000"));
    server.set_read_timeout(Some(PATIENCE)).unwrap();
    // More decisions than a pipe holds, and as many as wait for it; each is printed alone.
    for flow in 0..1500_u16 {
        let client = socket(&path.client, &format!("198.18.0.2:{}", 2000 + flow));
        client.send_to(&flow.to_be_bytes(), format!("{SERVER}:5000")).unwrap();
        let mut got = [0; 2];
        server.recv(&mut got).unwrap_or_else(|error| panic!("flow {flow}: {error}"));
        assert_eq!(u16::from_be_bytes(got), flow);
    }
    let said = screen.interrupt();
    assert!(said.contains("what is printed is not read: lines are left out\n"), "{said}");
}
