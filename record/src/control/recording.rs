//! One recording, from its first descriptor to its last byte.
//!
//! The BPF objects of the recorder are loaded first. Then events are opened, and draining begins before anything is
//! enumerated, synthesized or attached. The load watcher starts before the live programs are enumerated, so no program
//! is missed in between. Records that describe the machine as it was before the recording are sent before the first
//! round of records. The recorder closes its descriptors of programs after the last ring was read, so the unloads that
//! follow are not in the recording.

mod ending;
mod finisher;
mod switching;

use std::collections::{HashMap, HashSet};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bprec_bpf::{BtfCache, Kallsyms, Refs};
use bprec_format::bprec::state::{Session, State};
use bprec_format::feature::Feature;
use bprec_format::{Endian, Events, SampleLayout};

use super::command::Workload;
use super::liveness::Liveness;
use super::rotation::Rotation;
use super::run::{Ends, Purpose, ReadingSchedule, Turn};
use super::sources::Sources;
use crate::drain::{Drain, Rings};
use crate::events::syntax::{self, EventSpec};
use crate::events::{Abilities, CpuThreadTargets, OpenEvents, Sampler, machine, refused, sampling};
use crate::options::caller;
use crate::output::complete::outside_bpf;
use crate::output::sections::{self, Section};
use crate::output::{self, Origin, OutputThread, Sink, StateWriter, Summary, Syncer, Tally, grouped};
use crate::sources::Outbox;
use crate::sources::aggregate::Aggregates;
use crate::sources::boot_clock::BootTimeOffset;
use crate::sources::bpf_sampler::BpfSampler;
use crate::sources::exact::{self, ExactCounters};
use crate::sources::hotplug::Hotplug;
use crate::sources::inventory::{self, Holding, Inventory, LoadWatcher, Programs};
use crate::sources::map_dumps::MapDumps;
use crate::sources::pods::PodNames;
use crate::sources::sampling::Sampling;
use crate::sources::shared::SharedCounters;
use crate::sources::statistics::{RunStatistics, Statistics};
use crate::sources::user_objects::UserObjects;
use crate::sys::{self, Inherited, Signals, Waker};
use crate::{Counters, Error, Level, Options, Output, Result, Target, synth};
use finisher::{Completer, Finisher};

/// The shortest time between two snapshots. With shorter times, snapshots would fill the recording.
const INTERVAL_MIN: Duration = Duration::from_millis(10);
/// Size from which a batch of task records is sent.
const TASKS_BATCH_BYTES: usize = 256 << 10;

/// A recording in progress.
struct Recording<'a> {
    options: &'a Options,
    abilities: Abilities,
    targets: CpuThreadTargets,
    /// Sources of the data. Declared before the events, so that the sources are dropped first.
    sources: Sources,
    /// Thread that reads the rings. Declared before the output, so that the thread ends before the output.
    drain: Drain,
    output: OutputThread,
    /// Readable when the drain, the output or the finisher has ended by itself, which is an error.
    ended: Waker,
    /// Syncs the output to the disk from time to time, if the options request syncs.
    syncer: Option<Syncer>,
    /// File names before the recording, to be restored if sampling cannot begin. `None` for a stream, and once sampling has
    /// begun.
    origin: Option<Origin>,
    opened: Arc<OpenEvents>,
    /// Thread that reads the kernel symbols, if they are needed before the end. Reading is slow, and no symbol is needed
    /// before the first records are written.
    reading_kallsyms: Option<JoinHandle<bprec_bpf::Result<Kallsyms>>>,
    /// Kernel addresses for which the file already has a function name.
    named: HashSet<u64>,
    /// Feature sections that are already complete.
    sections: Vec<Section>,
    interval: Duration,
    /// Time at which sampling is switched on, if the options delay sampling.
    enable_at: Option<Instant>,
    /// True once sampling has begun. From then on an error keeps the output.
    has_begun: bool,
    /// Monotonic time at which sampling was switched off, in nanoseconds.
    end_ns: u64,
    /// Rotation over several files, if the options request several files.
    rotation: Option<Rotation>,
    /// Completes closed files; `None` once the finisher has ended.
    finisher: Option<Finisher>,
    /// CPU time that run statistics had cost by the end of the previous file.
    statistics_before: Duration,
    progress: ProgressSchedule,
}

