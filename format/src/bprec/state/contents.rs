//! Contents of a map when it was read.

use crate::layout::meaning::Message;
use crate::layout::{Bytes, CountedText, List, Optional, Plain, layout};

layout! {
    /// A part of a map's contents.
    ///
    /// The entries of a map are one run of bytes: the first entry's key and values, then the second's. Each part has the next
    /// piece of it, of any length, so that an entry may be larger than a payload. An entry has `key_bytes` of key and then
    /// `value_bytes` for each of `cpus`, or once when there are none: nothing is padded.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct MapContents {
        /// Map id.
        pub map_id: u32,
        /// When reading it began, ns of the recording's clock.
        pub time_ns: u64,
        /// Bytes of an entry's key; 0 where entries have none, as those of queues and stacks.
        pub key_bytes: u32,
        /// Bytes of one value.
        pub value_bytes: u32,
        /// The CPUs whose values an entry has one behind the other; empty when it has one value for all.
        pub cpus: Vec<u32> as List,
        /// Offset of `bytes` in the run.
        pub offset: u64,
        /// The next piece of the run.
        pub bytes: Vec<u8> as Bytes,
        /// In the last part only.
        pub end: Option<ContentsEnd> as Optional<Plain>,
    }
}

layout! {
    /// End of the reading of a map.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct ContentsEnd {
        /// Entries in the run.
        pub entries: u64,
        /// When it ended, ns of the recording's clock.
        pub time_ns: u64,
        /// Why there is not more; empty when these are all entries that the map had.
        pub cut: String as CountedText<Message>,
    }
}

impl MapContents {
    /// The most bytes that a part takes beside its `bytes`, with so many CPUs and `cut` no longer than 1,000 bytes.
    pub fn overhead_bytes(cpus: usize) -> usize {
        1200 + 4 * cpus
    }
}
