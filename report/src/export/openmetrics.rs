//! Counters of programs in the text format of Prometheus. The textfile collector of node_exporter reads this format.
//!
//! [Exposition formats](https://prometheus.io/docs/instrumenting/exposition_formats/), version 0.0.4.

use crate::model::{Columns, Count, EventReport, Interval, Known, Program, Row, Share, Unit};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Counters that grow with each interval of `bprec top`.
///
/// Counters begin at 0 with the first interval. The counters of a program are removed after its unload, so that their number is bounded by the number
/// of loaded programs.
#[derive(Debug, Default)]
pub struct Metrics {
    /// Counters of programs by id and load time.
    programs: BTreeMap<(u32, Option<u64>), ProgramMetrics>,
    /// All samples of the first event.
    samples: Count,
    /// Samples of the first event charged to BPF programs.
    bpf: Count,
    /// Samples of the first event lost since the recording began; `None` if unknown.
    lost: Option<u64>,
    unit: Unit,
    event: String,
    cpus: Option<u32>,
    own_cpu_seconds: f64,
    counting_cpu_seconds: f64,
    last_unix_ns: Option<u64>,
}

/// Counters of a program. An unknown counter is `None`, and its series is not written.
#[derive(Debug, Default)]
struct ProgramMetrics {
    info: Vec<(&'static str, String)>,
    run_ns: Option<u64>,
    runs: Option<u64>,
    misses: Option<u64>,
    /// Part of the last interval in which the kernel counted runs, from 0 to 1.
    counted: Option<f64>,
    sampled: Option<Sampled>,
}

/// Weight of samples charged to a program, in the unit of the event.
#[derive(Debug, Default, Clone, Copy)]
struct Sampled {
    own: Option<u64>,
    helper: Option<u64>,
    entry: Option<u64>,
}

impl Metrics {
    /// Adds an interval.
    pub fn add(&mut self, interval: &Interval) {
        let report = &interval.report;
        let mut before = std::mem::take(&mut self.programs);
        for program in report.programs.iter().filter(|program| program.unloaded.is_none()) {
            let Some(id) = program.id else { continue };
            let key = (id, program.load_time_ns);
            let mut metrics = before.remove(&key).unwrap_or_default();
            metrics.add_runs(program, interval);
            self.programs.insert(key, metrics);
        }
        if let Some(event) = report.events.first() {
            self.add_event(event);
            for row in &event.rows {
                let program = &report.programs[row.program];
                let key = program.id.map(|id| (id, program.load_time_ns));
                if let Some(metrics) = key.and_then(|key| self.programs.get_mut(&key)) {
                    metrics.add_samples(row);
                }
            }
        }
        self.cpus = report.recording.cpus;
        self.last_unix_ns = interval.to_unix_ns;
        let seconds = interval.to_ns.saturating_sub(interval.from_ns) as f64 / 1e9;
        self.own_cpu_seconds += interval.own_cpu_percent.unwrap_or(0.0) / 100.0 * seconds;
        let cpus = f64::from(report.recording.cpus.unwrap_or(0));
        self.counting_cpu_seconds += interval.counting_percent.unwrap_or(0.0) / 100.0 * seconds * cpus;
    }

    fn add_event(&mut self, event: &EventReport) {
        self.event.clone_from(&event.name);
        self.unit = event.unit;
        self.samples = self.samples + event.samples;
        self.bpf = self.bpf + event.total.count;
        self.lost = event.lost.value().copied();
    }

