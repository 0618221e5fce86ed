//! Each rule with and without a finding.

use super::*;
use crate::model::{Line, Part, TimeBound};
use crate::{Input, by_prog};
use bprec_format::bprec::state::AttachTarget;
use std::path::Path;
use std::sync::Arc;

fn programs_of(report: &mut Report) -> &mut Vec<Program> {
    Arc::make_mut(&mut report.programs)
}

/// Report of a recording with two copies of the tracepoint programs.
fn report() -> Report {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings/linux-7.2/ratio.data");
    let options = Options { by: Some(By::Split(Split::Helper)), all: true, ..Options::default() };
    by_prog(&Input::open(path).unwrap(), &options).unwrap()
}

fn found(report: &Report) -> Vec<EventFinding> {
    findings(report, |_| &[], &BTreeMap::new(), &Asked::default(), true)
}

fn codes(report: &Report) -> Vec<&'static str> {
    found(report).iter().map(|found| found.finding.code()).collect()
}

fn attachment(kind: &str, target: &str) -> Attachment {
    Attachment { kind: kind.to_owned(), target: AttachTarget::default().words(target) }
}

/// Returns the report, changed so that no rule finds anything.
fn silent() -> Report {
    let mut report = report();
    for (nth, program) in programs_of(&mut report).iter_mut().enumerate() {
        program.attachments = vec![attachment("raw_tracepoint", &format!("hook_{nth}"))];
        program.runs = Known::Unknown(crate::model::Reason::NoRuns);
        program.prog_type = Some(ProgType::RAW_TRACEPOINT);
    }
    assert_eq!(codes(&report), [""; 0]);
    report
}

/// The fixture's object was loaded twice, so each of its two programs is twice on its hook.
#[test]
fn copies_on_one_hook_are_found() {
    let mut report = report();
    let copies = same_program_twice(&report);
    assert_eq!(copies.len(), 2, "{copies:?}");
    let (hooks, programs) = copies[0].clone();
    assert_eq!((programs.len(), hooks[0].as_str()), (2, "tracepoint:raw_syscalls:sys_enter"));
    assert!(programs.iter().all(|at| report.programs[*at].name == "account_syscall_enter"), "{programs:?}");
    // The saving is the cost of all copies except the costliest one, by samples.
    let event = report.events[0].name.clone();
    let row = |at: usize| report.events[0].rows.iter().find(|row| row.program == at).unwrap();
    let cost = |at: usize| row(at).line.as_ref().unwrap().count.weight;
    let found = found(&report).into_iter().find(|it| it.finding.code() == "same_program_twice" && it.event == event);
    let found = found.unwrap();
    let Finding::SameProgramTwice { programs: of, .. } = &found.finding else { panic!("{found:?}") };
    let of: Vec<usize> =
        of.iter().map(|it| report.programs.iter().position(|at| at.label_with_id() == it.program).unwrap()).collect();
    let costs: Vec<u64> = of.iter().map(|at| cost(*at)).collect();
    assert_eq!((found.cost.weight, found.saves.weight), (costs[0] + costs[1], costs[1]));
    assert!(costs[0] >= costs[1] && costs[1] > 0 && found.saves.machine_percent.unwrap() > 0.0, "{found:?}");
    // Programs are no copies of each other if their code differs, or if one was loaded only after the other was unloaded.
    let [first, second] = [programs[0], programs[1]];
    let tag = programs_of(&mut report)[first].tag.replace(bprec_format::bpf::Tag([1; 8]));
    assert_eq!(same_program_twice(&report).len(), 1);
    programs_of(&mut report)[first].tag = tag;
    programs_of(&mut report)[first].unloaded = Some(TimeBound::at(100));
    programs_of(&mut report)[second].loaded = Some(TimeBound::at(100));
    assert_eq!(same_program_twice(&report).len(), 1);
}

