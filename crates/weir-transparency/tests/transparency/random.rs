//! Random cases, from a seed: who listens how, who reads and who has stopped, and what is sent.
//!
//! A scene is a set of applications; a case is one step in it: some of them stop or go on, up to 60
//! packets arrive in one NAPI poll, and those that run read all they have.

use std::collections::BTreeSet;

use etherparse::Ipv4Header;
use fastrand::Rng;
use weir_bpf::attach::AttachMode;

use crate::duel::{Duel, Queues};
use crate::frame::{self, address, header4, ip4, tagged, to_mac, udp, udp_fragments, udp_packet};
use crate::peer::{ACK, FIN, Peer};
use crate::socket::{Udp, pick_by_fifth_byte};
use crate::world::World;

const DEFAULT_SEED: u64 = 1996;
const SCENES_FREE: u64 = 30;
const SCENES_FULL: u64 = 50;
const STEPS: usize = 20;
/// Larger than all that one step can bring.
const LARGE: usize = 2_000_000;
const SMALL: usize = 16_000;

const SENDERS: [&str; 3] = ["198.18.0.200:40000", "198.18.0.200:40001", "198.18.0.201:40000"];
const SENDERS6: [&str; 2] = ["[2001:2::200]:40000", "[2001:2::200]:40001"];
const GROUP: &str = "239.18.0.1";
const GROUP6: &str = "ff05::12";

/// What may be sent in a scene.
#[derive(Clone, Copy)]
struct Limits {
    queues: Queues,
    /// Whether a short packet is always charged the same.
    short: bool,
}

struct Step {
    /// Applications that stop reading, or go on.
    toggled: Vec<&'static str>,
    frames: Vec<Vec<u8>>,
    /// Clients that connect, or send something.
    clients: Vec<u16>,
    /// What a sender does not cut up itself: to a port, bytes, and of how many each packet is.
    segments: Vec<(u16, usize, u16)>,
}

/// Runs all scenes; describes those that differ.
pub fn run(duel: &mut Duel, mode: AttachMode) -> String {
    let number = |name, default| {
        std::env::var(name).map_or(default, |text| text.parse().expect("a number is expected"))
    };
    let seed = number("WEIR_SEED", DEFAULT_SEED);
    let times = number("WEIR_TIMES", 1);
    println!("WEIR_SEED={seed} WEIR_TIMES={times}");
    let mut failures = String::new();
    let mut cases = 0;
    for (queues, scenes) in [(Queues::Free, SCENES_FREE), (Queues::Full, SCENES_FULL)] {
        // An XDP program on a veth has short packets charged what is left of a page.
        let limits = Limits { queues, short: queues == Queues::Free || !mode.is_xdp() };
        for scene in 0..scenes * times {
            let mut random = Rng::with_seed(seed ^ scene << 32);
            let steps: Vec<Step> = (0..STEPS).map(|_| step(&mut random, limits)).collect();
            let backlog = random.i32(0..3);
            let differences = duel.run(queues, |world| play(world, queues, backlog, &steps));
            cases += steps.len();
            for one in differences {
                failures += &format!("\n  WEIR_SEED={seed}, {queues:?}, scene {scene}: {one}");
            }
        }
    }
    println!("{mode:?}: {cases} random cases");
    failures
}

