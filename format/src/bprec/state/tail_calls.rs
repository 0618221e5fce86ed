//! Targets of tail calls.

use crate::layout::{List, layout};

layout! {
    /// The programs in a program array (`BPF_MAP_TYPE_PROG_ARRAY`): a program that uses the map can jump to each of them.
    ///
    /// A recording has a reading of each array that its programs use, from when it was first seen, and a second one from the end of the
    /// recording where that differs.
    #[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
    pub struct ProgArray {
        /// Map id.
        pub map_id: u32,
        /// Slots that were not looked at, as the array has too many.
        pub unread_slots: u32,
        /// The slots that hold a program, in order.
        pub slots: Vec<TailCall> as List,
    }
}

layout! {
    /// A slot of a program array.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
    pub struct TailCall {
        /// Its index.
        pub index: u32,
        /// The program in it.
        pub prog_id: u32,
    }
}
