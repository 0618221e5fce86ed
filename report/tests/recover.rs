//! Recovering: perf opens the recovered file of every cut-off recording, with all complete samples.
//!
//! `BPREC_CUTS` is the number of cuts; the default suits CI.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

#[path = "../../format/tests/common/mod.rs"]
mod common;

use std::io::Cursor;
use std::path::Path;
use std::process::Command;

use bprec_format::RecordType;
use bprec_report::{RewriteOptions, Source, rewrite};

/// Number of cuts, for all recordings together.
const CUTS: usize = 1000;

/// A cut-off recording, and its name for messages.
struct Rest {
    name: String,
    bytes: Vec<u8>,
}

/// The first `len` bytes of a recording, as a recorder that was killed leaves them: with `data.size` 0.
fn rest(name: &str, bytes: &[u8], len: usize) -> Rest {
    let mut bytes = bytes[..len].to_vec();
    let is_file = bytes.get(8) == Some(&104);
    if is_file && bytes.len() > 56 {
        bytes[48..56].fill(0);
    }
    Rest { name: format!("{name}, {len} bytes"), bytes }
}

/// Small recordings for which perf prints one line per sample: without groups of events that are read together, and without traces that perf turns
/// into samples.
fn inputs() -> Vec<(String, Vec<u8>)> {
    let is_simple = |file: &common::CorpusFile| {
        let other_lines = ["add_counter", "aux_data"].iter().any(|part| file.name.contains(part));
        file.bytes.len() < 300_000 && !other_lines && !file.kind.contains("auxtrace")
    };
    let files = common::corpus_files().into_iter().filter(is_simple).map(|file| (file.name, file.bytes));
    let mut inputs: Vec<_> = files.chain(common::fixtures()).chain(common::recordings()).collect();
    inputs.retain(|(name, bytes)| {
        let is_compressed = name.ends_with("/z.data") || name.contains("compressed");
        let is_foreign = name.contains("s390x") || name.contains("arm64");
        bytes.len() < 300_000
            && !is_foreign
            && !name.ends_with("stat.data")
            && (cfg!(feature = "zstd") || !is_compressed)
    });
    inputs
}

/// Number of complete samples in a little-endian file, counted only by the sizes of its records; `None` for other containers.
fn counted_by_size(bytes: &[u8]) -> Option<u64> {
    let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    if !bytes.starts_with(b"PERFILE2") || word(8)? != 104 {
        return None;
    }
    let mut at = usize::try_from(word(40)?).ok()?;
    let mut samples = 0;
    while let Some(head) = bytes.get(at..at + 8) {
        let (kind, size) = (u32::from_le_bytes(head[..4].try_into().ok()?), u16::from_le_bytes([head[6], head[7]]));
        if matches!(kind, 66 | 71 | 81 | 83) {
            return None;
        }
        if size < 8 || bytes.len() - at < usize::from(size) {
            break;
        }
        samples += u64::from(kind == 9);
        at += usize::from(size);
    }
    Some(samples)
}

/// Recovers a cut-off recording and compares the number of samples with perf's. Returns true if the recovery succeeds.
fn is_opened(rest: &Rest, path: &Path) -> bool {
    let Rest { name, bytes } = rest;
    let walked = common::walk(bytes).map_or(0, |walk| walk.counts.get(&RecordType::SAMPLE).copied().unwrap_or(0));
    let is_plain_rest = bytes.get(48..56) == Some(&[0; 8]) && bytes.get(8) == Some(&104);
    if is_plain_rest && let Some(counted) = counted_by_size(bytes) {
        assert!(walked <= counted, "{name}: {walked} of {counted} samples");
        // In a complete file, the count by sizes goes on after the records: bytes of the feature sections may look like records.
        assert!(walked == counted || bytes.len() > 104, "{name}");
    }
    let mut out = Cursor::new(Vec::new());
    let options = RewriteOptions { repair: true, ..RewriteOptions::default() };
    if let Err(error) = rewrite(&mut Source::from_bytes("test", bytes.clone()), &options, &mut out) {
        assert_eq!(walked, 0, "{name}: {error}");
        return false;
    }
    let written = out.into_inner();
    let kept = common::walk(&written).unwrap().counts.get(&RecordType::SAMPLE).copied().unwrap_or(0);
    // The walk stops at damaged records, but a recovery keeps the records after them.
    assert!(kept == walked || kept > walked && name.contains("corrupted"), "{name}: {kept} of {walked} samples");
    std::fs::write(path, written).unwrap();
    let perf = Command::new("perf").args(["script", "-f", "-F", "time,event", "-i"]).arg(path).output().unwrap();
    let lines = perf.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count() as u64;
    assert!(perf.status.success() && lines == kept, "{name}: {lines} lines for {kept} samples: {perf:?}");
    true
}

/// perf opens the recovered file of a recording that was cut anywhere, with all complete samples.
#[test]
fn perf_opens_what_was_cut_off() {
    const NAME: &str = "perf_opens_what_was_cut_off";
    if Command::new("perf").arg("--version").output().is_err() {
        eprintln!("SKIP {NAME}: perf is not installed");
        return;
    }
    let inputs = inputs();
    let cuts = std::env::var("BPREC_CUTS").ok().and_then(|n| n.parse().ok()).unwrap_or(CUTS);
    // First each complete recording with an unfinished header, then recordings that are cut anywhere.
    let mut rests: Vec<Rest> = inputs.iter().map(|(name, bytes)| rest(name, bytes, bytes.len())).collect();
    let mut seed = 1u64;
    for round in 0..cuts {
        let (name, bytes) = &inputs[round % inputs.len()];
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        rests.push(rest(name, bytes, (seed >> 33) as usize % bytes.len()));
    }
    let dir = tempfile::tempdir().unwrap();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let opened: usize = std::thread::scope(|scope| {
        let work = |thread: usize| {
            let path = dir.path().join(format!("{thread}.data"));
            rests.iter().skip(thread).step_by(threads).filter(|rest| is_opened(rest, &path)).count()
        };
        let handles: Vec<_> = (0..threads).map(|thread| scope.spawn(move || work(thread))).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).sum()
    });
    eprintln!("{} cut-off files of {} recordings, {opened} can be recovered", rests.len(), inputs.len());
    assert!(4 * opened > 3 * rests.len(), "{opened} of {}", rests.len());
}
