//! Redaction of addresses in code: BPF instructions and machine code.

use bprec_format::Endian;
use bprec_format::bpf::{Element, Insn};
use iced_x86::{ConstantOffsets, Decoder, DecoderOptions, Instruction, OpKind, Register};

use super::shift::Shift;

/// Shifts kernel addresses in the 64-bit immediates of BPF instructions.
pub(super) fn bpf_instructions(code: &mut [u8], endian: Endian, shift: &Shift) {
    let slots = code.as_chunks_mut::<{ Insn::BYTES }>().0;
    let mut at = 0;
    while let [first, second, ..] = &mut slots[at..] {
        at += 1;
        let Some(insn) = Insn::decode(endian, first).filter(Insn::is_wide) else { continue };
        at += 1;
        let [low, high] = [&*first, second].map(|slot| endian.u32_at(slot, 4).unwrap_or_default());
        let value = u64::from(high) << 32 | u64::from(low);
        // Other values of `src` mark ids of maps, or functions of the program.
        if insn.src == 0 && Shift::is_kernel(value) {
            let moved = shift.of(value);
            first[4..].copy_from_slice(&endian.bytes_u32(moved as u32));
            second[4..].copy_from_slice(&endian.bytes_u32((moved >> 32) as u32));
        }
    }
}

/// Shifts addresses in the machine code of functions, given with their start addresses. Returns false for a `machine` that is not supported.
pub(super) fn machine_code(machine: &str, functions: &mut [(u64, &mut [u8])], shift: &Shift) -> bool {
    let redact = match machine {
        "x86_64" => x86_64,
        "aarch64" => arm64,
        _ => return false,
    };
    functions.iter_mut().for_each(|(addr, code)| redact(*addr, code, shift));
    true
}

fn x86_64(addr: u64, code: &mut [u8], shift: &Shift) {
    let original = code.to_vec();
    let mut decoder = Decoder::with_ip(64, &original, addr, DecoderOptions::NONE);
    let mut insn = Instruction::default();
    while decoder.can_decode() {
        let start = decoder.position();
        decoder.decode_out(&mut insn);
        let places = decoder.get_constant_offsets(&insn);
        let end = decoder.position();
        for (offset, bytes) in x86_64_fields(&insn, &places, shift).into_iter().flatten() {
            let at = start + offset;
            if let Some(field) = code.get_mut(at..end).and_then(|field| field.get_mut(..bytes.len())) {
                field.copy_from_slice(&bytes);
            }
        }
    }
}

/// Returns the new bytes of an instruction's immediate and of its displacement, each with its byte position; `None` for a field that stays.
fn x86_64_fields(insn: &Instruction, places: &ConstantOffsets, shift: &Shift) -> [Option<(usize, Vec<u8>)>; 2] {
    /// Returns the redacted distance from the instruction to `target`. It differs from the original if the two are in regions that are shifted by
    /// different offsets.
    fn distance(insn: &Instruction, target: u64, shift: &Shift) -> Vec<u8> {
        let distance = target.wrapping_sub(insn.next_ip());
        let moved = distance.wrapping_add(shift.by(target)).wrapping_sub(shift.by(insn.ip()));
        (moved as u32).to_le_bytes().to_vec()
    }
    let kinds = insn.op_kinds();
    let mut immediate = None;
    for (operand, kind) in kinds.enumerate() {
        let bytes = match (kind, places.immediate_size()) {
            (OpKind::NearBranch64, 4) => distance(insn, insn.near_branch64(), shift),
            (OpKind::Immediate64, 8) if Shift::is_kernel(insn.immediate64()) => {
                shift.of(insn.immediate64()).to_le_bytes().to_vec()
            }
            // The instruction has only the lower 32 bits and sign-extends them. The upper bits of the shifted address may therefore differ.
            (OpKind::Immediate32to64, 4) if Shift::is_kernel(insn.immediate(operand as u32)) => {
                (shift.of(insn.immediate(operand as u32)) as u32).to_le_bytes().to_vec()
            }
            _ => continue,
        };
        immediate = Some((places.immediate_offset(), bytes));
    }
    let displacement = match places.displacement_size() {
        4 if insn.is_ip_rel_memory_operand() => Some(distance(insn, insn.ip_rel_memory_address(), shift)),
        4 if insn.memory_base() == Register::None && Shift::is_kernel(insn.memory_displacement64()) => {
            Some((shift.of(insn.memory_displacement64()) as u32).to_le_bytes().to_vec())
        }
        _ => None,
    };
    [immediate, displacement.map(|bytes| (places.displacement_offset(), bytes))]
}

