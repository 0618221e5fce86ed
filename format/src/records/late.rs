//! Data that the kernel delivers late: READ, counter values at the end of a task, and CALLCHAIN_DEFERRED (since 6.19), the
//! user part of call chains.

use crate::sample::{Chain, Words};
use crate::{ReadFormat, ReadValues, Reader, Result, Writer};

/// READ (since 2.6.31): `pid u32, tid u32`, then values in the event's `read_format`. The kernel writes it at the end of a
/// task, for events with `inherit_stat`.
#[derive(Debug, Clone)]
pub struct Read<'a> {
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Counter values.
    pub values: ReadValues<'a>,
}

impl<'a> Read<'a> {
    pub(super) fn parse(r: &mut Reader<'a>, format: ReadFormat) -> Result<Read<'a>> {
        Ok(Read { pid: r.u32("READ pid")?, tid: r.u32("READ tid")?, values: ReadValues::parse(r, format)? })
    }

    /// Appends the payload.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.pid).u32(self.tid);
        self.values.encode(w);
    }
}

record! {
    /// CALLCHAIN_DEFERRED (since 6.19): `cookie u64, nr u64, ips u64[nr]`. The trailer names a thread. The record
    /// completes the samples of this thread with a call chain that ends in
    /// [`context::USER_DEFERRED`](crate::context::USER_DEFERRED) and this cookie.
    #[derive(Copy)]
    pub struct CallchainDeferred<'a> {
        /// Cookie of the samples.
        pub cookie: u64,
        /// Frames, innermost first, after a context marker.
        pub ips: Words<'a> as Chain,
    }
}
