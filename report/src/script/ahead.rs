//! What stands at the end of a recording and is needed from its start: kernel functions, which the recorder names when it
//! knows which of them were hit. A file is looked through for them before it is printed; of a stream they come too late
//! for all that came before.

use std::ops::ControlFlow;

use bprec_format::state::{KernelSymbol, State};
use bprec_format::{Event, Events, Metadata, RECORD_HEADER_BYTES, Record, RecordType};

use crate::Result;
use crate::recording::{Role, role};
use crate::source::{Arrival, Source, Visitor};

/// What a sample of a [`Role::State`] event holds.
pub(super) fn state(event: &Event, record: &Record<'_>) -> bprec_format::Result<State> {
    let offset = record.offset + RECORD_HEADER_BYTES as u64;
    let raw = event.layout.sample(record.body(), offset)?.raw()?.unwrap_or_default();
    State::decode(raw, offset, event.layout.endian())
}

/// The kernel functions that a recording names, if it can be read twice. What is wrong with it is told when it is printed.
pub(super) fn kernel_symbols(source: &mut Source) -> Vec<KernelSymbol> {
    let mut ahead = Ahead::default();
    if source.is_lasting() && source.for_each(&mut ahead).is_ok() { ahead.symbols } else { Vec::new() }
}

#[derive(Default)]
struct Ahead {
    events: Option<(Events, Vec<Role>)>,
    symbols: Vec<KernelSymbol>,
}

impl<'a> Visitor<'a> for Ahead {
    fn mapped(&mut self, _files: Vec<&'a [u8]>) {}

    fn record(&mut self, arrival: &Arrival<'_>, metadata: &Metadata<'_>) -> Result<ControlFlow<()>> {
        if !arrival.record.kind.is_kernel() {
            return Ok(ControlFlow::Continue(()));
        }
        if self.events.is_none() {
            let names = metadata.event_names();
            let roles: Vec<Role> = metadata.attrs().iter().zip(&names).map(|(it, name)| role(&it.attr, name)).collect();
            let Some(events) = Events::new(metadata.attrs(), metadata.endian()).ok() else {
                return Ok(ControlFlow::Break(()));
            };
            if !roles.contains(&Role::State) {
                return Ok(ControlFlow::Break(()));
            }
            self.events = Some((events, roles));
        }
        if arrival.record.kind == RecordType::SAMPLE
            && let Some((events, roles)) = &self.events
            && let Some(index) = events.index_of(&arrival.record).filter(|index| roles[*index] == Role::State)
            && let Ok(State::KernelSymbols(symbols)) = state(&events.all()[index], &arrival.record)
        {
            self.symbols.extend(symbols);
        }
        Ok(ControlFlow::Continue(()))
    }

    fn end(&mut self, _metadata: &Metadata<'_>) -> Result<()> {
        Ok(())
    }
}
