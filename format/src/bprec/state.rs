//! `bprec:state`: facts of a recording for which perf has no record type.
//!
//! Each payload is in the RAW field of a sample of the software/bpf-output event with this name, so that any perf can skip it. Layout, in the byte
//! order of the recording:
//!
//! ```text
//! version u16 (1) · kind u16 · length u32 (bytes of the body) · body
//! ```
//!
//! The length is needed because the RAW field is padded. In a body, text is `length u16` and that many bytes, a list is
//! `count u32` and its elements, an optional number is `present u8` and the number if present. Readers skip unknown
//! kinds and unknown trailing bytes, so a kind may grow at its end.

mod account;
mod aggregation;
mod attachment;
mod contents;
mod counters;
mod functions;
mod holders;
mod identity;
mod probes;
mod runs;
mod sampler;
mod tail_calls;

pub use account::{BootClock, Cost, CpuNotSampled, EventLoss, Loss, StatsOff};
pub use aggregation::{Aggregation, OVERFLOW_PID};
pub use attachment::{AttachTarget, Attachment, TargetName};
pub use contents::{ContentsEnd, MapContents};
pub use counters::{
    AbsentEvent, Calibration, CounterEvent, CounterEvents, CounterTier, CounterUnit, Histogram, ProgramCounters,
    Reading, RunCounts, SharedCounters, SharedScope, SharedTarget, TargetCounters,
};

pub use functions::{FileFunction, FileFunctions, KernelSymbol, UserSymbols};
pub use holders::HolderTimes;
pub use identity::RecordingId;
pub use probes::{LinkMisses, ProbeMisses};
pub use runs::{ProgramRuns, RunStats};
pub use sampler::{Sampler, SamplerCounts};
pub use tail_calls::{ProgArray, TailCall};

use crate::layout::meaning::{self, Boot, Cgroup, Comm, Event, Machine, Message, Path, Target, Tier, Value};
use crate::layout::{BtfId, Codec, CountedText, LateNonZero, List, Optional, OptionalTag, Pair, Plain, Public, layout};
use crate::{Endian, Error, Reader, Result, Writer};

/// Name of the event with samples that carry these payloads.
pub const EVENT_NAME: &str = "bprec:state";

/// The version that [`State::encode`] writes.
const VERSION: u16 = 1;

/// Bytes in front of a body.
const HEADER_BYTES: usize = 8;

/// Limit on the bytes of one payload, so that the payload and the sample fields fit into a record.
pub const PAYLOAD_MAX_BYTES: usize = 60_000;

