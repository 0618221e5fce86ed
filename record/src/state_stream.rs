//! `bprec:state`: what perf has no record for, as samples of an event of that name.

use bprec_format::records::write_record;
use bprec_format::state::{PAYLOAD_MAX_BYTES, State};
use bprec_format::{Endian, EventAttr, RecordType, SampleId, SampleLayout};

use crate::{Error, Result, sys};

/// Turns states into samples.
#[derive(Debug)]
pub(crate) struct StateStream {
    layout: SampleLayout,
    id: u64,
    pid: u32,
    payload: Vec<u8>,
}

impl StateStream {
    /// For the event with this attr and id.
    pub(crate) fn new(attr: &EventAttr, id: u64) -> StateStream {
        StateStream {
            layout: SampleLayout::new(attr, Endian::NATIVE),
            id,
            pid: std::process::id(),
            payload: Vec::new(),
        }
    }

    /// Appends the sample that carries `state`, as of now.
    ///
    /// # Errors
    /// When the state is larger than a record.
    pub(crate) fn encode(&mut self, state: &State, out: &mut Vec<u8>) -> Result<()> {
        self.payload.clear();
        state.encode(&mut self.payload, Endian::NATIVE);
        if self.payload.len() > PAYLOAD_MAX_BYTES {
            return Err(Error::Other(format!("a state of {} bytes does not fit into a record", self.payload.len())));
        }
        let time_ns = sys::clock_ns(sys::CLOCK_MONOTONIC);
        // The size of RAW counts its padding, so that size and bytes together are a multiple of 8.
        let raw_bytes = (self.payload.len() + 4).next_multiple_of(8) - 4;
        write_record(out, RecordType::SAMPLE, 0, &self.layout, &SampleId::default(), |w| {
            // In the order of the kernel: IDENTIFIER, IP, TID, TIME, CPU, RAW.
            w.u64(self.id).u64(0).u32(self.pid).u32(self.pid).u64(time_ns).u32(0).u32(0);
            w.u32(raw_bytes as u32).bytes(&self.payload).zeros(raw_bytes - self.payload.len());
        })
        .map_err(|error| Error::Other(format!("bprec:state: {error}")))
    }
}
