//! Events that say the same of the same programs: a table for each would hide what differs.

use crate::model::{EventReport, Row};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// So many events with the same rows have a table each.
const FEW: usize = 3;

/// What the rows of an event are of, in no order: programs with the names of their parts, and groups.
type Rows<'e> = (Vec<(usize, Vec<&'e str>)>, Vec<&'e str>);

fn parts(row: &Row) -> Vec<&str> {
    let mut names: Vec<&str> = row.parts.iter().flatten().map(|part| part.name.as_str()).collect();
    names.sort_unstable();
    names
}

fn rows(event: &EventReport) -> Rows<'_> {
    let mut programs: Vec<_> = event.rows.iter().map(|row| (row.program, parts(row))).collect();
    let mut groups: Vec<&str> = event.groups.iter().map(|group| group.name.as_str()).collect();
    programs.sort_unstable();
    groups.sort_unstable();
    (programs, groups)
}

/// Says of events with the same rows, if they are more than a few, which of them stands for all: that with most samples.
pub(super) fn mark(events: &mut [EventReport]) {
    let mut same: BTreeMap<Rows<'_>, Vec<usize>> = BTreeMap::new();
    // Without programs each has its own list of what was hit most.
    for (at, event) in events.iter().enumerate().filter(|(_, event)| event.hot.is_empty()) {
        same.entry(rows(event)).or_default().push(at);
    }
    let many: Vec<Vec<usize>> = same.into_values().filter(|events| events.len() > FEW).collect();
    for same in many {
        let first = same.iter().copied().min_by_key(|at| (Reverse(events[*at].samples.samples), *at));
        for at in same.into_iter().filter(|at| Some(*at) != first) {
            events[at].same_rows_as = first;
        }
    }
}
