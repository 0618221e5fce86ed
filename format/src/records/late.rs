//! Data delivered late: READ, counter values at a task's end, and CALLCHAIN_DEFERRED (since 6.19), the user
//! part of call chains.

use crate::sample::Words;
use crate::{ReadFormat, ReadValues, Reader, Result, Writer};

/// READ (since 2.6.31): `pid u32, tid u32`, then values in the event's `read_format`. The kernel writes it when a task ends, for events
/// with `inherit_stat`.
#[derive(Debug, Clone)]
pub struct Read<'a> {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
    /// The values.
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

/// CALLCHAIN_DEFERRED (since 6.19): `cookie u64, nr u64, ips u64[nr]`. Belongs to every sample of the trailer's thread whose call chain
/// ends in [`context::USER_DEFERRED`](crate::context::USER_DEFERRED) and this cookie.
#[derive(Debug, Clone, Copy)]
pub struct CallchainDeferred<'a> {
    /// Cookie of the samples that the call chain belongs to.
    pub cookie: u64,
    /// Innermost first, with a context marker in front.
    pub ips: Words<'a>,
}

impl<'a> CallchainDeferred<'a> {
    pub(super) fn parse(r: &mut Reader<'a>) -> Result<CallchainDeferred<'a>> {
        Ok(CallchainDeferred { cookie: r.u64("CALLCHAIN_DEFERRED cookie")?, ips: Words::parse(r)? })
    }

    /// Appends the payload.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.cookie).u64(self.ips.len() as u64);
        for ip in self.ips.iter() {
            w.u64(ip);
        }
    }
}
