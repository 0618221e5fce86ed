//! Event names that are part of the ABI (`include/uapi/linux/perf_event.h`), and suggestions for misspelt names.

use bprec_format::event_type;

/// Names of the software events, by number: `PERF_COUNT_SW_*`.
const SOFTWARE: [&[&str]; 12] = [
    &["cpu-clock"],
    &["task-clock"],
    &["page-faults", "faults"],
    &["context-switches", "cs"],
    &["cpu-migrations", "migrations"],
    &["minor-faults"],
    &["major-faults"],
    &["alignment-faults"],
    &["emulation-faults"],
    &["dummy"],
    &["bpf-output"],
    &["cgroup-switches"],
];

/// Names of the generalised hardware events, by number: `PERF_COUNT_HW_*`.
const HARDWARE: [&[&str]; 10] = [
    &["cycles", "cpu-cycles"],
    &["instructions"],
    &["cache-references"],
    &["cache-misses"],
    &["branches", "branch-instructions"],
    &["branch-misses"],
    &["bus-cycles"],
    &["stalled-cycles-frontend", "idle-cycles-frontend"],
    &["stalled-cycles-backend", "idle-cycles-backend"],
    &["ref-cycles"],
];

/// Caches by number: `PERF_COUNT_HW_CACHE_*`, bits 0–7 of the config.
const CACHES: [&str; 7] = ["L1-dcache", "L1-icache", "LLC", "dTLB", "iTLB", "branch", "node"];

/// Operations on a cache by number, `PERF_COUNT_HW_CACHE_OP_*`, bits 8–15 of the config: names of all operations, and of the
/// operations that missed.
const CACHE_OPS: [[&str; 2]; 3] =
    [["loads", "load-misses"], ["stores", "store-misses"], ["prefetches", "prefetch-misses"]];

/// `type` and `config` of a software, hardware or cache event, by name.
pub(super) fn legacy(name: &str) -> Option<(u32, u64)> {
    let find = |table: &[&[&str]]| table.iter().position(|names| names.contains(&name)).map(|number| number as u64);
    if let Some(config) = find(&HARDWARE) {
        return Some((event_type::HARDWARE, config));
    }
    if let Some(config) = find(&SOFTWARE) {
        return Some((event_type::SOFTWARE, config));
    }
    let (_, config) = caches().find(|(cache, _)| cache == name)?;
    Some((event_type::HW_CACHE, config))
}

/// Names and configs of the cache events.
fn caches() -> impl Iterator<Item = (String, u64)> {
    (0..).zip(CACHES).flat_map(|(cache, name)| {
        (0..).zip(CACHE_OPS).flat_map(move |(op, ops)| {
            // The result: `PERF_COUNT_HW_CACHE_RESULT_*`, bits 16–23 of the config.
            (0..).zip(ops).map(move |(result, ops)| (format!("{name}-{ops}"), cache | op << 8 | result << 16))
        })
    })
}

/// Code of a raw event: `r` and hexadecimal digits.
pub(super) fn raw(name: &str) -> Option<u64> {
    let digits = name.strip_prefix('r').filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()))?;
    u64::from_str_radix(digits, 16).ok()
}

/// Event names that are the same on all machines.
pub(super) fn all() -> impl Iterator<Item = String> {
    let plain = SOFTWARE.iter().chain(&HARDWARE).copied().flatten().map(|name| (*name).to_owned());
    plain.chain(caches().map(|(name, _)| name))
}

/// End of an error message: up to three known names that are similar to `name`, or a hint at `perf list`.
pub(super) fn closest(name: &str, known: impl Iterator<Item = String>) -> String {
    const SHOWN: usize = 3;
    let lower = name.to_lowercase();
    let mut near: Vec<(usize, String)> = known
        .filter_map(|candidate| {
            let other = candidate.to_lowercase();
            let distance =
                if !lower.is_empty() && other.contains(&lower) { 1 } else { strsim::osa_distance(&lower, &other) };
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
