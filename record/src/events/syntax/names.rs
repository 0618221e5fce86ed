//! Event names that are part of the ABI (`include/uapi/linux/perf_event.h`), and suggestions for misspelt names.

use bprec_format::event_type;

/// Software events: `PERF_COUNT_SW_*`.
const SOFTWARE: [(&str, u64); 15] = [
    ("cpu-clock", 0),
    ("task-clock", 1),
    ("page-faults", 2),
    ("faults", 2),
    ("context-switches", 3),
    ("cs", 3),
    ("cpu-migrations", 4),
    ("migrations", 4),
    ("minor-faults", 5),
    ("major-faults", 6),
    ("alignment-faults", 7),
    ("emulation-faults", 8),
    ("dummy", 9),
    ("bpf-output", 10),
    ("cgroup-switches", 11),
];

/// Generalised hardware events: `PERF_COUNT_HW_*`.
const HARDWARE: [(&str, u64); 14] = [
    ("cycles", 0),
    ("cpu-cycles", 0),
    ("instructions", 1),
    ("cache-references", 2),
    ("cache-misses", 3),
    ("branches", 4),
    ("branch-instructions", 4),
    ("branch-misses", 5),
    ("bus-cycles", 6),
    ("stalled-cycles-frontend", 7),
    ("idle-cycles-frontend", 7),
    ("stalled-cycles-backend", 8),
    ("idle-cycles-backend", 8),
    ("ref-cycles", 9),
];

/// Caches: `PERF_COUNT_HW_CACHE_*`, bits 0–7 of the config. The first name of each cache is the one that is shown.
const CACHES: [(&[&str], u64); 7] = [
    (&["L1-dcache", "l1-d", "l1d", "L1-data"], 0),
    (&["L1-icache", "l1-i", "l1i", "L1-instruction"], 1),
    (&["LLC", "L2"], 2),
    (&["dTLB", "d-tlb", "Data-TLB"], 3),
    (&["iTLB", "i-tlb", "Instruction-TLB"], 4),
    (&["branch", "branches", "bpu", "btb", "bpc"], 5),
    (&["node"], 6),
];

/// Operations on a cache: `PERF_COUNT_HW_CACHE_OP_*`, bits 8–15 of the config.
const CACHE_OPS: [(&[&str], u64); 3] = [
    (&["loads", "load", "read"], 0),
    (&["stores", "store", "write"], 1),
    (&["prefetches", "prefetch", "speculative-read", "speculative-load"], 2),
];

/// Results of the operation: `PERF_COUNT_HW_CACHE_RESULT_*`, bits 16–23 of the config.
const CACHE_RESULTS: [(&[&str], u64); 2] = [(&["refs", "Reference", "ops", "access"], 0), (&["misses", "miss"], 1)];

/// `type` and `config` of a software, hardware or cache event, by name.
pub(super) fn legacy(name: &str) -> Option<(u32, u64)> {
    let find = |table: &[(&str, u64)]| table.iter().find(|(known, _)| *known == name).map(|(_, config)| *config);
    if let Some(config) = find(&HARDWARE) {
        return Some((event_type::HARDWARE, config));
    }
    if let Some(config) = find(&SOFTWARE) {
        return Some((event_type::SOFTWARE, config));
    }
    cache(name).map(|config| (event_type::HW_CACHE, config))
}

/// Parses `cache[-op][-result]`, with op and result in either order. The defaults are loads and references.
fn cache(name: &str) -> Option<u64> {
    let (rest, cache) = strip_any(name, &CACHES)?;
    let (mut op, mut result) = (None, None);
    let mut rest = rest;
    while let Some(part) = rest.strip_prefix('-') {
        let (after, slot, value) = if let Some((after, value)) = strip_any(part, &CACHE_OPS) {
            (after, &mut op, value)
        } else {
            let (after, value) = strip_any(part, &CACHE_RESULTS)?;
            (after, &mut result, value)
        };
        if slot.replace(value).is_some() {
            return None;
        }
        rest = after;
    }
    rest.is_empty().then_some(cache | op.unwrap_or(0) << 8 | result.unwrap_or(0) << 16)
}

/// Strips the longest word of the table with which `text` starts, if the word ends at a dash or at the end. Returns the
/// rest and the value of the word.
fn strip_any<'a>(text: &'a str, table: &[(&[&str], u64)]) -> Option<(&'a str, u64)> {
    let words = table.iter().flat_map(|(words, value)| words.iter().map(move |word| (*word, *value)));
    let fits = words.filter_map(|(word, value)| {
        let head = text.get(..word.len())?;
        let rest = &text[word.len()..];
        (head.eq_ignore_ascii_case(word) && (rest.is_empty() || rest.starts_with('-'))).then_some((rest, value))
    });
    fits.min_by_key(|(rest, _)| rest.len())
}

/// Code of a raw event: `r` and hexadecimal digits.
pub(super) fn raw(name: &str) -> Option<u64> {
    let digits = name.strip_prefix('r').filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u64::from_str_radix(digits, 16).ok()
}

/// Event names that are the same on all machines.
pub(super) fn all() -> impl Iterator<Item = String> {
    let plain = SOFTWARE.iter().chain(&HARDWARE).map(|(name, _)| (*name).to_owned());
    let caches = CACHES.iter().flat_map(|(names, _)| {
        CACHE_OPS.iter().flat_map(move |(ops, _)| {
            let (cache, all, one) = (names[0], ops[0], ops.get(1).unwrap_or(&ops[0]));
            [format!("{cache}-{all}"), format!("{cache}-{one}-misses")]
        })
    });
    plain.chain(caches)
}

/// End of an error message: up to three known names that are similar to `name`.
pub(super) fn closest(name: &str, known: impl Iterator<Item = String>) -> String {
    const SHOWN: usize = 3;
    let lower = name.to_lowercase();
    let mut near: Vec<(usize, String)> = known
        .filter_map(|candidate| {
            let other = candidate.to_lowercase();
            let distance = if !lower.is_empty() && other.contains(&lower) { 1 } else { distance(&lower, &other) };
            (distance <= 1 + name.len() / 4).then_some((distance, candidate))
        })
        .collect();
    near.sort();
    near.dedup();
    near.truncate(SHOWN);
    match near.is_empty() {
        true => "; `perf list` shows all events".to_owned(),
        false => {
            let names: Vec<String> = near.into_iter().map(|(_, name)| format!("`{name}`")).collect();
            format!("; did you mean {}?", names.join(", "))
        }
    }
}

/// Edit distance of `a` and `b`: insertions, deletions, replacements, and swaps of neighbours.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let same = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (above[j] + 1).min(row[j - 1] + 1).min(above[j - 1] + same);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}
