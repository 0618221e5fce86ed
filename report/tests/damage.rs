//! Recovering damaged recordings: every record but the damaged one is kept, and a second recovery changes nothing.
//!
//! `BPREC_DAMAGES` is the number of damages to try; the default suits CI.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

#[path = "../../format/tests/common/mod.rs"]
mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Cursor;
use std::process::Command;

use bprec_format::{File, RecordType};
use bprec_report::{RewriteOptions, RewriteSummary, Source, rewrite};

/// Number of damages, for all recordings together.
const DAMAGES: usize = 1000;
/// One in this number of recovered files is opened with perf.
const JUDGED_EVERY: usize = 20;
/// Number of tested lengths for each pair of consecutive record types, per recording.
const LENGTHS: usize = 4;
/// Limit on the number of records that a recovery may find in the bytes of a damaged record.
const REMNANTS: usize = 3;

/// A recording in which a recovery keeps every record, and the positions of its records.
struct Original {
    name: String,
    bytes: Vec<u8>,
    /// Offset and type of each record.
    places: Vec<(usize, RecordType)>,
    /// The records after a recovery.
    records: Vec<Vec<u8>>,
}

impl Original {
    fn is_little(&self) -> bool {
        !(self.bytes.starts_with(b"2ELIFREP") || self.bytes.starts_with(b"PERFFILE") && self.bytes[8] == 0)
    }

    fn set_size(&self, bytes: &mut [u8], at: usize, size: u16) {
        bytes[at + 6..at + 8].copy_from_slice(&if self.is_little() { size.to_le_bytes() } else { size.to_be_bytes() });
    }
}

struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit.max(1)
    }
}

fn recovered(bytes: &[u8]) -> Option<(Vec<u8>, RewriteSummary)> {
    let mut out = Cursor::new(Vec::new());
    let options = RewriteOptions { repair: true, ..RewriteOptions::default() };
    let summary = rewrite(&mut Source::from_bytes("test", bytes.to_vec()), &options, &mut out).ok()?;
    Some((out.into_inner(), summary))
}

fn records(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut records = Vec::new();
    let see = &mut |record: &bprec_format::Record<'_>, _: &bprec_format::Metadata<'_>| {
        records.push([record.bytes, record.outside].concat());
    };
    let problems = common::for_each_record(bytes, see).unwrap();
    assert_eq!(problems, []);
    records
}

/// Files without compressed records, because a zstd stream cannot be unpacked after damage.
fn originals() -> Vec<Original> {
    let corpus = common::corpus_files().into_iter().map(|file| (file.name, file.bytes));
    let mut originals = Vec::new();
    for (name, bytes) in corpus.chain(common::fixtures()) {
        if bytes.len() > 300_000 {
            continue;
        }
        let Some((once, _)) = recovered(&bytes) else { continue };
        let is_file = bytes.get(8).is_some_and(|size| [104, 72].contains(size)) || bytes.get(15) == Some(&104);
        let records = records(&once);
        let count = |bytes: &[u8]| File::parse(bytes).map_or(0, |file| file.records().map_while(Result::ok).count());
        // If the input is not a file, or a recovery drops records, the recovered file replaces the input.
        let bytes = if is_file && count(&bytes) == records.len() { bytes } else { once };
        let file = File::parse(&bytes).unwrap();
        let walked: Vec<_> = file.records().map_while(Result::ok).collect();
        if walked.iter().any(|record| matches!(record.kind, RecordType::COMPRESSED | RecordType::COMPRESSED2)) {
            continue;
        }
        let places: Vec<_> = walked.iter().map(|record| (record.offset as usize, record.kind)).collect();
        assert_eq!(places.len(), records.len(), "{name}");
        originals.push(Original { name, places, records, bytes });
    }
    originals
}

