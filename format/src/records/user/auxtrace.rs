//! Hardware traces (since perf 4.1): AUXTRACE_INFO, AUXTRACE, AUXTRACE_ERROR. The trace data is not decoded.

use crate::layout::{Padded, Rest, until_nul};
use crate::{Reader, Result, Writer};

record! {
    /// AUXTRACE_INFO (since perf 4.1): format of the traces.
    pub struct AuxtraceInfo {
        /// Kind of the traces: 1 Intel PT, 2 Intel BTS, 3 CoreSight, 4 Arm SPE, 5 s390 CPUM_SF, 6 HiSilicon PTT.
        pub kind: u32 as Padded<4>,
        /// Parameters of the decoder.
        pub private: Vec<u64> as Rest,
    }

    /// AUXTRACE (since perf 4.1). The trace data follows the record, outside its size.
    #[derive(Copy)]
    pub struct Auxtrace {
        /// Bytes of trace data after the record.
        pub size_bytes: u64,
        /// Offset of the data in the trace of its buffer.
        pub offset: u64,
        /// Reference number for the decoder.
        pub reference: u64,
        /// Index of the buffer.
        pub idx: u32,
        /// Thread id; all ones for any thread.
        pub tid: u32,
        /// Number of the CPU; all ones for any CPU.
        pub cpu: u32 as Padded<4>,
    }
}

impl AuxtraceInfo {
    /// Name of the hardware that writes traces of this kind; `None` for an unknown kind.
    pub fn kind_name(&self) -> Option<&'static str> {
        Some(match self.kind {
            1 => "Intel PT",
            2 => "Intel BTS",
            3 => "Arm CoreSight",
            4 => "Arm SPE",
            5 => "s390 CPUM_SF",
            6 => "HiSilicon PTT",
            _ => return None,
        })
    }
}

/// AUXTRACE_ERROR (since perf 4.1): `type u32, code u32, cpu u32, pid u32, tid u32, fmt u32, ip u64`, `time u64` from fmt 1 on (since
/// perf 5.1), `msg[64]`, and `machine_pid u32, vcpu u32` from fmt 2 on (since perf 6.0).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuxtraceError<'a> {
    /// Type of the error: 1 for instruction traces.
    pub kind: u32,
    /// Error number of the decoder.
    pub code: u32,
    /// Number of the CPU.
    pub cpu: u32,
    /// Process id.
    pub pid: u32,
    /// Thread id.
    pub tid: u32,
    /// Address of the error.
    pub ip: u64,
    /// Time of the error, ns (fmt ≥ 1).
    pub time_ns: Option<u64>,
    /// Message in words.
    pub message: &'a [u8],
    /// Process id of the guest and its CPU (fmt ≥ 2).
    pub guest: Option<(u32, u32)>,
}

impl<'a> AuxtraceError<'a> {
    const MESSAGE_BYTES: usize = 64;

    pub(super) fn parse(r: &mut Reader<'a>) -> Result<AuxtraceError<'a>> {
        let (kind, code) = (r.u32("AUXTRACE_ERROR type")?, r.u32("AUXTRACE_ERROR code")?);
        let (cpu, pid, tid) =
            (r.u32("AUXTRACE_ERROR cpu")?, r.u32("AUXTRACE_ERROR pid")?, r.u32("AUXTRACE_ERROR tid")?);
        let format = r.u32("AUXTRACE_ERROR fmt")?;
        let ip = r.u64("AUXTRACE_ERROR ip")?;
        let time_ns = if format >= 1 { Some(r.u64("AUXTRACE_ERROR time")?) } else { None };
        // Without a guest, tools end the record after the message's NUL and padding.
        let message = until_nul(r.take(r.remaining().min(Self::MESSAGE_BYTES), "AUXTRACE_ERROR msg")?);
        let guest = if format >= 2 {
            Some((r.u32("AUXTRACE_ERROR machine_pid")?, r.u32("AUXTRACE_ERROR vcpu")?))
        } else {
            None
        };
        Ok(AuxtraceError { kind, code, cpu, pid, tid, ip, time_ns, message, guest })
    }

    /// Appends the payload; a message is cut at 63 bytes.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let format = if self.guest.is_some() { 2 } else { u32::from(self.time_ns.is_some()) };
        w.u32(self.kind).u32(self.code).u32(self.cpu).u32(self.pid).u32(self.tid).u32(format).u64(self.ip);
        if format >= 1 {
            w.u64(self.time_ns.unwrap_or_default());
        }
        let message = &self.message[..self.message.len().min(Self::MESSAGE_BYTES - 1)];
        w.bytes(message).u8(0);
        if let Some((machine_pid, vcpu)) = self.guest {
            w.zeros(Self::MESSAGE_BYTES - 1 - message.len()).u32(machine_pid).u32(vcpu);
        }
    }
}
