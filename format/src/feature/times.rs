//! Sections about the recording itself: its clocks, its compression, the location of trace data.

use crate::Section;
use crate::layout::{LongList, layout};

layout! {
    /// SAMPLE_TIME (since 4.16).
    #[derive(Copy)]
    pub struct SampleTime {
        /// Time of the first sample in ns of the recording's clock.
        pub first_ns: u64,
        /// Time of the last sample.
        pub last_ns: u64,
    }

    /// CLOCKID (since 4.20). Only written if a clock was chosen.
    #[derive(Copy)]
    pub struct ClockResolution {
        /// Resolution of the recording's clock.
        pub resolution_ns: u64,
    }

    /// CLOCK_DATA (since 5.9): the recording's clock and the wall clock, read together.
    #[derive(Copy)]
    pub struct ClockData {
        /// Version of the layout: 1.
        pub version: u32,
        /// `CLOCK_*` number of the recording's clock.
        pub clockid: u32,
        /// Wall clock, ns since 1970.
        pub wall_clock_ns: u64,
        /// The recording's clock at that moment.
        pub clockid_ns: u64,
    }

    /// DIR_FORMAT. Used only in the `data` file of a directory.
    #[derive(Copy)]
    pub struct DirFormat {
        /// Version of the layout of the directory: 1 if records are in `data.*` files beside this file.
        pub version: u64,
    }

    /// COMPRESSED (since 5.2). Without this section perf does not unpack records. `mmap_len` limits the unpacked size
    /// of a record.
    #[derive(Copy)]
    pub struct Compression {
        /// Version of the layout: 1.
        pub version: u32,
        /// Method of compression: 1 for zstd.
        pub kind: u32,
        /// Requested level of compression.
        pub level: u32,
        /// Ratio of unpacked to compressed bytes, rounded.
        pub ratio: u32,
        /// Limit on the unpacked bytes of a compressed record.
        pub mmap_len_bytes: u32,
    }

    /// AUXTRACE (since 4.1): `n u64`, then offset and size in the file of each AUXTRACE record.
    pub struct AuxtraceIndex(pub Vec<Section> as LongList);
}
