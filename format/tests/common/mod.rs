//! Recordings of other tools for tests, and functions to walk them.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "only tests use it")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use bprec_format::{Availability, Container, Error, File, Metadata, Record, RecordType, Stream};

/// A file of the corpus, with its facts from the index.
pub(crate) struct CorpusFile {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) samples: String,
    pub(crate) records: String,
    pub(crate) results: String,
    pub(crate) bytes: Vec<u8>,
}

fn shared(folder: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared").join(folder)
}

/// Directory of the corpus: the large corpus beside the checkout if it exists, else the part in the project.
pub(crate) fn corpus_dir() -> PathBuf {
    let large = shared("corpus");
    if large.join("INDEX.tsv").exists() {
        return large;
    }
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/corpus")
}

/// The files of the corpus, with their facts from the index.
pub(crate) fn corpus_files() -> Vec<CorpusFile> {
    let dir = corpus_dir();
    let index = std::fs::read_to_string(dir.join("INDEX.tsv")).unwrap();
    let read = |line: &str| {
        let columns: Vec<&str> = line.split('\t').collect();
        let bytes = std::fs::read(dir.join(columns[0])).ok()?;
        let column = |n: usize| columns.get(n).copied().unwrap_or_default().to_owned();
        Some(CorpusFile {
            name: column(0),
            kind: column(5),
            samples: column(12),
            records: column(13),
            results: column(14),
            bytes,
        })
    };
    index.lines().skip(1).filter_map(read).collect()
}

/// The recordings of the project's own programs, `<where>/<name>.data`.
pub(crate) fn fixtures() -> Vec<(String, Vec<u8>)> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings");
    let mut found = Vec::new();
    for place in std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_dir()) {
        for file in std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().path()) {
            if file.extension().is_some_and(|extension| extension == "data") {
                let name = file.strip_prefix(&dir).unwrap().display().to_string();
                found.push((name, std::fs::read(file).unwrap()));
            }
        }
    }
    assert!(!found.is_empty());
    found.sort();
    found
}

/// Recordings that perf made in guests, with their paths; empty if they are not beside the checkout.
pub(crate) fn recordings() -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let Ok(folders) = std::fs::read_dir(shared("recordings")) else { return found };
    for folder in folders.flatten() {
        for file in std::fs::read_dir(folder.path()).into_iter().flatten().flatten() {
            if file.path().extension().is_some_and(|e| e == "data") {
                found.push((file.path().display().to_string(), std::fs::read(file.path()).unwrap()));
            }
        }
    }
    found.sort();
    found
}

/// Counts of the records of an input, by type, and its problems.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Walk {
    pub(crate) counts: BTreeMap<RecordType, u64>,
    pub(crate) problems: Vec<Error>,
}

/// Counts the records of any container.
pub(crate) fn walk(bytes: &[u8]) -> Result<Walk, Error> {
    let mut counts = BTreeMap::new();
    let problems = for_each_record(bytes, &mut |record, _| *counts.entry(record.kind).or_default() += 1)?;
    Ok(Walk { counts, problems })
}

/// Counts the records of a stream that arrives in pieces of this size.
pub(crate) fn walk_stream(bytes: &[u8], piece: usize) -> Walk {
    let mut counts = BTreeMap::new();
    let problems = stream_records(bytes, piece, &mut |record, _| *counts.entry(record.kind).or_default() += 1);
    Walk { counts, problems }
}

/// Calls `see` with every record of any container, and returns the problems of the input.
pub(crate) fn for_each_record(
    bytes: &[u8],
    see: &mut dyn FnMut(&Record<'_>, &Metadata<'_>),
) -> Result<Vec<Error>, Error> {
    if let Container::Pipe(_) = Container::detect(bytes)? {
        return Ok(stream_records(bytes, 1 << 16, see));
    }
    let file = File::parse(bytes)?;
    let mut metadata = Metadata::of_file(&file);
    let mut problems = file.problems().to_vec();
    let mut chunks = file.chunks();
    while let Some(chunk) = chunks.next() {
        match chunk {
            Ok(chunk) => {
                for record in chunk.records() {
                    let record = record.expect("a chunk contains only complete records");
                    problems.extend(metadata.absorb(&record).err());
                    see(&record, &metadata);
                }
            }
            Err(error) => problems.push(error),
        }
    }
    Ok(problems)
}

fn stream_records(bytes: &[u8], piece: usize, see: &mut dyn FnMut(&Record<'_>, &Metadata<'_>)) -> Vec<Error> {
    let mut stream = Stream::new();
    let mut metadata = None;
    let mut problems = Vec::new();
    let mut drain = |stream: &mut Stream, problems: &mut Vec<Error>| {
        loop {
            match stream.next_chunk() {
                Ok(Availability::NeedMore) => return,
                Ok(Availability::Ready(chunk)) => {
                    for record in chunk.records() {
                        let record = record.expect("a chunk contains only complete records");
                        let metadata = metadata.get_or_insert_with(|| Metadata::of_stream(chunk.endian()));
                        problems.extend(metadata.absorb(&record).err());
                        see(&record, metadata);
                    }
                }
                Err(error) => problems.push(error),
            }
        }
    };
    for piece in bytes.chunks(piece) {
        stream.feed(piece);
        drain(&mut stream, &mut problems);
    }
    problems.extend(stream.finish().err());
    problems
}
