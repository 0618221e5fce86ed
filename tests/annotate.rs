//! Code of running programs, compared with bpftool and the kernel, and the cost of its lines. Real kernel, root.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::support::{self, Scratch, alone, bprec, end, measured, recording, report, root, skip, succeed, wait_for};
use bprec_fixtures::load::system_calls;
use bprec_fixtures::{Fixture, machine_code};
use serde_json::Value;

fn annotate(path: &Path, target: &str) -> Value {
    let output = succeed(bprec().args(["annotate", "--json", target]).arg(path));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn list<'v>(value: &'v Value, member: &str) -> impl Iterator<Item = &'v Value> + use<'v> {
    value[member].as_array().unwrap().iter()
}

/// Lines of all functions of a program.
fn lines(program: &Value) -> Vec<&Value> {
    list(program, "functions").flat_map(|function| list(function, "lines")).collect()
}

/// The machine instructions of a program, in the order of its code.
fn machine(program: &Value) -> Vec<&Value> {
    let lines = lines(program).into_iter();
    lines
        .flat_map(|line| list(line, "bpf").flat_map(|insn| list(insn, "machine")).chain(list(line, "machine")))
        .collect()
}

fn instructions_of_bpftool(id: u32) -> BTreeMap<u64, String> {
    let output = succeed(Command::new("bpftool").args(["prog", "dump", "xlated", "id", &id.to_string()]));
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| {
        let (slot, rest) = line.trim_start().split_once(": (")?;
        Some((slot.parse().ok()?, rest.split_once(") ")?.1.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

/// Texts of the BPF instructions of a program in our annotation, by slot, to compare with those of bpftool.
fn instructions(program: &Value) -> BTreeMap<u64, String> {
    let insns = lines(program).into_iter().flat_map(|line| list(line, "bpf"));
    insns.map(|insn| (insn["slot"].as_u64().unwrap(), insn["text"].as_str().unwrap().to_owned())).collect()
}

/// An instruction without the parts that only one of the two tools prints.
fn common(text: &str) -> String {
    let text = text.split(" <").next().unwrap_or(text);
    // bprec prints the name of a map, too: `map[id:4 counts]`.
    let text = match text.split_once("map[id:").map(|(before, rest)| (before, rest.split_once(']'))) {
        Some((before, Some((map, rest)))) => {
            format!("{before}map[id:{}]{rest}", map.split(' ').next().unwrap_or(map))
        }
        _ => text.to_owned(),
    };
    // One tool prints the name of the called function, too: `call pc+8#bpf_prog_72a6ce9d3f7a7409_cb`.
    match text.split_once('#') {
        Some((call, _)) if text.starts_with("call pc") => call.to_owned(),
        _ => text,
    }
}

/// Asserts that all instructions equal those of bpftool, including names of helpers. An old bpftool omits instructions that it does not know.
fn assert_same_instructions(program: &Value, id: u32) -> usize {
    let (ours, theirs) = (instructions(program), instructions_of_bpftool(id));
    assert_eq!(ours.keys().collect::<Vec<_>>(), theirs.keys().collect::<Vec<_>>(), "slots of {id}");
    for (slot, text) in &ours {
        if !text.contains("(void __percpu *)") {
            assert_eq!(common(text), common(&theirs[slot]), "program {id}, slot {slot}");
        }
    }
    ours.len()
}

fn calls_for(time: Duration) {
    let until = Instant::now() + time;
    while Instant::now() < until {
        system_calls(1);
    }
}

/// Number of a line in a source file.
fn line_number(source: &str, text: &str) -> u64 {
    source.lines().position(|line| line.contains(text)).unwrap() as u64 + 1
}

/// BPF instructions equal those of bpftool, machine code equals that of the kernel, also in subprograms; the line with the loop is the hottest.
#[test]
fn code_is_the_kernels_and_the_loop_is_the_hottest_line() {
    if !root("code_is_the_kernels_and_the_loop_is_the_hottest_line") {
        return;
    }
    alone();
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let tp = Fixture::TP.open().unwrap().for_this_thread().unwrap().loops(300).unwrap().start().unwrap();
    let others = [Fixture::TAIL_CALL, Fixture::NO_BTF, Fixture::XDP, Fixture::TYPED_MAPS];
    let others: Vec<_> = others.iter().filter_map(|fixture| fixture.start().ok()).collect();
    let child = recording(&path, "3", &["-F", "4000", "-e", "cpu-clock"]);
    calls_for(Duration::from_millis(2_500));
    end(child);
    let mut compared = 0;
    for loaded in std::iter::once(&tp).chain(&others) {
        for program in loaded.programs().unwrap() {
            let annotation = annotate(&path, &program.id.to_string());
            let listed = &annotation["programs"][0];
            compared += assert_same_instructions(listed, program.id);
            let code: Vec<u8> = machine(listed)
                .iter()
                .flat_map(|insn| insn["bytes"].as_str().unwrap().split(' '))
                .map(|byte| u8::from_str_radix(byte, 16).unwrap())
                .collect();
            assert_eq!(code, loaded.machine_code(&program.name).unwrap(), "{}", program.name);
        }
    }
    assert!(compared > 300, "{compared} instructions");

    let source = include_str!("../fixtures/bpf/tp.bpf.c");
    let id = tp.id_of("account_syscall_enter").unwrap();
    let output = succeed(bprec().args(["report", "--lines", "--json", "--prog", &id.to_string(), "-i"]).arg(&path));
    let hottest: Value = serde_json::from_slice(&output.stdout).unwrap();
    let hottest = &hottest["events"][0]["rows"][0];
    assert_eq!(hottest["function"], "mix_syscall_number", "{hottest}");
    assert_eq!(hottest["source"]["line"], line_number(source, "MIX_ROUNDS(x, loops)"), "{hottest}");
    let annotation = annotate(&path, &format!("{id}:mix_*"));
    let functions: Vec<&Value> = list(&annotation["programs"][0], "functions").collect();
    assert_eq!(functions.len(), 1);
    assert_eq!(functions[0]["name"], "mix_syscall_number");
    assert!(functions[0]["self"]["percent"].as_f64().unwrap() > 50.0, "{}", functions[0]["self"]);
    // Each call instruction shows the name of the called function, because the recording names all functions that programs call.
    let annotation = annotate(&path, &format!("{id}:account_in_hash_map"));
    let calls: Vec<&Value> = machine(&annotation["programs"][0])
        .into_iter()
        .filter(|insn| insn["text"].as_str().unwrap().starts_with("call "))
        .collect();
    assert!(calls.len() >= 3 && calls.iter().all(|call| call["called"].is_string()), "{calls:?}");
}

/// The cost of a helper is at the instructions that call it, and equals its cost in the report by helper.
#[test]
fn a_helper_costs_where_it_is_called() {
    if !root("a_helper_costs_where_it_is_called") {
        return;
    }
    alone();
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let loaded = Fixture::IDLE.open().unwrap().load().unwrap();
    let id = loaded.id_of("read_the_clock_20").unwrap();
    measured(|| {
        let child = recording(&path, "3", &["-F", "4000", "-e", "cpu-clock"]);
        let until = Instant::now() + Duration::from_millis(2_500);
        while Instant::now() < until {
            loaded.run("read_the_clock_20", 10_000).unwrap();
        }
        end(child);
        let annotation = annotate(&path, &id.to_string());
        let insns = machine(&annotation["programs"][0]);
        let reads: Vec<_> = insns.iter().filter(|insn| insn["called"] == "bpf_ktime_get_ns").collect();
        assert_eq!(reads.len(), 20, "the source has 20 calls");
        let samples =
            |insns: &[&&Value]| insns.iter().map(|insn| insn["helper"]["samples"].as_u64().unwrap()).sum::<u64>();
        let by_helper = report(&path, &["--by", "helper", "--prog", &id.to_string()]);
        // Sums all parts of the report by helper: if the helper jumps to another function at its end, that function has its own part.
        let parts = list(&by_helper["events"][0]["rows"][0], "parts");
        let parts = parts.filter(|part| !part["name"].as_str().unwrap().contains("interrupt"));
        let of_parts: u64 = parts.map(|part| part["helper"]["samples"].as_u64().unwrap()).sum();
        let calls: Vec<_> = insns.iter().filter(|insn| insn["text"].as_str().unwrap().starts_with("call ")).collect();
        // Allows a small difference: the cost of a fault is at the instruction that causes it, which may be no call; the report by helper shows this
        // cost as a part.
        let difference = samples(&calls).abs_diff(of_parts);
        assert!(difference * 500 <= of_parts, "{} at calls, {by_helper}", samples(&calls));
        // The call sites together have nearly all of the helper's time, and each call site has some.
        let all = annotation["programs"][0]["helper"]["samples"].as_u64().unwrap();
        match reads.iter().all(|read| read["helper"]["samples"].as_u64().unwrap() > 0) && samples(&reads) * 10 > all * 9
        {
            true => Ok(()),
            false => Err(format!("{} of {all} samples at {reads:?}", samples(&reads))),
        }
    });
}

/// A child process; dropping it interrupts it and waits for it, even if the test fails.
struct Interrupted(Child);

impl Drop for Interrupted {
    fn drop(&mut self) {
        support::signal(&self.0, "-INT");
        drop(self.0.wait());
    }
}

/// Ids of the programs for which a process has descriptors.
fn held_programs(pid: u32) -> BTreeSet<u32> {
    let files = std::fs::read_dir(format!("/proc/{pid}/fdinfo")).unwrap();
    let infos = files.filter_map(|file| std::fs::read_to_string(file.unwrap().path()).ok());
    infos.filter_map(|info| info.lines().find_map(|line| line.strip_prefix("prog_id:")?.trim().parse().ok())).collect()
}

/// Loads programs with other tools (`TOOLS`: command, minimum number of its programs). Their code equals that of bpftool and the kernel, and the
/// samples of the instructions add up to the report.
#[test]
fn programs_of_other_tools_are_listed() {
    const NAME: &str = "programs_of_other_tools_are_listed";
    const SCRIPT: &str = "tracepoint:raw_syscalls:sys_enter { @calls[comm] = count(); @last[pid] = nsecs; } \
                          software:cpu-clock:1000000 { @stacks[kstack(4)] = count(); printf(\"\"); }";
    const TOOLS: [(&[&str], usize); 12] = [
        (&["/usr/bin/bpftrace", "-q", "-e", SCRIPT], 2),
        (&["/usr/sbin/biolatency"], 2),
        (&["/usr/sbin/execsnoop"], 2),
        (&["/usr/sbin/exitsnoop"], 1),
        (&["/usr/sbin/hardirqs"], 2),
        (&["/usr/sbin/killsnoop"], 6),
        (&["/usr/sbin/opensnoop"], 2),
        (&["/usr/sbin/runqlat"], 3),
        (&["/usr/sbin/softirqs"], 2),
        (&["/usr/sbin/syscount"], 2),
        (&["/usr/sbin/tcpstates"], 1),
        (&["/usr/sbin/wakeuptime"], 2),
    ];
    if !root(NAME) {
        return;
    }
    if let Some((tool, _)) = TOOLS.iter().find(|(tool, _)| !Path::new(tool[0]).exists()) {
        return skip(NAME, &format!("{} is not installed", tool[0]));
    }
    alone();
    let scratch = Scratch::new();
    let path = scratch.path("perf.data");
    let started = TOOLS.map(|(tool, programs)| {
        // Mounts tracefs, which is not mounted everywhere: the tool looks up tracepoints there.
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", "mount -t tracefs tracefs /sys/kernel/tracing; exec \"$0\" \"$@\""]);
        let child = command.args(tool).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        (tool[0], Interrupted(child), programs)
    });
    let ids: Vec<u32> = started
        .iter()
        .flat_map(|(tool, child, programs)| {
            wait_for(tool, || Some(held_programs(child.0.id())).filter(|held| held.len() >= *programs))
        })
        .collect();
    let child = recording(&path, "6", &["-F", "4000", "-e", "cpu-clock"]);
    calls_for(Duration::from_millis(5_500));
    end(child);
    let (whole, mut hit) = (report(&path, &["--all"]), 0);
    for id in ids {
        let annotation = annotate(&path, &id.to_string());
        let program = &annotation["programs"][0];
        assert!(assert_same_instructions(program, id) > 5);
        let machine = machine(program);
        assert!(!machine.is_empty() && machine.iter().all(|insn| insn["text"] != "(bad)"), "{machine:?}");
        let bytes = machine.iter().flat_map(|insn| insn["bytes"].as_str().unwrap().split(' '));
        let code: Vec<u8> = bytes.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect();
        assert_eq!(code, machine_code(id).unwrap(), "machine code of {id}");
        // `None` if the event cannot see the program, for example in interrupt handlers.
        let samples: Option<u64> = machine.iter().map(|insn| insn["self"]["samples"].as_u64()).sum();
        let row = list(&whole["events"][0], "rows").find(|row| row["id"] == id).unwrap();
        assert_eq!(row["self"]["samples"].as_u64(), samples, "{row}");
        hit += u64::from(samples > Some(0));
    }
    assert!(hit >= 2, "only {hit} programs have samples");
}
