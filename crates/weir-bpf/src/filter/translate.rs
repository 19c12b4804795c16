//! Classic BPF to the kernel's instructions (Documentation/bpf/classic_vs_extended.rst), as the kernel itself does for
//! a socket's classic filter (`bpf_convert_filter()`, net/core/filter.c).
//!
//! A is `r0`, where the kernel's packet loads leave what they have read; X is `r7`, the packet is `r6`. A load from
//! beyond the packet's end ends the program with 0 in both languages: no match. In the driver a helper loads, and what
//! the kernel would know besides the packet is not known: there a VLAN's tag is still in the packet, and libpcap's code
//! looks for it there, too.

use std::os::fd::{AsRawFd, BorrowedFd};

use libbpf_rs::libbpf_sys::{self as sys, bpf_insn};

use crate::skeleton::tap::types::{__sk_buff, weir_stage as Stage, xdp_md};

const A: u8 = 0;
const X: u8 = 7;
const PACKET: u8 = 6;
/// Keeps A while X is loaded.
const SPARE: u8 = 8;
const FRAME: u8 = 10;
/// Where a helper puts what it loads: below the memory words.
const LOADED: i16 = -72;
/// Memory words M[0] to M[15].
const WORDS: i16 = 16;
/// The kernel's limit on classic programs (`BPF_MAXINSNS`); jumps have 16 bits.
const CLASSIC_MAX: usize = 4096;
/// `SKF_AD_OFF` (linux/filter.h): loads from here on are of what the kernel knows besides the packet.
const ANCILLARY: i32 = -0x1000;
const ETHERTYPE_AT: i32 = 12;
const XDP_PASS: i32 = sys::XDP_PASS.cast_signed();

/// Names a field of the packet's context.
macro_rules! field {
    ($name:ident) => {
        std::mem::offset_of!(__sk_buff, $name) as i16
    };
}

const fn class(code: u32) -> u32 {
    code & 7
}

/// The whole program, for a socket or for the driver, which goes on by an array of programs.
pub(super) fn translate(
    classic: &[libc::sock_filter],
    in_driver: bool,
    programs: BorrowedFd<'_>,
) -> Result<Vec<bpf_insn>, String> {
    if classic.is_empty() || classic.len() > CLASSIC_MAX {
        return Err(format!("it has {} instructions, of 1 to {CLASSIC_MAX}", classic.len()));
    }
    let mut program = Program { in_driver, ..Program::default() };
    program.put(sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_X, PACKET, 1, 0, 0);
    for register in [A, X] {
        program.set(register, 0);
    }
    for word in 0..WORDS {
        program.put(sys::BPF_ST | sys::BPF_MEM | sys::BPF_W, FRAME, 0, slot(word), 0);
    }
    for instruction in classic {
        program.starts.push(program.instructions.len());
        program.add(*instruction)?;
    }
    program.finish(programs.as_raw_fd())
}

/// Where a memory word is, from the frame pointer down.
fn slot(word: i16) -> i16 {
    -4 * (word + 1)
}

/// Where a jump goes.
enum Target {
    /// An instruction of the classic program.
    Classic(usize),
    Match,
    Miss,
}

#[derive(Default)]
struct Program {
    in_driver: bool,
    instructions: Vec<bpf_insn>,
    /// Where each classic instruction's translation starts.
    starts: Vec<usize>,
    /// Jumps, and where they go.
    jumps: Vec<(usize, Target)>,
}

impl Program {
    fn put(&mut self, code: u32, dst: u8, src: u8, off: i16, imm: i32) {
        let mut instruction = bpf_insn { code: code as u8, off, imm, ..Default::default() };
        instruction.set_dst_reg(dst);
        instruction.set_src_reg(src);
        self.instructions.push(instruction);
    }

    fn set(&mut self, register: u8, value: i32) {
        self.put(sys::BPF_ALU | sys::BPF_MOV | sys::BPF_K, register, 0, 0, value);
    }

    fn copy(&mut self, to: u8, from: u8) {
        self.put(sys::BPF_ALU | sys::BPF_MOV | sys::BPF_X, to, from, 0, 0);
    }

    fn jump(&mut self, code: u32, src: u8, imm: i32, target: Target) {
        self.jumps.push((self.instructions.len(), target));
        self.put(code, A, src, 0, imm);
    }

    fn go(&mut self, target: Target) {
        self.jump(sys::BPF_JMP | sys::BPF_JA, 0, 0, target);
    }

