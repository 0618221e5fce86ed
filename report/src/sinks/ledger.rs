//! The ledger: what is charged to each program, by column and by part.

use crate::charge::{Attribution, Column, Inside};
use crate::model::Count;
use crate::options::Split;
use rustc_hash::FxHashMap;

/// What a program's cost is split by: the part that a sample goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Key {
    /// The program's own code.
    Code,
    /// What runs the program.
    Entry,
    /// A function of the program.
    Function(u32),
    /// Tasks of a name.
    Comm(u32),
    /// A thread whose name is not known.
    Thread(u32),
    /// A CPU.
    Cpu(u32),
    /// A cgroup.
    Cgroup(u64),
    /// A kernel function.
    Kernel(u32),
    /// It cannot be told.
    Unknown,
}

/// What is charged to a program, by column of the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Charges {
    /// In its own code, any of its functions.
    pub(crate) own: Count,
    /// In kernel code that it called, or that interrupted it.
    pub(crate) helper: Count,
    /// In the code that exists to run it.
    pub(crate) entry: Count,
    /// Inclusive: also where another program ran inside. Not a part of [`Charges::sum`].
    pub(crate) total: Count,
}

impl Charges {
    /// What is charged to it: each sample is in one program's sum.
    pub(crate) fn sum(&self) -> Count {
        self.own + self.helper + self.entry
    }

    pub(crate) fn merge(&mut self, other: &Charges) {
        self.own.merge(other.own);
        self.helper.merge(other.helper);
        self.entry.merge(other.entry);
        self.total.merge(other.total);
    }

    fn column(&mut self, column: Column) -> &mut Count {
        match column {
            Column::Own => &mut self.own,
            Column::Helper => &mut self.helper,
            Column::Entry => &mut self.entry,
        }
    }
}

/// The ledger of one event.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventLedger {
    pub(crate) samples: Count,
    pub(crate) idle: Count,
    pub(crate) entry: Count,
    pub(crate) interpreted: Count,
    pub(crate) unresolved: Count,
    /// Of all samples, those in programs that run under the kernel's guard.
    pub(crate) guarded: Count,
    /// Counted in the kernel without room for where they were.
    pub(crate) overflow: Count,
    /// By program.
    pub(crate) programs: Vec<Charges>,
    /// By program and part.
    pub(crate) parts: FxHashMap<(u32, Key), Charges>,
    /// Time of the first and last sample.
    pub(crate) span: Option<(u64, u64)>,
    /// CPUs with samples, one bit each.
    pub(crate) cpus: Vec<u64>,
}

/// CPU numbers from here up are from no machine.
const MAX_CPUS: u32 = 1 << 16;

impl EventLedger {
    pub(crate) fn new(programs: usize) -> EventLedger {
        EventLedger { programs: vec![Charges::default(); programs], ..EventLedger::default() }
    }

    /// Counts a sample, or several that one record stands for, whosever they are.
    #[inline]
    pub(crate) fn sample(&mut self, count: Count, time_ns: Option<u64>, cpu: Option<u32>) {
        self.samples.merge(count);
        if let Some(time) = time_ns {
            let (first, last) = self.span.get_or_insert((time, time));
            *first = (*first).min(time);
            *last = (*last).max(time);
        }
        if let Some(cpu) = cpu.filter(|cpu| *cpu < MAX_CPUS) {
            let word = cpu as usize / 64;
            if word >= self.cpus.len() {
                self.cpus.resize(word + 1, 0);
            }
            self.cpus[word] |= 1 << (cpu % 64);
        }
    }

    /// Charges a sample, or several that one record stands for. `part` is where in the split of the program the charge goes.
    pub(crate) fn charge(
        &mut self,
        attribution: Attribution,
        count: Count,
        inside: &Inside,
        split: Option<Split>,
        part: Key,
    ) {
        match attribution {
            Attribution::Elsewhere => {}
            Attribution::Entry => self.entry.merge(count),
            Attribution::Interpreted => self.interpreted.merge(count),
            Attribution::Unresolved => self.unresolved.merge(count),
            Attribution::Program { program, column, .. } => {
                self.programs[program as usize].column(column).merge(count);
                if split.is_some() {
                    self.parts.entry((program, part)).or_default().column(column).merge(count);
                }
            }
        }
        for program in &inside.programs {
            self.programs[*program as usize].total.merge(count);
            if matches!(split, Some(Split::Comm | Split::Cpu | Split::Cgroup)) {
                self.parts.entry((*program, part)).or_default().total.merge(count);
            }
        }
        if split == Some(Split::Func) {
            for (program, function) in &inside.functions {
                self.parts.entry((*program, Key::Function(*function))).or_default().total.merge(count);
            }
        }
    }

    /// Adds what another thread counted.
    pub(crate) fn merge(&mut self, other: EventLedger) {
        self.samples.merge(other.samples);
        self.idle.merge(other.idle);
        self.entry.merge(other.entry);
        self.interpreted.merge(other.interpreted);
        self.unresolved.merge(other.unresolved);
        self.guarded.merge(other.guarded);
        self.overflow.merge(other.overflow);
        for (mine, theirs) in self.programs.iter_mut().zip(&other.programs) {
            mine.merge(theirs);
        }
        for (key, theirs) in other.parts {
            self.parts.entry(key).or_default().merge(&theirs);
        }
        self.span = match (self.span, other.span) {
            (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
            (one, other) => one.or(other),
        };
        if self.cpus.len() < other.cpus.len() {
            self.cpus.resize(other.cpus.len(), 0);
        }
        for (mine, theirs) in self.cpus.iter_mut().zip(&other.cpus) {
            *mine |= theirs;
        }
    }
}
