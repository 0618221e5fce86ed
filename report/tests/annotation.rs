//! Code listings of programs: costs add up to those of the report by program, and each instruction has the text that objdump prints for the same
//! bytes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::print_stdout, reason = "a test")]

mod support;

use bprec_report::model::{
    AnnotatedFunction, AnnotatedProgram, Annotation, CodeCost, Count, Known, MachineInsn, Reason, Share,
};
use bprec_report::{AnnotateOptions, Document, Input, Options, ProgFilter, Session};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;
use support::fixtures;

/// Returns the committed recordings, and perf's recordings in guests if they are beside the checkout.
fn recordings() -> Vec<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/recordings");
    let mut found = fixtures();
    for folder in std::fs::read_dir(beside).into_iter().flatten().flatten() {
        let files = std::fs::read_dir(folder.path()).into_iter().flatten().flatten().map(|file| file.path());
        found.extend(files.filter(|path| path.extension().is_some_and(|extension| extension == "data")));
    }
    found.sort();
    found
}

fn options(program: ProgFilter, event: Option<&str>) -> AnnotateOptions {
    let events = event.map(str::to_owned).into_iter().collect();
    let query = Options { programs: vec![program], events, ..Options::default() };
    AnnotateOptions { query, ..AnnotateOptions::default() }
}

fn everything() -> ProgFilter {
    "*".parse().unwrap()
}

/// A limit on lines leaves out lines, and changes nothing else about a program.
#[test]
fn a_limit_on_lines_does_not_make_unknown_costs_known() {
    let mut blind_programs = 0;
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let session = Session::open(&input).unwrap();
        let annotate = |limit| {
            let mut options = options(everything(), None);
            options.query.limit = limit;
            session.annotate(&options).ok()
        };
        let (Some(all), Some(limited)) = (annotate(None), annotate(Some(1))) else { continue };
        assert_eq!(all.programs.len(), limited.programs.len());
        for (all, limited) in all.programs.iter().zip(&limited.programs) {
            blind_programs += usize::from(all.blind.is_some());
            assert_eq!((&all.blind, all.own, all.charged), (&limited.blind, limited.own, limited.charged), "{path:?}");
        }
    }
    assert!(blind_programs > 1, "{blind_programs}");
}

/// Counts of the columns self and helper.
type Sums = (Count, Count);

fn add(sum: &mut Sums, other: Sums) {
    let plus = |a: Count, b: Count| Count { samples: a.samples + b.samples, weight: a.weight + b.weight };
    *sum = (plus(sum.0, other.0), plus(sum.1, other.1));
}

fn sums(cost: &CodeCost) -> Sums {
    let helper = cost.helper.map(|it| it.count).unwrap_or_default();
    let own = cost.own.map(|own| own.count).unwrap_or_default();
    assert_eq!(cost.samples.unwrap_or_default(), own.samples + helper.samples);
    (own, helper)
}

fn of_machine<'m>(insns: impl IntoIterator<Item = &'m MachineInsn>) -> Sums {
    let mut sum = Sums::default();
    insns.into_iter().for_each(|insn| add(&mut sum, sums(&insn.cost)));
    sum
}

/// Sums over a function's lines, including omitted lines and samples without a line. Asserts that the instructions of each line add up to the line.
fn of_function(function: &AnnotatedFunction) -> Sums {
    let mut sum = sums(&function.elsewhere);
    let left_out = function.lines.iter().filter_map(|line| line.left_out).chain(function.left_out);
    left_out.for_each(|left_out| add(&mut sum, sums(&left_out.cost)));
    for line in &function.lines {
        add(&mut sum, sums(&line.cost));
        let insns: Vec<&MachineInsn> = line.bpf.iter().flat_map(|insn| &insn.machine).chain(&line.machine).collect();
        if !insns.is_empty() {
            assert_eq!(of_machine(insns), sums(&line.cost), "{}: {:?}", function.name, line.source);
        }
        for insn in &line.bpf {
            if let (Some(own), false) = (insn.own, insn.machine.is_empty()) {
                let of_insns = of_machine(&insn.machine);
                let helper = insn.helper.map(|it| it.count).unwrap_or_default();
                assert_eq!((own.count, helper), of_insns, "{}: {}", function.name, insn.text);
            }
        }
    }
    sum
}

/// Counts of each program in the report by program: self, helper, entry, and the shared part of entry. Keys are (id, load time, name).
fn ledger(session: &Session<'_>, event: &str) -> BTreeMap<(Option<u32>, Option<u64>, String), [Count; 4]> {
    let options = Options { events: vec![event.to_owned()], all: true, ..Options::default() };
    let report = session.by_prog(&options).unwrap();
    let count = |share: &Known<Share>| share.value().map(|share| share.count).unwrap_or_default();
    let rows = report.events[0].rows.iter().filter_map(|row| {
        let columns = row.line.as_ref()?.columns.as_ref()?;
        let program = &report.programs[row.program];
        let key = (program.id, program.load_time_ns, program.name.clone());
        let counts = [&columns.own, &columns.helper, &columns.entry, &columns.entry_shared];
        Some((key, counts.map(count)))
    });
    rows.filter(|(_, counts)| *counts != [Count::default(); 4]).collect()
}

