//! `bprec report` shows one view. It refuses a second view, and options without effect on the view, by name.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::{Path, PathBuf};

use crate::support::{bprec, succeed};

/// All views, each with its name in error messages.
const VIEWS: [&str; 11] = [
    "--counters",
    "--over-time",
    "--lines",
    "--payers",
    "--bill",
    "--without=*",
    "--advise",
    "--tree",
    "--maps",
    "--header-only",
    "--by-prog",
];

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recordings/linux-7.2/ratio.data")
}

/// Returns the error of a report that is refused because of these options.
fn refused(options: &[&str]) -> String {
    let output = bprec().arg("report").args(options).arg("-i").arg(fixture()).output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{options:?}: {error}");
    error
}

/// Name of an option without its value.
fn name(option: &str) -> &str {
    option.split('=').next().unwrap()
}

#[test]
fn two_views_are_refused_by_name() {
    let views = if cfg!(feature = "tui") { [&VIEWS[..], &["--tui"]].concat() } else { VIEWS.to_vec() };
    for (at, first) in views.iter().enumerate() {
        for second in &views[at + 1..] {
            // `--payers` chooses the payers of `--without`.
            if [*first, *second] == ["--payers", "--without=*"] {
                continue;
            }
            for pair in [[*first, *second], [*second, *first]] {
                let error = refused(&pair);
                assert!(pair.iter().all(|view| error.contains(&format!("'{}", name(view)))), "{pair:?}: {error}");
            }
        }
    }
}

#[test]
fn options_without_effect_on_a_view_are_refused_by_name() {
    for view in VIEWS.iter().filter(|view| **view != "--by-prog") {
        for option in ["--by=func", "--columns=samples", "--no-children", "--legend"] {
            let error = refused(&[view, option]);
            let names = [view, option].map(|it| format!("'{}", name(it)));
            assert!(names.iter().all(|name| error.contains(name)), "{error}");
        }
    }
    for view in ["--over-time", "--lines", "--advise", "--maps", "--header-only", "--json", "--csv"] {
        assert!(refused(&[view, "--notes"]).contains("'--notes'"), "{view}");
    }
    for options in [
        ["--header", "--csv"],
        ["--header", "--header-only"],
        ["--json", "--wide"],
        ["--csv", "--legend"],
        ["--header", "--markdown"],
        ["--markdown", "--json"],
        ["--markdown", "--wide"],
        ["--json", "--no-children"],
        ["--maps", "--all"],
        ["--advise", "--limit=3"],
        ["--lines", "--sort=runs"],
        ["--header-only", "--json"],
    ] {
        let error = refused(&options);
        let names = options.map(name);
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
    // With text output, `--header` prints the header above the table.
    let both = succeed(bprec().args(["report", "--header", "--color", "never", "-i"]).arg(fixture())).stdout;
    assert!(String::from_utf8(both).unwrap().starts_with(&text));
}

/// GitHub's Markdown: a line of dashes follows the column names, and each line has as many cells as this line.
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
        &["report", "--bill", "-i", recording],
        &["report", "--without=*", "-i", recording],
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
    for options in
        [&["annotate", "account_syscall_enter", "-i", recording][..], &["report", "--advise", "-i", recording]]
    {
        let text = view(options);
        assert!(text.contains("\n**") && !text.contains("\\u{a}"), "{options:?}: {text}");
    }
    let columns = view(&["report", "--columns=program,samples", "-i", recording]);
    assert!(columns.contains("\n| PROGRAM | SAMPLES |\n| --- | ---: |\n"), "{columns}");
}

/// For a recording without programs, the error is one line with the command of perf that shows its samples, and the exit code means no match.
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

/// Options that choose or shape the output of a view, each with a value that changes the program table of the fixture.
const OPTIONS: [&str; 18] = [
    "--prog=account_syscall_enter",
    "--sort=name",
    "--percent-limit=30",
    "--time=10%-40%",
    "--since=-1s",
    "--until=-1s",
    "--cpu=0",
    "--comms=nosuch",
    "--limit=1",
    "--all",
    "--columns=samples",
    "--wide",
    "--legend",
    "--notes",
    "--no-children",
    "--by=func",
    "--header",
    "--color=always",
];

/// Output formats other than text.
const FORMS: [&str; 3] = ["--json", "--csv", "--markdown"];

/// Options that change no number in a report of this fixture: they name the input, or choose how bprec reads and prints. `--event`, `--redact`,
/// `--no-demangle` and `--per` have separate tests, because the fixture has one event, no names that identify a machine, and no mangled names.
const OTHERS: [&str; 12] = [
    "--input",
    "--threads",
    "--no-sandbox",
    "--no-pager",
    "--quiet",
    "--verbose",
    "--event",
    "--redact",
    "--no-demangle",
    "--per",
    "--help",
    "--version",
];

