//! Generated recordings: perf reads them, so recordings of benches and tests are valid. Also tests that need a large recording.
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

#[test]
fn threads_that_cannot_be_had_change_nothing() {
    let directory = tempfile::tempdir().unwrap();
    for container in [Container::File, Container::ZstdFile(1), Container::Pipe] {
        let path = directory.path().join("generated.data");
        let shape = Shape { record_bytes: 20 << 20, churned_programs: 20, container, ..Shape::default() };
        generate(&shape, std::fs::File::create(&path).unwrap()).unwrap();
        for command in [&["report", "--threads", "4"][..], &["script", "-F", "comm,time,ip,sym"]] {
            let output = |stack_bytes: u64| {
                let mut command_line = Command::new(env!("CARGO_BIN_EXE_bprec"));
                command_line.args(command).arg("-i").arg(&path).env("RUST_MIN_STACK", stack_bytes.to_string());
                let output = command_line.output().unwrap();
                assert!(output.status.success(), "{container:?}: {}", String::from_utf8_lossy(&output.stderr));
                output.stdout
            };
            // With a stack of 1 << 60 bytes, no thread can start; the output must be the same.
            assert!(output(2 << 20) == output(1 << 60), "{container:?} {command:?}");
        }
    }
}

/// A write beyond the file size limit fails, and the incomplete file does not get its name.
#[test]
fn a_limit_of_the_size_of_files_ends_no_command() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("generated.data");
    let shape = Shape { record_bytes: 4 << 20, ..Shape::default() };
    generate(&shape, std::fs::File::create(&path).unwrap()).unwrap();
    // The recording lacks its end.
    std::fs::File::options().write(true).open(&path).unwrap().set_len(3 << 20).unwrap();
    for command in ["rewrite -i \"$1\" -o \"$1.new\"", "recover \"$1\""] {
        let script = format!("ulimit -f 1000; exec \"$0\" {command}");
        let output = Command::new("sh").args(["-c", &script, env!("CARGO_BIN_EXE_bprec")]).arg(&path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{command}: {said}");
        assert!(said.contains("File too large"), "{command}: {said}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "{command}");
    }
}
