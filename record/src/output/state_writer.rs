//! Writer of `bprec:state` samples, which carry data that perf has no record for.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use bprec_format::bprec::state::{EVENT_NAME, PAYLOAD_MAX_BYTES, RecordingId, State};
use bprec_format::records::write_record;
use bprec_format::{Endian, EventAttr, RECORD_HEADER_BYTES, RecordType, SampleId, SampleLayout};

use crate::events::{OpenEvent, OpenEvents};
use crate::{Error, Result, sys};

/// Offset of the time in a sample of `bprec:state`: after the header, IDENTIFIER, IP and TID.
const TIME_AT: usize = RECORD_HEADER_BYTES + 24;

/// Sets the time of all samples in `records`, which a [`StateWriter`] has encoded.
pub(crate) fn stamp(records: &mut [u8], time_ns: u64) {
    let mut at = 0;
    while let Some(size) = records.get(at + 6..at + 8) {
        let size = usize::from(u16::from_ne_bytes([size[0], size[1]]));
        if let Some(time) = records.get_mut(at + TIME_AT..at + TIME_AT + 8) {
            time.copy_from_slice(&time_ns.to_ne_bytes());
        }
        at += size.max(RECORD_HEADER_BYTES);
    }
}

/// Appends the record that identifies the recording, if the events include `bprec:state`.
///
/// # Errors
/// Fails if the record cannot be encoded.
pub(super) fn id_record(events: &[OpenEvent], id: RecordingId, out: &mut Vec<u8>) -> Result<()> {
    let event = events.iter().find(|event| event.name == EVENT_NAME);
    let Some((file, first)) = event.and_then(|event| Some((&event.file, *event.file.ids.first()?))) else {
        return Ok(());
    };
    let start = out.len();
    StateWriter::new(&file.attr, first).encode(&State::Recording(id), out)?;
    stamp(&mut out[start..], sys::monotonic_ns());
    Ok(())
}

/// Creates a unique id for a recording.
pub(super) fn random_id() -> RecordingId {
    // `RandomState` has random keys that differ at each call.
    let random = RandomState::new().hash_one(std::process::id());
    let mut id = [0; 16];
    id[..8].copy_from_slice(&sys::realtime_unix_ns().to_ne_bytes());
    id[8..].copy_from_slice(&random.to_ne_bytes());
    RecordingId(id)
}

/// Encodes states as samples.
#[derive(Debug)]
pub(crate) struct StateWriter {
    layout: SampleLayout,
    id: u64,
    pid: u32,
    payload: Vec<u8>,
}

impl StateWriter {
    /// Creates a writer for the event with this attr and id.
    pub(crate) fn new(attr: &EventAttr, id: u64) -> StateWriter {
        StateWriter {
            layout: SampleLayout::new(attr, Endian::NATIVE),
            id,
            pid: std::process::id(),
            payload: Vec::new(),
        }
    }

    /// Creates a writer for the event that carries the states of a recording.
    pub(crate) fn of(opened: &OpenEvents) -> StateWriter {
        let state = &opened.events[opened.state].file;
        StateWriter::new(&state.attr, state.ids.first().copied().unwrap_or(0))
    }

    /// Appends the sample that carries `state`, or several samples if its list does not fit into one. [`stamp`] sets their times when they are sent.
    ///
    /// # Errors
    /// Fails if the state cannot be divided into parts that fit into a record.
    pub(crate) fn encode(&mut self, state: &State, out: &mut Vec<u8>) -> Result<()> {
        self.payload.clear();
        state.encode(&mut self.payload, Endian::NATIVE);
        if self.payload.len() > PAYLOAD_MAX_BYTES {
            return self.encode_parts(state.clone(), self.payload.len().div_ceil(PAYLOAD_MAX_BYTES), out);
        }
        // The size field of RAW includes its padding, so that the field and the bytes together are a multiple of 8.
        let raw_bytes = (self.payload.len() + 4).next_multiple_of(8) - 4;
        write_record(out, RecordType::SAMPLE, 0, &self.layout, &SampleId::default(), |w| {
            // Fields in the order of the kernel: IDENTIFIER, IP, TID, TIME, CPU, RAW.
            w.u64(self.id).u64(0).u32(self.pid).u32(self.pid).u64(0).u32(0).u32(0);
            w.u32(raw_bytes as u32).bytes(&self.payload).zeros(raw_bytes - self.payload.len());
        })
        .map_err(|error| Error::Other(format!("bprec:state: {error}")))
    }

    /// Appends a state in about `parts` samples.
    fn encode_parts(&mut self, mut state: State, parts: usize, out: &mut Vec<u8>) -> Result<()> {
        if parts < 2 {
            return self.encode(&state, out);
        }
        let second = state.take_half().ok_or_else(|| {
            Error::Other("a part of bprec's own data about the recording does not fit into one record".to_owned())
        })?;
        self.encode_parts(state, parts.div_ceil(2), out)?;
        self.encode_parts(second, parts.div_ceil(2), out)
    }
}

#[cfg(test)]
mod tests {
    use bprec_format::bprec::state::{
        FileFunction, FileFunctions, HolderTimes, KernelSymbol, LinkMisses, PodContainer, ProbeMisses, ProgramCounters,
        ProgramRuns, Reading, RunCounts, RunStats, SharedCounters, SharedTarget, TargetCounters,
    };
    use bprec_format::records::Mmap2File;
    use bprec_format::{Record, Records};

