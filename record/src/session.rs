//! One recording, from its first descriptor to its last byte.
//!
//! The order of things: events are opened and the captor listens before the programs that are alive are enumerated, so
//! that none falls in between; what was there before is written before sampling starts; descriptors of programs are
//! closed when the last ring has been read, so that our letting go of them is not in the recording.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bprec_bpf::{BtfCache, Kallsyms, Refs, StatsGuard, stats_sysctl};
use bprec_format::journal::Frame;
use bprec_format::state::{self, State};
use bprec_format::{Endian, Events, SampleLayout};

use crate::aggregate::Aggregates;
use crate::bpf_sampler::BpfSampler;
use crate::captor::{Captor, Caught};
use crate::dump;
use crate::event::groups::Counting;
use crate::exact::{self, Exact, Prepared};
use crate::hotplug::Hotplug;
use crate::inventory::Inventory;
use crate::machine::{self, Abilities};
use crate::open::{self, Opened, Places};
use crate::output::Sink;
use crate::sampler::{self, Sampler};
use crate::shared::{self, Shared};
use crate::state_stream::StateStream;
use crate::sys::{self, Signals};
use crate::tally::Tally;
use crate::user_programs::UserPrograms;
use crate::workload::Workload;
use crate::{
    Counters, Error, Level, Options, Output, Result, Summary, Target, event, features, finish, grown, host, options,
    synth,
};

/// The longest time that what the kernel wrote stays in the rings.
const DRAIN_EVERY: Duration = Duration::from_millis(200);
/// Time between two looks at who holds programs, while some that came during the recording are held.
const RELEASES_EVERY: Duration = Duration::from_millis(100);

/// The shortest time between two snapshots.
const INTERVAL_MIN: Duration = Duration::from_millis(10);

/// A recording that is under way.
pub(crate) struct Session<'a> {
    pub(crate) options: &'a Options,
    pub(crate) abilities: Abilities,
    pub(crate) opened: Opened,
    /// The objects behind some of the events; go after these.
    pub(crate) programs: UserPrograms,
    pub(crate) sink: Sink,
    pub(crate) states: StateStream,
    pub(crate) aggregates: Option<Aggregates>,
    pub(crate) captor: Option<Captor>,
    pub(crate) inventory: Inventory,
    pub(crate) kallsyms: Option<Kallsyms>,
    pub(crate) stats: Option<StatsGuard>,
    pub(crate) bpf_sampler: Option<BpfSampler>,
    pub(crate) exact: Option<Exact>,
    pub(crate) shared: Option<Shared>,
    hotplug: Hotplug,
    /// Counts as records pass by, in a stream; a file is read back at the end.
    pub(crate) tally: Tally,
    /// Sections that are known already.
    pub(crate) sections: Vec<features::Section>,
    /// States to be written with the next round.
    pub(crate) pending: Vec<State>,
    pub(crate) start_ns: u64,
    pub(crate) wakeups: u64,
    /// Of every event's records but samples.
    trailer_bytes: usize,
    buffer: Vec<u8>,
}

