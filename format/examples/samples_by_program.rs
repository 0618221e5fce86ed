//! Counts samples by the BPF program that they are in or that called what they are in: `samples_by_program FILE`.

#![expect(clippy::print_stdout, reason = "what the example is for")]

use bprec_format::Recording;
use bprec_format::bpf::prog_info::BpfProgInfoSection;
use bprec_format::feature::Feature;
use std::collections::BTreeMap;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bytes = std::fs::read(std::env::args_os().nth(1).ok_or("usage: samples_by_program FILE")?)?;
    let mut records = Recording::open(&bytes)?.records();
    // A stream says at its end which programs it had.
    while records.next().is_some() {}
    let metadata = records.metadata();
    let (mut functions, mut counts) = (BTreeMap::new(), BTreeMap::new());
    for section in metadata.feature(Feature::BPF_PROG_INFO) {
        for program in BpfProgInfoSection::new(&section.bytes, section.offset, metadata.endian())? {
            let program = program?;
            let name = program.name().unwrap_or_default().escape_ascii().to_string();
            let (starts, lens) = (program.jited_ksyms(), program.jited_func_lens());
            for (start, len) in starts.iter().flat_map(|it| it.iter()).zip(lens.iter().flat_map(|it| it.iter())) {
                functions.insert(start, (start + u64::from(len), program.id().unwrap_or(0), name.clone()));
            }
        }
    }
    let program_at = |ip| functions.range(..=ip).next_back().filter(|(_, function)| ip < function.0);
    let mut records = Recording::open(&bytes)?.records();
    while let Some(item) = records.next() {
        let Some(sample) = item?.sample() else { continue };
        let frames = sample.callchain()?.into_iter().flat_map(|chain| chain.iter());
        if let Some((_, (_, id, name))) = sample.ip().into_iter().chain(frames).find_map(program_at) {
            *counts.entry((*id, name)).or_insert(0) += 1;
        }
    }
    counts.iter().for_each(|((id, name), count)| println!("{count:8} {id:6} {name}"));
    Ok(())
}