/// Every kind of socket, each on a port of its own.
fn open(world: &mut World, queues: Queues, backlog: i32) {
    let buffer_bytes = if queues == Queues::Full { SMALL } else { LARGE };
    let any = Udp { reuse_address: true, buffer_bytes, ..Udp::default() };
    world.udp("any", Udp { bind: "0.0.0.0:5000", ..any });
    world.udp("dual", Udp { bind: "[::]:5001", ..any });
    world.udp("first", Udp { bind: "198.18.0.1:5002", ..any });
    world.udp("second", Udp { bind: "198.18.0.2:5002", ..any });
    world.udp("unconnected", Udp { bind: "198.18.0.1:5003", ..any });
    world.udp("connected", Udp { bind: "198.18.0.1:5003", connect: Some(SENDERS[0]), ..any });
    world.udp("alone", Udp { bind: "198.18.0.1:5004", connect: Some(SENDERS[1]), ..any });
    world.udp("member", Udp { bind: "0.0.0.0:5005", join: &[GROUP], ..any });
    world.udp("neighbour", Udp { bind: "0.0.0.0:5005", ..any });
    world.udp("only member", Udp { bind: "[::]:5006", join: &[GROUP6], ..any });
    world.udp("filter", Udp { bind: "0.0.0.0:5007", even_only: true, ..any });
    world.udp("device", Udp { bind: "0.0.0.0:5008", device: Some("near"), ..any });
    world.udp("no device", Udp { bind: "0.0.0.0:5008", ..any });
    world.udp("six", Udp { bind: "[::]:5009", only_v6: true, ..any });
    world.udp("four", Udp { bind: "0.0.0.0:5009", ..any });
    let shared = Udp { bind: "0.0.0.0:5010", reuse_port: true, buffer_bytes, ..Udp::default() };
    let sockets = world.near(|| {
        let sockets = [shared.open(), shared.open()];
        pick_by_fifth_byte(&sockets[0]);
        sockets
    });
    for (name, socket) in ["picked 0", "picked 1"].into_iter().zip(sockets) {
        world.adopt(name, socket);
    }
    world.udp("merging", Udp { bind: "[::]:5011", merged: true, ..any });
    world.udp_beyond("beyond", "0.0.0.0:5000");
    world.listen("server", "[::]:5012", backlog);
}

const STOPPABLE: [&str; 19] = [
    "any", "dual", "first", "second", "unconnected", "connected", "alone", "member", "neighbour",
    "only member", "filter", "device", "six", "four", "merging", "picked 0", "picked 1", "server",
    "any",
];

fn play(world: &mut World, queues: Queues, backlog: i32, steps: &[Step]) {
    open(world, queues, backlog);
    world.delayed_acks = true;
    let mut stopped = BTreeSet::new();
    let mut clients: Vec<Option<Peer>> = (0..20).map(|_| None).collect();
    for step in steps {
        for name in &step.toggled {
            if !stopped.remove(name) {
                stopped.insert(*name);
            }
        }
        for (port, bytes, size) in &step.segments {
            let payload = world.payload(*bytes);
            world.send_segments(&format!("198.18.0.1:{port}"), &payload, *size);
        }
        world.send(&step.frames);
        for number in &step.clients {
            let to = if number % 3 == 0 { "[2001:2::1]:5012" } else { "198.18.0.1:5012" };
            let client = &mut clients[usize::from(*number)];
            if let Some(peer) = client {
                let payload = world.payload(100);
                world.send(&[peer.data(&payload)]);
            } else {
                *client = Peer::connect(world, *number, to);
            }
        }
        world.drain_but(&stopped);
    }
    let ends: Vec<_> = clients.iter().flatten().map(|peer| peer.segment(FIN | ACK, b"")).collect();
    world.send(&ends);
}

fn step(random: &mut Rng, limits: Limits) -> Step {
    let full = limits.queues == Queues::Full;
    let toggled = if full {
        (0..random.usize(0..4)).map(|_| STOPPABLE[random.usize(..STOPPABLE.len())]).collect()
    } else {
        Vec::new()
    };
    // One port gets most of it; thus queues fill, and are about to.
    let favourite = random.u16(5000..5013);
    let mut frames = Vec::new();
    let most = if random.u8(..4) == 0 { 50 } else { 10 };
    let packets = random.usize(1..most);
    // Of a sender that is never done: nearly all in fragments.
    let in_fragments = random.u8(..8) == 0;
    // What dies on its way takes no place, which the gate cannot know: not beside others.
    let dying = random.u8(..8) == 0;
    while frames.len() < packets {
        let port = if random.bool() { favourite } else { random.u16(5000..5013) };
        if dying {
            frames.push(broken(random, port, limits));
        } else {
            packet(random, port, limits, in_fragments, &mut frames);
        }
    }
    let segments =
        if random.u8(..4) == 0 { segments(random, favourite, limits) } else { Vec::new() };
    frames.truncate(if segments.is_empty() { 55 } else { 40 });
    let clients = (0..random.usize(..4)).map(|_| random.u16(..20)).collect();
    let clients = if random.u8(..3) == 0 { clients } else { Vec::new() };
    Step { toggled, frames, clients, segments }
}

/// Where whoever sends in one piece gets no answer, and no hash chooses between sockets.
const PIECES_TO: [u16; 4] = [5000, 5001, 5002, 5011];