/// Names of the sampling events.
fn sampling_events(session: &Session<'_>) -> Vec<String> {
    let report = session.by_prog(&Options::default()).unwrap();
    report.events.iter().map(|event| event.name.clone()).collect()
}

/// For every program of every recording, functions, lines and instructions add up exactly to the report by program.
#[test]
fn costs_add_up_to_the_ledger() {
    let (mut programs, mut samples, mut shared) = (0, 0, 0);
    for path in recordings() {
        let at = path.display();
        let input = Input::open(&path).unwrap();
        let Ok(session) = Session::open(&input) else { continue };
        for event in sampling_events(&session) {
            let annotation = session.annotate(&options(everything(), Some(&event))).unwrap();
            let mut expected = ledger(&session, &event);
            for program in &annotation.programs {
                let mut sum = Sums::default();
                for function in &program.functions {
                    assert_eq!(of_function(function), sums(&function.cost), "{at} {event} {}", function.name);
                    add(&mut sum, sums(&function.cost));
                }
                let (own, helper) = (program.own.unwrap_or_default(), program.helper.unwrap_or_default());
                assert_eq!(sum, (own, helper), "{at} {event} {}", program.name);
                let key = (program.id, program.load_time_ns, program.name.clone());
                let charged = program.charged.unwrap_or_default();
                if charged != Count::default() {
                    let counts = expected.remove(&key);
                    let entry = [program.entry, program.entry_shared].map(Option::unwrap_or_default);
                    assert_eq!(counts, Some([own, helper, entry[0], entry[1]]), "{at} {event} {key:?}");
                    assert_eq!(charged, own + helper + entry[0], "{at} {event} {key:?}");
                    shared += entry[1].samples;
                }
                programs += 1;
                samples += own.samples;
            }
            assert_eq!(expected, BTreeMap::new(), "{at} {event}: not listed");
        }
    }
    assert!(programs > 100 && samples > 5_000 && shared > 0, "{programs} programs, {samples} samples, {shared} shared");
}

/// Code that the event cannot see has no cost in any form: it is absent, not zero.
#[test]
fn what_the_event_does_not_see_has_no_cost() {
    let path = recordings().into_iter().find(|path| path.ends_with("linux-7.2/perf-event.data")).unwrap();
    let input = Input::open(&path).unwrap();
    let session = Session::open(&input).unwrap();
    let annotation = session.annotate(&options(everything(), Some("cpu-clock"))).unwrap();
    let program = annotation.programs.iter().find(|program| program.name == "count_perf_samples").unwrap();
    assert_eq!(program.blind, Some(Reason::InSamplingInterrupt));
    assert_eq!((program.charged, program.own, program.helper, program.entry), (None, None, None, None));
    let function = &program.functions[0];
    assert!(function.lines.len() > 3);
    for cost in function.lines.iter().map(|line| &line.cost).chain([&function.cost, &function.elsewhere]) {
        assert_eq!(*cost, CodeCost::default());
    }
    let machine =
        function.lines.iter().flat_map(|line| line.bpf.iter().flat_map(|insn| &insn.machine).chain(&line.machine));
    assert!(machine.map(|insn| insn.cost).all(|cost| cost.samples.is_none()));
    // A program that the event can see, but that ran too briefly for a sample, has the count zero.
    let seen = annotation.programs.iter().find(|program| program.name == "bprec_refs").unwrap();
    assert_eq!((seen.blind.as_ref(), seen.own), (None, Some(Count::default())));
    let mut text = Vec::new();
    annotation.write_table(&mut text, 200).unwrap();
    let text = String::from_utf8(text).unwrap();
    let said = "# n/a samples of cpu-clock: n/a % of all samples\n# the cost of the program's code is unknown: a perf_event program runs in the sampling interrupt\n\
                # self n/a samples, helper n/a, entry n/a";
    assert!(text.contains(said), "{text}");
}

