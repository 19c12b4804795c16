//! Frames to try: stacks of headers that are right, with the places where they can be made wrong.

use fastrand::Rng;

/// Where a header says something about lengths or about what follows it.
#[derive(Clone, Copy)]
pub struct Field {
    pub at: usize,
    /// Bytes: 1 or 2.
    pub width: usize,
}

/// A frame that is being written.
#[derive(Default)]
pub struct Draft {
    pub bytes: Vec<u8>,
    pub fields: Vec<Field>,
}

/// Values and how often they come, relative to each other.
fn pick<T: Copy>(rng: &mut Rng, weighted: &[(u32, T)]) -> T {
    let total = weighted.iter().map(|(weight, _)| weight).sum();
    let mut left = rng.u32(0..total);
    for (weight, value) in weighted {
        if left < *weight {
            return *value;
        }
        left -= weight;
    }
    unreachable!("the weights sum up to {total}")
}

pub fn one_in(rng: &mut Rng, n: u32) -> bool {
    rng.u32(0..n) == 0
}

impl Draft {
    /// Begins anew with a whole frame of headers that agree with each other (but for what is not to
    /// be understood: options, header orders and protocols are arbitrary).
    pub fn stack(&mut self, rng: &mut Rng) {
        self.clear();
        self.random(rng, 12);
        for _ in 0..pick(rng, &[(20, 0), (9, 1), (7, 2), (1, 3)]) {
            let tag: u16 = pick(rng, &[(20, 0x8100), (10, 0x88a8), (1, 0x9100)]);
            self.bytes.extend(tag.to_be_bytes());
            self.random(rng, 2);
        }
        match pick(rng, &[(46, 4), (48, 6), (3, 0), (3, 1)]) {
            4 => self.ipv4(rng),
            6 => self.ipv6(rng),
            0 => {
                self.ethertype(0x0806);
                self.random(rng, 28);
            }
            _ => {
                self.ethertype(rng.u16(..));
                let len = rng.usize(0..64);
                self.random(rng, len);
            }
        }
        if one_in(rng, 5) {
            let padding = rng.usize(1..47);
            self.random(rng, padding);
        }
    }