/// Makes a recording as `options` request.
pub(crate) fn record(options: &Options) -> Result<Summary> {
    caller::check(&[
        ("--dump-map", !options.dump_maps.is_empty()),
        ("--bpf-object", !options.objects.is_empty()),
        ("--bpf-attr-map", options.shared.as_ref().is_some_and(|shared| shared.attr_map.is_some())),
    ])?;
    caller::respect_processes()?;
    let open_files = sys::raise_open_files();
    if options.switch_output.is_some() {
        sys::return_large_blocks();
    }
    sys::survive_file_size_limit();
    let signals = Signals::block(options.switch_output.is_some_and(|how| how.on_signal))?;
    let specs = sampling::specs(options)?;
    let tracing_data = syntax::tracing_data(&specs)?;
    let abilities = Abilities::probe().map_err(|error| refused("dummy", 0, -1, error))?;
    for limit in abilities.limits() {
        (options.notify)(Level::Notice, limit.cost());
    }
    // The BPF objects are loaded before any event is opened: libbpf loads programs of its own to test kernel features,
    // and they must not appear in the recording. An object that cannot be loaded ends the recording here, before the
    // command is run.
    let loaded = Loaded {
        user_objects: UserObjects::load(options)?,
        bpf_sampler: BpfSampler::load(options)?,
        refs: Refs::load()
            .inspect_err(|error| {
                (options.notify)(
                    Level::Detail,
                    &format!("bprec cannot see when other processes close their descriptors of BPF programs: {error}"),
                )
            })
            .ok(),
    };
    let inherited = Inherited { open_files, ignores_children: signals.ignores_children() };
    let stdout_is_taken = options.output == Output::Stdout;
    let mut workload =
        options.command.as_deref().map(|command| Workload::hold(command, stdout_is_taken, inherited)).transpose()?;
    let command = workload.as_ref().map(Workload::pid);
    let mut recording = Recording::open(options, abilities, specs, loaded, command)?;
    let outcome = recording
        .describe(tracing_data)
        .and_then(|()| recording.start(workload.as_mut()))
        .and_then(|()| recording.run(workload.as_mut(), &signals));
    let status = workload.as_mut().and_then(Workload::ended);
    drop(workload);
    recording.finish(outcome, status)
}

/// BPF objects that are loaded before any event is opened.
struct Loaded {
    user_objects: UserObjects,
    bpf_sampler: Option<BpfSampler>,
    refs: Option<Refs>,
}

impl<'a> Recording<'a> {
    /// Opens the events, begins to drain, and sets up the sources.
    fn open(
        options: &'a Options,
        abilities: Abilities,
        specs: Vec<EventSpec>,
        loaded: Loaded,
        command: Option<i32>,
    ) -> Result<Recording<'a>> {
        let Loaded { mut user_objects, mut bpf_sampler, refs } = loaded;
        let online = machine::online_cpus();
        let exact = match &options.counters {
            Counters::Exact(asked) => match exact::open_events(asked, options.notify, &online) {
                // A wrong event list ends the recording; counters that the machine refuses do not.
                Err(error @ Error::Event { .. }) => return Err(error),
                counting => Some((asked.clone(), counting)),
            },
            Counters::Stats | Counters::Off => None,
        };
        let targets = CpuThreadTargets::of(options, &online, command)?;
        let mut samplers: Vec<Sampler> =
            specs.into_iter().map(|spec| Sampler::new(spec, options, abilities, targets.binding)).collect();
        let interval = options.interval.max(INTERVAL_MIN);
        let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
        // The recorder's own programs are loaded before the load watcher starts, so that they do not appear as loads in the recording.
        let has_statistics = options.counters != Counters::Off;
        let statistics = match has_statistics {
            true => Statistics::asked(options.budget.statistics_ns(exact.is_some())),
            false => Statistics::default(),
        };
        let mut aggregates =
            options.aggregate.map(|how| Aggregates::load(&samplers, options, how, interval_ns)).transpose()?;
        let boot_time = BootTimeOffset::read();
        let mut opened = OpenEvents::open(options, &mut samplers, &targets)?;
        user_objects.open(&mut opened, options, abilities, &samplers, &targets)?;
        opened.open_side_band(options, abilities, &targets, &online)?;
        if let Some(bpf_sampler) = &mut bpf_sampler {
            bpf_sampler.attach(options, &samplers, &targets, &opened)?;
        }
        let rings = Rings::map(&opened, options)?;
        let code = rings.code().cloned();
        let opened = Arc::new(opened);
        let map_dumps = MapDumps::new(options, user_objects.map_ids()?);
        let rotation = Rotation::new(options)?;
        let waker = Waker::new()?;
        let Started { mut out, drain, output, ended, origin, syncer, finisher } =
            start_draining(options, &opened, rings, rotation.as_ref())?;
        // From here on the rings are drained: programs that are loaded and tasks that start during the steps below are
        // in the recording.
        let btfs = Arc::new(BtfCache::new());
        let watcher = code.and_then(|code| {
            let queue = Some(output.queue().clone());
            LoadWatcher::start(code, queue, Arc::clone(&btfs), Holding::with(refs.as_ref()), waker.clone())
                .inspect_err(|error| {
                    let text = format!("BPF programs loaded while recording are not captured: {error}");
                    (options.notify)(Level::Warning, &text);
                })
                .ok()
        });

