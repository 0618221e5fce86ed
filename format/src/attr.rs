//! `struct perf_event_attr`: what an event counts, when it samples, and what its samples hold.
//!
//! Layout from `include/uapi/linux/perf_event.h`. The struct has grown from 64 bytes (`PERF_ATTR_SIZE_VER0`) to 144
//! (`VER9`); bytes that an older writer did not know are zero. Flag bit fields are stored from the least significant
//! bit on little-endian machines and from the most significant one on big-endian machines.
//!
//! perf rejects an attr that is longer than its own layout; a kernel accepts such an attr only if the extra bytes are zero. Writers therefore use the
//! smallest size that holds all non-zero fields. Kernel versions that introduced the sizes: 2.6.31 (64), 2.6.33 (72), 3.4 (80), 3.7 (96), 3.19 (104),
//! 4.1 (112), 5.5 (120), 5.13 (128) and 6.3 (136).

use crate::layout::{Codec, Padded, Plain, layout};
use crate::{Endian, Error, Reader, Result, Writer};

/// Size in bytes of the newest layout that this crate decodes (`PERF_ATTR_SIZE_VER9`). Bytes beyond it are ignored.
pub const ATTR_SIZE_MAX: usize = 144;

/// Attr sizes that have a name in the kernel, in bytes, smallest first: `PERF_ATTR_SIZE_VER0` … `VER9`.
pub const ATTR_SIZES: [u32; 10] = [64, 72, 80, 96, 104, 112, 120, 128, 136, 144];

/// Values of `perf_event_attr.type` that the ABI fixes. All other values belong to PMUs; sysfs lists them.
pub mod event_type {
    /// Generalised hardware event (`PERF_TYPE_HARDWARE`).
    pub const HARDWARE: u32 = 0;
    /// Event that the kernel counts itself (`PERF_TYPE_SOFTWARE`).
    pub const SOFTWARE: u32 = 1;
    /// Tracepoint; `config` is its id (`PERF_TYPE_TRACEPOINT`).
    pub const TRACEPOINT: u32 = 2;
    /// Generalised cache event (`PERF_TYPE_HW_CACHE`).
    pub const HW_CACHE: u32 = 3;
    /// Raw, CPU-specific event code (`PERF_TYPE_RAW`).
    pub const RAW: u32 = 4;
    /// Hardware breakpoint (`PERF_TYPE_BREAKPOINT`).
    pub const BREAKPOINT: u32 = 5;
}

/// Software events (`PERF_COUNT_SW_*`) that this project names.
pub mod software {
    /// High-resolution timer per CPU; periods are nanoseconds.
    pub const CPU_CLOCK: u64 = 0;
    /// Like `CPU_CLOCK`, but only while the task runs.
    pub const TASK_CLOCK: u64 = 1;
    /// Never fires; carries side-band records.
    pub const DUMMY: u64 = 9;
    /// Samples hold bytes that `bpf_perf_event_output` writes. perf also stores payloads of other tools in such samples.
    pub const BPF_OUTPUT: u64 = 10;
}

/// Defines the operations of a set of bits.
macro_rules! bit_set {
    ($name:ident) => {
        impl $name {
            /// Returns true if all bits of `other` are set.
            #[inline]
            pub const fn contains(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }

            /// Returns the union of both sets of bits.
            #[must_use]
            pub const fn with(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }

            /// Returns these bits without the bits of `other`.
            #[must_use]
            pub const fn without(self, other: $name) -> $name {
                $name(self.0 & !other.0)
            }
        }
    };
}

pub(crate) use bit_set;

