//! Conversion of a recording to rows. All numbers are those of the reporter's model.

use crate::identity::hook;
use crate::schema::{
    AttachmentRow, BillRow, CounterRow, EventRow, HostColumns, ProgRow, ProgramColumns, RecordedRows, RecordingColumns,
    RecordingRow, RunStatsRow, SampleRow, Time, columns_of, is_program,
};
use anyhow::{Context, Result, ensure};
use bprec_report::model::{CounterSource, EventBill, Report};
use bprec_report::{By, CountersReport, Input, Options, Session, Split};
use chrono::{NaiveDate, Utc};
use datafusion::arrow::array::RecordBatch;
use fs_err::{self as fs, File};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::io::{self, BufReader};
use std::path::Path;
use std::time::Duration;

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
    #[arg(long, value_name = "YYYY-MM-DD", value_parser = date)]
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
pub(crate) type Date = NaiveDate;

/// First day that a lake can have: 1970-01-01.
pub(crate) const FIRST_DAY: Date = Date::from_epoch_days(0).unwrap();
/// Last day that a lake can have: 9999-12-31.
pub(crate) const LAST_DAY: Date = Date::from_epoch_days(2_932_896).unwrap();

/// Parses a day, `YYYY-MM-DD`.
pub(crate) fn date(text: &str) -> Result<Date> {
    // The library accepts other forms, too, so the text must equal the printed date.
    let date =
        text.parse::<Date>().ok().filter(|date| (FIRST_DAY..=LAST_DAY).contains(date) && date.to_string() == text);
    date.with_context(|| format!("{text:?} is not a date: expected YYYY-MM-DD, 1970 or later"))
}

/// Fails if the day is later than tomorrow by this machine's clock.
pub(crate) fn check_clock(date: Date) -> Result<()> {
    let today = Utc::now().date_naive();
    ensure!(
        date.signed_duration_since(today).num_days() <= 1,
        "its clock says {date}, but today is {today}: the clock of the host, or of this machine, is wrong"
    );
    Ok(())
}

/// Returns the id of a recording and its size in bytes. The id is the first half of the SHA-256 of its bytes; for a directory, of the bytes and the
/// length of each file, sorted by name.
///
/// # Errors
/// Fails if a file cannot be read.
pub(crate) fn content_id(path: &Path) -> Result<(u128, u64)> {
    let mut files = vec![path.to_owned()];
    if path.is_dir() {
        files = fs::read_dir(path)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
        files.retain(|file| file.is_file());
        files.sort();
    }
    let (mut hash, mut bytes) = (Sha256::new(), 0);
    for file in files {
        // A pipe can be read only once, but an import reads the input several times.
        let (name, is_file) = (file.display(), fs::metadata(&file)?.is_file());
        ensure!(is_file, "{name}: is neither a file nor a directory; save the recording to a file first");
        let length = io::copy(&mut BufReader::with_capacity(1 << 16, File::open(&file)?), &mut hash)?;
        bytes += length;
        if path.is_dir() {
            hash.update(length.to_le_bytes());
        }
    }
    let id = hash.finalize()[..16].iter().fold(0, |id, byte| id << 8 | u128::from(*byte));
    Ok((id, bytes))
}

/// Rows of a recording.
#[derive(Debug)]
pub(crate) struct Recorded {
    pub(crate) date: Date,
    /// One row of [`RecordedRows`].
    pub(crate) rows: RecordBatch,
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
    let (report, bills) = session.by_prog_with_bills(&options)?;
    let counters = session.counters(&Options { threads: Some(1), ..Options::default() })?;
    let recorded = || {
        ensure!(
            given.unfinished || !report.recording.unfinished,
            "has no end: the recorder is still writing, or was interrupted; `bprec recover` completes the recording; `--unfinished` \
             imports the part that exists, and the complete recording is refused later"
        );
        let start = report.recording.start_unix_ns.map(|unix_ns| Time::UNIX_EPOCH + Duration::from_nanos(unix_ns));
        let date = start.map(|start| start.date_naive()).or(given.date);
        let date = date.context("has no date; give it by `--date YYYY-MM-DD`")?;
        check_clock(date)?;
        let labels: BTreeMap<&String, &String> = given.labels.iter().map(|(key, value)| (key, value)).collect();
        let labels = (!labels.is_empty()).then(|| serde_json::json!(labels).to_string().into());
        let of = RecordingColumns::new(HostColumns::new(&report.recording, given.host.as_ref())?, start, labels)?;
        let mut rows = RecordedRows::new(date)?;
        add_programs(&mut rows, &report, &of)?;
        add_events(&mut rows, &report, bills, &of)?;
        add_counters(&mut rows, &counters, &of)?;
        rows.recording.push(RecordingRow::new(&report, &of, id, bytes, path)?);
        ensure!(content_id(path)? == (id, bytes), "changed during the import");
        Ok(Recorded { date, rows: columns_of(&[rows])? })
    };
    recorded().with_context(|| path.display().to_string())
}

