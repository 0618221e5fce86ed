//! The record stream: headers, record types, and the walk from one record to the next.

use crate::{Endian, Error, Result};

/// The type of a record. Types that this crate does not know keep their number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RecordType(pub u32);

macro_rules! record_types {
    ($($(#[$doc:meta])* $name:ident = $n:expr;)*) => {
        impl RecordType {
            $($(#[$doc])* pub const $name: RecordType = RecordType($n);)*

            /// Every known type with its name, lowest first.
            pub const NAMES: &'static [(RecordType, &'static str)] =
                &[$((RecordType::$name, stringify!($name)),)*];
        }
    };
}

record_types! {
    /// A mapping, old form.
    MMAP = 1;
    /// Records that the ring had no room for.
    LOST = 2;
    /// A task's name.
    COMM = 3;
    /// A task's end.
    EXIT = 4;
    /// Sampling stopped until the next tick.
    THROTTLE = 5;
    /// Sampling goes on.
    UNTHROTTLE = 6;
    /// A task's start.
    FORK = 7;
    /// Counter values at a task's end.
    READ = 8;
    /// A sample.
    SAMPLE = 9;
    /// A mapping.
    MMAP2 = 10;
    /// New data in the AUX area.
    AUX = 11;
    /// Instruction tracing started.
    ITRACE_START = 12;
    /// Samples that the hardware or a filter dropped.
    LOST_SAMPLES = 13;
    /// Context switch of the event's task.
    SWITCH = 14;
    /// Context switch on the event's CPU.
    SWITCH_CPU_WIDE = 15;
    /// A task's namespaces.
    NAMESPACES = 16;
    /// Kernel code that came or went: BPF functions, trampolines.
    KSYMBOL = 17;
    /// A BPF program loaded or unloaded.
    BPF_EVENT = 18;
    /// A cgroup's id and path.
    CGROUP = 19;
    /// Kernel code that was patched.
    TEXT_POKE = 20;
    /// Hardware id for AUX output.
    AUX_OUTPUT_HW_ID = 21;
    /// The user part of a call chain whose kernel part came before.
    CALLCHAIN_DEFERRED = 22;
    /// An attr and its ids (pipe format).
    HEADER_ATTR = 64;
    /// An event's name (deprecated).
    HEADER_EVENT_TYPE = 65;
    /// Tracepoint formats; the bytes follow outside the record's size.
    HEADER_TRACING_DATA = 66;
    /// A file's build id.
    HEADER_BUILD_ID = 67;
    /// All rings were read once.
    FINISHED_ROUND = 68;
    /// Ids to events, CPUs and tasks.
    ID_INDEX = 69;
    /// Parameters for decoding AUX data.
    AUXTRACE_INFO = 70;
    /// AUX data; the bytes follow outside the record's size.
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
    /// An interval of perf stat.
    STAT_ROUND = 77;
    /// An event's unit, scale, name or CPUs.
    EVENT_UPDATE = 78;
    /// Cycle counter to time.
    TIME_CONV = 79;
    /// A feature section (pipe format).
    HEADER_FEATURE = 80;
    /// A slice of a zstd stream of records.
    COMPRESSED = 81;
    /// The initial state is complete.
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
    /// Types from here on are written by tools, not by the kernel.
    pub const FIRST_USER: u32 = 64;

    /// The name without its `PERF_RECORD_`, or `None` for a type this crate does not know.
    pub fn name(self) -> Option<&'static str> {
        RecordType::NAMES.binary_search_by_key(&self, |(t, _)| *t).ok().map(|i| RecordType::NAMES[i].1)
    }

    /// True for records that the kernel writes.
    pub fn is_kernel(self) -> bool {
        self.0 < RecordType::FIRST_USER
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
    /// Mode not known.
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
    /// MMAP, MMAP2: a data mapping.
    pub const MMAP_DATA: u16 = 1 << 13;
    /// COMM: the name came from an exec.
    pub const COMM_EXEC: u16 = 1 << 13;
    /// FORK: synthesized by a tool; the parent's maps are not inherited.
    pub const FORK_EXEC: u16 = 1 << 13;
    /// SWITCH, SWITCH_CPU_WIDE: away from the task.
    pub const SWITCH_OUT: u16 = 1 << 13;
    /// SWITCH, SWITCH_CPU_WIDE: the task was preempted.
    pub const SWITCH_OUT_PREEMPT: u16 = 1 << 14;
    /// SAMPLE: the ip has no skid.
    pub const EXACT_IP: u16 = 1 << 14;
    /// MMAP2: a build id stands in place of the inode.
    pub const MMAP_BUILD_ID: u16 = 1 << 14;
    /// LOST_SAMPLES: dropped by a BPF filter.
    pub const LOST_SAMPLES_BPF: u16 = 1 << 15;
    /// HEADER_BUILD_ID: the size byte is valid.
    pub const BUILD_ID_SIZE: u16 = 1 << 15;
}

/// Bytes of a record's header: `type u32`, `misc u16`, `size u16`.
pub const RECORD_HEADER_BYTES: usize = 8;
/// Bytes of a HEADER_TRACING_DATA record whose formats follow behind it.
const TRACING_DATA_RECORD_BYTES: usize = 16;

/// Something read from bytes that more bytes may follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability<T> {
    /// The thing that was asked for.
    Ready(T),
    /// It is not there whole: more bytes are needed.
    NeedMore,
}

/// One record, as bytes.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// Offset of the record in the input.
    pub offset: u64,
    /// Its type.
    pub kind: RecordType,
    /// Its misc bits.
    pub misc: u16,
    /// The whole record, header included.
    pub bytes: &'a [u8],
    /// Bytes that belong to the record but lie behind it, outside its size: tracepoint formats, AUX data.
    pub outside: &'a [u8],
}

