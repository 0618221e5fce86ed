//! Conversion of a recording to rows. All numbers are those of the reporter's model.

use crate::identity::{hook, prog_key};
use crate::schema::{
    AttachmentRow, CounterRow, EventRow, ProgRow, RecordingRow, Rows, RunStatsRow, SCHEMA_VERSION, SampleRow, Text,
    UnixMicros,
};
use anyhow::{Context, Result, bail, ensure};
use bprec_report::model::{CounterSource, EventReport, Line, Program, Report, Unit, has_sha256_tags};
use bprec_report::{By, Input, Options, Session, Split};
use chrono::NaiveDate;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::io::{self, BufReader};
use std::path::{Path, PathBuf};

/// Name of the `bpf_metadata_*` value with the version of a program.
const VERSION_KEY: &str = "version";

/// Facts about recordings, given on the command line.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
pub(crate) struct GivenFacts {
    /// Id of the host of these recordings, instead of the machine's id (or else the host name) in each recording.
    #[arg(long, value_name = "NAME")]
    pub(crate) host: Option<String>,
    /// Label of the host, such as `role=edge`; may be given several times.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    /// Day (UTC) of recordings without a date.
    #[arg(long, value_name = "YYYY-MM-DD")]
    pub(crate) date: Option<Date>,
    /// Also import unfinished recordings. A later import of the complete recording is then refused.
    #[arg(long)]
    pub(crate) unfinished: bool,
}

/// Splits a label into key and value.
pub(crate) fn label(text: &str) -> Result<(String, String), &'static str> {
    let (key, value) = text.split_once('=').ok_or("expected KEY=VALUE")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Day, UTC.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Date {
    /// Days since 1970-01-01.
    days: i64,
}

/// Returns the id of a recording and its size in bytes. The id is the first half of the SHA-256 of its bytes; for a directory, of the bytes and the
/// length of each file, sorted by name.
///
/// # Errors
/// Fails if a file cannot be read.
pub(crate) fn content_id(path: &Path) -> Result<(u128, u64)> {
    let mut hash = Sha256::new();
    let mut bytes = 0;
    for file in files_of(path)? {
        let at = || format!("read {}", file.display());
        let mut reader = BufReader::with_capacity(1 << 16, File::open(&file).with_context(at)?);
        let length = io::copy(&mut reader, &mut hash).with_context(at)?;
        bytes += length;
        if path.is_dir() {
            hash.update(length.to_le_bytes());
        }
    }
    let id = hash.finalize()[..16].iter().fold(0, |id, byte| id << 8 | u128::from(*byte));
    Ok((id, bytes))
}

fn files_of(path: &Path) -> Result<Vec<PathBuf>> {
    let kind = std::fs::metadata(path).with_context(|| format!("stat {}", path.display()))?.file_type();
    if kind.is_dir() {
        let entries = std::fs::read_dir(path).with_context(|| format!("read directory {}", path.display()))?;
        let mut files: Vec<PathBuf> = entries.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        files.retain(|file| file.is_file());
        files.sort();
        return Ok(files);
    }
    // A pipe can be read only once, but an import reads the input several times.
    ensure!(
        kind.is_file(),
        "{}: is neither a file nor a directory; save the recording to a file first",
        path.display()
    );
    Ok(vec![path.to_owned()])
}

/// Rows of a recording.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) date: Date,
    /// Id of the recording, see [`content_id`].
    pub(crate) id: u128,
    pub(crate) rows: Rows,
}

