//! The BPF programs of a recording, held.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use bprec_bpf::{
    BtfCache, ProgRefs, ProgSnapshot, Program, Refs, RunStats, Surroundings, counts_others, prog_arrays, prog_ids,
};
use bprec_format::bpf::btf::Btf as BtfTypes;
use bprec_format::bpf::names::ProgType;
use bprec_format::bpf::prog_info::ProgInfoBuf;
use bprec_format::state::{self, Attachment, Missed, ProgArray, ProgramRuns, Released, State};

use super::load_watcher::{self, LoadEvent};
use super::on_time::OnTime;
use super::recorders::Recorders;
use crate::sys;

/// For so long a program counts as one that came a moment ago.
const NEW_FOR_NS: u64 = 5_000_000_000;
/// Programs whose statistics go into one payload.
const RUNS_PER_STATE: usize = 1000;

/// A BTF blob with its id.
type Btf = (u32, Arc<[u8]>);

/// What a file says of programs in its feature sections.
#[derive(Debug)]
pub(crate) struct ProgramsOfFile {
    pub(crate) infos: Vec<ProgInfoBuf>,
    /// By ascending id.
    pub(crate) btfs: Vec<Btf>,
    /// How many more there were, which only the journal has.
    pub(crate) let_go: u32,
}

/// Every program seen.
#[derive(Debug)]
pub(crate) struct Programs {
    btfs: Arc<BtfCache>,
    held: BTreeMap<u32, Held>,
    missed: u32,
    /// Programs that were held in this file's time and are no longer.
    let_go: u32,
    /// The same before it.
    let_go_before: u32,
    refs: Option<Refs>,
    /// What could not be looked at around programs, each said once.
    problems: Vec<String>,
    /// Where programs that this recording itself has attached are.
    own: Vec<Attachment>,
    /// References on programs that other parts of the recorder hold.
    own_references: HashMap<u32, i64>,
    recorders: Recorders,
    statistics_time: OnTime,
    /// Where programs of others are, as far as it was looked at.
    attachments: Vec<Attachment>,
    /// The last reading of each program array, by map.
    prog_arrays: BTreeMap<u32, ProgArray>,
}

/// A program, held.
#[derive(Debug)]
struct Held {
    program: Program,
    snapshot: ProgSnapshot,
    load_time_ns: u64,
    loaded_during: bool,
    /// When it was taken, ns of the recording's clock.
    taken_ns: u64,
    /// When it was last known to be held by others, ns of the recording's clock.
    held_ns: u64,
    /// References of others at the last look.
    others: i64,
    /// Those that are left may all be other recorders', which has to be looked up.
    is_suspect: bool,
    released: bool,
    /// What is around it has been looked at.
    surveyed: bool,
    /// It was there at the last look at references already.
    settled: bool,
}

/// A program that is held, and what is known of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(crate) program: &'a Program,
    pub(crate) snapshot: &'a ProgSnapshot,
}

impl Known<'_> {
    /// Id and load time.
    pub(crate) fn key(self) -> (u32, u64) {
        (self.program.id(), self.snapshot.info.view().load_time_ns().unwrap_or(0))
    }

    /// Its functions, the entry first: position, type and name, which is empty where BTF has none.
    pub(crate) fn functions(self) -> Vec<(u32, Option<u32>, String)> {
        let btf = self.snapshot.btf.as_deref().and_then(|btf| BtfTypes::parse(btf).ok());
        let functions = self.snapshot.info.view();
        let functions = functions.functions().map(|function| {
            let named = btf.as_ref().and_then(|btf| btf.type_by_id(function.type_id?)?.name());
            let name = named.map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default();
            (function.index as u32, function.type_id, name)
        });
        functions.collect()
    }

    /// The full name of its entry function, or else the kernel's short one.
    pub(crate) fn name(self) -> String {
        let entry = self.functions().into_iter().next().map(|(_, _, name)| name).filter(|name| !name.is_empty());
        entry.unwrap_or_else(|| {
            String::from_utf8_lossy(self.snapshot.info.view().name().unwrap_or_default()).into_owned()
        })
    }
}

impl Programs {
    /// Empty. `refs` tells who else holds programs; `own` are the attachments of the recording itself.
    pub(crate) fn new(btfs: Arc<BtfCache>, refs: Option<Refs>, own: Vec<Attachment>) -> Programs {
        Programs {
            btfs,
            held: BTreeMap::new(),
            missed: 0,
            let_go: 0,
            let_go_before: 0,
            refs,
            problems: Vec::new(),
            own,
            own_references: HashMap::new(),
            recorders: Recorders::default(),
            statistics_time: OnTime::default(),
            attachments: Vec::new(),
            prog_arrays: BTreeMap::new(),
        }
    }

