//! The records other than samples, by family. Layouts from `include/uapi/linux/perf_event.h`; emitters are in
//! `kernel/events/core.c`.
//!
//! Every type reads its payload (a record's body without the `sample_id` trailer) with `parse` and appends it with
//! `encode`; [`Payload::decode`] picks the type by the record's number.

mod bpf;
mod late;
mod lost;
mod mmap;
mod task;
mod trace;
pub mod user;

pub use bpf::{BpfEvent, BpfEventKind, Ksymbol, KsymbolKind, TextPoke};
pub use late::{CallchainDeferred, Read};
pub use lost::{Lost, LostSamples, Throttle};
pub use mmap::{BuildId, Mmap, Mmap2, Mmap2File};
pub use task::{Cgroup, Comm, Namespace, Namespaces, Switch, Task};
pub use trace::{Aux, AuxOutputHwId, ItraceStart};
pub use user::UserPayload;

use crate::{Error, Reader, Record, RecordType, Result, SampleId, SampleLayout, Writer};

/// A decoded record other than a sample.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Payload<'a> {
    /// MMAP.
    Mmap(Mmap<'a>),
    /// MMAP2.
    Mmap2(Mmap2<'a>),
    /// COMM.
    Comm(Comm<'a>),
    /// FORK.
    Fork(Task),
    /// EXIT.
    Exit(Task),
    /// NAMESPACES.
    Namespaces(Namespaces),
    /// SWITCH and SWITCH_CPU_WIDE.
    Switch(Switch),
    /// CGROUP.
    Cgroup(Cgroup<'a>),
    /// KSYMBOL.
    Ksymbol(Ksymbol<'a>),
    /// BPF_EVENT.
    BpfEvent(BpfEvent),
    /// TEXT_POKE.
    TextPoke(TextPoke<'a>),
    /// LOST.
    Lost(Lost),
    /// LOST_SAMPLES.
    LostSamples(LostSamples),
    /// THROTTLE.
    Throttle(Throttle),
    /// UNTHROTTLE.
    Unthrottle(Throttle),
    /// READ.
    Read(Read<'a>),
    /// AUX.
    Aux(Aux),
    /// ITRACE_START.
    ItraceStart(ItraceStart),
    /// AUX_OUTPUT_HW_ID.
    AuxOutputHwId(AuxOutputHwId),
    /// CALLCHAIN_DEFERRED.
    CallchainDeferred(CallchainDeferred<'a>),
    /// A record that a tool wrote.
    User(UserPayload<'a>),
    /// A kernel record without a decoder here: the payload as it is.
    Other(&'a [u8]),
}

impl<'a> Payload<'a> {
    /// Decodes a record that is not a sample: its payload, and its trailer as `layout` describes it.
    ///
    /// Records that tools write (types from 64) carry no trailer.
    ///
    /// # Errors
    /// When the record is shorter than its type says, or a string in it does not end.
    pub fn decode(record: &Record<'a>, layout: &SampleLayout) -> Result<(Payload<'a>, SampleId)> {
        let offset = record.offset + crate::RECORD_HEADER_BYTES as u64;
        if !record.kind.is_kernel() {
            return Ok((Payload::User(UserPayload::decode(record, layout.endian())?), SampleId::default()));
        }
        let (bytes, id) = layout.split_trailer(record)?;
        let mut r = Reader::new(bytes, offset, layout.endian());
        let payload = match record.kind {
            RecordType::MMAP => Payload::Mmap(Mmap::parse(&mut r)?),
            RecordType::MMAP2 => Payload::Mmap2(Mmap2::parse(&mut r, record.misc)?),
            RecordType::COMM => Payload::Comm(Comm::parse(&mut r)?),
            RecordType::FORK => Payload::Fork(Task::parse(&mut r)?),
            RecordType::EXIT => Payload::Exit(Task::parse(&mut r)?),
            RecordType::NAMESPACES => Payload::Namespaces(Namespaces::parse(&mut r)?),
            RecordType::SWITCH => Payload::Switch(Switch::parse(&mut r, record.misc, false)?),
            RecordType::SWITCH_CPU_WIDE => Payload::Switch(Switch::parse(&mut r, record.misc, true)?),
            RecordType::CGROUP => Payload::Cgroup(Cgroup::parse(&mut r)?),
            RecordType::KSYMBOL => Payload::Ksymbol(Ksymbol::parse(&mut r)?),
            RecordType::BPF_EVENT => Payload::BpfEvent(BpfEvent::parse(&mut r)?),
            RecordType::TEXT_POKE => Payload::TextPoke(TextPoke::parse(&mut r)?),
            RecordType::LOST => Payload::Lost(Lost::parse(&mut r)?),
            RecordType::LOST_SAMPLES => Payload::LostSamples(LostSamples::parse(&mut r, record.misc)?),
            RecordType::THROTTLE => Payload::Throttle(Throttle::parse(&mut r)?),
            RecordType::UNTHROTTLE => Payload::Unthrottle(Throttle::parse(&mut r)?),
            RecordType::READ => Payload::Read(Read::parse(&mut r, layout.read_format())?),
            RecordType::AUX => Payload::Aux(Aux::parse(&mut r)?),
            RecordType::ITRACE_START => Payload::ItraceStart(ItraceStart::parse(&mut r)?),
            RecordType::AUX_OUTPUT_HW_ID => Payload::AuxOutputHwId(AuxOutputHwId::parse(&mut r)?),
            RecordType::CALLCHAIN_DEFERRED => Payload::CallchainDeferred(CallchainDeferred::parse(&mut r)?),
            _ => Payload::Other(bytes),
        };
        Ok((payload, id))
    }

    /// Appends the payload of a record that the kernel writes, without header and trailer; nothing of a tool's record, which
    /// [`UserPayload::encode`] appends as a whole.
    pub fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Payload::Mmap(payload) => payload.encode(w),
            Payload::Mmap2(payload) => payload.encode(w),
            Payload::Comm(payload) => payload.encode(w),
            Payload::Fork(payload) | Payload::Exit(payload) => payload.encode(w),
            Payload::Namespaces(payload) => payload.encode(w),
            Payload::Switch(payload) => payload.encode(w),
            Payload::Cgroup(payload) => payload.encode(w),
            Payload::Ksymbol(payload) => payload.encode(w),
            Payload::BpfEvent(payload) => payload.encode(w),
            Payload::TextPoke(payload) => payload.encode(w),
            Payload::Lost(payload) => payload.encode(w),
            Payload::LostSamples(payload) => payload.encode(w),
            Payload::Throttle(payload) | Payload::Unthrottle(payload) => payload.encode(w),
            Payload::Read(payload) => payload.encode(w),
            Payload::Aux(payload) => payload.encode(w),
            Payload::ItraceStart(payload) => payload.encode(w),
            Payload::AuxOutputHwId(payload) => payload.encode(w),
            Payload::CallchainDeferred(payload) => payload.encode(w),
            Payload::User(_) => {}
            Payload::Other(bytes) => {
                w.bytes(bytes);
            }
        }
    }
}

/// Appends a record: header, the payload that `fill` writes, padding to 8 bytes, and the trailer.
///
/// # Errors
/// When the record would be larger than the 65,535 bytes that its header can say; nothing is appended then.
pub fn write_record(
    out: &mut Vec<u8>,
    kind: RecordType,
    misc: u16,
    layout: &SampleLayout,
    id: &SampleId,
    fill: impl FnOnce(&mut Writer<'_>),
) -> Result<()> {
    let start = out.len();
    let mut w = Writer::new(out, layout.endian());
    w.u32(kind.0).u16(misc).u16(0);
    fill(&mut w);
    w.align(start, 8);
    if kind.is_kernel() && kind != RecordType::SAMPLE {
        id.encode(layout, out);
    }
    let size = out.len() - start;
    let Ok(size) = u16::try_from(size) else {
        out.truncate(start);
        return Err(Error::value(start as u64, "record size", size as u64, "at most 65535"));
    };
    Writer::new(out, layout.endian()).patch_u16(start + 6, size);
    Ok(())
}

/// A string that ends at its first NUL, from the rest of a payload.
fn string<'a>(r: &mut Reader<'a>, what: &'static str) -> Result<&'a [u8]> {
    let text = r.cstr(what)?;
    r.rest();
    Ok(text)
}

/// Appends a string with at least one NUL, padded to 8 bytes from `start`, the start of the record's payload.
fn put_string(w: &mut Writer<'_>, text: &[u8]) {
    let text = &text[..text.iter().position(|b| *b == 0).unwrap_or(text.len())];
    let start = w.position();
    w.bytes(text).u8(0).align(start, 8);
}
