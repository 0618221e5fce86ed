//! `bprec diff`: compared with `bprec report` of the same recordings; its errors; and recordings of a load before and after a change.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::support::{Running, Scratch, SetAtEnd, bprec, measured, report, root};
use bprec_fixtures::{Fixture, Loaded};
use serde_json::Value;

fn recording(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recordings").join(name)
}

fn diff<S: AsRef<OsStr>>(arguments: &[S]) -> Output {
    bprec().arg("diff").args(arguments).output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn document(base: &Path, new: &Path, more: &[&str]) -> Value {
    let output = bprec().args(["diff", "--json"]).args(more).args([base, new]).output().unwrap();
    assert!(output.status.code().is_some_and(|code| code < 2), "{}", said(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn metric<'v>(of: &'v Value, metric: &str) -> &'v Value {
    of.as_array().unwrap().iter().find(|it| it["metric"] == metric).unwrap_or_else(|| panic!("no {metric} in {of}"))
}

fn notes(document: &Value) -> Vec<&str> {
    document["notes"].as_array().unwrap().iter().map(|note| note["code"].as_str().unwrap()).collect()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is not a number"))
}

/// Costs and runs equal those of the report, added up by name; a recording does not differ from itself.
#[test]
fn a_recording_is_the_same_as_itself() {
    for name in ["linux-7.2/ratio.data", "linux-6.1/ratio.data"] {
        let path = recording(name);
        let document = document(&path, &path, &["--all", "--fail-if", "prog:* cost +0%"]);
        let reported = report(&path, &["--all"]);
        let event = &reported["events"][0];
        let machine_s = number(&event["machine"]) / 1e9;
        let rows = event["rows"].as_array().unwrap();
        let mut compared = 0;
        for program in document["programs"].as_array().unwrap() {
            assert_eq!(program["status"], "same", "{program}");
            let is_it = |row: &&Value| {
                let known = &reported["programs"][row["program"].as_u64().unwrap() as usize];
                known["name"] == program["name"] && known["type"] == program["type"] && known["counts_others"] == false
            };
            let costs: Option<Vec<f64>> = rows.iter().filter(is_it).map(|row| row["weight"].as_f64()).collect();
            for metric in program["metrics"].as_array().unwrap() {
                let change = &metric["change"];
                assert!(change.is_null() || change["difference"] == 0.0 && change["significant"] != true, "{metric}");
            }
            let cost = metric(&program["metrics"], "cost");
            if let (Some(costs), Some(estimate)) = (costs, cost["base"]["estimate"]["value"].as_f64()) {
                let expected = costs.iter().sum::<f64>() / machine_s;
                assert!((estimate - expected).abs() <= 1e-9 * expected, "{}: {estimate}, {expected}", program["name"]);
                compared += 1;
            }
        }
        assert!(compared >= 2, "{name}: {compared}");
        let total = metric(&document["total"], "cost");
        let expected = number(&event["total"]["weight"]) / machine_s;
        assert!((number(&total["new"]["estimate"]["value"]) - expected).abs() <= 1e-9 * expected);
        for judgment in document["gate"].as_array().unwrap() {
            assert_ne!(judgment["verdict"]["code"], "fail", "{judgment}");
        }
    }
}

/// Returns the cost of a program with this name and type per second and CPU, from the report.
fn reported_cost(path: &Path, name: &str, prog_type: &str) -> f64 {
    let reported = report(path, &["--all"]);
    let event = &reported["events"][0];
    let rows = event["rows"].as_array().unwrap().iter();
    let is_it = |row: &&Value| {
        let known = &reported["programs"][row["program"].as_u64().unwrap_or(u64::MAX) as usize];
        known["name"] == name && known["type"] == prog_type && known["counts_others"] == false
    };
    let weight: f64 = rows.filter(is_it).filter_map(|row| row["weight"].as_f64()).sum();
    weight / (number(&event["machine"]) / 1e9)
}

/// The cost of a side with several recordings is the mean of the costs in their reports.
#[test]
fn sides_of_several_recordings_are_their_means() {
    let [ratio, everything] = ["linux-7.2/ratio.data", "linux-7.2/everything.data"].map(recording);
    let cost = |of: &Path| reported_cost(of, "account_syscall_enter", "tracepoint");
    for (base, new) in
        [(vec![&ratio, &everything], vec![&everything]), (vec![&everything], vec![&everything, &ratio, &ratio])]
    {
        let output = bprec().args(["diff", "--json"]).args(&base).arg("--").args(&new).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", said(&output));
        let document: Value = serde_json::from_slice(&output.stdout).unwrap();
        let program = document["programs"].as_array().unwrap().iter();
        let mut program = program.filter(|it| it["name"] == "account_syscall_enter" && it["type"] == "tracepoint");
        let cost_of_sides = metric(&program.next().unwrap()["metrics"], "cost");
        for (side, recordings) in [("base", &base), ("new", &new)] {
            let estimate = &cost_of_sides[side]["estimate"];
            let expected = recordings.iter().map(|of| cost(of)).sum::<f64>() / recordings.len() as f64;
            assert_eq!(estimate["recordings"], recordings.len(), "{estimate}");
            assert!((number(&estimate["value"]) - expected).abs() <= 1e-9 * expected, "{side}: {estimate} {expected}");
        }
        assert!(notes(&document).contains(&"few_recordings") || base.len() + new.len() > 5, "{:?}", notes(&document));
    }
}

/// The table shows attach points without the type, which is in the column before them; the JSON has whole attach points.
#[test]
fn attach_points_do_not_repeat_the_type() {
    let path = recording("linux-7.2/ratio.data");
    let document = document(&path, &path, &[]);
    let output = bprec().arg("diff").args([&path, &path]).env("COLUMNS", "400").output().unwrap();
    let table = String::from_utf8(output.stdout).unwrap();
    let programs = document["programs"].as_array().unwrap();
    let hooks = programs.iter().filter_map(|program| {
        let hook = program["attached"][0].as_str()?;
        hook.strip_prefix(program["type"].as_str()?)?.strip_prefix(':')
    });
    let hooks: Vec<&str> = hooks.collect();
    assert!(hooks.contains(&"raw_syscalls:sys_enter"), "{hooks:?}");
    for hook in hooks {
        assert!(
            table.contains(&format!("tracepoint  {hook}")) && !table.contains(&format!("tracepoint:{hook}")),
            "{table}"
        );
    }
}

/// The recordings are from two kernels, before and after the change of the tags' hash; only programs loaded on both are compared.
#[test]
fn what_cannot_be_compared_is_said() {
    let (old, new) = (recording("linux-6.1/ratio.data"), recording("linux-7.2/ratio.data"));
    let compared = document(&old, &new, &[]);
    let notes = notes(&compared);
    assert!(notes.contains(&"tags_not_compared") && notes.contains(&"sides_differ"), "{notes:?}");
    for program in compared["programs"].as_array().unwrap() {
        assert_ne!(program["status"], "new_version", "{program}");
        assert_eq!(program["is_tag_comparable"], false);
    }
    let output = bprec().args(["diff"]).args([&old, &new]).output().unwrap();
    let table = String::from_utf8_lossy(&output.stdout);
    assert!(table.contains("differ in kernel: base 6.1"), "{table}");

    // A directory that is no recording cannot be compared.
    let output = bprec().args(["diff", "--csv"]).args([&recording("perf-6.12-linux-7.2"), &new]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "a directory without a recording: {}", said(&output));
}

#[test]
fn what_is_asked_wrongly_is_an_error() {
    let path = recording("linux-7.2/ratio.data");
    let path = path.to_str().unwrap();
    for (arguments, expected) in [
        (&[path][..], "two recordings"),
        (&[path, path, path], "BASE1 BASE2 -- NEW1 NEW2"),
        (&["-", "--", "-"], "only one recording"),
        (&[path, "no such file"], "no such file"),
        (&[path, path, "--confidence", "0.999"], "99.9%"),
        (&[path, path, "-e", "nothing"], "not every recording has this event"),
        (&[path, path, "--strict"], "--fail-if"),
        (&[path, path, "--fail-if", "prog:x time/run 5%"], "expected a bound"),
    ] {
        let output = diff(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", said(&output));
        assert!(said(&output).contains(expected), "{arguments:?}: {}", said(&output));
    }
    let said = said(&diff(&[path, path, "--fail-if", "prog:x time/run 5%"]));
    let lines: Vec<&str> = said.lines().collect();
    let text = lines.iter().position(|line| *line == "  prog:x time/run 5%").expect("the condition");
    assert_eq!(lines[text + 1].find('^'), lines[text].find("5%"), "{said}");
}

/// Numbers of samples are compared exactly, without a margin. A condition that no program matches is an error: it
/// could never fail.
#[test]
fn conditions_decide_the_exit_code() {
    let path = recording("linux-7.2/ratio.data");
    let path = path.to_str().unwrap();
    let samples = report(Path::new(path), &[])["events"][0]["samples"]["samples"].as_u64().unwrap();
    let code = |conditions: &[&str]| {
        let output = diff(&[&[path, path], conditions].concat());
        (output.status.code().unwrap(), said(&output))
    };
    let fewer = format!("total samples < {samples}");
    let more = format!("total samples < {}", samples + 1);
    assert_eq!(code(&["--fail-if", &fewer, "--strict"]).0, 0);
    let (failed, said) = code(&["--fail-if", &more, "--fail-if", &fewer]);
    let expected = format!("bprec: failed: {more}: {samples} measured (detectable: values below {})\n", samples + 1);
    assert!(failed == 1 && said == expected, "{failed} {said}");
    for (condition, similar) in [
        ("prog:nobody time/run +5%", ""),
        ("prog:acount_syscall_exit time/run +5%", "similar names: account_syscall_exit"),
        ("type:nosuch time/run +5%", ""),
        ("owner:nobody cost > 1", ""),
    ] {
        let (refused, said) = code(&["--fail-if", condition]);
        assert!(refused == 2 && said.contains("no program of either side matches"), "{refused} {said}");
        assert!(said.contains(similar), "{said}");
    }
    assert_eq!(code(&["--prog", "nobody"]).0, 1);
}

/// In two recordings of 2 s, the confidence interval of the change contains the bound. The condition is undecided: the exit code is 0, and 1 with
/// --strict.
#[test]
fn what_is_not_shown_is_undecided() {
    let paths = ["linux-6.1/ratio.data", "linux-7.2/ratio.data"].map(recording);
    let condition = "prog:account_syscall_* time/run +20%";
    let gate = |more: &[&str]| {
        let output = bprec().args(["diff", "--fail-if", condition]).args(more).args(&paths).output().unwrap();
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned(), said(&output))
    };
    let (code, table, errors) = gate(&[]);
    let marked: Vec<&str> = table.lines().filter(|line| line.contains(condition)).collect();
    assert!(marked.len() == 2 && marked.iter().all(|line| line.starts_with("# ? ")), "{table}");
    assert!(code == Some(0) && errors.lines().count() == 2, "{errors}");
    assert!(errors.lines().all(|line| line.contains("undecided") && line.contains(" % measured, ")), "{errors}");
    assert_eq!(gate(&["--strict"]).0, Some(1));
    let (_, document, _) = gate(&["--json"]);
    let document: Value = serde_json::from_str(&document).unwrap();
    for judgment in document["gate"].as_array().unwrap() {
        assert_eq!(judgment["verdict"]["code"], "undecided", "{judgment}");
        assert!(number(&judgment["percent"]) < 20.0 && judgment["is_relative"] == true, "{judgment}");
    }
    assert!(table.replace("\n#   ", " ").contains("give several recordings"), "{table}");
    // 13.6 % more in 536 samples, which can be chance.
    let total = |more: &[&str]| {
        bprec().args(["diff", "--fail-if", "total cost +50%"]).args(more).args(&paths).output().unwrap()
    };
    assert!(said(&total(&[])).contains(" % measured, -100…+∞ % possible"), "{}", said(&total(&[])));
    assert_eq!((total(&[]).status.code(), total(&["--strict"]).status.code()), (Some(0), Some(1)));
}

/// Number of a program that only one test runs. Programs with the same name, type and attachment would be added to it.
const OWN_NUMBER: u32 = 910_000;

/// Records a load that does the same work in each run, for 40 intervals.
fn record(path: &Path, loops: u32) {
    let loaded = Fixture::churn(OWN_NUMBER).unwrap().open().unwrap().loops(loops).unwrap().load().unwrap();
    let done = AtomicBool::new(false);
    let work = |loaded: &Loaded| {
        while !done.load(Ordering::Relaxed) {
            loaded.run_raw_tracepoint(&format!("churn_{OWN_NUMBER}")).unwrap();
            std::thread::sleep(Duration::from_micros(100));
        }
    };
    let recording = Running::record(path, &["-q", "-F", "199", "-e", "cpu-clock", "-I", "150", "--budget", "100"]);
    std::thread::scope(|scope| {
        let _end = SetAtEnd(&done);
        let recorder = scope.spawn(|| {
            std::thread::sleep(Duration::from_secs(6));
            recording.end();
            done.store(true, Ordering::Relaxed);
        });
        work(&loaded);
        recorder.join().unwrap();
    });
}

/// Two recordings of the same load show no change. A load with 30 % more work shows an increase, and the exit code shows it, too.
#[test]
fn a_load_that_changed_is_told_from_one_that_did_not() {
    if !root("a_load_that_changed_is_told_from_one_that_did_not") {
        return;
    }
    let scratch = Scratch::new();
    let [base, same, more] = ["base", "same", "more"].map(|name| scratch.path(&format!("{name}.data")));
    let name = format!("churn_{OWN_NUMBER}");
    measured(|| {
        record(&base, 200);
        record(&same, 200);
        record(&more, 260);
        let change = |new: &Path| {
            let document = document(&base, new, &["--prog", &name]);
            metric(&document["programs"][0]["metrics"], "time/run")["change"].clone()
        };
        let code = |new: &Path, condition: &str| {
            let condition = format!("prog:{name} {condition}");
            diff(&[base.as_os_str(), new.as_os_str(), "--fail-if".as_ref(), condition.as_ref()]).status.code().unwrap()
        };
        let (unchanged, changed) = (change(&same), change(&more));
        // On a busy machine, recordings of one load differ by one or two per cent, which a single recording cannot show.
        let is_same = unchanged["from_percent"].as_f64().is_some_and(|from| from < 5.0)
            && unchanged["to_percent"].as_f64().is_some_and(|to| to > -5.0);
        if !is_same || code(&same, "time/run +10%") != 0 {
            return Err(format!("the same load: {unchanged}"));
        }
        // 30 % more (260 loops instead of 200), reduced by the fixed cost of a run.
        let is_right = changed["percent"].as_f64().is_some_and(|percent| (20.0..40.0).contains(&percent));
        if changed["significant"] != true || !is_right || code(&more, "time/run +10%") != 1 {
            return Err(format!("30 % more work: {changed}"));
        }
        let short = |base: &Path, new: &Path| {
            let output = bprec().args(["diff", "--explain-short", "--prog", &name]).args([base, new]).output().unwrap();
            let lines: Vec<String> = String::from_utf8_lossy(&output.stdout).lines().map(str::to_owned).collect();
            <[String; 3]>::try_from(lines).unwrap_or_else(|lines| panic!("three lines: {lines:?}"))
        };
        let (dearer, cheaper) = (short(&base, &more), short(&more, &base));
        let is_told = dearer[0].starts_with("all BPF: ")
            && dearer[1].starts_with(&format!("more expensive: {name} "))
            && dearer[1].contains(" ns/run (+")
            && cheaper[2].starts_with(&format!("cheaper: {name} "));
        if !is_told {
            return Err(format!("{dearer:?} {cheaper:?}"));
        }
        // With the recordings exchanged, the change is negative.
        if code(&more, "time/run -10%") != 0 || code(&more, "time/run < 1us") != 0 || code(&more, "time/run > 1us") != 1
        {
            return Err("a condition on a decrease, or an absolute condition, has the wrong result".to_owned());
        }
        Ok(())
    });
}

/// Runs the script of docs/ci.md with a load of the fixtures: it keeps the first recording, succeeds for the same load, and fails for more work.
#[test]
fn the_script_for_builds_fails_on_more_work() {
    if !root("the_script_for_builds_fails_on_more_work") {
        return;
    }
    let program = Path::new(env!("CARGO_BIN_EXE_bprec"));
    let load = program.with_file_name("bprec-load");
    assert!(load.exists(), "{} is not built: run the workspace's tests, not one package's", load.display());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/examples/bpf-regression.sh");
    let scratch = Scratch::new();
    let kept = scratch.path("bpf.data");
    let condition = "prog:churn_920000 time/run +10%";
    let run = |loops: &str| {
        let mut command = Command::new("sh");
        command.arg(&script).arg(&kept).args([condition, "total lost > 50%", "--"]).arg(&load);
        command.args(["steady", "--number", "920000", "--pause-us", "100", "--seconds", "6", "--loops", loops]);
        let output = command.env("BPREC", program).env("INTERVAL", "150").output().unwrap();
        (output.status.code().unwrap(), format!("{}{}", String::from_utf8_lossy(&output.stdout), said(&output)))
    };
    measured(|| {
        drop(std::fs::remove_file(&kept));
        let (code, text) = run("200");
        assert!(code == 0 && kept.exists(), "{text}");
        for (loops, expected) in [("200", 0), ("270", 1)] {
            let (code, text) = run(loops);
            assert!(code < 2, "{text}");
            if code != expected || expected == 1 && !text.contains(&format!("bprec: failed: {condition}")) {
                return Err(format!("loops of {loops}: {code} {text}"));
            }
        }
        Ok(())
    });
    assert_eq!(Command::new("sh").arg(&script).arg(&kept).arg("prog:x time/run +1%").status().unwrap().code(), Some(2));
}

/// Lines of a YAML block without their indentation.
fn block_of(yaml: &str, key: &str) -> String {
    let (_, lines) = yaml.split_once(&format!("{key}: |\n")).expect("the block");
    let depth = lines.len() - lines.trim_start().len();
    let block = lines.lines().take_while(|line| line.len() > depth && line[..depth].trim().is_empty());
    block.map(|line| format!("{}\n", &line[depth..])).collect()
}

/// Value of a line in YAML.
fn value_of<'y>(yaml: &'y str, key: &str) -> &'y str {
    yaml.lines().find_map(|line| line.trim().strip_prefix(key)?.strip_prefix(": ")).expect("the line")
}

