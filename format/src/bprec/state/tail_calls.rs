//! Targets of tail calls.

use crate::layout::{List, layout};

layout! {
    /// The programs in a program array (`BPF_MAP_TYPE_PROG_ARRAY`): a program that uses the map can jump to each of them.
    ///
    /// A recording has one reading of each array that its programs use, made when the recorder first saw the array, and
    /// a second one from the end of the recording if the content differs.
    #[derive(Hash, Default)]
    pub struct ProgArray {
        /// Map id.
        pub map_id: u32,
        /// Count of slots that were not read because the array is too large.
        pub unread_slots: u32,
        /// The slots that hold a program, in order.
        pub slots: Vec<TailCall> as List,
    }

    /// A slot of a program array.
    #[derive(Copy, Hash, Default)]
    pub struct TailCall {
        /// Index of the slot.
        pub index: u32,
        /// Id of the program in the slot.
        pub prog_id: u32,
    }
}