    use super::*;
    use crate::events::Abilities;

    fn writer() -> StateWriter {
        let abilities = Abilities { lost: true, build_id: true, cgroup: true, bpf: true };
        StateWriter::new(&abilities.state(), 7)
    }

    /// Writes a state and reads its samples back.
    fn written(state: &State) -> Vec<State> {
        let (mut writer, mut out) = (writer(), Vec::new());
        writer.encode(state, &mut out).unwrap();
        let read = |record: Record<'_>| {
            let sample = writer.layout.sample(record.body(), 0).unwrap();
            State::decode(sample.raw().unwrap().unwrap(), 0, Endian::NATIVE).unwrap()
        };
        Records::new(&out, 0, Endian::NATIVE).map(|record| read(record.unwrap())).collect()
    }

    /// Writes a state with 4,000 elements for each kind of list. The samples must have the same elements in the same order, in several states.
    #[test]
    fn lists_that_do_not_fit_into_a_record_are_divided() {
        fn list<T>(element: impl FnMut(u32) -> T) -> Vec<T> {
            (0..4000).map(element).collect()
        }
        let name = || b"a name of some length".to_vec();
        let counts = RunCounts { readings: vec![Reading::default(); 4], ..RunCounts::default() };
        let counted = |id| TargetCounters { id, name: name(), counts: Some(counts.clone()), ..Default::default() };
        let shared = |id: u32| SharedTarget { id: id.into(), name: name(), ..Default::default() };
        let functions = list(|at| FileFunction { offset: at.into(), len_bytes: 1, name: name() });
        let file = Mmap2File::Inode { major: 1, minor: 2, inode: 3, generation: 4 };
        let runs = list(|id| ProgramRuns { id, ..ProgramRuns::default() });
        let links = list(|link_id| LinkMisses { link_id, ..LinkMisses::default() });
        let states = [
            State::RunStats(RunStats { time_ns: 7, programs: runs, on_ns: Some(1), others_ns: Some(2) }),
            State::ProgramCounters(ProgramCounters { time_ns: 7, targets: list(counted) }),
            State::SharedCounters(SharedCounters { time_ns: 7, targets: list(shared) }),
            State::ProbeMisses(ProbeMisses { time_ns: 7, links }),
            State::HolderTimes(HolderTimes {
                from_ns: 7,
                to_ns: 8,
                processes: (0..8000).map(|pid| (pid, 9)).collect(),
                resident_bytes: (0..8000).map(|pid| (pid, 10)).collect(),
            }),
            State::KernelSymbols(list(|at| KernelSymbol { addr: at.into(), len_bytes: 1, name: name() })),
            State::PodContainers(list(|id| PodContainer { id: format!("{id:064}"), ..PodContainer::default() })),
            State::FileFunctions(FileFunctions { path: name(), file, functions }),
        ];
        for state in states {
            let parts = written(&state);
            assert!(parts.len() > 1, "{} of kind {}", parts.len(), state.kind());
            let joined = parts.into_iter().reduce(|mut all, part| {
                match (&mut all, part) {
                    (State::RunStats(all), State::RunStats(part)) => all.programs.extend(part.programs),
                    (State::ProgramCounters(all), State::ProgramCounters(part)) => all.targets.extend(part.targets),
                    (State::SharedCounters(all), State::SharedCounters(part)) => all.targets.extend(part.targets),
                    (State::ProbeMisses(all), State::ProbeMisses(part)) => all.links.extend(part.links),
                    (State::HolderTimes(all), State::HolderTimes(part)) => {
                        all.processes.extend(part.processes);
                        all.resident_bytes.extend(part.resident_bytes);
                    }
                    (State::KernelSymbols(all), State::KernelSymbols(part)) => all.extend(part),
                    (State::PodContainers(all), State::PodContainers(part)) => all.extend(part),
                    (State::FileFunctions(all), State::FileFunctions(part)) => all.functions.extend(part.functions),
                    (all, part) => panic!("{all:?} and {part:?}"),
                }
                all
            });
            assert!(joined.as_ref() == Some(&state), "kind {}", state.kind());
        }
    }

    #[test]
    fn elements_of_unequal_length_are_divided() {
        let symbol = |addr| KernelSymbol { addr, len_bytes: 1, name: vec![b'x'; if addr < 60 { 3000 } else { 1 }] };
        let symbols: Vec<KernelSymbol> = (0..1000).map(symbol).collect();
        let parts = written(&State::KernelSymbols(symbols.clone()));
        assert!(parts.len() > 3, "{} parts", parts.len());
        let of = |part| if let State::KernelSymbols(symbols) = part { symbols } else { Vec::new() };
        assert_eq!(parts.into_iter().flat_map(of).collect::<Vec<_>>(), symbols);
    }

    #[test]
    fn an_element_that_does_not_fit_is_an_error() {
        let symbol = KernelSymbol { addr: 1, len_bytes: 1, name: vec![b'x'; 65_000] };
        let refused = writer().encode(&State::KernelSymbols(vec![symbol]), &mut Vec::new()).unwrap_err();
        assert!(refused.to_string().contains("does not fit into one record"), "{refused}");
    }
}