    /// Takes hold of every program alive now. What could not be taken is returned; an error stands for all that cannot
    /// be listed.
    pub(crate) fn enumerate(&mut self) -> Result<Vec<Missed>, bprec_bpf::Error> {
        let mut missed = Vec::new();
        for id in prog_ids() {
            let id = id?;
            let time_ns = sys::monotonic_ns();
            let fetched = Program::take(id).and_then(|program| {
                let snapshot = program.fetch(&self.btfs)?;
                Ok((program, snapshot))
            });
            match fetched {
                Ok((program, snapshot)) => drop(self.add(program, snapshot, time_ns, false)),
                // Gone between the list and the look: its unload came before the recording.
                Err(error) if error.is_gone() => (),
                Err(error) => missed.push(Missed { id, tag: None, time_ns, reason: error.to_string() }),
            }
        }
        self.missed += missed.len() as u32;
        Ok(missed)
    }

    /// Takes in what the watcher found. The program if it is a new one, and the states that say what was found.
    pub(crate) fn take_in(&mut self, event: LoadEvent, states: &mut Vec<State>) -> Option<&ProgSnapshot> {
        match event {
            LoadEvent::Missed(missed) => {
                self.missed += 1;
                states.push(State::Missed(missed));
                None
            }
            LoadEvent::Program(caught) => {
                let (id, taken_ns) = (caught.program.id(), caught.taken_ns);
                if self.held.contains_key(&id) {
                    return None;
                }
                let on_ns = Some(self.statistics_time.at(taken_ns));
                let held = self.add(caught.program, caught.snapshot, taken_ns, true);
                if let Some(runs) = caught.runs {
                    let programs = vec![held.runs(runs)];
                    states.push(State::RunStats(state::RunStats { time_ns: taken_ns, programs, on_ns }));
                }
                states.push(State::Program(state::Program {
                    id,
                    load_time_ns: held.load_time_ns,
                    loaded_during: true,
                    owners: caught.loader.into_iter().collect(),
                    withheld: held.snapshot.withheld.clone(),
                    ..state::Program::default()
                }));
                Some(&held.snapshot)
            }
        }
    }

    fn add(&mut self, program: Program, snapshot: ProgSnapshot, held_ns: u64, loaded_during: bool) -> &mut Held {
        let load_time_ns = snapshot.info.view().load_time_ns().unwrap_or(0);
        let held = Held {
            load_time_ns,
            loaded_during,
            taken_ns: held_ns,
            held_ns,
            others: 0,
            is_suspect: loaded_during,
            released: false,
            surveyed: false,
            settled: !loaded_during,
            program,
            snapshot,
        };
        self.held.entry(held.program.id()).or_insert(held)
    }

    /// What is known of all programs held, by ascending id.
    pub(crate) fn snapshots(&self) -> impl Iterator<Item = &ProgSnapshot> {
        self.held.values().map(|held| &held.snapshot)
    }

