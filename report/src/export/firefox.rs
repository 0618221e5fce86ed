//! The Firefox Profiler's processed profile, gzipped: tasks with samples over time, and per program its load time, runs, time per run, and the
//! samples in the program and its callees.

mod lines;

use crate::model::text::printable;
use crate::model::{Count, CounterRow, CounterSource, FrameKind, Profile, Program, StackSample, TimeBound, Unit};
use flate2::Compression;
use flate2::write::GzEncoder;
use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CategoryPairHandle, CpuDelta, Frame, FrameFlags, FrameInfo, GraphColor,
    MarkerFieldFlags, MarkerFieldFormat, MarkerGraphType, MarkerLocations, MarkerTiming, Profile as Document,
    ReferenceTimestamp, SamplingInterval, StaticSchemaMarker, StaticSchemaMarkerField, StaticSchemaMarkerGraph,
    StringHandle, ThreadHandle, Timestamp,
};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use std::io::{self, Write};
use std::marker::PhantomData;
use std::time::Duration;

/// Limit on the tracks of programs that are visible at first: those of the costliest programs. The viewer lists the other tracks.
const VISIBLE_PROGRAMS: usize = 12;
/// Limit on the tracks of tasks that are visible at first: those of the tasks with the highest BPF cost.
const VISIBLE_TASKS: usize = 8;

/// Limit on programs with a subcategory of their own: the format numbers subcategories with 16 bits. Other programs have only the category BPF.
const MAX_SUBCATEGORIES: usize = 1 << 15;

impl Profile {
    /// Writes the recording as the Firefox Profiler's processed profile, gzipped.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write_firefox(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut packed = GzEncoder::new(out, Compression::default());
        lines::write(&Writer::new(self).document(), &mut packed)?;
        packed.finish()?;
        Ok(())
    }
}

struct Writer<'p> {
    profile: &'p Profile,
    document: Document,
    bpf: CategoryHandle,
    start_ns: u64,
    /// Frames for the viewer, in the order of the stacks' frames; `None` for the frame of a task, because the viewer shows tasks as threads.
    frames: Vec<Option<FrameInfo>>,
}

/// Samples in programs, by the program's label.
type InPrograms<'p> = FxHashMap<String, Vec<InProgram<'p>>>;

/// A sample in a program.
struct InProgram<'p> {
    sample: &'p StackSample,
    /// Count of the stack's outermost frames that precede the first frame of the program.
    outside: usize,
}

