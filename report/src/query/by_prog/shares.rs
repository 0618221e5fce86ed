//! Lines: charges with their shares.

use crate::index::student::NORMAL_95;
use crate::model::{Columns, Count, Known, Line, Reason, Share, Shares, UnsampledTime};
use crate::pass::sinks::pivot::Charges;
use std::cell::{OnceCell, RefCell};
use std::sync::Arc;

/// Totals of an event, by which costs are divided to get shares.
#[derive(Debug, Clone)]
pub(super) struct EventWhole<'z> {
    /// Weight of all samples.
    pub(super) samples: u64,
    /// Weight that stands for all CPU time of the machine; `None` if unknown.
    pub(super) machine: Option<u64>,
    /// Time of all CPUs, ns; `None` if it is unknown, or if weights are not ns.
    pub(super) capacity_ns: Option<u64>,
    /// Weight of non-idle samples.
    pub(super) busy: Option<u64>,
    /// Weight of all charges to BPF.
    pub(super) bpf: u64,
    /// True if samples have the kernel's call chains.
    pub(super) has_chains: bool,
    /// Cache of lines without charges, which all events share.
    pub(super) zeros: &'z Zeros,
}

/// Cache of lines without charges, and of their columns. Rows refer to these lines: thousands of events may each have many rows without charges.
#[derive(Debug, Default)]
pub(super) struct Zeros {
    columns: [OnceCell<Arc<Columns>>; 8],
    lines: RefCell<Vec<Arc<Line>>>,
}

/// Limit on the cached lines. Only few lines without charges differ: each share is 0 or unknown, and a line has columns or not.
const MOST_ZERO_LINES: usize = 32;

/// Returns a share, %; `None` if the whole is 0 or unknown.
pub(crate) fn percent(part: u64, whole: Option<u64>) -> Option<f64> {
    whole.filter(|whole| *whole > 0).map(|whole| part as f64 * 100.0 / whole as f64)
}

/// Returns the CPU time of a share of the machine, in thousandths of one CPU.
pub(super) fn millicpus(machine_percent: Option<f64>, cpus: Option<u32>) -> Option<f64> {
    machine_percent.zip(cpus).map(|(percent, cpus)| percent * f64::from(cpus) * 10.0)
}

/// Returns half of the 95 % confidence interval of a share of the machine, in % of the machine. The share is `samples` of `all`; `machine` is the
/// weight that stands for the whole machine.
pub(super) fn machine_margin(samples: u64, all: Count, machine: Option<u64>) -> Option<f64> {
    percent(all.weight, machine).map(|of_all| margin(samples, all.samples) * of_all)
}

/// Returns half of the 95 % confidence interval of the share `samples` / `all`, as a fraction. If `samples` is 0, returns the upper end of the
/// interval.
pub(crate) fn margin(samples: u64, all: u64) -> f64 {
    if all == 0 {
        return 0.0;
    }
    let (part, all) = (samples as f64 / all as f64, all as f64);
    match samples {
        0 => NORMAL_95 * NORMAL_95 / (all + NORMAL_95 * NORMAL_95),
        _ => NORMAL_95 * (part * (1.0 - part) / all).max(0.0).sqrt(),
    }
}

impl EventWhole<'_> {
    /// Returns a count as a share of all samples.
    pub(super) fn share(&self, count: Count) -> Share {
        Share { count, percent: percent(count.weight, Some(self.samples)) }
    }

    /// Returns the time in programs that samples cannot see.
    pub(super) fn unsampled(&self, time_ns: u64) -> UnsampledTime {
        UnsampledTime { time_ns, machine_percent: percent(time_ns, self.capacity_ns) }
    }

    /// Makes a line without columns.
    pub(super) fn line(&self, count: Count) -> Line {
        let shares = Shares {
            machine: percent(count.weight, self.machine),
            busy: percent(count.weight, self.busy),
            bpf: percent(count.weight, Some(self.bpf)),
            samples: percent(count.weight, Some(self.samples)),
        };
        Line { count, shares, columns: None }
    }

    /// Makes a line with the columns of `charges`. Without `has_total`, the inclusive column is unknown.
    pub(super) fn ledger(&self, charges: &Charges, has_total: bool) -> Line {
        let made = || Arc::new(self.columns(charges, has_total));
        let columns = if *charges == Charges::default() {
            let at = [has_total, self.has_chains, self.samples > 0].iter().fold(0, |at, is| at * 2 + usize::from(*is));
            Arc::clone(self.zeros.columns[at].get_or_init(made))
        } else {
            made()
        };
        Line { columns: Some(columns), ..self.line(charges.sum()) }
    }

    /// Returns the line in a shared pointer: equal lines without charges are stored once.
    pub(super) fn kept(&self, line: Line) -> Arc<Line> {
        if line.count != Count::default() {
            return Arc::new(line);
        }
        let mut known = self.zeros.lines.borrow_mut();
        if let Some(equal) = known.iter().find(|known| ***known == line) {
            return Arc::clone(equal);
        }
        let line = Arc::new(line);
        if known.len() < MOST_ZERO_LINES {
            known.push(Arc::clone(&line));
        }
        line
    }

    fn columns(&self, charges: &Charges, has_total: bool) -> Columns {
        let chained = |count| match self.has_chains {
            true => Known::Value(self.share(count)),
            false => Known::Unknown(Reason::NoCallChains),
        };
        Columns {
            own: Known::Value(self.share(charges.own)),
            helper: chained(charges.helper),
            entry: chained(charges.entry),
            entry_shared: chained(charges.shared_entry),
            inclusive: if has_total { chained(charges.total) } else { Known::Unknown(Reason::NotForThisLine) },
        }
    }

    /// Makes the line of a program that samples cannot see, for `reason`: only entry code is known.
    pub(super) fn ledger_of_unseen(&self, charges: &Charges, reason: &Reason) -> Line {
        let unseen = || Known::Unknown(reason.clone());
        let columns = Columns { own: unseen(), helper: unseen(), inclusive: unseen(), ..self.columns(charges, true) };
        Line { columns: Some(Arc::new(columns)), ..self.line(charges.sum()) }
    }
}
