//! Seeds for the fuzzers: the project's recordings, and for targets that take a part of a recording that part of each.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

/// Seeds are cut here: fuzzers gain more from many runs than from large inputs.
const SEED_MAX_BYTES: usize = 60_000;
/// BTF blobs of one recording that become seeds.
const BLOBS_MAX: usize = 20;
/// Numbers of the features that targets take.
const BPF_PROG_INFO: u32 = 25;
const BPF_BTF: u32 = 26;

/// Writes the seeds into `fuzz/corpus/<target>/`, where `cargo fuzz run` takes them from and adds what it finds.
pub(crate) fn seeds() -> Result<()> {
    let mut inputs = Vec::new();
    for folder in ["fixtures/recordings", "fixtures/corpus", "fixtures/regressions"] {
        files(Path::new(folder), &mut inputs)?;
    }
    ensure!(!inputs.is_empty(), "no recordings in fixtures/");
    inputs.sort();
    let mut written = 0;
    for path in inputs {
        let bytes = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        let name = path.display().to_string().replace(['/', '\\'], "_");
        for (target, part, seed) in seeds_of(&bytes) {
            let folder = Path::new("fuzz/corpus").join(target);
            fs::create_dir_all(&folder)?;
            let cut = &seed[..seed.len().min(SEED_MAX_BYTES)];
            fs::write(folder.join(format!("{name}{part}")), cut)?;
            written += 1;
        }
    }
    println!("{written} seeds in fuzz/corpus");
    Ok(())
}

/// All files below a folder, if it is there.
fn files(folder: &Path, found: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).into_iter().flatten() {
        let path = entry?.path();
        if path.is_dir() {
            files(&path, found)?;
        } else {
            found.push(path);
        }
    }
    Ok(())
}

/// A target, what is appended to the seed's name, and the seed.
type Seed = (&'static str, String, Vec<u8>);

/// The seeds that a recording gives. Only whole little-endian
/// recordings have parts: the fuzzers turn the rest around themselves.
fn seeds_of(bytes: &[u8]) -> Vec<Seed> {
    let mut seeds = Vec::new();
    let Some(magic) = bytes.first_chunk::<8>() else { return seeds };
    if !matches!(magic, b"PERFILE2" | b"2ELIFREP" | b"PERFFILE") {
        return seeds;
    }
    for target in ["file", "recover"] {
        seeds.push((target, String::new(), bytes.to_vec()));
    }
    if magic == b"PERFILE2" {
        // The first byte of an input of this target says the byte order, and how large the pieces are.
        let stream = |records: &[u8]| ("stream", String::new(), [&[0][..], records].concat());
        if u64_at(bytes, 8) == Some(16) {
            seeds.push(stream(&bytes[16..]));
        } else {
            seeds.extend(parts_of_file(bytes, stream).unwrap_or_default());
        }
    }
    seeds
}

fn parts_of_file(bytes: &[u8], stream: impl Fn(&[u8]) -> Seed) -> Option<Vec<Seed>> {
    let number = |at| usize::try_from(u64_at(bytes, at)?).ok();
    let (attr_bytes, attrs, data, data_bytes) = (number(16)?.checked_sub(16)?, number(24)?, number(40)?, number(48)?);
    let attr = bytes.get(attrs..attrs.checked_add(attr_bytes)?)?;
    let table = data.checked_add(data_bytes)?;
    let records = bytes.get(data..table)?;
    let some = &records[..records.len().min(SEED_MAX_BYTES / 2)];
    let mut seeds = vec![stream(records), ("record", String::new(), [attr, some].concat())];
    let features = u64_at(bytes, 72)?;
    let set = (0..64u32).filter(|bit| features >> bit & 1 != 0);
    for (row, feature) in set.enumerate() {
        let (at, len) = (number(table + row * 16)?, number(table + row * 16 + 8)?);
        let section = bytes.get(at..at.checked_add(len)?)?;
        match feature {
            BPF_PROG_INFO => seeds.push(("prog_info", String::new(), section.to_vec())),
            BPF_BTF => seeds.extend(blobs(section)),
            _ => {}
        }
    }
    Some(seeds)
}

/// The blobs of a BPF_BTF section: a count, then of each its id, its size and its bytes.
fn blobs(section: &[u8]) -> impl Iterator<Item = Seed> {
    let mut rest = section.get(4..).unwrap_or_default();
    let next = move || {
        let [id, size] = [0, 4].map(|at| Some(u32::from_le_bytes(rest.get(at..at + 4)?.try_into().ok()?)));
        let (id, size) = (id?, usize::try_from(size?).ok()?);
        let blob = rest.get(8..8usize.checked_add(size)?)?;
        rest = &rest[8 + size..];
        Some(("btf", format!(".{id}"), blob.to_vec()))
    };
    std::iter::from_fn(next).take(BLOBS_MAX)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}
