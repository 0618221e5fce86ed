//! Fields of BPF instructions.

/// Extracts the source register from an instruction's second byte. In 64-bit immediate loads and in calls, this field is not a register but the kind
/// of the immediate (`BPF_PSEUDO_*`).
pub(super) fn source_register(registers: u8) -> u8 {
    // Each register is a bit field of four bits; the order of the two fields depends on the byte order.
    if cfg!(target_endian = "little") { registers >> 4 } else { registers & 0xf }
}

/// Extracts the target register from an instruction's second byte: the register written, or the register with the address written to.
pub(super) fn target_register(registers: u8) -> u8 {
    if cfg!(target_endian = "little") { registers & 0xf } else { registers >> 4 }
}

/// Encodes an instruction as one word, with the eight bytes that the kernel reads.
pub(super) fn word_of(insn: &libbpf_rs::libbpf_sys::bpf_insn) -> u64 {
    let registers = if cfg!(target_endian = "little") {
        insn.dst_reg() | insn.src_reg() << 4
    } else {
        insn.dst_reg() << 4 | insn.src_reg()
    };
    let (offset, number) = (insn.off.to_ne_bytes(), insn.imm.to_ne_bytes());
    u64::from_ne_bytes([insn.code, registers, offset[0], offset[1], number[0], number[1], number[2], number[3]])
}
