//! What other recorders hold of programs: they look at them, and use none.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bprec_bpf::held_by_recorders;

/// Time between two looks, which take a walk over all processes.
const EVERY: Duration = Duration::from_secs(1);

/// Looks at other recorders, seldom.
#[derive(Debug, Default)]
pub(super) struct Recorders {
    looked_at: Option<Instant>,
}

impl Recorders {
    /// Whether it is time for a look.
    pub(super) fn is_due(&self) -> bool {
        self.looked_at.is_none_or(|at| at.elapsed() >= EVERY)
    }

    /// What `read` reads, with the references that other recorders had on each program all the while: who comes or goes meanwhile is
    /// not counted, so that the loader of a program is never taken for one of them.
    pub(super) fn around<T>(&mut self, read: impl FnOnce() -> T) -> (T, HashMap<u32, i64>) {
        self.looked_at = Some(Instant::now());
        let mut held = held_by_recorders();
        let value = read();
        if !held.is_empty() {
            let after = held_by_recorders();
            held.retain(|id, references| {
                *references = (*references).min(after.get(id).copied().unwrap_or(0));
                *references > 0
            });
        }
        (value, held)
    }
}