        out.session = Session {
            cpus_online: targets.cpus.len() as u32,
            target: options.target.in_words(options.command.as_deref()),
            event: samplers.first().map(|sampler| sampler.spec.name.clone()).unwrap_or_default(),
            event_note: event_note(options, samplers.first()),
            counters: "off".to_owned(),
            interval_ns,
            recorder_pid: Some(std::process::id()),
            machine_id: bprec_host::machine_id().unwrap_or_default(),
            boot_id: bprec_host::boot_id().unwrap_or_default(),
            ..Session::default()
        };
        let mut programs = Programs::new(btfs, refs, user_objects.attachments().to_vec());
        let inventory = Inventory::start(watcher, inventory::Purpose::Recording, &mut programs, options.notify)?;
        // The kernel takes tens of milliseconds to print its symbols. They are needed now only for images, which are in no other list. Names of
        // functions are needed when a file ends.
        let needs_kallsyms = options.early_symbols || rotation.is_some() || programs.may_have_images();
        let reading_kallsyms =
            needs_kallsyms.then(|| sys::spawn("bprec-kallsyms", Kallsyms::read)).and_then(|spawned| {
                let warn = |error: &Error| {
                    (options.notify)(
                        Level::Warning,
                        &format!("kernel functions have no names in this recording: {error}"),
                    );
                };
                spawned.inspect_err(warn).ok()
            });
        let exact =
            exact.map(|(asked, counting)| ExactCounters::load(asked, counting, Some(Level::Warning), options.notify));
        let mut sources = Sources::new(programs, statistics, out, waker.clone(), options.notify);
        // Sources start in this order and stop in the reverse order: a source that starts before sampling is read after
        // sampling has ended.
        sources.add(boot_time);
        sources.add(PodNames::default());
        sources.add(map_dumps);
        sources.add(Hotplug::watch(options, &targets, &online, Arc::clone(&opened), drain.requests().clone()));
        sources.add(inventory);
        // The source is added after the inventory, so that it sees which programs were released.
        if let Some(mut aggregates) = aggregates.take() {
            aggregates.set_events(Arc::clone(&opened));
            sources.add(aggregates);
        }
        sources.add(user_objects);
        exact.into_iter().for_each(|exact| sources.add(exact));
        // The source is added after the sources that are slow to attach, so that its first counts are from the start of sampling.
        if has_statistics {
            sources.add(RunStatistics::new(interval, options.taken.clone(), waker));
        }
        if let Some(asked) = &options.shared {
            sources.add(SharedCounters::of_recording(options, asked, command.map(i32::cast_unsigned)));
        }
        sources.add(Sampling::new(Arc::clone(&opened), abilities.lost));
        bpf_sampler.into_iter().for_each(|bpf_sampler| sources.add(bpf_sampler));
        Ok(Recording {
            options,
            abilities,
            targets,
            sources,
            drain,
            output,
            ended,
            syncer,
            origin,
            opened,
            reading_kallsyms,
            named: HashSet::new(),
            sections: Vec::new(),
            interval,
            enable_at: None,
            has_begun: false,
            end_ns: 0,
            rotation,
            finisher: Some(finisher),
            statistics_before: Duration::ZERO,
            progress: ProgressSchedule::new(Instant::now()),
        })
    }

    /// Sends the state of the machine before the recording, except BPF programs.
    fn describe(&mut self, tracing_data: Option<Vec<u8>>) -> Result<()> {
        self.sections = output::machine::features(&self.options.argv);
        self.sections.push(sections::event_desc(&self.opened.events));
        self.sections.extend(sections::clock());
        if bprec_host::is_initial_pid_namespace() == Some(false) {
            let text = "bprec does not run in the initial pid namespace: the recording shows tasks outside of bprec's \
                        namespace as pid 0, named [unknown]";
            (self.options.notify)(Level::Warning, text);
        }
        self.send_machine(tracing_data.as_deref())?;
        self.sections.extend(tracing_data.map(|payload| (Feature::TRACING_DATA.0, payload)));
        self.send_tasks(HashMap::new())?;
        let read = self.reading_kallsyms.take().and_then(|reading| reading.join().ok()?.ok());
        let programs = &mut self.sources.programs;
        programs.kallsyms = read.map(Arc::new);
        let mut images = Vec::new();
        if let Some(kallsyms) = &programs.kallsyms {
            images = kallsyms.bpf_images();
            synth::measure_images(&mut images, &kallsyms.bpf_functions());
        }
        programs.add_images(images);
        self.send_images()
    }

    /// Sends the data of the whole machine: the mapping records of the kernel, and the feature sections that are complete.
    fn send_machine(&mut self, tracing_data: Option<&[u8]>) -> Result<()> {
        let mut records = Vec::new();
        if let Some(reason) = synth::kernel(&self.layout(), &mut records) {
            (self.options.notify)(Level::Warning, &format!("kernel functions may have no names: {reason}"));
        }
        if bprec_host::is_initial_pid_namespace() == Some(false) {
            synth::unknown_tasks(&self.layout(), &mut records);
        }
        let out = &mut self.sources.out;
        out.records(records)?;
        out.features(&self.sections)?;
        out.describe_events(&self.opened.events, tracing_data)
    }

    /// Sends the current cgroups and tasks. `gone` has the earlier records of tasks, by pid. If a task has
    /// ended since, its earlier records are sent.
    fn send_tasks(&mut self, mut gone: HashMap<u32, Vec<u8>>) -> Result<()> {
        let processes = self.processes();
        let (layout, out) = (self.layout(), &mut self.sources.out);
        if self.abilities.cgroup {
            let mut records = Vec::new();
            synth::cgroups(&layout, &mut records);
            out.records(records)?;
        }
        let mut batch = Vec::new();
        synth::each_process(&layout, processes.as_deref(), |pid, records| {
            // A zombie (our own command may be one) still has a name but no mappings, so its earlier records from
            // `gone` are sent.
            let is_zombie = !synth::has_mappings(records) && gone.get(&pid).is_some_and(|it| synth::has_mappings(it));
            if !is_zombie {
                gone.remove(&pid);
                batch.extend_from_slice(records);
            }
            if batch.len() >= TASKS_BATCH_BYTES { out.records(std::mem::take(&mut batch)) } else { Ok(()) }
        })?;
        batch.extend(gone.into_values().flatten());
        out.records(batch)
    }

    /// Sends the addresses and names of BPF trampolines, dispatchers and stubs, because no program's info has them.
    fn send_images(&mut self) -> Result<()> {
        let mut records = Vec::new();
        synth::images(&self.layout(), self.sources.programs.images(), &mut records);
        self.sources.out.records(records)
    }

    /// Sends the names of kernel functions that samples have hit since the last call.
    fn send_symbols(&mut self) -> Result<()> {
        let Some(kallsyms) = &self.sources.programs.kallsyms else { return Ok(()) };
        let tally = self.output.tally();
        if tally.addresses().len() == self.named.len() {
            return Ok(());
        }
        let new: Vec<u64> = tally.addresses().iter().copied().filter(|address| self.named.insert(*address)).collect();
        drop(tally);
        self.sources.out.state(outside_bpf(kallsyms.functions_at(&new)))
    }

    /// Layout of the sample id trailer, which all records have.
    fn layout(&self) -> SampleLayout {
        SampleLayout::new(&self.opened.events[0].file.attr, Endian::NATIVE)
    }

    /// Switches sampling on and releases the command.
    fn start(&mut self, workload: Option<&mut Workload>) -> Result<()> {
        self.sources.begin_file(true)?;
        self.sources.go_on_without_failed();
        let session = &mut self.sources.out.session;
        session.start_ns = sys::monotonic_ns();
        session.realtime_ns = sys::realtime_unix_ns();
        session.to_boottime_ns = sys::to_boottime_ns();
        let first = State::Session(session.clone());
        self.enable_at = self.options.delay.map(|delay| Instant::now() + delay);
        // The events of a command are enabled by its exec.
        if self.enable_at.is_none() && self.options.target != Target::Command {
            self.sources.switch(true)?;
        }
        if let Some(workload) = workload {
            workload.start()?;
        }
        self.has_begun = true;
        self.origin.take().iter().for_each(Origin::settle);
        self.begin_file(first)
    }

    /// Writes the first state of a file, then the states that waited for the first state.
    fn begin_file(&mut self, first: State) -> Result<()> {
        let has_rounds = self.has_rounds();
        self.sources.out.begin(first, has_rounds)?;
        if let Some(rotation) = &mut self.rotation {
            rotation.begin(Instant::now(), self.sources.out.sent_bytes());
        }
        Ok(())
    }

    /// Returns true if each pass over the rings ends a round (FINISHED_ROUND). False for aggregated samples: they may
    /// be as old as their interval, so their source ends the rounds. False for overwritten rings: their samples may be
    /// as old as the file, so no round ends before the samples are written.
    fn has_rounds(&self) -> bool {
        self.options.aggregate.is_none() && !self.options.overwrite
    }

    /// Runs the sources until the recording ends.
    fn run(&mut self, workload: Option<&mut Workload>, signals: &Signals) -> Result<()> {
        let (options, ended) = (self.options, self.ended.clone());
        let liveness = match &options.target {
            Target::Processes(ids) | Target::Threads(ids) if workload.is_none() => Some(Liveness::watch(ids)),
            _ => None,
        };
        let ends = Ends {
            signals,
            workload,
            passes_signals: false,
            liveness,
            duration: options.duration,
            stop: options.stop.as_deref().map(AsFd::as_fd),
            failed: Some(&ended),
        };
        let readings = ReadingSchedule { every: self.interval, interval: None };
        ends.run(self, readings)
    }
}

