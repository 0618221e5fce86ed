//! First pass: reads the side band and the positions of the samples. It applies no filter, so that one index serves many queries.

pub(crate) mod causes;
pub(crate) mod code;
pub(crate) mod dedup;
pub(crate) mod demangle;
pub(crate) mod file_functions;
mod files;
pub(crate) mod hooks;
pub(crate) mod images;
mod intervals;
pub(crate) mod kernel;
pub(crate) mod map_contents;
pub(crate) mod owners;
pub(crate) mod programs;
pub(crate) mod runners;
pub(crate) mod runs;
pub(crate) mod sections;
pub(crate) mod states;
pub(crate) mod stream_symbols;
pub(crate) mod student;
pub(crate) mod symbolizer;
pub(crate) mod symbols;
pub(crate) mod tail_calls;
pub(crate) mod tasks;
pub(crate) mod workload;

use self::code::user::{UserMaps, UserMapsBuilder};
use self::code::{Code, CodeMap};
use self::files::FileAccounts;
use self::hooks::Hooks;
use self::kernel::Role;
use self::programs::{IndexedProgram, Programs, SideEvent, SidebandKind};
use self::runs::RunSeries;
use self::states::{Lost, States, Traces};
use self::symbols::{KernelMaps, KernelSymbols};
use self::tail_calls::TailCalls;
use self::tasks::{ProcessFork, Tasks, TasksBuilder};
use self::workload::Workloads;
use crate::index::dedup::DedupLog;
use crate::index::file_functions::Files;
use crate::input::cut_off::CutOff;
use crate::input::event_kind::EventKind;
use crate::input::recording::OpenRecording;
use crate::input::scan::Scanner;
use crate::input::{MAX_THREADS, threads_there_are};
use crate::model::Unit;
use bprec_format::bpf::btf::{BpfBtfSection, Btf};
use bprec_format::bpf::prog_info::{BpfProgInfoSection, OLDEST_INFO_LEN, ProgInfo};
use bprec_format::bprec::sampler::Parts;
use bprec_format::bprec::state::{self, KernelSymbol, State};
use bprec_format::feature::Feature;
use bprec_format::records::{LostSamples, Payload};
use bprec_format::{AttrFlags, Record, RecordType, Records, SampleId, SampleType, event_type, misc, software};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::sync::OnceLock;

/// Facts of the side band: the tables in which samples are looked up, and all other facts of the recording.
#[derive(Debug, Default)]
pub(crate) struct Index {
    /// The kernel's address space: the code at each address, by time.
    pub(crate) code: CodeMap,
    pub(crate) programs: Programs,
    /// For each program: true if it runs under the kernel's recursion guard (`bpf_prog_active`): no BPF program on a perf event can sample it.
    pub(crate) guarded: Vec<bool>,
    pub(crate) tasks: Tasks,
    pub(crate) cgroups: BTreeMap<u64, String>,
    /// Containers and units of the cgroups, made at first use.
    pub(crate) workloads: OnceLock<Workloads>,
    /// Functions of files in user space.
    pub(crate) files: Files,
    /// Mapped files of processes, if wanted.
    pub(crate) user: UserMaps,
    pub(crate) hooks: Hooks,
    pub(crate) tail_calls: TailCalls,
    /// Position of each record that has a snapshot of counters: slice number and offset.
    pub(crate) snapshots: Vec<(u32, u64)>,
    /// Run counts of programs.
    pub(crate) runs: RunSeries,
    pub(crate) states: States,
    /// Latest totals of each event with samples counted in the kernel, by index of the event.
    pub(crate) aggregations: BTreeMap<usize, state::Aggregation>,
    pub(crate) lost: Lost,
    pub(crate) traces: Traces,
    /// Index of the first file that was recorded after another boot than file 0.
    pub(crate) other_boot: Option<usize>,
    /// Gaps from the end of a file to the start of the next file, ns.
    pub(crate) gaps: Vec<(u64, u64)>,
    /// Start of each part of the samples, as slice number and offset; parts are about a MiB long.
    pub(crate) parts: Vec<(u32, u64)>,
    /// Messages about problems in reading the recording.
    pub(crate) problems: Vec<String>,
    /// Count of problems beyond [`MAX_PROBLEMS`].
    pub(crate) bad_records: u64,
}

