//! Look-ahead for function names. The recorder writes them at the end of a recording, when it knows which functions were hit. A file is therefore
//! searched before it is printed. In a stream, earlier records are printed without these names.

use bprec_format::bprec::state::State;
use bprec_format::{Record, RecordType};

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
        let mut visit =
            |record: bprec_format::Result<Record<'_>>| match record.ok().and_then(|record| recording.state(&record)) {
                Some(Ok(State::KernelSymbols(found))) => symbols.kernel.extend(found),
                Some(Ok(State::FileFunctions(found))) => symbols.files.push(found),
                _ => {}
            };
        scanner.scan(&records, &mut visit, &|part| recording.finish_part(part));
    });
    symbols
}
