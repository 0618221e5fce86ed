//! README and docs are correct: `bprec` accepts each command line; commands that read run as shown; outputs shown for fixture recordings are exact;
//! links have targets. `documented_live.rs` tests the commands that need the kernel.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::{self, File};

use crate::examples::{Desk, all_blocks, commands, complete_commands, documents, lacks_a_value, sources, words};
use clap::error::ErrorKind;

/// Blocks with command lines that are not run here: the document, the start of the block, and the test that checks the block instead.
const CHECKED_ELSEWHERE: &[(&str, &str, &str)] = &[
    ("README.md", "make demo", "targets of the Makefile, which a test below looks for"),
    ("docs/ci.md", "sudo sh bpf-regression.sh", "tests/diff.rs runs the script"),
    ("docs/ci.md", "sudo BASE=", "tests/diff.rs runs the script through the action"),
    ("docs/diff.md", "bprec-load steady", "how the figures beside it were measured, in 68 s"),
    ("docs/diff.md", "condition =", "a grammar"),
    ("docs/doctor.md", "$ bprec doctor", "tests/documented_live.rs"),
    ("docs/export.md", "bprec export --to otlp", "the collector is the reader's; tests/viewers decodes its request"),
    ("docs/fleet.md", "$ bprec-fleet import", "fleet/tests has these commands: a program and a workspace of its own"),
    (
        "docs/fleet.md",
        "# /etc/systemd/system/bprec-summary.service",
        "units of a host of a fleet; fleet/tests makes and imports summaries",
    ),
    ("docs/fleet.md", "$ find /srv/summaries", "fleet/tests imports summaries: a program and a workspace of its own"),
    ("docs/fleet.md", "containers:", "a pod of a host of a fleet; fleet/tests makes and imports summaries"),
    ("docs/fleet.md", "$ export AWS_REGION", "fleet/tests uses a bucket: a program and a workspace of its own"),
    ("docs/fleet.md", "v2/generations/", "keys of objects, which fleet/tests reads"),
    ("docs/fleet.md", "import json", "fleet/tests reads a bucket by such a script"),
    ("docs/fleet.md", "$ export SPARK_HOME", "fleet/tests asks Spark: a program and a workspace of its own"),
    ("docs/install.md", "make release", "targets of the Makefile, which a test below looks for"),
    ("docs/install.md", "sh install.sh", "tests/install_script.rs runs the script with releases that it makes"),
    ("docs/install.md", "setup/package check", "a step of CI; `try` needs bare Debian systems"),
    ("docs/maps.md", "# bprec record", "tests/documented_live.rs"),
    ("docs/samplers.md", "# blind spot:", "tests/documented_live.rs"),
    ("docs/samplers.md", "# bprec record", "tests/documented_live.rs"),
    ("docs/stat.md", "# bprec stat", "tests/documented_live.rs"),
    ("docs/vm.md", "cargo xtask vm", "needs QEMU and kernels; `make test` runs guests"),
    ("docs/vm.md", "console.log", "names of files that a run of a guest leaves"),
];

/// Commands that only read: they are run here exactly as shown.
const READERS: [&str; 7] = ["annotate", "diff", "export", "recover", "report", "rewrite", "script"];

/// Names that the documents use for files and programs of a user, each with the recording that replaces it here.
const STAND_INS: &[(&str, &str)] = &[
    ("BASE1", "perf.data"),
    ("BASE2", "older.data"),
    ("NEW1", "perf.data"),
    ("NEW2", "older.data"),
    ("BASE", "older.data"),
    ("OLD", "older.data"),
    ("NEW", "perf.data"),
    ("PROG[:FUNC]", "PROG:FUNC"),
    ("PROG:FUNC", "account_syscall_enter:mix*"),
    ("PROG", "account_syscall_enter"),
    ("syscalls:sys_enter_read", "cpu-clock"),
    ("FILE", "perf.data"),
    ("perf.data.*", "perf.data"),
    ("IN", "perf.data"),
    ("OUT", "out.data"),
    ("FORMAT", "folded"),
    ("NAME", "bprec-load"),
    ("'prog:tcp_*", "'prog:account_*"),
    ("today.data", "perf.data"),
    ("pool.data", "perf.data"),
];

/// Returns true if a word is a placeholder for a value of the user, such as `FORMAT`.
fn is_a_stand_in(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_uppercase())
}

#[test]
fn every_block_is_checked_somewhere() {
    let mut unused: Vec<_> = CHECKED_ELSEWHERE.iter().collect();
    for block in all_blocks() {
        let is_its = |row: &&(&str, &str, &str)| row.0 == block.document && block.first().starts_with(row.1);
        let listed = CHECKED_ELSEWHERE.iter().any(|row| is_its(&row));
        let run = block.reads_a_fixture() || block.is_of_commands();
        assert!(run != listed, "a block must be either run here or listed with the test that checks it: {block:#?}");
        unused.retain(|row| !is_its(row));
    }
    assert!(unused.is_empty(), "no block matches these list entries: {unused:?}");
}

