//! Records other than samples. Layouts: `include/uapi/linux/perf_event.h`; the code that writes them:
//! `kernel/events/core.c`.
//!
//! A payload is the body of a record without the `sample_id` trailer. [`Payload::decode`] reads it, and the `encode` of its
//! type appends it.

/// Declares structs that are payloads of records, with the layouts of their fields.
macro_rules! record {
    ($($(#[$meta:meta])* pub struct $name:ident $(<$life:lifetime>)? { $($fields:tt)* })*) => {
        $crate::layout::layout! { $($(#[$meta])* pub struct $name $(<$life>)? { $($fields)* })* }

        $(impl $(<$life>)? $name $(<$life>)? {
            /// Appends the payload.
            pub fn encode(&self, w: &mut $crate::Writer<'_>) {
                <$crate::layout::Plain as $crate::layout::Codec<'_, $name>>::put(self, w);
            }
        })*
    };
}

/// Reads a payload: by the expression in the table of records if there is one, else by the layout of its type.
macro_rules! payload {
    ($r:ident) => {
        <$crate::layout::Plain as $crate::layout::Codec<'_, _>>::get($r, "record")
    };
    ($r:ident $parse:expr) => {
        $parse
    };
}

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

use crate::{Endian, Error, Reader, Record, RecordType, Result, SampleId, SampleLayout, Writer};

/// Declares the records that the kernel writes: variant and type of the payload, and the record types that have it. An
/// expression after a record type reads a payload that depends on more than its own bytes.
macro_rules! payloads {
    ($life:lifetime, |$r:ident, $record:ident, $layout:ident|
        $($(#[$doc:meta])* $name:ident($ty:ty): $($kind:ident $(=> $parse:expr)?),+;)*) => {
        /// A decoded record other than a sample.
        #[derive(Debug, Clone)]
        #[non_exhaustive]
        pub enum Payload<$life> {
            $($(#[$doc])* $name($ty),)*
            /// Record that a tool wrote.
            User(UserPayload<$life>),
            /// Kernel record of a type without a decoder: the bytes of its payload.
            Other(&$life [u8]),
        }

        impl<$life> Payload<$life> {
            fn of_kernel(
                $r: &mut Reader<$life>,
                $record: &Record<$life>,
                $layout: &SampleLayout,
            ) -> Result<Payload<$life>> {
                Ok(match $record.kind {
                    $($(RecordType::$kind => Payload::$name(payload!($r $($parse)?)?),)+)*
                    _ => Payload::Other($r.rest()),
                })
            }

            /// Appends the payload of a kernel record, without header and trailer. Appends nothing for a record of a
            /// tool: [`UserPayload::encode`] appends such a record as a whole.
            pub fn encode(&self, w: &mut Writer<'_>) {
                match self {
                    $(Payload::$name(payload) => payload.encode(w),)*
                    Payload::User(_) => {}
                    Payload::Other(bytes) => {
                        w.bytes(bytes);
                    }
                }
            }
        }
    };
}

payloads! {
    'a, |r, record, layout|
    /// MMAP.
    Mmap(Mmap<'a>): MMAP;
    /// MMAP2.
    Mmap2(Mmap2<'a>): MMAP2;
    /// COMM.
    Comm(Comm<'a>): COMM;
    /// FORK.
    Fork(Task): FORK;
    /// EXIT.
    Exit(Task): EXIT;
    /// NAMESPACES.
    Namespaces(Namespaces): NAMESPACES;
    /// SWITCH and SWITCH_CPU_WIDE.
    Switch(Switch): SWITCH => Switch::parse(r, record.misc, false), SWITCH_CPU_WIDE => Switch::parse(r, record.misc, true);
    /// CGROUP.
    Cgroup(Cgroup<'a>): CGROUP;
    /// KSYMBOL.
    Ksymbol(Ksymbol<'a>): KSYMBOL;
    /// BPF_EVENT.
    BpfEvent(BpfEvent): BPF_EVENT;
    /// TEXT_POKE.
    TextPoke(TextPoke<'a>): TEXT_POKE => TextPoke::parse(r);
    /// LOST.
    Lost(Lost): LOST;
    /// LOST_SAMPLES.
    LostSamples(LostSamples): LOST_SAMPLES;
    /// THROTTLE.
    Throttle(Throttle): THROTTLE;
    /// UNTHROTTLE.
    Unthrottle(Throttle): UNTHROTTLE;
    /// READ.
    Read(Read<'a>): READ => Read::parse(r, layout.read_format());
    /// AUX.
    Aux(Aux): AUX;
    /// ITRACE_START.
    ItraceStart(ItraceStart): ITRACE_START;
    /// AUX_OUTPUT_HW_ID.
    AuxOutputHwId(AuxOutputHwId): AUX_OUTPUT_HW_ID;
    /// CALLCHAIN_DEFERRED.
    CallchainDeferred(CallchainDeferred<'a>): CALLCHAIN_DEFERRED;
}

impl<'a> Payload<'a> {
    /// Decodes payload and trailer of a record that is not a sample. `layout` is the layout of the record's event.
    ///
    /// Records of tools (types from 64) have no trailer.
    ///
    /// # Errors
    /// Fails if the record is too short for its type, or a string in it has no NUL.
    pub fn decode(record: &Record<'a>, layout: &SampleLayout) -> Result<(Payload<'a>, SampleId)> {
        if !record.kind.is_kernel() {
            return Ok((Payload::User(UserPayload::decode(record, layout.endian())?), SampleId::default()));
        }
        let (bytes, id) = layout.split_trailer(record)?;
        let mut r = Reader::new(bytes, record.body_offset(), layout.endian()).with_misc(record.misc);
        let payload = Payload::of_kernel(&mut r, record, layout)?;
        Ok((payload, id))
    }
}

/// Appends a record: header, the payload that `fill` writes, padding to 8 bytes, and the trailer.
///
/// # Errors
/// Fails if the record would have more than 65,535 bytes, the limit of its header. Then nothing is appended.
pub fn write_record(
    out: &mut Vec<u8>,
    kind: RecordType,
    misc: u16,
    layout: &SampleLayout,
    id: &SampleId,
    fill: impl FnOnce(&mut Writer<'_>),
) -> Result<()> {
    let start = begin_record(out, kind, misc, layout.endian());
    let mut w = Writer::new(out, layout.endian());
    fill(&mut w);
    w.align(start, 8);
    if kind.is_kernel() && kind != RecordType::SAMPLE {
        id.encode(layout, out);
    }
    end_record(out, start, layout.endian())
}

/// Appends the header of a record without its size. Returns the start of the record.
fn begin_record(out: &mut Vec<u8>, kind: RecordType, misc: u16, endian: Endian) -> usize {
    let start = out.len();
    Writer::new(out, endian).u32(kind.0).u16(misc).u16(0);
    start
}

/// Sets the size of the record that ends here. Removes a record that is too large for its header.
fn end_record(out: &mut Vec<u8>, start: usize, endian: Endian) -> Result<()> {
    let size = out.len() - start;
    let Ok(size) = u16::try_from(size) else {
        out.truncate(start);
        return Err(Error::value(start as u64, "record size", size as u64, "at most 65535"));
    };
    Writer::new(out, endian).patch_u16(start + 6, size);
    Ok(())
}

/// Reads a string up to its first NUL, and skips the rest of the payload.
pub(crate) fn string<'a>(r: &mut Reader<'a>, what: &'static str) -> Result<&'a [u8]> {
    let text = r.cstr(what)?;
    r.rest();
    Ok(text)
}

/// Appends a string with at least one NUL, padded to 8 bytes.
pub(crate) fn put_string(w: &mut Writer<'_>, text: &[u8]) {
    let text = &text[..text.iter().position(|b| *b == 0).unwrap_or(text.len())];
    let start = w.position();
    w.bytes(text).u8(0).align(start, 8);
}
