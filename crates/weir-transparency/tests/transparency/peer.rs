//! TCP clients made by hand: their every segment is sent when the case says so, and never again.

use etherparse::TcpHeader;

use crate::frame::{self, address};
use crate::world::World;

pub const FIN: u8 = 1;
pub const SYN: u8 = 2;
pub const RST: u8 = 4;
pub const PSH: u8 = 8;
pub const ACK: u8 = 16;

/// A client, by its port.
pub struct Peer {
    here: String,
    there: String,
    seq: u32,
    ack: u32,
}

impl Peer {
    /// Sends its SYN and, if that is answered, its final ACK.
    pub fn connect(world: &mut World, number: u16, there: &str) -> Option<Self> {
        let mut peer = Self::new(world, number, there);
        world.send(&[peer.syn()]);
        peer.answered(world)?;
        world.send(&[peer.segment(ACK, b"")]);
        Some(peer)
    }

    /// A client that has sent nothing.
    pub fn new(world: &World, number: u16, there: &str) -> Self {
        // Each run of a case has ports of its own: what TIME_WAIT remembers is another's.
        let port = 10_000 + world.run % 2_500 * 20 + number;
        let ip = if there.starts_with('[') { "[2001:2::200]" } else { "198.18.0.200" };
        Self { here: format!("{ip}:{port}"), there: there.to_owned(), seq: 1000, ack: 0 }
    }

    pub fn syn(&mut self) -> Vec<u8> {
        let frame = self.segment(SYN, b"");
        self.seq += 1;
        frame
    }

    /// The SYN again, as a host that has forgotten its connection would send it.
    pub fn syn_again(&self) -> Vec<u8> {
        let again = Self {
            seq: self.seq + 100_000,
            ack: 0,
            here: self.here.clone(),
            there: self.there.clone(),
        };
        again.segment(SYN, b"")
    }

    /// Looks for the SYN-ACK.
    pub fn answered(&mut self, world: &World) -> Option<()> {
        let port = address(&self.here).port().to_be_bytes();
        let at = if self.here.starts_with('[') { 54 } else { 34 };
        let answer = world.answers.iter().rev().find(|frame| {
            frame.len() >= at + 20
                && frame[at + 2..at + 4] == port
                && frame[at + 13] & (SYN | ACK) == SYN | ACK
        })?;
        let seq = u32::from_be_bytes(answer[at + 4..at + 8].try_into().unwrap());
        self.ack = seq.wrapping_add(1);
        Some(())
    }

    pub fn data(&mut self, payload: &[u8]) -> Vec<u8> {
        let frame = self.segment(PSH | ACK, payload);
        self.seq = self.seq.wrapping_add(payload.len() as u32);
        frame
    }

    /// The host has sent so much, a FIN among it.
    pub fn took(&mut self, sequence: u32) {
        self.ack = self.ack.wrapping_add(sequence);
    }

    pub fn segment(&self, flags: u8, payload: &[u8]) -> Vec<u8> {
        let (here, there) = (address(&self.here), address(&self.there));
        let ack = if flags & ACK == 0 { 0 } else { self.ack };
        let has = |flag| flags & flag != 0;
        let header = TcpHeader {
            acknowledgment_number: ack,
            fin: has(FIN),
            syn: has(SYN),
            rst: has(RST),
            psh: has(PSH),
            ack: has(ACK),
            ..TcpHeader::new(here.port(), there.port(), self.seq, 0xffff)
        };
        let segment = frame::tcp(here.ip(), there.ip(), header, payload);
        frame::ip(here.ip(), there.ip(), frame::TCP, &segment)
    }
}
