//! Hardware traces in the AUX area: AUX (since 4.1), ITRACE_START (since 4.1), AUX_OUTPUT_HW_ID (since 5.16).

use crate::{Reader, Result, Writer};

/// AUX (since 4.1): `aux_offset u64, aux_size u64, flags u64`: new trace data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aux {
    /// Where it starts, counted over the whole trace.
    pub offset: u64,
    /// Bytes.
    pub size_bytes: u64,
    /// 1 truncated, 2 overwrite mode, 4 with gaps, 8 collided with another; bits 8–15 say the PMU's format.
    pub flags: u64,
}

impl Aux {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<Aux> {
        Ok(Aux { offset: r.u64("AUX aux_offset")?, size_bytes: r.u64("AUX aux_size")?, flags: r.u64("AUX flags")? })
    }

    /// Appends the payload.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.offset).u64(self.size_bytes).u64(self.flags);
    }
}

/// ITRACE_START (since 4.1): `pid u32, tid u32`: an instruction trace started while this task ran.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItraceStart {
    /// Process.
    pub pid: u32,
    /// Thread.
    pub tid: u32,
}

impl ItraceStart {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<ItraceStart> {
        Ok(ItraceStart { pid: r.u32("ITRACE_START pid")?, tid: r.u32("ITRACE_START tid")? })
    }

    /// Appends the payload.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.pid).u32(self.tid);
    }
}

/// AUX_OUTPUT_HW_ID (since 5.16): `hw_id u64`: the number by which the trace names this event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AuxOutputHwId {
    /// The number.
    pub hw_id: u64,
}

impl AuxOutputHwId {
    pub(super) fn parse(r: &mut Reader<'_>) -> Result<AuxOutputHwId> {
        Ok(AuxOutputHwId { hw_id: r.u64("AUX_OUTPUT_HW_ID hw_id")? })
    }

    /// Appends the payload.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.hw_id);
    }
}
