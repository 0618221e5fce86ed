//! `bprec:state`: what a recording knows beyond what perf has records for.
//!
//! Each payload rides in the RAW field of a sample of one software/bpf-output event of this name, so that any perf can
//! skip it. Layout, in the byte order of the recording:
//!
//! ```text
//! version u16 (1) · kind u16 · length u32 (bytes of what follows) · body
//! ```
//!
//! The length is needed because the RAW field is padded. In a body, text is `length u16` and that many bytes, a list is
//! `count u32` and its elements, an optional number is `present u8` and the number if present. Readers skip kinds and
//! trailing bytes that they do not know: a kind may grow at its end.

mod account;
mod aggregation;
mod contents;
mod counters;
mod functions;
mod identity;
mod parts;
mod runs;
mod sampler;
mod tail_calls;

pub use account::{BootClock, Cost, CpuNotSampled, EventLoss, Loss, StatsOff};
pub use aggregation::{Aggregation, OVERFLOW_PID};
pub use contents::{ContentsEnd, MapContents};
pub use counters::{
    AbsentEvent, Calibration, CounterEvent, CounterEvents, CounterTier, CounterUnit, Histogram, ProgramCounters,
    Reading, RunCounts, SharedCounters, SharedScope, SharedTarget, TargetCounters,
};

pub use functions::{FileFunction, FileFunctions, KernelSymbol, UserSymbols};
pub use identity::RecordingId;
use parts::{get_list, get_option, get_string, get_text, put_list, put_option, put_text};
pub use runs::{ProgramRuns, RunStats};
pub use sampler::{Sampler, SamplerCounts};
pub use tail_calls::{ProgArray, TailCall};

use crate::{Endian, Error, Reader, Result, Writer};

/// The name of the event whose samples carry these payloads.
pub const EVENT_NAME: &str = "bprec:state";

/// The version that [`State::encode`] writes.
const VERSION: u16 = 1;

/// Bytes in front of a body.
const HEADER_BYTES: usize = 8;

/// The most bytes one payload should have, so that it fits into a record with its sample fields.
pub const PAYLOAD_MAX_BYTES: usize = 60_000;

/// One payload.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum State {
    /// How the recording was made.
    Session(Session),
    /// Who owns a program and what else is known of it.
    Program(Program),
    /// A program that was seen but could not be captured.
    Missed(Missed),
    /// Run statistics of programs, at one moment.
    RunStats(RunStats),
    /// A map that a program uses.
    Map(Map),
    /// Attachments of a program.
    Attachment(Attachment),
    /// Everyone but the recorder has let go of a program.
    Released(Released),
    /// Samples that did not make it into the recording.
    Loss(Loss),
    /// What the recording itself cost; written at the end.
    Cost(Cost),
    /// Names of kernel functions that samples hit.
    KernelSymbols(Vec<KernelSymbol>),
    /// What exact counters count.
    CounterEvents(CounterEvents),
    /// What exact counters counted per program, at one moment.
    ProgramCounters(ProgramCounters),
    /// What shared counters counted, at one moment.
    SharedCounters(SharedCounters),
    /// Our sampling program.
    Sampler(Sampler),
    /// A part of what a map held.
    MapContents(MapContents),
    /// What an event whose samples were counted in the kernel stands for.
    Aggregation(Aggregation),
    /// A CPU that was not sampled for a part of the time.
    CpuNotSampled(CpuNotSampled),
    /// Run statistics are not kept, or no longer.
    StatsOff(StatsOff),
    /// The clock of load times has moved against that of the recording.
    BootClock(BootClock),
    /// Which recording it is.
    Recording(RecordingId),
    /// Names of user functions that samples hit, in one file.
    FileFunctions(FileFunctions),
    /// How far user functions were named.
    UserSymbols(UserSymbols),
    /// The programs in a program array.
    ProgArray(ProgArray),
    /// A kind this version does not know, as bytes.
    Unknown {
        /// Its number.
        kind: u16,
        /// Its body.
        body: Vec<u8>,
    },
}

