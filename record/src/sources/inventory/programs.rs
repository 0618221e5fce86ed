//! The BPF programs of a recording, with descriptors of programs that other processes use.

use std::collections::btree_map::Entry::Occupied;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use bprec_bpf::{
    Attachments, BtfCache, Kallsyms, ProgSnapshot, Program, Refs, counts_others, owner, prog_arrays, prog_ids,
};
use bprec_format::bpf::names::ProgType;
use bprec_format::bpf::prog_info::ProgInfoBuf;
use bprec_format::bprec::state::{self, Attachment, KernelSymbol, Missed, ProgArray, ProgramRuns, Released, State};

use super::Holding;
use super::entry::{Entry, Known, Use};
use super::load_watcher::LoadEvent;
use super::on_time::OnTime;
use crate::sys;

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
    /// References that this recorder announces to other recorders. Declared before the descriptors so that it is dropped first: an announced
    /// reference must still be held.
    refs: Option<Refs>,
    btfs: Arc<BtfCache>,
    /// Kernel symbols as of the start, if they were read.
    pub(crate) kallsyms: Option<Arc<Kallsyms>>,
    entries: BTreeMap<u32, Entry>,
    /// Descriptors to close after every source was called.
    leaving: Vec<Program>,
    missed: u32,
    /// True if the kernel listed all programs at the start.
    is_complete: bool,
    /// True if a program kept no descriptor because too few were free.
    lacks_descriptors: bool,
    /// Number of unloaded programs for which the recorder had no descriptor.
    unheld: u32,
    /// Number of programs released during this file.
    let_go: u32,
    /// Number of programs released before this file.
    let_go_before: u32,
    /// Runs of released programs since new runs were last counted.
    last_runs: u64,
    /// Messages about links, maps and processes that could not be read while looking at programs. Each message is listed once.
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
    /// Images that are not programs (trampolines, dispatchers, stubs), by address. `None` marks an image that is gone, so that
    /// [`Programs::add_images`] does not add it again from an older list.
    images: BTreeMap<u64, Option<KernelSymbol>>,
    has_first_images: bool,
}

