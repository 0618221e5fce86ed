//! Findings: fixed rules over the report by program, split by helper.

use super::build;
use crate::index::Index;
use crate::input::recording::Recording;
use crate::model::{Advice, EventFinding, EventReport, Finding, JSON_VERSION, Known, Program, Report, Row};
use crate::options::Split;
use crate::{By, Options, Result};
use bprec_format::bpf::names::{MapType, ProgType};
use bprec_format::state::Map;
use std::collections::BTreeMap;

/// Fewer samples than this say nothing of a share.
const SAMPLES_MIN: u64 = 20;
/// Lookups that are so much of a program are most of it, in per cent.
const LOOKUPS_MIN_PERCENT: f64 = 50.0;
/// Output to a perf buffer that is worth another way.
const OUTPUT_MIN_PERCENT: f64 = 10.0;
/// Least share of entry code, per cent, that makes another hook worth while.
const ENTRY_MIN_PERCENT: f64 = 20.0;
/// Entries of a map that leave hardly a free place, in per cent of those that it can have.
const ENTRIES_MIN_PERCENT: u64 = 90;

/// Applies all rules.
pub(crate) fn advice(recording: &Recording<'_>, index: &Index, options: &Options) -> Result<Advice> {
    let options = Options { by: Some(By::Split(Split::Helper)), all: true, limit: None, ..options.clone() };
    let report = build(recording, index, &options)?;
    Ok(Advice {
        format: "bprec advice",
        version: JSON_VERSION,
        findings: all(&report, index),
        problems: report.problems,
    })
}

/// Applies all rules to a report whose programs are split by helper.
pub(crate) fn all(report: &Report, index: &Index) -> Vec<EventFinding> {
    let mut findings = findings(report);
    let maps = maps_nearly_full(&index.states.maps, &index.states.map_entries);
    let maps_of = |at: usize| index.programs.list[at].map_ids.as_slice();
    let unread = outputs_without_reader(report, maps_of, &index.states.maps);
    findings.extend(maps.into_iter().chain(unread).map(|finding| EventFinding { event: None, finding }));
    findings
}

fn findings(report: &Report) -> Vec<EventFinding> {
    let mut found: Vec<EventFinding> = Vec::new();
    let of_programs = [same_program_twice, no_owner, misses, counted_exactly].map(|rule| rule(report));
    found.extend(of_programs.into_iter().flatten().map(|finding| EventFinding { event: None, finding }));
    for event in &report.events {
        for row in &event.rows {
            let rules = [hash_lookup, perf_event_output, tracepoint_entry, trace_printk];
            let of_row = rules.iter().filter_map(|rule| rule(&report.programs[row.program], event, row));
            found.extend(of_row.map(|finding| EventFinding { event: Some(event.name.clone()), finding }));
        }
    }
    found
}

/// Programs of one tag and name, on one hook at the same time. Tail calls are no hook that runs all of them.
fn same_program_twice(report: &Report) -> Vec<Finding> {
    let mut copies: BTreeMap<(&str, [u8; 8], &str), Vec<&Program>> = BTreeMap::new();
    for program in report.programs.iter().filter(|program| !program.counts_others && !program.name.is_empty()) {
        let Some(tag) = program.tag else { continue };
        let mut hooks: Vec<&String> = program.attachments.iter().collect();
        hooks.sort();
        hooks.dedup();
        for hook in hooks.into_iter().filter(|hook| !hook.starts_with("tail_call:")) {
            copies.entry((&program.name, tag.0, hook)).or_default().push(program);
        }
    }
    let findings = copies.into_iter().filter_map(|((_, _, hook), programs)| {
        let times: Vec<(i64, i64)> = programs.iter().map(|program| there_ns(program)).collect();
        let met = programs.iter().zip(meet_another(&times)).filter(|(_, meets)| *meets);
        let programs: Vec<String> = met.map(|(program, _)| program.label_with_id()).collect();
        (programs.len() > 1).then(|| Finding::SameProgramTwice { programs, hook: hook.to_owned() })
    });
    findings.collect()
}

/// From when to when a program was there for sure.
fn there_ns(program: &Program) -> (i64, i64) {
    let begins_ns = program.loaded.map_or(i64::MIN, |bound| bound.before_ns);
    (begins_ns, program.unloaded.map_or(i64::MAX, |bound| bound.after_ns))
}