impl<'p> Writer<'p> {
    fn new(profile: &'p Profile) -> Writer<'p> {
        let recording = &profile.report.recording;
        let unix_ns = Duration::from_nanos(recording.start_unix_ns.unwrap_or(0));
        let interval = SamplingInterval::from_nanos(interval_ns(profile));
        let started_at = ReferenceTimestamp::from_duration_since_unix_epoch(unix_ns);
        let product = match &recording.hostname {
            Some(hostname) => format!("bprec on {}", printable(hostname)),
            None => "bprec".to_owned(),
        };
        let mut document = Document::new(&product, started_at, interval);
        document.set_symbolicated(true);
        recording.os_release.iter().for_each(|release| document.set_os_name(&format!("Linux {}", printable(release))));
        let bpf = document.add_category("BPF", CategoryColor::Green);
        Writer { profile, document, bpf, start_ns: recording.start_ns, frames: Vec::new() }
    }

    fn document(mut self) -> Document {
        self.frames = self.frames();
        let tasks = self.threads();
        self.programs();
        tasks.into_iter().for_each(|thread| self.document.add_initial_visible_thread(thread));
        self.document
    }

    /// Adds the tasks with their samples. Returns the tasks with the highest BPF cost.
    fn threads(&mut self) -> Vec<ThreadHandle> {
        let samples = &self.profile.samples;
        let is_bpf = |at: &u32| {
            let kind = &samples.stacks.frames[*at as usize].kind;
            matches!(kind, FrameKind::Program { .. } | FrameKind::Image)
        };
        let with_bpf: Vec<bool> = samples.stacks.stacks.iter().map(|stack| stack.frames.iter().any(is_bpf)).collect();
        let mut costs = Vec::new();
        let mut processes = FxHashMap::default();
        for thread in &samples.threads {
            let name = match &thread.name {
                Some(name) => printable(name).into_owned(),
                None => format!("[thread {}]", thread.tid),
            };
            let started_at = self.since_start(thread.samples.first().map_or(0, |sample| sample.time_ns));
            let process = *processes.entry(thread.pid).or_insert_with(|| {
                // A process is named after its main thread. If the main thread has no samples, the process gets the name of its first thread with
                // samples.
                let mut threads = samples.threads.iter().filter(|other| other.pid == thread.pid);
                let main = threads.find(|other| other.tid == thread.pid).and_then(|main| main.name.as_deref());
                let name = main.map_or_else(|| name.clone(), |main| printable(main).into_owned());
                self.document.add_process(&name, thread.pid, Timestamp::from_nanos_since_reference(0))
            });
            let handle = self.document.add_thread(process, thread.tid, started_at, thread.tid == thread.pid);
            self.document.set_thread_name(handle, &name);
            // The thread itself represents the task, so the task frame is skipped. Samples of the idle task do not count as CPU use.
            self.samples(handle, thread.samples.iter().map(|sample| (sample, 0)), thread.pid != 0);
            let in_bpf = thread.samples.iter().filter(|sample| with_bpf[sample.stack as usize]);
            costs.push((Reverse(in_bpf.map(|sample| sample.count).sum::<Count>().weight), costs.len(), handle));
        }
        costs.retain(|(cost, ..)| cost.0 > 0);
        costs.sort_unstable_by_key(|(cost, nth, _)| (*cost, *nth));
        costs.into_iter().take(VISIBLE_TASKS).map(|(.., thread)| thread).collect()
    }

    /// Adds samples, each without its `outside` outermost frames.
    fn samples<'s>(
        &mut self,
        thread: ThreadHandle,
        samples: impl Iterator<Item = (&'s StackSample, usize)>,
        takes_cpu: bool,
    ) {
        let stacks = &self.profile.samples.stacks;
        let mut interned = FxHashMap::default();
        for (sample, outside) in samples {
            let stack = *interned.entry(sample.stack).or_insert_with(|| {
                let positions = stacks.stacks[sample.stack as usize].frames.iter().skip(outside);
                let frames = positions.filter_map(|at| self.frames[*at as usize].clone());
                self.document.intern_stack_frames(thread, frames)
            });
            let cpu_time = match stacks.unit {
                Unit::Nanoseconds if takes_cpu => CpuDelta::from_nanos(sample.count.weight),
                Unit::Nanoseconds | Unit::Events => CpuDelta::ZERO,
            };
            let weight = i32::try_from(sample.count.samples).unwrap_or(i32::MAX);
            self.document.add_sample(thread, self.since_start(sample.time_ns), stack, cpu_time, weight);
        }
    }

    /// Samples of all tasks by the programs in their call chains, in the order of time.
    fn in_programs(&self) -> InPrograms<'p> {
        let samples = &self.profile.samples;
        let labels: Vec<Option<String>> = samples.stacks.frames.iter().map(|frame| frame.program_label()).collect();
        let of_stack = |stack: u32| {
            let frames = samples.stacks.stacks[stack as usize].frames.iter().enumerate();
            let mut programs: Vec<(&String, usize)> = Vec::new();
            for (at, frame) in frames {
                let label = labels[*frame as usize].as_ref();
                let label = label.filter(|label| programs.iter().all(|(other, _)| other != label));
                programs.extend(label.map(|label| (label, at)));
            }
            programs
        };
        let mut programs = InPrograms::default();
        for sample in samples.threads.iter().flat_map(|thread| &thread.samples) {
            for (label, outside) in of_stack(sample.stack) {
                let of_program = match programs.get_mut(label) {
                    Some(of_program) => of_program,
                    None => programs.entry(label.clone()).or_default(),
                };
                of_program.push(InProgram { sample, outside });
            }
        }
        programs.values_mut().for_each(|samples| samples.sort_by_key(|it| it.sample.time_ns));
        programs
    }