/// Reads a recording.
///
/// # Errors
/// Fails if the recording cannot be read, is unfinished (without `--unfinished`), has no date (without `--date`), has a date later
/// than tomorrow, or has a number above 2^63 - 1.
pub(crate) fn rows_of(path: &Path, (id, bytes): (u128, u64), given: &GivenFacts) -> Result<Recorded> {
    let input = Input::open(path)?;
    let session = Session::open(&input)?;
    let options = Options { threads: Some(1), all: true, by: Some(By::Split(Split::Func)), ..Options::default() };
    let report = session.by_prog(&options)?;
    let at = || path.display().to_string();
    ensure!(
        given.unfinished || !report.recording.unfinished,
        "{}: has no end: the recorder is still writing, or was interrupted; `bprec recover` completes the recording; `--unfinished` \
         imports the part that exists, and the complete recording is refused later",
        at()
    );
    let micros = |unix_ns: u64| i64::try_from(unix_ns / 1000).map(UnixMicros);
    let start = report.recording.start_unix_ns.map(micros).transpose().with_context(at)?;
    let start = start.filter(|start| Date::of(*start) <= Date::MAX);
    let Some(date) = start.map(Date::of).or(given.date) else {
        bail!("{}: has no date; give it by `--date YYYY-MM-DD`", at());
    };
    date.check_clock().with_context(at)?;
    let mut converter = Converter::new(&report, given, start);
    converter.recording(&format!("{id:032x}"), bytes, path).with_context(at)?;
    for program in &*report.programs {
        converter.program(program).with_context(at)?;
    }
    for event in &report.events {
        converter.event(event).with_context(at)?;
    }
    let options = Options { threads: Some(1), ..Options::default() };
    converter.counters(&session.counters(&options)?).with_context(at)?;
    let is_same = content_id(path)? == (id, bytes);
    ensure!(is_same, "{}: changed during the import", at());
    Ok(Recorded { date, id, rows: converter.rows })
}

/// Makes the rows of a recording. The rows of `prog`, which have the columns of the programs, are in the order of the report.
struct Converter<'r> {
    report: &'r Report,
    start: Option<UnixMicros>,
    host_id: Option<Text>,
    host_name: Option<Text>,
    boot_id: Option<Text>,
    kernel_release: Option<Text>,
    labels: Option<Text>,
    cpu_count: Option<i32>,
    texts: HashMap<String, Text>,
    rows: Rows,
}

/// Creates a row with the columns that [`crate::schema`] has for all rows of a host, of a recording, or of a program.
macro_rules! row {
    ($converter:expr, host => $row:ident { $($columns:tt)* }) => {
        $row {
            host_id: $converter.host_id.clone(),
            host_name: $converter.host_name.clone(),
            boot_id: $converter.boot_id.clone(),
            kernel_release: $converter.kernel_release.clone(),
            $($columns)*
        }
    };
    ($converter:expr, recording => $row:ident { $($columns:tt)* }) => {
        row!($converter, host => $row {
            window_start: $converter.start,
            labels: $converter.labels.clone(),
            $($columns)*
        })
    };
    ($converter:expr, recording, $program:expr => $row:ident { $($columns:tt)* }) => {
        row!($converter, recording => $row {
            prog_id: $program.prog_id,
            load_time_ns: $program.load_time_ns,
            prog_key: $program.prog_key.clone(),
            tag: $program.tag.clone(),
            name: $program.name.clone(),
            prog_type: $program.prog_type.clone(),
            version_label: $program.version_label.clone(),
            counts_others: $program.counts_others,
            $($columns)*
        })
    };
}

