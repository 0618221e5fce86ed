//! Records: headers, types, and the walk from one record to the next.

use crate::{Endian, Error, Result};

/// Type of a record. The number of an unknown type is kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordType(pub u32);

macro_rules! record_types {
    ($($(#[$doc:meta])* $name:ident = $n:expr;)*) => {
        impl RecordType {
            $($(#[$doc])* pub const $name: RecordType = RecordType($n);)*

            /// Known types with their names, in ascending order.
            pub const NAMES: &'static [(RecordType, &'static str)] =
                &[$((RecordType::$name, stringify!($name)),)*];
        }
    };
}

record_types! {
    /// A mapping in the old layout.
    MMAP = 1;
    /// Loss of records because the ring was full.
    LOST = 2;
    /// New name of a task.
    COMM = 3;
    /// End of a task.
    EXIT = 4;
    /// Sampling stopped until the next tick.
    THROTTLE = 5;
    /// Sampling started again.
    UNTHROTTLE = 6;
    /// Start of a task.
    FORK = 7;
    /// Counter values at the end of a task.
    READ = 8;
    /// A sample.
    SAMPLE = 9;
    /// A mapping.
    MMAP2 = 10;
    /// New data in the AUX area.
    AUX = 11;
    /// Instruction tracing started.
    ITRACE_START = 12;
    /// Loss of samples in the hardware or in a filter.
    LOST_SAMPLES = 13;
    /// Context switch of the event's task.
    SWITCH = 14;
    /// Context switch on the event's CPU.
    SWITCH_CPU_WIDE = 15;
    /// Namespaces of a task.
    NAMESPACES = 16;
    /// Kernel code that appeared or disappeared: BPF functions, trampolines.
    KSYMBOL = 17;
    /// Load or unload of a BPF program.
    BPF_EVENT = 18;
    /// Id and path of a cgroup.
    CGROUP = 19;
    /// Kernel code that was patched.
    TEXT_POKE = 20;
    /// Id of an event in AUX data.
    AUX_OUTPUT_HW_ID = 21;
    /// User part of a call chain; a sample holds the kernel part.
    CALLCHAIN_DEFERRED = 22;
    /// Attr and ids of an event (pipe format).
    HEADER_ATTR = 64;
    /// Name of an event (deprecated).
    HEADER_EVENT_TYPE = 65;
    /// Tracepoint formats. They follow the record, outside its size.
    HEADER_TRACING_DATA = 66;
    /// Build id of a file.
    HEADER_BUILD_ID = 67;
    /// The tool has read every ring once.
    FINISHED_ROUND = 68;
    /// Events, CPUs and tasks by id.
    ID_INDEX = 69;
    /// Parameters for decoding AUX data.
    AUXTRACE_INFO = 70;
    /// AUX data. It follows the record, outside its size.
    AUXTRACE = 71;
    /// A failure while decoding AUX data.
    AUXTRACE_ERROR = 72;
    /// Tasks of the recording.
    THREAD_MAP = 73;
    /// CPUs of the recording.
    CPU_MAP = 74;
    /// Settings of perf stat.
    STAT_CONFIG = 75;
    /// A counter value of perf stat.
    STAT = 76;
    /// End of an interval of perf stat.
    STAT_ROUND = 77;
    /// Unit, scale, name or CPUs of an event.
    EVENT_UPDATE = 78;
    /// Parameters for converting the cycle counter to time.
    TIME_CONV = 79;
    /// A feature section (pipe format).
    HEADER_FEATURE = 80;
    /// A slice of a zstd stream of records.
    COMPRESSED = 81;
    /// The description of the initial state is complete.
    FINISHED_INIT = 82;
    /// A slice of a zstd stream, padded.
    COMPRESSED2 = 83;
    /// `bpf_metadata_*` values of a BPF program.
    BPF_METADATA = 84;
    /// Scheduler statistics of a CPU.
    SCHEDSTAT_CPU = 85;
    /// Scheduler statistics of a domain.
    SCHEDSTAT_DOMAIN = 86;
}

impl RecordType {
    /// First type of records that tools such as perf write; the kernel writes lower types.
    pub const FIRST_USER: u32 = 64;

    /// Name without `PERF_RECORD_`; `None` for an unknown type.
    pub fn name(self) -> Option<&'static str> {
        RecordType::NAMES.binary_search_by_key(&self, |(t, _)| *t).ok().map(|i| RecordType::NAMES[i].1)
    }

    /// Returns true for records that the kernel writes.
    pub fn is_kernel(self) -> bool {
        self.0 < RecordType::FIRST_USER
    }

    /// Returns true for records that hold other records, compressed.
    pub fn is_compressed(self) -> bool {
        matches!(self, RecordType::COMPRESSED | RecordType::COMPRESSED2)
    }
}

impl std::fmt::Debug for RecordType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(self, f)
    }
}