/// The lines of all programs together add up to the report by program. Lines that a limit omits are in `others`.
#[test]
fn lines_add_up_to_the_ledger() {
    let mut compared = 0;
    for path in recordings() {
        let at = path.display();
        let input = Input::open(&path).unwrap();
        let Ok(session) = Session::open(&input) else { continue };
        for limit in [None, Some(2)] {
            let report = session.lines(&Options { limit, ..Options::default() }).unwrap();
            for event in &report.events {
                let mut sum = (event.others.own, event.others.helper.unwrap_or_default());
                event.rows.iter().for_each(|row| add(&mut sum, (row.own, row.helper.unwrap_or_default())));
                assert_eq!(sum, (event.own, event.helper.unwrap_or_default()), "{at} {}", event.name);
                let mut expected = Sums::default();
                ledger(&session, &event.name)
                    .values()
                    .for_each(|[own, helper, ..]| add(&mut expected, (*own, *helper)));
                assert_eq!(sum, expected, "{at} {}", event.name);
                compared += expected.0.samples;
                assert!(event.rows.is_sorted_by_key(|row| {
                    std::cmp::Reverse(row.own.weight + row.helper.map_or(0, |helper| helper.weight))
                }));
            }
        }
    }
    assert!(compared > 5_000, "{compared}");
}

/// A limit keeps hot code, and does not change the sums.
#[test]
fn a_limit_leaves_sums_as_they_are() {
    for path in fixtures() {
        let input = Input::open(&path).unwrap();
        let session = Session::open(&input).unwrap();
        let whole = session.annotate(&options(everything(), None)).unwrap();
        let mut limited = options(everything(), None);
        limited.query.limit = Some(1);
        let hottest = session.annotate(&limited).unwrap();
        limited = AnnotateOptions { percent_limit: Some(30.0), ..options(everything(), None) };
        let hot = session.annotate(&limited).unwrap();
        for (nth, program) in whole.programs.iter().enumerate() {
            let lines = |program: &AnnotatedProgram| program.functions.iter().map(|it| it.lines.len()).sum::<usize>();
            assert!(lines(&hottest.programs[nth]) <= 3, "one line and its neighbours");
            for other in [&hottest.programs[nth], &hot.programs[nth]] {
                for (function, of_whole) in other.functions.iter().zip(&program.functions) {
                    assert_eq!(of_function(function), of_function(of_whole));
                    let left_out = function.lines.iter().filter_map(|line| line.left_out).chain(function.left_out);
                    let left_out: u64 = left_out.map(|left_out| left_out.lines).sum();
                    assert_eq!(left_out as usize + function.lines.len(), of_whole.lines.len());
                }
            }
            let is_hot = |cost: &CodeCost| cost.percent.is_some_and(|percent| percent >= 30.0);
            let count = |program: &AnnotatedProgram| {
                let lines = program.functions.iter().flat_map(|function| &function.lines);
                lines.filter(|line| is_hot(&line.cost)).count()
            };
            assert_eq!(count(program), count(&hot.programs[nth]));
        }
    }
}

/// Code of every program. A filter for a task that does not exist leaves no samples; `annotate` then lists all programs.
fn code(session: &Session<'_>) -> Annotation {
    let mut options = options(everything(), None);
    options.query.comms = vec!["no task has this name".to_owned()];
    session.annotate(&options).unwrap()
}

fn machine(function: &AnnotatedFunction) -> Vec<&MachineInsn> {
    let lines = function.lines.iter();
    let insns = lines.flat_map(|line| line.bpf.iter().flat_map(|insn| &insn.machine).chain(&line.machine));
    insns.collect()
}

/// Returns address, bytes and text of each instruction, as objdump prints them.
fn objdump(tool: &str, arguments: &[&str], code: &[u8]) -> Vec<(u64, String, String)> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), code).unwrap();
    let fixed = ["-D", "-b", "binary", "--insn-width=16", "-z"];
    let output = Command::new(tool).args(fixed).args(arguments).arg(file.path()).output().unwrap();
    assert!(output.status.success(), "{tool}: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    let line = |line: &str| {
        let (addr, rest) = line.trim_start().split_once(":\t")?;
        let (bytes, text) = rest.split_once('\t').unwrap_or((rest, ""));
        let addr = u64::from_str_radix(addr, 16).ok()?;
        Some((addr, bytes.trim().to_owned(), text.to_owned()))
    };
    text.lines().filter_map(line).collect()
}

/// Returns the text with the target of a branch as a distance from the instruction at `addr`; other texts are unchanged.
fn relative(text: &str, addr: u64) -> String {
    let branches = ["j", "call", "b", "cb", "tb", "ldr"];
    let is_branch = branches.iter().any(|start| text.starts_with(start));
    match text.rsplit_once([' ', ',']).map(|(before, last)| (before, last.parse::<u64>())) {
        Some((before, Ok(target))) if is_branch => format!("{before} {}", target.wrapping_sub(addr).cast_signed()),
        _ => text.to_owned(),
    }
}

