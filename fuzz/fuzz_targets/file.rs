//! Any bytes as a recording: every line of it, and every record in hexadecimal.
#![no_main]

use bprec_report::{ScriptOptions, Show, Source, script};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let show = Show { task: true, mmap: true, switch: true, namespace: true, cgroup: true, lost: true, bpf: true };
    for dump in [false, true] {
        let options = ScriptOptions { show, dump, ..ScriptOptions::default() };
        let _ = script(&mut Source::from_bytes("fuzz", bytes.to_vec()), &options, &mut std::io::sink());
    }
});