    fn add(&mut self, classic: libc::sock_filter) -> Result<(), String> {
        let code = u32::from(classic.code);
        let k = classic.k.cast_signed();
        match class(code) {
            sys::BPF_LD => self.load(code, k)?,
            sys::BPF_LDX => self.load_index(code, k)?,
            sys::BPF_ST => self.store(A, word(k)?),
            sys::BPF_STX => self.store(X, word(k)?),
            sys::BPF_ALU => self.compute(code, k),
            sys::BPF_JMP => self.branch(code, classic),
            sys::BPF_RET => self.end(code, k),
            _ if code & 0xf8 == 0x80 => self.copy(A, X),
            _ => self.copy(X, A),
        }
        Ok(())
    }

    fn load(&mut self, code: u32, k: i32) -> Result<(), String> {
        let size = code & 0x18;
        match code & 0xe0 {
            sys::BPF_IMM => self.set(A, k),
            sys::BPF_ABS if (ANCILLARY..ANCILLARY + 64).contains(&k) => self.ancillary(k)?,
            sys::BPF_ABS => self.packet(size, None, k),
            sys::BPF_IND => self.packet(size, Some(X), k),
            sys::BPF_MEM => self.recall(A, word(k)?),
            0x80 => self.length(A),
            _ => return Err(format!("instruction {code:#x} is unknown")),
        }
        Ok(())
    }

    fn load_index(&mut self, code: u32, k: i32) -> Result<(), String> {
        match code & 0xe0 {
            sys::BPF_IMM => self.set(X, k),
            sys::BPF_MEM => self.recall(X, word(k)?),
            0x80 => self.length(X),
            // Bytes of an IPv4 header: 4 * (P[k] & 0xf).
            0xa0 => {
                self.copy(SPARE, A);
                self.packet(sys::BPF_B, None, k);
                self.put(sys::BPF_ALU | sys::BPF_AND | sys::BPF_K, A, 0, 0, 0xf);
                self.put(sys::BPF_ALU | sys::BPF_LSH | sys::BPF_K, A, 0, 0, 2);
                self.copy(X, A);
                self.copy(A, SPARE);
            }
            _ => return Err(format!("instruction {code:#x} is unknown")),
        }
        Ok(())
    }

    /// Loads from the packet, at an offset or so far behind a register's value.
    fn packet(&mut self, size: u32, behind: Option<u8>, offset: i32) {
        if !self.in_driver {
            let mode = if behind.is_some() { sys::BPF_IND } else { sys::BPF_ABS };
            return self.put(sys::BPF_LD | mode | size, 0, behind.unwrap_or(0), 0, offset);
        }
        let bytes = match size {
            sys::BPF_B => 1,
            sys::BPF_H => 2,
            _ => 4,
        };
        self.set(2, offset);
        if let Some(register) = behind {
            self.put(sys::BPF_ALU | sys::BPF_ADD | sys::BPF_X, 2, register, 0, 0);
        }
        self.put(sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_X, 1, PACKET, 0, 0);
        self.put(sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_X, 3, FRAME, 0, 0);
        self.put(sys::BPF_ALU64 | sys::BPF_ADD | sys::BPF_K, 3, 0, 0, LOADED.into());
        self.set(4, bytes);
        self.call(sys::BPF_FUNC_xdp_load_bytes);
        self.jumps.push((self.instructions.len(), Target::Miss));
        self.put(sys::BPF_JMP | sys::BPF_JNE | sys::BPF_K, A, 0, 0, 0);
        self.put(sys::BPF_LDX | sys::BPF_MEM | size, A, FRAME, LOADED, 0);
        if bytes > 1 {
            self.put(sys::BPF_ALU | sys::BPF_END | sys::BPF_TO_BE, A, 0, 0, bytes * 8);
        }
    }

    fn length(&mut self, register: u8) {
        if !self.in_driver {
            return self.context(register, field!(len));
        }
        self.copy(SPARE, A);
        self.put(sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_X, 1, PACKET, 0, 0);
        self.call(sys::BPF_FUNC_xdp_get_buff_len);
        if register != A {
            self.copy(register, A);
            self.copy(A, SPARE);
        }
    }

    fn call(&mut self, helper: u32) {
        self.put(sys::BPF_JMP | sys::BPF_CALL, 0, 0, 0, helper.cast_signed());
    }

    /// What the kernel knows besides the packet's bytes (`SKF_AD_*`).
    fn ancillary(&mut self, k: i32) -> Result<(), String> {
        if self.in_driver {
            match k - ANCILLARY {
                0 => self.packet(sys::BPF_H, None, ETHERTYPE_AT),
                // Received, without a tag that is not in the packet.
                4 | 44 | 48 | 60 => self.set(A, 0),
                8 => self.context(A, std::mem::offset_of!(xdp_md, ingress_ifindex) as i16),
                other => return Err(format!("it asks for ancillary data {other}")),
            }
            return Ok(());
        }
        match k - ANCILLARY {
            0 => self.network_order(field!(protocol)),
            4 => self.context(A, field!(pkt_type)),
            8 => self.context(A, field!(ifindex)),
            44 => self.context(A, field!(vlan_tci)),
            48 => self.context(A, field!(vlan_present)),
            60 => self.network_order(field!(vlan_proto)),
            other => return Err(format!("it asks for ancillary data {other}")),
        }
        Ok(())
    }

