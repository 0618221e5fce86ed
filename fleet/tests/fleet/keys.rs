//! Keys of programs: each program of real objects has one key on all kernels, and no two objects share a key.
//!
//! `tests/objects` has two recordings of each of several kernels, with the tools of libbpf-tools and the objects of `fixtures/bpf`, and two with scripts
//! of bpftrace. All objects were loaded again for the second recording, with XDP on more interfaces. The README there has the commands.

use crate::support::{Lake, repository};
use bprec_report::model::Program;
use bprec_report::{Input, Options, by_prog};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Least counts of objects, of scripts of bpftrace among them, and of kernels, so that the test cannot pass without them.
const OBJECTS: usize = 40;
const SCRIPTS: usize = 6;
const KERNELS: usize = 4;

/// Unpacks the recordings into a directory.
fn recordings(directory: &Path) -> Vec<PathBuf> {
    let packed = File::open(repository().join("fleet/tests/objects/recordings.tar.zst")).unwrap();
    let archive = directory.join("recordings.tar");
    std::fs::write(&archive, zstd::decode_all(packed).unwrap()).unwrap();
    let unpacked = Command::new("tar").arg("-xf").arg(&archive).arg("-C").arg(directory).status().unwrap();
    assert!(unpacked.success(), "{unpacked}");
    let files = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    files.filter(|path| *path != archive).collect()
}

/// Object of a program: the tool that holds it, or the directory of bpffs in which an object of `fixtures/bpf` was pinned.
fn object(program: &Program) -> Option<String> {
    let tool = program.owners.iter().map(|owner| owner.comm.clone()).find(|comm| comm != "bprec" && comm != "bpftool");
    let pinned = || Some(Path::new(program.pins.first()?).parent()?.file_name()?.to_str()?.to_owned());
    tool.or_else(pinned)
}

/// Objects by boot, id and load time of their programs.
fn objects(files: &[PathBuf]) -> BTreeMap<String, String> {
    let mut objects = BTreeMap::new();
    for path in files {
        let report = by_prog(&Input::open(path).unwrap(), &Options { all: true, ..Options::default() }).unwrap();
        for program in report.programs.iter() {
            let place = json!([report.recording.boot_id, program.id, program.load_time_ns]);
            objects.extend(object(program).map(|object| (place.to_string(), object)));
        }
    }
    objects
}

#[test]
fn programs_of_real_objects_have_one_key_each() {
    let directory = tempfile::tempdir().unwrap();
    let files = recordings(directory.path());
    let (lake, objects) = (Lake::with(&files, &[]), objects(&files));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut keys: BTreeMap<[String; 3], BTreeSet<String>> = BTreeMap::new();
    let mut programs: BTreeMap<String, BTreeSet<[String; 3]>> = BTreeMap::new();
    let mut kernels = BTreeSet::new();
    // A program with neither a source file nor an attach point is not attached; its key changes once it is.
    let sql = "SELECT DISTINCT p.boot_id, p.prog_id, p.load_time_ns, p.kernel_release, p.prog_key, p.name, p.prog_type \
               FROM prog p LEFT JOIN attachment a ON a.prog_key = p.prog_key WHERE COALESCE(p.source_file, a.kind) IS NOT NULL";
    for row in lake.sql(sql) {
        let place = json!([row["boot_id"], row["prog_id"], row["load_time_ns"]]);
        let Some(object) = objects.get(&place.to_string()) else { continue };
        let program = [object.clone(), text(&row["name"]), text(&row["prog_type"])];
        keys.entry(program.clone()).or_default().insert(text(&row["prog_key"]));
        programs.entry(text(&row["prog_key"])).or_default().insert(program);
        kernels.insert(text(&row["kernel_release"]));
    }
    let several: Vec<_> = keys.iter().filter(|(_, keys)| keys.len() > 1).collect();
    assert!(several.is_empty(), "programs with several keys: {several:#?}");
    let shared: Vec<_> = programs.values().filter(|programs| programs.len() > 1).collect();
    assert!(shared.is_empty(), "programs that share a key: {shared:#?}");
    let found: BTreeSet<&String> = keys.keys().map(|[object, ..]| object).collect();
    let scripts = found.iter().filter(|object| object.starts_with("bpftrace_")).count();
    let is_enough = found.len() >= OBJECTS && scripts >= SCRIPTS && kernels.len() >= KERNELS;
    assert!(is_enough, "{} objects, {scripts} scripts on {kernels:?}", found.len());
}