/// Fifteen packets at most, the last one short or not.
fn segments(random: &mut Rng, favourite: u16, limits: Limits) -> Vec<(u16, usize, u16)> {
    let one = |random: &mut Rng| {
        let any = PIECES_TO[random.usize(..PIECES_TO.len())];
        let port = if PIECES_TO.contains(&favourite) { favourite } else { any };
        let size = if limits.short { random.u16(8..1440) } else { 1440 };
        let tail = if limits.short { random.u16(..size) } else { 0 };
        (port, usize::from(size * random.u16(1..5) + tail), size)
    };
    (0..random.usize(1..4)).map(|_| one(random)).collect()
}

fn route(random: &mut Rng, port: u16) -> (&'static str, String) {
    let to = match (port, random.u8(..16)) {
        (5005, 0..8) => GROUP,
        (5006, 0..8) => GROUP6,
        (5000 | 5005, 8 | 9) => "198.18.0.255",
        (5005, 10) => "255.255.255.255",
        (_, 11) => "198.18.1.2",
        (_, 12) => "198.18.1.1",
        (_, 0..3) => "198.18.0.2",
        (_, 13..15) => "2001:2::1",
        (5001 | 5009, 3..7) => "2001:2::1",
        (5001 | 5009, 7) => "2001:2::2",
        _ => "198.18.0.1",
    };
    if to.contains(':') {
        (SENDERS6[random.usize(..SENDERS6.len())], format!("[{to}]:{port}"))
    } else {
        (SENDERS[random.usize(..SENDERS.len())], format!("{to}:{port}"))
    }
}

fn content(random: &mut Rng, limits: Limits) -> Vec<u8> {
    // A whole page each, with any headers below; or anything.
    let len = if limits.short && random.bool() {
        random.usize(5..1400)
    } else {
        random.usize(1432..1440)
    };
    let mut payload = frame::payload(random.u32(..), len);
    payload[4] = random.u8(..2);
    payload
}

fn packet(
    random: &mut Rng,
    port: u16,
    limits: Limits,
    in_fragments: bool,
    frames: &mut Vec<Vec<u8>>,
) {
    let (from, to) = route(random, port);
    let payload = content(random, limits);
    let whole = udp_packet(from, &to, &payload);
    match if in_fragments && random.u8(..8) > 0 { 2 } else { random.u8(..20) } {
        0 => frames.push(to_mac(&whole, frame::OTHER_MAC)),
        1 => frames.push(tagged(&whole, random.u16(1..4000))),
        2 | 3 => {
            let mut payload = frame::payload(random.u32(..), 3 * 1448 - 8);
            payload[4] = random.u8(..2);
            let mut parts = udp_fragments(from, &to, random.u16(1..), &payload, &[0, 1448, 2896]);
            // In any order, with others between them.
            random.shuffle(&mut parts);
            if random.u8(..6) == 0 {
                parts.pop();
            }
            for part in parts {
                frames.push(part);
                if random.u8(..4) == 0 {
                    let payload = content(random, limits);
                    frames.push(udp_packet(from, &to, &payload));
                }
            }
        }
        4 if from.starts_with('1') => frames.push(with_options(random, from, &to, &payload)),
        5 => {
            let (from, to) = (address(from).ip(), address(&to).ip());
            let protocol = if from.is_ipv4() { frame::ICMP } else { 58 };
            frames.push(frame::ip(from, to, protocol, &frame::echo(from, to, 7, &payload[..5])));
        }
        _ => frames.push(whole),
    }
}

/// No-operations: 4 or 8 bytes.
fn with_options(random: &mut Rng, from: &str, to: &str, payload: &[u8]) -> Vec<u8> {
    let (from, to) = (address(from), address(to));
    let options = if random.bool() { [1; 4].into() } else { [1; 8].into() };
    let header = Ipv4Header { options, ..header4(from.ip(), to.ip(), frame::UDP) };
    ip4(header, &udp(from, to, payload))
}

/// The end is missing or, in IPv4, one bit of the header is wrong: the kernel drops it on its way.
fn broken(random: &mut Rng, port: u16, limits: Limits) -> Vec<u8> {
    let (from, to) = route(random, port);
    let mut frame = udp_packet(from, &to, &content(random, limits));
    if from.starts_with('[') || random.u8(..4) == 0 {
        frame.truncate(random.usize(14..60));
    } else {
        frame[random.usize(14..34)] ^= 1 << random.u8(..8);
    }
    frame
}
