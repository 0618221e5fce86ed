//! Reads any container record by record, for readers that look at every record once and keep little.

use std::fs::File as OsFile;
use std::io::{self, Read};
use std::ops::{ControlFlow, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bprec_format::{
    Availability, Chunk, Chunks, Container, Events, File, Metadata, Origin, PIPE_HEADER_BYTES, Record, Records, Resync,
    Stream,
};

use crate::input::GZIP_MAGIC;
use crate::input::cut_off::CutOff;
use crate::{Error, Input, Progress, Result};

/// Bytes per read from a pipe.
const READ_BYTES: usize = 256 << 10;

/// An opened recording: a file, a directory of files, or a stream.
pub struct Source {
    path: PathBuf,
    kind: SourceKind,
    progress: Arc<Progress>,
}

enum SourceKind {
    /// A file or directory, mapped.
    Input(Input),
    /// A stream, read as it arrives.
    Stream(Box<dyn Read>),
}

/// A record that is passed to the visitor.
pub(crate) struct Arrival<'a> {
    pub(crate) record: Record<'a>,
    /// Index in [`Visitor::mapped`] of the file that contains the record; `None` for a stream and for a compressed record.
    pub(crate) mapped: Option<usize>,
    /// True if the record describes the recording, even if [`Metadata`] rejected it as damaged.
    pub(crate) is_description: bool,
}

impl Source {
    /// Opens a recording: a file, mapped; a directory as `perf record --threads` writes it; `-` for standard input.
    /// A pipe is read as it arrives.
    ///
    /// # Errors
    /// Fails if the recording cannot be opened.
    pub fn open(path: impl AsRef<Path>) -> Result<Source> {
        Source::open_with(path, &Arc::default())
    }

    /// Opens a recording and reports the progress of copying and reading to `progress`.
    ///
    /// # Errors
    /// Fails as [`Source::open`] does.
    pub fn open_with(path: impl AsRef<Path>, progress: &Arc<Progress>) -> Result<Source> {
        let (path, progress) = (path.as_ref().to_owned(), Arc::clone(progress));
        let failed = |call| {
            let path = path.clone();
            move |source| Error::Io { call, path, source }
        };
        if path == Path::new("-") {
            let kind = match Input::of_redirected_stdin(&path, &progress)? {
                Some(input) => SourceKind::Input(input),
                None => SourceKind::Stream(Box::new(io::stdin())),
            };
            return Ok(Source { kind, path, progress });
        }
        let file_type = std::fs::metadata(&path).map_err(failed("stat"))?.file_type();
        let kind = if file_type.is_dir() || file_type.is_file() {
            SourceKind::Input(Input::open_with(&path, &progress)?)
        } else {
            SourceKind::Stream(Box::new(OsFile::open(&path).map_err(failed("open"))?))
        };
        Ok(Source { path, kind, progress })
    }

    /// Makes a source of a recording in memory, called `name` in messages.
    pub fn from_bytes(name: impl Into<PathBuf>, bytes: Vec<u8>) -> Source {
        Source::of(Input::from_bytes(name, bytes))
    }

    /// Makes a source of an opened input.
    pub fn of(input: Input) -> Source {
        Source { path: input.path().to_owned(), progress: Arc::clone(input.progress()), kind: SourceKind::Input(input) }
    }

    /// Makes a source of a stream, called `name` in messages.
    pub fn from_reader(name: impl Into<PathBuf>, reader: impl Read + 'static) -> Source {
        Source { path: name.into(), kind: SourceKind::Stream(Box::new(reader)), progress: Arc::default() }
    }

    /// Path of the recording, for messages.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Progress of reading the recording.
    pub fn progress(&self) -> &Arc<Progress> {
        &self.progress
    }

    /// Returns true for a stream that was not copied into a temporary file.
    pub fn is_stream(&self) -> bool {
        matches!(self.kind, SourceKind::Stream(_))
    }