/// Findings are sorted by their savings. A rule has one finding for all its programs. No finding is about a recorder's programs.
#[test]
fn findings_are_in_the_order_of_what_they_save() {
    let mut report = report();
    let weights = |report: &Report| found(report).iter().map(|it| it.saves.weight).collect::<Vec<_>>();
    let before = weights(&report);
    assert!(before.len() > 1 && before.is_sorted_by(|a, b| a >= b), "{before:?}");
    for program in programs_of(&mut report) {
        program.of_recorder = true;
    }
    assert_eq!(codes(&report), [""; 0]);
    let mut report = with_helper("bpf_trace_printk", 30, 100);
    let first = report.events[0].rows[0].clone();
    (report.events[0].rows[1].line, report.events[0].rows[1].parts) = (first.line, first.parts);
    let found = found(&report);
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].finding.programs().len(), found[0].saves.samples, found[0].cost.samples), (2, 60, 200));
}

#[test]
fn what_nobody_holds_is_found() {
    let mut report = silent();
    let at = report.events[0].rows[0].program;
    let program = &mut programs_of(&mut report)[at];
    program.owners.clear();
    program.attachments.clear();
    assert_eq!(codes(&report), ["no_owner"]);
    for hold in [
        (|program: &mut Program| program.pins = Box::new(["/sys/fs/bpf/x".into()])) as fn(&mut Program),
        |program| program.attachments.push(attachment("xdp", "lo")),
        |program| program.unloaded = Some(TimeBound::at(5)),
    ] {
        let mut held = report.clone();
        hold(&mut programs_of(&mut held)[at]);
        assert_eq!(codes(&held), [""; 0]);
    }
    // If the recorder did not look for owners, programs without owners are no finding.
    report.recording.target = None;
    assert_eq!(codes(&report), [""; 0]);
}

/// A ring buffer and a hash map of a program that ran 10 times: the buffer has no reader if no process holds the program or one of its maps.
#[test]
fn buffers_that_nobody_reads_are_found() {
    let mut report = silent();
    let map = |id, map_type: MapType| {
        (id, Map { id, map_type: map_type.0, name: b"events".to_vec(), max_entries: 4_096, ..Map::default() })
    };
    let maps = BTreeMap::from([map(7, MapType::RINGBUF), map(8, MapType::HASH), map(9, MapType::PERF_EVENT_ARRAY)]);
    let found = |report: &Report, used: [&'static [u32]; 2]| {
        let maps_of = |at: usize| used.get(at).copied().unwrap_or_default();
        outputs_without_reader(report, maps_of, &maps)
    };
    for at in 0..2 {
        programs_of(&mut report)[at].owners.clear();
        programs_of(&mut report)[at].runs = Known::Value(Box::new(crate::model::Runs::new(10, 100, None, None)));
    }
    let expected = |programs: &[usize]| vec![(vec!["events (7)".to_owned()], programs.to_vec())];
    assert_eq!(found(&report, [&[7, 8], &[]]), expected(&[0]));
    assert_eq!(found(&report, [&[7], &[7]]), expected(&[0, 1]));
    // If a program has no samples, its cost comes from run statistics.
    for row in &mut report.events[0].rows {
        row.line = None;
    }
    report.events.truncate(1);
    let maps_of = |at: usize| -> &[u32] { if at == 0 { &[7] } else { &[] } };
    let measured = findings(&report, maps_of, &maps, &Asked::default(), true);
    assert_eq!((measured.len(), measured[0].saves.weight, measured[0].saves.by_run_statistics), (1, 100, true));
    assert_eq!(found(&report, [&[9], &[]]).len(), 1);
    assert_eq!(found(&report, [&[8], &[]]), [], "any process may read a hash map later");
    assert_eq!(found(&report, [&[10], &[]]), [], "the type of the map is unknown");
    let other = silent();
    for change in [
        (|report: &mut Report, other: &Report| programs_of(report)[0].owners = other.programs[0].owners.clone())
            as fn(&mut Report, &Report),
        |report, _| programs_of(report)[0].runs = Known::Value(Box::new(crate::model::Runs::new(0, 0, None, None))),
        |report, _| programs_of(report)[0].runs = Known::Unknown(crate::model::Reason::NoRuns),
        |report, _| programs_of(report)[0].unloaded = Some(TimeBound::at(5)),
        |report, _| programs_of(report)[0].captured = false,
        |report, _| report.recording.target = None,
        |report, _| report.recording.unfinished = true,
    ] {
        let mut changed = report.clone();
        change(&mut changed, &other);
        assert_eq!(found(&changed, [&[7], &[]]), []);
    }
    // Another program, which a process holds, uses the buffer too.
    programs_of(&mut report)[1].owners = other.programs[1].owners.clone();
    assert!(!report.programs[1].owners.is_empty());
    assert_eq!(found(&report, [&[7], &[7]]), []);
}