/// Records as `options` say.
pub(crate) fn run(options: &Options) -> Result<Summary> {
    let say = |level, text: &str| (options.notify)(level, text);
    sys::raise_open_files();
    let signals = Signals::block()?;
    // The kernel takes its time to print its symbols, and nothing needs them until the first records are written.
    let kallsyms = thread::spawn(Kallsyms::read);
    let specs = sampler::specs(options)?;
    let tracing_data = event::tracing_data(&specs)?;
    let abilities = Abilities::probe().map_err(|error| sampler::refused("dummy", 0, -1, error))?;
    for shortcoming in abilities.shortcomings() {
        say(Level::Notice, shortcoming);
    }
    // Loading tries out kernel features with programs of its own, which are none of the recording's business. What cannot
    // be loaded ends it here, before anything else is opened or run.
    let mut programs = UserPrograms::load(options)?;
    let refs = Refs::load().inspect_err(|error| say(Level::Detail, &format!("releases of programs: {error}"))).ok();
    let mut bpf_sampler = BpfSampler::load(options)?;

    let mut workload = options
        .command
        .as_deref()
        .map(|command| Workload::hold(command, options.output == Output::Stdout))
        .transpose()?;
    let online = machine::online_cpus();
    let counting = match &options.counters {
        Counters::Exact(asked) => match exact::open_events(asked, options.notify, &online) {
            // What was asked for cannot be meant; that is no matter of the machine.
            Err(error @ Error::Event { .. }) => return Err(error),
            counting => Some((asked, counting)),
        },
        Counters::Stats | Counters::Off => None,
    };
    let places = Places::of(options, &online, workload.as_ref().map(Workload::pid))?;
    let mut samplers: Vec<Sampler> =
        specs.into_iter().map(|spec| Sampler::new(spec, options, abilities, places.binding)).collect();
    let interval = options.interval.max(INTERVAL_MIN);
    let interval_ns = u64::try_from(interval.as_nanos()).unwrap_or(u64::MAX);
    // Before anyone watches: our own programs are not loaded during the recording.
    let mut aggregates =
        options.aggregate.map(|how| Aggregates::load(&samplers, options, how, interval_ns)).transpose()?;
    let mut opened = open::open(options, abilities, &mut samplers, &places, &online, &mut programs)?;
    if let Some(bpf_sampler) = &mut bpf_sampler {
        bpf_sampler.attach(options, &samplers, &places, &opened)?;
    }
    if let Some(aggregates) = &mut aggregates {
        aggregates.attach(&mut opened)?;
        let text = "samples inside kprobe, tracepoint and perf_event programs are not counted: an event with a program has none; \
                    reports say how much that may be ([blind spot])";
        say(Level::Notice, text);
    }
    let btfs = Arc::new(BtfCache::new());
    let captor = if abilities.bpf && opened.side_band_everywhere {
        Captor::start(abilities, &online, Arc::clone(&btfs))
            .inspect_err(|error| say(Level::Warning, &format!("programs loaded meanwhile are not captured: {error}")))
            .ok()
    } else {
        None
    };

    let sink = Sink::create(&options.output, &opened.events)?;
    let state_event = &opened.events[opened.state].file;
    let states = StateStream::new(&state_event.attr, state_event.ids.first().copied().unwrap_or(0));
    let files: Vec<_> = opened.events.iter().map(|event| event.file.clone()).collect();
    let events = Events::new(&files, Endian::NATIVE).map_err(|error| Error::Other(error.to_string()))?;
    let tally = Tally::new(events, opened.counted());
    let mut session = Session {
        options,
        abilities,
        opened,
        sink,
        states,
        aggregates,
        captor,
        inventory: Inventory::new(btfs, refs, programs.attachments().to_vec()),
        programs,
        kallsyms: None,
        stats: None,
        bpf_sampler,
        exact: None,
        shared: None,
        hotplug: Hotplug::watch(options, &places),
        tally,
        sections: Vec::new(),
        pending: Vec::new(),
        start_ns: 0,
        wakeups: 0,
        trailer_bytes: SampleLayout::new(&abilities.base(), Endian::NATIVE).trailer_bytes(),
        buffer: Vec::new(),
    };
    let started = session
        .prepare(tracing_data, &places, kallsyms)
        .and_then(|()| session.start(workload.as_mut(), &samplers, places.cpus.len() as u32, counting));
    if started.is_err() {
        // Nothing was sampled yet that would be worth keeping.
        session.sink.discard();
    }
    let outcome = started.and_then(|()| session.record(workload.as_mut(), &signals));
    let status = workload.as_mut().and_then(Workload::ended);
    drop(workload);
    let finished = outcome.and_then(|()| finish::finish(&mut session));
    match finished {
        Ok(summary) => Ok(Summary { command: status, ..summary }),
        Err(error) => session.give_up(error),
    }
}