    /// Converts the stacks' frames, in their order; `None` for frames of tasks.
    fn frames(&mut self) -> Vec<Option<FrameInfo>> {
        let user = CategoryPairHandle::from(self.document.add_category("User", CategoryColor::Yellow));
        let kernel = CategoryPairHandle::from(self.document.add_category("Kernel", CategoryColor::Orange));
        let entry = self.document.add_subcategory(self.bpf, "entry");
        let mut programs = FxHashMap::default();
        let frames = self.profile.samples.stacks.frames.iter().map(|frame| {
            let category_pair = match &frame.kind {
                FrameKind::Task => return None,
                FrameKind::User { .. } => user,
                FrameKind::Kernel => kernel,
                FrameKind::Image => entry,
                FrameKind::Program { .. } => {
                    let label = frame.program_label().unwrap_or_default();
                    let known = programs.len();
                    *programs.entry(label).or_insert_with_key(|label| match known {
                        MAX_SUBCATEGORIES.. => self.bpf.into(),
                        _ => self.document.add_subcategory(self.bpf, &printable(label)),
                    })
                }
            };
            let label = frame.label();
            let name = lines::named(&printable(&label), frame.source.as_ref());
            let name = self.document.intern_string(&name);
            Some(FrameInfo { frame: Frame::Label(name), category_pair, flags: FrameFlags::empty() })
        });
        frames.collect()
    }

    /// Adds the lifetimes of all programs that ran or were sampled, and a thread per program with its samples and its runs between snapshots. The
    /// viewer opens on the costliest program.
    fn programs(&mut self) {
        let report = &self.profile.report;
        let rows = report.events.iter().flat_map(|event| &event.rows);
        let sampled: FxHashSet<usize> = rows.map(|row| row.program).collect();
        let mut runs: FxHashMap<(u64, Option<u64>), Vec<&CounterRow>> = FxHashMap::default();
        for row in &self.profile.counters.rows {
            if row.target.kind == "program" && row.target.function == 0 && row.target.cpu.is_none() {
                runs.entry((row.target.id, row.target.load_time_ns)).or_default().push(row);
            }
        }
        let start = Timestamp::from_nanos_since_reference(0);
        let mut in_programs = self.in_programs();
        let mut tracks = Vec::new();
        let mut all = None;
        for (at, program) in report.programs.iter().enumerate() {
            let key = program.id.map(|id| (u64::from(id), program.load_time_ns));
            let rows = key.and_then(|key| runs.get(&key)).map_or(&[][..], Vec::as_slice);
            if rows.is_empty() && !sampled.contains(&at) {
                continue;
            }
            let (process, lives) = *all.get_or_insert_with(|| {
                let process = self.document.add_process("BPF programs", 0, start);
                (process, self.document.add_thread(process, 0, start, true))
            });
            let samples = in_programs.remove(&program.label_with_id()).unwrap_or_default();
            let label = printable(&program.label_with_id()).into_owned();
            self.life(lives, program, &label);
            if !rows.is_empty() || !samples.is_empty() {
                let thread = self.document.add_thread(process, program.id.unwrap_or(0), start, false);
                self.document.set_thread_name(thread, &label);
                self.runs(thread, rows, &label);
                self.samples(thread, samples.iter().map(|it| (it.sample, it.outside)), true);
                let cost = samples.iter().map(|it| it.sample.count).sum::<Count>().weight;
                tracks.push((Reverse(cost), tracks.len(), thread));
            }
        }
        let Some((_, lives)) = all else { return };
        self.document.set_thread_name(lives, "BPF programs");
        self.document.add_initial_visible_thread(lives);
        tracks.sort_unstable_by_key(|(cost, nth, _)| (*cost, *nth));
        let tracks = tracks.into_iter().take(VISIBLE_PROGRAMS).map(|(.., thread)| thread);
        for (nth, thread) in tracks.enumerate() {
            self.document.add_initial_visible_thread(thread);
            if nth == 0 {
                self.document.add_initial_selected_thread(thread);
            }
        }
    }

