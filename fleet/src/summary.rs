//! Summaries: the rows of recordings in one file, which a host makes with the code of the import and sends instead of the recordings.
//!
//! A summary is zstd-compressed JSON: a line with format and version, then a line per recording. Columns have the names of the tables, so a newer
//! importer reads null for a column that an older host does not know. JSON, unlike Parquet, bounds the memory of a hostile summary by its
//! decompressed size.

use crate::import::ReadOptions;
use crate::parallel::in_parallel;
use crate::rows::{Date, GivenFacts, Recorded, content_id, rows_of};
use crate::schema::{Rows, SCHEMA_VERSION, UnixMicros};
use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{Read, Seek, Write};
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

/// Line of a recording.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    date: String,
    rows: Rows,
}

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
    let at = || format!("write {}", output.display());
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
                Ok(Recorded { date, rows, .. }) => {
                    line = serde_json::to_vec(&Entry { date: date.to_string(), rows })?;
                    line.push(b'\n');
                    bytes += line.len();
                    ensure!(
                        bytes <= MAX_BYTES,
                        "{}: exceeds {MAX_BYTES} bytes; name fewer recordings",
                        output.display()
                    );
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
    let at = || path.display().to_string();
    let mut file = File::open(path).with_context(at)?;
    let mut magic = MAGIC;
    if file.read_exact(&mut magic).is_err() || magic != MAGIC {
        return Ok(None);
    }
    file.rewind().with_context(at)?;
    let file = zstd::Decoder::new(file).with_context(at)?;
    let mut text = String::new();
    let read = file.take(MAX_BYTES as u64 + 1).read_to_string(&mut text);
    read.with_context(|| format!("{}: the summary is damaged or incomplete", at()))?;
    ensure!(text.len() <= MAX_BYTES, "{}: the summary exceeds {MAX_BYTES} bytes", at());
    let mut lines = text.lines();
    let (heading, known) = (lines.next().unwrap_or_default(), heading());
    ensure!(
        heading == known,
        "{}: expected a summary of version {SCHEMA_VERSION}, but it begins with {:?}",
        at(),
        heading.chars().take(HEADING_CHARS).collect::<String>()
    );
    ensure!(
        *given == GivenFacts::default(),
        "{}: --host, --label, --date and --unfinished have no effect on a summary; give them to `bprec-fleet summarize`",
        at()
    );
    let recorded = |(number, line)| recorded(line).with_context(|| format!("{}: recording {}", at(), number + 1));
    lines.enumerate().map(recorded).collect::<Result<_>>().map(Some)
}

fn recorded(line: &str) -> Result<Recorded> {
    let Entry { date, mut rows } = serde_json::from_str(line)?;
    let date: Date = date.parse()?;
    ensure!(rows.is_valid(), "a number is negative");
    let [recording] = &mut rows.recordings[..] else { bail!("must have one row of `recording`") };
    let id = u128::from_str_radix(&recording.recording_id, 16).context("recording_id is no hash")?;
    ensure!(*recording.recording_id == *format!("{id:032x}"), "recording_id is no hash");
    ensure!(recording.schema_version == SCHEMA_VERSION, "schema_version is not {SCHEMA_VERSION}");
    ensure!(recording.start_time.is_none_or(|start| Date::of(start) == date), "start_time is not on {date}");
    date.check_clock()?;
    recording.ingested_at = Some(UnixMicros::now());
    Ok(Recorded { date, id, rows })
}