/// Declares the kinds of state: name, number, type and layout of each.
macro_rules! states {
    ($($(#[$doc:meta])* $name:ident($ty:ty $(as $codec:ty)?) = $kind:literal,)*) => {
        /// One payload.
        #[derive(Debug, Clone, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum State {
            $($(#[$doc])* $name($ty),)*
            /// Payload of a kind unknown to this version.
            Unknown {
                /// Number of the kind.
                kind: u16,
                /// Bytes of the body.
                body: Vec<u8>,
            },
        }

        impl State {
            /// Numbers of the state kinds in this version.
            pub const KINDS: &'static [u16] = &[$($kind),*];

            /// Number of the kind.
            pub fn kind(&self) -> u16 {
                match self {
                    $(State::$name(_) => $kind,)*
                    State::Unknown { kind, .. } => *kind,
                }
            }

            fn put_body(&self, w: &mut Writer<'_>) {
                match self {
                    $(State::$name(it) => <layout!(@or_plain $($codec)?) as Codec<'_, $ty>>::put(it, w),)*
                    State::Unknown { body, .. } => {
                        w.bytes(body);
                    }
                }
            }

            fn get_body(kind: u16, r: &mut Reader<'_>) -> Result<State> {
                Ok(match kind {
                    $($kind => {
                        State::$name(<layout!(@or_plain $($codec)?) as Codec<'_, $ty>>::get(r, stringify!($name))?)
                    })*
                    kind => State::Unknown { kind, body: r.rest().to_vec() },
                })
            }
        }
    };
}

states! {
    /// Settings of the recording.
    Session(Session) = 1,
    /// Owners of a program and facts that its `bpf_prog_info` lacks.
    Program(Program) = 2,
    /// A program that was seen but could not be captured.
    Missed(Missed) = 3,
    /// Run statistics of programs, at one moment.
    RunStats(RunStats) = 4,
    /// A map that a program uses.
    Map(Map) = 5,
    /// Attachments of a program.
    Attachment(Attachment) = 6,
    /// Program that only the recorder still holds.
    Released(Released) = 7,
    /// Samples lost before they reached the recording.
    Loss(Loss) = 8,
    /// Cost of the recording itself; written at the end.
    Cost(Cost) = 9,
    /// Names of kernel functions that samples hit.
    KernelSymbols(Vec<KernelSymbol> as List) = 10,
    /// A part of a map's contents.
    MapContents(MapContents) = 11,
    /// Events of the counters of one tier.
    CounterEvents(CounterEvents) = 12,
    /// Counts of exact counters per program, at one moment.
    ProgramCounters(ProgramCounters) = 13,
    /// Counts of shared counters, at one moment.
    SharedCounters(SharedCounters) = 14,
    /// bprec's sampling program.
    Sampler(Sampler) = 15,
    /// Counts of an event that is aggregated in the kernel.
    Aggregation(Aggregation) = 20,
    /// A CPU that was not sampled for a part of the time.
    CpuNotSampled(CpuNotSampled) = 21,
    /// Run statistics are off, or were switched off.
    StatsOff(StatsOff) = 22,
    /// New offset between the clock of load times and the recording's clock.
    BootClock(BootClock) = 23,
    /// Identity of the recording.
    Recording(RecordingId) = 24,
    /// Names of containers of Kubernetes pods.
    PodContainers(Vec<PodContainer> as List) = 25,
    /// Names of user functions that samples hit, in one file.
    FileFunctions(FileFunctions) = 32,
    /// Result of the lookup of user functions.
    UserSymbols(UserSymbols) = 33,
    /// The programs in a program array.
    ProgArray(ProgArray) = 40,
    /// Hits of kprobes that ran no program.
    ProbeMisses(ProbeMisses) = 41,
    /// CPU time and memory of processes that hold programs.
    HolderTimes(HolderTimes) = 42,
}

layout! {
    /// Settings of the recording.
    #[derive(Default)]
    pub struct Session {
        /// Time when sampling was switched on, ns of the recording's clock.
        pub start_ns: u64,
        /// Wall clock at `start_ns`, ns since 1970.
        pub realtime_ns: u64,
        /// Offset from the recording's clock to `CLOCK_BOOTTIME` (ns since boot, suspends included), the clock of
        /// `bpf_prog_info.load_time`.
        pub to_boottime_ns: i64,
        /// Count of CPUs that could be sampled.
        pub cpus_online: u32,
        /// Target of the recording, in words: `system wide`, `pid 12,13` …
        pub target: String as CountedText<Target>,
        /// Name of the sampling event, as in EVENT_DESC of the file.
        pub event: String as CountedText<Event>,
        /// Reason why the recorder samples another event than the requested one; empty if it samples the requested event.
        pub event_note: String as CountedText<Message>,
        /// Source of counts: `exact` (includes the counts of `stats`), `stats` or `off`.
        pub counters: String as CountedText<Tier>,
        /// Reason why the recorder does not use the requested source; empty if it uses the requested source.
        pub counters_note: String as CountedText<Message>,
        /// True if run statistics were switched on for the whole machine before the recording.
        pub stats_were_on: bool,
        /// Time between two snapshots.
        pub interval_ns: u64,
        late:
        /// Process id of the recorder. The programs that the recorder itself loads during the recording are not captured, because they only take
        /// measurements.
        pub recorder_pid: Option<u32> as LateNonZero,
        /// Count of earlier files of the same recording. Counters continue over all files: in a later file, the first reading of a counter is
        /// its value at the start of that file.
        pub part: u32,
        /// Cost that run statistics add to a run of any program, ns, measured before the recording. `None` if unknown,
        /// as in older recordings.
        pub statistics_run_ns: Option<u64> as LateNonZero,
        /// Id of the machine, 32 hexadecimal digits: a hash of `/etc/machine-id`, from which the original cannot be
        /// computed. It stays the same when the machine is renamed. Empty if unknown.
        pub machine_id: String as CountedText<Machine>,
        /// Id of the boot, 32 hexadecimal digits, as the kernel and the journal of systemd have it. Empty if unknown.
        pub boot_id: String as CountedText<Boot>,
    }

    /// Holder of a program: a process with a file descriptor of the program, its link or its map.
    #[derive(Default)]
    pub struct Owner {
        /// Process id.
        pub pid: u32,
        /// Name of the process.
        pub comm: Vec<u8> as CountedText<Comm>,
        /// User id of the process.
        pub uid: u32,
        /// Cgroup path of the process; empty if unknown.
        pub cgroup: Vec<u8> as CountedText<Cgroup>,
    }

    /// Owners of a program and facts that its `bpf_prog_info` lacks.
    #[derive(Default)]
    pub struct Program {
        /// Program id.
        pub id: u32,
        /// Load time, ns since boot; id and load time together identify the program.
        pub load_time_ns: u64,
        /// True if the program was loaded during the recording.
        pub loaded_during: bool,
        /// Holders of the program.
        pub owners: Vec<Owner> as List,
        /// Paths where the program or its link is pinned.
        pub pins: Vec<Vec<u8>> as List<CountedText<Path>>,
        /// `bpf_metadata_*` variables: name without the prefix, and value as text.
        pub metadata: Vec<(Vec<u8>, Vec<u8>)> as List<Pair<CountedText<Public>, CountedText<Value>>>,
        /// Parts of `bpf_prog_info` that the kernel withheld, and the reason; empty if the kernel withheld nothing.
        pub withheld: String as CountedText<Message>,
    }

    /// A program that was seen but could not be captured.
    #[derive(Hash, Default)]
    pub struct Missed {
        /// Program id.
        pub id: u32,
        /// Tag, if a BPF_EVENT gave it.
        pub tag: Option<[u8; 8]> as OptionalTag,
        /// Time when the recorder saw the program, ns of the recording's clock.
        pub time_ns: u64,
        /// Reason why the program could not be captured.
        pub reason: String as CountedText<Message>,
    }

    /// A map that programs use.
    #[derive(Default)]
    pub struct Map {
        /// Map id.
        pub id: u32,
        /// `BPF_MAP_TYPE_*`.
        pub map_type: u32,
        /// Bytes of a key.
        pub key_bytes: u32,
        /// Bytes of a value.
        pub value_bytes: u32,
        /// Limit on the entries.
        pub max_entries: u32,
        /// `BPF_F_*` flags of the map.
        pub flags: u32,
        /// Name, at most 15 characters.
        pub name: Vec<u8> as CountedText<meaning::Map>,
        /// Id of the BTF object of the map; 0 for none.
        pub btf_id: u32 as BtfId,
        /// Id of the key's type in the BTF object `btf_id`.
        pub btf_key_type_id: u32 as BtfId,
        /// Id of the value's type in the BTF object `btf_id`.
        pub btf_value_type_id: u32 as BtfId,
        /// Memory charged for the map, bytes; `None` if the kernel does not report it.
        pub memlock_bytes: Option<u64> as Optional<Plain>,
        /// True if the map is frozen: user space cannot write it.
        pub frozen: bool,
    }

    /// A container of a Kubernetes pod, from the name that the kubelet gives to the container's log.
    #[derive(Hash, PartialOrd, Ord, Default)]
    pub struct PodContainer {
        /// Id of the container, as in the path of its cgroup.
        pub id: String as CountedText<Value>,
        /// UID of the pod, as in the path of its cgroup but with `-` for `_`; empty if unknown.
        pub pod_uid: String as CountedText<Value>,
        /// Namespace of the pod.
        pub namespace: String as CountedText<Value>,
        /// Name of the pod.
        pub pod: String as CountedText<Value>,
        /// Name of the container in the pod.
        pub container: String as CountedText<Value>,
    }

    /// Program that only the recorder still holds. Without the recorder's reference the kernel would have unloaded the
    /// program.
    #[derive(Copy, Default)]
    pub struct Released {
        /// Program id.
        pub id: u32,
        /// Load time, ns since boot.
        pub load_time_ns: u64,
        /// Last time when another process held the program, ns of the recording's clock.
        pub after_ns: u64,
        /// Time when the recorder found the program released, ns of the recording's clock.
        pub before_ns: u64,
    }
}

impl State {
    /// Appends the payload: header and body.
    pub fn encode(&self, out: &mut Vec<u8>, endian: Endian) {
        self.put(&mut Writer::new(out, endian));
    }

    /// Appends the payload, redacted if the writer redacts. The caller must leave out contents of maps, because redaction does not know their
    /// meaning.
    pub fn put(&self, w: &mut Writer<'_>) {
        let start = w.position();
        w.u16(VERSION).u16(self.kind()).u32(0);
        self.put_body(w);
        let body_bytes = (w.position() - start - HEADER_BYTES) as u32;
        w.patch_u32(start + 4, body_bytes);
    }

    /// Moves the second half of the state's list into a new state. `None` if the state has no list that readers accept in parts, or if the
    /// list has fewer than two elements.
    pub fn take_half(&mut self) -> Option<State> {
        fn half<T>(list: &mut Vec<T>) -> Option<Vec<T>> {
            (list.len() > 1).then(|| list.split_off(list.len() / 2))
        }
        Some(match self {
            State::RunStats(it) => State::RunStats(RunStats { programs: half(&mut it.programs)?, ..*it }),
            State::ProgramCounters(it) => {
                State::ProgramCounters(ProgramCounters { targets: half(&mut it.targets)?, ..*it })
            }
            State::SharedCounters(it) => {
                State::SharedCounters(SharedCounters { targets: half(&mut it.targets)?, ..*it })
            }
            State::ProbeMisses(it) => State::ProbeMisses(ProbeMisses { links: half(&mut it.links)?, ..*it }),
            State::HolderTimes(it) => {
                let processes = half(&mut it.processes)?;
                let resident_bytes = half(&mut it.resident_bytes).unwrap_or_default();
                State::HolderTimes(HolderTimes { processes, resident_bytes, ..*it })
            }
            State::KernelSymbols(symbols) => State::KernelSymbols(half(symbols)?),
            State::PodContainers(containers) => State::PodContainers(half(containers)?),
            State::FileFunctions(it) => {
                let functions = half(&mut it.functions)?;
                State::FileFunctions(FileFunctions { path: it.path.clone(), functions, ..*it })
            }
            _ => return None,
        })
    }

    /// Reads the payload in the RAW bytes of a sample. The bytes lie at `offset` of the input.
    ///
    /// # Errors
    /// Fails if the version is not 1, or the body does not fit the layout of its kind.
    pub fn decode(raw: &[u8], offset: u64, endian: Endian) -> Result<State> {
        let mut r = Reader::new(raw, offset, endian);
        let version = r.u16("bprec:state version")?;
        if version != VERSION {
            return Err(Error::value(offset, "bprec:state version", version.into(), "1"));
        }
        let kind = r.u16("bprec:state kind")?;
        let len = r.u32("bprec:state length")?;
        let body_offset = r.offset();
        let body = r.take(len as usize, "bprec:state body")?;
        State::get_body(kind, &mut Reader::new(body, body_offset, endian))
    }
}