/// How the recording was made.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Session {
    /// When sampling was switched on, ns of the recording's clock.
    pub start_ns: u64,
    /// Wall clock at `start_ns`, ns since 1970.
    pub realtime_ns: u64,
    /// Add this to a time of the recording's clock to get ns since boot with suspends (`CLOCK_BOOTTIME`), the clock of
    /// `bpf_prog_info.load_time`.
    pub to_boottime_ns: i64,
    /// CPUs that could be sampled.
    pub cpus_online: u32,
    /// What was recorded, in words: `system wide`, `pid 12,13` …
    pub target: String,
    /// Name of the event that samples, as the file's EVENT_DESC has it.
    pub event: String,
    /// Why it is not the event that was asked for; empty when it is.
    pub event_note: String,
    /// Where counts come from: `exact` (which has those of `stats` too), `stats` or `off`.
    pub counters: String,
    /// Why not more; empty when nothing is missing.
    pub counters_note: String,
    /// Run statistics were switched on for the whole machine before the recording.
    pub stats_were_on: bool,
    /// Time between two snapshots.
    pub interval_ns: u64,
    /// The process that recorded. What it loads during the recording is there to count, and is not captured.
    pub recorder_pid: Option<u32>,
    /// How many files of the same recording came before this one. What is counted goes on over all of them, so that in a file
    /// behind the first the first reading of a counter is where counting stood when the file began.
    pub part: u32,
    /// Cost that run statistics add to a run of any program, ns, measured before the recording. None where it is not known, as in older
    /// recordings.
    pub statistics_run_ns: Option<u64>,
}

/// Someone who holds a program: a process with a file descriptor of it, of its link or of its map.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Owner {
    /// Process.
    pub pid: u32,
    /// Its name.
    pub comm: Vec<u8>,
    /// Its user.
    pub uid: u32,
    /// Its cgroup path; empty when not known.
    pub cgroup: Vec<u8>,
}

/// Who owns a program and what else is known of it. The rest is in its `bpf_prog_info`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Program {
    /// Program id.
    pub id: u32,
    /// When it was loaded, ns since boot; together with the id the program's key.
    pub load_time_ns: u64,
    /// It was loaded while the recording ran.
    pub loaded_during: bool,
    /// Who holds it.
    pub owners: Vec<Owner>,
    /// Paths where it, or its link, is pinned.
    pub pins: Vec<Vec<u8>>,
    /// `bpf_metadata_*` variables without the prefix, printed.
    pub metadata: Vec<(Vec<u8>, Vec<u8>)>,
    /// What of its `bpf_prog_info` the kernel withheld, and why; empty when nothing.
    pub withheld: String,
}

/// A program that was seen but could not be captured.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Missed {
    /// Program id.
    pub id: u32,
    /// Tag, when a BPF_EVENT told it.
    pub tag: Option<[u8; 8]>,
    /// When it was seen, ns of the recording's clock.
    pub time_ns: u64,
    /// Why it could not be captured.
    pub reason: String,
}

/// A map that programs use.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Map {
    /// Map id.
    pub id: u32,
    /// `BPF_MAP_TYPE_*`.
    pub map_type: u32,
    /// Bytes of a key.
    pub key_bytes: u32,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// Most entries.
    pub max_entries: u32,
    /// `BPF_F_*` it was created with.
    pub flags: u32,
    /// Name, at most 15 characters.
    pub name: Vec<u8>,
    /// Its BTF; 0 when it has none.
    pub btf_id: u32,
    /// Type of the key in that BTF.
    pub btf_key_type_id: u32,
    /// Type of the value in that BTF.
    pub btf_value_type_id: u32,
    /// Memory charged for it, bytes, when the kernel tells.
    pub memlock_bytes: Option<u64>,
    /// Frozen: user space cannot write it.
    pub frozen: bool,
}

