//! Advice: findings of fixed rules over the report by program, split by helper. The finding with the largest measured saving comes first.

use super::build;
use crate::index::Index;
use crate::index::programs::TAIL_CALL;
use crate::input::recording::OpenRecording;
use crate::model::{
    Advice, Attachment, Cost, Count, EventFinding, EventReport, Finding, JSON_VERSION, Known, Line, Program,
    ProgramCost, Report, Row,
};
use crate::options::Split;
use crate::pass::Asked;
use crate::{By, Options, Result};
use bprec_format::bpf::names::{MapType, ProgType};
use bprec_format::bprec::state::Map;
use rustc_hash::FxHashMap;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Least count of samples to judge a share.
const SAMPLES_MIN: u64 = 20;
/// Least share of hash lookups in a program, %, for a finding.
const LOOKUPS_MIN_PERCENT: f64 = 50.0;
/// Least share of perf buffer output in a program, %, for a finding.
const OUTPUT_MIN_PERCENT: f64 = 10.0;
/// Least share of entry code in a program, %, for a finding.
const ENTRY_MIN_PERCENT: f64 = 20.0;

/// Makes the report by program, and returns the findings of all rules about it.
pub(crate) fn advice(recording: &OpenRecording<'_>, index: &Index, options: &Options) -> Result<Advice> {
    let options = Options { by: Some(By::Split(Split::Helper)), all: true, limit: None, ..options.clone() };
    let report = build(recording, index, &options)?;
    Ok(Advice {
        format: "bprec advice",
        version: JSON_VERSION,
        findings: all(&report, index, &options),
        problems: report.problems,
    })
}

/// Returns the findings of all rules about a report whose programs are split by helper. Findings name only requested programs.
pub(crate) fn all(report: &Report, index: &Index, options: &Options) -> Vec<EventFinding> {
    let maps_of = |at: usize| &index.programs.list[at].map_ids[..];
    let asked = Asked::new(&options.programs, &index.programs.list);
    // Run statistics count runs on all CPUs and of all tasks, so they are not used if CPUs or tasks are selected.
    let has_runs = options.cpus.is_none() && options.comms.is_empty();
    findings(report, maps_of, &index.states.maps, &asked, has_runs)
}

fn findings<'m>(
    report: &Report,
    maps_of: impl Fn(usize) -> &'m [u32],
    maps: &BTreeMap<u32, Map>,
    asked: &Asked,
    has_runs: bool,
) -> Vec<EventFinding> {
    let mut found: Vec<EventFinding> = Vec::new();
    let is_asked = |at: &usize| asked.has(*at as u32);
    let mut copies = same_program_twice(report);
    // One of the copies must stay, so a finding needs at least two requested copies.
    copies.iter_mut().for_each(|(_, programs)| programs.retain(is_asked));
    copies.retain(|(_, programs)| programs.len() > 1);
    let (mut alone, mut unread) = (no_owner(report), outputs_without_reader(report, maps_of, maps));
    alone.retain(is_asked);
    unread.iter_mut().for_each(|(_, programs)| programs.retain(is_asked));
    for (nth, event) in report.events.iter().enumerate() {
        let costs = Costs::new(report, event, has_runs && nth == 0);
        found.extend(copies.iter().filter_map(|(hooks, programs)| {
            costs.finding(programs, 1, |programs| Finding::SameProgramTwice { programs, hooks: hooks.clone() })
        }));
        found.extend(costs.finding(&alone, 0, |programs| Finding::NoOwner { programs }));
        found.extend(unread.iter().filter_map(|(maps, programs)| {
            costs.finding(programs, 0, |programs| Finding::OutputWithoutReader { maps: maps.clone(), programs })
        }));
        found.extend(parts_of_programs(&costs));
    }
    found.sort_by_key(|found| (Reverse(found.saves.weight), found.finding.code()));
    found
}

/// Returns true if advice may be about a program: programs of a recorder and unnamed programs are left out.
fn is_advised(program: &Program) -> bool {
    !program.counts_others && !program.is_of_tools()
}

