//! The BPF programs of a recording, with descriptors of those that others use.

use std::collections::btree_map::Entry::Occupied;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bprec_bpf::{Attachments, BtfCache, ProgSnapshot, Program, Refs, counts_others, prog_arrays, prog_ids};
use bprec_format::bpf::names::ProgType;
use bprec_format::bpf::prog_info::ProgInfoBuf;
use bprec_format::bprec::state::{self, Attachment, KernelSymbol, Missed, ProgArray, ProgramRuns, Released, State};

use super::Holding;
use super::entry::{Entry, Known, Use};
use super::load_watcher::{self, LoadEvent};
use super::on_time::OnTime;
use crate::sys;

/// Limit on programs whose run statistics go into one state.
const RUNS_PER_STATE: usize = 1000;

/// A BTF blob with its id.
type Btf = (u32, Arc<[u8]>);

/// Programs in a file's feature sections.
#[derive(Debug)]
pub(crate) struct ProgramsOfFile {
    pub(crate) infos: Vec<ProgInfoBuf>,
    /// BTF of the programs, by ascending id.
    pub(crate) btfs: Vec<Btf>,
    /// Number of released programs, which only the journal has.
    pub(crate) let_go: u32,
}

/// All programs that the recording has seen.
#[derive(Debug)]
pub(crate) struct Programs {
    /// Dropped before the descriptors, because other recorders that see this list rely on them.
    refs: Option<Refs>,
    btfs: Arc<BtfCache>,
    entries: BTreeMap<u32, Entry>,
    /// Descriptors to be closed after every source has had its call.
    leaving: Vec<Program>,
    missed: u32,
    /// True if a program kept no descriptor because too few were free.
    lacks_descriptors: bool,
    /// Number of unloaded programs of which the recorder had no descriptor.
    unheld: u32,
    /// Number of programs released during this file.
    let_go: u32,
    /// Number of programs released before this file.
    let_go_before: u32,
    /// Runs of released programs since new runs were last counted.
    last_runs: u64,
    /// Links, maps and processes of programs that could not be read, each once.
    problems: Vec<String>,
    /// Attachments of this recording's own programs.
    own: Vec<Attachment>,
    /// Number of references that other parts of the recorder hold, by program id.
    own_references: HashMap<u32, i64>,
    on_time: OnTime,
    /// Ids of programs that this recording loaded for itself.
    own_ids: Vec<u32>,
    /// Latest reading of each program array, by map id.
    prog_arrays: BTreeMap<u32, ProgArray>,
    /// Images that the kernel made beside programs, by address; `None` for an image that is gone while the images from before the recording are
    /// not known yet.
    images: BTreeMap<u64, Option<KernelSymbol>>,
    has_first_images: bool,
}

impl Programs {
    /// Makes an empty inventory. `refs` lists the references of others; `own` are the attachments of the recording itself.
    pub(crate) fn new(btfs: Arc<BtfCache>, refs: Option<Refs>, own: Vec<Attachment>) -> Programs {
        let refs_id = refs.iter().map(Refs::own_id).collect();
        Programs {
            refs,
            btfs,
            entries: BTreeMap::new(),
            leaving: Vec::new(),
            missed: 0,
            lacks_descriptors: false,
            unheld: 0,
            let_go: 0,
            let_go_before: 0,
            last_runs: 0,
            problems: Vec::new(),
            own,
            own_references: HashMap::new(),
            on_time: OnTime::default(),
            own_ids: refs_id,
            prog_arrays: BTreeMap::new(),
            images: BTreeMap::new(),
            has_first_images: false,
        }
    }

    /// Rule by which programs loaded from now on keep a descriptor.
    pub(crate) fn holding(&self) -> Holding {
        Holding::with(self.refs.as_ref())
    }