    /// Begins anew with random bytes.
    pub fn noise(&mut self, rng: &mut Rng) {
        self.clear();
        let len = rng.usize(14..120);
        self.random(rng, len);
        match rng.u8(0..4) {
            0 => self.bytes[12..14].copy_from_slice(&[0x08, 0]),
            1 => self.bytes[12..14].copy_from_slice(&[0x86, 0xdd]),
            _ => {}
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.fields.clear();
    }

    fn random(&mut self, rng: &mut Rng, len: usize) {
        let start = self.bytes.len();
        self.bytes.resize(start + len, 0);
        rng.fill(&mut self.bytes[start..]);
    }

    fn field8(&mut self, value: u8) -> usize {
        let at = self.bytes.len();
        self.fields.push(Field { at, width: 1 });
        self.bytes.push(value);
        at
    }

    fn field16(&mut self, value: u16) -> usize {
        let at = self.bytes.len();
        self.fields.push(Field { at, width: 2 });
        self.bytes.extend(value.to_be_bytes());
        at
    }

    /// No field: most of what it could be changed into is not looked into.
    fn ethertype(&mut self, value: u16) {
        self.bytes.extend(value.to_be_bytes());
    }

    /// Writes how many bytes there are from `start` on.
    fn set_len16(&mut self, at: usize, start: usize) {
        let len = (self.bytes.len() - start) as u16;
        self.bytes[at..at + 2].copy_from_slice(&len.to_be_bytes());
    }

    fn ipv4(&mut self, rng: &mut Rng) {
        self.ethertype(0x0800);
        let start = self.bytes.len();
        self.field8(0x45);
        self.bytes.push(rng.u8(..));
        let total_len = self.field16(0);
        self.random(rng, 2);
        let offset = rng.u16(1..0x2000);
        let fragment = pick(
            rng,
            &[
                (10, 0),
                (6, 0x4000),          // don't fragment
                (1, 0x8000),          // reserved: nobody looks at it
                (3, 0x2000),          // the first
                (2, 0x2000 | offset), // one of those between
                (2, offset),          // the last
                (1, 0x6000),          // don't fragment, and it is one
            ],
        );
        self.field16(fragment);
        self.bytes.push(rng.u8(..));
        let protocol = transport_protocol(rng);
        self.field8(protocol);
        self.random(rng, 10);
        if one_in(rng, 2) {
            self.ipv4_options(rng);
        }
        self.bytes[start] = 0x40 | ((self.bytes.len() - start) / 4) as u8;
        self.transport(rng, protocol, fragment & 0x2000 != 0);
        self.set_len16(total_len, start);
    }

    fn ipv4_options(&mut self, rng: &mut Rng) {
        let room = rng.usize(1..=10) * 4;
        let end = self.bytes.len() + room;
        while self.bytes.len() < end {
            let left = end - self.bytes.len();
            // Record route, security, timestamp, router alert, source routes.
            let kind = match rng.u8(0..16) {
                0..=3 => 1,
                4 => 0,
                5 => 7,
                6 => 68,
                7 => 148,
                8..=10 => 131,
                11..=13 => 137,
                14 => 130,
                _ => rng.u8(..),
            };
            self.field8(kind);
            if kind < 2 || left == 1 {
                continue;
            }
            let len = match rng.u8(0..12) {
                0 => rng.u8(0..3),
                1 => rng.u8(..),
                2 => left as u8,
                3 => left as u8 + 1,
                _ => rng.u8(2..12).min(left as u8),
            };
            self.field8(len);
            let rest = usize::from(len).clamp(2, left) - 2;
            self.random(rng, rest);
            if rest > 0 && one_in(rng, 2) {
                let pointer = self.bytes.len() - rest;
                self.bytes[pointer] = 4;
            }
        }
        self.bytes.truncate(end);
    }

    fn ipv6(&mut self, rng: &mut Rng) {
        self.ethertype(0x86dd);
        self.bytes.push(0x60 | rng.u8(0..16));
        self.random(rng, 3);
        let payload_len = self.field16(0);
        let mut next = self.field8(0);
        self.random(rng, 33);
        let start = self.bytes.len();
        let mut has_more = false;
        for position in 0..pick(rng, &[(8, 0), (16, 10)]) {
            if one_in(rng, 7) && position > 0 {
                break;
            }
            let kind = extension(rng, position == 0);
            self.bytes[next] = kind;
            next = self.field8(0);
            match kind {
                44 => has_more |= self.fragment_header(rng),
                51 => self.authentication_header(rng),
                _ => self.extension_header(rng),
            }
        }
        let protocol = transport_protocol(rng);
        self.bytes[next] = protocol;
        self.transport(rng, protocol, has_more);
        self.set_len16(payload_len, start);
    }

    /// What follows the next-header byte, as for the two below.
    fn extension_header(&mut self, rng: &mut Rng) {
        let units = match rng.u8(0..64) {
            0 => rng.u8(..),
            1 => 255,
            2..=5 => rng.u8(0..32),
            _ => rng.u8(0..3),
        };
        self.field8(units);
        self.bytes.push(rng.u8(0..5));
        self.field8(if one_in(rng, 3) { rng.u8(..) } else { 0 });
        self.random(rng, 4 + usize::from(units) * 8);
    }

    /// Whether more fragments follow.
    fn fragment_header(&mut self, rng: &mut Rng) -> bool {
        self.bytes.push(rng.u8(..));
        let offset = rng.u16(1..0x2000) << 3;
        let reserved = rng.u16(0..4) << 1;
        let word = reserved | pick(rng, &[(4, 0), (3, 1), (1, offset), (1, offset | 1)]);
        self.field16(word);
        self.random(rng, 4);
        word & 1 != 0
    }

    fn authentication_header(&mut self, rng: &mut Rng) {
        let words = rng.u8(1..6);
        self.field8(words);
        self.random(rng, 2 + usize::from(words) * 4);
    }

    /// If more fragments follow, the transport header may claim more than there is.
    fn transport(&mut self, rng: &mut Rng, protocol: u8, more: bool) {
        let start = self.bytes.len();
        match protocol {
            17 => {
                self.random(rng, 4);
                let len = self.field16(0);
                self.random(rng, 2);
                self.payload(rng);
                self.set_len16(len, start);
                if more && one_in(rng, 2) {
                    self.bytes[len] = rng.u8(..);
                }
            }
            6 => {
                self.random(rng, 12);
                let words = rng.u8(5..16);
                self.field8(words << 4 | rng.u8(0..16));
                self.random(rng, 7);
                if !more || one_in(rng, 2) {
                    self.random(rng, usize::from(words - 5) * 4);
                }
                self.payload(rng);
            }
            _ => {
                self.random(rng, 8);
                self.payload(rng);
            }
        }
    }

    fn payload(&mut self, rng: &mut Rng) {
        let longest = pick(rng, &[(60, 33), (25, 200), (12, 1_500), (3, 9_300)]);
        let len = rng.usize(0..longest);
        let random = len.min(64);
        self.random(rng, random);
        self.bytes.resize(self.bytes.len() + len - random, 0x5a);
    }
}

fn transport_protocol(rng: &mut Rng) -> u8 {
    let any = rng.u8(..);
    pick(rng, &[(35, 17), (25, 6), (10, 1), (10, 58), (6, 2), (2, 59), (2, 50), (2, 0), (8, any)])
}

fn extension(rng: &mut Rng, is_first: bool) -> u8 {
    let hop_by_hop = if is_first { 40 } else { 2 };
    pick(rng, &[(hop_by_hop, 0), (40, 43), (40, 60), (18, 44), (3, 51), (1, 135)])
}
