//! Parses any bytes as BTF, cyclic types included.
#![no_main]

#[path = "../../report/tests/support/limits.rs"]
mod limits;

use bprec_format::bpf::btf::{Btf, Limits};
use limits::within_limits;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Ok(btf) = Btf::parse(bytes) else { return };
    for id in 0..btf.len().min(1000) as u32 {
        let _ = (btf.size_of(id), btf.resolve(id).is_some(), btf.func_name(id), btf.variables(id).count());
        // The BTF bytes also serve as the value to decode.
        let limits = Limits { depth: 32, elements: 1000, chars: 10_000 };
        let (value, text) = within_limits("fuzz", bytes.len(), || {
            let value = btf.value(id, bytes, &limits);
            let text = value.to_string();
            (value, text)
        });
        assert!(text.len() < 400_000);
        let _ = value.is_whole();
    }
});