    /// Writes all series, each family with its help and type.
    ///
    /// # Errors
    /// Fails if `out` cannot be written.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        info(out, &self.programs)?;
        let seconds = |ns: u64| ns as f64 / 1e9;
        self.programs(out, RUN_SECONDS, |program| program.run_ns.map(seconds))?;
        self.programs(out, RUNS, |program| program.runs.map(|runs| runs as f64))?;
        self.programs(out, MISSED, |program| program.misses.map(|misses| misses as f64))?;
        self.programs(out, COUNTED, |program| program.counted)?;
        let family = match self.unit {
            Unit::Nanoseconds => SAMPLED_SECONDS,
            Unit::Events => SAMPLED_EVENTS,
        };
        let weight = |weight: u64| match self.unit {
            Unit::Nanoseconds => seconds(weight),
            Unit::Events => weight as f64,
        };
        family.head(out)?;
        for ((id, _), program) in &self.programs {
            let Some(sampled) = program.sampled else { continue };
            for (part, value) in [("self", sampled.own), ("helper", sampled.helper), ("entry", sampled.entry)] {
                if let Some(value) = value {
                    let labels = [("id", id.to_string()), ("event", self.event.clone()), ("part", part.to_owned())];
                    sample(out, family.name, &labels, weight(value))?;
                }
            }
        }
        let event = [("event", self.event.clone())];
        let (all, bpf) = match self.unit {
            Unit::Nanoseconds => (MACHINE_SECONDS, BPF_SECONDS),
            Unit::Events => (MACHINE_EVENTS, BPF_EVENTS),
        };
        bpf.one(out, &event, Some(weight(self.bpf.weight)))?;
        all.one(out, &event, Some(weight(self.samples.weight)))?;
        LOST.one(out, &event, self.lost.map(|lost| lost as f64))?;
        OWN_SECONDS.one(out, &[], Some(self.own_cpu_seconds))?;
        COUNTING_SECONDS.one(out, &[], Some(self.counting_cpu_seconds))?;
        CPUS.one(out, &[], self.cpus.map(f64::from))?;
        LAST.one(out, &[], self.last_unix_ns.map(seconds))
    }

    /// Writes a family with a series for each program that has a value.
    fn programs(
        &self,
        out: &mut dyn Write,
        family: Family,
        value: impl Fn(&ProgramMetrics) -> Option<f64>,
    ) -> io::Result<()> {
        family.head(out)?;
        for ((id, _), program) in &self.programs {
            if let Some(value) = value(program) {
                sample(out, family.name, &[("id", id.to_string())], value)?;
            }
        }
        Ok(())
    }
}

impl ProgramMetrics {
    fn add_runs(&mut self, program: &Program, interval: &Interval) {
        self.info = labels(program);
        let Known::Value(runs) = &program.runs else { return };
        add(&mut self.run_ns, Some(runs.time_ns));
        add(&mut self.runs, Some(runs.count));
        add(&mut self.misses, runs.misses);
        let length_ns = interval.to_ns.saturating_sub(interval.from_ns);
        self.counted = Some(runs.estimate.map_or(1.0, |it| it.counted_for_ns as f64 / length_ns.max(1) as f64));
    }

    fn add_samples(&mut self, row: &Row) {
        let Some(Columns { own, helper, entry, .. }) = row.line.as_ref().and_then(|line| line.columns.as_deref())
        else {
            return;
        };
        let sampled = self.sampled.get_or_insert_default();
        let weight = |share: &Known<Share>| share.value().map(|share| share.count.weight);
        add(&mut sampled.own, weight(own));
        add(&mut sampled.helper, weight(helper));
        add(&mut sampled.entry, weight(entry));
    }
}

/// Adds `more` to a counter. The counter is `None` until its first known value.
fn add(counter: &mut Option<u64>, more: Option<u64>) {
    if let Some(more) = more {
        *counter = Some(counter.unwrap_or(0).saturating_add(more));
    }
}

/// Labels that describe a program.
fn labels(program: &Program) -> Vec<(&'static str, String)> {
    let text = |value: Option<String>| value.unwrap_or_default();
    vec![
        ("id", text(program.id.map(|id| id.to_string()))),
        ("name", program.label()),
        ("type", text(program.prog_type.map(|it| it.to_string()))),
        ("tag", text(program.tag.map(|it| it.to_string()))),
        ("hook", program.attached().join(",")),
        ("owner", program.holders()),
        ("load_time_ns", text(program.load_time_ns.map(|it| it.to_string()))),
    ]
}

