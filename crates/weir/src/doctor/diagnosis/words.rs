//! Figures and sockets in words.

use std::collections::BTreeSet;

use indicatif::HumanCount;

use super::super::reading::SocketReading;

/// So many of a process's ports are named.
const PORTS_MAX: usize = 4;

/// `123,456`.
pub(super) fn count(rate: f64) -> HumanCount {
    HumanCount(rate.round() as u64)
}

pub(super) fn percent(share: f64) -> String {
    format!("{:.0}%", share * 100.0)
}

/// `udp 198.18.0.1:53, named (pid 812, named.service)`.
pub(super) fn socket_of(socket: &SocketReading) -> String {
    format!("{} {}, {}", protocol(socket), socket.local, owner_of(socket))
}

/// `200 udp sockets, rtpengine (pid 812, rtpengine.service): ports 30000, 30002, 30004, 30006 and 196 more`.
pub(super) fn sockets_of(sockets: &[&SocketReading], first: &SocketReading) -> String {
    let ports: BTreeSet<u16> = sockets.iter().map(|socket| socket.port).collect();
    let named: Vec<String> = ports.iter().take(PORTS_MAX).map(u16::to_string).collect();
    let more = match ports.len() - named.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let (count, protocol, owner) = (sockets.len(), protocol(first), owner_of(first));
    let plural = if ports.len() == 1 { "" } else { "s" };
    format!("{count} {protocol} sockets, {owner}: port{plural} {}{more}", named.join(", "))
}

fn protocol(socket: &SocketReading) -> &'static str {
    if socket.listener { "tcp" } else { "udp" }
}

fn owner_of(socket: &SocketReading) -> String {
    let Some(owner) = socket.owners.first() else { return "whose process is not seen".into() };
    let place = owner.place.iter().map(|place| format!(", {place}"));
    let others = match socket.owners.len() - 1 {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!("{} (pid {}{}){others}", owner.comm, owner.pid, place.collect::<String>())
}
