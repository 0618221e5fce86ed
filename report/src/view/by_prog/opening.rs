//! Lines above the table by program.

use crate::model::text::{UNKNOWN, counted, grouped, seconds};
use crate::model::{BpfSampler, EventReport, Known, Recording, Report};
use crate::view::blocks::{Block, note};
use crate::view::cells::percent;

/// Event and target of the recording.
pub(in crate::view) fn measured(recording: &Recording, event: &str) -> String {
    let mut parts = vec![event.to_owned()];
    if let Some(ns) = recording.elapsed_ns {
        let selected =
            recording.selected.iter().map(|(from, to)| format!("{} s to {} s", seconds(*from), seconds(*to)));
        let selected = selected.collect::<Vec<_>>().join(", ");
        let length = format!("{} s", seconds(i64::try_from(ns).unwrap_or(i64::MAX)));
        parts.push(if selected.is_empty() { length } else { format!("{length} (from {selected} after its start)") });
    }
    if let Some(cpus) = recording.cpus {
        parts.push(format!("{cpus} CPU{}", if cpus == 1 { "" } else { "s" }));
    }
    parts.extend(recording.target.clone());
    parts.join(" · ")
}

/// Opening: measured event, number of samples, missing data.
pub(super) fn opening(report: &Report, event: &EventReport) -> Vec<Block<'static>> {
    let recording = &report.recording;
    let mut blocks = vec![Block::Fact(measured(recording, &event.name))];
    let bpf = &event.total;
    let mut parts = vec![counted(event.samples.samples, "sample")];
    if !report.programs.is_empty() {
        parts.push(format!("{} in BPF ({} %)", grouped(bpf.count.samples), percent(bpf.shares.samples)));
    }
    if let Some(idle) = event.idle.value() {
        parts.push(format!("{} idle ({} %)", grouped(idle.count.samples), percent(idle.percent)));
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
    notes.extend(recording.cpus_not_sampled.iter().map(|it| {
        let after = it.after_ns as f64 / 1e9;
        match it.came_online {
            true => format!("CPU {} came online after {after:.1} s and was not sampled: its load is in no row", it.cpu),
            false => format!(
                "CPU {} went offline after {after:.1} s and was not sampled from then on, even if it came back",
                it.cpu
            ),
        }
    }));
    if recording.statistics_of_others {
        notes.push("another tool had the kernel's run statistics on: all BPF programs took longer for that".to_owned());
    }
    // A note if counts come from another source than requested.
    notes.extend(recording.counters_note.clone());
    blocks.extend(notes.into_iter().map(note));
    blocks.push(Block::Gap);
    blocks
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

/// Source of the sampling program's samples, and its blind spot.
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
                    format!(", {} refused (errno {})", grouped(failed), sampler.last_errno.unwrap_or_default())
                }
            };
            let (runs, written, full) = (grouped(runs), grouped(written), grouped(full));
            format!("{runs} runs, {written} written, {full} lost to full rings{failed}")
        }
        _ => format!("losses are {UNKNOWN}"),
    };
    lines.push(format!("made by a BPF program on an event of its own, {carrier}{}: {fate}", rate.unwrap_or_default()));
    lines.push(match &sampler.blind_spot {
        Some(blind) => format!(
            "blind spot: {} of {} main samples ({} %) fall into kprobe/tracepoint/perf_event programs, which the sampler \
             cannot see",
            grouped(blind.inside.samples),
            grouped(blind.of.samples),
            percent(blind.percent)
        ),
        None => "blind spot: kprobe/tracepoint/perf_event programs; its size is unknown without main samples"
            .into(),
    });
    lines
}