impl Purpose for Recording<'_> {
    type Error = Error;

    fn sources(&mut self) -> &mut Sources {
        &mut self.sources
    }

    fn due_at(&self) -> Option<Instant> {
        let switch_at = self.rotation.as_ref().and_then(Rotation::switch_at);
        self.enable_at.into_iter().chain(switch_at).min()
    }

    fn turn(&mut self, turn: Turn) -> Result<()> {
        if self.enable_at.is_some_and(|at| at <= turn.now) {
            self.enable_at = None;
            self.sources.switch(true)?;
        }
        self.sources.out.flush()?;
        if self.sources.out.takes_round_end() {
            self.drain.end_round()?;
        }
        if self.options.early_symbols {
            self.send_symbols()?;
        }
        self.syncer.as_ref().map_or(Ok(()), Syncer::check)?;
        if let Some(minutes) = self.progress.minutes(turn.now) {
            let samples = grouped(self.output.tally().samples);
            let megabytes = self.output.written_bytes() as f64 / 1e6;
            let text = format!("recording for {minutes} min: {samples} samples, {megabytes:.1} MB in the file so far");
            (self.options.notify)(Level::Progress, &text);
        }
        let written_bytes = self.output.written_bytes();
        let is_due = |rotation: &Rotation| rotation.is_due(turn.now, written_bytes, turn.was_signalled);
        if self.rotation.as_ref().is_some_and(is_due) { self.switch_output() } else { Ok(()) }
    }
}

