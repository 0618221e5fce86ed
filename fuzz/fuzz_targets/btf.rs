//! Any bytes as BTF, cyclic types included.
#![no_main]

use bprec_format::bpf::btf::Btf;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(btf) = Btf::parse(bytes) else { return };
    for id in 0..btf.len().min(1000) as u32 {
        let _ = (btf.size_of(id), btf.resolve(id).is_some(), btf.func_name(id), btf.variables(id).count());
    }
});