    /// Returns the input, which can be read again; `None` for a stream.
    pub(crate) fn lasting(&self) -> Option<&Input> {
        match &self.kind {
            SourceKind::Input(input) => Some(input),
            SourceKind::Stream(_) => None,
        }
    }

    /// Returns an input that can be read more than once; a stream is copied into a temporary file first.
    ///
    /// # Errors
    /// Fails if the stream cannot be read or the temporary file cannot be written.
    pub(crate) fn whole(&mut self) -> Result<&Input> {
        if let SourceKind::Stream(reader) = &mut self.kind {
            self.kind = SourceKind::Input(Input::spooled(&self.path, reader, &self.progress)?);
        }
        match &self.kind {
            SourceKind::Input(input) => Ok(input),
            SourceKind::Stream(_) => unreachable!("it was replaced"),
        }
    }

    /// Copies a stream into a temporary file if it starts like gzip data or like a perf.data file: both can be read only as a whole.
    fn settle(&mut self) -> Result<()> {
        let SourceKind::Stream(reader) = &mut self.kind else { return Ok(()) };
        let mut head = Vec::new();
        let failed = |source| Error::Io { call: "read", path: self.path.clone(), source };
        reader.take(PIPE_HEADER_BYTES as u64).read_to_end(&mut head).map_err(failed)?;
        let is_whole = head.starts_with(&GZIP_MAGIC) || matches!(Container::detect(&head), Ok(Container::File(_)));
        let rest = std::mem::replace(reader, Box::new(io::empty()));
        *reader = Box::new(io::Cursor::new(head).chain(rest));
        if is_whole {
            self.whole()?;
        }
        Ok(())
    }

    /// Passes every record to `visitor`, in the order of the input, together with the metadata read so far. Returns the problems of the input, in
    /// words. [`Care::Repair`] does not work on a stream that can be read only once, as the damaged ranges must be found before the walk.
    pub(crate) fn for_each<'a>(&'a mut self, care: Care, visitor: &mut impl Visitor<'a>) -> Result<Vec<String>> {
        self.settle()?;
        let (path, progress) = (&self.path, &self.progress);
        let input: &'a Input = match &mut self.kind {
            SourceKind::Stream(reader) => {
                progress.begin_pass(0);
                return read_stream(path, reader, progress, visitor);
            }
            SourceKind::Input(input) => input,
        };
        let files: Vec<(&Path, &'a [u8])> =
            [input].into_iter().chain(input.parts()).map(|input| (input.path(), input.bytes())).collect();
        progress.begin_pass(files.iter().map(|(_, bytes)| bytes.len() as u64).sum());
        let read = match files[..] {
            [(_, bytes)] if matches!(Container::detect(bytes), Ok(Container::Pipe(_))) => {
                let damage = if care == Care::Repair { damage_of_stream(bytes) } else { Vec::new() };
                read_stream(path, &mut WithoutDamage { bytes, at: 0, damage: &damage }, progress, visitor)
                    .map(|problems| skipped(&damage).into_iter().chain(problems).collect())
            }
            _ => read_files(path, &files, input.journal(), care, progress, visitor),
        };
        input.checked(read)
    }
}

/// Treatment of damaged records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Care {
    /// The walk ends at the first damaged record.
    Keep,
    /// Damaged records are skipped.
    Repair,
}

/// Remedy at the end of the message about a recording that was cut off. `bprec recover` itself gives the message without it.
const REMEDY: &str = "; `bprec recover` turns it into a file that perf opens";

