//! Reads real recordings of other tools, where they lie beside the checkout, and counts what is in them.

use std::path::{Path, PathBuf};

use bprec_format::{Container, File, RecordType};

fn corpus() -> Option<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/corpus");
    dir.join("INDEX.tsv").exists().then_some(dir)
}

/// Every seekable, uncompressed file holds as many samples as the index, made by other readers, says.
#[test]
fn sample_counts_are_those_of_the_index() {
    let Some(dir) = corpus() else {
        eprintln!("SKIP sample_counts_are_those_of_the_index: no corpus beside the checkout");
        return;
    };
    let index = std::fs::read_to_string(dir.join("INDEX.tsv")).unwrap();
    let mut compared = 0;
    for line in index.lines().skip(1) {
        let columns: Vec<&str> = line.split('\t').collect();
        let (name, kind, samples) = (columns[0], columns[5], columns[12]);
        let Ok(expected) = samples.parse::<usize>() else { continue };
        if kind.contains("zstd") || kind.contains("v1") {
            continue;
        }
        let Ok(bytes) = std::fs::read(dir.join(name)) else { continue };
        if !matches!(Container::detect(&bytes), Ok(Container::File(_))) {
            continue;
        }
        let file = File::parse(&bytes).unwrap_or_else(|e| panic!("{name}: {e}"));
        let mut records = file.records();
        let found = records.by_ref().map_while(Result::ok).filter(|r| r.kind == RecordType::SAMPLE).count();
        assert_eq!(found, expected, "{name}: samples, read up to {:#x}", records.offset());
        compared += 1;
    }
    assert!(compared >= 30, "only {compared} files compared");
}