/// Damages a record; returns a description.
fn damage(original: &Original, index: usize, bytes: &mut [u8], random: &mut Random) -> String {
    let is_little = original.is_little();
    let at = original.places[index].0;
    let len = original.records[index].len().min(0xffff);
    let size_of = |bytes: &[u8], at: usize| {
        let pair = [bytes[at + 6], bytes[at + 7]];
        if is_little { u16::from_le_bytes(pair) } else { u16::from_be_bytes(pair) }
    };
    let own = size_of(bytes, at);
    let next = original.places.get(index + 1).map_or(8, |(next, _)| size_of(bytes, *next));
    let choice = random.below(11);
    let size = match choice {
        0 => Some(0),
        1 => Some(random.below(1 << 16) as u16),
        2 => Some(own.wrapping_add(8 * (1 + random.below(4) as u16))),
        3 => Some(own.saturating_sub(8 * (1 + random.below(4) as u16))),
        // The size also covers exactly the next record.
        4 => Some(own.wrapping_add(next)),
        5 => Some(8),
        _ => None,
    };
    if let Some(size) = size {
        original.set_size(bytes, at, size);
        return format!("size {own} -> {size}");
    }
    let kind = match choice {
        6 => Some((random.below(1 << 31) * 2 + random.below(2)) as u32),
        // perf 6.1 does not know types from 83 on.
        7 => Some(random.below(83) as u32),
        _ => None,
    };
    if let Some(kind) = kind {
        bytes[at..at + 4].copy_from_slice(&if is_little { kind.to_le_bytes() } else { kind.to_be_bytes() });
        return format!("type -> {kind}");
    }
    match choice {
        8 => bytes[at..at + len].fill(0),
        9 => bytes[at + 8..at + len].iter_mut().for_each(|byte| *byte = random.below(256) as u8),
        _ => {
            let place = at + 8 + random.below(len - 8);
            bytes[place.min(at + len - 1)] ^= 1 << random.below(8);
        }
    }
    ["all of it is 0", "other bytes", "a bit"][choice - 8].to_owned()
}

/// Reads a recording with perf. Returns perf's error; `None` if perf succeeds.
fn refusal(dir: &tempfile::TempDir, bytes: &[u8]) -> Option<String> {
    let path = dir.path().join("recovered.data");
    std::fs::write(&path, bytes).unwrap();
    let perf = Command::new("perf").args(["script", "-f", "-F", "event", "-i"]).arg(&path).output().unwrap();
    (!perf.status.success()).then(|| format!("{}: {}", perf.status, String::from_utf8_lossy(&perf.stderr)))
}

#[test]
fn every_record_but_the_damaged_one_is_kept() {
    let has_perf = Command::new("perf").arg("--version").output().is_ok();
    if !has_perf {
        eprintln!("SKIP perf's part of every_record_but_the_damaged_one_is_kept: perf is not installed");
    }
    let originals = originals();
    let damages = std::env::var("BPREC_DAMAGES").ok().and_then(|n| n.parse().ok()).unwrap_or(DAMAGES);
    let dir = tempfile::tempdir().unwrap();
    let (mut random, mut names, mut lost) = (Random(7), BTreeSet::new(), Vec::new());
    for round in 0..damages {
        let original = &originals[round % originals.len()];
        names.insert(&original.name[..]);
        let index = random.below(original.records.len());
        let mut bytes = original.bytes.clone();
        let what = damage(original, index, &mut bytes, &mut random);
        let (kind, at) = (original.places[index].1, original.places[index].0);
        let what = format!("{} record {index} ({kind}) at {at:#x}, {what}", original.name);
        let Some((once, summary)) = recovered(&bytes) else {
            assert_eq!(original.records.len(), 1, "{what}");
            continue;
        };
        let kept = records(&once);
        let (before, behind) = (&original.records[..index], &original.records[index + 1..]);
        let is_kept = kept.len() >= before.len() + behind.len()
            && kept.len() <= before.len() + behind.len() + REMNANTS
            && kept.starts_with(before)
            && kept.ends_with(behind);
        if !is_kept {
            lost.push(format!("{what}: {} of {} records; {:?}", kept.len(), original.records.len(), summary.problems));
        }
        let (again, summary) = recovered(&once).unwrap();
        assert!(again == once, "{what}: a second recovery changes the file");
        assert!(summary.problems.is_empty() && summary.dropped.is_empty(), "{what}: {summary:?}");
        // perf reads some kinds of traces only on the machine where they were recorded.
        if has_perf
            && round % JUDGED_EVERY == 0
            && let Some(refusal) = refusal(&dir, &once)
            && self::refusal(&dir, &recovered(&original.bytes).unwrap().0).is_none()
        {
            lost.push(format!("{what}: perf refuses it: {refusal}"));
        }
    }
    eprintln!("{damages} damages in {} recordings", names.len());
    assert!(names.len() >= 20 || damages < 20, "{names:?}");
    assert!(lost.is_empty(), "{} of {damages}:\n{}", lost.len(), lost.join("\n"));
}