/// Visitor of the records of a recording.
pub(crate) trait Visitor<'a> {
    /// Receives the mapped files before the first record; none for a stream.
    fn mapped(&mut self, files: Vec<&'a [u8]>);

    /// Receives a record. `Break` ends the walk.
    fn record(&mut self, arrival: &Arrival<'_>, metadata: &Metadata<'_>) -> Result<ControlFlow<()>>;

    /// Receives the end of the input.
    fn end(&mut self, metadata: &Metadata<'_>) -> Result<()>;
}

/// Reads the first of `files`, which has the header, and the other files of a directory, which hold only records. The journal completes the header of
/// a file that was cut off.
fn read_files<'a>(
    path: &Path,
    files: &[(&Path, &'a [u8])],
    journal: Option<&[u8]>,
    care: Care,
    progress: &Progress,
    visitor: &mut impl Visitor<'a>,
) -> Result<Vec<String>> {
    let bytes = files.first().map(|(_, bytes)| *bytes).unwrap_or_default();
    let file = File::parse(bytes).map_err(|source| Error::format(path, source))?;
    let mut metadata = Metadata::of_file(&file);
    let mut problems: Vec<String> = file.problems().iter().map(ToString::to_string).collect();
    let cut_off = CutOff::of_file(&file, journal, &mut metadata);
    // A cut is added to the problems only if the recorder did not finish. If the file lost its end, its problems already say so.
    let remedy = if care == Care::Keep { REMEDY } else { "" };
    problems.extend(cut_off.filter(CutOff::is_unfinished).map(|cut_off| format!("{cut_off}{remedy}")));
    visitor.mapped(files.iter().map(|(_, bytes)| *bytes).collect());
    let others = files.iter().skip(1).map(|(_, bytes)| (*bytes, 0));
    let parts: Vec<(&'a [u8], u64)> =
        std::iter::once((file.records().rest(), file.data().offset)).chain(others).collect();
    let events = (care == Care::Repair).then(|| Events::new(metadata.attrs(), file.endian()).ok()).flatten();
    let mut streams: Vec<Option<Chunks<'a>>> = Vec::new();
    // Offset in each file up to which progress has counted its bytes.
    let mut counted: Vec<u64> = Vec::new();
    for (index, (bytes, offset)) in parts.into_iter().enumerate() {
        let damage = events.as_ref().map_or_else(Vec::new, |events| Resync::new(events, false).damage(bytes, offset));
        problems.extend(skipped(&damage).iter().map(|text| named(files, index, text)));
        let chunks = Chunks::new(bytes, offset, file.endian(), file.unpacked_limit_bytes());
        streams.push(Some(chunks.around(damage)));
        counted.push(offset);
    }
    // The files of a directory are read in turns, so that records of about the same time come together.
    while streams.iter().any(Option::is_some) {
        for (index, slot) in streams.iter_mut().enumerate() {
            let Some(chunks) = slot else { continue };
            progress.add_read(chunks.offset().saturating_sub(counted[index]));
            counted[index] = chunks.offset();
            match chunks.next() {
                None => *slot = None,
                Some(Err(error)) => problems.push(named(files, index, &error.to_string())),
                Some(Ok(chunk)) => {
                    if visit(&chunk, Some(index), &mut metadata, visitor, &mut problems)?.is_break() {
                        return Ok(problems);
                    }
                }
            }
        }
    }
    visitor.end(&metadata)?;
    Ok(problems)
}

/// Prefixes a problem with the path of its file if the recording has several files.
fn named(files: &[(&Path, &[u8])], index: usize, problem: &str) -> String {
    match files.get(index) {
        Some((path, _)) if files.len() > 1 => format!("{}: {problem}", path.display()),
        _ => problem.to_owned(),
    }
}

/// Limit on damaged ranges that are reported one by one; beyond it, one more message has the total.
const REPORTED_STRETCHES: usize = 10;

/// Returns messages about the bytes skipped because of damage.
fn skipped(damage: &[Range<u64>]) -> Vec<String> {
    let reported = damage.iter().take(REPORTED_STRETCHES);
    let mut lines: Vec<String> = reported
        .map(|Range { start, end }| format!("damaged at offset {start:#x}: {} bytes skipped", end - start))
        .collect();
    if damage.len() > REPORTED_STRETCHES {
        let bytes: u64 = damage.iter().map(|Range { start, end }| end - start).sum();
        lines.push(format!("{} damaged ranges in total: {bytes} bytes skipped", damage.len()));
    }
    lines
}

/// Finds the damage in a stream that is in memory as a whole. The search knows the events that are described before the damage.
fn damage_of_stream(bytes: &[u8]) -> Vec<Range<u64>> {
    let Ok(Container::Pipe(endian)) = Container::detect(bytes) else { return Vec::new() };
    let offset = PIPE_HEADER_BYTES as u64;
    let bytes = bytes.get(PIPE_HEADER_BYTES..).unwrap_or_default();
    let mut metadata = Metadata::of_stream(endian);
    for record in Records::new(bytes, offset, endian).map_while(std::result::Result::ok) {
        // An error is ignored here: the walk over the records reports it later.
        let _ = metadata.absorb(&record);
    }
    match Events::new(metadata.attrs(), endian) {
        Ok(events) if !events.all().is_empty() => Resync::new(&events, true).damage(bytes, offset),
        _ => Vec::new(),
    }
}

/// Reader of the bytes of an input without the damaged ranges.
struct WithoutDamage<'a, 'd> {
    bytes: &'a [u8],
    at: u64,
    damage: &'d [Range<u64>],
}

impl Read for WithoutDamage<'_, '_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while let Some((next, behind)) = self.damage.split_first()
            && next.start <= self.at
        {
            self.at = next.end;
            self.damage = behind;
        }
        let end = self.damage.first().map_or(u64::MAX, |next| next.start).min(self.bytes.len() as u64);
        let mut rest = self.bytes.get(self.at as usize..end as usize).unwrap_or_default();
        let len = rest.read(buffer)?;
        self.at += len as u64;
        Ok(len)
    }
}

fn read_stream<'a>(
    path: &Path,
    reader: &mut impl Read,
    progress: &Progress,
    visitor: &mut impl Visitor<'a>,
) -> Result<Vec<String>> {
    let mut stream = Stream::new();
    let mut metadata = None;
    let mut problems = Vec::new();
    let mut piece = vec![0; READ_BYTES];
    visitor.mapped(Vec::new());
    loop {
        let len = match reader.read(&mut piece) {
            Ok(0) => break,
            Ok(len) => len,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(source) => return Err(Error::Io { call: "read", path: path.to_owned(), source }),
        };
        progress.add_read(len as u64);
        stream.feed(&piece[..len]);
        loop {
            match stream.next_chunk() {
                Ok(Availability::NeedMore) => break,
                Ok(Availability::Ready(chunk)) => {
                    let metadata = metadata.get_or_insert_with(|| Metadata::of_stream(chunk.endian()));
                    if visit(&chunk, None, metadata, visitor, &mut problems)?.is_break() {
                        return Ok(problems);
                    }
                }
                Err(source) if metadata.is_none() => return Err(Error::format(path, source)),
                Err(error) => problems.push(error.to_string()),
            }
        }
    }
    match stream.finish() {
        Err(source) if metadata.is_none() => return Err(Error::format(path, source)),
        Err(error) => problems.push(CutOff::of_stream(&error).map_or_else(|| error.to_string(), |cut| cut.to_string())),
        Ok(()) => {}
    }
    // A stream that ends after its header has no record, so its metadata is not created yet.
    let metadata = metadata.or_else(|| stream.endian().map(Metadata::of_stream));
    if let Some(metadata) = &metadata {
        visitor.end(metadata)?;
    }
    Ok(problems)
}

fn visit<'a>(
    chunk: &Chunk<'_>,
    file: Option<usize>,
    metadata: &mut Metadata<'_>,
    visitor: &mut impl Visitor<'a>,
    problems: &mut Vec<String>,
) -> Result<ControlFlow<()>> {
    let mapped = file.filter(|_| chunk.origin == Origin::Input);
    for record in chunk.records() {
        // A chunk has only complete records.
        let Ok(record) = record else { break };
        let is_description = metadata.absorb(&record).unwrap_or_else(|error| {
            problems.push(error.to_string());
            true
        });
        if visitor.record(&Arrival { record, mapped, is_description }, metadata)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}
