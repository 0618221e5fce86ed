//! Reads real recordings of other tools, if they are beside the checkout, and compares with the counts of other readers.

mod common;

use std::collections::BTreeMap;

use bprec_format::records::{Payload, UserPayload};
use bprec_format::{Container, Events, File, Metadata, RecordType, Writer};
use common::{Walk, corpus_files, recordings, walk};

/// Name of a record type in the index, which has other names than perf for two types.
fn index_name(kind: RecordType) -> String {
    match kind {
        RecordType::HEADER_EVENT_TYPE => "EVENT_TYPE".to_owned(),
        RecordType::HEADER_TRACING_DATA => "TRACING_DATA".to_owned(),
        _ => kind.to_string(),
    }
}

fn by_name(walk: &Walk) -> BTreeMap<String, u64> {
    walk.counts.iter().map(|(kind, count)| (index_name(*kind), *count)).collect()
}

/// Every file has as many records of each type as the index lists; the index comes from other readers. Files that no perf reads end with an error, or
/// have records that perf does not know.
#[test]
fn record_counts_are_those_of_the_index() {
    let files = corpus_files();
    let mut compared = 0;
    for file in &files {
        if file.kind.contains("zstd") && !cfg!(feature = "zstd") {
            continue;
        }
        let expected: BTreeMap<String, u64> = file
            .records
            .split(',')
            .filter_map(|part| part.split_once('='))
            .map(|(name, count)| (name.to_owned(), count.parse().unwrap()))
            .collect();
        match walk(&file.bytes) {
            Ok(walk) => {
                assert_eq!(by_name(&walk), expected, "{}: {:?}", file.name, walk.problems);
                let named = [TRUNCATED_ON_PURPOSE, ZERO_SIZE_SAMPLE].iter().any(|part| file.name.contains(part));
                assert_eq!(!walk.problems.is_empty(), named, "{}: {:?}", file.name, walk.problems);
            }
            Err(error) => assert!(expected.is_empty(), "{}: {error}", file.name),
        }
        compared += 1;
    }
    assert!(compared + 2 >= files.len(), "only {compared} of {} files compared", files.len());
}

/// Part of the name of a damaged file of the corpus.
const ZERO_SIZE_SAMPLE: &str = "zero_size_sample";
/// Part of the name of a file of the corpus that was truncated on purpose.
const TRUNCATED_ON_PURPOSE: &str = "extradata";

/// Every record of every recording decodes, and samples and records of tools encode to the same bytes.
#[test]
fn every_record_decodes() {
    let files = corpus_files();
    let mut encoded = BTreeMap::<RecordType, u64>::new();
    for (name, bytes) in files.iter().map(|f| (&f.name, &f.bytes)).chain(recordings().iter().map(|(n, b)| (n, b))) {
        let mut errors = Vec::new();
        let mut events = None;
        let _ = common::for_each_record(bytes, &mut |record, metadata: &Metadata<'_>| {
            let events: &Events =
                events.get_or_insert_with(|| Events::new(metadata.attrs(), metadata.endian()).unwrap());
            let index = events.index_of(record).unwrap_or(0);
            let Some(event) = events.all().get(index) else { return };
            if record.kind == RecordType::SAMPLE {
                match event.layout.sample(record.body(), record.offset).and_then(|sample| sample.decode()) {
                    Ok(fields) => {
                        let mut out = Vec::new();
                        fields.encode(&event.layout, &mut Writer::new(&mut out, metadata.endian()));
                        // Unused bytes that the kernel reserved after a user stack are not part of the sample.
                        if fields.stack_user.is_none() {
                            assert_eq!(out, record.body(), "{name}: {record:?}");
                            *encoded.entry(record.kind).or_default() += 1;
                        }
                    }
                    Err(error) => errors.push(error.to_string()),
                }
                return;
            }
            match Payload::decode(record, &event.layout) {
                Ok((Payload::User(user), _)) => {
                    let mut out = Vec::new();
                    user.encode(metadata.endian(), &mut out).unwrap();
                    if !matches!(user, UserPayload::BuildId(_)) && !KEEPS_ODD_BYTES.contains(&record.kind) {
                        // Old tools wrote garbage in the header's misc, and any number of zeros after a text.
                        out[4..8].copy_from_slice(&record.bytes[4..8]);
                        let (front, padding) = record.bytes.split_at(out.len());
                        assert_eq!(out, front, "{name}: {record:?}");
                        assert!(padding.is_empty() || record.kind == RecordType::EVENT_UPDATE, "{name}: {record:?}");
                        assert!(padding.iter().all(|b| *b == 0), "{name}: {record:?}");
                        *encoded.entry(record.kind).or_default() += 1;
                    }
                }
                Ok(_) => {}
                Err(error) => errors.push(error.to_string()),
            }
        });
        assert!(errors.is_empty(), "{name}: {errors:#?}");
    }
    assert!(encoded.len() >= 10, "{encoded:?}");
}

/// Types with padding that some writers left out or did not set to zero.
const KEEPS_ODD_BYTES: [RecordType; 1] = [RecordType::HEADER_TRACING_DATA];

/// A stream has the same records for every size of its pieces.
#[test]
fn pieces_do_not_matter() {
    let files = corpus_files();
    let mut compared = 0;
    for file in files.iter().filter(|f| matches!(Container::detect(&f.bytes), Ok(Container::Pipe(_)))) {
        let whole = walk(&file.bytes).unwrap();
        for piece in [1, 7, 4096] {
            let Walk { counts, problems, .. } = common::walk_stream(&file.bytes, piece);
            assert_eq!((&counts, &problems), (&whole.counts, &whole.problems), "{} in pieces of {piece}", file.name);
        }
        compared += 1;
    }
    assert!(compared >= 4, "only {compared} streams");
}

/// A file with the old magic is read like a file with the new magic.
#[test]
fn the_old_magic_reads_like_the_new_one() {
    let files = corpus_files();
    for file in files {
        if !matches!(Container::detect(&file.bytes), Ok(Container::File(_))) || file.kind.contains("zstd") {
            continue;
        }
        let mut old = file.bytes.clone();
        old[..8].copy_from_slice(b"PERFFILE");
        let (new, old) = (File::parse(&file.bytes).unwrap(), File::parse(&old).unwrap());
        assert_eq!((new.endian(), new.attrs(), new.data()), (old.endian(), old.attrs(), old.data()), "{}", file.name);
    }
}
