//! Recordings that the generator made, as perf reads them: what benches and tests measure with is a recording like any other.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::process::Command;

use bprec_generate::{Container, Shape, generate};

#[test]
fn perf_reads_generated_recordings() {
    if Command::new("perf").arg("--version").output().is_err() {
        println!("SKIP perf_reads_generated_recordings: no perf");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    for container in [Container::File, Container::ZstdFile(1), Container::Pipe] {
        let path = directory.path().join("generated.data");
        let shape = Shape { record_bytes: 1 << 20, churned_programs: 20, container, ..Shape::default() };
        let made = generate(&shape, std::fs::File::create(&path).unwrap()).unwrap();
        let perf = Command::new("perf")
            .args(["report", "--stdio", "--no-children", "-g", "none", "--sort", "sym", "-i"])
            .arg(&path)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&perf.stdout);
        let said = String::from_utf8_lossy(&perf.stderr);
        assert!(perf.status.success(), "{container:?}: {said}");
        assert!(!said.contains("WARNING") && !said.contains("rror"), "{container:?}: {said}");
        let weight = text.lines().find_map(|line| line.strip_prefix("# Event count (approx.): ")).unwrap();
        assert_eq!(weight.parse(), Ok(made.weight), "{container:?}");
        assert!(text.contains("_generated_program_00003"), "{container:?}: {text}");
        if container != Container::Pipe {
            let list = Command::new("perf").args(["report", "--header-only", "-I", "-i"]).arg(&path).output().unwrap();
            assert!(String::from_utf8_lossy(&list.stdout).contains("bpf_prog_info 103"));
        }
    }
}
