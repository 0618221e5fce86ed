//! Sections about the recording itself: its clocks, its compression, where trace data lies.

use super::{Payload, Section, read_items};
use crate::{Error, Reader, Result, Writer};

/// SAMPLE_TIME (since 4.16): `first u64, last u64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SampleTime {
    /// Time of the first sample in ns of the recording's clock.
    pub first_ns: u64,
    /// Time of the last sample.
    pub last_ns: u64,
}

impl<'a> Payload<'a> for SampleTime {
    fn read(r: &mut Reader<'a>, _: &mut Option<Error>) -> Result<SampleTime> {
        Ok(SampleTime { first_ns: r.u64("SAMPLE_TIME first")?, last_ns: r.u64("SAMPLE_TIME last")? })
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.first_ns).u64(self.last_ns);
    }
}

/// CLOCKID (since 4.20): one `u64`. Only written when a clock was chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockResolution {
    /// Resolution of the recording's clock.
    pub resolution_ns: u64,
}

impl<'a> Payload<'a> for ClockResolution {
    fn read(r: &mut Reader<'a>, _: &mut Option<Error>) -> Result<ClockResolution> {
        Ok(ClockResolution { resolution_ns: r.u64("CLOCKID resolution")? })
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.resolution_ns);
    }
}

/// CLOCK_DATA (since 5.9): the recording's clock and the wall clock, read together: `version u32, clockid u32,
/// wall_clock_ns u64, clockid_ns u64`.
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

impl<'a> Payload<'a> for ClockData {
    fn read(r: &mut Reader<'a>, _: &mut Option<Error>) -> Result<ClockData> {
        Ok(ClockData {
            version: r.u32("CLOCK_DATA version")?,
            clockid: r.u32("CLOCK_DATA clockid")?,
            wall_clock_ns: r.u64("CLOCK_DATA wall clock")?,
            clockid_ns: r.u64("CLOCK_DATA clockid time")?,
        })
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.version).u32(self.clockid).u64(self.wall_clock_ns).u64(self.clockid_ns);
    }
}

/// DIR_FORMAT: one `u64`. Makes sense in the `data` file of a directory only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DirFormat {
    /// 1 when records are in `data.*` files beside this one.
    pub version: u64,
}

impl<'a> Payload<'a> for DirFormat {
    fn read(r: &mut Reader<'a>, _: &mut Option<Error>) -> Result<DirFormat> {
        Ok(DirFormat { version: r.u64("DIR_FORMAT version")? })
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.version);
    }
}

/// COMPRESSED (since 5.2): `version, type, level, ratio, mmap_len: u32`. Without it perf does not unpack; what a record
/// unpacks to is bounded by `mmap_len`.
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

impl<'a> Payload<'a> for Compression {
    fn read(r: &mut Reader<'a>, _: &mut Option<Error>) -> Result<Compression> {
        Ok(Compression {
            version: r.u32("COMPRESSED version")?,
            kind: r.u32("COMPRESSED type")?,
            level: r.u32("COMPRESSED level")?,
            ratio: r.u32("COMPRESSED ratio")?,
            mmap_len_bytes: r.u32("COMPRESSED mmap_len")?,
        })
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.version).u32(self.kind).u32(self.level).u32(self.ratio).u32(self.mmap_len_bytes);
    }
}

/// AUXTRACE (since 4.1): `n u64`, then where each AUXTRACE record lies in the file and how long it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuxtraceIndex(pub Vec<Section>);

impl<'a> Payload<'a> for AuxtraceIndex {
    fn read(r: &mut Reader<'a>, problem: &mut Option<Error>) -> Result<AuxtraceIndex> {
        let count = r.u64("AUXTRACE count")?;
        Ok(AuxtraceIndex(read_items(r, count, problem, |r| {
            Ok(Section { offset: r.u64("AUXTRACE file offset")?, size: r.u64("AUXTRACE size")? })
        })))
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.0.len() as u64);
        for section in &self.0 {
            w.u64(section.offset).u64(section.size);
        }
    }
}
