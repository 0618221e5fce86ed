//! Counts samples by the BPF program that ran or called the running code: `samples_by_program FILE`.

#![expect(clippy::print_stdout, reason = "output of the example")]

use bprec_format::{Recording, bpf::prog_info::BpfProgInfoSection, feature::Feature};
use std::collections::BTreeMap;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let bytes = std::fs::read(std::env::args_os().nth(1).ok_or("usage: samples_by_program FILE")?)?;
    let mut records = Recording::open(&bytes)?.records();
    // In a stream, the programs are at the end, so all records are read first.
    while records.next().is_some() {}
    let (metadata, mut functions) = (records.metadata(), BTreeMap::new());
    let sections = metadata.feature(Feature::BPF_PROG_INFO);
    // Damaged sections and programs are left out.
    let sections = sections.flat_map(|it| BpfProgInfoSection::new(&it.bytes, it.offset, metadata.endian()));
    for program in sections.flatten().flatten() {
        let (id, name) = (program.id().unwrap_or_default(), program.name().unwrap_or_default());
        functions.extend(program.functions().filter_map(|it| it.range()).map(|it| (it.start, (it.end, (id, name)))));
    }
    let (mut records, mut counts) = (Recording::open(&bytes)?.records(), BTreeMap::new());
    while let Some(item) = records.next() {
        let Some(sample) = item?.sample() else { continue };
        let mut addrs = sample.ip().into_iter().chain(sample.callchain()?.unwrap_or_default().iter());
        let function = addrs.find_map(|ip| functions.range(..=ip).next_back().filter(|(_, (end, ..))| ip < *end));
        let Some((_, (_, program))) = function else { continue };
        *counts.entry(program).or_insert(0) += 1;
    }
    counts.iter().for_each(|((id, name), count)| println!("{count:8} {id:6} {}", name.escape_ascii()));
    Ok(())
}