/// An arm64 instruction that sets 16 bits of a register.
struct WideMove {
    kind: MoveKind,
    register: u32,
    /// Position of the 16 bits in the register, in units of 16 bits.
    part: usize,
    value: u16,
}

#[derive(PartialEq, Eq)]
enum MoveKind {
    /// MOVZ: clears the other bits.
    Zero,
    /// MOVN: stores the inverted bits, sets the other bits.
    Ones,
    /// MOVK: keeps the other bits.
    Keep,
}

impl WideMove {
    fn decode(word: u32) -> Option<WideMove> {
        let kind = match word & 0xff80_0000 {
            0xd280_0000 => MoveKind::Zero,
            0x9280_0000 => MoveKind::Ones,
            0xf280_0000 => MoveKind::Keep,
            _ => return None,
        };
        let (part, value) = ((word >> 21 & 3) as usize, (word >> 5) as u16);
        Some(WideMove { kind, register: word & 0x1f, part, value })
    }
}

/// Shifts addresses in arm64 code. They are loaded into a register by several instructions, 16 bits at a time, or are 64-bit literals after the code.
fn arm64(_addr: u64, code: &mut [u8], shift: &Shift) {
    let words = code.as_chunks_mut::<4>().0;
    let mut at = 0;
    while at < words.len() {
        let word = |at: usize| words.get(at).map(|bytes| u32::from_le_bytes(*bytes));
        let first = word(at).and_then(WideMove::decode).filter(|first| first.kind != MoveKind::Keep);
        if let Some(first) = first {
            let follows = |at: &usize| {
                let next = word(*at).and_then(WideMove::decode);
                next.is_some_and(|next| next.kind == MoveKind::Keep && next.register == first.register)
            };
            let end = (at + 1..).find(|at| !follows(at)).unwrap_or(at + 1);
            arm64_value(&mut words[at..end], shift);
            at = end;
            continue;
        }
        if let (Some(low), Some(high)) = (word(at), word(at + 1))
            && Shift::is_kernel(u64::from(high) << 32 | u64::from(low))
        {
            let moved = shift.of(u64::from(high) << 32 | u64::from(low));
            words[at] = (moved as u32).to_le_bytes();
            words[at + 1] = ((moved >> 32) as u32).to_le_bytes();
            at += 2;
            continue;
        }
        at += 1;
    }
}

