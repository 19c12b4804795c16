//! Figures and sockets in words.

use indicatif::HumanCount;

use super::super::reading::SocketReading;

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

/// `200 udp sockets, rtpengine (pid 812, rtpengine.service)`.
pub(super) fn sockets_of(sockets: usize, first: &SocketReading) -> String {
    format!("{sockets} {} sockets, {}", protocol(first), owner_of(first))
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
