//! The first pass: all of the side band, and nothing of the samples but where they are. It knows no filter, so that one index
//! serves many queries.

pub(crate) mod address;
pub(crate) mod address_cache;
pub(crate) mod boot_times;
pub(crate) mod cells;
pub(crate) mod dedup;
pub(crate) mod demangle;
pub(crate) mod file_functions;
pub(crate) mod guard;
pub(crate) mod hooks;
pub(crate) mod images;
mod intervals;
pub(crate) mod map_contents;
pub(crate) mod programs;
pub(crate) mod run_moments;
pub(crate) mod runners;
pub(crate) mod runs;
pub(crate) mod sections;
pub(crate) mod stream_symbols;
pub(crate) mod symbolizer;
pub(crate) mod symbols;
pub(crate) mod tail_calls;
pub(crate) mod tasks;
pub(crate) mod traces;
pub(crate) mod workload;

use self::address::{AddressMap, Owner, Range};
use self::hooks::Hooks;
use self::programs::{Program, Programs, SideEvent, SidebandKind};
use self::run_moments::RunMoments;
use self::symbols::{KernelMaps, KernelSymbols, Kind};
use self::tail_calls::TailCalls;
use self::tasks::{Tasks, TasksBuilder};
use self::workload::Workloads;
use crate::index::boot_times::BootTimes;
use crate::index::dedup::{DedupKey, DedupLog};
use crate::index::file_functions::Files;
use crate::index::map_contents::Contents;
use crate::index::traces::Traces;
use crate::input::event_kind::EventKind;
use crate::input::recording::Recording;
use crate::input::scan::Scanner;
use crate::input::threads::{MAX_THREADS, threads_there_are};
use crate::model::Unit;
use bprec_format::bpf::btf::{BpfBtfSection, Btf};
use bprec_format::bpf::prog_info::{BpfProgInfoSection, ProgInfo};
use bprec_format::feature::Feature;
use bprec_format::records::{LostSamples, Payload};
use bprec_format::sampler::Parts;
use bprec_format::state::{self, KernelSymbol, State};
use bprec_format::{
    AttrFlags, RECORD_HEADER_BYTES, Record, RecordType, Records, SampleId, SampleType, event_type, misc, software,
};
use std::collections::BTreeMap;
use std::sync::OnceLock;

/// Everything that samples are looked up in, and everything else that the side band says.
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub(crate) map: AddressMap,
    /// From the first BPF code to the last.
    pub(crate) bpf_span: Option<(u64, u64)>,
    pub(crate) programs: Programs,
    /// By program: whether it runs under the kernel's guard, so that no program on an event sees it.
    pub(crate) guarded: Vec<bool>,
    pub(crate) tasks: Tasks,
    pub(crate) cgroups: BTreeMap<u64, String>,
    /// Who runs in these; made when it is asked for.
    pub(crate) workloads: OnceLock<Workloads>,
    pub(crate) symbols: KernelSymbols,
    /// Functions of files in user space.
    pub(crate) files: Files,
    pub(crate) hooks: Hooks,
    pub(crate) tail_calls: TailCalls,
    pub(crate) kernel: KernelMaps,
    /// Slice and offset of the records that have snapshots of counters.
    pub(crate) snapshots: Vec<(u32, u64)>,
    /// When run statistics were read.
    pub(crate) run_moments: RunMoments,
    pub(crate) states: States,
    /// Events whose samples were counted in the kernel, by position: the last account of each.
    pub(crate) aggregations: BTreeMap<usize, state::Aggregation>,
    pub(crate) lost: Lost,
    pub(crate) traces: Traces,
    /// Slice and offset at which a part of the samples starts, about [`PART_BYTES`] apart.
    pub(crate) parts: Vec<(u32, u64)>,
    /// What could not be read.
    pub(crate) problems: Vec<String>,
    /// Records that could not be read, beyond those in `problems`.
    pub(crate) bad_records: u64,
}

