//! Cutting an event list into events.

use super::{Result, wrong};

/// The events of a list. Commas separate them, except between the slashes of `pmu/term,term/`.
pub(super) fn split(list: &str) -> Result<Vec<&str>> {
    let mut items = Vec::new();
    let (mut start, mut in_terms) = (0, false);
    for (at, c) in list.char_indices() {
        match c {
            // The slash of a breakpoint, mem:addr/len, opens nothing.
            '/' if !list[start..].trim_start().starts_with("mem:") => in_terms = !in_terms,
            '{' | '}' if !in_terms => {
                let problem = "groups in braces are not supported yet; list the events without them";
                return Err(wrong(list, problem));
            }
            ',' if !in_terms => {
                items.push(&list[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if in_terms {
        return Err(wrong(&list[start..], "the closing `/` of its terms is missing"));
    }
    items.push(&list[start..]);
    let items: Vec<&str> = items.into_iter().map(str::trim).collect();
    match items.iter().any(|item| item.is_empty()) {
        true => Err(wrong(list, "an event is missing before or after a comma")),
        false => Ok(items),
    }
}
