//! The inventory of BPF programs during a recording: the programs that were loaded, the programs that all other processes have released, and the
//! attachments and owners of each program.

mod entry;
mod holder_times;
mod holding;
mod load_watcher;
mod on_time;
mod probes;
mod programs;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bprec_format::bprec::state::{Missed, State};

pub(crate) use entry::{Function, Known};
use holder_times::HolderTimes;
pub(crate) use holding::Holding;
pub(crate) use load_watcher::LoadWatcher;
pub(crate) use on_time::OnTime;
use probes::Probes;
pub(crate) use programs::{Programs, ProgramsOfFile, Reading};

use super::{Context, Event, Source, Tick};
use crate::sys;
use crate::{Level, Result, synth};
use load_watcher::LoadEvent;

/// Time between two checks of the references on programs, while the recorder holds new programs.
const RELEASES_EVERY: Duration = Duration::from_millis(100);
/// Time between two checks of the references on programs, while no program is new.
const ALL_RELEASES_EVERY: Duration = Duration::from_secs(1);
/// Effect of a missing descriptor of a program.
const NOT_HELD: &str = "runs of programs between the last reading and their unload are unknown";

/// Source that keeps the [`Programs`] of the context up to date.
#[derive(Debug)]
pub(crate) struct Inventory {
    watcher: Option<LoadWatcher>,
    purpose: Purpose,
    /// Programs that were loaded at the start and could not be read.
    missed: Vec<Missed>,
    probes: Probes,
    holder_times: HolderTimes,
    next_look: Instant,
    next_look_at_all: Instant,
    /// True once the user was told that references on programs cannot be read.
    is_blind: bool,
    /// True once the user was told that descriptors are too few for all programs.
    is_warned: bool,
}

/// Use of the inventory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Programs are recorded, with their maps, attachments and owners.
    Recording,
    /// Programs are only counted.
    Counting,
}

impl Inventory {
    /// Reads the loaded programs. `watcher` must listen already, so that each program is in the list of programs or is
    /// announced to the watcher.
    ///
    /// # Errors
    /// Fails if programs cannot be listed and the purpose is [`Purpose::Counting`].
    pub(crate) fn start(
        watcher: Option<LoadWatcher>,
        purpose: Purpose,
        programs: &mut Programs,
        notify: fn(Level, &str),
    ) -> Result<Inventory> {
        let now = Instant::now();
        let missed = match programs.enumerate() {
            Err(error) if purpose == Purpose::Recording => {
                notify(
                    Level::Warning,
                    &format!("the recording has no names, code and attach points of BPF programs: {error}"),
                );
                Vec::new()
            }
            missed => missed?,
        };
        Ok(Inventory {
            watcher,
            purpose,
            missed,
            probes: Probes::new(),
            holder_times: HolderTimes::default(),
            next_look: now + RELEASES_EVERY,
            next_look_at_all: now + ALL_RELEASES_EVERY,
            is_blind: false,
            is_warned: false,
        })
    }

    /// Writes the KSYMBOL and BPF_EVENT records, the infos and the states of all programs. Returns the processes that hold programs.
    fn introduce(&self, context: &mut Context<'_>) -> Result<BTreeSet<u32>> {
        if let Some(layout) = context.out.layout() {
            for snapshot in context.programs.snapshots() {
                let mut records = Vec::new();
                synth::program(&layout, snapshot, &mut records);
                context.out.records(records)?;
                context.out.program(snapshot)?;
            }
        }
        self.survey(true, context)
    }

    /// Writes the states of programs for which they were not written yet. Returns the processes that hold these programs.
    fn survey(&self, is_last: bool, context: &mut Context<'_>) -> Result<BTreeSet<u32>> {
        let mut holders = BTreeSet::new();
        if self.purpose == Purpose::Recording {
            let states = context.programs.survey(is_last);
            for state in &states {
                match state {
                    State::Map(map) if map.btf_id != 0 => {
                        if let Ok(btf) = context.programs.btf(map.btf_id) {
                            context.out.keep_types(map.btf_id, &btf)?;
                        }
                    }
                    State::Program(program) => holders.extend(program.owners.iter().map(|owner| owner.pid)),
                    _ => (),
                }
            }
            context.out.states(states)?;
        }
        Ok(holders)
    }

    fn take_in(&mut self, event: LoadEvent, context: &mut Context<'_>) -> Result<()> {
        let mut states = Vec::new();
        let snapshot = context.programs.take_in(event, &mut states);
        if let Some(id) = snapshot.and_then(|snapshot| snapshot.info.view().id()) {
            context.events.push(Event::Loaded(id));
        }
        if let Some(snapshot) = snapshot {
            context.out.program(snapshot)?;
        }
        context.out.states(states)
    }