impl Session<'_> {
    /// Writes everything that was there before the recording.
    fn prepare(
        &mut self,
        tracing_data: Option<Vec<u8>>,
        places: &Places,
        kallsyms: JoinHandle<bprec_bpf::Result<Kallsyms>>,
    ) -> Result<()> {
        let first = &self.opened.events[0].file.attr;
        let layout = SampleLayout::new(first, Endian::NATIVE);
        let mut out = Vec::new();
        if let Some(reason) = synth::kernel(&layout, &mut out) {
            (self.options.notify)(Level::Warning, &format!("kernel functions may stay without names: {reason}"));
        }
        if self.sink.is_file() {
            // From here on there is a file that can be opened.
            self.sink.append(&out)?;
            self.sink.finished_round()?;
            self.sink.checkpoint()?;
            out.clear();
        }
        self.sections = host::features(&self.options.argv);
        self.sections.push(features::event_desc(&self.opened.events));
        if self.abilities.clock {
            self.sections.extend(features::clock());
        }
        if self.sink.is_file() {
            self.sections.extend(tracing_data.map(|payload| (bprec_format::feature::Feature::TRACING_DATA.0, payload)));
            for (bit, payload) in &self.sections {
                self.sink.journal(Frame::Feature { bit: *bit, payload });
            }
        } else {
            for (bit, payload) in std::mem::take(&mut self.sections) {
                self.sink.stream_feature(bit, &payload)?;
            }
            for event in &self.opened.events {
                self.sink.stream_name(event)?;
            }
            if let Some(payload) = tracing_data {
                self.sink.stream_tracing_data(&payload)?;
            }
        }

        match self.inventory.enumerate() {
            Ok(missed) => self.pending.extend(missed.into_iter().map(State::Missed)),
            Err(error) => {
                let text = format!("BPF programs stay unknown: {error}");
                (self.options.notify)(Level::Warning, &text);
            }
        }
        for snapshot in self.inventory.snapshots() {
            synth::program(&layout, snapshot, &mut out);
        }
        if self.abilities.cgroup {
            synth::cgroups(&layout, &mut out);
        }
        if self.aggregates.is_some() {
            Aggregates::name_overflow(&layout, &mut out)?;
        }
        synth::tasks(&layout, places.processes().as_deref(), &mut out);
        self.kallsyms = kallsyms.join().ok().and_then(|read| read.ok());
        if let Some(kallsyms) = &self.kallsyms {
            synth::images(&layout, &kallsyms.bpf_images(), &kallsyms.bpf_functions(), &mut out);
        }
        self.sink.append(&out)?;
        let known: Vec<_> = self.inventory.snapshots().cloned().collect();
        for snapshot in &known {
            self.keep(snapshot)?;
        }
        if let Some(aggregates) = &self.aggregates {
            self.pending.extend(aggregates.opening(&self.opened)?);
        }
        self.inventory.survey(true, &mut self.pending);
        self.programs.say_others(&self.inventory, &self.pending, self.options.notify);
        dump::announce(self);
        // The states wait until it is known when sampling starts: that one is the first of them.
        self.sink.checkpoint()
    }

    /// Switches sampling on and lets the command go.
    fn start(
        &mut self,
        workload: Option<&mut Workload>,
        samplers: &[Sampler],
        cpus: u32,
        counting: Option<(&options::Exact, Result<Counting>)>,
    ) -> Result<()> {
        let prepared = counting.map(|(asked, counting)| {
            (asked, counting.and_then(|counting| Prepared::new(asked, self.options.notify, counting)))
        });
        let stats_were_on = stats_sysctl().unwrap_or(false);
        let mut counters_note = String::new();
        if self.options.counters != Counters::Off {
            match StatsGuard::enable() {
                Ok(guard) => self.stats = Some(guard),
                Err(error) => {
                    counters_note = error.to_string();
                    let text = format!("no run counts of programs: {error}");
                    (self.options.notify)(Level::Warning, &text);
                }
            }
        }
        let mut first_states = vec![State::Session(state::Session::default())];
        first_states.extend(self.bpf_sampler.as_ref().map(BpfSampler::described));
        first_states.append(&mut self.pending);
        if let Some((asked, prepared)) = prepared {
            let started = prepared.and_then(|prepared| {
                let (inventory, stats) = (&self.inventory, &mut self.stats);
                Exact::start(prepared, asked, self.options.notify, inventory, stats, &mut first_states)
            });
            match started {
                Ok(exact) => self.exact = Some(exact),
                Err(error) => {
                    let instead = if self.stats.is_some() { "run statistics" } else { "nothing" };
                    let note = format!("{instead} instead of exact counters: {error}");
                    let level = if asked.asked_for { Level::Warning } else { Level::Notice };
                    (self.options.notify)(level, &note);
                    counters_note =
                        [counters_note, note].into_iter().filter(|it| !it.is_empty()).collect::<Vec<_>>().join("; ");
                }
            }
        }
        if self.stats.is_some() {
            first_states.extend(self.inventory.run_stats());
        }
        first_states.extend(self.exact.iter_mut().flat_map(Exact::snapshot));
        self.shared = Shared::of_recording(
            self.options,
            workload.as_deref().map(|it| it.pid().cast_unsigned()),
            &mut counters_note,
        )?;
        first_states.extend(self.shared.as_ref().map(|shared| State::CounterEvents(shared.events().clone())));
        self.start_ns = sys::clock_ns(sys::CLOCK_MONOTONIC);
        let boottime_ns = sys::clock_ns(sys::CLOCK_BOOTTIME);
        let realtime_ns = sys::clock_ns(sys::CLOCK_REALTIME);
        let is_command = self.options.target == Target::Command;
        if self.options.delay.is_none() && !is_command {
            self.enable()?;
        }
        if let Some(workload) = workload {
            workload.start()?;
        }
        first_states[0] = State::Session(state::Session {
            start_ns: self.start_ns,
            realtime_ns,
            to_boottime_ns: boottime_ns.wrapping_sub(self.start_ns).cast_signed(),
            cpus_online: cpus,
            target: target_text(self.options),
            event: samplers.first().map(|sampler| sampler.spec.name.clone()).unwrap_or_default(),
            event_note: samplers.first().map(|sampler| sampler.note.clone()).unwrap_or_default(),
            counters: match (&self.exact, &self.stats) {
                (Some(_), _) => "exact",
                (None, Some(_)) => "stats",
                (None, None) => "off",
            }
            .to_owned(),
            counters_note,
            stats_were_on,
            interval_ns: u64::try_from(self.options.interval.max(INTERVAL_MIN).as_nanos()).unwrap_or(u64::MAX),
            recorder_pid: Some(std::process::id()),
        });
        first_states.append(&mut self.pending);
        self.pending = first_states;
        self.round()?;
        self.sink.checkpoint()
    }

    /// Moves records from the rings to the output until something asks for the end.
    fn record(&mut self, mut workload: Option<&mut Workload>, signals: &Signals) -> Result<()> {
        let started = Instant::now();
        // Below that the snapshots would be all that is recorded.
        let interval = self.options.interval.max(INTERVAL_MIN);
        let end = self.options.duration.map(|duration| started + duration);
        let mut enable_at = self.options.delay.map(|delay| started + delay);
        let mut next_drain = started + DRAIN_EVERY;
        let mut next_snapshot = started + interval;
        let mut next_releases = started + RELEASES_EVERY;
        let mut fds = vec![sys::poll_in(signals.fd())];
        let rings = self.opened.rings.iter().chain(&self.opened.code_rings);
        fds.extend(rings.map(|it| sys::poll_in(self.opened.instances[it.owner].fd.as_fd())));
        loop {
            let expects_releases = self.inventory.expects_releases();
            let wake_at = [Some(next_drain), Some(next_snapshot), end, enable_at]
                .into_iter()
                .chain([expects_releases.then_some(next_releases), self.exact.as_ref().and_then(Exact::tend_at)])
                .flatten()
                .min()
                .unwrap_or(next_drain);
            let wait = wake_at.saturating_duration_since(Instant::now());
            sys::poll(&mut fds, Some(wait)).map_err(|answer| Error::Syscall {
                call: "poll",
                object: "rings".to_owned(),
                answer,
                remedy: String::new(),
            })?;
            self.wakeups += 1;
            let asked_to_stop = signals.take();
            sys::drop_hung_up(&mut fds);
            let now = Instant::now();
            if enable_at.is_some_and(|at| at <= now) {
                enable_at = None;
                self.enable()?;
            }
            self.take_in_caught()?;
            if let Some(exact) = &mut self.exact {
                self.pending.extend(exact.tend(&self.inventory, &mut self.stats));
            }
            if next_snapshot <= now {
                next_snapshot = now + interval;
                if self.stats.is_some() {
                    self.pending.extend(self.inventory.run_stats());
                }
                self.pending.extend(self.exact.iter_mut().flat_map(Exact::snapshot));
                self.pending.extend(self.shared.iter_mut().flat_map(|shared| shared::states(shared.snapshot())));
                self.check_releases();
                self.inventory.survey(false, &mut self.pending);
                self.drain_aggregates()?;
            } else if expects_releases && next_releases <= now {
                next_releases = now + RELEASES_EVERY;
                self.check_releases();
            }
            if self.round()? {
                self.sink.checkpoint()?;
            }
            if self.hotplug.is_due(now) {
                self.check_cpus();
            }
            next_drain = now + DRAIN_EVERY;
            let command_ended = match &mut workload {
                // SIGCHLD has woken us, unless another thread of this process was given it.
                Some(workload) => workload.ended().is_some(),
                None => self.targets_are_gone(),
            };
            if asked_to_stop || command_ended || end.is_some_and(|end| end <= now) {
                return Ok(());
            }
        }
    }

    fn enable(&self) -> Result<()> {
        self.opened.enable()?;
        self.bpf_sampler.as_ref().map_or(Ok(()), BpfSampler::enable)
    }

    /// Looks whether all CPUs that are sampled are still there.
    pub(crate) fn check_cpus(&mut self) {
        self.hotplug.look(self.options.notify, &mut self.pending);
    }

    /// Looks of which programs everyone else has let go; what counts them lets go as well.
    pub(crate) fn check_releases(&mut self) {
        let ours = self.exact.as_ref().map(Exact::references).unwrap_or_default();
        for id in self.inventory.check_releases(&ours, &mut self.pending) {
            if let Some(exact) = &mut self.exact {
                exact.released(id);
            }
        }
    }

    /// True when all processes or threads to be recorded have ended.
    fn targets_are_gone(&self) -> bool {
        match &self.options.target {
            Target::Processes(ids) | Target::Threads(ids) => {
                ids.iter().all(|id| !std::path::Path::new(&format!("/proc/{id}")).exists())
            }
            _ => false,
        }
    }

    /// Takes in what the captor has found.
    pub(crate) fn take_in_caught(&mut self) -> Result<()> {
        let Some(captor) = &self.captor else { return Ok(()) };
        let caught: Vec<Caught> = captor.caught().collect();
        caught.into_iter().try_for_each(|caught| self.take_in(caught))
    }

    /// Takes in one thing that the captor has found.
    pub(crate) fn take_in(&mut self, caught: Caught) -> Result<()> {
        let Some(snapshot) = self.inventory.take_in(caught, &mut self.pending).cloned() else { return Ok(()) };
        if let (Some(exact), Some(id)) = (&mut self.exact, snapshot.info.view().id()) {
            self.inventory.known().filter(|known| known.program.id() == id).for_each(|known| exact.join(known));
        }
        self.keep(&snapshot)
    }

    /// Keeps a program where it outlives this process.
    fn keep(&mut self, snapshot: &bprec_bpf::ProgSnapshot) -> Result<()> {
        if !self.sink.is_file() {
            let (bit, payload) = features::programs(std::slice::from_ref(&snapshot.info));
            return self.sink.stream_feature(bit, &payload).map(drop);
        }
        let id = snapshot.info.view().btf_id().unwrap_or(0);
        if let Some(data) = &snapshot.btf {
            self.sink.journal(Frame::Btf { id, data });
        }
        self.sink.journal(Frame::Program(&snapshot.info));
        Ok(())
    }

    /// One round: everything in the rings, then the states that have come up. True when anything was written.
    pub(crate) fn round(&mut self) -> Result<bool> {
        let is_file = self.sink.is_file();
        let mut wrote = false;
        for cpu_ring in &mut self.opened.rings {
            let ring = &mut cpu_ring.ring;
            let unread = ring.unread();
            let head = unread.head();
            if unread.len() > 0 {
                self.sink.append_unread(&unread)?;
                if !is_file {
                    self.buffer.clear();
                    self.buffer.extend_from_slice(unread.first);
                    self.buffer.extend_from_slice(unread.second);
                    self.tally.add(&self.buffer);
                }
                wrote = true;
            }
            ring.consume(head);
        }
        self.buffer.clear();
        for cpu_ring in &mut self.opened.code_rings {
            let unread = cpu_ring.ring.unread();
            let head = unread.head();
            self.buffer.extend_from_slice(unread.first);
            self.buffer.extend_from_slice(unread.second);
            cpu_ring.ring.consume(head);
        }
        if !self.buffer.is_empty() {
            grown::straighten(&mut self.buffer, self.trailer_bytes);
            self.sink.append(&self.buffer)?;
            wrote = true;
        }
        if !self.pending.is_empty() {
            self.buffer.clear();
            for state in self.pending.drain(..) {
                self.states.encode(&state, &mut self.buffer)?;
            }
            self.sink.append(&self.buffer)?;
            wrote = true;
        }
        if wrote && self.aggregates.is_none() {
            self.sink.finished_round()?;
        }
        Ok(wrote)
    }

    /// What was counted in the kernel since the last time becomes samples, and a round of the file ends.
    pub(crate) fn drain_aggregates(&mut self) -> Result<()> {
        let Some(aggregates) = &mut self.aggregates else { return Ok(()) };
        self.buffer.clear();
        aggregates.drain(&self.opened, &mut self.buffer, &mut self.pending)?;
        self.sink.append(&self.buffer)?;
        if !self.sink.is_file() {
            self.tally.add(&self.buffer);
        }
        self.round()?;
        self.sink.finished_round()
    }

    /// What an error leaves behind.
    fn give_up(&mut self, error: Error) -> Result<Summary> {
        let is_closed_pipe = matches!(&error, Error::File { answer, .. }
            if answer.kind() == std::io::ErrorKind::BrokenPipe && !self.sink.is_file());
        if is_closed_pipe {
            let (programs, missed) = self.inventory.counts();
            let usage = sys::usage();
            return Ok(Summary {
                cpu_time: Duration::from_nanos(usage.user_ns + usage.system_ns),
                samples: self.tally.samples,
                of_programs: self.tally.of_programs,
                lost: None,
                throttled: self.tally.throttled,
                programs,
                missed,
                written_bytes: self.sink.written_bytes(),
                ..Summary::default()
            });
        }
        self.sink.cut();
        Err(match error {
            Error::File { answer, .. } if self.sink.is_there() => Error::Incomplete {
                path: self.sink.path().map(std::path::Path::to_path_buf).unwrap_or_default(),
                answer,
                kept_bytes: self.sink.written_bytes(),
            },
            error => error,
        })
    }
}

fn target_text(options: &Options) -> String {
    let list = |ids: &[u32]| ids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
    match &options.target {
        Target::System => "system wide".to_owned(),
        Target::Cpus(cpus) => format!("cpu {}", list(cpus)),
        Target::Processes(pids) => format!("pid {}", list(pids)),
        Target::Threads(tids) => format!("tid {}", list(tids)),
        Target::Command => {
            let words = options.command.iter().flatten().map(|word| word.to_string_lossy());
            words.collect::<Vec<_>>().join(" ")
        }
    }
}