/// For each stretch of time: whether another one begins before it ends, and ends after it begins.
fn meet_another(times: &[(i64, i64)]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..times.len()).collect();
    order.sort_by_key(|at| times[*at]);
    // The last two ends of the stretches up to each one: one of the two is another's.
    let latest = order.iter().scan([None, None], |latest: &mut [Option<(i64, usize)>; 2], at| {
        let end = Some((times[*at].1, *at));
        *latest = if end > latest[0] { [end, latest[0]] } else { [latest[0], latest[1].max(end)] };
        Some(*latest)
    });
    let latest: Vec<_> = latest.collect();
    let meets = times.iter().enumerate().map(|(at, (begins_ns, ends_ns))| {
        let before_end = order.partition_point(|other| times[*other].0 < *ends_ns);
        let latest = before_end.checked_sub(1).map(|last| latest[last]);
        latest.into_iter().flatten().flatten().any(|(end, other)| other != at && end > *begins_ns)
    });
    meets.collect()
}

/// Programs that are still there, and that nobody is seen to hold. Only a recorder that looked for holders can tell.
fn no_owner(report: &Report) -> Vec<Finding> {
    let is_alone = |program: &&Program| {
        let is_there = program.captured && program.unloaded.is_none() && !program.counts_others;
        is_there && program.owners.is_empty() && program.pins.is_empty() && program.attachments.is_empty()
    };
    let programs = report.programs.iter().filter(|_| looked_for_holders(report)).filter(is_alone);
    programs.map(|program| Finding::NoOwner { program: program.label_with_id() }).collect()
}

/// True if the recorder has looked who holds programs and their maps.
fn looked_for_holders(report: &Report) -> bool {
    report.recording.target.is_some() && !report.recording.unfinished
}

fn misses(report: &Report) -> Vec<Finding> {
    let findings = report.programs.iter().filter(|program| !program.counts_others).filter_map(|program| {
        let runs = program.runs.value()?;
        let misses = runs.misses.filter(|misses| *misses > 0)?;
        Some(Finding::Misses { program: program.label_with_id(), misses, runs: runs.count })
    });
    findings.collect()
}

fn counted_exactly(report: &Report) -> Vec<Finding> {
    let Some(added_ns) = report.counting.as_ref().and_then(|counting| counting.added_to_measured_ns) else {
        return Vec::new();
    };
    let findings = report.programs.iter().filter_map(|program| {
        let measured = program.exact.value()?.measured;
        let program = program.label_with_id();
        (measured > 0).then_some(Finding::CountedExactly { program, measured, added_ns })
    });
    findings.collect()
}

/// Maps that were read, and that refuse a new key when they are full: arrays always are, and LRU maps make room.
fn maps_nearly_full(maps: &BTreeMap<u32, Map>, entries: &BTreeMap<u32, u64>) -> Vec<Finding> {
    const REFUSE: [MapType; 4] = [MapType::HASH, MapType::PERCPU_HASH, MapType::HASH_OF_MAPS, MapType::LPM_TRIE];
    let findings = entries.iter().filter_map(|(id, entries)| {
        let map = maps.get(id).filter(|map| REFUSE.contains(&MapType(map.map_type)) && map.max_entries > 0)?;
        let is_nearly_full = entries.saturating_mul(100) >= u64::from(map.max_entries) * ENTRIES_MIN_PERCENT;
        let name = format!("{} ({id})", String::from_utf8_lossy(&map.name));
        let (entries, max_entries) = (*entries, map.max_entries);
        is_nearly_full.then_some(Finding::MapNearlyFull { map: name, entries, max_entries })
    });
    findings.collect()
}