    fn context(&mut self, register: u8, offset: i16) {
        self.put(sys::BPF_LDX | sys::BPF_MEM | sys::BPF_W, register, PACKET, offset, 0);
    }

    /// A context field of 16 bits in network order.
    fn network_order(&mut self, offset: i16) {
        self.context(A, offset);
        self.put(sys::BPF_ALU | sys::BPF_END | sys::BPF_TO_BE, A, 0, 0, 16);
    }

    fn recall(&mut self, register: u8, word: i16) {
        self.put(sys::BPF_LDX | sys::BPF_MEM | sys::BPF_W, register, FRAME, slot(word), 0);
    }

    fn store(&mut self, register: u8, word: i16) {
        self.put(sys::BPF_STX | sys::BPF_MEM | sys::BPF_W, FRAME, register, slot(word), 0);
    }

    fn compute(&mut self, code: u32, k: i32) {
        let by_x = code & sys::BPF_X != 0;
        // Classic BPF ends with 0 where it is to divide by 0.
        if by_x && matches!(code & 0xf0, sys::BPF_DIV | sys::BPF_MOD) {
            self.jumps.push((self.instructions.len(), Target::Miss));
            self.put(sys::BPF_JMP32 | sys::BPF_JEQ | sys::BPF_K, X, 0, 0, 0);
        }
        let (src, imm) = if by_x { (X, 0) } else { (0, k) };
        self.put(sys::BPF_ALU | code & 0xf8, A, src, 0, imm);
    }

    fn branch(&mut self, code: u32, classic: libc::sock_filter) {
        let next = self.starts.len();
        let k = classic.k.cast_signed();
        if code & 0xf0 == sys::BPF_JA {
            return self.go(Target::Classic(next + classic.k as usize));
        }
        let (src, imm) = if code & sys::BPF_X != 0 { (X, 0) } else { (0, k) };
        let taken = Target::Classic(next + usize::from(classic.jt));
        self.jump(sys::BPF_JMP32 | code & 0xf8, src, imm, taken);
        if classic.jf != 0 {
            self.go(Target::Classic(next + usize::from(classic.jf)));
        }
    }

    fn end(&mut self, code: u32, k: i32) {
        if code & 0x18 == sys::BPF_K {
            return self.go(if k == 0 { Target::Miss } else { Target::Match });
        }
        self.jump(sys::BPF_JMP32 | sys::BPF_JEQ | sys::BPF_K, 0, 0, Target::Miss);
        self.go(Target::Match);
    }

    fn go_on(&mut self, programs: i32, entry: u32) {
        self.put(sys::BPF_ALU64 | sys::BPF_MOV | sys::BPF_X, 1, PACKET, 0, 0);
        let wide = sys::BPF_LD | sys::BPF_DW | sys::BPF_IMM;
        self.put(wide, 2, sys::BPF_PSEUDO_MAP_FD as u8, 0, programs);
        self.put(0, 0, 0, 0, 0);
        self.set(3, entry.cast_signed());
        self.call(sys::BPF_FUNC_tail_call);
    }

    /// Both ends of the program, and where jumps to them go.
    fn finish(mut self, programs: i32) -> Result<Vec<bpf_insn>, String> {
        let matched = self.instructions.len();
        self.go_on(programs, Stage::WEIR_STAGE_TAKE.0);
        let missed = self.instructions.len();
        if self.in_driver {
            self.go_on(programs, Stage::WEIR_STAGE_MISSED.0);
        }
        let otherwise = if self.in_driver { XDP_PASS } else { 0 };
        self.set(A, otherwise);
        self.put(sys::BPF_JMP | sys::BPF_EXIT, 0, 0, 0, 0);
        for (at, target) in self.jumps {
            let target = match target {
                Target::Match => matched,
                Target::Miss => missed,
                Target::Classic(number) => {
                    *self.starts.get(number).ok_or("it is a loop, as `protochain` is")?
                }
            };
            let distance = i16::try_from(target - at - 1);
            self.instructions[at].off = distance.map_err(|_| "it is too long")?;
        }
        Ok(self.instructions)
    }
}

fn word(k: i32) -> Result<i16, String> {
    i16::try_from(k)
        .ok()
        .filter(|word| (0..WORDS).contains(word))
        .ok_or_else(|| format!("memory word {k} is none"))
}
