//! The lines above the table.

use crate::view::notes::{write_wrapped, write_wrapped_all};
use crate::view::text::{UNKNOWN, clean, counted, grouped, percent, seconds};
use crate::{BpfSampler, EventReport, Report};
use std::io::{self, Write};

/// What was measured, how much of it, and what is missing.
pub(super) fn opening(report: &Report, event: &EventReport, out: &mut dyn Write, width: usize) -> io::Result<()> {
    let recorded = &report.recorded;
    let mut parts = vec![clean(&event.name)];
    if let Some(ns) = recorded.elapsed_ns {
        parts.push(format!("{} s", seconds(ns as i64)));
    }
    if let Some(cpus) = recorded.cpus {
        parts.push(format!("{cpus} CPU{}", if cpus == 1 { "" } else { "s" }));
    }
    parts.extend(recorded.target.as_deref().map(clean));
    writeln!(out, "# {}", parts.join(" · "))?;
    let bpf = event.bpf();
    let all = Some(event.samples.weight);
    let mut parts = vec![counted(event.samples.samples, "sample")];
    if !report.programs.is_empty() {
        parts.push(format!("{} in BPF ({} %)", grouped(bpf.samples), percent(bpf.weight, all)));
    }
    if let Some(idle) = event.idle {
        parts.push(format!("{} idle ({} %)", grouped(idle.samples), percent(idle.weight, all)));
    }
    parts.push(match event.lost {
        Some(lost) => format!("{} lost", grouped(lost)),
        None => format!("up to {} lost", grouped(recorded.lost_records)),
    });
    if event.filtered > 0 {
        parts.push(format!("{} dropped by a filter", grouped(event.filtered)));
    }
    if event.throttled > 0 {
        parts.push(format!("throttled {}", counted(event.throttled, "time")));
    }
    writeln!(out, "# {}", parts.join(" · "))?;
    match &event.bpf_sampler {
        Some(sampler) => write_wrapped_all(&bpf_sampler(sampler), out, width)?,
        None => {
            if let Some(note) = &recorded.event_note {
                write_wrapped(&clean(note), out, width)?;
            }
        }
    }
    for it in &recorded.cpus_not_sampled {
        let after = it.time_ns.saturating_sub(recorded.start_ns) as f64 / 1e9;
        let note = match it.came_online {
            true => format!(
                "CPU {} came online after {after:.1} s and was not sampled: what ran there is in no row",
                it.cpu
            ),
            false => format!(
                "CPU {} went offline after {after:.1} s and was not sampled from then on, even if it came back",
                it.cpu
            ),
        };
        write_wrapped(&note, out, width)?;
    }
    // Where counts are not from where they were asked to be.
    if let Some(note) = &recorded.counters_note {
        write_wrapped(&clean(note), out, width)?;
    }
    writeln!(out, "#")
}

/// How the samples of our sampling program came about, and what it could not see.
fn bpf_sampler(sampler: &BpfSampler) -> Vec<String> {
    let mut lines = Vec::new();
    let rate = sampler.rate.map(|rate| match sampler.is_frequency {
        true => format!(" at {} Hz", grouped(rate)),
        false => format!(", one per {}", grouped(rate)),
    });
    let carrier = sampler.carrier.as_deref().map_or(UNKNOWN.into(), clean);
    let fate = match &sampler.counts {
        None => format!("what was lost is {UNKNOWN}"),
        Some(counts) => {
            let failed = match counts.failed {
                0 => String::new(),
                failed => format!(", {} refused (errno {})", grouped(failed), counts.last_errno),
            };
            format!(
                "{} runs, {} written, {} lost to full rings{failed}",
                grouped(counts.runs),
                grouped(counts.written),
                grouped(counts.full)
            )
        }
    };
    lines.push(format!("made by a BPF program on an event of its own, {carrier}{}: {fate}", rate.unwrap_or_default()));
    lines.push(match &sampler.blind_spot {
        Some(blind) => format!(
            "blind spot: {} of {} main samples ({} %) fall into kprobe/tracepoint/perf_event programs, which the sampler \
             cannot see",
            grouped(blind.inside.samples),
            grouped(blind.of.samples),
            percent(blind.inside.samples, Some(blind.of.samples))
        ),
        None => "blind spot: kprobe/tracepoint/perf_event programs; how much falls into them only main samples could tell"
            .into(),
    });
    lines
}
