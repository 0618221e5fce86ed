//! Machine code: boundaries, calls and texts of its instructions.

use iced_x86::{Decoder, DecoderOptions, Formatter, IntelFormatter, Mnemonic, OpKind};
use yaxpeax_arch::{Decoder as _, U8Reader};
use yaxpeax_arm::armv8::a64::InstDecoder;

/// Instruction set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Isa {
    X86_64,
    Arm64,
    /// s390x, shown as bytes.
    S390x,
    /// RISC-V, shown as bytes.
    RiscV64,
}

/// Machine instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Insn {
    /// Offset from the start of the function.
    pub(super) offset: u32,
    pub(super) len_bytes: u8,
    pub(super) call: Call,
}

/// Call that an instruction makes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    No,
    /// Unknown, because the code is not decoded.
    Unknown,
    /// A call, with the target address if the code shows it.
    To(Option<u64>),
}

impl Insn {
    /// Offset one past the last byte.
    pub(super) fn end(&self) -> u32 {
        self.offset + u32::from(self.len_bytes)
    }
}

impl Isa {
    /// Returns the instruction set of an architecture by the kernel's name; `None` for an unsupported architecture.
    pub(super) fn of(machine: &str) -> Option<Isa> {
        match machine {
            "x86_64" => Some(Isa::X86_64),
            "aarch64" | "aarch64_be" => Some(Isa::Arm64),
            "s390x" => Some(Isa::S390x),
            "riscv64" => Some(Isa::RiscV64),
            _ => None,
        }
    }

    /// Returns true if instructions are decoded, false if they are shown as bytes.
    pub(super) fn is_decoded(self) -> bool {
        matches!(self, Isa::X86_64 | Isa::Arm64)
    }

    /// Splits the code of a function at `addr` into instructions. The instructions cover all bytes.
    pub(super) fn decode(self, code: &[u8], addr: u64) -> Vec<Insn> {
        match self {
            Isa::X86_64 => decode_x86_64(code, addr),
            Isa::Arm64 => decode_arm64(code, addr),
            // The length of an instruction is in the first two bits (s390x) or in the lowest two bits of the first byte (RISC-V).
            Isa::S390x => cut(code, |first| [2, 4, 4, 6][usize::from(first[0] >> 6)]),
            Isa::RiscV64 => cut(code, |first| if first[0] & 3 == 3 { 4 } else { 2 }),
        }
    }

    /// Returns the text of an instruction at `addr`, from its bytes.
    pub(super) fn text(self, bytes: &[u8], addr: u64) -> String {
        match self {
            Isa::X86_64 => text_x86_64(bytes, addr),
            Isa::Arm64 => text_arm64(bytes, addr),
            Isa::S390x | Isa::RiscV64 => hex(bytes),
        }
    }
}

/// Bytes in hexadecimal: `48 89 e5`.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(" ")
}

/// Splits code by the length that the first byte of an instruction gives.
fn cut(code: &[u8], len_bytes: impl Fn(&[u8]) -> usize) -> Vec<Insn> {
    let (mut insns, mut at) = (Vec::new(), 0);
    while at < code.len() {
        let len = len_bytes(&code[at..]).min(code.len() - at);
        insns.push(Insn { offset: at as u32, len_bytes: len as u8, call: Call::Unknown });
        at += len;
    }
    insns
}

fn decode_x86_64(code: &[u8], addr: u64) -> Vec<Insn> {
    let mut decoder = Decoder::with_ip(64, code, addr, DecoderOptions::NONE);
    let mut insns = Vec::new();
    while decoder.can_decode() {
        let offset = decoder.position();
        let insn = decoder.decode();
        let call = match insn.mnemonic() {
            Mnemonic::Call if insn.op0_kind() == OpKind::NearBranch64 => Call::To(Some(insn.near_branch64())),
            Mnemonic::Call => Call::To(None),
            _ => Call::No,
        };
        let len = decoder.position() - offset;
        insns.push(Insn { offset: offset as u32, len_bytes: len as u8, call });
    }
    insns
}

fn text_x86_64(bytes: &[u8], addr: u64) -> String {
    let mut formatter = IntelFormatter::new();
    let options = formatter.options_mut();
    options.set_hex_prefix("0x");
    options.set_hex_suffix("");
    options.set_uppercase_hex(false);
    options.set_small_hex_numbers_in_decimal(false);
    options.set_space_after_operand_separator(true);
    options.set_branch_leading_zeros(false);
    options.set_show_branch_size(false);
    let mut text = String::new();
    formatter.format(&Decoder::with_ip(64, bytes, addr, DecoderOptions::NONE).decode(), &mut text);
    text
}

fn decode_arm64(code: &[u8], addr: u64) -> Vec<Insn> {
    // Constant in each register, if known.
    let mut constants = [None; 32];
    let mut insns = cut(code, |_| 4);
    for insn in &mut insns {
        let bytes = &code[insn.offset as usize..insn.end() as usize];
        insn.call = match bytes.first_chunk().map(|word| u32::from_le_bytes(*word)) {
            Some(word) => call_arm64(word, addr.wrapping_add(insn.offset.into()), &mut constants),
            None => Call::No,
        };
    }
    insns
}