/// Costs of programs in an event.
struct Costs<'r> {
    report: &'r Report,
    event: &'r EventReport,
    rows: FxHashMap<usize, &'r Row>,
    /// True if programs without samples get their cost from run statistics.
    has_runs: bool,
}

impl<'r> Costs<'r> {
    fn new(report: &'r Report, event: &'r EventReport, has_runs: bool) -> Costs<'r> {
        let rows = event.rows.iter().map(|row| (row.program, row)).collect();
        Costs { report, event, rows, has_runs }
    }

    /// Returns the cost of a program; `None` if nothing was measured.
    fn of_program(&self, at: usize) -> Option<Cost> {
        let line = self.rows.get(&at).and_then(|row| row.line.as_deref()).filter(|line| line.count.samples > 0);
        line.map(|line| of_line(line, line.count)).or_else(|| {
            let runs = self.report.programs[at].runs.value().filter(|runs| self.has_runs && runs.time_ns > 0)?;
            let recorded = &self.report.recording;
            let capacity_ns = recorded.elapsed_ns.zip(recorded.cpus).map(|(ns, cpus)| ns as f64 * f64::from(cpus));
            let machine_percent = capacity_ns.map(|capacity_ns| runs.time_ns as f64 * 100.0 / capacity_ns);
            Some(Cost { samples: 0, weight: runs.time_ns, machine_percent, by_run_statistics: true })
        })
    }

    /// Returns the finding about programs that can be unloaded: all of `programs` except the `kept` costliest. `None` if no saving was measured.
    fn finding(
        &self,
        programs: &[usize],
        kept: usize,
        of: impl FnOnce(Vec<ProgramCost>) -> Finding,
    ) -> Option<EventFinding> {
        let mut costs: Vec<(Cost, String)> = Vec::new();
        for at in programs {
            costs.push((self.of_program(*at).unwrap_or_default(), self.report.programs[*at].label_with_id()));
        }
        costs.sort_by(|(a, of_a), (b, of_b)| (b.weight, of_a).cmp(&(a.weight, of_b)));
        let measured = || costs.iter().map(|(cost, _)| *cost).filter(|cost| cost.weight > 0);
        let (cost, saves) = (measured().reduce(sum)?, measured().skip(kept).reduce(sum)?);
        let program = |(saves, program): (Cost, String)| ProgramCost { program, saves, program_percent: 100.0 };
        let finding = of(costs.into_iter().map(program).collect());
        Some(EventFinding { event: self.event.name.clone(), cost, saves, finding })
    }
}

fn sum(mut a: Cost, b: Cost) -> Cost {
    a.merge(b);
    a
}

/// Returns `part`, a part of the line's samples, with its share of the machine.
fn of_line(line: &Line, part: Count) -> Cost {
    let of_line = part.weight as f64 / line.count.weight.max(1) as f64;
    let machine_percent = line.shares.machine.map(|percent| percent * of_line);
    Cost { samples: part.samples, weight: part.weight, machine_percent, by_run_statistics: false }
}