impl Programs {
    /// Makes an empty inventory. `refs` lists the references of all processes; `own` are the attachments of the recording
    /// itself.
    pub(crate) fn new(btfs: Arc<BtfCache>, refs: Option<Refs>, own: Vec<Attachment>) -> Programs {
        let refs_id = refs.iter().map(Refs::own_id).collect();
        Programs {
            refs,
            btfs,
            kallsyms: None,
            entries: BTreeMap::new(),
            leaving: Vec::new(),
            missed: 0,
            is_complete: false,
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
                // The program was unloaded after it was listed, so it was never part of the recording.
                Err(error) if error.is_gone() => (),
                Err(error) => missed.push(Missed { id, tag: None, time_ns, reason: error.to_string() }),
            }
        }
        self.missed += missed.len() as u32;
        self.is_complete = true;
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
                let programs = caught.runs.map(|runs| vec![entry.runs(runs)]);
                states.extend(programs.map(|programs| run_stats(taken_ns, programs, on_time)));
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
        declare_references(self.refs.as_ref(), entry, &self.own_references);
        entry
    }

    /// Returns the facts of all loaded programs, by ascending id.
    pub(crate) fn snapshots(&self) -> impl Iterator<Item = &ProgSnapshot> {
        self.entries.values().map(|entry| &entry.snapshot)
    }

    /// Returns the programs that other processes use, without this recording's own programs.
    pub(crate) fn known(&self) -> impl Iterator<Item = Known<'_>> {
        let there = self.entries.values().filter(|entry| !entry.released && !self.own_ids.contains(&entry.id));
        there.map(|entry| Known { entry, snapshot: &entry.snapshot })
    }

    /// Returns the count of captured programs and the count of missed programs.
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

    /// Reads the run statistics of all programs that can still run. Returns the statistics as a state, and the count of runs
    /// of all programs since the last call of this function or of [`Programs::new_runs`]. With [`Reading::Changed`], the
    /// state leaves out programs that have not run since the last reading with `Reading::All`.
    pub(crate) fn run_stats(&mut self, reading: Reading) -> (State, u64) {
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
        // Reading can take long on a busy machine, so its midpoint counts as its time.
        let time_ns = began_ns.midpoint(sys::monotonic_ns());
        (run_stats(time_ns, programs, self.on_time.at(time_ns)), new_runs)
    }

    /// Returns the last reading of all programs that can still run, as a state with this time.
    pub(crate) fn last_run_stats(&self, time_ns: u64) -> State {
        let there = self.entries.values().filter(|entry| !entry.released);
        let programs = there.filter_map(|entry| Some(entry.runs(entry.last_read?)));
        run_stats(time_ns, programs.collect(), self.on_time.at(time_ns))
    }

    /// Returns the runs of all programs since the last count. The difference is taken for each program, so the sum stays right when a program is
    /// unloaded.
    pub(crate) fn new_runs(&mut self) -> u64 {
        let mut new_runs = std::mem::take(&mut self.last_runs);
        for entry in self.entries.values_mut().filter(|entry| !entry.released) {
            if let Some(runs) = entry.read() {
                new_runs += entry.new_runs(runs.run_cnt);
            }
        }
        new_runs
    }

    /// Sets the counter of the time for which run statistics have been on.
    pub(crate) fn set_on_time(&mut self, on_time: OnTime) {
        self.on_time = on_time;
    }

    /// Adds a program that this recording loaded for itself.
    pub(crate) fn add_own(&mut self, id: u32) {
        self.own_ids.push(id);
    }

    /// Returns the runs of each program that can still run, by id, from run statistics. Programs that count other programs are left out:
    /// they run with the counted programs, and many times during their calibration.
    pub(crate) fn run_counts(&self) -> HashMap<u32, u64> {
        let is_load =
            |entry: &&Entry| !entry.released && !counts_others(entry.snapshot.info.view().name().unwrap_or_default());
        let there = self.entries.values().filter(is_load);
        there.filter_map(|entry| Some((entry.id, entry.read()?.run_cnt))).collect()
    }

    /// Returns true if a program is new, or only recorders had references to it at the last check: most such programs
    /// are unloaded soon.
    pub(crate) fn expects_releases(&self) -> bool {
        let now_ns = sys::monotonic_ns();
        let is_expected = |entry: &Entry| !entry.released && (entry.is_new(now_ns) || entry.use_ == Use::Doubtful);
        self.refs.is_some() && self.entries.values().any(is_expected)
    }

    /// Checks the references of all programs, and releases programs that no other process uses, with their last statistics. Returns
    /// the ids of released programs.
    ///
    /// A program is used if it has more references than all recorders have declared ([`Refs::set_held`]). If another recorder
    /// still has a reference on an unused program, the program is released only at the second check: the other recorder may be
    /// releasing that reference.
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
            declare_references(Some(refs), entry, &self.own_references);
            runs
        };
        let counts = match refs.read() {
            Ok(counts) => counts,
            Err(error) => {
                let runs: Vec<ProgramRuns> = self.entries.values_mut().filter_map(let_go_of).collect();
                let now_ns = sys::monotonic_ns();
                states.push(run_stats(now_ns, runs, self.on_time.at(now_ns)));
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
                    // The program may be unloaded before the recorder opens it, if its users release it now. Its entry
                    // then stays as it is until the next check.
                    let Some(program) = entry.look_up() else { continue };
                    entry.descriptor = Holding::WhileThereAreDescriptors.keep(program);
                    can_hold = entry.descriptor.is_some();
                    declare_references(Some(refs), entry, &self.own_references);
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
                // The program is unloaded when the other recorders release it, too.
                Use::LetGo => continue,
            }
            entry.use_ = Use::LetGo;
            last_runs.extend(let_go_of(entry));
        }
        let time_ns = sys::monotonic_ns();
        if !last_runs.is_empty() {
            states.push(run_stats(time_ns, last_runs, self.on_time.at(time_ns)));
        }
        let alive = counts.iter().map(|count| count.id).collect();
        let_go.extend(self.find_gone(&alive, time_ns, states));
        Ok(let_go)
    }

    /// Marks programs without a descriptor as released if their id is not in `alive`. Appends the last states of all programs
    /// that are marked as released, and returns the ids of these programs.
    fn find_gone(&mut self, alive: &BTreeSet<u32>, now_ns: u64, states: &mut Vec<State>) -> Vec<u32> {
        let is_gone = |entry: &&mut Entry| entry.released || entry.descriptor.is_none() && !alive.contains(&entry.id);
        let gone = self.entries.values_mut().filter(is_gone);
        let (mut ids, mut last_runs, mut released) = (Vec::new(), Vec::new(), Vec::new());
        for entry in gone {
            entry.released = true;
            ids.push(entry.id);
            if entry.use_ == Use::LetGo {
                // The program cannot have run after its release, so its last reading is its final count.
                last_runs.extend(entry.last_read.map(|runs| entry.runs(runs)));
                released.push(State::Released(Released {
                    id: entry.id,
                    load_time_ns: entry.load_time_ns,
                    after_ns: entry.used_ns,
                    before_ns: now_ns,
                }));
            } else if !entry.is_iterator {
                // The program was unloaded while the recorder had no descriptor of it.
                self.unheld += 1;
            }
        }
        if !last_runs.is_empty() {
            states.push(run_stats(now_ns, last_runs, self.on_time.at(now_ns)));
        }
        states.append(&mut released);
        ids
    }

    /// Ids of the BPF iterator programs of all recorders. Each recorder has one.
    fn recorders(&self) -> BTreeSet<u32> {
        let counts = self.refs.as_ref().and_then(|refs| refs.read().ok()).unwrap_or_default();
        counts.into_iter().filter(|count| count.is_recorder).map(|count| count.id).collect()
    }

    /// Sets the number of references that other parts of the recorder hold, by program id.
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

    /// Attachments that were read so far, of programs that this recording did not load.
    pub(crate) fn attachments(&self) -> impl Iterator<Item = &Attachment> {
        self.entries.values().flat_map(|entry| &entry.attachments)
    }

    /// Returns true if [`Programs::let_go`] will close descriptors of programs. The kernel may then load other programs at the same addresses.
    pub(crate) fn lets_go(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Closes the descriptors of released programs, so that the kernel can unload them. Removes unloaded programs from the list; their info was
    /// journalled when they were loaded.
    pub(crate) fn let_go(&mut self) {
        self.leaving.clear();
        self.forget_released();
    }

    /// Removes released programs and their BTF.
    fn forget_released(&mut self) {
        let before = self.entries.len();
        self.entries.retain(|_, entry| !entry.released);
        let gone = before - self.entries.len();
        if gone > 0 {
            self.let_go += gone as u32;
            self.btfs.drop_unused();
        }
    }

    /// Reads owners, maps, attachments and pins of programs for which they were not read yet. New programs wait for the next call, because most of
    /// them are unloaded by then. With `is_last`, new programs are read, too.
    pub(crate) fn survey(&mut self, is_last: bool) -> Vec<State> {
        let mut states = Vec::new();
        let due = |entry: &Entry| !entry.surveyed && !entry.released && (entry.settled || is_last);
        let programs: Vec<&ProgSnapshot> =
            self.entries.values().filter(|entry| due(entry)).map(|entry| &entry.snapshot).collect();
        if !programs.is_empty() {
            let around = Attachments::scan(&programs, &self.btfs, &self.recorders(), self.kallsyms.as_deref());
            for entry in self.entries.values_mut().filter(|entry| due(entry)) {
                let mut program = around.program(&entry.snapshot, entry.loaded_during);
                let its = |attachment: &&Attachment| attachment.prog_id == entry.id;
                let found = around.of(entry.id);
                // Attachments of the recording's own programs are taken from `own`, with the name of the event. The
                // scan finds one link per CPU instead.
                let ours = self.own.iter().filter(its).cloned().collect::<Vec<_>>();
                // The scan does not count this process as an owner, because it holds descriptors of all programs only
                // to observe them. This process does own the programs that it loaded.
                if !ours.is_empty() || self.own_ids.contains(&entry.id) {
                    program.owners = owner(std::process::id()).into_iter().collect();
                }
                if ours.is_empty() {
                    entry.attachments = found.to_vec();
                    states.extend(found.iter().cloned().map(State::Attachment));
                } else {
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

    /// Returns true if there may be images (trampolines, dispatchers, stubs) now: a program has a type that needs one, or programs could not be read.
    pub(crate) fn may_have_images(&self) -> bool {
        const WITH_IMAGES: [ProgType; 5] =
            [ProgType::XDP, ProgType::TRACING, ProgType::STRUCT_OPS, ProgType::EXT, ProgType::LSM];
        let has_image = |entry: &Entry| {
            let kind = entry.snapshot.info.view().prog_type();
            !entry.is_iterator && kind.is_none_or(|kind| WITH_IMAGES.contains(&kind))
        };
        !self.is_complete || self.missed > 0 || self.entries.values().any(has_image)
    }

    /// Adds images that existed before the recorder began to listen.
    pub(crate) fn add_images(&mut self, images: Vec<KernelSymbol>) {
        for image in images {
            self.images.entry(image.addr).or_insert(Some(image));
        }
        self.images.retain(|_, image| image.is_some());
        self.has_first_images = true;
    }

    /// Images that exist now, by address.
    pub(crate) fn images(&self) -> impl Iterator<Item = &KernelSymbol> {
        self.images.values().flatten()
    }

    /// Reads the program arrays and returns the arrays that changed.
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

    /// Messages about links, maps and processes that could not be read. Each message is listed once.
    pub(crate) fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Returns the contents of the feature sections: the loaded programs, and their BTF by ascending id.
    pub(crate) fn of_file(&self) -> ProgramsOfFile {
        let infos = self.entries.values().map(|entry| entry.snapshot.info.clone()).collect();
        ProgramsOfFile { infos, btfs: self.btfs.all(), let_go: self.let_go }
    }

    /// Begins another file: released programs are left out, and all facts of the other programs are written again.
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

/// Declares the references of this recorder on a program to other recorders. If that fails, closes the descriptor: with an undeclared reference,
/// other recorders would keep the program loaded for ever.
fn declare_references(refs: Option<&Refs>, entry: &mut Entry, own_references: &HashMap<u32, i64>) {
    let Some(refs) = refs else { return };
    let own = own_references.get(&entry.id).copied().unwrap_or(0);
    if !refs.set_held(entry.id, own + i64::from(entry.descriptor.is_some())) {
        entry.descriptor = None;
    }
}

/// Selection of programs for a reading of run statistics.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reading {
    /// All programs.
    All,
    /// Programs that have run since the last reading of all programs.
    Changed,
}

/// Makes a state with run statistics. The pair has the time for which statistics had been on, ns: by the recorder, and
/// by other tools alone.
fn run_stats(time_ns: u64, programs: Vec<ProgramRuns>, (on_ns, others_ns): (u64, u64)) -> State {
    State::RunStats(state::RunStats { time_ns, programs, on_ns: Some(on_ns), others_ns: Some(others_ns) })
}

/// Returns, as states, the arrays that differ from their last reading, and keeps `now` as the last reading.
fn take_changed<'a>(
    last: &'a mut BTreeMap<u32, ProgArray>,
    now: Vec<ProgArray>,
) -> impl Iterator<Item = State> + use<'a> {
    now.into_iter().filter_map(|array| {
        let is_new = last.insert(array.map_id, array.clone()).as_ref() != Some(&array);
        is_new.then_some(State::ProgArray(array))
    })
}
