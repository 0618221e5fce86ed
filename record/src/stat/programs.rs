//! Counts of BPF programs: those of the kernel for all of them, exact ones where they are allowed.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bprec_bpf::{BtfCache, Refs, StatsGuard, stats_sysctl};
use bprec_format::state::{Session, State};

use super::{ProgramName, StatOptions};
use crate::captor::{Captor, Caught};
use crate::exact::{self, Exact, Pattern, Prepared};
use crate::inventory::Inventory;
use crate::machine::{self, Abilities};
use crate::options;
use crate::{Error, Level, Result, sampler};

/// Time between two looks at what has come, and of that what has gone.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time between two looks at what else has gone.
const LOOK_AT_ALL_EVERY: Duration = Duration::from_secs(1);

/// The programs, counting.
#[derive(Debug)]
pub(super) struct Programs {
    pattern: Pattern,
    inventory: Inventory,
    captor: Option<Captor>,
    exact: Option<Exact>,
    stats: Option<StatsGuard>,
    /// Ids and load times of programs that are asked for.
    wanted: HashSet<(u32, u64)>,
    /// All of them by id.
    only_ids: bool,
    new: Vec<ProgramName>,
    /// States that came up since the last call of `tend`.
    pending: Vec<State>,
    next_look: Instant,
    next_look_at_all: Instant,
}

impl Programs {
    /// Switches statistics on, and attaches to the programs that are asked for. `states` begin with what is counted and the
    /// first counts; `session` gets to know the tier.
    ///
    /// # Errors
    /// When there is no way to count programs at all, or events cannot be understood.
    pub(super) fn start(
        pattern: Option<&str>,
        options: &StatOptions,
        session: &mut Session,
        states: &mut Vec<State>,
    ) -> Result<Programs> {
        let asked = options::Exact {
            asked_for: true,
            pattern: pattern.map(str::to_owned),
            events: options.events.clone(),
            budget: options.budget,
            per_cpu: options.per_cpu,
        };
        let abilities = Abilities::probe().map_err(|error| sampler::refused("dummy", 0, -1, error))?;
        session.stats_were_on = stats_sysctl().unwrap_or(false);
        let refs = Refs::load().ok();
        let online = machine::online_cpus();
        let btfs = Arc::new(BtfCache::new());
        let captor = if abilities.bpf {
            let started = Captor::start(abilities, &online, Arc::clone(&btfs));
            let missing = |error: &Error| {
                (options.notify)(Level::Warning, &format!("programs loaded meanwhile are not counted: {error}"));
            };
            started.inspect_err(missing).ok()
        } else {
            None
        };
        let mut inventory = Inventory::new(btfs, refs, Vec::new());
        inventory.enumerate()?;
        // Behind that: what is loaded to count is none of what is counted.
        let prepared = exact::open_events(&asked, options.notify, &online)
            .and_then(|counting| Prepared::new(&asked, options.notify, counting));
        let stats = StatsGuard::enable();
        let mut programs = Programs {
            pattern: Pattern::new(pattern),
            inventory,
            captor,
            exact: None,
            stats: None,
            wanted: HashSet::new(),
            only_ids: pattern.is_some() && ids(pattern).all(|id| id.is_some()),
            new: Vec::new(),
            pending: Vec::new(),
            next_look: Instant::now() + LOOK_EVERY,
            next_look_at_all: Instant::now() + LOOK_AT_ALL_EVERY,
        };
        programs.learn();
        programs.check_ids(pattern)?;
        let (mut stats, no_stats) = match stats {
            Ok(guard) => (Some(guard), None),
            Err(error) => (None, Some(error)),
        };
        let started = prepared.and_then(|prepared| {
            Exact::start(prepared, &asked, options.notify, &programs.inventory, &mut stats, states)
        });
        programs.stats = stats;
        match (started, no_stats) {
            (Ok(exact), no_stats) => {
                session.counters = "exact".to_owned();
                session.counters_note = no_stats.map(|error| error.to_string()).unwrap_or_default();
                programs.exact = Some(exact);
            }
            // What was asked for cannot be meant; that is no matter of the machine.
            (Err(error @ Error::Event { .. }), _) => return Err(error),
            (Err(error), None) => {
                session.counters = "stats".to_owned();
                session.counters_note = format!("run statistics instead of exact counters: {error}");
            }
            (Err(exact), Some(stats)) => {
                return Err(Error::Other(format!("programs cannot be counted: {exact}; {stats}")));
            }
        }
        if programs.exact.is_none() && programs.wanted.is_empty() {
            let text = match pattern {
                Some(pattern) => format!("no program matches {pattern} yet"),
                None => "there is no program to count yet".to_owned(),
            };
            (options.notify)(Level::Notice, &text);
        }
        states.extend(programs.read());
        Ok(programs)
    }