/// Schedule of the messages on progress: after one minute, and whenever the elapsed time has doubled.
struct ProgressSchedule {
    started: Instant,
    next_minutes: u64,
}

impl ProgressSchedule {
    fn new(started: Instant) -> ProgressSchedule {
        ProgressSchedule { started, next_minutes: 1 }
    }

    /// Returns the minutes since the start if a message is due.
    fn minutes(&mut self, now: Instant) -> Option<u64> {
        let minutes = now.duration_since(self.started).as_secs() / 60;
        if minutes < self.next_minutes {
            return None;
        }
        self.next_minutes = minutes * 2;
        Some(minutes)
    }
}

/// The output, and the threads that serve it.
struct Started {
    out: Outbox,
    drain: Drain,
    output: OutputThread,
    ended: Waker,
    origin: Option<Origin>,
    syncer: Option<Syncer>,
    finisher: Finisher,
}

/// Creates the output and begins to drain into it.
fn start_draining(
    options: &Options,
    opened: &Arc<OpenEvents>,
    rings: Rings,
    rotation: Option<&Rotation>,
) -> Result<Started> {
    let sink = Sink::create(&options.output, &opened.events, rotation.map(Rotation::closed_files))?;
    let origin = sink.origin();
    let started = drain_into(sink, options, opened, rings, rotation).inspect_err(|_| {
        // Restores the files as they were before the recording.
        origin.iter().for_each(Origin::discard);
    });
    Ok(Started { origin, ..started? })
}