/// What only our own recordings say.
#[derive(Debug, Default)]
pub(crate) struct States {
    pub(crate) session: Option<state::Session>,
    /// What load times mean.
    pub(crate) boot_times: BootTimes,
    pub(crate) programs: BTreeMap<(u32, u64), state::Program>,
    pub(crate) missed: Vec<state::Missed>,
    /// By program id.
    pub(crate) attachments: Vec<state::Attachment>,
    pub(crate) released: BTreeMap<(u32, u64), state::Released>,
    pub(crate) loss: Option<state::Loss>,
    pub(crate) cpus_not_sampled: Vec<state::CpuNotSampled>,
    pub(crate) sampler: Option<state::Sampler>,
    pub(crate) cost: Option<state::Cost>,
    pub(crate) maps: BTreeMap<u32, state::Map>,
    /// What program arrays held, in the order of the readings.
    pub(crate) prog_arrays: Vec<state::ProgArray>,
    /// How many entries were read of maps that were read to their end, by id.
    pub(crate) map_entries: BTreeMap<u32, u64>,
    /// What maps held, by their id, if that is wanted.
    pub(crate) contents: BTreeMap<u32, Contents>,
    /// When run statistics were read, ns of the recording's clock.
    pub(crate) read_at_ns: Vec<u64>,
    /// Run statistics are not kept, or no longer.
    pub(crate) stats_off: Option<state::StatsOff>,
    /// How far functions of user space were named.
    pub(crate) user_symbols: Option<state::UserSymbols>,
}

impl States {
    /// Where the programs with an id are attached.
    pub(crate) fn attachments_of(&self, id: Option<u32>) -> &[state::Attachment] {
        let Some(id) = id else { return &[] };
        let from = self.attachments.partition_point(|attachment| attachment.prog_id < id);
        let of_id = &self.attachments[from..];
        &of_id[..of_id.partition_point(|attachment| attachment.prog_id == id)]
    }

    /// Whether run statistics were kept then.
    pub(crate) fn has_run_stats_at(&self, time_ns: u64) -> bool {
        self.stats_off.as_ref().is_none_or(|off| time_ns < off.time_ns)
    }

    /// Why not more is counted.
    pub(crate) fn counters_note(&self) -> Option<String> {
        counters_note(self.session.as_ref(), self.stats_off.as_ref())
    }
}

/// Why not more is counted: what the session says, and until when there were run statistics.
pub(crate) fn counters_note(session: Option<&state::Session>, off: Option<&state::StatsOff>) -> Option<String> {
    let said = session.map(|session| session.counters_note.clone()).filter(|note| !note.is_empty());
    let start_ns = session.map_or(0, |session| session.start_ns);
    let off = off.map(|off| match off.time_ns.checked_sub(start_ns).filter(|after_ns| *after_ns > 0) {
        None => format!("no run statistics: {}", off.reason),
        Some(after_ns) => format!("run statistics until {:.3} s only: {}", after_ns as f64 / 1e9, off.reason),
    });
    let notes: Vec<String> = said.into_iter().chain(off).collect();
    (!notes.is_empty()).then(|| notes.join("; "))
}

/// What did not make it into the recording, by the three ways in which it is told.
#[derive(Debug, Default)]
pub(crate) struct Lost {
    /// Records, of any event: LOST.
    pub(crate) records: u64,
    /// Samples by event: LOST_SAMPLES.
    pub(crate) samples: BTreeMap<usize, u64>,
    /// Samples of LOST_SAMPLES that name no event of the recording, where there are several.
    pub(crate) samples_of_any: u64,
    /// Samples that a BPF filter dropped, by event.
    pub(crate) filtered: BTreeMap<usize, u64>,
    /// THROTTLE records by event.
    pub(crate) throttled: BTreeMap<usize, u64>,
}

impl Lost {
    /// At most so much is lost of an event whose losses are not known.
    pub(crate) fn of_any_event(&self) -> u64 {
        let named = if self.samples_of_any > 0 { self.samples.values().copied().collect() } else { Vec::new() };
        let all = [self.records, self.samples_of_any].into_iter().chain(named);
        all.fold(0, u64::saturating_add)
    }
}

/// Problems that are kept in words.
const MAX_PROBLEMS: usize = 20;

/// Kernel functions that are kept: more than any kernel has.
const MAX_SYMBOLS: usize = 1 << 20;

/// What of the side band is needed.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wanted {
    /// Names of tasks.
    pub(crate) tasks: bool,
    /// What maps held.
    pub(crate) contents: bool,
    /// Threads; as many as there are CPUs when not given.
    pub(crate) threads: Option<usize>,
}

