//! Instructions of BPF programs, as far as they are looked into.

/// The register of the second byte of an instruction that says what an immediate number is.
pub(super) fn source_register(registers: u8) -> u8 {
    // Bitfields: which half comes first is the byte order's choice.
    if cfg!(target_endian = "little") { registers >> 4 } else { registers & 0xf }
}

/// The register of the second byte of an instruction that it writes, or that has the address it writes to.
pub(super) fn target_register(registers: u8) -> u8 {
    if cfg!(target_endian = "little") { registers & 0xf } else { registers >> 4 }
}

/// The eight bytes of an instruction as the kernel reads them.
pub(super) fn word_of(insn: &libbpf_rs::libbpf_sys::bpf_insn) -> u64 {
    let registers = if cfg!(target_endian = "little") {
        insn.dst_reg() | insn.src_reg() << 4
    } else {
        insn.dst_reg() << 4 | insn.src_reg()
    };
    let (offset, number) = (insn.off.to_ne_bytes(), insn.imm.to_ne_bytes());
    u64::from_ne_bytes([insn.code, registers, offset[0], offset[1], number[0], number[1], number[2], number[3]])
}
