//! Splitting of an event list into groups and events.

use super::{Result, wrong};

/// Groups of a list. Braces make a group, and the modifiers after its closing brace apply to each of its events. An event
/// outside of braces is a group of its own.
pub(super) fn groups(list: &str) -> Result<Vec<Vec<String>>> {
    let mut groups = Vec::new();
    for part in split(list, true) {
        let group = match part.strip_prefix('{').map(|rest| rest.split_once('}')) {
            None => vec![part.to_owned()],
            Some(None) => return Err(wrong(list, "the `}` of a group is missing")),
            Some(Some((_, modifiers))) if !modifiers.is_empty() && !modifiers.starts_with(':') => {
                return Err(wrong(list, "after the `}` of a group, bprec expects a comma, or `:` with modifiers"));
            }
            Some(Some((inside, modifiers))) => {
                split(inside, false).into_iter().map(|event| format!("{event}{modifiers}")).collect()
            }
        };
        if group.iter().any(|event| event.is_empty() || event.starts_with(':')) {
            return Err(wrong(list, "an event is missing before or after a comma"));
        }
        groups.push(group);
    }
    Ok(groups)
}

/// Splits a list at its commas. Commas inside the slashes of `pmu/term,term/` do not split the list; with `has_groups`,
/// neither do commas inside braces.
fn split(list: &str, has_groups: bool) -> Vec<&str> {
    let (mut in_terms, mut in_group) = (false, false);
    let is_comma = |c: char| {
        match c {
            '/' => in_terms = !in_terms,
            '{' | '}' if !in_terms => in_group = c == '{' && has_groups,
            _ => (),
        }
        c == ',' && !in_terms && !in_group
    };
    list.split(is_comma).map(str::trim).collect()
}

#[cfg(test)]
mod tests {
    use super::groups;

    #[test]
    fn lists_are_cut_at_groups() {
        let cut = |list| groups(list).unwrap_or_default();
        assert_eq!(cut("{cycles,instructions}"), [["cycles", "instructions"]]);
        assert_eq!(cut("{a, b}:k,c , {d}"), [vec!["a:k", "b:k"], vec!["c"], vec!["d"]]);
        assert_eq!(cut("cpu/event=1,umask=2/,b"), [["cpu/event=1,umask=2/"], ["b"]]);
        assert_eq!(cut("{cpu/event=1,umask=2/,b}:u"), [["cpu/event=1,umask=2/:u", "b:u"]]);
        for wrong in ["{a,b", "{a}b", "a,", "{a,}:k", ""] {
            assert!(groups(wrong).is_err(), "{wrong}");
        }
    }
}