impl std::fmt::Display for RecordType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.pad(name),
            None => f.pad(&format!("?{}", self.0)),
        }
    }
}

/// Bits of a record header's `misc`.
pub mod misc {
    /// Mask of the CPU mode.
    pub const CPUMODE_MASK: u16 = 7;
    /// Unknown mode.
    pub const CPUMODE_UNKNOWN: u16 = 0;
    /// Kernel mode.
    pub const KERNEL: u16 = 1;
    /// User mode.
    pub const USER: u16 = 2;
    /// Hypervisor mode.
    pub const HYPERVISOR: u16 = 3;
    /// Kernel mode of a guest.
    pub const GUEST_KERNEL: u16 = 4;
    /// User mode of a guest.
    pub const GUEST_USER: u16 = 5;
    /// MMAP, MMAP2: data mapping.
    pub const MMAP_DATA: u16 = 1 << 13;
    /// COMM: an exec set the name.
    pub const COMM_EXEC: u16 = 1 << 13;
    /// FORK: written by a tool; the task does not inherit the parent's mappings.
    pub const FORK_EXEC: u16 = 1 << 13;
    /// SWITCH, SWITCH_CPU_WIDE: the CPU switched away from the task.
    pub const SWITCH_OUT: u16 = 1 << 13;
    /// SWITCH, SWITCH_CPU_WIDE: the task was preempted.
    pub const SWITCH_OUT_PREEMPT: u16 = 1 << 14;
    /// SAMPLE: the instruction pointer has no skid.
    pub const EXACT_IP: u16 = 1 << 14;
    /// MMAP2: a build id replaces the inode.
    pub const MMAP_BUILD_ID: u16 = 1 << 14;
    /// LOST_SAMPLES: a BPF filter dropped the samples.
    pub const LOST_SAMPLES_BPF: u16 = 1 << 15;
    /// HEADER_BUILD_ID: the size byte is valid.
    pub const BUILD_ID_SIZE: u16 = 1 << 15;
}

/// Bytes of the header of a record: `type u32`, `misc u16`, `size u16`.
pub const RECORD_HEADER_BYTES: usize = 8;
/// Size of a HEADER_TRACING_DATA record if its formats lie after the record.
const TRACING_DATA_RECORD_BYTES: usize = 16;

/// Result of reading bytes that arrive in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability<T> {
    /// The value.
    Ready(T),
    /// The value is incomplete: more bytes are needed.
    NeedMore,
}

/// Bytes of one record.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Offset of the record in the input.
    pub offset: u64,
    /// Type of the record.
    pub kind: RecordType,
    /// Misc bits of the header.
    pub misc: u16,
    /// The record with its header.
    pub bytes: &'a [u8],
    /// Data of the record that lies after it, outside its size: tracepoint formats, AUX data.
    pub outside: &'a [u8],
}

