//! Contents of a map at the time of reading.

use crate::layout::meaning::Message;
use crate::layout::{Bytes, CountedText, List, Optional, Plain, layout};

layout! {
    /// A part of a map's contents.
    ///
    /// The entries of a map are one run of bytes: the first entry's key and values, then the second's. Each part holds
    /// the next piece of the run, of any length, so an entry may be larger than a payload. An entry has `key_bytes` of
    /// key and then `value_bytes` for each of `cpus`, or once when there are none: nothing is padded.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct MapContents {
        /// Map id.
        pub map_id: u32,
        /// When reading it began, ns of the recording's clock.
        pub time_ns: u64,
        /// Bytes of an entry's key; 0 for maps without keys, such as queues and stacks.
        pub key_bytes: u32,
        /// Bytes of one value.
        pub value_bytes: u32,
        /// CPUs in the order of an entry's values; empty if an entry has one value for all CPUs.
        pub cpus: Vec<u32> as List,
        /// Offset of `bytes` in the run.
        pub offset: u64,
        /// The next piece of the run.
        pub bytes: Vec<u8> as Bytes,
        /// End of the reading; in the last part only.
        pub end: Option<ContentsEnd> as Optional<Plain>,
    }
}

layout! {
    /// End of the reading of a map.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct ContentsEnd {
        /// Entries in the run.
        pub entries: u64,
        /// Time when reading ended, ns of the recording's clock.
        pub time_ns: u64,
        /// Why entries are missing; empty if the run holds all entries of the map.
        pub cut: String as CountedText<Message>,
    }
}

impl MapContents {
    /// Upper bound of the bytes that a part takes beside its `bytes`, for this number of CPUs and a `cut` of at most
    /// 1,000 bytes.
    pub fn overhead_bytes(cpus: usize) -> usize {
        1200 + 4 * cpus
    }
}
