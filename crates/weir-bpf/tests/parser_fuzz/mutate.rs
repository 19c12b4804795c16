//! Making right frames wrong.

use fastrand::Rng;
use weir_bpf::parser::SHORTEST_FRAME;

use crate::case::Case;
use crate::generate::{Draft, one_in};

/// Bytes at the start of a frame that most headers lie in.
const HEADERS: usize = 120;

/// Writes the cases of one seed, each from its number alone.
pub struct Cases {
    seed: u64,
    draft: Draft,
    other: Draft,
}

impl Cases {
    pub fn new(seed: u64) -> Self {
        Self { seed, draft: Draft::default(), other: Draft::default() }
    }

    /// Overwrites `case` with the one of this number.
    pub fn write(&mut self, number: u64, case: &mut Case) {
        let mut rng = Rng::with_seed(self.seed);
        let stream = rng.u64(..) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut rng = Rng::with_seed(stream);
        if one_in(&mut rng, 40) {
            self.draft.noise(&mut rng);
        } else {
            self.draft.stack(&mut rng);
        }
        for _ in 0..[0, 0, 0, 1, 1, 1, 2, 3][rng.usize(0..8)] {
            self.mutate(&mut rng);
        }
        if self.draft.bytes.len() < SHORTEST_FRAME {
            self.draft.bytes.resize(SHORTEST_FRAME, 0);
        }
        case.bytes.clear();
        case.bytes.extend_from_slice(&self.draft.bytes);
        let len = case.bytes.len();
        case.first_buffer = match rng.u8(0..16) {
            0 => rng.usize(0..=len),
            1..=2 => rng.usize(0..=len.min(HEADERS)),
            _ => len,
        };
    }

    fn mutate(&mut self, rng: &mut Rng) {
        let bytes = &mut self.draft.bytes;
        let near = bytes.len().min(HEADERS);
        match rng.u8(0..16) {
            0..=2 => bytes[rng.usize(0..near)] ^= 1 << rng.u8(0..8),
            3..=4 => bytes[rng.usize(0..near)] = rng.u8(..),
            5 => bytes[rng.usize(0..near)] = rng.choice([0, 1, 0x7f, 0x80, 0xff]).unwrap_or(0),
            6 => bytes.truncate(rng.usize(SHORTEST_FRAME.min(near)..=near)),
            7 => bytes.truncate(rng.usize(SHORTEST_FRAME.min(near)..=bytes.len())),
            8 => self.splice(rng),
            _ => self.change_field(rng),
        }
    }

    fn change_field(&mut self, rng: &mut Rng) {
        let Some(field) = rng.choice(&self.draft.fields).copied() else { return };
        // It may have been cut off.
        let Some(bytes) = self.draft.bytes.get_mut(field.at..field.at + field.width) else {
            return;
        };
        let old = bytes.iter().fold(0, |value, byte| value << 8 | u16::from(*byte));
        let new = match rng.u8(0..10) {
            0..=1 => old.wrapping_add(1),
            2..=3 => old.wrapping_sub(1),
            4 => old.wrapping_add(rng.u16(2..9)),
            5 => old.wrapping_sub(rng.u16(2..9)),
            6 => 0,
            7 => u16::MAX,
            _ => rng.u16(..),
        };
        let new = new.to_be_bytes();
        bytes.copy_from_slice(&new[2 - field.width..]);
    }

    /// The front of this frame, and some frame from a header of its own on.
    fn splice(&mut self, rng: &mut Rng) {
        self.other.stack(rng);
        let bytes = &mut self.draft.bytes;
        bytes.truncate(rng.usize(0..=bytes.len().min(HEADERS)));
        let from = rng.choice(&self.other.fields).map_or(0, |field| field.at);
        let from = if one_in(rng, 2) { from } else { rng.usize(0..self.other.bytes.len()) };
        bytes.extend_from_slice(&self.other.bytes[from..]);
    }
}
