//! `bprec report` shows one view. Two of them, and options that a view has no use for, are refused by name.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};

use crate::support::{bprec, succeed};

/// All views, each with the name that an error has for it.
const VIEWS: [&str; 9] =
    ["--counters", "--over-time", "--lines", "--payers", "--advise", "--tree", "--maps", "--header-only", "--by-prog"];

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recordings/linux-7.2/ratio.data")
}

/// The error of a report with these options, which is refused.
fn refused(options: &[&str]) -> String {
    let output = bprec().arg("report").args(options).arg("-i").arg(fixture()).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{options:?}: {error}");
    error
}

#[test]
fn two_views_are_refused_by_name() {
    let views = if cfg!(feature = "tui") { [&VIEWS[..], &["--tui"]].concat() } else { VIEWS.to_vec() };
    for (at, first) in views.iter().enumerate() {
        for second in &views[at + 1..] {
            for pair in [[*first, *second], [*second, *first]] {
                let error = refused(&pair);
                assert!(pair.iter().all(|view| error.contains(&format!("'{view}"))), "{pair:?}: {error}");
            }
        }
    }
}

#[test]
fn options_without_effect_on_a_view_are_refused_by_name() {
    for view in VIEWS.iter().filter(|view| **view != "--by-prog") {
        for option in ["--by=func", "--columns=samples", "--no-children", "--legend", "--notes"] {
            let error = refused(&[view, option]);
            let name = option.split('=').next().unwrap();
            assert!(error.contains(&format!("'{view}")) && error.contains(&format!("'{name}")), "{error}");
        }
    }
    for options in [
        ["--header", "--csv"],
        ["--header", "--header-only"],
        ["--json", "--wide"],
        ["--csv", "--legend"],
        ["--header", "--markdown"],
        ["--markdown", "--json"],
        ["--markdown", "--wide"],
        ["--maps", "--markdown"],
        ["--json", "--no-children"],
        ["--maps", "--all"],
        ["--advise", "--limit=3"],
        ["--lines", "--sort=runs"],
        ["--header-only", "--json"],
    ] {
        let error = refused(&options);
        let names = options.map(|option| option.split('=').next().unwrap());
        assert!(names.iter().all(|name| error.contains(&format!("'{name}"))), "{options:?}: {error}");
    }
}

#[test]
fn json_with_a_header_is_one_document() {
    let mut header = None;
    for view in VIEWS.iter().filter(|view| **view != "--header-only") {
        let run = |options: &[&str]| {
            let output = succeed(bprec().args(["report", view, "--json"]).args(options).arg("-i").arg(fixture()));
            serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
        };
        let (plain, mut with) = (run(&[]), run(&["--header"]));
        let members = with.as_object_mut().unwrap();
        let facts = members.remove("header").unwrap();
        assert_eq!(plain, with, "{view}");
        assert_eq!(header.get_or_insert_with(|| facts.clone()), &facts, "{view}");
    }
    let facts = header.unwrap();
    let text =
        String::from_utf8(succeed(bprec().args(["report", "--header-only", "-i"]).arg(fixture())).stdout).unwrap();
    let line =
        |name: &str| text.lines().find_map(|line| line.strip_prefix(&format!("# {name} : "))).unwrap().to_owned();
    for name in ["hostname", "os release", "nrcpus online", "cmdline"] {
        assert_eq!(facts[name], line(name), "{name}");
    }
    let events = text.lines().filter(|line| line.starts_with("# event : ")).count();
    assert_eq!(facts["event"].as_str().unwrap().lines().count(), events);
    // Text is as before: the header, and the table below.
    let both = succeed(bprec().args(["report", "--header", "--color", "never", "-i"]).arg(fixture())).stdout;
    assert!(String::from_utf8(both).unwrap().starts_with(&text));
}

/// GitHub's Markdown: a line of dashes below the names of the columns, and each line has as many cells as that.
#[test]
fn markdown_has_whole_tables() {
    let view = |options: &[&str]| {
        let output = succeed(bprec().args(options).arg("--markdown"));
        String::from_utf8(output.stdout).unwrap()
    };
    let fixture = fixture();
    let recording = fixture.to_str().unwrap();
    for options in [
        &["report", "-i", recording][..],
        &["report", "--columns=program,samples", "-i", recording],
        &["report", "--payers", "-i", recording],
        &["report", "--tree", "-i", recording],
        &["diff", recording, recording],
    ] {
        let text = view(options);
        let cells = |line: &str| line.replace("\\|", "").matches('|').count();
        let lines: Vec<&str> = text.lines().collect();
        let rules: Vec<usize> = (0..lines.len()).filter(|at| lines[*at].starts_with("| ---")).collect();
        assert!(!rules.is_empty(), "{options:?}: {text}");
        for rule in rules {
            assert!(lines[rule - 2].is_empty(), "{text}");
            let table = lines[rule - 1..].iter().take_while(|line| line.starts_with('|'));
            assert!(table.clone().count() > 2 && table.clone().all(|line| cells(line) == cells(lines[rule])), "{text}");
        }
    }
    let columns = view(&["report", "--columns=program,samples", "-i", recording]);
    assert!(columns.contains("\n| PROGRAM | SAMPLES |\n| --- | ---: |\n"), "{columns}");
}

/// A recording without programs gets an error that names the owner of its samples, and the exit code of no match.
#[test]
fn a_recording_without_programs_is_said() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/corpus/sleep.data");
    let output = bprec().args(["report", "-i"]).arg(&path).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("has no BPF programs") && said.contains(&format!("perf report -i {}", path.display())),
        "{said}"
    );
}

/// Options that change what is shown, each with a value that changes the table of the fixture.
const OPTIONS: [&str; 17] = [
    "--prog=account_syscall_enter",
    "--sort=name",
    "--percent-limit=30",
    "--time=10%-40%",
    "--cpu=0",
    "--comms=nosuch",
    "--limit=1",
    "--all",
    "--columns=samples",
    "--wide",
    "--legend",
    "--notes",
    "--no-children",
    "--json",
    "--csv",
    "--markdown",
    "--header",
];

/// Pairs that this fixture cannot tell: it has nothing to advise on, and no contents of maps.
const UNTOLD: [(&str, &[&str]); 2] =
    [("--advise", &["--prog", "--time", "--cpu", "--comms"]), ("--maps", &["--limit"])];

#[test]
fn each_option_changes_each_view_or_is_refused() {
    let everything = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recordings/linux-7.2/everything.data");
    let shown = |options: &[&str]| {
        let mut command = bprec();
        command.arg("report").args(options).arg("-i").arg(&everything).env("COLUMNS", "70");
        let output = command.output().unwrap();
        (output.status.code(), output.stdout, String::from_utf8(output.stderr).unwrap())
    };
    let mut idle = Vec::new();
    for view in VIEWS {
        let (code, plain, error) = shown(&[view]);
        assert_eq!(code, Some(0), "{view}: {error}");
        for option in OPTIONS {
            let (code, changed, error) = shown(&[view, option]);
            let is_refused = code == Some(2) && error.contains("cannot be used with");
            let is_untold =
                UNTOLD.iter().any(|(of, options)| *of == view && options.iter().any(|it| option.starts_with(it)));
            if !is_refused && !is_untold && changed == plain {
                idle.push(format!("{view} {option}"));
            }
        }
    }
    assert!(idle.is_empty(), "neither refused nor of any effect:\n{}", idle.join("\n"));
}