    fn life(&mut self, thread: ThreadHandle, program: &Program, label: &str) {
        let at = |bound: TimeBound| Timestamp::from_nanos_since_reference(u64::try_from(bound.before_ns).unwrap_or(0));
        let whole_ns =
            self.profile.report.recording.elapsed_ns.and_then(|ns| i64::try_from(ns).ok()).unwrap_or(i64::MAX);
        let loaded = program.loaded.map_or(TimeBound::at(0), |loaded| loaded);
        let unloaded = program.unloaded.unwrap_or(TimeBound::at(whole_ns));
        let timing = MarkerTiming::Interval(at(loaded), at(unloaded));
        let owners: Vec<String> = program.owners.iter().map(|owner| format!("{}/{}", owner.comm, owner.pid)).collect();
        let fields = [
            program.id.map(|id| id.to_string()).unwrap_or_default(),
            program.prog_type.map(|it| it.to_string()).unwrap_or_default(),
            program.tag.map(|tag| tag.to_string()).unwrap_or_default(),
            program.attached().join(", "),
            owners.join(", "),
        ];
        let marker = Life {
            name: self.document.intern_string(label),
            category: self.bpf,
            fields: fields.map(|field| self.document.intern_string(&printable(&field))),
        };
        self.document.add_marker(thread, timing, marker);
    }

    fn runs(&mut self, thread: ThreadHandle, rows: &[&CounterRow], label: &str) {
        // The runs come from run statistics if the program has any, otherwise from exact counts. The two sources count the same runs, so they are not
        // added.
        let is_exact = !rows.iter().any(|row| row.source == CounterSource::Stats);
        let source = if is_exact { CounterSource::Exact } else { CounterSource::Stats };
        let [rate, time] = ["runs/s", "time/run"].map(|what| self.document.intern_string(&format!("{label} {what}")));
        for row in rows.iter().filter(|row| row.source == source) {
            let Some(counts) = row.counts.value() else { continue };
            let [from_ns, to_ns] = [row.from_ns, row.to_ns].map(|at_ns| u64::try_from(at_ns).unwrap_or(0));
            let Some(length_ns) = to_ns.checked_sub(from_ns).filter(|length_ns| *length_ns > 0) else { continue };
            let within = (from_ns, to_ns);
            let runs_per_s = counts.values.runs as f64 * 1e9 / length_ns as f64;
            self.of_runs::<RunsPerSecond>(thread, within, rate, runs_per_s);
            if let Some(time_per_run) = counts.values.time.value() {
                self.of_runs::<TimePerRun>(thread, within, time, time_per_run.value / 1e6);
            }
        }
    }

    fn of_runs<N: RunNumber>(&mut self, thread: ThreadHandle, within: (u64, u64), name: StringHandle, value: f64) {
        let (from, to) = within;
        let [from, to] = [from, to].map(Timestamp::from_nanos_since_reference);
        let marker = OfRuns::<N> { name, category: self.bpf, value, number: PhantomData };
        self.document.add_marker(thread, MarkerTiming::Interval(from, to), marker);
    }

    fn since_start(&self, time_ns: u64) -> Timestamp {
        Timestamp::from_nanos_since_reference(time_ns.saturating_sub(self.start_ns))
    }
}

/// Sampling interval for the viewer, ns: for a clock, the mean weight of a sample; for other events, 1 ms.
fn interval_ns(profile: &Profile) -> u64 {
    let stacks = &profile.samples.stacks;
    match stacks.unit {
        Unit::Nanoseconds => stacks.mean_weight().max(1),
        Unit::Events => 1_000_000,
    }
}

/// Lifetime of a program, with its description.
struct Life {
    name: StringHandle,
    category: CategoryHandle,
    fields: [StringHandle; 5],
}

