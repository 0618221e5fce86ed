//! Look-ahead for function names. The recorder writes them at the end of a recording, when it knows which functions were hit. A file is therefore
//! searched before it is printed. In a stream, earlier records are printed without these names.

use bprec_format::bprec::state::State;
use bprec_format::{RECORD_HEADER_BYTES, Record, RecordType};

use crate::Input;
use crate::index::stream_symbols::SymbolsAhead;
use crate::input::event_kind::EventKind;
use crate::input::recording::OpenRecording;
use crate::input::scan::Scanner;

/// Returns the function names that states of a recording have. Errors are ignored here: printing reports them.
pub(super) fn symbols(input: &Input, threads: usize) -> SymbolsAhead {
    let mut symbols = SymbolsAhead::default();
    let Ok(recording) = OpenRecording::open(input) else { return symbols };
    if !recording.kinds.contains(&EventKind::State) {
        return symbols;
    }
    let endian = recording.endian();
    let is_wanted = |kind: RecordType, record: &[u8]| kind == RecordType::SAMPLE && recording.may_hold_state(record);
    let scanner = Scanner { endian, threads, is_wanted: &is_wanted };
    recording.for_each_slice(|slice| {
        let Ok(records) = slice.records else { return };
        let mut visit = |record: bprec_format::Result<Record<'_>>| match record
            .ok()
            .and_then(|record| state(&recording, &record))
        {
            Some(State::KernelSymbols(found)) => symbols.kernel.extend(found),
            Some(State::FileFunctions(found)) => symbols.files.push(found),
            _ => {}
        };
        scanner.scan(&records, &mut visit, &|part| recording.finish_part(part));
    });
    symbols
}

/// Returns the state that a sample carries, if its event carries states.
fn state(recording: &OpenRecording<'_>, record: &Record<'_>) -> Option<State> {
    let event = recording.events.index_of(record).filter(|event| recording.kinds[*event] == EventKind::State)?;
    let layout = &recording.event(event).layout;
    let offset = record.offset + RECORD_HEADER_BYTES as u64;
    let raw = layout.sample(record.body(), offset).ok()?.raw().ok()?;
    State::decode(raw.unwrap_or_default(), offset, recording.endian()).ok()
}