fn drain_into(
    mut sink: Sink,
    options: &Options,
    opened: &Arc<OpenEvents>,
    rings: Rings,
    rotation: Option<&Rotation>,
) -> Result<Started> {
    options.compression_level.map_or(Ok(()), |level| sink.compress(level))?;
    let files: Vec<_> = opened.events.iter().map(|event| event.file.clone()).collect();
    let events = Events::new(&files, Endian::NATIVE).map_err(|error| Error::Other(error.to_string()))?;
    let tally = Tally::new(events, opened.roles());
    // User-space addresses of samples are collected only if the recorder will look up their functions (option
    // `user_symbols`, and a file, because a stream is not completed at the end) and the caller may read the mapped
    // files.
    let with_user_hits = sink.is_file() && options.user_symbols && caller::allows_user_symbols();
    let tally = if with_user_hits { tally.with_user_hits() } else { tally };
    let written = sink.written()?;
    let syncer = options.sync.zip(written).map(|(every, written)| Syncer::start(every, written)).transpose()?;
    let (waker, ended) = (Waker::new()?, Waker::new()?);
    let is_file = sink.is_file();
    let output = OutputThread::start(sink, tally, waker.clone(), ended.clone())?;
    let queue = output.queue().clone();
    let out = Outbox::sending(queue.clone(), is_file, opened);
    let drain = Drain::start(rings, queue, waker, ended.clone())?;
    let closed_files = rotation.map(|rotation| rotation.closed_files().clone());
    let completer = Completer::new(StateWriter::of(opened), closed_files, options.notify);
    let finisher = Finisher::start(completer, ended.clone())?;
    Ok(Started { out, drain, output, ended, origin: None, syncer, finisher })
}

/// Notes on the first event and on overwritten rings; empty if there are no notes.
fn event_note(options: &Options, sampler: Option<&Sampler>) -> String {
    let own = sampler.map(|sampler| &sampler.note[..]).filter(|note| !note.is_empty());
    let overwritten =
        options.overwrite.then_some("the ring of each CPU keeps only the newest samples: they overwrite older samples");
    own.into_iter().chain(overwritten).collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_reported_after_a_minute_and_then_ever_less_often() {
        let started = Instant::now();
        let mut progress = ProgressSchedule::new(started);
        let reported: Vec<u64> =
            (0..1000).filter_map(|seconds| progress.minutes(started + Duration::from_secs(seconds))).collect();
        assert_eq!(reported, [1, 2, 4, 8, 16]);
    }
}
