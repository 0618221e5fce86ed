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

    /// Appends the sample that carries `state`. [`stamp`] sets the time of the sample when it is sent.
    ///
    /// # Errors
    /// Fails if the state does not fit into a record.
    pub(crate) fn encode(&mut self, state: &State, out: &mut Vec<u8>) -> Result<()> {
        self.payload.clear();
        state.encode(&mut self.payload, Endian::NATIVE);
        if self.payload.len() > PAYLOAD_MAX_BYTES {
            return Err(Error::Other(format!(
                "bprec's own data about the recording ({} bytes) does not fit into one record",
                self.payload.len()
            )));
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
}