/// Runs the action as a CI runner does, with the inputs of the workflow in docs/ci.md. The benchmark is a load of the fixtures.
#[test]
fn the_action_fails_on_more_work() {
    const RUNNER: u32 = 65_534;
    if !root("the_action_fails_on_more_work") {
        return;
    }
    let program = Path::new(env!("CARGO_BIN_EXE_bprec"));
    let repository = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(repository.join(path)).unwrap();
    let (action, workflow) = (read("action.yml"), read("docs/examples/bpf-regression.yml"));
    let scratch = Scratch::new();
    let write = |path: &str, text: &str| {
        let path = scratch.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    };
    // Like the real sudo, with a PATH of its own, for a user who is not root.
    write("bin/sudo", &format!("#!/bin/sh\nshift\nexport PATH=/usr/bin:/bin SUDO_UID={RUNNER}\nexec \"$@\"\n"));
    let load = program.with_file_name("bprec-load");
    let benchmark = |directory: &str, loops: u32| {
        let arguments = format!("steady --number 930000 --pause-us 100 --seconds 5 --loops {loops}");
        write(&format!("{directory}/benchmark"), &format!("#!/bin/sh\nexec {} {arguments}\n", load.display()));
    };
    let conditions = block_of(&workflow, "conditions").replace("my_*", "churn_930000");
    assert_eq!(conditions.lines().count(), 3);
    let run = || {
        let (bin, programs) = (scratch.path("bin"), program.parent().unwrap());
        let path = format!("{}:{}:{}", bin.display(), programs.display(), std::env::var("PATH").unwrap());
        let mut shell = Command::new("bash");
        shell.args(["-e", "-c", value_of(&action, "run")]).current_dir(scratch.path("change"));
        shell.env("PATH", path).env("GITHUB_ACTION_PATH", repository).env("INTERVAL", "125");
        shell.env("GITHUB_STEP_SUMMARY", scratch.path("summary.md"));
        let inputs = [("BASE", value_of(&workflow, "base")), ("NEW", value_of(&workflow, "new"))];
        let inputs = inputs.into_iter().chain([("CONDITIONS", &*conditions), ("STRICT", "false")]);
        shell.envs(inputs);
        shell.env("BPREC", "bprec").output().unwrap()
    };
    let failed = "bprec: failed: prog:churn_930000 time/run +2%";
    measured(|| {
        benchmark("base", 200);
        for (loops, is_failed) in [(200, false), (280, true)] {
            drop(std::fs::remove_file(scratch.path("summary.md")));
            benchmark("change", loops);
            let output = run();
            let said = said(&output);
            // The condition on the cost can fail if other processes load the machine more than before.
            if said.contains(failed) != is_failed || is_failed && output.status.code() != Some(1) {
                return Err(format!("loops of {loops}: {:?} {said}", output.status.code()));
            }
            assert!(output.status.code().is_some_and(|code| code < 2), "{said}");
            for name in ["base.data", "new.data"] {
                let owner = std::os::unix::fs::MetadataExt::uid(&scratch.path("change").join(name).metadata().unwrap());
                assert_eq!(owner, RUNNER, "{name}");
            }
            let summary = std::fs::read_to_string(scratch.path("summary.md")).unwrap();
            assert!(summary.starts_with("### BPF programs\n\n- all BPF: "), "{summary}");
            assert!(summary.contains("| churn\\_930000 |"), "{summary}");
            if is_failed && !summary.contains("- more expensive: churn_930000 ") {
                return Err(summary);
            }
        }
        Ok(())
    });
}

