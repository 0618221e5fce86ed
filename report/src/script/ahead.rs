//! What stands at the end of a recording and is needed from its start: kernel functions, which the recorder names when it
//! knows which of them were hit. A file is looked through for them before it is printed; of a stream they come too late
//! for all that came before.

use bprec_format::state::{KernelSymbol, State};
use bprec_format::{RECORD_HEADER_BYTES, Record, RecordType};

use crate::Input;
use crate::input::event_kind::EventKind;
use crate::input::recording::Recording;
use crate::input::scan::Scanner;

/// The kernel functions that a recording names. What is wrong with it is told when it is printed.
pub(super) fn kernel_symbols(input: &Input, threads: usize) -> Vec<KernelSymbol> {
    let Ok(recording) = Recording::open(input) else { return Vec::new() };
    if !recording.kinds.contains(&EventKind::State) {
        return Vec::new();
    }
    let endian = recording.endian();
    let is_wanted = |kind: RecordType, record: &[u8]| kind == RecordType::SAMPLE && recording.may_hold_state(record);
    let scanner = Scanner { endian, threads, is_wanted: &is_wanted };
    let mut symbols = Vec::new();
    recording.for_each_slice(|records| {
        let Ok(records) = records else { return };
        let mut visit = |record: bprec_format::Result<Record<'_>>| {
            let state = record.ok().and_then(|record| state(&recording, &record));
            if let Some(State::KernelSymbols(found)) = state {
                symbols.extend(found);
            }
        };
        scanner.scan(&records, &mut visit, &|part| recording.release(part));
    });
    symbols
}

/// What a sample holds, if its event carries states.
fn state(recording: &Recording<'_>, record: &Record<'_>) -> Option<State> {
    let event = recording.events.index_of(record).filter(|event| recording.kinds[*event] == EventKind::State)?;
    let layout = &recording.event(event).layout;
    let offset = record.offset + RECORD_HEADER_BYTES as u64;
    let raw = layout.sample(record.body(), offset).ok()?.raw().ok()?;
    State::decode(raw.unwrap_or_default(), offset, recording.endian()).ok()
}
