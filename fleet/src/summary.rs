//! Summaries: the rows of recordings in one file, which a host makes with the code of the import and sends instead of the recordings.
//!
//! A summary is zstd-compressed JSON: a line with format and version, then a line per recording. Columns have the names of the tables, so a newer
//! importer reads null for a column that an older host does not know. JSON, unlike Parquet, bounds the memory of a hostile summary: at most ten times
//! its decompressed size.

use crate::import::ReadOptions;
use crate::parallel::in_parallel;
use crate::rows::{GivenFacts, Recorded, check_clock, content_id, date, rows_of};
use crate::schema::{RECORDING, SCHEMA_VERSION, Time, recorded_schema, rows_in, tables};
use anyhow::{Context, Result, ensure};
use datafusion::arrow::array::{Array, AsArray, RecordBatch};
use datafusion::arrow::compute::{cast, min};
use datafusion::arrow::datatypes::{DataType, Int32Type, Int64Type, TimestampMicrosecondType};
use datafusion::arrow::json::{LineDelimitedWriter, ReaderBuilder};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use tempfile::NamedTempFile;

/// First bytes of zstd-compressed data (RFC 8878).
const MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
/// Limit on the quoted part of an unknown first line.
const HEADING_CHARS: usize = 80;
/// Limit on the decompressed size, bytes.
const MAX_BYTES: usize = 64 << 20;
/// Limit on the recordings in memory at the same time.
const RECORDINGS: usize = 100;
/// Level of the compression.
const LEVEL: i32 = 9;

/// First line of a summary.
fn heading() -> String {
    format!(r#"{{"format":"bprec-fleet summary","version":{SCHEMA_VERSION}}}"#)
}

/// Writes the rows of recordings to the file `output`, which is created or replaced. `refuse` gets the errors of recordings that cannot be read.
/// Returns the count of recordings in the summary.
///
/// # Errors
/// Fails if the summary cannot be written or exceeds [`MAX_BYTES`]; then `output` is unchanged.
pub(crate) fn summarize(
    output: &Path,
    names: impl Iterator<Item = Result<PathBuf>>,
    options: &ReadOptions,
    mut refuse: impl FnMut(&anyhow::Error),
) -> Result<usize> {
    let name = output.display();
    let at = || format!("write {name}");
    options.confine(output, false);
    let directory = output.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."));
    let mut file = NamedTempFile::new_in(directory).with_context(at)?;
    let mut encoder = zstd::Encoder::new(&mut file, LEVEL).with_context(at)?;
    let mut line = (heading() + "\n").into_bytes();
    let (mut bytes, mut recordings) = (line.len(), 0);
    encoder.write_all(&line).with_context(at)?;
    let mut names = names.peekable();
    while names.peek().is_some() {
        let names: Vec<PathBuf> = names.by_ref().take(RECORDINGS).collect::<Result<_>>()?;
        let read = |name: &PathBuf| rows_of(name, content_id(name)?, &options.given);
        for recorded in in_parallel(&names, options.threads, read)? {
            match recorded {
                Err(error) => refuse(&error),
                Ok(Recorded { rows, .. }) => {
                    let mut writer = LineDelimitedWriter::new(Vec::new());
                    writer.write(&rows)?;
                    writer.finish()?;
                    line = writer.into_inner();
                    bytes += line.len();
                    ensure!(bytes <= MAX_BYTES, "{name}: exceeds {MAX_BYTES} bytes; name fewer recordings");
                    encoder.write_all(&line).with_context(at)?;
                    recordings += 1;
                }
            }
        }
    }
    encoder.finish().with_context(at)?;
    file.as_file().sync_all().with_context(at)?;
    file.persist(output).with_context(at)?;
    Ok(recordings)
}

/// Reads a summary; `None` if the file has another format.
///
/// # Errors
/// Fails if the summary is damaged or too large, has a value that no recording can have, or has another version.
pub(crate) fn read(path: &Path, given: &GivenFacts) -> Result<Option<Vec<Recorded>>> {
    // Opening a pipe would wait for its writer.
    if !path.is_file() {
        return Ok(None);
    }
    let mut file = BufReader::new(File::open(path)?);
    if !file.fill_buf()?.starts_with(&MAGIC) {
        return Ok(None);
    }
    let mut text = String::new();
    let read = zstd::Decoder::with_buffer(file)?.take(MAX_BYTES as u64 + 1).read_to_string(&mut text);
    read.context("the summary is damaged or incomplete")?;
    ensure!(text.len() <= MAX_BYTES, "the summary exceeds {MAX_BYTES} bytes");
    let (first, lines) = text.split_once('\n').unwrap_or((&text, ""));
    let begin: String = first.chars().take(HEADING_CHARS).collect();
    ensure!(first == heading(), "expected a summary of version {SCHEMA_VERSION}, but it begins with {begin:?}");
    ensure!(
        *given == GivenFacts::default(),
        "--host, --label, --date and --unfinished have no effect on a summary; give them to `bprec-fleet summarize`"
    );
    let lines =
        ReaderBuilder::new(recorded_schema()).with_strict_mode(true).with_batch_size(1).build(lines.as_bytes())?;
    let recorded = lines.enumerate().map(|(number, line)| {
        let recorded = line.map_err(anyhow::Error::from).and_then(recorded);
        recorded.with_context(|| format!("recording {}", number + 1))
    });
    recorded.collect::<Result<_>>().map(Some)
}

fn recorded(entry: RecordBatch) -> Result<Recorded> {
    let date = date(entry["date"].as_string::<i32>().value(0))?;
    for table in tables() {
        for column in rows_in(&entry, table.name)?.columns().iter().filter(|column| column.data_type().is_primitive()) {
            let least = min(cast(column, &DataType::Int64)?.as_primitive::<Int64Type>());
            ensure!(least.is_none_or(|least| least >= 0), "a number is negative");
        }
    }
    let recording = rows_in(&entry, RECORDING)?;
    ensure!(recording.num_rows() == 1, "must have one row of `recording`");
    let id = recording["recording_id"].as_string::<i32>().value(0);
    ensure!(u128::from_str_radix(id, 16).is_ok_and(|hash| format!("{hash:032x}") == id), "recording_id is no hash");
    let version = recording["schema_version"].as_primitive::<Int32Type>().value(0);
    ensure!(version == SCHEMA_VERSION, "schema_version is not {SCHEMA_VERSION}");
    let start = recording["start_time"].as_primitive::<TimestampMicrosecondType>().iter().next().flatten();
    let day = start.map(|start| Time::from_timestamp_micros(start).map(|start| start.date_naive()));
    ensure!(day.is_none_or(|day| day == Some(date)), "start_time is not on {date}");
    check_clock(date)?;
    Ok(Recorded { date, rows: entry })
}
