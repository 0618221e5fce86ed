//! Dependencies between the crates are those in ARCHITECTURE.md, and the reporter depends on neither Linux nor libbpf.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::process::Command;

/// Names of all packages that `package` is built from, itself not included.
fn dependencies(package: &str, arguments: &[&str]) -> BTreeSet<String> {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "--locked", "--offline", "--edges", "normal,build", "--prefix", "none", "--format", "{p}"])
        .args(["--package", package])
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap();
    assert!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let names: BTreeSet<String> = text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
    assert!(names.contains(package), "cargo tree does not name {package} itself: {text}");
    names.into_iter().filter(|name| name != package).collect()
}

fn own(names: &BTreeSet<String>) -> Vec<&str> {
    names.iter().map(String::as_str).filter(|name| name.starts_with("bprec")).collect()
}

#[test]
fn crates_see_only_what_they_may() {
    assert_eq!(own(&dependencies("bprec-format", &[])), [""; 0]);
    assert_eq!(own(&dependencies("bprec-filter", &[])), ["bprec-format"]);
    assert_eq!(own(&dependencies("bprec-report", &[])), ["bprec-filter", "bprec-format"]);
    assert_eq!(own(&dependencies("bprec-host", &[])), ["bprec-filter", "bprec-format"]);
    assert_eq!(own(&dependencies("bprec-bpf", &[])), ["bprec-filter", "bprec-format", "bprec-host"]);
    assert_eq!(own(&dependencies("bprec-record", &[])), ["bprec-bpf", "bprec-filter", "bprec-format", "bprec-host"]);
    assert_eq!(own(&dependencies("bprec-fixtures", &[])), [""; 0]);
    assert_eq!(own(&dependencies("bprec-generate", &[])), ["bprec-format"]);
    let linux: &[&str] = if cfg!(target_os = "linux") { &["bprec-host"] } else { &[] };
    let reporter = [&["bprec-filter", "bprec-format"], linux, &["bprec-report"]].concat();
    assert_eq!(own(&dependencies("bprec", &["--no-default-features"])), reporter);
}

#[test]
fn the_reporter_alone_needs_neither_libbpf_nor_perf_events() {
    let reporter = dependencies("bprec", &["--no-default-features"]);
    for name in ["libbpf-rs", "libbpf-sys", "perf-event-open-sys"] {
        assert!(!reporter.contains(name), "the reporter is built from {name}");
    }
    // The recorder depends on libbpf, which proves that the check works.
    if cfg!(target_os = "linux") {
        assert!(dependencies("bprec", &[]).contains("libbpf-sys"));
    }
}