impl<'r> Converter<'r> {
    fn new(report: &'r Report, given: &GivenFacts, start: Option<UnixMicros>) -> Converter<'r> {
        let recording = &report.recording;
        let labels: BTreeMap<&String, &String> = given.labels.iter().map(|(key, value)| (key, value)).collect();
        Converter {
            labels: (!labels.is_empty()).then(|| serde_json::json!(labels).to_string().into()),
            start,
            // Without a machine id, the host name is the id. It is not hashed, because lakes of earlier versions have
            // the plain name.
            host_id: text(given.host.as_ref().or(recording.machine_id.as_ref()).or(recording.hostname.as_ref())),
            host_name: text(recording.hostname.as_ref()),
            boot_id: text(recording.boot_id.as_ref()),
            kernel_release: text(recording.os_release.as_ref()),
            cpu_count: recording.cpus.and_then(|cpus| i32::try_from(cpus).ok()),
            texts: HashMap::new(),
            rows: Rows::default(),
            report,
        }
    }

    /// Returns the copy of a text that all rows share.
    fn shared(&mut self, text: &str) -> Text {
        if let Some(known) = self.texts.get(text) {
            return known.clone();
        }
        let shared = Text::from(text);
        self.texts.insert(text.to_owned(), shared.clone());
        shared
    }

    fn recording(&mut self, id: &str, bytes: u64, path: &Path) -> Result<()> {
        let recording = &self.report.recording;
        let cpu_time = || recording.elapsed_ns?.checked_mul(recording.cpus?.into());
        let problems = (!self.report.problems.is_empty()).then(|| self.report.problems.join("; "));
        self.rows.recordings.push(row!(self, host => RecordingRow {
            schema_version: SCHEMA_VERSION,
            recording_id: id.into(),
            arch: text(recording.arch.as_ref()),
            cpu_model: text(recording.cpu_model.as_ref()),
            cpu_count: self.cpu_count,
            labels: self.labels.clone(),
            start_time: self.start,
            duration_ns: recording.elapsed_ns.map(signed).transpose()?,
            cpu_time_ns: cpu_time().map(signed).transpose()?,
            target: text(recording.target.as_ref()),
            run_stats_source: text(recording.counters.as_ref()),
            lost_records: signed(recording.lost_records)?,
            problems: text(problems.as_ref()),
            source_uri: path.to_string_lossy().into(),
            source_bytes: signed(bytes)?,
            writer: concat!("bprec-fleet ", env!("CARGO_PKG_VERSION")).into(),
            ingested_at: Some(UnixMicros::now()),
        }));
        Ok(())
    }

    fn program(&mut self, program: &Program) -> Result<()> {
        let is_sha256 = self.kernel_release.as_deref().and_then(has_sha256_tags);
        let owner = program.owners.first();
        let version = program.metadata.iter().find(|metadata| metadata.key == VERSION_KEY);
        let columns = row!(self, host => ProgRow {
            prog_id: program.id.and_then(|id| i32::try_from(id).ok()),
            load_time_ns: program.load_time_ns.and_then(|ns| i64::try_from(ns).ok()),
            prog_key: prog_key(program).into(),
            tag: program.tag.map(|tag| tag.to_string().into()),
            name: program.label().into(),
            prog_type: program.prog_type.map(|prog_type| prog_type.to_string().into()),
            version_label: text(version.map(|version| &version.value)),
            counts_others: program.counts_others,
            tag_algo: program.tag.and(is_sha256).map(|is_sha256| if is_sha256 { "sha256" } else { "sha1" }.into()),
            source_file: program.source_file.as_deref().map(Text::from),
            owner_comm: text(owner.map(|owner| &owner.comm)),
            owner_uid: owner.and_then(|owner| i32::try_from(owner.uid).ok()),
        });
        self.rows.progs.push(columns.clone());
        let mut hooks: BTreeMap<(&str, Option<String>), i64> = BTreeMap::new();
        for attachment in &program.attachments {
            *hooks.entry((&attachment.kind, hook(attachment))).or_default() += 1;
        }
        for ((kind, hook), attach_points) in hooks {
            let kind = self.shared(kind);
            let row =
                row!(self, recording, columns => AttachmentRow { kind, hook: text(hook.as_ref()), attach_points });
            self.rows.attachments.push(row);
        }
        let Some(runs) = program.runs.value() else { return Ok(()) };
        self.rows.run_stats.push(row!(self, recording, columns => RunStatsRow {
            cpu_count: self.cpu_count,
            observed_ns: runs.span.map(|(from_ns, to_ns)| signed(to_ns.saturating_sub(from_ns))).transpose()?,
            run_cnt: signed(runs.count)?,
            run_time_ns: signed(runs.time_ns)?,
            recursion_misses: runs.misses.map(signed).transpose()?,
            is_estimate: runs.estimate.is_some(),
            is_partial: program.loaded.is_some() || program.unloaded.is_some(),
            time_margin_ns: runs.estimate.and_then(|estimate| estimate.time_margin_ns).map(signed).transpose()?,
            hour_of_week: self.start.map(UnixMicros::hour_of_week),
        }));
        Ok(())
    }

    fn event(&mut self, event: &EventReport) -> Result<()> {
        let unit = if event.unit == Unit::Nanoseconds { "ns" } else { "events" };
        let (name, unit) = (self.shared(&event.name), self.shared(unit));
        let known = |value: Option<&u64>| value.map(|value| signed(*value)).transpose();
        let event_row = row!(self, recording => EventRow {
            cpu_count: self.cpu_count,
            event: name,
            unit,
            samples: signed(event.samples.samples)?,
            weight: signed(event.samples.weight)?,
            bpf_samples: signed(event.total.count.samples)?,
            bpf_weight: signed(event.total.count.weight)?,
            idle_weight: known(event.idle.value().map(|share| &share.count.weight))?,
            machine_weight: known(event.machine.value())?,
            lost: known(event.lost.value())?,
        });
        // Each sample that is charged to a program is in one function.
        for row in &event.rows {
            for part in row.parts.iter().flatten() {
                let func = self.shared(&part.name);
                self.sample(&event_row, "program", Some((row.program, func)), &part.line)?;
            }
        }
        for (scope, line) in [("entry", &event.entry_unattributed), ("interpreter", &event.interpreted)] {
            if let Some(line) = line.value() {
                self.sample(&event_row, scope, None, line)?;
            }
        }
        self.rows.events.push(event_row);
        Ok(())
    }

    /// Adds the samples of an event in a function of a program (position in the report), or in other BPF code.
    fn sample(&mut self, event: &EventRow, scope: &str, of: Option<(usize, Text)>, line: &Line) -> Result<()> {
        if line.count.samples == 0 && line.count.weight == 0 {
            return Ok(());
        }
        let scope = self.shared(scope);
        let known = of.as_ref().map(|(position, _)| &self.rows.progs[*position]);
        let columns = line.columns.as_ref();
        let weight = |share: Option<&bprec_report::model::Share>| share.map(|it| signed(it.count.weight)).transpose();
        self.rows.samples.push(row!(self, recording => SampleRow {
            prog_id: known.and_then(|it| it.prog_id),
            load_time_ns: known.and_then(|it| it.load_time_ns),
            prog_key: known.map(|it| it.prog_key.clone()),
            tag: known.and_then(|it| it.tag.clone()),
            name: known.map(|it| it.name.clone()),
            prog_type: known.and_then(|it| it.prog_type.clone()),
            version_label: known.and_then(|it| it.version_label.clone()),
            counts_others: known.is_some_and(|it| it.counts_others),
            event: event.event.clone(),
            unit: event.unit.clone(),
            scope,
            func: of.as_ref().map(|(_, func)| func.clone()),
            samples: signed(line.count.samples)?,
            weight: signed(line.count.weight)?,
            self_weight: weight(columns.and_then(|columns| columns.own.value()))?,
            helper_weight: weight(columns.and_then(|columns| columns.helper.value()))?,
            entry_weight: weight(columns.and_then(|columns| columns.entry.value()))?,
        }));
        Ok(())
    }

    /// Adds the readings of all counters. Run statistics are left out, because they are in `run_stats`.
    fn counters(&mut self, report: &bprec_report::CountersReport) -> Result<()> {
        for row in report.totals.iter().filter(|row| row.source != CounterSource::Stats) {
            let Some(totals) = row.counts.value() else { continue };
            let target = &row.target;
            let is_program = target.kind == "program";
            let id = i32::try_from(target.id).ok().filter(|_| is_program);
            let load_time_ns = target.load_time_ns.and_then(|ns| i64::try_from(ns).ok());
            let is_of_target = |it: &&ProgRow| id.is_some() && it.prog_id == id && it.load_time_ns == load_time_ns;
            let program = self.rows.progs.iter().find(is_of_target).cloned();
            for reading in &totals.readings {
                let Some(event) = &reading.event else { continue };
                let (event, scope) = (self.shared(event), self.shared(target.kind));
                let runs = |count: u64| is_program.then(|| signed(count)).transpose();
                let row = row!(self, recording => CounterRow {
                        source: self.shared(row.source.name()),
                scope,
                target_id: Some(signed(target.id)?),
                prog_key: program.as_ref().map(|it| it.prog_key.clone()),
                tag: program.as_ref().and_then(|it| it.tag.clone()),
                name: match &program {
                    Some(program) => Some(program.name.clone()),
                    None => (!target.name.is_empty()).then(|| target.name.as_str().into()),
                },
                func: (is_program && target.function > 0).then(|| target.name.as_str().into()),
                cpu: target.cpu.and_then(|cpu| i32::try_from(cpu).ok()),
                event,
                value: signed(reading.value)?,
                time_enabled_ns: signed(reading.enabled_ns)?,
                time_running_ns: signed(reading.running_ns)?,
                runs: runs(totals.values.runs)?,
                measured_runs: runs(totals.values.measured)?,
                    });
                self.rows.counters.push(row);
            }
        }
        Ok(())
    }
}

fn text(text: Option<&String>) -> Option<Text> {
    text.map(|text| Text::from(text.as_str()))
}

/// Converts a number for a table.
///
/// # Errors
/// Fails if the number is above 2^63 - 1.
fn signed(value: u64) -> Result<i64> {
    i64::try_from(value).with_context(|| format!("{value} does not fit into 63 bits"))
}

impl Date {
    /// First day that a lake can have.
    pub(crate) const MIN: Date = Date { days: 0 };
    /// Last day that a lake can have: 9999-12-31.
    pub(crate) const MAX: Date = Date { days: 2_932_896 };