impl<'a> Record<'a> {
    /// Reads the record at the start of `bytes`, which lie at `offset` of the input.
    ///
    /// # Errors
    /// Fails if the record or the data after it is incomplete, or the record's size is below 8.
    #[inline]
    pub fn parse(bytes: &'a [u8], offset: u64, endian: Endian) -> Result<Record<'a>> {
        let mut record = Record::parse_alone(bytes, offset, endian)?;
        if record.announces_outside() {
            let len = record.outside_bytes(endian)?;
            let behind = &bytes[record.bytes.len()..];
            record.outside = usize::try_from(len).ok().and_then(|len| behind.get(..len)).ok_or_else(|| {
                let offset = offset + record.bytes.len() as u64;
                Error::truncated(offset, "data after a record", len, behind.len() as u64)
            })?;
        }
        Ok(record)
    }

    /// Reads the record at the start of `bytes`, but no data outside of the record's size; for inputs that lack such data.
    ///
    /// # Errors
    /// Fails if the record is incomplete, or its size is below 8.
    #[inline]
    pub fn parse_alone(bytes: &'a [u8], offset: u64, endian: Endian) -> Result<Record<'a>> {
        match Record::parse_partial(bytes, offset, endian)? {
            Availability::Ready(record) => Ok(record),
            Availability::NeedMore => {
                let (what, needed) = match endian.u16_at(bytes, 6) {
                    Some(size) => ("record", size.into()),
                    None => ("record header", RECORD_HEADER_BYTES as u64),
                };
                Err(Error::truncated(offset, what, needed, bytes.len() as u64))
            }
        }
    }

    /// Reads the record at the start of `bytes`, which arrive in pieces, but no data outside of the record's size.
    ///
    /// # Errors
    /// Fails if the record's size is below 8.
    #[inline]
    pub fn parse_partial(bytes: &'a [u8], offset: u64, endian: Endian) -> Result<Availability<Record<'a>>> {
        let Some(head) = bytes.first_chunk::<RECORD_HEADER_BYTES>() else {
            return Ok(Availability::NeedMore);
        };
        let [t0, t1, t2, t3, m0, m1, s0, s1] = *head;
        let kind = RecordType(endian.u32([t0, t1, t2, t3]));
        let misc = endian.u16([m0, m1]);
        let size = usize::from(endian.u16([s0, s1]));
        if size < RECORD_HEADER_BYTES {
            return Err(Error::value(offset + 6, "record size", size as u64, "at least 8"));
        }
        let Some(bytes) = bytes.get(..size) else {
            return Ok(Availability::NeedMore);
        };
        Ok(Availability::Ready(Record { offset, kind, misc, bytes, outside: &[] }))
    }

    /// Bytes after the header.
    #[inline]
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[RECORD_HEADER_BYTES..]
    }

    /// Offset in the input of the first byte after the header.
    pub fn body_offset(&self) -> u64 {
        self.offset + RECORD_HEADER_BYTES as u64
    }

    /// Length of the record and of the data after it.
    #[inline]
    pub fn total_bytes(&self) -> usize {
        self.bytes.len() + self.outside.len()
    }

    /// Returns true for types that have data after the record, outside its size.
    #[inline]
    pub fn announces_outside(&self) -> bool {
        matches!(self.kind, RecordType::AUXTRACE | RecordType::HEADER_TRACING_DATA)
    }

    /// Length of the data after the record, as the record states it; 0 if there is none.
    ///
    /// # Errors
    /// Fails if the record is too short to hold this length.
    pub fn outside_bytes(&self, endian: Endian) -> Result<u64> {
        let announced = match self.kind {
            RecordType::AUXTRACE => endian.u64_at(self.body(), 0),
            // A longer record holds its formats inside.
            RecordType::HEADER_TRACING_DATA if self.bytes.len() <= TRACING_DATA_RECORD_BYTES => {
                endian.u32_at(self.body(), 0).map(|size| u64::from(size).next_multiple_of(8))
            }
            _ => Some(0),
        };
        announced.ok_or_else(|| {
            Error::truncated(self.offset, "size of the data after a record", 16, self.bytes.len() as u64)
        })
    }
}

/// Iterator over the records of a slice. An error ends the iteration at [`Records::offset`].
#[derive(Debug, Clone)]
pub struct Records<'a> {
    rest: &'a [u8],
    offset: u64,
    endian: Endian,
    outside: bool,
    failed: bool,
}

impl<'a> Records<'a> {
    /// Records in `bytes`, which lie at `offset` of the input.
    pub fn new(bytes: &'a [u8], offset: u64, endian: Endian) -> Records<'a> {
        Records { rest: bytes, offset, endian, outside: true, failed: false }
    }

    /// Records in `bytes` like [`Records::new`], but for `bytes` that lack the data outside the records' sizes.
    pub fn without_outside(bytes: &'a [u8], offset: u64, endian: Endian) -> Records<'a> {
        Records { rest: bytes, offset, endian, outside: false, failed: false }
    }

    /// Offset of the next record.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Skips the next bytes, which must be whole records; at most up to the end.
    #[inline]
    pub fn skip(&mut self, bytes: usize) {
        let bytes = bytes.min(self.rest.len());
        self.rest = &self.rest[bytes..];
        self.offset += bytes as u64;
    }

    /// Skips to the next sample. Returns `None` at the end, and at a damaged record.
    #[inline(always)]
    pub fn next_sample(&mut self) -> Option<Record<'a>> {
        loop {
            let [t0, t1, t2, t3, m0, m1, s0, s1] = *self.rest.first_chunk::<RECORD_HEADER_BYTES>()?;
            let kind = RecordType(self.endian.u32([t0, t1, t2, t3]));
            let size = usize::from(self.endian.u16([s0, s1]));
            if kind != RecordType::SAMPLE {
                self.next()?.ok()?;
                continue;
            }
            if size < RECORD_HEADER_BYTES || self.failed {
                return None;
            }
            let (bytes, rest) = self.rest.split_at_checked(size)?;
            let record = Record { offset: self.offset, kind, misc: self.endian.u16([m0, m1]), bytes, outside: &[] };
            self.rest = rest;
            self.offset += size as u64;
            return Some(record);
        }
    }

    /// Remaining bytes.
    #[inline]
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<Record<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() || self.failed {
            return None;
        }
        let parsed = match self.outside {
            true => Record::parse(self.rest, self.offset, self.endian),
            false => Record::parse_alone(self.rest, self.offset, self.endian),
        };
        match parsed {
            Ok(record) => {
                let len = record.total_bytes();
                self.rest = &self.rest[len..];
                self.offset += len as u64;
                Some(Ok(record))
            }
            Err(error) => {
                self.failed = true;
                Some(Err(error))
            }
        }
    }
}