/// Limit on the messages about problems; further problems are only counted.
const MAX_PROBLEMS: usize = 20;

/// Limit on kernel functions: more than any kernel has. Further functions are left out.
const MAX_SYMBOLS: usize = 1 << 20;

/// Parts of the side band that a query needs.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wanted {
    /// Names of tasks.
    pub(crate) tasks: bool,
    /// Contents of maps.
    pub(crate) contents: bool,
    /// Mapped files of processes.
    pub(crate) user_code: bool,
    /// Number of threads for reading; `None` for the number of CPUs.
    pub(crate) threads: Option<usize>,
}

impl Index {
    /// Returns true if another tool had run statistics on, at the start or later.
    pub(crate) fn were_statistics_on_for_others(&self) -> bool {
        let were_on = self.states.session.as_ref().is_some_and(|session| session.stats_were_on);
        were_on || self.runs.were_on_for_others()
    }

    /// Unit of the weights of an event's samples. Samples of bprec's sampling program have the unit of the event to which the program is attached.
    pub(crate) fn unit(&self, recording: &OpenRecording<'_>, event: usize) -> Unit {
        let attr = &recording.event(event).attr;
        let carrier = self.states.sampler.as_ref().filter(|_| recording.kinds[event] == EventKind::BpfSampler);
        let kind = carrier.map_or((attr.kind, attr.config), |carrier| (carrier.event_type, carrier.event_config));
        match kind {
            (event_type::SOFTWARE, software::CPU_CLOCK | software::TASK_CLOCK) => Unit::Nanoseconds,
            _ => Unit::Events,
        }
    }

    /// Returns true if an event's samples have call chains of the kernel.
    pub(crate) fn has_chains(&self, recording: &OpenRecording<'_>, event: usize) -> bool {
        let attr = &recording.event(event).attr;
        // Samples of bprec's sampling program: the attr of their event does not show call chains, but the recorder's state lists the fields of the
        // samples.
        match self.states.sampler.as_ref().filter(|_| recording.kinds[event] == EventKind::BpfSampler) {
            Some(carrier) => carrier.parts.contains(Parts::STACK),
            None => {
                attr.sample_type.contains(SampleType::CALLCHAIN)
                    && !attr.flags.contains(AttrFlags::EXCLUDE_CALLCHAIN_KERNEL)
            }
        }
    }

    /// Walks all records once and builds the index.
    pub(crate) fn build(recording: &OpenRecording<'_>, wanted: Wanted) -> Index {
        let mut walk = Walk::new(recording, wanted);
        let mut slice = 0;
        recording.for_each_slice(|of_file| {
            walk.follow(of_file.file);
            match of_file.records {
                Ok(records) => walk.slice(slice, &records),
                Err(error) => walk.problem(error.to_string()),
            }
            slice += 1;
        });
        walk.finish()
    }

    /// Returns the name of code; `None` if the recording has no name for it.
    pub(crate) fn code_name(&self, code: Code) -> Option<String> {
        Some(match code {
            Code::Function { program, function } => {
                let function = self.programs.list[program as usize].functions.get(function as usize);
                function.map_or_else(String::new, |function| function.name.clone())
            }
            Code::Image(image) => self.programs.images[image as usize].name.clone(),
            Code::Kernel { function, .. } => self.code.kernel.name(function?),
            Code::Unknown => return None,
        })
    }

    /// Returns the length of the recording between two times without the gaps between files, ns; `None` if nothing remains.
    pub(crate) fn recorded_ns(&self, from_ns: u64, to_ns: u64) -> Option<u64> {
        let gaps = self.gaps.iter().map(|(end_ns, start_ns)| start_ns - end_ns).fold(0, u64::saturating_add);
        to_ns.checked_sub(from_ns)?.checked_sub(gaps).filter(|length_ns| *length_ns > 0)
    }

    /// Start of the recording, ns, if known.
    pub(crate) fn start_ns(&self) -> Option<u64> {
        self.states.session.as_ref().map(|session| session.start_ns)
    }