/// Pairs without effect on this fixture, which has no map contents and only one file, and at most five notes below these tables.
const UNDECIDED: [(&str, &[&str]); 7] = [
    ("--maps", &["--limit", "--since", "--until"]),
    ("--header-only", &["--since", "--until", "--color"]),
    ("--counters", &["--notes"]),
    ("--payers", &["--notes"]),
    ("--bill", &["--notes"]),
    ("--without=*", &["--notes"]),
    ("--tree", &["--notes"]),
];

#[test]
fn each_option_of_report_has_its_place_in_this_test() {
    let mut command = bprec::command();
    command.build();
    let report = command.find_subcommand("report").unwrap();
    let known = [&VIEWS[..], &OPTIONS, &FORMS, &OTHERS, &["--tui"]].concat();
    let missing: Vec<_> = report
        .get_arguments()
        .filter_map(|argument| argument.get_long())
        .filter(|long| known.iter().all(|option| option.split('=').next() != Some(&format!("--{long}"))))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn each_option_changes_each_view_in_each_form_or_is_refused() {
    let everything = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recordings/linux-7.2/everything.data");
    let shown = |options: &[&str]| {
        let mut command = bprec();
        command.arg("report").args(options).arg("-i").arg(&everything);
        // At these widths, options about columns and widths have an effect: wide enough for TOTAL%, but too narrow for the rows over time.
        command.env("COLUMNS", if options[0] == "--over-time" { "70" } else { "100" });
        let output = command.output().unwrap();
        (output.status.code(), output.stdout, String::from_utf8(output.stderr).unwrap())
    };
    let is_refused = |code: Option<i32>, error: &str| code == Some(2) && error.contains("cannot be used with");
    let mut idle = Vec::new();
    for view in VIEWS {
        let undecided = UNDECIDED.iter().find(|(of, _)| *of == view).map_or(&[][..], |(_, options)| options);
        for form in [None].into_iter().chain(FORMS.map(Some)) {
            let base: Vec<&str> = [view].into_iter().chain(form).collect();
            let (code, plain, error) = shown(&base);
            if form.is_some() && is_refused(code, &error) {
                continue;
            }
            assert_eq!(code, Some(0), "{base:?}: {error}");
            // Machine-readable formats have no colors.
            let options = OPTIONS.iter().filter(|option| form.is_none() || **option != "--color=always");
            for option in options {
                let (code, changed, error) = shown(&[&base[..], &[option]].concat());
                let is_undecided = undecided.iter().any(|it| option.starts_with(it));
                if !is_refused(code, &error) && !is_undecided && changed == plain {
                    idle.push(format!("{} {option}", base.join(" ")));
                }
            }
        }
    }
    assert!(idle.is_empty(), "options that bprec neither refuses nor uses:\n{}", idle.join("\n"));
}

/// People read headings in words; documents for machines have codes, which docs/advice.md lists beside the headings.
#[test]
fn advice_has_headings_in_words() {
    let shown = |form: &[&str]| {
        let output = succeed(bprec().args(["report", "--advise"]).args(form).arg("-i").arg(fixture()));
        String::from_utf8(output.stdout).unwrap()
    };
    let docs = include_str!("../docs/advice.md");
    let document: serde_json::Value = serde_json::from_str(&shown(&["--json"])).unwrap();
    let text = shown(&[]);
    let findings = document["findings"].as_array().unwrap();
    assert!(!findings.is_empty());
    for finding in findings {
        let code = finding["code"].as_str().unwrap();
        let row = docs.lines().find(|line| line.starts_with(&format!("| `{code}` | "))).unwrap();
        let heading = row.split(" | ").nth(1).unwrap();
        assert!(
            text.contains(&format!(". {heading}, by ")) && !text.contains(&format!(". {code}, by ")),
            "{code}: {text}"
        );
    }
}

/// Advice is only about the requested programs.
#[test]
fn advice_is_about_the_requested_programs() {
    let findings = |options: &[&str]| {
        let output = succeed(bprec().args(["report", "--advise", "--json"]).args(options).arg("-i").arg(fixture()));
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["findings"].to_string()
    };
    let (all, one) = (findings(&[]), findings(&["--prog", "account_syscall_enter"]));
    assert!(all.contains("account_syscall_enter (16)") && all.contains("account_syscall_exit (17)"), "{all}");
    assert!(one.contains("account_syscall_enter (16)") && !one.contains("account_syscall_exit"), "{one}");
    // Program 17 is a copy of program 13, but is not requested.
    assert!(!findings(&["--prog", "13"]).contains("same_program_twice"));
    assert_ne!(findings(&["--cpu", "0"]), all);
}