/// Options of `bprec diff`, each with a value that changes the comparison of the fixtures.
const OPTIONS: [&str; 7] = [
    "--fail-if=total cost +100000%",
    "--confidence=50",
    "--prog=account_syscall_enter",
    "--limit=1",
    "--all",
    "--sort=name",
    "--color=always",
];

/// Output formats other than tables.
const FORMS: [&str; 4] = ["--json", "--csv", "--markdown", "--explain-short"];

/// Options that change no number: `--notes` shows notes beyond the fifth, `--strict` changes the exit code, `--event` and `--redact` have separate
/// tests, and the other options choose how bprec reads and prints.
const OTHERS: [&str; 11] = [
    "--notes",
    "--strict",
    "--event",
    "--redact",
    "--threads",
    "--no-sandbox",
    "--no-pager",
    "--quiet",
    "--verbose",
    "--help",
    "--version",
];

/// Pairs of options without effect on each other: CSV has only rows, data formats have no colors, and the short form names only programs with a
/// significant difference, which these recordings do not have.
const UNDECIDED: [(&str, &str); 6] = [
    ("--csv", "--fail-if"),
    ("--csv", "--color"),
    ("--json", "--color"),
    ("--markdown", "--color"),
    ("--explain-short", "--color"),
    ("--explain-short", "--prog"),
];