/// Returns a report with a helper in the first row. The helper has `samples` of the row's `of` samples; all samples have equal weight.
fn with_helper(name: &str, samples: u64, of: u64) -> Report {
    let mut report = silent();
    let row = &mut report.events[0].rows[0];
    let mut line = Line::clone(row.line.as_ref().unwrap());
    (line.count.samples, line.count.weight) = (of, of * 10);
    let mut part = line.clone();
    (part.count.samples, part.count.weight) = (samples, samples * 10);
    row.line = Some(line.into());
    row.parts = Some(vec![Part { name: name.to_owned(), line: part }]);
    report
}

#[test]
fn costly_helpers_are_found() {
    let cases: [(&str, u64, u64, &[&str]); 14] = [
        ("htab_map_lookup_elem", 50, 100, &["hash_lookup"]),
        ("__htab_map_lookup_elem.isra.0", 50, 100, &["hash_lookup"]),
        ("htab_lru_map_lookup_elem", 50, 100, &["hash_lookup"]),
        ("htab_map_lookup_elem", 49, 100, &[]),
        ("htab_map_lookup_elem", 19, 20, &[]),
        ("array_map_lookup_elem", 50, 100, &[]),
        ("htab_map_update_elem", 50, 100, &[]),
        ("bpf_perf_event_output_tp", 20, 200, &["perf_event_output"]),
        ("bpf_perf_event_output", 19, 20, &[]),
        ("bpf_perf_event_output", 20, 201, &[]),
        ("bpf_ringbuf_output", 100, 100, &[]),
        ("bpf_trace_printk", 1, 1000, &["trace_printk"]),
        ("bpf_trace_vprintk", 1, 1000, &["trace_printk"]),
        ("bpf_trace_run2", 100, 100, &[]),
    ];
    for (name, samples, of, expected) in cases {
        let report = with_helper(name, samples, of);
        assert_eq!(codes(&report), expected, "{name} {samples} of {of}");
        for found in found(&report) {
            assert_eq!(found.event, report.events[0].name);
            let percent = format!("({:.1} % of it, ", samples as f64 * 100.0 / of as f64);
            assert!(found.finding.to_string().contains(&percent), "{}", found.finding);
            assert_eq!((found.cost.samples, found.saves.samples), (of, samples));
            let measured =
                format!("saves at most {} %", crate::model::text::fixed(found.saves.machine_percent.unwrap(), 2));
            assert!(found.measured().contains(&measured), "{}", found.measured());
        }
    }
}

#[test]
fn costly_entry_of_tracepoint_programs_is_found() {
    let with_entry = |prog_type: ProgType, samples: u64, of: u64| {
        let mut report = silent();
        let program = report.events[0].rows[0].program;
        programs_of(&mut report)[program].prog_type = Some(prog_type);
        let row = &mut report.events[0].rows[0];
        let line = Arc::make_mut(row.line.as_mut().unwrap());
        (line.count.samples, line.count.weight) = (of, of * 10);
        let mut share = line.columns.as_ref().unwrap().own.value().copied().unwrap();
        (share.count.samples, share.count.weight) = (samples, samples * 10);
        Arc::make_mut(line.columns.as_mut().unwrap()).entry = Known::Value(share);
        codes(&report)
    };
    assert_eq!(with_entry(ProgType::TRACEPOINT, 20, 100), ["tracepoint_entry"]);
    assert_eq!(with_entry(ProgType::TRACEPOINT, 20, 101), [""; 0]);
    assert_eq!(with_entry(ProgType::TRACEPOINT, 19, 20), [""; 0]);
    assert_eq!(with_entry(ProgType::RAW_TRACEPOINT, 20, 100), [""; 0]);
}