    /// The programs that others hold too, but for our own.
    pub(crate) fn known(&self) -> impl Iterator<Item = Known<'_>> {
        let own = self.refs.as_ref().map(Refs::own_id);
        let there = self.held.values().filter(move |held| !held.released && Some(held.program.id()) != own);
        there.map(|held| Known { program: &held.program, snapshot: &held.snapshot })
    }

    /// Programs captured, and programs that were not.
    pub(crate) fn counts(&self) -> (u32, u32) {
        (self.held.len() as u32 + self.let_go + self.let_go_before, self.missed)
    }

    /// Run statistics of all programs that can still run, as of now.
    pub(crate) fn run_stats(&self) -> Vec<State> {
        let mut programs = Vec::with_capacity(self.held.len());
        let time_ns = sys::monotonic_ns();
        for held in self.held.values().filter(|held| !held.released) {
            programs.extend(held.program.stats().ok().map(|runs| held.runs(runs)));
        }
        self.run_states(time_ns, &programs).collect()
    }

    fn run_states(&self, time_ns: u64, programs: &[ProgramRuns]) -> impl Iterator<Item = State> {
        let on_ns = Some(self.statistics_time.at(time_ns));
        let parts = programs.chunks(RUNS_PER_STATE);
        parts.map(move |part| State::RunStats(state::RunStats { time_ns, programs: part.to_vec(), on_ns }))
    }

    /// Runs of all programs in these states.
    pub(crate) fn runs_in(states: &[State]) -> u64 {
        let runs = |state: &State| match state {
            State::RunStats(stats) => stats.programs.iter().map(|program| program.run_cnt).sum(),
            _ => 0,
        };
        states.iter().map(runs).sum()
    }

    /// For how long statistics have been on, and whether they are.
    pub(crate) fn set_statistics_time(&mut self, time: OnTime) {
        self.statistics_time = time;
    }

    /// Runs of each program that can still run, by id, as run statistics have them. Programs that count others are left out: they run
    /// with these, and for a moment many times to find out what that costs.
    pub(crate) fn run_counts(&self) -> HashMap<u32, u64> {
        let is_load =
            |held: &&Held| !held.released && !counts_others(held.snapshot.info.view().name().unwrap_or_default());
        let there = self.held.values().filter(is_load);
        there.filter_map(|held| Some((held.program.id(), held.program.stats().ok()?.run_cnt))).collect()
    }

    /// True while programs are held that came a moment ago: most that come for a short time are gone soon.
    pub(crate) fn expects_releases(&self) -> bool {
        let now_ns = sys::monotonic_ns();
        self.refs.is_some() && self.held.values().any(|held| held.is_new(now_ns) && !held.released)
    }

    /// Looks who else holds the programs, and says of which everyone has let go; with their last statistics. Of each,
    /// one reference is held here; others that the recorder has are told with [`Programs::set_own_references`]. Returns the ids of those
    /// that were let go of.
    pub(crate) fn check_releases(&mut self, is_last: bool, states: &mut Vec<State>) -> Vec<u32> {
        let mut released = Vec::new();
        let Some(refs) = &self.refs else { return released };
        let mut read_ns = sys::monotonic_ns();
        let Ok(mut counts) = refs.read() else { return released };
        let own_references = &self.own_references;
        let others = |count: &ProgRefs| count.references - 1 - own_references.get(&count.id).copied().unwrap_or(0);
        let mut is_suspected = false;
        for count in &counts {
            let Some(held) = self.held.get_mut(&count.id) else { continue };
            let others = others(count);
            // Who uses a program and lets go shows in the references, but for one that has only just come.
            held.is_suspect |= others < held.others || held.is_new(read_ns);
            held.others = others;
            is_suspected |= held.is_suspect && others > 0;
        }
        let looks = is_suspected && (is_last || self.recorders.is_due());
        let mut by_recorders = HashMap::new();
        if looks {
            let (again, held) = self.recorders.around(|| (sys::monotonic_ns(), refs.read()));
            by_recorders = held;
            if let (again_ns, Ok(again)) = again {
                (read_ns, counts) = (again_ns, again);
            }
        }
        let mut last_runs = Vec::new();
        for count in counts {
            let Some(held) = self.held.get_mut(&count.id).filter(|held| !held.released) else { continue };
            let others = others(&count);
            held.is_suspect &= !looks;
            if others > by_recorders.get(&count.id).copied().unwrap_or(0) {
                held.held_ns = read_ns;
                continue;
            }
            held.released = true;
            released.push(count.id);
            last_runs.extend(held.program.stats().ok().map(|runs| held.runs(runs)));
            states.push(State::Released(Released {
                id: count.id,
                load_time_ns: held.load_time_ns,
                after_ns: held.held_ns,
                before_ns: sys::monotonic_ns(),
            }));
        }
        let time_ns = sys::monotonic_ns();
        states.extend(self.run_states(time_ns, &last_runs));
        released
    }

    /// What other parts of the recorder hold of programs.
    pub(crate) fn set_own_references(&mut self, references: HashMap<u32, i64>) {
        self.own_references = references;
    }

    /// Where programs of others are, as far as it was looked at.
    pub(crate) fn attachments(&self) -> &[Attachment] {
        &self.attachments
    }

    /// Gives up what everyone else has let go of, with its types, so that the kernel can unload it.
    pub(crate) fn let_go(&mut self) {
        let before = self.held.len();
        let attachments = &mut self.attachments;
        self.held.retain(|id, held| {
            if held.released {
                attachments.retain(|attachment| attachment.prog_id != *id);
            }
            !held.released
        });
        if self.held.len() < before {
            self.let_go += (before - self.held.len()) as u32;
            self.btfs.drop_unused();
        }
    }

    /// Looks at what is around programs not looked at yet: owners, maps, attachments, pins. Programs that have only just
    /// come are left for the next time, most of them being gone by then, unless this is the last.
    pub(crate) fn survey(&mut self, is_last: bool) -> Vec<State> {
        let mut states = Vec::new();
        let due = |held: &Held| !held.surveyed && !held.released && (held.settled || is_last);
        let programs: Vec<&ProgSnapshot> =
            self.held.values().filter(|held| due(held)).map(|held| &held.snapshot).collect();
        if !programs.is_empty() {
            let around = Surroundings::scan(&programs, &self.btfs);
            for held in self.held.values().filter(|held| due(held)) {
                let mut program = around.program(&held.snapshot, held.loaded_during);
                let its = |attachment: &&Attachment| attachment.prog_id == held.program.id();
                // Of our own we know the events by name; a scan shows a link per CPU.
                let ours = self.own.iter().filter(its).cloned().collect::<Vec<_>>();
                if ours.is_empty() {
                    self.attachments.extend(around.attachments.iter().filter(its).cloned());
                    states.extend(around.attachments.iter().filter(its).cloned().map(State::Attachment));
                } else {
                    program.owners = load_watcher::owner(std::process::id()).into_iter().collect();
                    states.extend(ours.into_iter().map(State::Attachment));
                }
                states.push(State::Program(program));
            }
            states.extend(around.maps.into_iter().map(State::Map));
            states.extend(take_changed(&mut self.prog_arrays, around.prog_arrays));
            for problem in around.problems {
                if !self.problems.contains(&problem) {
                    self.problems.push(problem);
                }
            }
        }
        for held in self.held.values_mut() {
            held.surveyed |= !held.released && (held.settled || is_last);
            held.settled = true;
        }
        states
    }

    /// What has changed in program arrays since they were read.
    pub(crate) fn changed_prog_arrays(&mut self) -> Vec<State> {
        let now = prog_arrays(self.prog_arrays.keys().copied());
        take_changed(&mut self.prog_arrays, now).collect()
    }

    /// A BTF blob, which from then on is one of the file's.
    pub(crate) fn btf(&self, id: u32) -> Result<Arc<[u8]>, bprec_bpf::Error> {
        self.btfs.get(id)
    }

    /// Whether a program is of type perf_event.
    pub(crate) fn is_perf_event(&self, prog_id: u32) -> bool {
        let held = self.held.get(&prog_id);
        held.is_some_and(|held| held.snapshot.info.view().prog_type() == Some(ProgType::PERF_EVENT))
    }

    /// What could not be looked at, each said once.
    pub(crate) fn problems(&self) -> &[String] {
        &self.problems
    }

    /// What goes into the feature sections: the programs, which stay held, and their BTF by ascending id.
    pub(crate) fn of_file(&self) -> ProgramsOfFile {
        let infos = self.held.values().map(|held| held.snapshot.info.clone()).collect();
        ProgramsOfFile { infos, btfs: self.btfs.all(), let_go: self.let_go }
    }

    /// Another file begins: what everyone else has let go of is none of it, and of the others everything is to be said again.
    pub(crate) fn begin_file(&mut self) {
        self.let_go();
        self.let_go_before += std::mem::take(&mut self.let_go);
        self.attachments.clear();
        self.prog_arrays.clear();
        for held in self.held.values_mut() {
            (held.loaded_during, held.surveyed, held.settled) = (false, false, true);
        }
    }
}

/// The readings that are not like the last one of their array, as states; they are the last ones then.
fn take_changed<'a>(
    last: &'a mut BTreeMap<u32, ProgArray>,
    now: Vec<ProgArray>,
) -> impl Iterator<Item = State> + use<'a> {
    now.into_iter().filter_map(|array| {
        let is_new = last.insert(array.map_id, array.clone()).as_ref() != Some(&array);
        is_new.then_some(State::ProgArray(array))
    })
}

impl Held {
    fn is_new(&self, now_ns: u64) -> bool {
        self.loaded_during && now_ns.saturating_sub(self.taken_ns) < NEW_FOR_NS
    }

    fn runs(&self, runs: RunStats) -> ProgramRuns {
        ProgramRuns {
            id: self.program.id(),
            load_time_ns: self.load_time_ns,
            run_time_ns: runs.run_time_ns,
            run_cnt: runs.run_cnt,
            recursion_misses: runs.recursion_misses,
        }
    }
}