/// Updates the known constants by an instruction, and returns the call that the instruction makes.
fn call_arm64(word: u32, addr: u64, constants: &mut [Option<u64>; 32]) -> Call {
    /// Opcode of a move of 16 inverted bits into a 64-bit register; the other bits become ones.
    const MOVN: u32 = 0x9280_0000;
    /// Opcode of a move of 16 bits into a 64-bit register; the other bits become zeros.
    const MOVZ: u32 = 0xd280_0000;
    /// Opcode of a move of 16 bits into a 64-bit register; the other bits stay.
    const MOVK: u32 = 0xf280_0000;
    let (rd, rn) = ((word & 31) as usize, (word >> 5 & 31) as usize);
    let (bits, shift) = (u64::from(word >> 5 & 0xffff), (word >> 21 & 3) * 16);
    match word & 0xff80_0000 {
        MOVN => constants[rd] = Some(!(bits << shift)),
        MOVZ => constants[rd] = Some(bits << shift),
        MOVK => constants[rd] = constants[rd].map(|value| value & !(0xffff << shift) | bits << shift),
        _ => {
            let before = std::mem::take(constants);
            // BL: the lower 26 bits are the signed distance, in words of 4 bytes.
            if word >> 26 == 0b10_0101 {
                let distance = i64::from((word << 6).cast_signed() >> 6) * 4;
                return Call::To(Some(addr.wrapping_add_signed(distance)));
            }
            // BLR: register `rn` has the target.
            if word & 0xffff_fc1f == 0xd63f_0000 {
                return Call::To(before[rn]);
            }
        }
    }
    Call::No
}

fn text_arm64(bytes: &[u8], addr: u64) -> String {
    match InstDecoder::default().decode(&mut U8Reader::new(bytes)) {
        Ok(insn) => absolute(&insn.to_string(), addr),
        Err(_) => format!(".inst {}", hex(bytes)),
    }
}

/// Replaces distances of branch targets in a text, `$+0x8` or `$-0x28`, by addresses.
fn absolute(text: &str, addr: u64) -> String {
    let target = |(before, distance): (&str, &str)| {
        let (sign, digits) = distance.split_at_checked(1)?;
        let distance = u64::from_str_radix(digits.strip_prefix("0x")?, 16).ok()?;
        let target = match sign {
            "+" => addr.wrapping_add(distance),
            _ => addr.wrapping_sub(distance),
        };
        Some(format!("{before}{target:#x}"))
    };
    text.rsplit_once('$').and_then(target).unwrap_or_else(|| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_found_with_their_targets() {
        // push rbp; call +0x10; call rax; ret
        let code = [0x55, 0xe8, 0x10, 0, 0, 0, 0xff, 0xd0, 0xc3];
        let insns = Isa::X86_64.decode(&code, 0xffff_ffff_c000_0000);
        let found: Vec<_> = insns.iter().map(|insn| (insn.offset, insn.len_bytes, insn.call)).collect();
        let target = 0xffff_ffff_c000_0016;
        assert_eq!(found, [(0, 1, Call::No), (1, 5, Call::To(Some(target))), (6, 2, Call::To(None)), (8, 1, Call::No)]);
        assert_eq!(Isa::X86_64.text(&code[1..6], 0xffff_ffff_c000_0001), "call 0xffffffffc0000016");
    }

    /// `emit_addr_mov_i64` and `blr` as the kernel's JIT compiler writes them, and `bl` forward and back.
    #[test]
    fn a_call_by_register_goes_where_the_register_was_set_to() {
        let words: [u32; 7] = [
            0x929c_a3ea, // mov x10, #-0xe520: ...1ae0
            0xf2a0_24ca, // movk x10, #0x126, lsl #16
            0xf2d0_000a, // movk x10, #0x8000, lsl #32
            0xd63f_0140, // blr x10
            0xd63f_0140, // blr x10: no instruction has set x10 since
            0x9400_0017, // bl +0x5c
            0x97ff_ffff, // bl -4
        ];
        let code: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let calls: Vec<Call> = Isa::Arm64.decode(&code, 0x1000).iter().map(|insn| insn.call).collect();
        let to = |addr| Call::To(Some(addr));
        let expected = [to(0xffff_8000_0126_1ae0), Call::To(None), to(0x1014 + 0x5c), to(0x1018 - 4)];
        assert_eq!(calls[3..], expected);
        assert_eq!(Isa::Arm64.text(&code[24..28], 0x1018), "bl 0x1014");
    }

    #[test]
    fn what_is_shown_as_bytes_is_cut_into_instructions() {
        let lens = |isa: Isa, code: &[u8]| isa.decode(code, 0).iter().map(|insn| insn.len_bytes).collect::<Vec<_>>();
        // basr, brasl, la, and the first byte of an instruction that is cut off.
        assert_eq!(lens(Isa::S390x, &[0x0d, 0xe1, 0xc0, 0xe5, 0, 0, 0, 8, 0x41, 0x20, 0xf0, 0, 0xc0]), [2, 6, 4, 1]);
        assert_eq!(lens(Isa::RiscV64, &[0x13, 0, 0, 0, 0x82, 0x80]), [4, 2]);
        assert_eq!(Isa::S390x.text(&[0x0d, 0xe1], 0), "0d e1");
    }

    /// Any bytes are covered by instructions, and each instruction has a text.
    #[test]
    fn any_bytes_are_instructions_of_some_length() {
        let mut state = 3u64;
        let code: Vec<u8> = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as u8
        })
        .take(40_001)
        .collect();
        for isa in [Isa::X86_64, Isa::Arm64, Isa::S390x, Isa::RiscV64] {
            let mut end = 0;
            for insn in isa.decode(&code, 0xffff_8000_0000_0000) {
                assert!(insn.offset == end && insn.len_bytes > 0, "{isa:?} at {end}");
                end = insn.end();
                assert!(!isa.text(&code[insn.offset as usize..end as usize], insn.offset.into()).is_empty());
            }
            assert_eq!(end as usize, code.len(), "{isa:?}");
        }
    }
}