/// Shifts the value that several instructions load into a register.
fn arm64_value(words: &mut [[u8; 4]], shift: &Shift) {
    let moves: Vec<WideMove> = words.iter().filter_map(|word| WideMove::decode(u32::from_le_bytes(*word))).collect();
    let Some(first) = moves.first() else { return };
    let rest = if first.kind == MoveKind::Ones { u16::MAX } else { 0 };
    let mut parts = [rest; 4];
    for it in &moves {
        parts[it.part] = if it.kind == MoveKind::Ones { !it.value } else { it.value };
    }
    let value = parts.iter().rev().fold(0u64, |value, part| value << 16 | u64::from(*part));
    if !Shift::is_kernel(value) {
        return;
    }
    let moved = shift.of(value);
    let part = |number: usize| (moved >> (16 * number)) as u16;
    // If the instructions cannot express the new value, their immediates become 0, so that they do not reveal the old value.
    let can_say = (0..4).all(|number| part(number) == rest || moves.iter().any(|it| it.part == number));
    for (word, it) in words.iter_mut().zip(&moves) {
        let value = match it.kind {
            _ if !can_say => 0,
            MoveKind::Ones => !part(it.part),
            _ => part(it.part),
        };
        *word = (u32::from_le_bytes(*word) & !(0xffff << 5) | u32::from(value) << 5).to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const TEXT: u64 = 0xffff_ffff_8123_4000;
    const DATA: u64 = 0xffff_8881_0040_2000;

    #[test]
    fn calls_of_x86_reach_what_has_moved() {
        let (shift, here) = (Shift::random(), 0xffff_ffff_c000_1000u64);
        let distance = (TEXT.wrapping_sub(here + 5) as u32).to_le_bytes();
        let mut code = [&[0xe8][..], &distance, &[0x48, 0xbf], &DATA.to_le_bytes(), &[0xeb, 0xef, 0xc3]].concat();
        let before = code.clone();
        assert!(machine_code("x86_64", &mut [(here, &mut code)], &shift));
        let moved = i32::from_le_bytes(code[1..5].try_into().unwrap());
        assert_eq!((shift.of(here) + 5).wrapping_add_signed(moved.into()), shift.of(TEXT));
        assert_eq!(code[7..15], shift.of(DATA).to_le_bytes());
        assert_eq!((&code[..1], &code[5..7], &code[15..]), (&before[..1], &before[5..7], &before[15..]));
        assert!(!machine_code("s390x", &mut [(here, &mut code)], &shift));
    }

    #[test]
    fn values_of_arm64_move_or_go() {
        let value = |code: &[u8]| {
            let words = code.as_chunks::<4>().0.iter().map(|word| WideMove::decode(u32::from_le_bytes(*word)).unwrap());
            words.fold(0, |value, it| match it.kind {
                MoveKind::Ones => !(u64::from(it.value) << (16 * it.part)),
                MoveKind::Zero => u64::from(it.value) << (16 * it.part),
                MoveKind::Keep => value & !(0xffff << (16 * it.part)) | u64::from(it.value) << (16 * it.part),
            })
        };
        let text = 0xffff_8000_8123_4560u64;
        let part = |at: u32| (text >> (16 * at)) as u16;
        // movn x10, ~low; movk x10, lsl 16; movk x10, lsl 32
        let words = [
            0x9280_000a | u32::from(!part(0)) << 5,
            0xf2a0_000a | u32::from(part(1)) << 5,
            0xf2c0_000a | u32::from(part(2)) << 5,
        ];
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(value(&code), text);
        for _ in 0..100 {
            let shift = Shift::random();
            let mut moved = code.clone();
            assert!(machine_code("aarch64", &mut [(text, &mut moved)], &shift));
            assert_eq!(value(&moved), shift.of(text));
            let mut literal = [code.clone(), text.to_le_bytes().to_vec()].concat();
            assert!(machine_code("aarch64", &mut [(text, &mut literal)], &shift));
            assert_eq!(literal[12..], shift.of(text).to_le_bytes());
        }
    }

    #[test]
    fn addresses_that_bpf_loads_move() {
        let shift = Shift::random();
        let insn = |code: u8, regs: u8, imm: u32| [&[code, regs, 0, 0][..], &imm.to_le_bytes()].concat();
        let wide = |regs, value: u64| [insn(0x18, regs, value as u32), insn(0, 0, (value >> 32) as u32)].concat();
        let mut code = [wide(1, TEXT), wide(0x11, TEXT), wide(1, 7), insn(0x95, 0, 0)].concat();
        let before = code.clone();
        bpf_instructions(&mut code, Endian::Little, &shift);
        assert_eq!(code[..16], wide(1, shift.of(TEXT)));
        assert_eq!(code[16..], before[16..], "ids of maps and small numbers are kept");
    }
}
