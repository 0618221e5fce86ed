//! Commands of README and docs that need the kernel: the test runs each as shown, and compares the shown output with the actual output; numbers are
//! masked. `documents.rs` tests all other commands.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::examples::{Block, Desk, all_blocks, complete_commands};
use crate::support::{bprec, perf_installed, root, signal, skip, succeed};
use bprec_fixtures::load::system_calls;
use bprec_fixtures::{Fixture, Loaded};
use serde_json::Value;

/// Names that the documents use, and the objects of this test that replace them.
fn stand_ins() -> Vec<(&'static str, String)> {
    let id = std::process::id().to_string();
    let object = format!("{}/fixtures/bpf/ip_histogram.bpf.o", env!("CARGO_MANIFEST_DIR"));
    vec![
        ("PID", id.clone()),
        ("TID", id.clone()),
        ("1234,1300", id),
        ("PATH", "/".to_owned()),
        ("FILE.o[:PROGRAM]", object.clone()),
        ("fixtures/bpf/ip_histogram.bpf.o", object),
    ]
}

/// A directory in which the commands of the documents run. Its `sleep` and `make` end after 0.3 s.
fn desk() -> Desk {
    let desk = Desk::new();
    desk.add_program("sleep", "exec /bin/sleep 0.3");
    desk.add_program("make", "exec /bin/sleep 0.3");
    desk
}

fn tracepoints(loops: u32) -> Loaded {
    Fixture::TP.open().unwrap().for_this_thread().unwrap().loops(loops).unwrap().start().unwrap()
}

/// Runs a command line to its end, while this thread makes system calls. Replaces the names of the documents by those of `stand_ins` and of `ours`.
/// An endless command gets SIGINT as soon as it handles this signal.
fn run_beside_load(desk: &Desk, shown: &str, ours: &[(&'static str, String)]) -> Output {
    let words = shown.split(' ').map(|word| {
        let stand_in = stand_ins().into_iter().chain(ours.iter().cloned()).find(|(name, _)| *name == word);
        stand_in.map_or_else(|| word.to_owned(), |(_, value)| value)
    });
    let typed = words.collect::<Vec<_>>().join(" ");
    let out = desk.path("printed");
    let file = std::fs::File::create(&out).unwrap();
    let mut shell = desk.shell(&if typed.contains('|') { typed } else { format!("exec {typed}") });
    let mut child = shell.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
    let ends = shown.contains(" -- ") || shown.contains("--once") || !shown.starts_with("bprec");
    let mut told = ends;
    let deadline = Instant::now() + Duration::from_secs(60);
    let status = loop {
        system_calls(200);
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
        }
        if !told && takes_interrupts(child.id()) {
            signal(&child, "-INT");
            told = true;
        }
    };
    Output { status, stdout: std::fs::read(out).unwrap(), stderr: Vec::new() }
}

/// Returns true if `bprec` handles SIGINT: it catches the signal, or blocks it to read it from a descriptor. All signals are blocked for a moment
/// while a thread or process is created.
fn takes_interrupts(id: u32) -> bool {
    const INTERRUPT: u64 = 1 << 1;
    const SEGMENTATION_FAULT: u64 = 1 << 10;
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).unwrap_or_default();
    let set = |name| {
        let set = status.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default();
        u64::from_str_radix(set.trim(), 16).unwrap_or_default()
    };
    let blocked = set("SigBlk:");
    status.starts_with("Name:\tbprec\n")
        && (set("SigCgt:") & INTERRUPT != 0 || blocked & INTERRUPT != 0 && blocked & SEGMENTATION_FAULT == 0)
}

/// Masks the parts of a line that differ between machines: numbers and column widths.
fn masked(line: &str) -> String {
    let mut masked = String::new();
    for word in line.split_whitespace() {
        let (mut rest, mut number) = (word, false);
        masked.push(' ');
        while let Some(c) = rest.chars().next() {
            let in_number = c.is_ascii_digit() || number && matches!(c, '.' | ',');
            if in_number && !number {
                masked.push('#');
            // In some runs, the number is an estimate: ≈46.5k.
            } else if !in_number && c != '≈' && !(number && c == 'k') {
                masked.push(c);
            }
            number = in_number;
            rest = &rest[c.len_utf8()..];
        }
    }
    masked
}

/// True if a line equals the shown line, where `…` matches any text.
fn fits(shown: &str, line: &str) -> bool {
    let (shown, line) = (masked(shown), masked(line));
    let mut parts: Vec<_> = shown.split('…').map(str::trim).collect();
    let (first, last) = (parts.remove(0), parts.pop());
    let Some(mut rest) = line.trim().strip_prefix(first) else { return false };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    last.map_or(rest.is_empty(), |last| rest.ends_with(last))
}