/// Where a program is attached.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Attachment {
    /// The program.
    pub prog_id: u32,
    /// The link, when there is one.
    pub link_id: Option<u32>,
    /// How: `tracepoint`, `raw_tracepoint`, `kprobe`, `xdp`, `perf_event`, `cgroup`, `tracing` …
    pub kind: String,
    /// To what: `raw_syscalls:sys_enter`, `lo`, `cpu-clock`, a cgroup's path, a function's name …
    pub target: Vec<u8>,
}

/// Everyone but the recorder has let go of a program. Without the recorder's own reference it would be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Released {
    /// Program id.
    pub id: u32,
    /// When it was loaded, ns since boot.
    pub load_time_ns: u64,
    /// When it was last seen held by others, ns of the recording's clock.
    pub after_ns: u64,
    /// When it was found released.
    pub before_ns: u64,
}

impl State {
    /// Appends the payload: header and body.
    pub fn encode(&self, out: &mut Vec<u8>, endian: Endian) {
        let start = out.len();
        let mut w = Writer::new(out, endian);
        w.u16(VERSION).u16(self.kind()).u32(0);
        match self {
            State::Session(it) => it.put(&mut w),
            State::Program(it) => it.put(&mut w),
            State::Missed(it) => it.put(&mut w),
            State::RunStats(it) => it.put(&mut w),
            State::Map(it) => it.put(&mut w),
            State::Attachment(it) => it.put(&mut w),
            State::Released(it) => it.put(&mut w),
            State::Loss(it) => it.put(&mut w),
            State::Cost(it) => it.put(&mut w),
            State::KernelSymbols(symbols) => put_list(&mut w, symbols, KernelSymbol::put),
            State::CounterEvents(it) => it.put(&mut w),
            State::ProgramCounters(it) => it.put(&mut w),
            State::SharedCounters(it) => it.put(&mut w),
            State::Sampler(it) => it.put(&mut w),
            State::MapContents(it) => it.put(&mut w),
            State::Aggregation(it) => it.put(&mut w),
            State::CpuNotSampled(it) => it.put(&mut w),
            State::StatsOff(it) => it.put(&mut w),
            State::BootClock(it) => it.put(&mut w),
            State::Recording(it) => it.put(&mut w),
            State::FileFunctions(it) => it.put(&mut w),
            State::UserSymbols(it) => it.put(&mut w),
            State::ProgArray(it) => it.put(&mut w),
            State::Unknown { body, .. } => {
                w.bytes(body);
            }
        }
        let body_bytes = (w.position() - start - HEADER_BYTES) as u32;
        w.patch_u32(start + 4, body_bytes);
    }

    /// Reads the payload in a sample's RAW bytes, which lie at `offset` of the input.
    ///
    /// # Errors
    /// When the version is newer than this crate, or the body does not hold what its kind says.
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
        let r = &mut Reader::new(body, body_offset, endian);
        Ok(match kind {
            1 => State::Session(Session::get(r)?),
            2 => State::Program(Program::get(r)?),
            3 => State::Missed(Missed::get(r)?),
            4 => State::RunStats(RunStats::get(r)?),
            5 => State::Map(Map::get(r)?),
            6 => State::Attachment(Attachment::get(r)?),
            7 => State::Released(Released::get(r)?),
            8 => State::Loss(Loss::get(r)?),
            9 => State::Cost(Cost::get(r)?),
            10 => State::KernelSymbols(get_list(r, 14, KernelSymbol::get)?),
            12 => State::CounterEvents(CounterEvents::get(r)?),
            13 => State::ProgramCounters(ProgramCounters::get(r)?),
            14 => State::SharedCounters(SharedCounters::get(r)?),
            15 => State::Sampler(Sampler::get(r)?),
            11 => State::MapContents(MapContents::get(r)?),
            20 => State::Aggregation(Aggregation::get(r)?),
            21 => State::CpuNotSampled(CpuNotSampled::get(r)?),
            22 => State::StatsOff(StatsOff::get(r)?),
            23 => State::BootClock(BootClock::get(r)?),
            24 => State::Recording(RecordingId::get(r)?),
            32 => State::FileFunctions(FileFunctions::get(r)?),
            33 => State::UserSymbols(UserSymbols::get(r)?),
            40 => State::ProgArray(ProgArray::get(r)?),
            kind => State::Unknown { kind, body: body.to_vec() },
        })
    }
}