/// Adds the programs, their attach points and their runs. Rows of `prog` are in the order of the report.
fn add_programs(rows: &mut RecordedRows, report: &Report, of: &RecordingColumns) -> Result<()> {
    for program in &*report.programs {
        let prog = ProgRow::new(&of.host, program)?;
        let mut hooks: BTreeMap<(&str, Option<String>), i64> = BTreeMap::new();
        for attachment in &program.attachments {
            *hooks.entry((&attachment.kind, hook(attachment))).or_default() += 1;
        }
        for ((kind, hook), attach_points) in hooks {
            rows.attachment.push(AttachmentRow::new(of, &prog, kind, hook.as_ref(), attach_points)?);
        }
        if let Some(runs) = program.runs.value() {
            rows.run_stats.push(RunStatsRow::new(report, of, &prog, program, runs)?);
        }
        rows.prog.push(prog);
    }
    Ok(())
}

/// Adds the events, their samples by function, and the bills of owners. Each sample that is charged to a program is in one function. Events without
/// samples have no bill.
fn add_events(rows: &mut RecordedRows, report: &Report, bills: Vec<EventBill>, of: &RecordingColumns) -> Result<()> {
    let mut bills = bills.into_iter().peekable();
    for event in &report.events {
        let row = EventRow::new(report, of, event)?;
        let by_function = event.rows.iter().flat_map(|row| row.parts.iter().flatten().map(|part| (row.program, part)));
        let by_function = by_function.map(|(at, part)| ("program", Some(&rows.prog[at]), Some(&part.name), &part.line));
        let others = [("entry", event.entry_unattributed.value()), ("interpreter", event.interpreted.value())];
        let others = others.into_iter().filter_map(|(scope, line)| Some((scope, None, None, &**line?)));
        for (scope, prog, func, line) in by_function.chain(others) {
            if line.count.samples > 0 || line.count.weight > 0 {
                rows.sample.push(SampleRow::new(&row, scope, prog, func, line)?);
            }
        }
        if let Some(bill) = bills.next_if(|bill| (&bill.name, bill.samples) == (&event.name, event.samples)) {
            let owners = bill.owners.iter().map(|owner| (Some(owner), &owner.parts));
            for (owner, parts) in owners.chain([(None, &bill.unattributed)]) {
                rows.bill.get_or_insert_default().push(BillRow::new(&row, owner, parts)?);
            }
        }
        rows.event.push(row);
    }
    Ok(())
}

/// Adds the readings of all counters. Run statistics are left out, because they are in `run_stats`.
fn add_counters(rows: &mut RecordedRows, report: &CountersReport, of: &RecordingColumns) -> Result<()> {
    for row in report.totals.iter().filter(|row| row.source != CounterSource::Stats) {
        let Some(totals) = row.counts.value() else { continue };
        let id = i32::try_from(row.target.id).ok().filter(|_| is_program(row));
        let load_time_ns = row.target.load_time_ns.and_then(|ns| i64::try_from(ns).ok());
        let is_target = |it: &&ProgramColumns| id.is_some() && it.prog_id == id && it.load_time_ns == load_time_ns;
        let program = rows.prog.iter().map(|row| &row.program).find(is_target);
        for reading in &totals.readings {
            if let Some(event) = &reading.event {
                rows.counter.push(CounterRow::new(of, row, program, &totals.values, event, reading)?);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Days by `date -u -d DATE +%s` divided by 86400.
    #[test]
    fn days_are_those_of_the_calendar() {
        for (days, text) in [
            (0, "1970-01-01"),
            (11_016, "2000-02-29"),
            (19_782, "2024-02-29"),
            (19_783, "2024-03-01"),
            (20_777, "2026-11-20"),
            (47_540, "2100-02-28"),
            (47_541, "2100-03-01"),
            (LAST_DAY.to_epoch_days(), "9999-12-31"),
        ] {
            assert_eq!(Date::from_epoch_days(days).unwrap().to_string(), text);
            assert_eq!(date(text).unwrap().to_epoch_days(), days);
        }
        for bad in ["", "2026-02-29", "2026-13-01", "2026-1-1", "1969-12-31", "2026-11-20x", "+026-11-20"] {
            assert!(date(bad).is_err(), "{bad}");
        }
    }
}