    /// Day of a moment.
    pub(crate) fn of(time: UnixMicros) -> Date {
        Date { days: time.0.div_euclid(86_400_000_000) }
    }

    /// Today by this machine's clock.
    pub(crate) fn today() -> Date {
        Date::of(UnixMicros::now())
    }

    /// Fails if the day is later than tomorrow by this machine's clock.
    pub(crate) fn check_clock(self) -> Result<()> {
        let today = Date::today();
        ensure!(
            self <= today.plus_days(1),
            "its clock says {self}, but today is {today}: the clock of the host, or of this machine, is wrong"
        );
        Ok(())
    }

    /// Returns the day `days` later.
    pub(crate) fn plus_days(self, days: i64) -> Date {
        Date { days: self.days + days }
    }

    /// Returns the count of days from `since` to this day.
    pub(crate) fn days_since(self, since: Date) -> i64 {
        self.days - since.days
    }
}

/// `YYYY-MM-DD`.
impl std::fmt::Display for Date {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match i32::try_from(self.days).ok().and_then(NaiveDate::from_epoch_days) {
            Some(date) => write!(f, "{date}"),
            None => write!(f, "day {} since 1970", self.days),
        }
    }
}

impl std::str::FromStr for Date {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Date> {
        let date = text.parse::<NaiveDate>().ok().map(|date| Date { days: date.to_epoch_days().into() });
        // The parser accepts other forms, too, so the text must equal the printed date.
        let date = date.filter(|date| (Date::MIN..=Date::MAX).contains(date) && date.to_string() == text);
        date.with_context(|| format!("{text:?} is not a date: expected YYYY-MM-DD, 1970 or later"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Days by `date -u -d DATE +%s` divided by 86400.
    #[test]
    fn days_are_those_of_the_calendar() {
        for (days, date) in [
            (0, "1970-01-01"),
            (11_016, "2000-02-29"),
            (19_782, "2024-02-29"),
            (19_783, "2024-03-01"),
            (20_777, "2026-11-20"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
            (Date::MAX.days, "9999-12-31"),
        ] {
            assert_eq!(Date { days }.to_string(), date);
            assert_eq!(date.parse::<Date>().unwrap().days, days);
        }
        for bad in ["", "2026-02-29", "2026-13-01", "2026-1-1", "1969-12-31", "2026-11-20x", "+026-11-20"] {
            assert!(bad.parse::<Date>().is_err(), "{bad}");
        }
    }
}