/// A record has a wrong size that covers a part of the next record, or all of it. The next record must be kept. Tried for each pair of types in a
/// recording, with several lengths.
#[test]
fn a_record_that_another_has_swallowed_is_kept() {
    let (mut tried, mut lost) = (0, Vec::new());
    for original in originals() {
        let mut lengths_by_kinds: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
        for (index, pair) in original.places.windows(2).enumerate() {
            let [(at, kind), (next, next_kind)] = *pair else { continue };
            let [own, other] = [index, index + 1].map(|record| original.records[record].len());
            let lengths = lengths_by_kinds.entry((kind, next_kind)).or_default();
            let is_inside = next - at == own && own + other <= usize::from(u16::MAX);
            if !is_inside || lengths.len() == LENGTHS || !lengths.insert((own, other)) {
                continue;
            }
            for swallowed in BTreeSet::from([8, 16.min(other), other - 8, other]) {
                let mut bytes = original.bytes.clone();
                original.set_size(&mut bytes, at, (own + swallowed) as u16);
                let Some((once, _)) = recovered(&bytes) else { continue };
                tried += 1;
                let kept = records(&once);
                if !(kept.starts_with(&original.records[..index]) && kept.ends_with(&original.records[index + 1..])) {
                    lost.push(format!(
                        "{} record {index} ({kind}) at {at:#x}: {own} bytes and {swallowed} of {other} of {next_kind}",
                        original.name
                    ));
                }
            }
        }
    }
    eprintln!("{tried} sizes");
    assert!(tried > 2000, "{tried}");
    assert!(lost.is_empty(), "{} of {tried}:\n{}", lost.len(), lost.join("\n"));
}

/// For any number of damages, a second recovery changes nothing, and all kept records can be read.
#[test]
fn what_was_recovered_stays_as_it_is() {
    let originals = originals();
    let mut random = Random(11);
    for round in 0..4 * originals.len() {
        let original = &originals[round % originals.len()];
        let mut bytes = original.bytes.clone();
        for _ in 0..2 + random.below(30) {
            damage(original, random.below(original.records.len()), &mut bytes, &mut random);
        }
        let Some((once, _)) = recovered(&bytes) else { continue };
        let (again, summary) = recovered(&once).unwrap();
        assert!(again == once, "{}", original.name);
        assert!(summary.problems.is_empty() && summary.dropped.is_empty(), "{}: {summary:?}", original.name);
    }
}

/// A recovery keeps all records of this file whole. The body of one record looks like other records.
#[test]
fn what_was_believed_once_is_believed_again() {
    let bytes = include_bytes!("../../fixtures/regressions/believed-once.data");
    let (once, summary) = recovered(bytes).unwrap();
    assert_eq!(records(&once), records(bytes));
    assert!(summary.problems.is_empty() && summary.dropped.is_empty(), "{summary:?}");
}