macro_rules! kinds {
    ($($name:ident = $kind:literal,)*) => {
        impl State {
            /// Numbers of the kinds that this version knows.
            pub const KINDS: &'static [u16] = &[$($kind),*];

            /// Its number.
            pub fn kind(&self) -> u16 {
                match self {
                    $(State::$name(_) => $kind,)*
                    State::Unknown { kind, .. } => *kind,
                }
            }
        }
    };
}

kinds! {
    Session = 1,
    Program = 2,
    Missed = 3,
    RunStats = 4,
    Map = 5,
    Attachment = 6,
    Released = 7,
    Loss = 8,
    Cost = 9,
    KernelSymbols = 10,
    MapContents = 11,
    CounterEvents = 12,
    ProgramCounters = 13,
    SharedCounters = 14,
    Sampler = 15,
    Aggregation = 20,
    CpuNotSampled = 21,
    StatsOff = 22,
    BootClock = 23,
    Recording = 24,
    FileFunctions = 32,
    UserSymbols = 33,
    ProgArray = 40,
}

impl Session {
    fn put(&self, w: &mut Writer<'_>) {
        w.u64(self.start_ns).u64(self.realtime_ns).u64(self.to_boottime_ns as u64).u32(self.cpus_online);
        for text in [&self.target, &self.event, &self.event_note, &self.counters, &self.counters_note] {
            put_text(w, text.as_bytes());
        }
        w.u8(self.stats_were_on.into()).u64(self.interval_ns);
        // No process has the number 0.
        let has_cost = self.statistics_run_ns.is_some();
        if self.recorder_pid.is_some() || self.part > 0 || has_cost {
            w.u32(self.recorder_pid.unwrap_or(0));
        }
        if self.part > 0 || has_cost {
            w.u32(self.part);
        }
        if let Some(run_ns) = self.statistics_run_ns {
            w.u64(run_ns);
        }
    }

    fn get(r: &mut Reader<'_>) -> Result<Session> {
        Ok(Session {
            start_ns: r.u64("session start")?,
            realtime_ns: r.u64("session realtime")?,
            to_boottime_ns: r.u64("session boottime offset")? as i64,
            cpus_online: r.u32("session cpus")?,
            target: get_string(r, "session target")?,
            event: get_string(r, "session event")?,
            event_note: get_string(r, "session event note")?,
            counters: get_string(r, "session counters")?,
            counters_note: get_string(r, "session counters note")?,
            stats_were_on: r.u8("session stats")? != 0,
            interval_ns: r.u64("session interval")?,
            // Older recordings end here.
            recorder_pid: if r.is_empty() { None } else { Some(r.u32("session recorder")?).filter(|pid| *pid != 0) },
            part: if r.is_empty() { 0 } else { r.u32("session part")? },
            statistics_run_ns: if r.is_empty() { None } else { Some(r.u64("session cost of a run")?) },
        })
    }
}

impl Owner {
    fn put(&self, w: &mut Writer<'_>) {
        w.u32(self.pid);
        put_text(w, &self.comm);
        w.u32(self.uid);
        put_text(w, &self.cgroup);
    }

    fn get(r: &mut Reader<'_>) -> Result<Owner> {
        Ok(Owner {
            pid: r.u32("owner pid")?,
            comm: get_text(r, "owner comm")?,
            uid: r.u32("owner uid")?,
            cgroup: get_text(r, "owner cgroup")?,
        })
    }
}

