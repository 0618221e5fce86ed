//! BPF instructions as `bpf_prog_info` has them after verification (`include/uapi/linux/bpf.h`, `struct bpf_insn`).

use super::Element;
use crate::Endian;

/// One slot of a program: an instruction, or the second half of a 16-byte instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Insn {
    /// Class, operation and source.
    pub code: u8,
    /// Destination register.
    pub dst: u8,
    /// Source register, or the meaning of the immediate value.
    pub src: u8,
    /// Signed offset: of a jump in slots, of memory in bytes; some operations use it as a modifier.
    pub off: i16,
    /// Immediate value.
    pub imm: i32,
}

impl Insn {
    /// Returns true if the instruction takes two slots: a load of a 64-bit immediate value.
    pub fn is_wide(&self) -> bool {
        self.code == 0x18
    }

    /// Returns true if the instruction calls a helper, a kfunc or another function of the program.
    pub fn is_call(&self) -> bool {
        self.code == 0x85
    }

    /// Returns true for a tail call, which is encoded as a call but does not return.
    pub fn is_tail_call(&self) -> bool {
        /// Number of the helper `bpf_tail_call`. The kernel shows this number in `imm` of a tail call, in place of an
        /// address.
        const TAIL_CALL: i32 = 12;
        self.is_call() && self.src == 0 && self.imm == TAIL_CALL
    }

    /// First slot of the function that the instruction in slot `at` calls or refers to, if that function is in the
    /// program.
    pub fn refers_to(&self, at: u32) -> Option<u32> {
        let distance = match (self.code, self.src) {
            // In a call of a function, the kernel puts the number of the function into `imm` and leaves the distance in
            // `off`.
            (0x85, Insn::PSEUDO_CALL) => i64::from(self.off),
            (0x18, Insn::PSEUDO_FUNC) => i64::from(self.imm),
            _ => return None,
        };
        u32::try_from(i64::from(at) + 1 + distance).ok()
    }

    /// Value of `src` in a call of another function of the program.
    pub const PSEUDO_CALL: u8 = 1;
    /// Value of `src` in a call of a kfunc.
    pub const PSEUDO_KFUNC_CALL: u8 = 2;
    /// Value of `src` in a wide load of the id of a map.
    pub const PSEUDO_MAP: u8 = 1;
    /// Value of `src` in a wide load of the id of a map and an offset in the map's value.
    pub const PSEUDO_MAP_VALUE: u8 = 2;
    /// Value of `src` in a wide load that refers to a function of the program.
    pub const PSEUDO_FUNC: u8 = 4;
}

impl Element for Insn {
    const BYTES: usize = 8;

    fn decode(endian: Endian, bytes: &[u8]) -> Option<Insn> {
        let registers = *bytes.get(1)?;
        let (low, high) = (registers & 15, registers >> 4);
        // C bit fields: the first one takes the low bits on little-endian machines, the high bits on big-endian ones.
        let (dst, src) = match endian {
            Endian::Little => (low, high),
            Endian::Big => (high, low),
        };
        let off = endian.u16_at(bytes, 2)? as i16;
        Some(Insn { code: *bytes.first()?, dst, src, off, imm: endian.u32_at(bytes, 4)? as i32 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `r1 = *(u64 *)(r10 -8)` as stored by machines of each byte order.
    #[test]
    fn registers_change_places_with_the_byte_order() {
        let expected = Insn { code: 0x79, dst: 1, src: 10, off: -8, imm: 7 };
        assert_eq!(Insn::decode(Endian::Little, &[0x79, 0xa1, 0xf8, 0xff, 7, 0, 0, 0]), Some(expected));
        assert_eq!(Insn::decode(Endian::Big, &[0x79, 0x1a, 0xff, 0xf8, 0, 0, 0, 7]), Some(expected));
        assert_eq!(Insn::decode(Endian::Big, &[0x79, 0x1a, 0xff, 0xf8, 0, 0, 0]), None);
    }

    #[test]
    fn calls_refer_to_functions_of_the_program() {
        let call = Insn { code: 0x85, dst: 0, src: Insn::PSEUDO_CALL, off: 24, imm: 2 };
        assert_eq!(call.refers_to(27), Some(52));
        let callback = Insn { code: 0x18, dst: 2, src: Insn::PSEUDO_FUNC, off: 0, imm: 24 };
        assert_eq!(callback.refers_to(1), Some(26));
        assert_eq!(Insn { off: -9, ..call }.refers_to(3), None);
        assert_eq!(Insn { src: 0, ..call }.refers_to(27), None);
        assert!(Insn { src: 0, imm: 12, ..call }.is_tail_call() && !Insn { imm: 12, ..call }.is_tail_call());
    }
}