/// Returns the findings about parts of programs, such as lookups or entry code: one finding for each rule.
fn parts_of_programs(costs: &Costs<'_>) -> Vec<EventFinding> {
    type Rule = fn(&Program, &Row) -> Option<(Count, String)>;
    let rules: [(Rule, u64, f64); 4] = [
        (hash_lookup, SAMPLES_MIN, LOOKUPS_MIN_PERCENT),
        (perf_event_output, SAMPLES_MIN, OUTPUT_MIN_PERCENT),
        (tracepoint_entry, SAMPLES_MIN, ENTRY_MIN_PERCENT),
        (trace_printk, 1, 0.0),
    ];
    let finding = |(nth, (rule, samples_min, percent_min)): (usize, &(Rule, u64, f64))| {
        let (mut programs, mut functions, mut all) = (Vec::new(), Vec::new(), Vec::new());
        for row in &costs.event.rows {
            let program = &costs.report.programs[row.program];
            let Some(line) = row.line.as_deref().filter(|line| is_advised(program) && line.count.weight > 0) else {
                continue;
            };
            let Some((part, function)) = rule(program, row) else { continue };
            let program_percent = part.weight as f64 * 100.0 / line.count.weight as f64;
            if part.samples >= *samples_min && program_percent >= *percent_min {
                let program = program.label_with_id();
                programs.push(ProgramCost { program, saves: of_line(line, part), program_percent });
                functions.push(function);
                all.push(of_line(line, line.count));
            }
        }
        programs.sort_by_key(|it| Reverse(it.saves.weight));
        functions.sort();
        functions.dedup();
        let (cost, saves) = (all.into_iter().reduce(sum)?, programs.iter().map(|it| it.saves).reduce(sum)?);
        let finding = match nth {
            0 => Finding::HashLookup { programs, functions },
            1 => Finding::PerfEventOutput { programs },
            2 => Finding::TracepointEntry { programs },
            _ => Finding::TracePrintk { programs },
        };
        Some(EventFinding { event: costs.event.name.clone(), cost, saves, finding })
    };
    rules.iter().enumerate().filter_map(finding).collect()
}

/// Returns (hooks, positions of programs) for programs with the same tag and name that were on the same hooks at the same time. Tail calls do not
/// count as hooks: they run one program of their array, not all.
fn same_program_twice(report: &Report) -> Vec<(Vec<String>, Vec<usize>)> {
    let mut copies: BTreeMap<(&str, [u8; 8], &Attachment), Vec<usize>> = BTreeMap::new();
    for (at, program) in report.programs.iter().enumerate().filter(|(_, program)| is_advised(program)) {
        let Some(tag) = program.tag else { continue };
        let hooks: BTreeSet<&Attachment> = program.attachments.iter().collect();
        for hook in hooks.into_iter().filter(|hook| hook.kind != TAIL_CALL) {
            copies.entry((&program.name, tag.0, hook)).or_default().push(at);
        }
    }
    let mut by_programs: BTreeMap<Vec<usize>, Vec<String>> = BTreeMap::new();
    for ((.., hook), programs) in copies {
        let times: Vec<(i64, i64)> = programs.iter().map(|at| there_ns(&report.programs[*at])).collect();
        let met = programs.iter().zip(meet_another(&times)).filter(|(_, meets)| *meets);
        let programs: Vec<usize> = met.map(|(at, _)| *at).collect();
        if programs.len() > 1 {
            by_programs.entry(programs).or_default().push(hook.to_string());
        }
    }
    by_programs.into_iter().map(|(programs, hooks)| (hooks, programs)).collect()
}

/// Returns the start and end of the time in which the program was certainly loaded, ns. An unknown load or unload leaves this end of the
/// time unlimited.
fn there_ns(program: &Program) -> (i64, i64) {
    let begins_ns = program.loaded.map_or(i64::MIN, |bound| bound.before_ns);
    (begins_ns, program.unloaded.map_or(i64::MAX, |bound| bound.after_ns))
}

