//! Lines of the ledger: charges with what they are shares of.

use crate::model::{Columns, Count, Known, Line, Reason, Share, Shares};
use crate::sinks::ledger::Charges;

/// What the lines of an event are shares of.
#[derive(Debug, Clone)]
pub(super) struct Whole {
    /// Weight of all samples.
    pub(super) samples: u64,
    /// Weight that the machine's CPUs could have had.
    pub(super) machine: Option<u64>,
    /// Weight of what was not idle.
    pub(super) busy: Option<u64>,
    /// Weight of all BPF.
    pub(super) bpf: u64,
    /// Samples have the kernel's call chains.
    pub(super) has_chains: bool,
}

/// A share in per cent; `None` of nothing.
pub(super) fn percent(part: u64, whole: Option<u64>) -> Option<f64> {
    whole.filter(|whole| *whole > 0).map(|whole| part as f64 * 100.0 / whole as f64)
}

impl Whole {
    /// A count as a share of all samples.
    pub(super) fn share(&self, count: Count) -> Share {
        Share { count, percent: percent(count.weight, Some(self.samples)) }
    }

    /// A line without columns.
    pub(super) fn line(&self, count: Count) -> Line {
        let shares = Shares {
            machine: percent(count.weight, self.machine),
            busy: percent(count.weight, self.busy),
            bpf: percent(count.weight, Some(self.bpf)),
            samples: percent(count.weight, Some(self.samples)),
        };
        Line { count, shares, columns: None }
    }

    /// A line with the columns of `charges`; `has_total` where the inclusive one means something.
    pub(super) fn ledger(&self, charges: &Charges, has_total: bool) -> Line {
        let chained = |count| match self.has_chains {
            true => Known::Value(self.share(count)),
            false => Known::Unknown(Reason::NoCallChains),
        };
        let columns = Columns {
            own: Known::Value(self.share(charges.own)),
            helper: chained(charges.helper),
            entry: chained(charges.entry),
            entry_shared: chained(charges.shared_entry),
            inclusive: if has_total { chained(charges.total) } else { Known::Unknown(Reason::NotForThisLine) },
        };
        Line { columns: Some(columns), ..self.line(charges.sum()) }
    }

    /// The same of a program that samples do not see, for `reason`, but what runs it.
    pub(super) fn ledger_of_unseen(&self, charges: &Charges, reason: &Reason) -> Line {
        let mut line = self.ledger(charges, true);
        if let Some(Columns { own, helper, inclusive, .. }) = &mut line.columns {
            [own, helper, inclusive].into_iter().for_each(|column| *column = Known::Unknown(reason.clone()));
        }
        line
    }
}
