//! Source lines of addresses in programs.

use super::ProgramCode;
use crate::index::Index;
use crate::input::recording::OpenRecording;
use crate::model::FrameSource;
use crate::pass::sinks::instructions::Site;
use crate::pass::sinks::stacks::CodeAddress;
use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the source lines by address, for the addresses that have a source line.
pub(crate) fn lines(
    recording: &OpenRecording<'_>,
    index: &Index,
    addresses: BTreeSet<CodeAddress>,
) -> FxHashMap<CodeAddress, FrameSource> {
    let mut programs: BTreeMap<u32, BTreeMap<u32, Vec<u64>>> = BTreeMap::new();
    for (program, function, addr) in addresses {
        programs.entry(program).or_default().entry(function).or_default().push(addr);
    }
    // No instruction set is given (`None`), so instructions are not decoded. A line then covers all addresses up to the next line.
    let code = ProgramCode::new(recording, index, &programs.keys().copied().collect::<Vec<u32>>(), None);
    let mut lines = FxHashMap::default();
    for (program, functions) in &programs {
        let mut sources = code.sources(*program);
        for (function, listing) in code.listings(*program, |at| functions.contains_key(&at)) {
            let Some(listing) = listing else { continue };
            let first = listing.lines.iter().find_map(|line| sources.line(line.info.as_ref()?));
            let function_line = first.map_or(0, |first| first.line);
            for addr in functions.get(&function).into_iter().flatten() {
                let place = listing.place(Site::At(*addr));
                let line = place.and_then(|place| sources.line(listing.lines[place.line].info.as_ref()?));
                let source = line.map(|line| FrameSource { file: line.file, line: line.line, function_line });
                lines.extend(source.map(|source| ((*program, function, *addr), source)));
            }
        }
    }
    lines
}