impl<'a> Record<'a> {
    /// The record at the start of `bytes`, which lie at `offset` of the input.
    ///
    /// # Errors
    /// When the header or anything it announces is not there whole, or its size is below 8.
    #[inline]
    pub fn parse(bytes: &'a [u8], offset: u64, endian: Endian) -> Result<Record<'a>> {
        let mut record = Record::parse_alone(bytes, offset, endian)?;
        if record.announces_outside() {
            let len = record.outside_bytes(endian)?;
            let behind = &bytes[record.bytes.len()..];
            record.outside = usize::try_from(len).ok().and_then(|len| behind.get(..len)).ok_or_else(|| {
                let offset = offset + record.bytes.len() as u64;
                Error::truncated(offset, "data behind a record", len, behind.len() as u64)
            })?;
        }
        Ok(record)
    }

    /// The record at the start of `bytes`, without what lies outside its size: for inputs that pass over it.
    ///
    /// # Errors
    /// When the record is not there whole, or its size is below 8.
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

    /// The same of bytes that more bytes may follow.
    ///
    /// # Errors
    /// When the record's size is below 8.
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

    /// The payload: everything after the header.
    #[inline]
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[RECORD_HEADER_BYTES..]
    }

    /// Bytes from this record to the next.
    #[inline]
    pub fn total_bytes(&self) -> usize {
        self.bytes.len() + self.outside.len()
    }

    /// True for the types whose data lies behind the record, outside its size.
    #[inline]
    pub fn announces_outside(&self) -> bool {
        matches!(self.kind, RecordType::AUXTRACE | RecordType::HEADER_TRACING_DATA)
    }

    /// Number of bytes behind the record that belong to it.
    ///
    /// # Errors
    /// When the record is too short to say.
    pub fn outside_bytes(&self, endian: Endian) -> Result<u64> {
        let announced = match self.kind {
            RecordType::AUXTRACE => endian.u64_at(self.body(), 0),
            // Longer records have the formats inside.
            RecordType::HEADER_TRACING_DATA if self.bytes.len() <= TRACING_DATA_RECORD_BYTES => {
                endian.u32_at(self.body(), 0).map(|size| u64::from(size).next_multiple_of(8))
            }
            _ => Some(0),
        };
        announced
            .ok_or_else(|| Error::truncated(self.offset, "size of data behind a record", 16, self.bytes.len() as u64))
    }
}

/// Walks the records of a slice, first to last. After an error it ends, and [`Records::offset`] tells how far it came.
#[derive(Debug, Clone)]
pub struct Records<'a> {
    rest: &'a [u8],
    offset: u64,
    endian: Endian,
    outside: bool,
    failed: bool,
}

impl<'a> Records<'a> {
    /// The records in `bytes`, which lie at `offset` of the input.
    pub fn new(bytes: &'a [u8], offset: u64, endian: Endian) -> Records<'a> {
        Records { rest: bytes, offset, endian, outside: true, failed: false }
    }

    /// Like [`Records::new`] for `bytes` from which what lies outside the records' sizes has been taken out.
    pub fn without_outside(bytes: &'a [u8], offset: u64, endian: Endian) -> Records<'a> {
        Records { rest: bytes, offset, endian, outside: false, failed: false }
    }

    /// Offset of the next record.
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Steps over the next bytes, which the caller has found to be whole records; at most to the end.
    #[inline]
    pub fn skip(&mut self, bytes: usize) {
        let bytes = bytes.min(self.rest.len());
        self.rest = &self.rest[bytes..];
        self.offset += bytes as u64;
    }

    /// Goes on to the next sample; `None` at the end, and at a record that cannot be read.
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

    /// The bytes not walked yet.
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