impl Index {
    /// What the weights of an event's samples are. Those that our sampling program makes are of the event that carries it.
    pub(crate) fn unit(&self, recording: &Recording<'_>, event: usize) -> Unit {
        let attr = &recording.event(event).attr;
        let carrier = self.states.sampler.as_ref().filter(|_| recording.kinds[event] == EventKind::BpfSampler);
        let kind = carrier.map_or((attr.kind, attr.config), |carrier| (carrier.event_type, carrier.event_config));
        match kind {
            (event_type::SOFTWARE, software::CPU_CLOCK | software::TASK_CLOCK) => Unit::Nanoseconds,
            _ => Unit::Events,
        }
    }

    /// Whether an event's samples have the kernel's call chains.
    pub(crate) fn has_chains(&self, recording: &Recording<'_>, event: usize) -> bool {
        let attr = &recording.event(event).attr;
        // What our sampling program makes is of the event that carries it.
        match self.states.sampler.as_ref().filter(|_| recording.kinds[event] == EventKind::BpfSampler) {
            Some(carrier) => carrier.parts.contains(Parts::STACK),
            None => {
                attr.sample_type.contains(SampleType::CALLCHAIN)
                    && !attr.flags.contains(AttrFlags::EXCLUDE_CALLCHAIN_KERNEL)
            }
        }
    }

    /// Walks all records once.
    pub(crate) fn build(recording: &Recording<'_>, wanted: Wanted) -> Index {
        let mut walk = Walk::new(recording, wanted);
        let mut slice = 0;
        recording.for_each_slice(|records| {
            match records {
                Ok(records) => walk.slice(slice, &records),
                Err(error) => walk.problem(error.to_string()),
            }
            slice += 1;
        });
        walk.finish()
    }

    /// When the recording started, if it says so.
    pub(crate) fn start_ns(&self) -> Option<u64> {
        self.states.session.as_ref().map(|session| session.start_ns)
    }

    /// Who runs in the cgroups.
    pub(crate) fn workloads(&self) -> &Workloads {
        self.workloads.get_or_init(|| Workloads::new(&self.cgroups))
    }

    fn problem(&mut self, problem: String) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
        } else {
            self.bad_records += 1;
        }
    }
}

/// Start, end and name of what the kernel has mapped: itself, a module.
type KernelMap = (u64, u64, String);

impl DedupKey for KernelMap {}
impl DedupKey for KernelSymbol {}
impl DedupKey for state::FileFunctions {}
impl DedupKey for state::Missed {}
impl DedupKey for state::Attachment {}
impl DedupKey for state::ProgArray {}

struct Walk<'r, 'a> {
    recording: &'r Recording<'a>,
    /// The slice that is walked.
    slice: u32,
    wanted: Wanted,
    threads: usize,
    has_state: bool,
    side: DedupLog<SideEvent>,
    tasks: TasksBuilder,
    symbols: DedupLog<KernelSymbol>,
    functions: DedupLog<state::FileFunctions>,
    maps: DedupLog<KernelMap>,
    missed: DedupLog<state::Missed>,
    attachments: DedupLog<state::Attachment>,
    prog_arrays: DedupLog<state::ProgArray>,
    index: Index,
}

impl<'r, 'a> Walk<'r, 'a> {
    fn new(recording: &'r Recording<'a>, wanted: Wanted) -> Walk<'r, 'a> {
        Walk {
            recording,
            slice: 0,
            wanted,
            // Asked once: the system takes its time to say.
            threads: wanted.threads.unwrap_or_else(threads_there_are).clamp(1, MAX_THREADS),
            has_state: recording.kinds.contains(&EventKind::State),
            side: DedupLog::default(),
            tasks: TasksBuilder::default(),
            symbols: DedupLog::default(),
            functions: DedupLog::default(),
            maps: DedupLog::default(),
            missed: DedupLog::default(),
            attachments: DedupLog::default(),
            prog_arrays: DedupLog::default(),
            index: Index::default(),
        }
    }