const fn field(key: &'static str, label: &'static str, format: MarkerFieldFormat) -> StaticSchemaMarkerField {
    StaticSchemaMarkerField { key, label, format, flags: MarkerFieldFlags::SEARCHABLE }
}

impl StaticSchemaMarker for Life {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = "BPF program";
    const CHART_LABEL: Option<&'static str> = Some("{marker.name}");
    const TABLE_LABEL: Option<&'static str> =
        Some("{marker.name} {marker.data.progType} {marker.data.tag} {marker.data.attached}");
    const FIELDS: &'static [StaticSchemaMarkerField] = &[
        field("id", "Id", MarkerFieldFormat::String),
        field("progType", "Type", MarkerFieldFormat::String),
        field("tag", "Tag", MarkerFieldFormat::String),
        field("attached", "Attached to", MarkerFieldFormat::String),
        field("owner", "Owner", MarkerFieldFormat::String),
    ];

    fn name(&self, _: &mut Document) -> StringHandle {
        self.name
    }

    fn category(&self, _: &mut Document) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, field_index: u32) -> StringHandle {
        self.fields[field_index as usize]
    }

    fn number_field_value(&self, _: u32) -> f64 {
        f64::NAN
    }
}

/// Runs of a program between two snapshots, as bars.
struct OfRuns<N> {
    name: StringHandle,
    category: CategoryHandle,
    value: f64,
    number: PhantomData<N>,
}

/// Kind of number that bars show, with its name and unit in the viewer.
trait RunNumber: 'static {
    const TYPE_NAME: &'static str;
    const TABLE_LABEL: &'static str;
    const FIELDS: &'static [StaticSchemaMarkerField];
    const GRAPHS: &'static [StaticSchemaMarkerGraph];
}

enum RunsPerSecond {}

impl RunNumber for RunsPerSecond {
    const TYPE_NAME: &'static str = "BPF runs per second";
    const TABLE_LABEL: &'static str = "{marker.name}: {marker.data.runsPerSecond}";
    const FIELDS: &'static [StaticSchemaMarkerField] =
        &[field("runsPerSecond", "Runs per second", MarkerFieldFormat::Decimal)];
    const GRAPHS: &'static [StaticSchemaMarkerGraph] = &[bars("runsPerSecond", GraphColor::Green)];
}

/// Time per run in ms, the time unit of the format.
enum TimePerRun {}

impl RunNumber for TimePerRun {
    const TYPE_NAME: &'static str = "BPF time per run";
    const TABLE_LABEL: &'static str = "{marker.name}: {marker.data.timePerRun}";
    const FIELDS: &'static [StaticSchemaMarkerField] =
        &[field("timePerRun", "Time per run", MarkerFieldFormat::Duration)];
    const GRAPHS: &'static [StaticSchemaMarkerGraph] = &[bars("timePerRun", GraphColor::Orange)];
}

const fn bars(key: &'static str, color: GraphColor) -> StaticSchemaMarkerGraph {
    StaticSchemaMarkerGraph { key, graph_type: MarkerGraphType::Bar, color: Some(color) }
}

impl<N: RunNumber> StaticSchemaMarker for OfRuns<N> {
    const UNIQUE_MARKER_TYPE_NAME: &'static str = N::TYPE_NAME;
    const LOCATIONS: MarkerLocations = MarkerLocations::MARKER_TABLE;
    const TABLE_LABEL: Option<&'static str> = Some(N::TABLE_LABEL);
    const FIELDS: &'static [StaticSchemaMarkerField] = N::FIELDS;
    const GRAPHS: &'static [StaticSchemaMarkerGraph] = N::GRAPHS;

    fn name(&self, _: &mut Document) -> StringHandle {
        self.name
    }

    fn category(&self, _: &mut Document) -> CategoryHandle {
        self.category
    }

    fn string_field_value(&self, _: u32) -> StringHandle {
        self.name
    }

    fn number_field_value(&self, _: u32) -> f64 {
        self.value
    }
}
