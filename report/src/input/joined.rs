//! Several files as one recording. Checks that they belong together, orders them, and selects the files in a range of the wall clock.

use super::{GZIP_MAGIC, Input, io_error};
use crate::input::recording::OpenRecording;
use crate::options::wall_clock::{self, WallRange};
use crate::{Error, Result, TimeRange};
use bprec_format::feature::Feature;
use bprec_format::{Container, PIPE_HEADER_BYTES};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Longest overlap of two files of one recording; files that overlap more are refused. The overlap arises because the recorder reads the rings of the
/// CPUs one after another: a file may have samples that are later than the first sample of the next file.
const OVERLAP_MAX_NS: u64 = 250_000_000;

/// Largest difference of the wall clocks at one time of the recording clock that setting the wall clock explains. A clock starts at the boot.
const CLOCK_SET_NS: u128 = 60_000_000_000;

/// Facts that order files and distinguish machines.
struct FileFacts {
    first_ns: u64,
    last_ns: u64,
    /// Wall clock when the clock of the samples was 0, ns since 1970.
    wall_at_zero_ns: Option<i128>,
    /// Facts by name that tell machines and boots apart: two files with different values of a fact do not belong together. `None` if the file lacks
    /// the fact.
    machine: [(&'static str, Option<String>); 3],
}

impl FileFacts {
    fn of(input: &Input) -> Result<FileFacts> {
        let recording = OpenRecording::open_file(input)?;
        let span = input.checked(Ok(recording.sampled_span()))?;
        let Some((first_ns, last_ns)) = span else {
            let problem = "the file has no samples with times: bprec orders the files of one recording by time";
            return Err(Error::option("FILE", input.path().display().to_string(), problem));
        };
        let machine = [
            ("host", recording.text(Feature::HOSTNAME)),
            ("kernel", recording.text(Feature::OSRELEASE)),
            ("architecture", recording.text(Feature::ARCH)),
        ];
        let clock = recording.files().first().and_then(|file| file.clock);
        let wall_at_zero_ns = clock.map(|(wall_ns, clock_ns)| i128::from(wall_ns) - i128::from(clock_ns));
        Ok(FileFacts { first_ns, last_ns, wall_at_zero_ns, machine })
    }
}

impl Input {
    /// Joins files in the order of time. The result is read as one recording.
    ///
    /// # Errors
    /// Fails if `inputs` is empty. With several files, also fails if a file cannot be read or has no samples with times, or if two files are of
    /// different machines, have the same first and last time, or overlap by more than 0.25 s.
    pub fn join(inputs: Vec<Input>) -> Result<Input> {
        if inputs.len() == 1 {
            return inputs.into_iter().next().ok_or_else(nothing);
        }
        let facts = |input: Input| Ok((FileFacts::of(&input)?, input));
        let mut files = inputs.into_iter().map(facts).collect::<Result<Vec<_>>>()?;
        files.sort_by(|(a, of_a), (b, of_b)| {
            (a.first_ns, a.last_ns, of_a.path()).cmp(&(b.first_ns, b.last_ns, of_b.path()))
        });
        for (at, pair) in files.windows(2).enumerate() {
            let [(facts, input), (next, of_next)] = pair else { continue };
            let failed = |first: &Input, problem: String| Error::Files {
                first: first.path().to_owned(),
                second: of_next.path().to_owned(),
                problem,
            };
            let (first, of_first) = &files[0];
            for ((fact, value), (_, other)) in first.machine.iter().zip(&next.machine) {
                if let (Some(value), Some(other)) = (value, other)
                    && value != other
                {
                    let problem = format!("recorded on different machines or boots: {fact} {value} and {other}");
                    return Err(failed(of_first, problem));
                }
            }
            let latest = files[..=at].iter().max_by_key(|(facts, _)| facts.last_ns);
            let (latest, of_latest) = latest.map_or((facts, input), |(facts, input)| (facts, input));
            let overlap_ns = latest.last_ns.min(next.last_ns).saturating_sub(next.first_ns);
            if (facts.first_ns, facts.last_ns) == (next.first_ns, next.last_ns) {
                return Err(failed(input, "the same recording twice, or two recordings of the same time".to_owned()));
            }
            if overlap_ns > OVERLAP_MAX_NS {
                let clocks = latest.wall_at_zero_ns.zip(next.wall_at_zero_ns);
                let problem = if clocks.is_some_and(|(one, other)| one.abs_diff(other) > CLOCK_SET_NS) {
                    "recorded after different boots, as their clocks show; --since and --until choose the files of one boot"
                        .to_owned()
                } else {
                    let overlap = overlap_ns as f64 / 1e9;
                    format!("both have samples of the same {overlap:.3} s; files of one recording do not overlap")
                };
                return Err(failed(of_latest, problem));
            }
        }
        let mut inputs = files.into_iter().map(|(_, input)| input);
        let mut first = inputs.next().ok_or_else(nothing)?;
        first.later = inputs.collect();
        Ok(first)
    }

    /// Returns the files that overlap a range of the wall clock, and the range on the clock of the samples. If a file states the times of its first
    /// and last sample, its samples are not read.
    ///
    /// # Errors
    /// Fails if a file cannot be read, lacks a wall clock (`CLOCK_DATA`) or has no samples with times, or if no file overlaps the range.
    pub fn within(inputs: Vec<Input>, range: &WallRange) -> Result<(Vec<Input>, TimeRange)> {
        let spanned = |input: Input| {
            let recording = OpenRecording::open_file(&input)?;
            let clock = recording.files().first().and_then(|file| file.clock);
            let (Some((wall_ns, clock_ns)), Some(span)) = (clock, recording.sampled_span()) else {
                let path = input.path().display().to_string();
                let problem = "has no wall clock (CLOCK_DATA), or no samples with times: --since and --until need both";
                return Err(Error::option("FILE", path, problem));
            };
            drop(recording);
            Ok((i128::from(wall_ns) - i128::from(clock_ns), span, input))
        };
        let mut files = inputs.into_iter().map(spanned).collect::<Result<Vec<_>>>()?;
        files.sort_by_key(|(offset, (first, _), _)| offset + i128::from(*first));
        let wall = |offset: i128, time_ns: u64| u64::try_from(offset + i128::from(time_ns)).unwrap_or(0);
        let starts = files.iter().map(|(offset, (first, _), _)| wall(*offset, *first));
        let ends = files.iter().map(|(offset, (_, last), _)| wall(*offset, *last));
        let (Some(start_ns), Some(end_ns)) = (starts.min(), ends.max()) else { return Err(nothing()) };
        let (since_ns, until_ns) = range.resolve(end_ns)?;
        files.retain(|(offset, (first, last), _)| {
            since_ns.is_none_or(|since| since <= wall(*offset, *last))
                && until_ns.is_none_or(|until| wall(*offset, *first) <= until)
        });
        let (Some((from, (first, _), _)), Some((to, (_, last), _))) = (files.first(), files.last()) else {
            let (start, end) = (wall_clock::text(start_ns), wall_clock::text(end_ns));
            let problem = format!("no file has samples in this range; the samples are from {start} to {end}");
            return Err(Error::option("--since/--until", range.to_string(), problem));
        };
        let on_clock = |offset: i128, time_ns: u64| u64::try_from(i128::from(time_ns) - offset).unwrap_or(0);
        let from_ns = since_ns.map(|since| on_clock(*from, since)).filter(|since| since > first);
        let to_ns = until_ns.map(|until| on_clock(*to, until)).filter(|until| until < last);
        let time = match (from_ns, to_ns) {
            (None, None) => TimeRange::All,
            (from_ns, to_ns) => TimeRange::Absolute(from_ns, to_ns),
        };
        Ok((files.into_iter().map(|(.., input)| input).collect(), time))
    }
}

fn nothing() -> Error {
    Error::option("FILE", "", "no recording is given")
}

/// Returns the recordings at a path. A file is one recording, and so is a directory with a file `data`: these give `path` itself. Any other
/// directory, such as one with the files of `perf record --switch-output`, gives the recordings in it, sorted.
///
/// # Errors
/// Fails if the directory cannot be read or has no recording.
pub fn recordings_of(path: &Path) -> Result<Vec<PathBuf>> {
    if !path.is_dir() || path.join("data").is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    for entry in std::fs::read_dir(path).map_err(io_error("read directory", path))? {
        let file = entry.map_err(io_error("read directory", path))?.path();
        if file.is_file() && is_recording(&file) {
            found.push(file);
        }
    }
    found.sort();
    if found.is_empty() {
        let problem = "a directory without recordings".to_owned();
        return Err(Error::NotRecording { path: path.to_owned(), problem });
    }
    Ok(found)
}

/// Returns true if a file begins with the magic of gzip or of a `perf.data` container.
fn is_recording(path: &Path) -> bool {
    let mut head = [0; PIPE_HEADER_BYTES];
    let is_read = File::open(path).and_then(|mut file| file.read_exact(&mut head)).is_ok();
    is_read && (head.starts_with(&GZIP_MAGIC) || Container::detect(&head).is_ok())
}
