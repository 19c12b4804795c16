//! Rules that are read again, and what becomes of flows then.

use super::*;

/// It makes no difference whose packet is the next, at which side the flow began, or whether it is established.
#[test]
fn accepted_flows_go_on_under_rules_that_are_read_again_and_under_another_screen() {
    const SOME: &str = "accept udp to any port 5000\n\
                        accept tcp to any port 8000 flags syn\naccept icmp type 8\n";
    for place in ["tc", "native"] {
        let (path, rules, mut screen) = screened(SOME, &["--attach", place]);
        let listener = path.server.run(|| TcpListener::bind(format!("{SERVER}:8000")).unwrap());
        let mut stream = connect(&path, &format!("{SERVER}:8000")).unwrap();
        let (mut accepted, _) = listener.unwrap().accept().unwrap();
        accepted.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (client, server, there) = ends(&path, 5000);
        let (inside, outside) = ("198.18.0.2:5000", "198.19.0.2:4000");
        let established = [socket(&path.server, outside), socket(&path.client, inside)];
        client.send_to(b"there", &there).unwrap();
        server.recv(&mut [0; 16]).unwrap();
        for _ in 0..3 {
            echoes(&established[0], &established[1], inside);
            ping(&path.server, "198.18.0.2", 1);
        }
        let goes_on = |stream: &mut TcpStream, accepted: &mut TcpStream| {
            for (from, to, address) in
                [(&server, &client, "198.18.0.2:4000"), (&established[1], &established[0], outside)]
            {
                from.send_to(b"more", address).unwrap();
                assert_eq!(to.recv(&mut [0; 16]).unwrap(), 4, "{place}: to {address}");
            }
            accepted.write_all(b"more").unwrap();
            stream.read_exact(&mut [0; 4]).unwrap();
            stream.write_all(b"more").unwrap();
            accepted.read_exact(&mut [0; 4]).unwrap();
        };
        goes_on(&mut stream, &mut accepted);
        for _ in 0..2 {
            screen.signal(Signal::HUP);
            screen.event("reloaded");
            goes_on(&mut stream, &mut accepted);
        }
        rules.write(&format!("drop proto 47\n{SOME}"));
        screen.signal(Signal::HUP);
        screen.event("reloaded");
        goes_on(&mut stream, &mut accepted);
        let stats = screen.stats();
        for rule in ["accept udp", "accept tcp"] {
            assert_eq!(of_rule(&stats, rule, "asked"), 0, "{stats}");
            assert!(of_rule(&stats, rule, "packets") > 0, "{stats}");
        }
        assert_eq!(stats["outcomes"]["denied"], 0, "{stats}");
        let other = if place == "tc" { "native" } else { "tc" };
        for place in [place, other] {
            let mut next = Screen::start(&path, &rules, &["--attach", place]);
            goes_on(&mut stream, &mut accepted);
            let stats = next.stats();
            assert_eq!(of_rule(&stats, "accept tcp", "asked"), 0, "{stats}");
            screen = next;
        }
        // What they do not accept ends, in both directions.
        rules.write(&SOME.replace("5000", "5002").replace("accept tcp", "drop tcp"));
        screen.signal(Signal::HUP);
        screen.event("reloaded");
        assert!(!arrives(&server, &client, "198.18.0.2:4000"));
        assert!(!arrives(&established[0], &established[1], inside));
        assert!(!arrives(&established[1], &established[0], outside));
    }
}

/// What passes under one file of rules, and what under the other.
const FIRST: &str = "accept udp to 198.19.0.0/24 port 5000\n";
const SECOND: &str = "accept udp to 198.19.0.0/24 port 5001\n";
const RELOADS: usize = 6;

/// A first packet finds no room in the ring now and then, so it is sent again; what is denied is sent again all the same.
fn passes(client: &UdpSocket, server: &UdpSocket, to: &str) -> bool {
    (0..3).any(|_| arrives(client, server, to))
}

#[test]
fn rules_are_reloaded_and_the_screen_is_killed_under_a_flood_of_new_flows() {
    let (path, rules, mut screen) = screened(FIRST, &["--attach", "native"]);
    let client = socket(&path.client, "198.18.0.2:4000");
    let servers = [5000, 5001].map(|port| socket(&path.server, &format!("{SERVER}:{port}")));
    let to = [5000, 5001].map(|port| format!("{SERVER}:{port}"));
    let flood = flood(&path, "198.18.0.64", 6, FLOOD_PPS);
    let stats = while_sent(&path.client, &mut generator(&path.client), flood, |_| {
        for turn in 0..RELOADS {
            let (now, not) = (turn % 2, (turn + 1) % 2);
            rules.write([FIRST, SECOND][now]);
            screen.signal(Signal::HUP);
            screen.event("reloaded");
            assert!(!passes(&client, &servers[not], &to[not]), "in turn {turn}: what was accepted");
            wait_until("what is accepted now", || passes(&client, &servers[now], &to[now]));
        }
        screen.kill();
        let (now, not) = ((RELOADS - 1) % 2, RELOADS % 2);
        for _ in 0..3 {
            assert!(passes(&client, &servers[now], &to[now]), "an accepted flow of a dead screen");
            assert!(!passes(&client, &servers[not], &to[not]), "a new flow of a dead screen");
        }
        let mut next = Screen::start(&path, &rules, &["--attach", "native"]);
        wait_until("the next screen accepts", || passes(&client, &servers[now], &to[now]));
        assert!(!passes(&client, &servers[not], &to[not]));
        next.stats()
    });
    assert!(stats["outcomes"]["asked"].as_u64().unwrap() > 1000, "{stats}");
    clear(&path);
}

/// There are many rules, so that it takes a while to read how much each number has counted.
#[test]
fn what_was_accepted_is_not_counted_by_the_rules_that_are_read_again() {
    let other: String = (1..1000).map(|port| format!("drop tcp to any port {port}\n")).collect();
    let before = format!("accept udp to any port 5999\n{other}");
    let (path, rules, mut screen) = screened(&before, &["--attach", "native"]);
    let macs = (mac(&path.client, "peer"), mac(&path.router, "in"));
    let addresses = ("198.18.0.64".parse().unwrap(), SERVER.parse().unwrap());
    let rate = Some(PacketsPerSec(FLOOD_PPS));
    let flow = FlowSpec { rate, ..FlowSpec::udp(macs, addresses, (4000, 5999)) };
    while_sent(&path.client, &mut generator(&path.client), flow, |_| {
        wait_until("it is accepted", || of_rule(&screen.stats(), "accept", "packets") > 1000);
        rules.write(&format!("accept udp to any port 6000\n{other}"));
        screen.signal(Signal::HUP);
        screen.event("reloaded");
        assert_eq!(of_rule(&screen.stats(), "accept", "packets"), 0);
    });
}
