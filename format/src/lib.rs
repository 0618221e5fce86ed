//! perf.data, BPF blobs and BTF: bytes ⇄ types.
//!
//! Readers borrow from the bytes of the caller; writers append to a buffer. All of them support both byte orders.
//!
//! The crate does not know files or the operating system, and contains no `unsafe`. Errors state the place and the kind of damage. Data that is
//! readable in spite of the damage is returned.
#![forbid(unsafe_code)]

mod attr;
pub mod bpf;
pub mod bprec;
mod chunk;
mod endian;
mod error;
mod event_name;
mod events;
pub mod feature;
mod file;
mod inflate;
mod layout;
mod metadata;
mod order;
mod record;
mod recording;
pub mod records;
mod resync;
pub mod rewrite;
mod sample;
mod stream;
mod trailer;

pub use attr::{ATTR_SIZE_MAX, ATTR_SIZES, AttrFlags, EventAttr, ReadFormat, SampleType, event_type, software};
pub use chunk::{Chunk, Chunks, Origin};
pub use endian::{Endian, Reader, Writer};
pub use error::{Error, Problem, Result};
pub use event_name::kernel_event_name;
pub use events::{Event, Events};
pub use file::{Container, FILE_HEADER_BYTES, File, FileAttr, FileLayout, PIPE_HEADER_BYTES, Section, pipe_header};
pub use layout::{Secret, Secrets};
pub use metadata::{FeatureSection, Metadata};
pub use order::{OrderedRecord, OrderedRun, TimeOrder};
pub use record::{Availability, RECORD_HEADER_BYTES, Record, RecordType, Records, misc};
pub use recording::{Decoded, Item, RecordReader, Recording};
pub use resync::Resync;
pub use sample::{
    Branch, Branches, CONTEXT_MAX, Callchain, ReadValue, ReadValues, Regs, Sample, SampleFields, SampleLayout, Words,
    context,
};
pub use stream::Stream;
pub use trailer::SampleId;

/// Compiles the example of README.md.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
