//! A BPF program that has not gone, what is known of it, and the descriptor that keeps it.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use bprec_bpf::{ProgSnapshot, Program, RunStats, lists_references};
use bprec_format::bpf::btf::Btf as BtfTypes;
use bprec_format::bprec::state::{Attachment, ProgramRuns};

/// For so long a program counts as one that came a moment ago.
const NEW_FOR_NS: u64 = 5_000_000_000;

/// A function of a program.
#[derive(Debug)]
pub(crate) struct Function {
    /// Its position; the entry is 0.
    pub(crate) index: u32,
    /// Its type, where there is BTF.
    pub(crate) type_id: Option<u32>,
    /// Its full name; empty where BTF has none.
    pub(crate) name: String,
}

/// A program that has not gone.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: u32,
    /// Keeps it in the kernel until its last runs are read. Without, the program is looked up for each reading, and its unload is that of its
    /// owners.
    pub(super) descriptor: Option<Program>,
    /// It is a recorder's iterator over references, which nobody else holds.
    pub(super) is_iterator: bool,
    pub(super) snapshot: ProgSnapshot,
    /// Its functions, found in its types when somebody first asks.
    functions: OnceCell<Vec<Function>>,
    /// Its attachments, as far as they were read.
    pub(super) attachments: Vec<Attachment>,
    pub(super) load_time_ns: u64,
    pub(super) loaded_during: bool,
    /// When it was taken, ns of the recording's clock.
    pub(super) taken_ns: u64,
    /// When it was last known to be used by others, ns of the recording's clock.
    pub(super) used_ns: u64,
    pub(super) use_: Use,
    /// Its run statistics as they were read when those of all programs were.
    pub(super) last_read: Option<RunStats>,
    /// Its runs when new ones were counted last.
    pub(super) counted_runs: Option<u64>,
    pub(super) released: bool,
    /// Its surroundings have been looked at.
    pub(super) surveyed: bool,
    /// It was there at the last look at references already.
    pub(super) settled: bool,
}

/// Use of a program by others, as of the last look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// It has references that are no recorder's.
    Sure,
    /// All references are recorders', since the last look.
    Doubtful,
    /// Released: recorders alone had it.
    LetGo,
}

/// A program that has not gone, and what is known of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Known<'a> {
    pub(super) entry: &'a Entry,
    pub(crate) snapshot: &'a ProgSnapshot,
}

impl<'a> Known<'a> {
    pub(crate) fn id(self) -> u32 {
        self.entry.id
    }

    /// Id and load time.
    pub(crate) fn key(self) -> (u32, u64) {
        (self.entry.id, self.entry.load_time_ns)
    }

    /// Another descriptor of it.
    pub(crate) fn descriptor(self) -> io::Result<OwnedFd> {
        let copy = |program: &Program| program.as_fd().try_clone_to_owned();
        self.entry.ask(copy).unwrap_or_else(|| Err(io::Error::from_raw_os_error(libc::ENOENT)))
    }

    /// Its functions, the entry first.
    pub(crate) fn functions(&self) -> &'a [Function] {
        self.entry.functions.get_or_init(|| functions(self.snapshot))
    }

    /// The full name of its entry function, or else the kernel's short one.
    pub(crate) fn name(self) -> Cow<'a, str> {
        match self.functions().first().filter(|entry| !entry.name.is_empty()) {
            Some(entry) => Cow::Borrowed(&entry.name),
            None => String::from_utf8_lossy(self.snapshot.info.view().name().unwrap_or_default()).into_owned().into(),
        }
    }
}

/// Functions of a program with their names in its types.
fn functions(snapshot: &ProgSnapshot) -> Vec<Function> {
    let btf = snapshot.btf.as_deref().and_then(|btf| BtfTypes::parse(btf).ok());
    let functions = snapshot.info.view();
    let functions = functions.functions().map(|function| {
        let named = btf.as_ref().and_then(|btf| btf.type_by_id(function.type_id?)?.name());
        let name = named.map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default();
        Function { index: function.index as u32, type_id: function.type_id, name }
    });
    functions.collect()
}

impl Entry {
    /// A program that was taken at `taken_ns`, and others use. A `descriptor` keeps it.
    pub(super) fn new(
        id: u32,
        descriptor: Option<Program>,
        snapshot: ProgSnapshot,
        taken_ns: u64,
        loaded_during: bool,
    ) -> Entry {
        // Not held: entries of another recorder count for as long as its iterator is loaded, and must vanish with it.
        let is_iterator = lists_references(snapshot.info.view().name().unwrap_or_default());
        Entry {
            id,
            descriptor: descriptor.filter(|_| !is_iterator),
            is_iterator,
            load_time_ns: snapshot.info.view().load_time_ns().unwrap_or(0),
            snapshot,
            functions: OnceCell::new(),
            attachments: Vec::new(),
            loaded_during,
            taken_ns,
            used_ns: taken_ns,
            use_: Use::Sure,
            last_read: None,
            counted_runs: None,
            released: false,
            surveyed: false,
            settled: !loaded_during,
        }
    }

    pub(super) fn is_new(&self, now_ns: u64) -> bool {
        self.loaded_during && now_ns.saturating_sub(self.taken_ns) < NEW_FOR_NS
    }

    /// Returns true for a snapshot of this program.
    pub(super) fn is(&self, snapshot: &ProgSnapshot) -> bool {
        snapshot.info.view().load_time_ns().unwrap_or(0) == self.load_time_ns
    }

    /// The program that has the id now, if it is this one.
    pub(super) fn look_up(&self) -> Option<Program> {
        let program = Program::take(self.id).ok()?;
        (program.load_time_ns().ok()? == self.load_time_ns).then_some(program)
    }

    /// Asks the kernel about it; `None` when it has gone.
    pub(super) fn ask<T>(&self, question: impl FnOnce(&Program) -> T) -> Option<T> {
        match &self.descriptor {
            Some(program) => Some(question(program)),
            None => self.look_up().as_ref().map(question),
        }
    }

    /// Its run statistics as of now.
    pub(super) fn read(&self) -> Option<ProgramRuns> {
        self.ask(Program::stats)?.ok().map(|runs| self.runs(runs))
    }

    /// Gives its descriptor up, to be closed later. Returns its run statistics as of now.
    pub(super) fn let_go(&mut self, leaving: &mut Vec<Program>) -> Option<ProgramRuns> {
        let runs = self.ask(Program::stats).and_then(Result::ok);
        self.last_read = runs.or(self.last_read);
        leaving.extend(self.descriptor.take());
        runs.map(|runs| self.runs(runs))
    }

    /// Runs that were not counted yet: none of a program that was there before all of them are counted first.
    pub(super) fn new_runs(&mut self, run_cnt: u64) -> u64 {
        let first = if self.loaded_during { 0 } else { run_cnt };
        run_cnt.saturating_sub(self.counted_runs.replace(run_cnt).unwrap_or(first))
    }

    pub(super) fn runs(&self, runs: RunStats) -> ProgramRuns {
        ProgramRuns {
            id: self.id,
            load_time_ns: self.load_time_ns,
            run_time_ns: runs.run_time_ns,
            run_cnt: runs.run_cnt,
            recursion_misses: runs.recursion_misses,
        }
    }
}
