//! The BPF programs of a recording, and descriptors of those that others use.

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

/// Programs whose statistics go into one payload.
const RUNS_PER_STATE: usize = 1000;

/// A BTF blob with its id.
type Btf = (u32, Arc<[u8]>);

/// Programs in a file's feature sections.
#[derive(Debug)]
pub(crate) struct ProgramsOfFile {
    pub(crate) infos: Vec<ProgInfoBuf>,
    /// By ascending id.
    pub(crate) btfs: Vec<Btf>,
    /// Number of others, which only the journal has.
    pub(crate) let_go: u32,
}

/// Every program seen.
#[derive(Debug)]
pub(crate) struct Programs {
    /// Goes before the descriptors: who sees it counts on these.
    refs: Option<Refs>,
    btfs: Arc<BtfCache>,
    entries: BTreeMap<u32, Entry>,
    /// Descriptors to be closed when every source has had its call.
    leaving: Vec<Program>,
    missed: u32,
    /// A program got no descriptor because there were too few.
    lacks_descriptors: bool,
    /// Programs that have gone and of which the recorder had no descriptor.
    unheld: u32,
    /// Programs of this file's time that have gone.
    let_go: u32,
    /// The same before it.
    let_go_before: u32,
    /// Last runs of programs that were let go of, since new runs were counted.
    last_runs: u64,
    /// Objects around programs that could not be read, each said once.
    problems: Vec<String>,
    /// Attachments of this recording's own programs.
    own: Vec<Attachment>,
    /// References on programs that other parts of the recorder hold.
    own_references: HashMap<u32, i64>,
    on_time: OnTime,
    /// Ids of programs that this recording itself has loaded, and that are nobody's load.
    own_ids: Vec<u32>,
    /// The last reading of each program array, by map.
    prog_arrays: BTreeMap<u32, ProgArray>,
    /// Images that the kernel has made beside programs, by address; `None` for one that has gone while those that were there first are not
    /// known yet.
    images: BTreeMap<u64, Option<KernelSymbol>>,
    has_first_images: bool,
}

impl Programs {
    /// Empty. `refs` tells who else holds programs; `own` are the attachments of the recording itself.
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

    /// Programs loaded from now on that get a descriptor.
    pub(crate) fn holding(&self) -> Holding {
        Holding::with(self.refs.as_ref())
    }

