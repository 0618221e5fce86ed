//! Reads any bytes as a BPF_PROG_INFO section, in both byte orders.
#![no_main]

#[path = "../../report/tests/support/limits.rs"]
mod limits;

use bprec_format::Endian;
use bprec_format::bpf::prog_info::BpfProgInfoSection;
use limits::within_limits;

fn check(bytes: &[u8]) {
    for endian in [Endian::Little, Endian::Big] {
        for program in BpfProgInfoSection::new(bytes, 0, endian).into_iter().flatten().flatten() {
            let _ = (program.tag(), program.name(), program.jited_insns(), program.xlated_insns());
            let _ = program.jited_ksyms().map(|addresses| addresses.iter().count());
            let _ = program.func_info().map(|functions| functions.iter().count());
            let _ = program.line_info().map(|lines| lines.iter().count());
        }
    }
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| within_limits("fuzz", bytes.len(), || check(bytes)));
