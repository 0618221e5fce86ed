//! Splitting of an event list into events.

use super::{Result, wrong};

/// Items of a list, split at the commas that are not inside the slashes of `pmu/term,term/`.
pub(super) fn items(list: &str) -> Vec<&str> {
    let (mut found, mut start, mut in_terms) = (Vec::new(), 0, false);
    for (at, c) in list.char_indices() {
        match c {
            // The slash of a breakpoint, mem:addr/len, does not open a list of terms.
            '/' if !list[start..].trim_start().starts_with("mem:") => in_terms = !in_terms,
            ',' if !in_terms => {
                found.push(&list[start..at]);
                start = at + 1;
            }
            _ => (),
        }
    }
    found.push(&list[start..]);
    found
}

/// Events of a list without groups.
pub(super) fn split(list: &str) -> Result<Vec<&str>> {
    let items: Vec<&str> = items(list).into_iter().map(str::trim).collect();
    for item in &items {
        let mut parts = item.split('/');
        let is_grouped = |part: &str| part.contains(['{', '}']);
        if parts.next().is_some_and(is_grouped) || parts.nth(1).is_some_and(is_grouped) {
            return Err(wrong(list, "groups in braces are not supported yet; list the events without them"));
        }
        if !item.starts_with("mem:") && item.matches('/').count() % 2 == 1 {
            return Err(wrong(item, "the closing `/` of the terms is missing"));
        }
    }
    match items.iter().any(|item| item.is_empty()) {
        true => Err(wrong(list, "an event is missing before or after a comma")),
        false => Ok(items),
    }
}