impl Program {
    fn put(&self, w: &mut Writer<'_>) {
        w.u32(self.id).u64(self.load_time_ns).u8(self.loaded_during.into());
        put_list(w, &self.owners, Owner::put);
        put_list(w, &self.pins, |pin, w| put_text(w, pin));
        put_list(w, &self.metadata, |(key, value), w| {
            put_text(w, key);
            put_text(w, value);
        });
        put_text(w, self.withheld.as_bytes());
    }

    fn get(r: &mut Reader<'_>) -> Result<Program> {
        Ok(Program {
            id: r.u32("program id")?,
            load_time_ns: r.u64("program load time")?,
            loaded_during: r.u8("program loaded during")? != 0,
            owners: get_list(r, 12, Owner::get)?,
            pins: get_list(r, 2, |r| get_text(r, "program pin"))?,
            metadata: get_list(r, 4, |r| Ok((get_text(r, "metadata key")?, get_text(r, "metadata value")?)))?,
            withheld: get_string(r, "program withheld")?,
        })
    }
}

impl Missed {
    fn put(&self, w: &mut Writer<'_>) {
        w.u32(self.id).u8(self.tag.is_some().into()).bytes(&self.tag.unwrap_or_default()).u64(self.time_ns);
        put_text(w, self.reason.as_bytes());
    }

    fn get(r: &mut Reader<'_>) -> Result<Missed> {
        let id = r.u32("missed id")?;
        let has_tag = r.u8("missed tag")? != 0;
        let tag = r.array("missed tag")?;
        Ok(Missed {
            id,
            tag: has_tag.then_some(tag),
            time_ns: r.u64("missed time")?,
            reason: get_string(r, "missed reason")?,
        })
    }
}

impl Map {
    fn put(&self, w: &mut Writer<'_>) {
        for number in [self.id, self.map_type, self.key_bytes, self.value_bytes, self.max_entries, self.flags] {
            w.u32(number);
        }
        put_text(w, &self.name);
        w.u32(self.btf_id).u32(self.btf_key_type_id).u32(self.btf_value_type_id);
        put_option(w, self.memlock_bytes);
        w.u8(self.frozen.into());
    }

    fn get(r: &mut Reader<'_>) -> Result<Map> {
        Ok(Map {
            id: r.u32("map id")?,
            map_type: r.u32("map type")?,
            key_bytes: r.u32("map key size")?,
            value_bytes: r.u32("map value size")?,
            max_entries: r.u32("map max entries")?,
            flags: r.u32("map flags")?,
            name: get_text(r, "map name")?,
            btf_id: r.u32("map btf id")?,
            btf_key_type_id: r.u32("map key type")?,
            btf_value_type_id: r.u32("map value type")?,
            memlock_bytes: get_option(r, "map memlock")?,
            frozen: r.u8("map frozen")? != 0,
        })
    }
}

impl Attachment {
    fn put(&self, w: &mut Writer<'_>) {
        w.u32(self.prog_id);
        put_option(w, self.link_id.map(u64::from));
        put_text(w, self.kind.as_bytes());
        put_text(w, &self.target);
    }

    fn get(r: &mut Reader<'_>) -> Result<Attachment> {
        Ok(Attachment {
            prog_id: r.u32("attachment program")?,
            link_id: get_option(r, "attachment link")?.map(|id| id as u32),
            kind: get_string(r, "attachment kind")?,
            target: get_text(r, "attachment target")?,
        })
    }
}

impl Released {
    fn put(&self, w: &mut Writer<'_>) {
        w.u32(self.id).u64(self.load_time_ns).u64(self.after_ns).u64(self.before_ns);
    }

    fn get(r: &mut Reader<'_>) -> Result<Released> {
        Ok(Released {
            id: r.u32("released id")?,
            load_time_ns: r.u64("released load time")?,
            after_ns: r.u64("released after")?,
            before_ns: r.u64("released before")?,
        })
    }
}
