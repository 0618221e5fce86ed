//! The records other than samples, by family. Layouts from `include/uapi/linux/perf_event.h`; emitters are in
//! `kernel/events/core.c`.
//!
//! Every type reads its payload (a record's body without the `sample_id` trailer) with `parse` and appends it with
//! `encode`; [`Payload::decode`] picks the type by the record's number.

/// Declares a struct that is the payload of a record, with the layout of its fields.
macro_rules! record {
    ($(#[$meta:meta])* pub struct $name:ident { $($fields:tt)* }) => {
        $crate::layout::layout! { $(#[$meta])* pub struct $name { $($fields)* } }
        $crate::records::record!(@impl [] ['_] $name);
    };
    ($(#[$meta:meta])* pub struct $name:ident<$life:lifetime> { $($fields:tt)* }) => {
        $crate::layout::layout! { $(#[$meta])* pub struct $name<$life> { $($fields)* } }
        $crate::records::record!(@impl [<$life>] [$life] $name<$life>);
    };
    (@impl [$($generics:tt)*] [$life:lifetime] $type:ty) => {
        impl $($generics)* $type {
            pub(in $crate::records) fn parse(r: &mut $crate::Reader<$life>) -> $crate::Result<$type> {
                <$crate::layout::Plain as $crate::layout::Codec<'_, $type>>::get(r, stringify!($type))
            }

            /// Appends the payload.
            pub fn encode(&self, w: &mut $crate::Writer<'_>) {
                <$crate::layout::Plain as $crate::layout::Codec<'_, $type>>::put(self, w);
            }
        }
    };
}

pub(crate) use record;

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

/// Declares the records that the kernel writes: variant and type of the payload, and for each record type how it is read.
macro_rules! payloads {
    ($life:lifetime, |$r:ident, $record:ident, $layout:ident|
        $($(#[$doc:meta])* $name:ident($ty:ty): $($kind:ident => $parse:expr),+;)*) => {
        /// A decoded record other than a sample.
        #[derive(Debug, Clone)]
        #[non_exhaustive]
        pub enum Payload<$life> {
            $($(#[$doc])* $name($ty),)*
            /// A record that a tool wrote.
            User(UserPayload<$life>),
            /// A kernel record without a decoder here: the payload as it is.
            Other(&$life [u8]),
        }

        impl<$life> Payload<$life> {
            fn of_kernel(
                $r: &mut Reader<$life>,
                $record: &Record<$life>,
                $layout: &SampleLayout,
            ) -> Result<Payload<$life>> {
                Ok(match $record.kind {
                    $($(RecordType::$kind => Payload::$name($parse?),)+)*
                    _ => Payload::Other($r.rest()),
                })
            }

            /// Appends the payload of a record that the kernel writes, without header and trailer; nothing of a tool's record, which
            /// [`UserPayload::encode`] appends as a whole.
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
    Mmap(Mmap<'a>): MMAP => Mmap::parse(r);
    /// MMAP2.
    Mmap2(Mmap2<'a>): MMAP2 => Mmap2::parse(r, record.misc);
    /// COMM.
    Comm(Comm<'a>): COMM => Comm::parse(r);
    /// FORK.
    Fork(Task): FORK => Task::parse(r);
    /// EXIT.
    Exit(Task): EXIT => Task::parse(r);
    /// NAMESPACES.
    Namespaces(Namespaces): NAMESPACES => Namespaces::parse(r);
    /// SWITCH and SWITCH_CPU_WIDE.
    Switch(Switch): SWITCH => Switch::parse(r, record.misc, false), SWITCH_CPU_WIDE => Switch::parse(r, record.misc, true);
    /// CGROUP.
    Cgroup(Cgroup<'a>): CGROUP => Cgroup::parse(r);
    /// KSYMBOL.
    Ksymbol(Ksymbol<'a>): KSYMBOL => Ksymbol::parse(r);
    /// BPF_EVENT.
    BpfEvent(BpfEvent): BPF_EVENT => BpfEvent::parse(r);
    /// TEXT_POKE.
    TextPoke(TextPoke<'a>): TEXT_POKE => TextPoke::parse(r);
    /// LOST.
    Lost(Lost): LOST => Lost::parse(r);
    /// LOST_SAMPLES.
    LostSamples(LostSamples): LOST_SAMPLES => LostSamples::parse(r, record.misc);
    /// THROTTLE.
    Throttle(Throttle): THROTTLE => Throttle::parse(r);
    /// UNTHROTTLE.
    Unthrottle(Throttle): UNTHROTTLE => Throttle::parse(r);
    /// READ.
    Read(Read<'a>): READ => Read::parse(r, layout.read_format());
    /// AUX.
    Aux(Aux): AUX => Aux::parse(r);
    /// ITRACE_START.
    ItraceStart(ItraceStart): ITRACE_START => ItraceStart::parse(r);
    /// AUX_OUTPUT_HW_ID.
    AuxOutputHwId(AuxOutputHwId): AUX_OUTPUT_HW_ID => AuxOutputHwId::parse(r);
    /// CALLCHAIN_DEFERRED.
    CallchainDeferred(CallchainDeferred<'a>): CALLCHAIN_DEFERRED => CallchainDeferred::parse(r);
}

impl<'a> Payload<'a> {
    /// Decodes a record that is not a sample: its payload, and its trailer as `layout` describes it.
    ///
    /// Records that tools write (types from 64) carry no trailer.
    ///
    /// # Errors
    /// When the record is shorter than its type says, or a string in it does not end.
    pub fn decode(record: &Record<'a>, layout: &SampleLayout) -> Result<(Payload<'a>, SampleId)> {
        if !record.kind.is_kernel() {
            return Ok((Payload::User(UserPayload::decode(record, layout.endian())?), SampleId::default()));
        }
        let (bytes, id) = layout.split_trailer(record)?;
        let offset = record.offset + crate::RECORD_HEADER_BYTES as u64;
        let payload = Payload::of_kernel(&mut Reader::new(bytes, offset, layout.endian()), record, layout)?;
        Ok((payload, id))
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
    let start = begin_record(out, kind, misc, layout.endian());
    let mut w = Writer::new(out, layout.endian());
    fill(&mut w);
    w.align(start, 8);
    if kind.is_kernel() && kind != RecordType::SAMPLE {
        id.encode(layout, out);
    }
    end_record(out, start, layout.endian())
}

/// Appends the header of a record, without its size, and returns where the record starts.
fn begin_record(out: &mut Vec<u8>, kind: RecordType, misc: u16, endian: Endian) -> usize {
    let start = out.len();
    Writer::new(out, endian).u32(kind.0).u16(misc).u16(0);
    start
}

/// Writes the size of a record that ends here into its header; takes a record away that is too large for one.
fn end_record(out: &mut Vec<u8>, start: usize, endian: Endian) -> Result<()> {
    let size = out.len() - start;
    let Ok(size) = u16::try_from(size) else {
        out.truncate(start);
        return Err(Error::value(start as u64, "record size", size as u64, "at most 65535"));
    };
    Writer::new(out, endian).patch_u16(start + 6, size);
    Ok(())
}

/// A string that ends at its first NUL, from the rest of a payload.
pub(crate) fn string<'a>(r: &mut Reader<'a>, what: &'static str) -> Result<&'a [u8]> {
    let text = r.cstr(what)?;
    r.rest();
    Ok(text)
}

/// Appends a string with at least one NUL, padded to 8 bytes from `start`, the start of the record's payload.
pub(crate) fn put_string(w: &mut Writer<'_>, text: &[u8]) {
    let text = &text[..text.iter().position(|b| *b == 0).unwrap_or(text.len())];
    let start = w.position();
    w.bytes(text).u8(0).align(start, 8);
}