    /// Containers and units of the cgroups.
    pub(crate) fn workloads(&self) -> &Workloads {
        self.workloads.get_or_init(|| Workloads::new(&self.cgroups, &self.states.pods))
    }

    /// Messages about problems in opening the recording and in reading its records.
    pub(crate) fn all_problems(&self, recording: &OpenRecording<'_>) -> Vec<String> {
        let more = (self.bad_records > 0).then(|| format!("{} more records could not be read", self.bad_records));
        recording.problems().iter().chain(&self.problems).cloned().chain(more).collect()
    }

    fn problem(&mut self, problem: String) {
        if self.problems.len() < MAX_PROBLEMS {
            self.problems.push(problem);
        } else {
            self.bad_records += 1;
        }
    }
}

/// Start, end and name of a kernel mapping: the kernel itself or a module.
type KernelMap = (u64, u64, String);

struct Walk<'r, 'a> {
    recording: &'r OpenRecording<'a>,
    /// Position of the current file.
    file: usize,
    /// Time given to records without a time in the current file, ns: just after the end of the files before it.
    listed_at_ns: u64,
    files: FileAccounts,
    /// Number of the current slice.
    slice: u32,
    wanted: Wanted,
    threads: usize,
    has_state: bool,
    side: DedupLog<SideEvent>,
    tasks: TasksBuilder,
    symbols: DedupLog<KernelSymbol>,
    functions: DedupLog<state::FileFunctions>,
    maps: DedupLog<KernelMap>,
    user: UserMapsBuilder,
    missed: DedupLog<state::Missed>,
    attachments: DedupLog<state::Attachment>,
    prog_arrays: DedupLog<state::ProgArray>,
    index: Index,
}

impl<'r, 'a> Walk<'r, 'a> {
    fn new(recording: &'r OpenRecording<'a>, wanted: Wanted) -> Walk<'r, 'a> {
        Walk {
            recording,
            file: 0,
            listed_at_ns: 0,
            files: FileAccounts::default(),
            slice: 0,
            wanted,
            // Called once, as the system call is slow.
            threads: wanted.threads.unwrap_or_else(threads_there_are).clamp(1, MAX_THREADS),
            has_state: recording.kinds.contains(&EventKind::State),
            side: DedupLog::new(SideEvent::undated_about),
            tasks: TasksBuilder::default(),
            symbols: DedupLog::default(),
            functions: DedupLog::default(),
            maps: DedupLog::default(),
            user: UserMapsBuilder::default(),
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
        let (has_state, needs_tasks, needs_user_code) = (self.has_state, self.wanted.tasks, self.wanted.user_code);
        let is_wanted = |kind, record: &[u8]| match kind {
            // A sample is side band only if it carries a state of the recorder. The event id rules this out for most samples.
            RecordType::SAMPLE => has_state && recording.may_hold_state(record),
            RecordType::KSYMBOL
            | RecordType::BPF_EVENT
            | RecordType::CGROUP
            | RecordType::LOST
            | RecordType::LOST_SAMPLES
            | RecordType::THROTTLE
            | RecordType::AUXTRACE_INFO
            | RecordType::AUXTRACE => true,
            // Mappings of the kernel and its modules are always needed. Their records have the CPU mode of the kernel.
            RecordType::MMAP | RecordType::MMAP2 => {
                needs_user_code
                    || endian.u16_at(record, 4).is_some_and(|flags| flags & misc::CPUMODE_MASK == misc::KERNEL)
            }
            RecordType::COMM => needs_tasks,
            RecordType::FORK => needs_tasks || needs_user_code,
            _ => false,
        };
        let scanner = Scanner { endian, threads: self.threads, is_wanted: &is_wanted };
        let mut visit = |record: bprec_format::Result<Record<'_>>| match record {
            Ok(record) if record.kind == RecordType::SAMPLE => self.sample(&record),
            Ok(record) => self.side_band(&record),
            Err(error) => self.problem(error.to_string()),
        };
        let parts = scanner.scan(records, &mut visit, &|part| recording.finish_part(part));
        self.index.parts.extend(parts.into_iter().map(|part| (slice, part)));
    }