    /// Ids are of programs that are there: one that is not will not come.
    fn check_ids(&self, pattern: Option<&str>) -> Result<()> {
        match ids(pattern).flatten().find(|id| !self.wanted.iter().any(|(known, _)| known == id)) {
            Some(id) => {
                Err(Error::Other(format!("there is no BPF program with id {id} (bpftool prog list shows them)")))
            }
            None => Ok(()),
        }
    }

    /// Looks which of the programs held are asked for and new.
    fn learn(&mut self) {
        for known in self.inventory.known() {
            let key = known.key();
            if !self.wanted.contains(&key) && self.pattern.matches(known) {
                self.wanted.insert(key);
                let (id, load_time_ns) = key;
                let prog_type = known.snapshot.info.view().prog_type();
                let prog_type = prog_type.map(|it| it.to_string()).unwrap_or_default();
                self.new.push(ProgramName { id, load_time_ns, name: known.name(), prog_type });
            }
        }
    }

    pub(super) fn new_names(&mut self) -> Vec<ProgramName> {
        std::mem::take(&mut self.new)
    }

    pub(super) fn matched(&self) -> bool {
        !self.wanted.is_empty()
    }

    pub(super) fn tend_at(&self) -> Instant {
        let exact = self.exact.as_ref().and_then(Exact::tend_at);
        exact.map_or(self.next_look, |at| at.min(self.next_look))
    }

    /// Takes in programs that have come, lets go of those that everyone else has let go of, and keeps exact counters within
    /// their budget.
    pub(super) fn tend(&mut self) -> Vec<State> {
        let caught: Vec<Caught> = self.captor.iter().flat_map(Captor::caught).collect();
        self.take_in(caught);
        if let Some(exact) = &mut self.exact {
            self.pending.extend(exact.tend(&self.inventory, &mut self.stats));
        }
        let now = Instant::now();
        if self.next_look <= now {
            self.next_look = now + LOOK_EVERY;
            if self.inventory.expects_releases() || self.next_look_at_all <= now {
                self.next_look_at_all = now + LOOK_AT_ALL_EVERY;
                self.release();
            }
        }
        self.take_pending()
    }

    fn take_in(&mut self, caught: Vec<Caught>) {
        for caught in caught {
            // What this process loads is there to count others.
            if matches!(&caught, Caught::Program(it) if it.loader.as_ref().is_some_and(|by| by.pid == std::process::id()))
            {
                continue;
            }
            let Some(snapshot) = self.inventory.take_in(caught, &mut self.pending) else { continue };
            let id = snapshot.info.view().id();
            if let Some(exact) = &mut self.exact {
                self.inventory
                    .known()
                    .filter(|known| Some(known.program.id()) == id)
                    .for_each(|known| exact.join(known));
            }
        }
        self.learn();
    }

    fn release(&mut self) {
        let ours = self.exact.as_ref().map(Exact::references).unwrap_or_default();
        for id in self.inventory.check_releases(&ours, &mut self.pending) {
            if let Some(exact) = &mut self.exact {
                exact.released(id);
                // Its last counts; nothing holds it any more.
                self.pending.extend(exact.snapshot());
            }
        }
        self.inventory.let_go();
    }

    /// Counts as of now.
    pub(super) fn read(&mut self) -> Vec<State> {
        if self.stats.is_some() {
            self.pending.extend(self.inventory.run_stats());
        }
        self.pending.extend(self.exact.iter_mut().flat_map(Exact::snapshot));
        self.take_pending()
    }

    /// The last counts; everything is switched off.
    pub(super) fn finish(&mut self) -> Vec<State> {
        let caught = self.captor.take().map(Captor::finish).unwrap_or_default();
        self.take_in(caught);
        if self.stats.is_some() {
            self.pending.extend(self.inventory.run_stats());
        }
        self.pending.extend(self.exact.take().map(Exact::finish).unwrap_or_default());
        self.stats = None;
        self.take_pending()
    }

    /// What is pending of the programs that are asked for.
    fn take_pending(&mut self) -> Vec<State> {
        let (wanted, only_ids) = (&self.wanted, self.only_ids);
        let mut pending = std::mem::take(&mut self.pending);
        pending.retain_mut(|state| match state {
            State::RunStats(stats) => {
                stats.programs.retain(|program| wanted.contains(&(program.id, program.load_time_ns)));
                !stats.programs.is_empty()
            }
            State::Released(released) => wanted.contains(&(released.id, released.load_time_ns)),
            // What was gone before it had a name may have been asked for.
            State::Missed(_) => !only_ids,
            State::Program(_) => false,
            _ => true,
        });
        pending
    }
}

/// The programs of a pattern, as ids where they are.
fn ids(pattern: Option<&str>) -> impl Iterator<Item = Option<u32>> {
    let programs = pattern.into_iter().flat_map(|pattern| pattern.split(','));
    programs.map(|part| part.split(':').next().unwrap_or(part).trim().parse().ok())
}