/// Part of a message of bprec about other tools. `assert_shown` ignores this message, because other tools may run.
const OF_OTHERS: &str = "another tool has switched on the kernel's run statistics";

/// Asserts that every shown line is printed, in any order, because rows are ordered by their numbers. With `and_nothing_else`, no other line may be
/// printed.
fn assert_shown(block: &Block, shown: &[String], printed: &[u8], and_nothing_else: bool) {
    let printed = String::from_utf8_lossy(printed);
    let mut lines: Vec<_> =
        printed.lines().filter(|line| !line.trim().is_empty() && !line.contains(OF_OTHERS)).collect();
    for expected in shown.iter().filter(|line| *line != "…" && !line.trim().is_empty()) {
        let at = lines.iter().position(|line| fits(expected, line));
        let at = at.unwrap_or_else(|| {
            panic!("{}: the line\n{expected}\nis missing in the output:\n{printed}", block.document)
        });
        lines.remove(at);
    }
    assert!(!and_nothing_else || lines.is_empty(), "{}: {lines:#?}\ncomes, too:\n{printed}", block.document);
}

/// Finds the block of a document that begins with this line.
fn block(document: &str, first: &str) -> Block {
    let mut blocks = all_blocks().into_iter();
    blocks.find(|block| block.document == document && block.first().starts_with(first)).unwrap()
}

/// Splits a block into commands, each with its shown output.
fn dialogue(block: &Block) -> Vec<(&str, &[String])> {
    let is_command = |line: &String| ["# bprec ", "# perf ", "$ "].iter().any(|prompt| line.starts_with(prompt));
    let starts: Vec<_> = (0..block.lines.len()).filter(|at| is_command(&block.lines[*at])).collect();
    let ends = starts.iter().skip(1).copied().chain([block.lines.len()]);
    starts.iter().zip(ends).map(|(at, end)| (&block.lines[*at][2..], &block.lines[at + 1..end])).collect()
}

#[test]
fn masks_hide_numbers_alone() {
    assert!(fits("297  tracepoint  enter  23,192  1,338", "1 tracepoint enter 5 0.25"));
    assert!(!fits("297  tracepoint  enter  23,192", "1 tracepoint exit 5"));
    assert!(!fits("297  tracepoint  23,192", "1 tracepoint n/a"));
    assert!(fits("value { .low = 5, … .ratio = 0.25 }", "value { .low = 6, .on = true, .ratio = 1 }"));
    assert!(!fits("value { .low = 5, … .ratio = 0.25 }", "value { .low = 6, .on = true }"));
    assert!(!fits("a", "a b"));
}

/// Commands that name programs which are not loaded here, and therefore end with exit code 1.
const NOTHING_MATCHES: [&str; 3] = [
    "bprec stat -b 'tcp_*' -I 1000",
    "bprec stat -b xdp_main:* -e '{cycles,instructions}' -- sleep 5",
    "bprec top -b -d 5 -n 12 --prog 'tcp_*'",
];

#[test]
fn commands_that_ask_the_kernel_are_run() {
    if !root("commands_that_ask_the_kernel_are_run") {
        return;
    }
    let loaded = tracepoints(100);
    let id = loaded.id_of("account_syscall_enter").unwrap();
    let ours = [("'tcp_*,17'", format!("'tcp_*,{id}'"))];
    let (mut tried, mut nothing) = (0, Vec::new());
    for shown in complete_commands(|command| ["record", "stat", "top", "doctor"].contains(&command)) {
        // `bprec top` needs a terminal: tests/top_screen.rs.
        if shown == "bprec top" {
            continue;
        }
        let output = run_beside_load(&desk(), &shown, &ours);
        let printed = String::from_utf8_lossy(&output.stdout);
        match output.status.code() {
            Some(0) => {}
            // Findings of `doctor` depend on the machine.
            Some(1) if shown.starts_with("bprec doctor") => {}
            Some(1) => nothing.push(shown),
            _ => panic!("{shown}: {:?}: {printed}", output.status),
        }
        tried += 1;
    }
    drop(loaded);
    assert!(tried > 15, "{tried}");
    nothing.sort_unstable();
    assert_eq!(nothing, NOTHING_MATCHES);
}