    fn problem(&mut self, problem: String) {
        self.index.problem(self.recording.problem_of(self.file, problem));
    }

    /// Continues with the next file. Records without a time at its start describe the system as it was at the end of the previous files.
    fn follow(&mut self, file: usize) {
        if file > self.file {
            self.files.end_file(&mut self.index.states, &mut self.index.aggregations);
            self.file = file;
            let before = self.recording.files()[..file].iter().filter_map(|file| Some(file.span?.1));
            self.listed_at_ns = before.max().unwrap_or(0).saturating_add(1);
        }
    }

    /// Adds a record of the side band.
    fn side_band(&mut self, record: &Record<'_>) {
        let events = &self.recording.events;
        let event = events.index_of(record).unwrap_or(0);
        match Payload::decode(record, &self.recording.event(event).layout) {
            Ok((Payload::LostSamples(lost), id)) => {
                let is_known = events.all().len() == 1 || id.id.is_some_and(|id| events.index_of_id(id).is_some());
                self.lost_samples(&lost, is_known.then_some(event));
            }
            Ok((payload, id)) => self.payload(record, payload, &id, event),
            Err(error) => self.problem(error.to_string()),
        }
    }

    fn payload(&mut self, record: &Record<'_>, payload: Payload<'_>, id: &SampleId, event: usize) {
        let recorded_ns = id.time_ns.unwrap_or(0);
        let time_ns = if recorded_ns == 0 { self.listed_at_ns } else { recorded_ns };
        let is_listed = recorded_ns == 0;
        let file = self.file as u32;
        let place = (id.cpu.unwrap_or(0), id.pid_tid.map_or(0, |(_, tid)| tid));
        let pid = id.pid_tid.map(|(pid, _)| pid);
        let is_kernel = record.misc & misc::CPUMODE_MASK == misc::KERNEL;
        self.index.traces.take(&payload);
        let mut side = |kind| self.side.push(SideEvent { file, time_ns, is_listed, place, kind });
        match payload {
            Payload::Ksymbol(symbol) => side(SidebandKind::Symbol {
                addr: symbol.addr,
                len_bytes: symbol.len_bytes,
                kind: symbol.kind,
                gone: symbol.is_unregister(),
                name: symbol.name.to_vec(),
            }),
            Payload::BpfEvent(it) => side(SidebandKind::Program { kind: it.kind, id: it.id, tag: it.tag, pid }),
            // The idle task (thread 0) neither changes its name nor forks. A COMM or FORK record of thread 0 is therefore about a task of another pid
            // namespace.
            Payload::Comm(comm) if comm.tid == 0 && !is_listed => {}
            Payload::Fork(task) if task.tid == 0 => {}
            Payload::Comm(comm) => self.tasks.named(time_ns, comm.tid, comm.comm),
            Payload::Fork(task) => {
                let time_ns = time_ns.max(task.time_ns);
                self.tasks.forked(time_ns, task.tid, task.ptid);
                if task.pid != task.ppid {
                    self.tasks.forked_process(ProcessFork { time_ns, pid: task.pid, parent_pid: task.ppid });
                    self.user.forked(task.pid, task.ppid, time_ns);
                }
            }
            Payload::Cgroup(cgroup) => {
                self.index.cgroups.insert(cgroup.id, String::from_utf8_lossy(cgroup.path).into_owned());
            }
            Payload::Mmap(map) if is_kernel => self.kernel_map(map.addr, map.len_bytes, map.filename),
            Payload::Mmap2(map) if is_kernel => self.kernel_map(map.addr, map.len_bytes, map.filename),
            Payload::Mmap(map) => {
                self.user.mapped(map.pid, time_ns, (map.addr, map.len_bytes, map.pgoff), map.filename, None);
            }
            Payload::Mmap2(map) => {
                let addrs = (map.addr, map.len_bytes, map.pgoff);
                self.user.mapped(map.pid, time_ns, addrs, map.filename, Some(map.file));
            }
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
                return self.problem(format!("a BPF filter dropped {} samples of an unknown event", record.lost));
            }
        };
        *samples = samples.saturating_add(record.lost);
    }

    fn kernel_map(&mut self, addr: u64, len_bytes: u64, name: &[u8]) {
        // If addresses are hidden, the kernel's mapping starts at 0 and is useless.
        if addr != 0 && self.maps.len() < MAX_SYMBOLS {
            self.maps.push((addr, addr.saturating_add(len_bytes), String::from_utf8_lossy(name).into_owned()));
        }
    }

    fn sample(&mut self, record: &Record<'_>) {
        match self.recording.state(record) {
            Some(Ok(state)) => self.state(state, record.offset),
            Some(Err(error)) => self.problem(error.to_string()),
            None => {}
        }
    }

    fn state(&mut self, state: State, offset: u64) {
        if is_snapshot(&state) {
            self.index.snapshots.push((self.slice, offset));
        }
        let states = &mut self.index.states;
        match state {
            State::RunStats(stats) if states.has_run_stats_at(stats.time_ns) => self.index.runs.add(&stats),
            State::Session(session) => {
                states.boot_times.begin(&session);
                self.files.begin_session(self.file, &session);
                // The session of a recording is that of its first file.
                if self.file == 0 || states.session.is_none() {
                    states.session = Some(session);
                }
            }
            State::BootClock(clock) => states.boot_times.changed(&clock),
            State::Program(program) => states.program(program),
            State::Missed(missed) => self.missed.push(missed),
            State::StatsOff(off) => {
                states.stats_off.get_or_insert(off);
            }
            State::Attachment(attachment) => self.attachments.push(attachment),
            State::ProgArray(array) => self.prog_arrays.push(array),
            State::ProbeMisses(misses) => states.add_probe_misses(&misses),
            State::HolderTimes(times) => states.holder_times.push(times),
            State::Released(released) => {
                states.released.insert((released.id, released.load_time_ns), released);
            }
            State::Map(map) => {
                states.maps.insert(map.id, map);
            }
            State::MapContents(part) if self.wanted.contents => {
                states.contents.entry(part.map_id).or_default().add(part);
            }
            State::Loss(loss) => states.loss = Some(loss),
            State::CpuNotSampled(cpu) => states.add_cpu_not_sampled(cpu),
            State::PodContainers(pods) => states.pods.extend(pods),
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
        let Some(event) = self.recording.events.index_of_id(aggregation.event_id) else { return };
        // A sample record of an event with samples counted in the kernel stands for several samples, and the record's weight gives their number.
        // Without weights, the totals are of no use.
        if self.recording.event(event).layout.sample_type().contains(SampleType::WEIGHT) {
            let last = self.index.aggregations.entry(event).or_insert(aggregation);
            if last.time_ns <= aggregation.time_ns {
                *last = aggregation;
            }
        }
    }

    fn finish(mut self) -> Index {
        let files = std::mem::take(&mut self.files);
        self.index.other_boot = files.other_boot(self.recording);
        let gaps = files.finish(self.recording, &mut self.index.states, &mut self.index.aggregations);
        // A file that was cut off lacks the recorder's last reading, and so the misses of probes.
        if self.recording.cut_off().is_some_and(CutOff::is_unfinished) {
            self.index.states.probe_misses.clear();
        }
        let is_one_file = self.recording.files().len() == 1;
        let infos = self.infos();
        let btf = self.btf();
        let mut index = self.index;
        // Each file of the recording repeats these states.
        if !is_one_file {
            self.missed.compact();
            self.attachments.compact();
            self.prog_arrays.compact();
        }
        index.gaps = gaps;
        index.states.missed = self.missed.into_vec();
        index.states.attachments = self.attachments.into_vec();
        index.states.prog_arrays = self.prog_arrays.into_vec();
        index.states.attachments.sort_by_key(|attachment| attachment.prog_id);
        let mut programs = Programs::join(self.side.into_vec(), &infos, &btf, &index.states);
        let mut kernel = KernelSymbols::new(self.symbols.into_vec());
        // Functions that handle tracepoints or user probes are no hooks if no program is attached to a tracepoint or user probe.
        if !index.states.attachments.iter().any(hooks::is_tracepoint) {
            kernel.ignore(Role::Event);
        }
        if !index.states.attachments.iter().any(hooks::is_user_probe) {
            kernel.ignore(Role::UserProbe);
        }
        let ranges = std::mem::take(&mut programs.ranges);
        index.hooks = Hooks::new(&kernel, &programs.list, &index.states, &programs.images, &programs.attached);
        index.code = CodeMap::new(ranges, kernel, KernelMaps::new(self.maps.into_vec()));
        index.files = Files::new(&self.functions.into_vec());
        let (user, lost) = self.user.build(&index.files);
        index.user = user;
        index.problems.extend(lost);
        index.tasks = self.tasks.build();
        if index.hooks.is_incomplete() {
            index.problems.push(
                "some hooks have more programs than the report keeps: the cost of these hooks is charged to no program"
                    .into(),
            );
        }
        let maps_of = |program: &IndexedProgram| {
            let info = program.info.and_then(|info| infos.get(info.at));
            info.and_then(ProgInfo::map_ids).into_iter().flat_map(|ids| ids.iter())
        };
        index.tail_calls = TailCalls::new(&programs.list, maps_of, &index.states);
        let start_ns = index.start_ns().or(index.runs.moments_ns().next());
        for program in &programs.list {
            // Run counts start at zero only for programs loaded after the recording's start; earlier programs may have run before.
            if let (Some(key), Some(loaded_ns)) = (program.key(), program.loaded_ns)
                && start_ns.is_some_and(|start_ns| start_ns <= loaded_ns)
            {
                index.runs.loaded(key, loaded_ns);
            }
        }
        index.runs.settle();
        index.guarded = programs.list.iter().map(|known| known.is_guarded(&index.states)).collect();
        index.programs = programs;
        index
    }

    fn infos(&mut self) -> Vec<ProgInfo<'r>> {
        let mut infos = Vec::new();
        for section in self.recording.sections_of(Feature::BPF_PROG_INFO) {
            let entries = BpfProgInfoSection::new(&section.bytes, section.offset, self.recording.endian());
            let Some(entries) = self.good(entries) else { continue };
            let mut cut = 0u64;
            let entries = entries.filter(|entry| {
                let is_whole = entry.as_ref().map_or(true, sections::is_whole);
                cut += u64::from(!is_whole);
                is_whole
            });
            infos.extend(self.keep_good(entries));
            if cut > 0 {
                let at = section.offset;
                self.problem(format!(
                    "bpf_prog_info section at offset {at:#x}: {cut} entries left out, with an info of less than {OLDEST_INFO_LEN} \
                     bytes (its size in Linux 5.0)"
                ));
            }
        }
        infos
    }

    fn btf(&mut self) -> BTreeMap<u32, Btf<'r>> {
        let mut parsed = BTreeMap::new();
        for section in self.recording.sections_of(Feature::BPF_BTF) {
            let blobs = BpfBtfSection::new(&section.bytes, section.offset, self.recording.endian());
            let Some(blobs) = self.good(blobs) else { continue };
            for (id, blob) in self.keep_good(blobs) {
                let btf = Btf::parse(blob).map_err(|error| format!("BTF {id}: {error}"));
                parsed.extend(self.good(btf).map(|btf| (id, btf)));
            }
        }
        parsed
    }

    fn keep_good<T>(&mut self, items: impl Iterator<Item = bprec_format::Result<T>>) -> Vec<T> {
        items.filter_map(|item| self.good(item)).collect()
    }

    /// Returns the item; an error is a problem of the recording.
    fn good<T>(&mut self, item: Result<T, impl Display>) -> Option<T> {
        item.inspect_err(|error| self.problem(error.to_string())).ok()
    }
}

/// Returns true for a snapshot of counters, and for a state about snapshots: their events, or the end of run statistics.
fn is_snapshot(state: &State) -> bool {
    matches!(state, State::StatsOff(_) | State::CounterEvents(_) | State::ProgramCounters(_) | State::SharedCounters(_))
}