    /// Takes in every program alive now. What could not be taken is returned; an error stands for all that cannot be listed.
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
            // The one that had the id before has gone unseen.
            self.let_go += 1;
        }
        let entry = known.insert_entry(entry).into_mut();
        tell_held(self.refs.as_ref(), entry, &self.own_references);
        entry
    }

    /// Returns the facts of all programs that have not gone, by ascending id.
    pub(crate) fn snapshots(&self) -> impl Iterator<Item = &ProgSnapshot> {
        self.entries.values().map(|entry| &entry.snapshot)
    }

    /// The programs that others use, but for our own.
    pub(crate) fn known(&self) -> impl Iterator<Item = Known<'_>> {
        let there = self.entries.values().filter(|entry| !entry.released && !self.own_ids.contains(&entry.id));
        there.map(|entry| Known { entry, snapshot: &entry.snapshot })
    }

    /// Programs captured, and programs that were not.
    pub(crate) fn counts(&self) -> (u32, u32) {
        (self.entries.len() as u32 + self.let_go + self.let_go_before, self.missed)
    }

    /// Programs of which the recorder had no descriptor when they were unloaded: of their runs, those after the last reading are unknown.
    pub(crate) fn unheld(&self) -> u32 {
        self.unheld
    }

    /// There were too few descriptors for all programs.
    pub(crate) fn lacks_descriptors(&self) -> bool {
        self.lacks_descriptors
    }

    /// Run statistics of all programs that can still run, as of now, and the runs of all programs since the last call or that of
    /// [`Programs::new_runs`]. With [`Reading::Changed`] the states
    /// leave out programs whose counts are what they were when all were read last.
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
        // On a busy machine it takes its time.
        let time_ns = began_ns.midpoint(sys::monotonic_ns());
        // An empty one says when and for how long statistics had been on by then.
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

    /// Runs of all programs since they were counted last. Each is counted by itself: a program that has gone takes no runs of others along.
    pub(crate) fn new_runs(&mut self) -> u64 {
        let mut new_runs = std::mem::take(&mut self.last_runs);
        for entry in self.entries.values_mut().filter(|entry| !entry.released) {
            if let Some(runs) = entry.read() {
                new_runs += entry.new_runs(runs.run_cnt);
            }
        }
        new_runs
    }

    /// The clock that tells for how long run statistics have been on.
    pub(crate) fn set_on_time(&mut self, on_time: OnTime) {
        self.on_time = on_time;
    }

    /// A program that this recording itself has loaded, and that is nobody's load.
    pub(crate) fn add_own(&mut self, id: u32) {
        self.own_ids.push(id);
    }

    /// Runs of each program that can still run, by id, as run statistics have them. Programs that count others are left out: they run
    /// with these, and for a moment many times to find out what that costs.
    pub(crate) fn run_counts(&self) -> HashMap<u32, u64> {
        let is_load =
            |entry: &&Entry| !entry.released && !counts_others(entry.snapshot.info.view().name().unwrap_or_default());
        let there = self.entries.values().filter(is_load);
        there.filter_map(|entry| Some((entry.id, entry.read()?.run_cnt))).collect()
    }

    /// True while there are programs that came a moment ago, or may have been let go of: most of these are gone soon.
    pub(crate) fn expects_releases(&self) -> bool {
        let now_ns = sys::monotonic_ns();
        let is_expected = |entry: &Entry| !entry.released && (entry.is_new(now_ns) || entry.use_ == Use::Doubtful);
        self.refs.is_some() && self.entries.values().any(is_expected)
    }

    /// Looks who else holds the programs, and gives up those that nobody uses, with their last statistics. Returns the ids of those that
    /// were let go of.
    ///
    /// A program is used if it has more references than this recorder and others have told of ([`Refs::set_held`]). Where other recorders are
    /// left it is let go of at the second look: one that has told of a reference may just be giving it up.
    ///
    /// # Errors
    /// When it cannot be found out. Nothing is held then.
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

    /// Changes in program arrays since they were read.
    pub(crate) fn changed_prog_arrays(&mut self) -> Vec<State> {
        let now = prog_arrays(self.prog_arrays.keys().copied());
        take_changed(&mut self.prog_arrays, now).collect()
    }

    /// A BTF blob, which from then on is one of the file's.
    pub(crate) fn btf(&self, id: u32) -> Result<Arc<[u8]>, bprec_bpf::Error> {
        self.btfs.get(id)
    }

    /// True if a program is of type perf_event.
    pub(crate) fn is_perf_event(&self, prog_id: u32) -> bool {
        let entry = self.entries.get(&prog_id);
        entry.is_some_and(|entry| entry.snapshot.info.view().prog_type() == Some(ProgType::PERF_EVENT))
    }

    /// Objects that could not be read, each said once.
    pub(crate) fn problems(&self) -> &[String] {
        &self.problems
    }

    /// Returns the contents of the feature sections: the programs that have not gone, and their BTF by ascending id.
    pub(crate) fn of_file(&self) -> ProgramsOfFile {
        let infos = self.entries.values().map(|entry| entry.snapshot.info.clone()).collect();
        ProgramsOfFile { infos, btfs: self.btfs.all(), let_go: self.let_go }
    }

    /// Another file begins: what everyone else has let go of is none of it, and of the others everything is to be said again.
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

/// Tells other recorders what this one has of a program. A descriptor of which they cannot be told would keep it for good, so it is given up.
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
    /// All.
    All,
    /// Programs that have run since all were read.
    Changed,
}

/// `on` is for how long statistics had been on by then, ours and others'.
fn run_stats(time_ns: u64, programs: Vec<ProgramRuns>, (on_ns, others_ns): (u64, u64)) -> State {
    State::RunStats(state::RunStats { time_ns, programs, on_ns: Some(on_ns), others_ns: Some(others_ns) })
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
