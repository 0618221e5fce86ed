//! Any bytes as BTF, cyclic types included.
#![no_main]

use bprec_format::bpf::btf::{Btf, Limits};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(btf) = Btf::parse(bytes) else { return };
    for id in 0..btf.len().min(1000) as u32 {
        let _ = (btf.size_of(id), btf.resolve(id).is_some(), btf.func_name(id), btf.variables(id).count());
        // The blob itself is as good a value as any.
        let value = btf.value(id, bytes, &Limits { depth: 32, elements: 1000, chars: 10_000 });
        assert!(value.to_string().len() < 400_000);
        let _ = (btf.type_name(id), btf.definitions(id), value.is_whole());
    }
});
