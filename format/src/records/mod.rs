//! The records other than samples, by family. Layouts from `include/uapi/linux/perf_event.h`; emitters are in
//! `kernel/events/core.c`.
//!
//! Every type reads its payload (a record's body without the `sample_id` trailer) with `parse` and appends it with
//! `encode`; [`Event::decode`] picks the type by the record's number.

mod bpf;
mod lost;
mod mmap;
mod task;

pub use bpf::{BpfEvent, BpfEventKind, Ksymbol, KsymbolKind, TextPoke};
pub use lost::{Lost, LostSamples, Throttle};
pub use mmap::{BuildId, Mmap, Mmap2, Mmap2File};
pub use task::{Cgroup, Comm, Namespace, Namespaces, Switch, Task};

use crate::{Error, Reader, Record, RecordType, Result, SampleId, SampleLayout, Writer};

/// A decoded kernel record.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Event<'a> {
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
    /// A type without a decoder here: the payload as it is.
    Other(&'a [u8]),
}

impl<'a> Event<'a> {
    /// Decodes a record that is not a sample: its payload, and its trailer as `layout` describes it.
    ///
    /// Records that tools write (types from 64) carry no trailer; they come back as [`Event::Other`] with all of their
    /// body.
    ///
    /// # Errors
    /// When the record is shorter than its type says, or a string in it does not end.
    pub fn decode(record: &Record<'a>, layout: &SampleLayout) -> Result<(Event<'a>, SampleId)> {
        let offset = record.offset + crate::RECORD_HEADER_BYTES as u64;
        if !record.kind.is_kernel() {
            return Ok((Event::Other(record.body()), SampleId::default()));
        }
        let (payload, id) = layout.split_trailer(record.body(), offset)?;
        let mut r = Reader::new(payload, offset, layout.endian());
        let event = match record.kind {
            RecordType::MMAP => Event::Mmap(Mmap::parse(&mut r)?),
            RecordType::MMAP2 => Event::Mmap2(Mmap2::parse(&mut r, record.misc)?),
            RecordType::COMM => Event::Comm(Comm::parse(&mut r)?),
            RecordType::FORK => Event::Fork(Task::parse(&mut r)?),
            RecordType::EXIT => Event::Exit(Task::parse(&mut r)?),
            RecordType::NAMESPACES => Event::Namespaces(Namespaces::parse(&mut r)?),
            RecordType::SWITCH => Event::Switch(Switch::parse(&mut r, record.misc, false)?),
            RecordType::SWITCH_CPU_WIDE => Event::Switch(Switch::parse(&mut r, record.misc, true)?),
            RecordType::CGROUP => Event::Cgroup(Cgroup::parse(&mut r)?),
            RecordType::KSYMBOL => Event::Ksymbol(Ksymbol::parse(&mut r)?),
            RecordType::BPF_EVENT => Event::BpfEvent(BpfEvent::parse(&mut r)?),
            RecordType::TEXT_POKE => Event::TextPoke(TextPoke::parse(&mut r)?),
            RecordType::LOST => Event::Lost(Lost::parse(&mut r)?),
            RecordType::LOST_SAMPLES => Event::LostSamples(LostSamples::parse(&mut r, record.misc)?),
            RecordType::THROTTLE => Event::Throttle(Throttle::parse(&mut r)?),
            RecordType::UNTHROTTLE => Event::Unthrottle(Throttle::parse(&mut r)?),
            _ => Event::Other(payload),
        };
        Ok((event, id))
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