macro_rules! bits {
    ($(#[$doc:meta])* $name:ident { $($(#[$bdoc:meta])* $bit:ident = $n:expr;)* }) => {
        layout! {
            $(#[$doc])*
            #[derive(Copy, Hash, Default)]
            pub struct $name(pub u64);
        }

        impl $name {
            $($(#[$bdoc])* pub const $bit: $name = $name(1 << $n);)*

            /// Every named bit with its name, lowest first.
            pub const NAMES: &'static [($name, &'static str)] = &[$(($name::$bit, stringify!($bit)),)*];
        }

        bit_set!($name);
    };
}

bits! {
    /// `attr.sample_type`: fields that a sample holds. Fields without a version exist since the first kernel with
    /// samples. Unknown bits are kept. The order of the fields in a sample differs from the order of the bits, see
    /// [`SampleLayout`](crate::SampleLayout).
    SampleType {
        /// Instruction pointer.
        IP = 0;
        /// Process and thread id.
        TID = 1;
        /// Timestamp.
        TIME = 2;
        /// Address (data address, breakpoint …).
        ADDR = 3;
        /// Counter values, see [`ReadFormat`].
        READ = 4;
        /// Call chain.
        CALLCHAIN = 5;
        /// Id of the parent event.
        ID = 6;
        /// CPU number.
        CPU = 7;
        /// Period that this sample stands for.
        PERIOD = 8;
        /// Id of the event instance; a child event has an id of its own.
        STREAM_ID = 9;
        /// Raw bytes: tracepoint fields or bpf-output.
        RAW = 10;
        /// Branch records (since 3.4).
        BRANCH_STACK = 11;
        /// User registers (since 3.7).
        REGS_USER = 12;
        /// User stack bytes (since 3.7).
        STACK_USER = 13;
        /// Weight, one number (since 3.10).
        WEIGHT = 14;
        /// Memory access description (since 3.10).
        DATA_SRC = 15;
        /// Id of the parent event at a fixed place: first in samples, last in trailers (since 3.12).
        IDENTIFIER = 16;
        /// Transaction flags (since 3.13).
        TRANSACTION = 17;
        /// Registers at the interrupt (since 3.19).
        REGS_INTR = 18;
        /// Physical address (since 4.14).
        PHYS_ADDR = 19;
        /// AUX snapshot (since 5.5).
        AUX = 20;
        /// cgroup id (since 5.7).
        CGROUP = 21;
        /// Size of the data page (since 5.11).
        DATA_PAGE_SIZE = 22;
        /// Size of the code page (since 5.11).
        CODE_PAGE_SIZE = 23;
        /// Weight, three numbers (since 5.12).
        WEIGHT_STRUCT = 24;
    }
}

bits! {
    /// `attr.read_format`: layout of counter values.
    ReadFormat {
        /// Time enabled, ns.
        TOTAL_TIME_ENABLED = 0;
        /// Time counting, ns.
        TOTAL_TIME_RUNNING = 1;
        /// The event id follows each value.
        ID = 2;
        /// Values of all members of the group.
        GROUP = 3;
        /// Count of lost samples (since Linux 6.0).
        LOST = 4;
    }
}

bits! {
    /// Flags of the attr; flag n is bit n in both byte orders.
    AttrFlags {
        /// Starts disabled.
        DISABLED = 0;
        /// Child tasks inherit the event.
        INHERIT = 1;
        /// The event must always be on the PMU.
        PINNED = 2;
        /// The group must be alone on the PMU.
        EXCLUSIVE = 3;
        /// Does not count in user mode.
        EXCLUDE_USER = 4;
        /// Does not count in kernel mode.
        EXCLUDE_KERNEL = 5;
        /// Does not count in hypervisor mode.
        EXCLUDE_HV = 6;
        /// Does not count while the CPU is idle.
        EXCLUDE_IDLE = 7;
        /// Writes MMAP records.
        MMAP = 8;
        /// Writes COMM records.
        COMM = 9;
        /// `sample_period` is a frequency.
        FREQ = 10;
        /// Inherited events have a count per task.
        INHERIT_STAT = 11;
        /// Enabled by exec.
        ENABLE_ON_EXEC = 12;
        /// Writes FORK and EXIT records.
        TASK = 13;
        /// `wakeup` counts bytes.
        WATERMARK = 14;
        /// MMAP records of non-executable mappings too.
        MMAP_DATA = 17;
        /// Trailer on all other records (since 2.6.38).
        SAMPLE_ID_ALL = 18;
        /// Does not count in the host (since 3.2).
        EXCLUDE_HOST = 19;
        /// Does not count in guests (since 3.2).
        EXCLUDE_GUEST = 20;
        /// No kernel part in call chains (since 3.7).
        EXCLUDE_CALLCHAIN_KERNEL = 21;
        /// No user part in call chains (since 3.7).
        EXCLUDE_CALLCHAIN_USER = 22;
        /// MMAP2 instead of MMAP (since 3.12).
        MMAP2 = 23;
        /// COMM records of an exec have a flag (since 3.16).
        COMM_EXEC = 24;
        /// `clockid` is valid (since 4.1).
        USE_CLOCKID = 25;
        /// SWITCH records (since 4.3).
        CONTEXT_SWITCH = 26;
        /// Ring written backwards (since 4.7).
        WRITE_BACKWARD = 27;
        /// NAMESPACES records (since 4.12).
        NAMESPACES = 28;
        /// KSYMBOL records (since 5.1).
        KSYMBOL = 29;
        /// BPF_EVENT records (since 5.1).
        BPF_EVENT = 30;
        /// Output into an AUX area (since 5.4).
        AUX_OUTPUT = 31;
        /// CGROUP records (since 5.7).
        CGROUP = 32;
        /// TEXT_POKE records (since 5.8).
        TEXT_POKE = 33;
        /// Build ids in MMAP2 (since 5.12).
        BUILD_ID = 34;
        /// Inherited by threads only (since 5.13).
        INHERIT_THREAD = 35;
        /// Removed by exec (since 5.13).
        REMOVE_ON_EXEC = 36;
        /// SIGTRAP on overflow (since 5.13).
        SIGTRAP = 37;
        /// User chains deferred (since 6.19).
        DEFER_CALLCHAIN = 38;
        /// Receives deferred chains (since 6.19).
        DEFER_OUTPUT = 39;
    }
}

/// Lowest bit of the two-bit `precise_ip` field in [`AttrFlags`].
const PRECISE_IP_SHIFT: u32 = 15;

impl AttrFlags {
    /// `precise_ip`, 0 (arbitrary skid) to 3 (no skid).
    pub const fn precise_ip(self) -> u8 {
        (self.0 >> PRECISE_IP_SHIFT & 3) as u8
    }

    /// Returns the flags with this `precise_ip`.
    #[must_use]
    pub const fn with_precise_ip(self, level: u8) -> AttrFlags {
        AttrFlags(self.0 & !(3 << PRECISE_IP_SHIFT) | (level as u64 & 3) << PRECISE_IP_SHIFT)
    }

    /// Converts the flag word of an attr in this byte order.
    ///
    /// On big-endian machines flag n is bit 63−n. The two bits of `precise_ip` keep their order.
    fn from_word(word: u64, endian: Endian) -> AttrFlags {
        match endian {
            Endian::Little => AttrFlags(word),
            Endian::Big => AttrFlags(swap_precise_ip(word.reverse_bits())),
        }
    }

    fn to_word(self, endian: Endian) -> u64 {
        match endian {
            Endian::Little => self.0,
            Endian::Big => swap_precise_ip(self.0).reverse_bits(),
        }
    }
}

/// Exchanges the two bits of `precise_ip`.
fn swap_precise_ip(flags: u64) -> u64 {
    let level = flags >> PRECISE_IP_SHIFT & 3;
    let swapped = level >> 1 | (level & 1) << 1;
    flags & !(3 << PRECISE_IP_SHIFT) | swapped << PRECISE_IP_SHIFT
}

layout! {
    /// A decoded `perf_event_attr`. Fields have the kernel's names; a union has the name of the member that sampling
    /// events use. New kernels add fields: end a literal with `..EventAttr::default()`.
    #[derive(Default)]
    #[expect(missing_docs, reason = "the fields are documented in perf_event_open(2) under the same names")]
    pub struct EventAttr {
        /// `type`, see [`event_type`].
        pub kind: u32,
        /// Size of the attr in the file, in bytes.
        pub size: u32,
        pub config: u64,
        /// Period, or frequency in Hz with [`AttrFlags::FREQ`].
        pub sample_period: u64,
        pub sample_type: SampleType,
        pub read_format: ReadFormat,
        pub flags: AttrFlags as BitFields,
        /// `wakeup_events`, or bytes with [`AttrFlags::WATERMARK`].
        pub wakeup: u32,
        pub bp_type: u32,
        pub config1: u64,
        pub config2: u64,
        pub branch_sample_type: u64,
        pub sample_regs_user: u64,
        pub sample_stack_user: u32,
        pub clockid: i32,
        pub sample_regs_intr: u64,
        pub aux_watermark: u32,
        pub sample_max_stack: u16 as Padded<2>,
        pub aux_sample_size: u32,
        /// `aux_action` bits: 0 start paused, 1 pause, 2 resume.
        pub aux_action: u32 as BitFields,
        pub sig_data: u64,
        pub config3: u64,
        pub config4: u64,
    }
}

const _: () = assert!(<Plain as Codec<'_, EventAttr>>::MIN_BYTES == ATTR_SIZE_MAX);

/// C bit fields: they start at the least significant bit on little-endian machines, and at the most significant bit on big-endian machines.
struct BitFields;

impl<'a> Codec<'a, AttrFlags> for BitFields {
    const MIN_BYTES: usize = 8;

    fn put(value: &AttrFlags, w: &mut Writer<'_>) {
        w.u64(value.to_word(w.endian()));
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<AttrFlags> {
        Ok(AttrFlags::from_word(r.u64(what)?, r.endian()))
    }
}

impl<'a> Codec<'a, u32> for BitFields {
    const MIN_BYTES: usize = 4;

    fn put(value: &u32, w: &mut Writer<'_>) {
        w.u32(if w.endian() == Endian::Little { *value } else { value.reverse_bits() });
    }

    fn get(r: &mut Reader<'a>, what: &'static str) -> Result<u32> {
        let value = r.u32(what)?;
        Ok(if r.endian() == Endian::Little { value } else { value.reverse_bits() })
    }
}

impl EventAttr {
    /// Decodes the attr at the start of `bytes`, which lie at `offset` of the input.
    ///
    /// A `size` of 0 means 64. Bytes beyond [`ATTR_SIZE_MAX`] are ignored.
    ///
    /// # Errors
    /// Fails if `bytes` are shorter than `size`, or `size` is between 1 and 63.
    pub fn parse(bytes: &[u8], offset: u64, endian: Endian) -> Result<EventAttr> {
        let size = match endian.u32_at(bytes, 4) {
            None => return Err(Error::truncated(offset, "perf_event_attr", 64, bytes.len() as u64)),
            Some(0) => 64,
            Some(size) => size,
        };
        if size < 64 {
            return Err(Error::value(offset + 4, "attr.size", size.into(), "0, or a size of 64 bytes or more"));
        }
        let given = bytes
            .get(..size as usize)
            .ok_or_else(|| Error::truncated(offset, "perf_event_attr", size.into(), bytes.len() as u64))?;
        let mut padded = [0; ATTR_SIZE_MAX];
        let known = given.len().min(ATTR_SIZE_MAX);
        padded[..known].copy_from_slice(&given[..known]);
        let attr = Plain::get(&mut Reader::new(&padded, offset, endian), "perf_event_attr")?;
        Ok(EventAttr { size, ..attr })
    }

    /// Appends the attr in `size` bytes, at least 64. Fields beyond `size` are not written. Bytes beyond the known layout are zero.
    pub fn encode(&self, out: &mut Vec<u8>, endian: Endian) {
        let start = out.len();
        let size = self.size.max(ATTR_SIZES[0]);
        Plain::put(&EventAttr { size, ..self.clone() }, &mut Writer::new(out, endian));
        out.resize(start + size as usize, 0);
    }

    /// Returns the smallest of [`ATTR_SIZES`] that holds every non-zero field. Writers use this size, because a reader with a shorter layout than the
    /// attr rejects the file.
    pub fn smallest_size(&self) -> u32 {
        let mut bytes = Vec::with_capacity(ATTR_SIZE_MAX);
        EventAttr { size: ATTR_SIZE_MAX as u32, ..self.clone() }.encode(&mut bytes, Endian::Little);
        let used = bytes.iter().rposition(|b| *b != 0).map_or(0, |last| last as u32 + 1);
        ATTR_SIZES.into_iter().find(|size| *size >= used).unwrap_or(ATTR_SIZE_MAX as u32)
    }
}