    /// Adds all loaded programs. Returns the programs that could not be read; fails if programs cannot be listed.
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
                Ok((program, snapshot)) => drop(self.add(id, self.holding().keep(program), snapshot, time_ns, false)),
                // Unloaded between listing and opening: before the recording.
                Err(error) if error.is_gone() => (),
                Err(error) => missed.push(Missed { id, tag: None, time_ns, reason: error.to_string() }),
            }
        }
        self.missed += missed.len() as u32;
        Ok(missed)
    }

    /// Adds a finding of the load watcher, and appends its states. Returns the program if it is new.
    pub(crate) fn take_in(&mut self, event: LoadEvent, states: &mut Vec<State>) -> Option<&ProgSnapshot> {
        match event {
            LoadEvent::Missed(missed) => {
                self.missed += 1;
                states.push(State::Missed(missed));
                None
            }
            LoadEvent::ImageCame(image) => {
                self.images.insert(image.addr, Some(image));
                None
            }
            LoadEvent::ImageWent(addr) => {
                match self.has_first_images {
                    true => drop(self.images.remove(&addr)),
                    false => drop(self.images.insert(addr, None)),
                }
                None
            }
            LoadEvent::Program(caught) => {
                let (id, taken_ns) = (caught.id, caught.taken_ns);
                if self.entries.get(&id).is_some_and(|entry| entry.is(&caught.snapshot)) {
                    return None;
                }
                let on_time = self.on_time.at(taken_ns);
                let entry = self.add(id, caught.program, caught.snapshot, taken_ns, true);
                if let Some(runs) = caught.runs {
                    let programs = vec![entry.runs(runs)];
                    states.push(run_stats(taken_ns, programs, on_time));
                }
                states.push(State::Program(state::Program {
                    id,
                    load_time_ns: entry.load_time_ns,
                    loaded_during: true,
                    owners: caught.loader.into_iter().collect(),
                    withheld: entry.snapshot.withheld.clone(),
                    ..state::Program::default()
                }));
                Some(&entry.snapshot)
            }
        }
    }

    fn add(
        &mut self,
        id: u32,
        descriptor: Option<Program>,
        snapshot: ProgSnapshot,
        used_ns: u64,
        loaded_during: bool,
    ) -> &mut Entry {
        self.lacks_descriptors |= self.refs.is_some() && descriptor.is_none();
        let entry = Entry::new(id, descriptor, snapshot, used_ns, loaded_during);
        let known = self.entries.entry(id);
        if matches!(known, Occupied(_)) {
            // The program that had the id before was unloaded unnoticed.
            self.let_go += 1;
        }
        let entry = known.insert_entry(entry).into_mut();
        tell_held(self.refs.as_ref(), entry, &self.own_references);
        entry
    }

    /// Returns the facts of all loaded programs, by ascending id.
    pub(crate) fn snapshots(&self) -> impl Iterator<Item = &ProgSnapshot> {
        self.entries.values().map(|entry| &entry.snapshot)
    }

    /// Returns the programs that others use, without this recording's own.
    pub(crate) fn known(&self) -> impl Iterator<Item = Known<'_>> {
        let there = self.entries.values().filter(|entry| !entry.released && !self.own_ids.contains(&entry.id));
        there.map(|entry| Known { entry, snapshot: &entry.snapshot })
    }

    /// Returns the numbers of captured and of missed programs.
    pub(crate) fn counts(&self) -> (u32, u32) {
        (self.entries.len() as u32 + self.let_go + self.let_go_before, self.missed)
    }

    /// Number of programs without a descriptor at their unload: their runs after the last reading are unknown.
    pub(crate) fn unheld(&self) -> u32 {
        self.unheld
    }

    /// Returns true if too few descriptors were free for all programs.
    pub(crate) fn lacks_descriptors(&self) -> bool {
        self.lacks_descriptors
    }

    /// Reads the run statistics of all programs that can still run. Returns them with the runs of all programs since the last call of this or of
    /// [`Programs::new_runs`]. With [`Reading::Changed`], the states
    /// leave out programs whose counts have not changed since the last reading of all.
    pub(crate) fn run_stats(&mut self, reading: Reading) -> (Vec<State>, u64) {
        let mut programs = Vec::with_capacity(self.entries.len());
        let began_ns = sys::monotonic_ns();
        let mut new_runs = std::mem::take(&mut self.last_runs);
        for entry in self.entries.values_mut().filter(|entry| !entry.released) {
            let Some(Ok(runs)) = entry.ask(Program::stats) else { continue };
            new_runs += entry.new_runs(runs.run_cnt);
            if reading == Reading::Changed && entry.last_read == Some(runs) {
                continue;
            }
            if reading == Reading::All {
                entry.last_read = Some(runs);
            }
            programs.push(entry.runs(runs));
        }
        // Reading can take long on a busy machine, so the middle is the time of the reading.
        let time_ns = began_ns.midpoint(sys::monotonic_ns());
        // An empty state still has the time, and the time for which statistics had been on.
        let states = match programs.is_empty() {
            true => vec![run_stats(time_ns, programs, self.on_time.at(time_ns))],
            false => self.run_states(time_ns, &programs).collect(),
        };
        (states, new_runs)
    }

    fn run_states(&self, time_ns: u64, programs: &[ProgramRuns]) -> impl Iterator<Item = State> {
        let on = self.on_time.at(time_ns);
        programs.chunks(RUNS_PER_STATE).map(move |part| run_stats(time_ns, part.to_vec(), on))
    }

    /// Returns the runs of all programs since the last count. Each program is counted alone, so an unloaded program does not affect others.
    pub(crate) fn new_runs(&mut self) -> u64 {
        let mut new_runs = std::mem::take(&mut self.last_runs);
        for entry in self.entries.values_mut().filter(|entry| !entry.released) {
            if let Some(runs) = entry.read() {
                new_runs += entry.new_runs(runs.run_cnt);
            }
        }
        new_runs
    }

    /// Sets the clock of the time for which run statistics have been on.
    pub(crate) fn set_on_time(&mut self, on_time: OnTime) {
        self.on_time = on_time;
    }

    /// Adds a program that this recording loaded for itself.
    pub(crate) fn add_own(&mut self, id: u32) {
        self.own_ids.push(id);
    }

    /// Returns the runs of each program that can still run, by id, from run statistics. Programs that count others are left out: they run
    /// with the counted programs, and many times during their calibration.
    pub(crate) fn run_counts(&self) -> HashMap<u32, u64> {
        let is_load =
            |entry: &&Entry| !entry.released && !counts_others(entry.snapshot.info.view().name().unwrap_or_default());
        let there = self.entries.values().filter(is_load);
        there.filter_map(|entry| Some((entry.id, entry.read()?.run_cnt))).collect()
    }

    /// Returns true while programs are new, or may have been released: most of these are unloaded soon.
    pub(crate) fn expects_releases(&self) -> bool {
        let now_ns = sys::monotonic_ns();
        let is_expected = |entry: &Entry| !entry.released && (entry.is_new(now_ns) || entry.use_ == Use::Doubtful);
        self.refs.is_some() && self.entries.values().any(is_expected)
    }

    /// Checks the references of all programs, and releases those that nobody else uses, with their last statistics. Returns the ids of
    /// released programs.
    ///
    /// A program is used if it has more references than all recorders have declared ([`Refs::set_held`]). If other recorders
    /// run, it is released at the second check, because another recorder may be releasing its own reference.
    ///
    /// # Errors
    /// Fails if references cannot be read. No descriptor is kept then.
    pub(crate) fn check_releases(&mut self, states: &mut Vec<State>) -> Result<Vec<u32>, bprec_bpf::Error> {
        let read_ns = sys::monotonic_ns();
        let Some(refs) = &self.refs else {
            let alive = prog_ids().collect::<Result<_, _>>()?;
            return Ok(self.find_gone(&alive, read_ns, states));
        };
        let (leaving, sum_of_last) = (&mut self.leaving, &mut self.last_runs);
        let mut let_go_of = |entry: &mut Entry| {
            let runs = entry.let_go(leaving);
            *sum_of_last += runs.as_ref().map_or(0, |runs| entry.new_runs(runs.run_cnt));
            tell_held(Some(refs), entry, &self.own_references);
            runs
        };
        let counts = match refs.read() {
            Ok(counts) => counts,
            Err(error) => {
                let runs: Vec<ProgramRuns> = self.entries.values_mut().filter_map(let_go_of).collect();
                states.extend(self.run_states(sys::monotonic_ns(), &runs));
                return Err(error);
            }
        };
        let (mut let_go, mut last_runs) = (Vec::new(), Vec::new());
        let mut can_hold = true;
        for count in &counts {
            let entry = self.entries.get_mut(&count.id).filter(|entry| entry.load_time_ns == count.load_time_ns);
            let Some(entry) = entry.filter(|entry| !entry.released) else { continue };
            let others = count.references - count.own;
            entry.released = others <= 0;
            if others > count.other_recorders {
                if can_hold && entry.descriptor.is_none() && !entry.is_iterator {
                    // Another recorder may have been giving it up: what has gone since is as it was.
                    let Some(program) = entry.look_up() else { continue };
                    entry.descriptor = Holding::WhileThereAreDescriptors.keep(program);
                    can_hold = entry.descriptor.is_some();
                    tell_held(Some(refs), entry, &self.own_references);
                }
                (entry.used_ns, entry.use_) = (read_ns, Use::Sure);
                continue;
            }
            match entry.use_ {
                Use::Sure if !entry.released => {
                    entry.use_ = Use::Doubtful;
                    continue;
                }
                Use::Sure => (),
                Use::Doubtful => let_go.push(count.id),
                // It waits for other recorders.
                Use::LetGo => continue,
            }
            entry.use_ = Use::LetGo;
            last_runs.extend(let_go_of(entry));
        }
        let time_ns = sys::monotonic_ns();
        states.extend(self.run_states(time_ns, &last_runs));
        let alive = counts.iter().map(|count| count.id).collect();
        let_go.extend(self.find_gone(&alive, time_ns, states));
        Ok(let_go)
    }

    /// Takes what nobody uses any more for released, and of the programs without a descriptor those that are not `alive`. Returns their ids.
    fn find_gone(&mut self, alive: &BTreeSet<u32>, now_ns: u64, states: &mut Vec<State>) -> Vec<u32> {
        let is_gone = |entry: &&mut Entry| entry.released || entry.descriptor.is_none() && !alive.contains(&entry.id);
        let gone = self.entries.values_mut().filter(is_gone);
        let (mut ids, mut last_runs, mut released) = (Vec::new(), Vec::new(), Vec::new());
        for entry in gone {
            entry.released = true;
            ids.push(entry.id);
            if entry.use_ == Use::LetGo {
                // It has not run since it was let go of.
                last_runs.extend(entry.last_read.map(|runs| entry.runs(runs)));
                released.push(State::Released(Released {
                    id: entry.id,
                    load_time_ns: entry.load_time_ns,
                    after_ns: entry.used_ns,
                    before_ns: now_ns,
                }));
            } else if !entry.is_iterator {
                // Its unload was that of its owners.
                self.unheld += 1;
            }
        }
        if !last_runs.is_empty() {
            states.extend(self.run_states(now_ns, &last_runs));
        }
        states.append(&mut released);
        ids
    }

    /// Iterators of recorders, by which these are known.
    fn recorders(&self) -> BTreeSet<u32> {
        let counts = self.refs.as_ref().and_then(|refs| refs.read().ok()).unwrap_or_default();
        counts.into_iter().filter(|count| count.is_recorder).map(|count| count.id).collect()
    }

    /// Programs that other parts of the recorder hold.
    pub(crate) fn set_own_references(&mut self, references: HashMap<u32, i64>) {
        let before = std::mem::replace(&mut self.own_references, references);
        let Some(refs) = &self.refs else { return };
        let ids: BTreeSet<u32> = before.keys().chain(self.own_references.keys()).copied().collect();
        for id in ids.into_iter().filter(|id| before.get(id) != self.own_references.get(id)) {
            let own = self.own_references.get(&id).copied().unwrap_or(0);
            let is_held = self.entries.get(&id).is_some_and(|entry| entry.descriptor.is_some());
            refs.set_held(id, own + i64::from(is_held));
        }
    }

    /// Attachments of others' programs, as far as they were read.
    pub(crate) fn attachments(&self) -> impl Iterator<Item = &Attachment> {
        self.entries.values().flat_map(|entry| &entry.attachments)
    }

    /// The recorder is about to close the last descriptors of programs ([`Programs::let_go`]). Other programs may be at their addresses afterwards.
    pub(crate) fn lets_go(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Closes the descriptors of what nobody else uses, so that the kernel can unload it, and forgets what has gone. Its info was journalled
    /// when it was loaded: nothing more is to be said of it.
    pub(crate) fn let_go(&mut self) {
        self.leaving.clear();
        self.forget_released();
    }

    /// Forgets what has gone, with its types.
    fn forget_released(&mut self) {
        let before = self.entries.len();
        self.entries.retain(|_, entry| !entry.released);
        let gone = before - self.entries.len();
        if gone > 0 {
            self.let_go += gone as u32;
            self.btfs.drop_unused();
        }
    }

    /// Looks at what is around programs not looked at yet: owners, maps, attachments, pins. Programs that have only just
    /// come are left for the next time, most of them being gone by then, unless this is the last.
    pub(crate) fn survey(&mut self, is_last: bool) -> Vec<State> {
        let mut states = Vec::new();
        let due = |entry: &Entry| !entry.surveyed && !entry.released && (entry.settled || is_last);
        let programs: Vec<&ProgSnapshot> =
            self.entries.values().filter(|entry| due(entry)).map(|entry| &entry.snapshot).collect();
        if !programs.is_empty() {
            let around = Attachments::scan(&programs, &self.btfs, &self.recorders());
            for entry in self.entries.values_mut().filter(|entry| due(entry)) {
                let mut program = around.program(&entry.snapshot, entry.loaded_during);
                let its = |attachment: &&Attachment| attachment.prog_id == entry.id;
                let found = around.of(entry.id);
                // The events of our own programs are known by name; a scan shows a link per CPU.
                let ours = self.own.iter().filter(its).cloned().collect::<Vec<_>>();
                if ours.is_empty() {
                    entry.attachments = found.to_vec();
                    states.extend(found.iter().cloned().map(State::Attachment));
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
        for entry in self.entries.values_mut() {
            entry.surveyed |= !entry.released && (entry.settled || is_last);
            entry.settled = true;
        }
        states
    }

    /// Takes in the images that there were when the recorder began to listen.
    pub(crate) fn add_images(&mut self, images: Vec<KernelSymbol>) {
        for image in images {
            self.images.entry(image.addr).or_insert(Some(image));
        }
        self.images.retain(|_, image| image.is_some());
        self.has_first_images = true;
    }

    /// The images that there are, by address.
    pub(crate) fn images(&self) -> impl Iterator<Item = &KernelSymbol> {
        self.images.values().flatten()
    }

    /// Reads the program arrays and returns those that changed.
    pub(crate) fn changed_prog_arrays(&mut self) -> Vec<State> {
        let now = prog_arrays(self.prog_arrays.keys().copied());
        take_changed(&mut self.prog_arrays, now).collect()
    }

    /// Reads a BTF blob and adds it to the file.
    pub(crate) fn btf(&self, id: u32) -> Result<Arc<[u8]>, bprec_bpf::Error> {
        self.btfs.get(id)
    }

    /// Returns true if a program is of type perf_event.
    pub(crate) fn is_perf_event(&self, prog_id: u32) -> bool {
        let entry = self.entries.get(&prog_id);
        entry.is_some_and(|entry| entry.snapshot.info.view().prog_type() == Some(ProgType::PERF_EVENT))
    }

    /// Links, maps and processes that could not be read, each once.
    pub(crate) fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Returns the contents of the feature sections: the loaded programs, and their BTF by ascending id.
    pub(crate) fn of_file(&self) -> ProgramsOfFile {
        let infos = self.entries.values().map(|entry| entry.snapshot.info.clone()).collect();
        ProgramsOfFile { infos, btfs: self.btfs.all(), let_go: self.let_go }
    }

    /// Begins another file: released programs are not in it, and all facts of the others are written again.
    pub(crate) fn begin_file(&mut self) {
        self.forget_released();
        self.let_go_before += std::mem::take(&mut self.let_go);
        self.prog_arrays.clear();
        for entry in self.entries.values_mut() {
            (entry.loaded_during, entry.surveyed, entry.settled) = (false, false, true);
            entry.attachments.clear();
        }
    }
}

/// Declares this recorder's references of a program to other recorders. If that fails, the descriptor is closed: an undeclared one would keep the program loaded for ever.
fn tell_held(refs: Option<&Refs>, entry: &mut Entry, own_references: &HashMap<u32, i64>) {
    let Some(refs) = refs else { return };
    let own = own_references.get(&entry.id).copied().unwrap_or(0);
    if !refs.set_held(entry.id, own + i64::from(entry.descriptor.is_some())) {
        entry.descriptor = None;
    }
}

/// Programs whose run statistics are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// All programs.
    All,
    /// Programs that have run since all were read.
    Changed,
}

/// Makes the state. The pair has the time for which statistics had been on, ns: by the recorder, and by others alone.
fn run_stats(time_ns: u64, programs: Vec<ProgramRuns>, (on_ns, others_ns): (u64, u64)) -> State {
    State::RunStats(state::RunStats { time_ns, programs, on_ns: Some(on_ns), others_ns: Some(others_ns) })
}

/// Returns the arrays that differ from their last reading as states, and keeps them as the last reading.
fn take_changed<'a>(
    last: &'a mut BTreeMap<u32, ProgArray>,
    now: Vec<ProgArray>,
) -> impl Iterator<Item = State> + use<'a> {
    now.into_iter().filter_map(|array| {
        let is_new = last.insert(array.map_id, array.clone()).as_ref() != Some(&array);
        is_new.then_some(State::ProgArray(array))
    })
}
