//! A loaded BPF program: its info and BTF from the kernel, its attachments, and the descriptor that keeps it in the kernel.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use bprec_bpf::{ProgSnapshot, Program, RunStats, lists_references};
use bprec_format::bpf::btf::Btf as BtfTypes;
use bprec_format::bprec::state::{Attachment, ProgramRuns};

/// Time for which a program counts as new.
const NEW_FOR_NS: u64 = 5_000_000_000;

/// A function of a program.
#[derive(Debug)]
pub(crate) struct Function {
    /// Position of the function in the program; the entry function is 0.
    pub(crate) index: u32,
    /// BTF id of the function's type; `None` without BTF.
    pub(crate) type_id: Option<u32>,
    /// Full name of the function; empty if BTF has none.
    pub(crate) name: String,
}

/// A loaded program.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) id: u32,
    /// Descriptor that keeps the program loaded until its last runs are read. Without one, the program is looked up for each reading, and it is
    /// unloaded when its owners release it.
    pub(super) descriptor: Option<Program>,
    /// True for the BPF iterator program with which a recorder (this one or another) lists references to programs. Only the recorder that loaded the
    /// program holds it.
    pub(super) is_iterator: bool,
    pub(super) snapshot: ProgSnapshot,
    /// Functions of the program, read from its BTF at first use.
    functions: OnceCell<Vec<Function>>,
    /// Attachments that were read.
    pub(super) attachments: Vec<Attachment>,
    pub(super) load_time_ns: u64,
    pub(super) loaded_during: bool,
    /// Time at which the recorder found the program, ns of the recording's clock.
    pub(super) taken_ns: u64,
    /// Latest time at which other processes are known to use the program, ns of the recording's clock.
    pub(super) used_ns: u64,
    pub(super) use_: Use,
    /// Run statistics at the last reading of all programs.
    pub(super) last_read: Option<RunStats>,
    /// Number of runs at the last call of `new_runs`.
    pub(super) counted_runs: Option<u64>,
    pub(super) released: bool,
    /// True if attachments and owners have been read.
    pub(super) surveyed: bool,
    /// True if the program was loaded before the recording or before the last survey. Surveys skip programs that are
    /// not settled, because most new programs are unloaded soon.
    pub(super) settled: bool,
}

/// Use of a program by other processes, at the last check of references.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// Processes other than recorders have references.
    Sure,
    /// At the last check only recorders had references. The next check releases the program if that is still so.
    Doubtful,
    /// Released: only recorders had references.
    LetGo,
}

/// A loaded program with its facts, as sources see it.
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

    /// Opens another descriptor of the program.
    pub(crate) fn descriptor(self) -> io::Result<OwnedFd> {
        let copy = |program: &Program| program.as_fd().try_clone_to_owned();
        self.entry.ask(copy).unwrap_or_else(|| Err(io::Error::from_raw_os_error(libc::ENOENT)))
    }

    /// Functions of the program, the entry function first.
    pub(crate) fn functions(&self) -> &'a [Function] {
        self.entry.functions.get_or_init(|| functions(self.snapshot))
    }

    /// Full name of the entry function, or the kernel's short name of the program.
    pub(crate) fn name(self) -> Cow<'a, str> {
        match self.functions().first().filter(|entry| !entry.name.is_empty()) {
            Some(entry) => Cow::Borrowed(&entry.name),
            None => String::from_utf8_lossy(self.snapshot.info.view().name().unwrap_or_default()).into_owned().into(),
        }
    }
}

/// Reads the functions of a program, with their names in its BTF.
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
    /// Makes the entry of a program that was found at `taken_ns` and is used by other processes. The `descriptor`, if any, keeps the program
    /// loaded.
    pub(super) fn new(
        id: u32,
        descriptor: Option<Program>,
        snapshot: ProgSnapshot,
        taken_ns: u64,
        loaded_during: bool,
    ) -> Entry {
        // The recorder keeps no descriptor of a BPF iterator program that lists references. The references that another recorder declares are valid
        // as long as its iterator program is loaded, so this program must be unloaded when that recorder exits.
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

    /// Returns true if the snapshot is of this program.
    pub(super) fn is(&self, snapshot: &ProgSnapshot) -> bool {
        snapshot.info.view().load_time_ns().unwrap_or(0) == self.load_time_ns
    }

    /// Opens the program that has this id now, if it is the same program.
    pub(super) fn look_up(&self) -> Option<Program> {
        let program = Program::take(self.id).ok()?;
        (program.load_time_ns().ok()? == self.load_time_ns).then_some(program)
    }

    /// Asks the kernel about the program; `None` if it is unloaded.
    pub(super) fn ask<T>(&self, question: impl FnOnce(&Program) -> T) -> Option<T> {
        match &self.descriptor {
            Some(program) => Some(question(program)),
            None => self.look_up().as_ref().map(question),
        }
    }

    /// Reads the program's run statistics.
    pub(super) fn read(&self) -> Option<ProgramRuns> {
        self.ask(Program::stats)?.ok().map(|runs| self.runs(runs))
    }

    /// Moves the descriptor to `leaving`, to be closed later. Returns the current run statistics.
    pub(super) fn let_go(&mut self, leaving: &mut Vec<Program>) -> Option<ProgramRuns> {
        let runs = self.ask(Program::stats).and_then(Result::ok);
        self.last_read = runs.or(self.last_read);
        leaving.extend(self.descriptor.take());
        runs.map(|runs| self.runs(runs))
    }

    /// Returns the runs since the last call; 0 at the first call for a program that was loaded before the recording.
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