    /// Makes the watcher listen on CPUs that came online, and stop listening on CPUs that went offline.
    fn follow_cpus(&self, context: &Context<'_>) -> Result<()> {
        let Some(watcher) = &self.watcher else { return Ok(()) };
        for event in context.events.iter() {
            match event {
                Event::CpuOffline(cpu) => watcher.forget(*cpu)?,
                Event::CpuOnline(cpu) => {
                    if let Err(error) = watcher.watch(*cpu) {
                        let text = format!("BPF programs loaded on CPU {cpu} are not captured: {error}");
                        (context.notify)(Level::Warning, &text);
                    }
                }
                Event::Loaded(_) | Event::Released(_) | Event::Suspended | Event::CpuReopened(_) => (),
            }
        }
        Ok(())
    }

    fn check_releases(&mut self, context: &mut Context<'_>) -> Result<()> {
        let mut states = Vec::new();
        match context.programs.check_releases(&mut states) {
            Ok(released) => context.events.extend(released.into_iter().map(Event::Released)),
            Err(error) => self.warn_of_blindness(&error.to_string(), context),
        }
        context.out.states(states)
    }

    /// Warns once that references on programs cannot be read.
    fn warn_of_blindness(&mut self, why: &str, context: &Context<'_>) {
        if !std::mem::replace(&mut self.is_blind, true) {
            let text = format!(
                "bprec cannot see which processes use a BPF program, so it keeps no descriptors of programs: {NOT_HELD} \
                 ({why})"
            );
            (context.notify)(Level::Warning, &text);
        }
    }

    fn no_misses(&self, error: &bprec_bpf::Error, context: &Context<'_>) {
        (context.notify)(Level::Detail, &format!("hits of kprobes that ran no program are unknown: {error}"));
    }

    /// Warns once that descriptors are too few for all programs.
    fn warn_of_few_descriptors(&mut self, context: &Context<'_>) {
        if context.programs.lacks_descriptors() && !std::mem::replace(&mut self.is_warned, true) {
            let limit = sys::open_files_max().unwrap_or(0);
            let text = format!(
                "the limit of open files ({limit}) is too low for a descriptor of each BPF program: {NOT_HELD}; raise it with ulimit -n"
            );
            (context.notify)(Level::Warning, &text);
        }
    }
}

impl Source for Inventory {
    fn begin_file(&mut self, is_first: bool, context: &mut Context<'_>) -> Result<()> {
        if is_first {
            context.out.states(self.missed.drain(..).map(State::Missed))?;
            if context.programs.holding() == Holding::Never {
                self.warn_of_blindness(
                    "bprec cannot load its own BPF programs; bprec doctor shows the reason",
                    context,
                );
            }
            self.warn_of_few_descriptors(context);
            if self.purpose == Purpose::Recording
                && let Err(error) = self.probes.begin()
            {
                self.no_misses(&error, context);
            }
        } else {
            context.programs.begin_file();
        }
        let holders = self.introduce(context)?;
        self.holder_times.begin(&holders);
        Ok(())
    }

    fn tick(&mut self, tick: Tick, context: &mut Context<'_>) -> Result<Option<Instant>> {
        let events: Vec<LoadEvent> = self.watcher.iter().flat_map(LoadWatcher::events).collect();
        if !events.is_empty() {
            // The next check of references is soon, because many programs are unloaded shortly after their load.
            self.next_look = self.next_look.min(tick.now + RELEASES_EVERY);
        }
        events.into_iter().try_for_each(|event| self.take_in(event, context))?;
        self.warn_of_few_descriptors(context);
        self.follow_cpus(context)?;
        if tick.now >= self.next_look {
            let is_due = context.programs.expects_releases() || tick.now >= self.next_look_at_all;
            if is_due && !tick.is_reading {
                self.check_releases(context)?;
                self.next_look_at_all = tick.now + ALL_RELEASES_EVERY;
            }
            let soon = if context.programs.expects_releases() { RELEASES_EVERY } else { ALL_RELEASES_EVERY };
            self.next_look = tick.now + soon;
        }
        if tick.is_reading {
            self.check_releases(context)?;
            self.survey(false, context)?;
        }
        Ok(Some(self.next_look))
    }

    /// At the end of sampling, switches off the events that announce loads. A count needs the loads until its last
    /// reading.
    fn switch(&mut self, is_on: bool) -> Result<()> {
        self.holder_times.switch(is_on);
        let watcher = self.watcher.as_ref().filter(|_| !is_on && self.purpose == Purpose::Recording);
        watcher.iter().for_each(|watcher| watcher.disable());
        Ok(())
    }

    fn end_file(&mut self, is_last: bool, context: &mut Context<'_>) -> Result<()> {
        let events = self.watcher.take_if(|_| is_last).map(LoadWatcher::finish).unwrap_or_default();
        events.into_iter().try_for_each(|event| self.take_in(event, context))?;
        self.check_releases(context)?;
        self.survey(is_last, context)?;
        if self.purpose == Purpose::Recording {
            context.out.states(self.holder_times.end())?;
            match self.probes.end(context.programs) {
                Ok(states) => context.out.states(states)?,
                Err(error) => self.no_misses(&error, context),
            }
        }
        if !is_last {
            return Ok(());
        }
        if self.purpose == Purpose::Recording {
            context.out.states(context.programs.changed_prog_arrays())?;
        }
        for problem in context.programs.problems() {
            (context.notify)(Level::Detail, problem);
        }
        Ok(())
    }
}