    fn slice(&mut self, slice: u32, records: &Records<'_>) {
        self.slice = slice;
        let endian = self.recording.endian();
        let recording = self.recording;
        let (has_state, needs_tasks) = (self.has_state, self.wanted.tasks);
        let is_wanted = |kind, record: &[u8]| match kind {
            // Samples that carry no state are told by their id alone, where they have one.
            RecordType::SAMPLE => has_state && recording.may_hold_state(record),
            RecordType::KSYMBOL
            | RecordType::BPF_EVENT
            | RecordType::CGROUP
            | RecordType::LOST
            | RecordType::LOST_SAMPLES
            | RecordType::THROTTLE
            | RecordType::AUXTRACE_INFO
            | RecordType::AUXTRACE => true,
            // The kernel's own maps have its mode; tasks' maps are not needed.
            RecordType::MMAP | RecordType::MMAP2 => {
                endian.u16_at(record, 4).is_some_and(|flags| flags & misc::CPUMODE_MASK == misc::KERNEL)
            }
            RecordType::COMM | RecordType::FORK => needs_tasks,
            _ => false,
        };
        let scanner = Scanner { endian, threads: self.threads, is_wanted: &is_wanted };
        let mut visit = |record: bprec_format::Result<Record<'_>>| match record {
            Ok(record) if record.kind == RecordType::SAMPLE => self.sample(&record),
            Ok(record) => self.side_band(&record),
            Err(error) => self.index.problem(error.to_string()),
        };
        let parts = scanner.scan(records, &mut visit, &|part| recording.finish_part(part));
        self.index.parts.extend(parts.into_iter().map(|part| (slice, part)));
    }

    fn problem(&mut self, problem: String) {
        self.index.problem(problem);
    }

    /// Records of the side band are few beside samples.
    fn side_band(&mut self, record: &Record<'_>) {
        let events = &self.recording.events;
        let event = events.index_of(record).unwrap_or(0);
        match Payload::decode(record, &self.recording.event(event).layout) {
            Ok((Payload::LostSamples(lost), id)) => {
                let is_known = events.all().len() == 1 || id.id.is_some_and(|id| events.index_of_id(id).is_some());
                self.lost_samples(&lost, is_known.then_some(event));
            }
            Ok((payload, id)) => self.payload(payload, &id, event),
            Err(error) => self.problem(error.to_string()),
        }
    }

    fn payload(&mut self, payload: Payload<'_>, id: &SampleId, event: usize) {
        let time_ns = id.time_ns.unwrap_or(0);
        let place = (id.cpu.unwrap_or(0), id.pid_tid.map_or(0, |(_, tid)| tid));
        let pid = id.pid_tid.map(|(pid, _)| pid);
        self.index.traces.take(&payload);
        let mut side = |kind| self.side.push(SideEvent { time_ns, place, kind });
        match payload {
            Payload::Ksymbol(symbol) => side(SidebandKind::Symbol {
                addr: symbol.addr,
                len_bytes: symbol.len_bytes,
                kind: symbol.kind,
                gone: symbol.is_unregister(),
                name: symbol.name.to_vec(),
            }),
            Payload::BpfEvent(it) => side(SidebandKind::Program { kind: it.kind, id: it.id, tag: it.tag, pid }),
            // The idle task neither takes a name nor starts: that is one of another pid namespace, which comes as 0 too.
            Payload::Comm(comm) if comm.tid == 0 && time_ns > 0 => {}
            Payload::Fork(task) if task.tid == 0 => {}
            Payload::Comm(comm) => self.tasks.named(time_ns, comm.tid, comm.comm),
            Payload::Fork(task) => self.tasks.forked(time_ns.max(task.time_ns), task.tid, task.ptid),
            Payload::Cgroup(cgroup) => {
                self.index.cgroups.insert(cgroup.id, String::from_utf8_lossy(cgroup.path).into_owned());
            }
            Payload::Mmap(map) => self.kernel_map(map.addr, map.len_bytes, map.filename),
            Payload::Mmap2(map) => self.kernel_map(map.addr, map.len_bytes, map.filename),
            Payload::Lost(lost) => self.index.lost.records = self.index.lost.records.saturating_add(lost.lost),
            Payload::Throttle(throttle) => {
                let event = self.recording.events.index_of_id(throttle.id).unwrap_or(event);
                *self.index.lost.throttled.entry(event).or_default() += 1;
            }
            _ => {}
        }
    }

    fn lost_samples(&mut self, record: &LostSamples, event: Option<usize>) {
        let lost = &mut self.index.lost;
        let samples = match (event, record.by_bpf) {
            (Some(event), true) => lost.filtered.entry(event).or_default(),
            (Some(event), false) => lost.samples.entry(event).or_default(),
            (None, false) => &mut lost.samples_of_any,
            (None, true) => {
                return self.problem(format!("a filter dropped {} samples of an unknown event", record.lost));
            }
        };
        *samples = samples.saturating_add(record.lost);
    }

    fn kernel_map(&mut self, addr: u64, len_bytes: u64, name: &[u8]) {
        // Where addresses are withheld, the kernel's map starts at 0 and says nothing.
        if addr != 0 && self.maps.len() < MAX_SYMBOLS {
            self.maps.push((addr, addr.saturating_add(len_bytes), String::from_utf8_lossy(name).into_owned()));
        }
    }

    fn sample(&mut self, record: &Record<'_>) {
        let Some(event) = self.recording.events.index_of(record) else { return };
        if self.recording.kinds[event] != EventKind::State {
            return;
        }
        let layout = &self.recording.event(event).layout;
        let state = layout
            .sample(record.body(), record.offset + RECORD_HEADER_BYTES as u64)
            .and_then(|sample| sample.raw())
            .and_then(|raw| State::decode(raw.unwrap_or_default(), record.offset, self.recording.endian()));
        match state {
            Ok(state) => self.state(state, record.offset),
            Err(error) => self.problem(error.to_string()),
        }
    }

    fn state(&mut self, state: State, offset: u64) {
        if is_snapshot(&state) {
            self.index.snapshots.push((self.slice, offset));
        }
        let states = &mut self.index.states;
        match state {
            State::RunStats(read) if states.read_at_ns.last() != Some(&read.time_ns) => {
                states.read_at_ns.push(read.time_ns);
            }
            State::Session(session) => {
                states.boot_times.begin(session.to_boottime_ns);
                states.session = Some(session);
            }
            State::BootClock(clock) => states.boot_times.changed(&clock),
            State::Program(program) => {
                states.programs.insert((program.id, program.load_time_ns), program);
            }
            State::Missed(missed) => self.missed.push(missed),
            State::StatsOff(off) => {
                states.stats_off.get_or_insert(off);
            }
            State::Attachment(attachment) => self.attachments.push(attachment),
            State::ProgArray(array) => self.prog_arrays.push(array),
            State::Released(released) => {
                states.released.insert((released.id, released.load_time_ns), released);
            }
            State::Map(map) => {
                states.maps.insert(map.id, map);
            }
            State::MapContents(part) => {
                if let Some(end) = &part.end {
                    states.map_entries.insert(part.map_id, end.entries);
                }
                if self.wanted.contents {
                    states.contents.entry(part.map_id).or_default().add(part);
                }
            }
            State::Loss(loss) => states.loss = Some(loss),
            State::CpuNotSampled(cpu) => states.cpus_not_sampled.push(cpu),
            State::Cost(cost) => states.cost = Some(cost),
            State::Sampler(sampler) => states.sampler = Some(sampler),
            State::Aggregation(aggregation) => self.aggregation(aggregation),
            State::KernelSymbols(symbols) => {
                for symbol in symbols {
                    if self.symbols.len() < MAX_SYMBOLS {
                        self.symbols.push(symbol);
                    }
                }
            }
            State::FileFunctions(part) if self.functions.len() < MAX_SYMBOLS => self.functions.push(part),
            State::UserSymbols(done) => states.user_symbols = Some(done),
            _ => {}
        }
    }

    fn aggregation(&mut self, aggregation: state::Aggregation) {
        let mut events = self.recording.events.all().iter();
        let Some(event) = events.position(|event| event.ids.contains(&aggregation.event_id)) else { return };
        // Without that field nothing says how many samples a record is.
        if self.recording.event(event).layout.sample_type().contains(SampleType::WEIGHT) {
            let last = self.index.aggregations.entry(event).or_insert(aggregation);
            if last.time_ns <= aggregation.time_ns {
                *last = aggregation;
            }
        }
    }

    fn finish(mut self) -> Index {
        let infos = self.infos();
        let btf = self.btf();
        let mut programs =
            Programs::join(std::mem::take(&mut self.side).into_vec(), &infos, &btf, &self.index.states.boot_times);
        let mut index = self.index;
        index.states.missed = self.missed.into_vec();
        index.states.attachments = self.attachments.into_vec();
        index.states.prog_arrays = self.prog_arrays.into_vec();
        index.states.attachments.sort_by_key(|attachment| attachment.prog_id);
        let (states, read_at_ns) = (&index.states, index.states.read_at_ns.iter().copied());
        index.run_moments = RunMoments::new(read_at_ns.filter(|time_ns| states.has_run_stats_at(*time_ns)));
        let mut symbols = self.symbols.into_vec();
        symbols.extend(sections::kernel_symbols(self.recording.sections(), self.recording.endian()));
        index.symbols = KernelSymbols::new(symbols);
        let (sections, endian) = (self.recording.sections(), self.recording.endian());
        index.files = Files::new(sections, endian, &self.functions.into_vec());
        index.kernel = KernelMaps::new(self.maps.into_vec());
        index.tasks = self.tasks.build();
        let always =
            |owner| move |(start, end)| Range { start, end, from_ns: 0, to_ns: u64::MAX, owner, announced: true };
        let hooks = index.symbols.of_kind(Kind::Hook).map(always(Owner::Hook));
        // Without programs on tracepoints or on probes of user space, what is there is no program's.
        let events = index.symbols.of_kind(Kind::Event).map(always(Owner::Event));
        let events = events.filter(|_| index.states.attachments.iter().any(hooks::is_tracepoint));
        let user_probes = index.symbols.of_kind(Kind::UserProbe).map(always(Owner::Hook));
        let user_probes = user_probes.filter(|_| index.states.attachments.iter().any(hooks::is_user_probe));
        let interpreter = index.symbols.of_kind(Kind::Interpreter).map(always(Owner::Interpreter));
        let ranges = std::mem::take(&mut programs.ranges);
        index.bpf_span = address::span(&ranges);
        index.map =
            AddressMap::new(ranges.into_iter().chain(hooks).chain(events).chain(user_probes).chain(interpreter));
        index.hooks = Hooks::new(&index.symbols, &programs.list, &index.states, &programs.images, &programs.attached);
        let maps_of = |program: &Program| {
            let info = program.info.and_then(|info| infos.get(info.at));
            info.and_then(ProgInfo::map_ids).into_iter().flat_map(|ids| ids.iter())
        };
        index.tail_calls = TailCalls::new(&programs.list, maps_of, &index.states);
        index.guarded = programs.list.iter().map(|known| is_guarded(known, &index.states)).collect();
        index.programs = programs;
        index
    }

    fn infos(&mut self) -> Vec<ProgInfo<'r>> {
        let mut infos = Vec::new();
        for section in self.recording.sections_of(Feature::BPF_PROG_INFO) {
            match BpfProgInfoSection::new(&section.bytes, section.offset, self.recording.endian()) {
                Ok(section) => infos.extend(self.keep_good(section)),
                Err(error) => self.problem(error.to_string()),
            }
        }
        infos
    }

    fn btf(&mut self) -> BTreeMap<u32, Btf<'r>> {
        let mut parsed = BTreeMap::new();
        for section in self.recording.sections_of(Feature::BPF_BTF) {
            let blobs = match BpfBtfSection::new(&section.bytes, section.offset, self.recording.endian()) {
                Ok(section) => self.keep_good(section),
                Err(error) => {
                    self.problem(error.to_string());
                    continue;
                }
            };
            for (id, blob) in blobs {
                match Btf::parse(blob) {
                    Ok(btf) => {
                        parsed.insert(id, btf);
                    }
                    Err(error) => self.problem(format!("BTF {id}: {error}")),
                }
            }
        }
        parsed
    }

    fn keep_good<T>(&mut self, items: impl Iterator<Item = bprec_format::Result<T>>) -> Vec<T> {
        let mut good = Vec::new();
        for item in items {
            match item {
                Ok(item) => good.push(item),
                Err(error) => self.problem(error.to_string()),
            }
        }
        good
    }
}

fn is_guarded(known: &Program, states: &States) -> bool {
    guard::guards(known.info.and_then(|info| info.prog_type), states.attachments_of(known.id).iter())
}

/// Whether a state is a snapshot of counters, or says how to read those.
fn is_snapshot(state: &State) -> bool {
    matches!(
        state,
        State::RunStats(_)
            | State::StatsOff(_)
            | State::CounterEvents(_)
            | State::ProgramCounters(_)
            | State::SharedCounters(_)
    )
}