/// Buffers for readers in user space, of programs that run, when no process has a descriptor of them: who holds none of a program's maps does not
/// hold the program either. Only a recorder that looked for holders can tell. `maps_of` gives the ids of a program's maps by its position.
fn outputs_without_reader<'m>(
    report: &Report,
    maps_of: impl Fn(usize) -> &'m [u32],
    maps: &BTreeMap<u32, Map>,
) -> Vec<Finding> {
    const OUTPUTS: [MapType; 2] = [MapType::RINGBUF, MapType::PERF_EVENT_ARRAY];
    let is_held = |program: &Program| !program.owners.is_empty() || program.unloaded.is_some() || program.counts_others;
    if !looked_for_holders(report) {
        return Vec::new();
    }
    let mut outputs: BTreeMap<u32, (&Map, bool, Vec<usize>, u64)> = BTreeMap::new();
    for (at, program) in report.programs.iter().enumerate() {
        let runs = program.runs.value().map_or(0, |runs| runs.count);
        for id in maps_of(at) {
            let Some(map) = maps.get(id).filter(|map| OUTPUTS.contains(&MapType(map.map_type))) else { continue };
            let (_, is_readable, programs, all_runs) = outputs.entry(*id).or_insert((map, false, Vec::new(), 0));
            *is_readable |= is_held(program) || !program.captured;
            if runs > 0 {
                programs.push(at);
                *all_runs = all_runs.saturating_add(runs);
            }
        }
    }
    let unread = outputs.into_iter().filter(|(_, (_, is_readable, programs, _))| !is_readable && !programs.is_empty());
    let findings = unread.map(|(id, (map, _, programs, runs))| {
        let programs = programs.into_iter().map(|at| report.programs[at].label_with_id()).collect();
        let map = format!("{} ({id})", String::from_utf8_lossy(&map.name));
        Finding::OutputWithoutReader { map, programs, runs }
    });
    findings.collect()
}

/// Samples of a row in helpers that `is_meant` names, their share of the row, and the first of the names.
fn helpers(row: &Row, is_meant: impl Fn(&str) -> bool) -> Option<(u64, f64, String)> {
    let line = row.line.as_ref()?;
    let meant = row.parts.iter().flatten().filter(|part| {
        // Without the compiler's suffixes and the module.
        is_meant(part.name.split(['.', ' ']).next().unwrap_or_default())
    });
    let (mut samples, mut weight, mut name) = (0u64, 0u64, None);
    for part in meant {
        samples = samples.saturating_add(part.line.count.samples);
        weight = weight.saturating_add(part.line.count.weight);
        name.get_or_insert(&part.name);
    }
    let percent = (line.count.weight > 0).then(|| weight as f64 * 100.0 / line.count.weight as f64)?;
    Some((samples, percent, name?.clone()))
}

fn hash_lookup(program: &Program, _: &EventReport, row: &Row) -> Option<Finding> {
    // A lookup in a hash map ends with a jump into lookup_nulls_elem_raw, which leaves no frame of its caller.
    let is_htab = |name: &str| name.trim_start_matches('_').starts_with("htab_") && name.contains("lookup_elem");
    let is_lookup = |name: &str| is_htab(name) || name == "lookup_nulls_elem_raw";
    let (samples, percent, function) = helpers(row, is_lookup)?;
    let program = program.label_with_id();
    (samples >= SAMPLES_MIN && percent >= LOOKUPS_MIN_PERCENT).then_some(Finding::HashLookup {
        program,
        function,
        samples,
        percent,
    })
}

fn perf_event_output(program: &Program, _: &EventReport, row: &Row) -> Option<Finding> {
    // bpf_perf_event_output, and bpf_perf_event_output_tp and so on for the types of programs.
    let (samples, percent, _) = helpers(row, |name| name.starts_with("bpf_perf_event_output"))?;
    let program = program.label_with_id();
    (samples >= SAMPLES_MIN && percent >= OUTPUT_MIN_PERCENT).then_some(Finding::PerfEventOutput {
        program,
        samples,
        percent,
    })
}

fn tracepoint_entry(program: &Program, _: &EventReport, row: &Row) -> Option<Finding> {
    let line = row.line.as_ref().filter(|_| program.prog_type == Some(ProgType::TRACEPOINT))?;
    let Known::Value(entry) = &line.columns.as_ref()?.entry else { return None };
    let entry = entry.count;
    let percent = (line.count.weight > 0).then(|| entry.weight as f64 * 100.0 / line.count.weight as f64)?;
    let (program, samples) = (program.label_with_id(), entry.samples);
    (samples >= SAMPLES_MIN && percent >= ENTRY_MIN_PERCENT).then_some(Finding::TracepointEntry {
        program,
        samples,
        percent,
    })
}

fn trace_printk(program: &Program, _: &EventReport, row: &Row) -> Option<Finding> {
    let is_print = |name: &str| ["bpf_trace_printk", "bpf_trace_vprintk"].contains(&name);
    let (samples, percent, _) = helpers(row, is_print)?;
    (samples > 0).then(|| Finding::TracePrintk { program: program.label_with_id(), samples, percent })
}

#[cfg(test)]
mod tests;
