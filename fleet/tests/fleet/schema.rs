//! Columns of the tables: other engines and existing lakes depend on them.

use crate::support::{Lake, TABLES, repository, whole_recordings};
use parquet::file::metadata::SortingColumn;
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::schema::printer::print_schema;
use std::fs::File;
use std::path::PathBuf;

/// Parquet schema of each table, and the columns by which its rows are sorted.
fn schemas(lake: &Lake) -> String {
    let mut text = Vec::new();
    for table in TABLES {
        let open = |path: &PathBuf| SerializedFileReader::new(File::open(path).unwrap()).unwrap();
        let files: Vec<_> = lake.files(table).iter().map(open).collect();
        let schema = files[0].metadata().file_metadata().schema_descr();
        text.extend(format!("{table}\n").bytes());
        print_schema(&mut text, schema.root_schema());
        let sorting =
            files.iter().flat_map(|file| file.metadata().row_groups()).find_map(|rows| rows.sorting_columns());
        let column = |sorting: &SortingColumn| schema.column(sorting.column_idx as usize).name().to_owned();
        let sorting: Vec<String> = sorting.into_iter().flatten().map(column).collect();
        text.extend(format!("sorted by {}\n\n", sorting.join(", ")).bytes());
    }
    String::from_utf8(text).unwrap()
}

#[test]
fn tables_are_as_they_were() {
    let expected = repository().join("fleet/tests/expected/schema.txt");
    let found = schemas(&Lake::with(&whole_recordings(), &[]));
    if std::env::var_os("BPREC_UPDATE").is_some() {
        std::fs::write(&expected, &found).unwrap();
    }
    assert_eq!(found, std::fs::read_to_string(expected).unwrap(), "columns may only be added, nullable, at the end");
    // No unsigned integers, no floating point, no nanosecond timestamps.
    for line in found.lines() {
        for word in
            ["UNSIGNED", "UINT", "FLOAT", "DOUBLE", "INT96", "NANOS", "(INTEGER(32,false)", "(INTEGER(64,false)"]
        {
            assert!(!line.contains(word), "{line}");
        }
    }
}

/// docs/fleet.md has a row for each column of each table, in the order of the table, and no other rows.
#[test]
fn every_column_is_documented() {
    let docs = std::fs::read_to_string(repository().join("docs/fleet.md")).unwrap();
    let found = schemas(&Lake::with(&whole_recordings()[..1], &[]));
    for table in TABLES {
        let schema = found.split(&format!("{table}\nmessage")).nth(1).unwrap().split('}').next().unwrap();
        let columns = schema.lines().filter_map(|line| {
            let mut words = line.trim().trim_end_matches(';').split_whitespace();
            let is_nullable = match words.next()? {
                "OPTIONAL" => true,
                "REQUIRED" => false,
                _ => return None,
            };
            let name = words.nth(1)?;
            Some(format!("{name}{}", if is_nullable { "?" } else { "" }))
        });
        let section = docs.split(&format!("### `{table}`")).nth(1).unwrap_or_else(|| panic!("no section {table}"));
        let section = section.split("\n#").next().unwrap();
        let documented = section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`').map(|it| it.0));
        assert_eq!(columns.collect::<Vec<_>>(), documented.collect::<Vec<_>>(), "{table}");
    }
}