/// Normalizes the text: all numbers in one form, and no insignificant blanks.
fn plain(text: &str) -> String {
    let text = text.split("//").next().unwrap_or_default().split('<').next().unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ").replace(", ", ",").replace('#', "");
    let mut out = String::new();
    let mut rest = text.as_str();
    while let Some(c) = rest.chars().next() {
        let is_number = c.is_ascii_digit() && !out.ends_with(|last: char| last.is_ascii_alphanumeric() || last == '_');
        let len = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(rest.len()).max(c.len_utf8());
        let word = &rest[..if is_number { len } else { c.len_utf8() }];
        match word.strip_prefix("0x").map(|digits| u64::from_str_radix(digits, 16)) {
            Some(Ok(number)) => out.push_str(&number.to_string()),
            _ => out.push_str(word),
        }
        rest = &rest[word.len()..];
    }
    out
}

fn plain_x86(text: &str) -> String {
    let text = plain(&text.to_lowercase());
    let sizes = ["qword ptr ", "dword ptr ", "word ptr ", "byte ptr ", "cs:", "ds:"];
    let text = sizes.iter().fold(text, |text, size| text.replace(size, ""));
    let text = text.replace("*1", "").replace("+0]", "]").replace("movabs ", "mov ").replace(" near ", " ");
    // `imul rax,rax,8` and `imul rax,8` are the same instruction. The result has the second form.
    let operands = text.strip_prefix("imul ").map(|operands| operands.split(',').collect::<Vec<_>>());
    match operands.as_deref() {
        Some([to, from, by]) if to == from => format!("imul {to},{by}"),
        _ => text,
    }
}

fn plain_arm64(text: &str) -> String {
    let text = plain(&text.to_lowercase());
    let same = [("b.cs ", "b.hs "), ("b.cc ", "b.lo "), ("s3_0_c13_c0_4", "tpidr_el1"), ("s3_4_c13_c0_2", "tpidr_el2")];
    same.iter().fold(text, |text, (theirs, ours)| text.replace(theirs, ours))
}

/// Asserts that each instruction has the address, length and text of objdump.
fn compare(arch: &str, tool: &str, arguments: &[&str], plain: fn(&str) -> String) {
    if Command::new(tool).arg("--version").output().is_err() {
        println!("SKIP {arch}: {tool} is not installed");
        return;
    }
    let (mut functions, mut insns) = (0, 0);
    // Many recordings contain the same code at the same address. Such code is compared once.
    let mut seen = BTreeSet::new();
    for path in recordings() {
        let input = Input::open(&path).unwrap();
        let Ok(session) = Session::open(&input) else { continue };
        let annotation = code(&session);
        let of_all = annotation.programs.iter().flat_map(|program| &program.functions);
        let mut bytes: Vec<u8> = Vec::new();
        let mut ours: Vec<(&str, &MachineInsn)> = Vec::new();
        for function in of_all.filter(|_| annotation.arch.as_deref() == Some(arch)) {
            let insns = machine(function);
            let code: Vec<u8> = insns
                .iter()
                .flat_map(|insn| insn.bytes.split(' '))
                .map(|byte| u8::from_str_radix(byte, 16).unwrap())
                .collect();
            if function.no_machine.is_some() || !seen.insert((function.addr, code.clone())) {
                continue;
            }
            assert_eq!(code.len(), function.len_bytes.unwrap() as usize, "{} {}", path.display(), function.name);
            bytes.extend(code);
            ours.extend(insns.into_iter().map(|insn| (function.name.as_str(), insn)));
            functions += 1;
        }
        if ours.is_empty() {
            continue;
        }
        let theirs = objdump(tool, arguments, &bytes);
        assert_eq!(ours.len(), theirs.len(), "{}", path.display());
        let mut expected_at = 0;
        for ((name, insn), (addr, bytes, text)) in ours.iter().zip(&theirs) {
            let at = format!("{} {name}+{:#x}: {} | {text}", path.display(), insn.offset_bytes, insn.text);
            let bytes: String = match arch {
                // objdump prints a word as a number: the bytes are in reverse order.
                "aarch64" => {
                    bytes.as_bytes().rchunks(2).map(|b| String::from_utf8_lossy(b).into_owned() + " ").collect()
                }
                _ => bytes.clone(),
            };
            assert_eq!((expected_at, insn.bytes.as_str()), (*addr, bytes.trim()), "{at}");
            expected_at += insn.bytes.split(' ').count() as u64;
            assert_eq!(relative(&plain(&insn.text), insn.addr), relative(&plain(text), *addr), "{at}");
        }
        insns += ours.len();
    }
    println!("{arch}: {functions} functions, {insns} instructions");
    assert!(functions > 20 && insns > 1_000, "{arch}: {functions} functions, {insns} instructions");
}

#[test]
fn x86_64_code_is_what_objdump_says() {
    compare("x86_64", "objdump", &["-m", "i386:x86-64", "-M", "intel"], plain_x86);
}

#[test]
fn arm64_code_is_what_objdump_says() {
    compare("aarch64", "aarch64-linux-gnu-objdump", &["-m", "aarch64"], plain_arm64);
}