/// All blocks must be fenced: the tests skip other blocks.
#[test]
fn blocks_are_fenced() {
    for (document, text) in documents() {
        let is_indented = |line: &&str| line.starts_with("    ") && !line.trim_start().starts_with(['-', '*']);
        let outside = text.split("\n```").step_by(2).flat_map(|prose| prose.lines().skip(1));
        let indented: Vec<_> = outside.filter(is_indented).collect();
        assert!(indented.is_empty(), "{document}: {indented:#?}");
    }
}

#[test]
fn targets_of_make_exist() {
    let makefile = fs::read_to_string(sources().join("Makefile")).unwrap();
    let mut looked_for = 0;
    for block in all_blocks().iter().filter(|block| block.kind == "sh") {
        for line in &block.lines {
            let code = line.split(" # ").next().unwrap();
            for (at, _) in code.match_indices("make ").filter(|_| !code.starts_with("bprec ")) {
                let target = code[at..].split_whitespace().nth(1).unwrap();
                assert!(makefile.contains(&format!("\n{target}:")), "{}: {line}", block.document);
                looked_for += 1;
            }
        }
    }
    assert!(looked_for > 0);
}

#[test]
fn every_command_that_is_shown_is_one() {
    let (mut tried, mut wrong) = (0, Vec::new());
    for (path, text) in documents() {
        for command in commands(&text) {
            let words = words(&command);
            if words.len() < 2 {
                continue;
            }
            tried += 1;
            let Err(error) = bprec::command().try_get_matches_from(&words) else { continue };
            let is_fine = match error.kind() {
                // The document shows the error of this command; a test below compares the error.
                ErrorKind::ValueValidation if command.contains("2>&1") => true,
                ErrorKind::ValueValidation => words.iter().any(|word| is_a_stand_in(word)),
                _ => lacks_a_value(&error) || !error.use_stderr(),
            };
            if !is_fine {
                wrong.push(format!("{path}: {command}: {error}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.concat());
    assert!(tried > 60, "{tried}");
}

/// Commands with exit code 1: the recording used here lacks the name, or the condition fails.
const NOTHING_MATCHES: [&str; 5] = [
    "bprec annotate PROG[:FUNC]",
    "bprec report --maps=typed_hash",
    "bprec report --payers --prog 'trace_*' --limit 5",
    "bprec report --without 'account_*' --per syscalls:sys_enter_read",
    "bprec report --without AGENT",
];

/// Every shown command that reads runs without an error.
#[test]
fn commands_that_read_are_run() {
    let desk = Desk::new();
    let fixtures = sources().join("fixtures/recordings/linux-7.2");
    let (mut tried, mut nothing) = (0, Vec::new());
    for shown in complete_commands(|command| READERS.contains(&command)) {
        // The screen needs a terminal: tests/tui.rs. Outputs for fixtures are compared below.
        if shown.contains("--tui") || shown.contains("fixtures/recordings/") {
            continue;
        }
        // The recording used here is from another day. report/tests/several_files.rs tests ranges of wall-clock time.
        if shown.contains("--until") {
            continue;
        }
        // Some commands write files, so the recordings are copied.
        for (from, to) in [("ratio", "perf"), ("everything", "older")] {
            fs::copy(fixtures.join(from).with_extension("data"), desk.path(to).with_extension("data")).unwrap();
        }
        drop(fs::remove_file(desk.path("out.data")));
        let words = shown.split(' ').map(|word| {
            let stand_in = STAND_INS.iter().find(|(name, _)| *name == word);
            stand_in.map_or(word, |(_, file)| *file)
        });
        let typed = words.collect::<Vec<_>>().join(" ");
        // Some commands read standard input.
        let mut shell = desk.shell(&typed);
        let output = shell.stdin(File::open(desk.path("perf.data")).unwrap()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        match output.status.code() {
            Some(0) => {}
            Some(1) => nothing.push(shown),
            _ => panic!("{shown}: {said}"),
        }
        tried += 1;
    }
    assert!(tried > 40, "{tried}");
    assert_eq!(nothing, NOTHING_MATCHES);
}

#[test]
fn what_is_shown_of_fixtures_is_what_comes_out() {
    let desk = Desk::new();
    let mut shown = 0;
    for block in all_blocks().iter().filter(|block| block.reads_a_fixture()) {
        // A block may have several commands, each with what it prints.
        let is_command = |line: &String| line.starts_with("$ ");
        let mut lines = block.lines.iter().peekable();
        while let Some(command) = lines.next() {
            let mut expected = String::new();
            while let Some(line) = lines.next_if(|line| !is_command(line)) {
                expected += line;
                expected.push('\n');
            }
            let output = desk.shell_in(&sources(), &command[2..]).output().unwrap();
            let printed = String::from_utf8(output.stdout).unwrap();
            assert!(printed == expected, "{}: {command} prints now:\n{printed}", block.document);
            shown += 1;
        }
    }
    assert!(shown > 0);
}

#[test]
fn links_lead_to_files() {
    for (path, text) in documents() {
        for link in text.split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let file = link.split('#').next().unwrap();
            if !link.starts_with("http") && !file.is_empty() {
                assert!(sources().join(&path).parent().unwrap().join(file).exists(), "{path}: {link}");
            }
        }
    }
}
