//! Contents of a map at the time of reading.

use crate::layout::meaning::Message;
use crate::layout::{Bytes, CountedText, List, Optional, Plain, layout};

layout! {
    /// A part of a map's contents.
    ///
    /// The entries of a map are stored one after the other, each with its key and then its values. A `MapContents`
    /// holds some of these bytes, beginning at `offset`; the next one continues after the last byte. An entry may be
    /// larger than a payload, so it may be divided at any byte. An entry has `key_bytes` of key and then `value_bytes`
    /// for each of `cpus`, or once if `cpus` is empty: nothing is padded.
    #[derive(Default)]
    pub struct MapContents {
        /// Map id.
        pub map_id: u32,
        /// Time when reading the map began, ns of the recording's clock.
        pub time_ns: u64,
        /// Bytes of an entry's key; 0 for maps without keys, such as queues and stacks.
        pub key_bytes: u32,
        /// Bytes of one value.
        pub value_bytes: u32,
        /// CPUs in the order of an entry's values; empty if an entry has one value for all CPUs.
        pub cpus: Vec<u32> as List,
        /// Offset of `bytes`, counted from the first byte of the first entry.
        pub offset: u64,
        /// Bytes of the entries, from `offset` on.
        pub bytes: Vec<u8> as Bytes,
        /// End of the reading; `None` in all parts but the last.
        pub end: Option<ContentsEnd> as Optional<Plain>,
    }

    /// End of the reading of a map.
    #[derive(Default)]
    pub struct ContentsEnd {
        /// Count of entries in all parts.
        pub entries: u64,
        /// Time when reading ended, ns of the recording's clock.
        pub time_ns: u64,
        /// Reason why entries are missing; empty if the parts hold all entries of the map.
        pub cut: String as CountedText<Message>,
    }
}

impl MapContents {
    /// Upper bound of the length of an encoded part without its `bytes`, if `cut` has at most 1,000 bytes. `cpus` is the count of CPUs.
    pub fn overhead_bytes(cpus: usize) -> usize {
        1200 + 4 * cpus
    }
}