#[test]
fn each_option_changes_each_form_or_is_refused() {
    let mut command = bprec::command();
    command.build();
    let known = [&OPTIONS[..], &FORMS, &OTHERS].concat();
    let arguments = command.find_subcommand("diff").unwrap().get_arguments();
    let missing: Vec<_> = arguments
        .filter_map(|argument| argument.get_long())
        .filter(|long| known.iter().all(|option| option.split('=').next() != Some(&format!("--{long}"))))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");

    let (base, new) = (recording("linux-6.1/everything.data"), recording("linux-7.2/everything.data"));
    let shown = |options: &[&str]| {
        let output = bprec().arg("diff").args(options).args([&base, &new]).output().unwrap();
        (output.status.code(), output.stdout.clone(), said(&output))
    };
    let mut idle = Vec::new();
    for form in [None].into_iter().chain(FORMS.map(Some)) {
        let plain: Vec<&str> = form.into_iter().collect();
        let (code, unchanged, error) = shown(&plain);
        assert_eq!(code, Some(0), "{plain:?}: {error}");
        for option in OPTIONS {
            let (code, changed, error) = shown(&[&plain[..], &[option]].concat());
            let is_refused = code == Some(2) && error.contains("cannot be used with");
            let is_undecided = UNDECIDED.iter().any(|(of, without)| form == Some(*of) && option.starts_with(without));
            if !is_refused && !is_undecided && changed == unchanged {
                idle.push(format!("{plain:?} {option}"));
            }
        }
    }
    assert!(idle.is_empty(), "options that bprec neither refuses nor uses:\n{}", idle.join("\n"));
}