/// Returns, for each span of time, true if another span overlaps it.
fn meet_another(times: &[(i64, i64)]) -> Vec<bool> {
    let mut order: Vec<usize> = (0..times.len()).collect();
    order.sort_by_key(|at| times[*at]);
    // For each span, in the order of starts: the two latest ends among this span and those before it, each with the position of its span. There are
    // two because one of them may be the end of the span that is compared.
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

/// Returns the positions of loaded programs that no process, pin or attachment holds. Empty if the recorder did not look for owners.
fn no_owner(report: &Report) -> Vec<usize> {
    let is_alone = |program: &Program| {
        let is_there = program.captured && program.unloaded.is_none() && is_advised(program);
        is_there && program.owners.is_empty() && program.pins.is_empty() && program.attachments.is_empty()
    };
    let programs = report.programs.iter().enumerate().filter(|_| looked_for_holders(report));
    programs.filter(|(_, program)| is_alone(program)).map(|(at, _)| at).collect()
}

/// Returns true if the recorder looked for the owners of programs and maps.
fn looked_for_holders(report: &Report) -> bool {
    report.recording.target.is_some() && !report.recording.unfinished
}

/// Returns (maps, programs): ring buffers and perf buffers without a reader, and the programs that use them and ran. A buffer counts as having a
/// reader if a program that uses it has an owner: a process that holds the program or one of its maps. A reader is also assumed if such a program was
/// unloaded, was not captured, or is left out of advice. Empty if the recorder did not look for owners. `maps_of` returns the ids of the maps
/// of the program at a position.
fn outputs_without_reader<'m>(
    report: &Report,
    maps_of: impl Fn(usize) -> &'m [u32],
    maps: &BTreeMap<u32, Map>,
) -> Vec<(Vec<String>, Vec<usize>)> {
    const OUTPUTS: [MapType; 2] = [MapType::RINGBUF, MapType::PERF_EVENT_ARRAY];
    let is_held = |program: &Program| !program.owners.is_empty() || program.unloaded.is_some() || !is_advised(program);
    if !looked_for_holders(report) {
        return Vec::new();
    }
    let mut outputs: BTreeMap<u32, (&Map, bool, Vec<usize>)> = BTreeMap::new();
    for (at, program) in report.programs.iter().enumerate() {
        let runs = program.runs.value().map_or(0, |runs| runs.count);
        for id in maps_of(at) {
            let Some(map) = maps.get(id).filter(|map| OUTPUTS.contains(&MapType(map.map_type))) else { continue };
            let (_, is_readable, programs) = outputs.entry(*id).or_insert((map, false, Vec::new()));
            *is_readable |= is_held(program) || !program.captured;
            if runs > 0 {
                programs.push(at);
            }
        }
    }
    let mut by_programs: BTreeMap<Vec<usize>, Vec<String>> = BTreeMap::new();
    for (id, (map, is_readable, programs)) in outputs {
        if !is_readable && !programs.is_empty() {
            let map = format!("{} ({id})", String::from_utf8_lossy(&map.name));
            by_programs.entry(programs).or_default().push(map);
        }
    }
    by_programs.into_iter().map(|(programs, maps)| (maps, programs)).collect()
}

/// Returns the sum of the cost of a row in the helpers that `is_meant` selects, and the name of the first of them. `None` if none of the row's
/// helpers is selected.
fn helpers(row: &Row, is_meant: impl Fn(&str) -> bool) -> Option<(Count, String)> {
    let meant = row.parts.iter().flatten().filter(|part| {
        // The compiler's suffixes and the module are not part of the name.
        is_meant(part.name.split(['.', ' ']).next().unwrap_or_default())
    });
    let (mut count, mut name) = (Count::default(), None);
    for part in meant {
        count.merge(part.line.count);
        name.get_or_insert(&part.name);
    }
    Some((count, name?.clone()))
}

fn hash_lookup(_: &Program, row: &Row) -> Option<(Count, String)> {
    // A lookup in a hash map ends with a jump into `lookup_nulls_elem_raw`. The function that jumps leaves no frame in the call chain.
    let is_htab = |name: &str| name.trim_start_matches('_').starts_with("htab_") && name.contains("lookup_elem");
    helpers(row, |name| is_htab(name) || name == "lookup_nulls_elem_raw")
}

fn perf_event_output(_: &Program, row: &Row) -> Option<(Count, String)> {
    // Other program types have functions with a longer name, such as `bpf_perf_event_output_tp`.
    helpers(row, |name| name.starts_with("bpf_perf_event_output"))
}

fn tracepoint_entry(program: &Program, row: &Row) -> Option<(Count, String)> {
    let line = row.line.as_ref().filter(|_| program.prog_type == Some(ProgType::TRACEPOINT))?;
    let Known::Value(entry) = &line.columns.as_ref()?.entry else { return None };
    Some((entry.count, String::new()))
}

fn trace_printk(_: &Program, row: &Row) -> Option<(Count, String)> {
    helpers(row, |name| ["bpf_trace_printk", "bpf_trace_vprintk"].contains(&name))
}

#[cfg(test)]
mod tests;