/// A family of series.
#[derive(Clone, Copy)]
struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
}

const fn counter(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: "counter", help }
}

const fn gauge(name: &'static str, help: &'static str) -> Family {
    Family { name, kind: "gauge", help }
}

const INFO: Family = gauge("bprec_program_info", "Loaded BPF program; always 1. Join other series with it by id.");
const RUN_SECONDS: Family = counter(
    "bprec_program_run_seconds_total",
    "Time in runs of the program, by run statistics of the kernel, since bprec started.",
);
const RUNS: Family = counter("bprec_program_runs_total", "Runs of the program, since bprec started.");
const MISSED: Family = counter(
    "bprec_program_missed_total",
    "Runs of the program that the recursion guard of the kernel refused, since bprec started.",
);
const COUNTED: Family = gauge(
    "bprec_program_runs_counted_ratio",
    "Share of the last interval for which the kernel counted runs; below 1, runs and their time are estimates.",
);
const SAMPLED_SECONDS: Family = counter(
    "bprec_program_sampled_seconds_total",
    "CPU time charged to the program by samples: in its own code (self), in code it called (helper), in code that runs the program (entry).",
);
const SAMPLED_EVENTS: Family = counter(
    "bprec_program_sampled_events_total",
    "Events charged to the program by samples: in its own code (self), in code it called (helper), in code that runs the program (entry).",
);
const BPF_SECONDS: Family =
    counter("bprec_sampled_bpf_seconds_total", "CPU time charged to all BPF programs by samples.");
const BPF_EVENTS: Family = counter("bprec_sampled_bpf_events_total", "Events charged to all BPF programs by samples.");
const MACHINE_SECONDS: Family = counter(
    "bprec_sampled_seconds_total",
    "CPU time of all samples. Idle CPUs may have no samples: compute shares of the machine from bprec_cpus.",
);
const MACHINE_EVENTS: Family = counter("bprec_sampled_events_total", "Events of all samples.");
const LOST: Family = gauge("bprec_samples_lost", "Samples lost by the current recording.");
const OWN_SECONDS: Family =
    counter("bprec_own_cpu_seconds_total", "CPU time of bprec itself, since its first interval.");
const COUNTING_SECONDS: Family = counter(
    "bprec_counting_cpu_seconds_total",
    "CPU time that the counting of runs took, estimated from a calibration.",
);
const CPUS: Family = gauge("bprec_cpus", "CPUs that are online.");
const LAST: Family = gauge("bprec_last_interval_end_timestamp_seconds", "End of the last interval, since 1970.");

impl Family {
    fn head(&self, out: &mut dyn Write) -> io::Result<()> {
        let Family { name, kind, help } = self;
        writeln!(out, "# HELP {name} {help}\n# TYPE {name} {kind}")
    }

    /// Writes the family with a single series, if its value is known.
    fn one(&self, out: &mut dyn Write, labels: &[(&'static str, String)], value: Option<f64>) -> io::Result<()> {
        let Some(value) = value else { return Ok(()) };
        self.head(out)?;
        sample(out, self.name, labels, value)
    }
}

fn info(out: &mut dyn Write, programs: &BTreeMap<(u32, Option<u64>), ProgramMetrics>) -> io::Result<()> {
    INFO.head(out)?;
    programs.values().try_for_each(|program| sample(out, INFO.name, &program.info, 1.0))
}

fn sample(out: &mut dyn Write, name: &str, labels: &[(&'static str, String)], value: f64) -> io::Result<()> {
    out.write_all(name.as_bytes())?;
    for (at, (label, text)) in labels.iter().enumerate() {
        let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        write!(out, "{}{label}=\"{text}\"", if at == 0 { "{" } else { "," })?;
    }
    let close = if labels.is_empty() { "" } else { "}" };
    writeln!(out, "{close} {value}")
}
