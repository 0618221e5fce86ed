//! Lines above the table by program.

use crate::model::text::{UNKNOWN, counted, grouped, seconds};
use crate::model::{BpfSampler, EventReport, Known, LateTicks, Recording, Report};
use crate::view::blocks::{Block, GradedNote, graded, note};
use crate::view::cells::percent;
use std::collections::BTreeSet;

/// Notes on missing timer ticks of events, each note once.
pub(in crate::view) fn late_ticks(events: impl Iterator<Item = Option<LateTicks>>) -> BTreeSet<GradedNote> {
    events.flatten().map(|late| graded(&late.note())).collect()
}

/// Event, duration, selected time, CPUs and target of the recording, on one line.
pub(in crate::view) fn measured(recording: &Recording, event: &str) -> String {
    let mut parts = vec![event.to_owned()];
    if let Some(ns) = recording.elapsed_ns {
        let selected =
            recording.selected.iter().map(|(from, to)| format!("{} s to {} s", seconds(*from), seconds(*to)));
        let selected = selected.collect::<Vec<_>>().join(", ");
        let length = format!("{} s", seconds(i64::try_from(ns).unwrap_or(i64::MAX)));
        parts.push(if selected.is_empty() {
            length
        } else {
            format!("{length} (from {selected} after the start of the recording)")
        });
    }
    if let Some(cpus) = recording.cpus {
        parts.push(format!("{cpus} CPU{}", if cpus == 1 { "" } else { "s" }));
    }
    parts.extend(recording.target.clone());
    parts.join(" · ")
}

/// Comments above the table: event, samples, missing samples, and notes on the measurement.
pub(super) fn opening(report: &Report, event: &EventReport) -> Vec<Block<'static>> {
    let recording = &report.recording;
    let mut blocks = vec![Block::Fact(measured(recording, &event.name))];
    let bpf = &event.total;
    let mut parts = vec![counted(event.samples.samples, "sample")];
    if !report.programs.is_empty() {
        parts.push(format!("{} in BPF ({} % of samples)", grouped(bpf.count.samples), percent(bpf.shares.samples)));
    }
    if let Some(idle) = event.idle.value() {
        parts.push(format!("{} idle ({} % of samples)", grouped(idle.count.samples), percent(idle.percent)));
    }
    if let Known::Value(0) = event.lost {
        parts.push("0 lost".to_owned());
    }
    parts.extend(missing(event, recording));
    blocks.push(Block::Fact(parts.join(" · ")));
    let mut notes = match &event.bpf_sampler {
        Some(sampler) => bpf_sampler(sampler),
        None => Vec::from_iter(recording.event_note.clone()),
    };
    notes.extend(cpus_not_sampled(recording));
    if recording.statistics_of_others {
        notes
            .push("another tool had switched on the kernel's run statistics, which slowed all BPF programs".to_owned());
    }
    // The recorder writes this note only if counts come from another source than requested.
    notes.extend(recording.counters_note.clone());
    blocks.extend(notes.into_iter().map(note));
    blocks.push(Block::Gap);
    blocks
}

/// Notes on CPUs that were not sampled for some time. CPUs with the same gap share a note, because a suspend affects many CPUs.
fn cpus_not_sampled(recording: &Recording) -> Vec<String> {
    let mut gaps: Vec<(String, Vec<String>)> = Vec::new();
    for it in &recording.cpus_not_sampled {
        let after_s = it.after_ns as f64 / 1e9;
        let gap = match (it.came_online, it.until_ns) {
            (true, _) => format!("came online after {after_s:.1} s and was not sampled: its load is in no row"),
            (false, None) => format!("went offline after {after_s:.1} s and was not sampled from then on"),
            (false, Some(until_ns)) => format!(
                "was offline or suspended, and not sampled from {after_s:.1} s to {:.1} s",
                until_ns as f64 / 1e9
            ),
        };
        match gaps.iter_mut().find(|(known, _)| *known == gap) {
            Some((_, cpus)) => cpus.push(it.cpu.to_string()),
            None => gaps.push((gap, vec![it.cpu.to_string()])),
        }
    }
    gaps.into_iter().map(|(gap, cpus)| format!("CPU {} {gap}", cpus.join(", "))).collect()
}

/// Reasons why samples of this event are missing, if any are.
pub(super) fn missing(event: &EventReport, recording: &Recording) -> Vec<String> {
    let mut parts = Vec::new();
    match event.lost {
        Known::Value(0) => {}
        Known::Value(lost) => parts.push(format!("{} lost", grouped(lost))),
        Known::Unknown(_) | Known::Impossible(_) => {
            parts.push(format!("up to {} lost", grouped(recording.lost_records)))
        }
    }
    if event.filtered > 0 {
        parts.push(format!("{} dropped by a filter", grouped(event.filtered)));
    }
    if event.throttled > 0 {
        parts.push(format!("throttled {}", counted(event.throttled, "time")));
    }
    parts
}

/// Lines about an event that a BPF program sampled: its rate, its losses, and the programs that it cannot see.
fn bpf_sampler(sampler: &BpfSampler) -> Vec<String> {
    let mut lines = Vec::new();
    let rate = sampler.frequency.map(|rate| format!(" at {} Hz", grouped(rate)));
    let rate = rate.or(sampler.period.map(|period| format!(", one per {}", grouped(period))));
    let carrier = sampler.carrier.as_deref().unwrap_or(UNKNOWN);
    let fate = match (sampler.runs, sampler.written, sampler.full) {
        (Some(runs), Some(written), Some(full)) => {
            let failed = match sampler.failed {
                None | Some(0) => String::new(),
                Some(failed) => {
                    format!(
                        ", {} refused by the kernel (errno {})",
                        grouped(failed),
                        sampler.last_errno.unwrap_or_default()
                    )
                }
            };
            let (runs, written, full) = (grouped(runs), grouped(written), grouped(full));
            format!("{runs} runs, {written} samples written, {full} lost because the ring was full{failed}")
        }
        _ => format!("losses are {UNKNOWN}"),
    };
    lines.push(format!(
        "a BPF program took these samples on an event of its own, {carrier}{}: {fate}",
        rate.unwrap_or_default()
    ));
    lines.push(match &sampler.blind_spot {
        Some(blind) => format!(
            "blind spot: {} of {} samples of the main event ({} %) fall into kprobe/tracepoint/perf_event programs, which the sampler \
             cannot see",
            grouped(blind.inside.samples),
            grouped(blind.of.samples),
            percent(blind.percent)
        ),
        None => "blind spot: the sampler cannot see kprobe/tracepoint/perf_event programs; how many samples are hidden \
                 is unknown, because the recording has no samples of the main event"
            .into(),
    });
    lines
}
