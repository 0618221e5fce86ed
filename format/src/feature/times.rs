//! Sections about the recording itself: its clocks, its compression, where trace data lies.

use crate::Section;
use crate::layout::{LongList, layout};

layout! {
    /// SAMPLE_TIME (since 4.16).
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct SampleTime {
        /// Time of the first sample in ns of the recording's clock.
        pub first_ns: u64,
        /// Time of the last sample.
        pub last_ns: u64,
    }
}

layout! {
    /// CLOCKID (since 4.20). Only written when a clock was chosen.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ClockResolution {
        /// Resolution of the recording's clock.
        pub resolution_ns: u64,
    }
}

layout! {
    /// CLOCK_DATA (since 5.9): the recording's clock and the wall clock, read together.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ClockData {
        /// 1.
        pub version: u32,
        /// `CLOCK_*` number of the recording's clock.
        pub clockid: u32,
        /// ns since 1970.
        pub wall_clock_ns: u64,
        /// The recording's clock at that moment.
        pub clockid_ns: u64,
    }
}

layout! {
    /// DIR_FORMAT. Makes sense in the `data` file of a directory only.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct DirFormat {
        /// 1 when records are in `data.*` files beside this one.
        pub version: u64,
    }
}

layout! {
    /// COMPRESSED (since 5.2). Without it perf does not unpack; what a record unpacks to is bounded by `mmap_len`.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Compression {
        /// 1.
        pub version: u32,
        /// 1 for zstd.
        pub kind: u32,
        /// Level asked for.
        pub level: u32,
        /// Ratio reached, rounded.
        pub ratio: u32,
        /// No compressed record holds more than this many bytes.
        pub mmap_len_bytes: u32,
    }
}

layout! {
    /// AUXTRACE (since 4.1): `n u64`, then where each AUXTRACE record lies in the file and how long it is.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct AuxtraceIndex(pub Vec<Section> as LongList);
}