#[test]
fn stat_prints_what_is_shown() {
    if !root("stat_prints_what_is_shown") {
        return;
    }
    let doctor: Value = serde_json::from_slice(&succeed(bprec().args(["doctor", "--json"])).stdout).unwrap();
    let checks = doctor["checks"].as_array().unwrap();
    if checks.iter().any(|check| check["check"] == "trampolines" && check["status"] == "ok") {
        return skip("stat_prints_what_is_shown", "the documented output is from a kernel that refuses fentry");
    }
    let loaded = tracepoints(100);
    // Other programs with these names may be loaded.
    let ids = ["account_syscall_enter", "account_syscall_exit"].map(|name| loaded.id_of(name).unwrap().to_string());
    let block = block("docs/stat.md", "# bprec stat");
    let [(command, shown)] = dialogue(&block)[..] else { panic!("{block:?}") };
    let output = run_beside_load(&desk(), command, &[("'account_*'", ids.join(","))]);
    let shown: Vec<_> = shown.iter().map(|line| line.replace("account_*", &ids.join(","))).collect();
    assert_shown(&block, &shown, &output.stdout, true);
}

#[test]
fn maps_are_printed_as_shown() {
    if !root("maps_are_printed_as_shown") {
        return;
    }
    let loaded = Fixture::TYPED_MAPS.open().unwrap().for_this_thread().unwrap().start().unwrap();
    system_calls(3);
    // Other maps with this name may exist.
    let id = loaded.map_id("typed_hash").unwrap().to_string();
    // The document has each value on one line.
    let bprec = "env COLUMNS=1000 bprec".to_owned();
    let ours = [("'typed_*'", id.clone()), ("--maps=typed_hash", format!("--maps={id}")), ("bprec", bprec)];
    let (desk, block) = (desk(), block("docs/maps.md", "# bprec record"));
    for (command, shown) in dialogue(&block) {
        let output = run_beside_load(&desk, command, &ours);
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stdout));
        // The document does not show the recorder's closing line. So a command without shown output is not compared.
        if !shown.is_empty() {
            assert_shown(&block, shown, &output.stdout, true);
        }
    }
}

#[test]
fn programs_of_ones_own_have_the_samples_that_are_shown() {
    const TEST: &str = "programs_of_ones_own_have_the_samples_that_are_shown";
    if !root(TEST) || !perf_installed(TEST) {
        return;
    }
    let (desk, block) = (desk(), block("docs/samplers.md", "# bprec record"));
    for (command, shown) in dialogue(&block) {
        let output = run_beside_load(&desk, command, &[]);
        assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stdout));
        if !shown.is_empty() {
            assert_shown(&block, shown, &output.stdout, true);
        }
    }
}

#[test]
fn the_blind_spot_is_said_as_shown() {
    if !root("the_blind_spot_is_said_as_shown") {
        return;
    }
    let _loaded = tracepoints(2000);
    let (desk, block) = (desk(), block("docs/samplers.md", "# blind spot"));
    let output = run_beside_load(&desk, "bprec record -a --bpf-sampler -- sleep 1", &[]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    let report = succeed(desk.shell("bprec report").env("COLUMNS", "200").stdout(Stdio::piped()));
    assert_shown(&block, &block.lines, &report.stdout, false);
}

/// The documented output is from a user without privileges on a machine without a PMU.
#[test]
fn doctor_says_what_is_shown() {
    if !root("doctor_says_what_is_shown") {
        return;
    }
    let paranoid = std::fs::read_to_string("/proc/sys/kernel/perf_event_paranoid").unwrap();
    let has_pmu = Path::new("/sys/bus/event_source/devices/cpu").exists();
    if paranoid.trim() != "2" || has_pmu {
        return skip(
            "doctor_says_what_is_shown",
            "the documented output is from a machine without a PMU, with kernel.perf_event_paranoid 2",
        );
    }
    // A directory from which other users can run the program; the build directory may not allow it.
    let desk = desk();
    let program = desk.path("bprec");
    std::fs::copy(env!("CARGO_BIN_EXE_bprec"), &program).unwrap();
    succeed(Command::new("chmod").arg("755").arg(program.parent().unwrap()));
    let nobody = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let output = succeed(Command::new("setpriv").args(nobody).arg(&program).arg("doctor").env("COLUMNS", "80"));
    let block = block("docs/doctor.md", "$ bprec doctor");
    // The kernel release may end with a suffix of the distribution.
    let printed = String::from_utf8(output.stdout).unwrap();
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let printed = printed.replace(release.trim(), release.split('-').next().unwrap().trim());
    assert_shown(&block, &block.lines[1..], printed.as_bytes(), false);
}
