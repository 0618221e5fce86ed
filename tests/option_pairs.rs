//! Options of `annotate`, `script` and `export`: each has an effect on each form of the output, or is refused.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::File;
use std::path::{Path, PathBuf};

use crate::support::{Scratch, bprec, succeed};

/// Options that change no output of the fixture. Some name the input, or choose how bprec reads and prints. The other options need several events or
/// files, names that identify a machine, or mangled names, and the fixture has none of these.
const OTHERS: [&str; 15] = [
    "input",
    "output",
    "to",
    "threads",
    "no-sandbox",
    "no-pager",
    "quiet",
    "verbose",
    "event",
    "redact",
    "since",
    "until",
    "no-demangle",
    "help",
    "version",
];

/// Options of `script` that print records of kinds that the fixture does not have, or print deferred call chains.
const RARE_IN_SCRIPT: [&str; 5] =
    ["show-switch-events", "show-namespace-events", "show-lost-events", "show-throttle-events", "no-merge-callchains"];

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recordings/linux-7.2/everything.data")
}

/// Checks that each of `options` changes the output of each form, or is refused, and that each option of the command is in a list.
fn check(command: &str, words: &[&str], forms: &[&[&str]], options: &[&str], rare: &[&str]) {
    let mut known = bprec::command();
    known.build();
    let given = |option: &&str| option.trim_start_matches("--").split('=').next().unwrap().to_owned();
    let listed: Vec<String> = options.iter().chain(rare).chain(&OTHERS).map(given).collect();
    let forms_listed: Vec<String> = forms.iter().copied().flatten().map(given).collect();
    let arguments = known.find_subcommand(command).unwrap().get_arguments();
    let missing: Vec<_> = arguments
        .filter_map(|argument| argument.get_long())
        .filter(|long| !listed.iter().chain(&forms_listed).any(|it| it == long))
        .collect();
    assert!(missing.is_empty(), "{command}: {missing:?}");

    let shown = |form: &[&str], option: Option<&str>| {
        let output =
            bprec().arg(command).args(words).args(form).args(option).arg("-i").arg(fixture()).output().unwrap();
        (output.status.code(), output.stdout, String::from_utf8(output.stderr).unwrap())
    };
    let mut idle = Vec::new();
    for form in forms {
        let (code, plain, error) = shown(form, None);
        assert_eq!(code, Some(0), "{command} {form:?}: {error}");
        for option in options.iter().filter(|option| !form.contains(option)) {
            let (code, changed, _) = shown(form, Some(*option));
            if code != Some(2) && changed == plain {
                idle.push(format!("{command} {} {option}", form.join(" ")));
            }
        }
    }
    assert!(idle.is_empty(), "options that bprec neither refuses nor uses:\n{}", idle.join("\n"));
}

#[test]
fn each_option_of_annotate_changes_each_form_or_is_refused() {
    let options = [
        "--time=10%-40%",
        "--cpu=0",
        "--comms=nosuch",
        "--limit=1",
        "--percent-limit=30",
        "--prog=account_syscall_exit",
    ];
    let forms: [&[&str]; 4] = [&[], &["--json"], &["--csv"], &["--markdown"]];
    check("annotate", &["account_syscall_enter"], &forms, &options, &["color"]);
}

#[test]
fn each_option_of_script_changes_each_form_or_is_refused() {
    let options = [
        "--fields=comm,period",
        "--show-task-events",
        "--show-mmap-events",
        "--show-cgroup-events",
        "--show-namespace-events",
        "--show-bpf-events",
        "--hide-call-graph",
        "--max-stack=1",
        "--ns",
        "--pid=1",
        "--tid=1",
        "--prog=account_syscall_enter",
        "--time=10%-40%",
        "--cpu=0",
        "--comms=nosuch",
    ];
    let forms: [&[&str]; 5] =
        [&[], &["--fields=ip"], &["--fields=comm,time"], &["--hide-call-graph"], &["--max-stack=1"]];
    check("script", &[], &forms, &options, &[&RARE_IN_SCRIPT[..], &["color"]].concat());
}

#[test]
fn each_option_of_export_changes_each_format_or_is_refused() {
    let options = ["--prog=account_syscall_enter", "--time=10%-40%", "--cpu=0", "--comms=nosuch"];
    let forms: [&[&str]; 6] =
        [&["--to=html"], &["--to=folded"], &["--to=pprof"], &["--to=speedscope"], &["--to=firefox"], &["--to=otlp"]];
    check("export", &[], &forms, &options, &["color"]);
}

#[test]
fn programs_are_named_alike_in_every_command() {
    let (fixture, scratch) = (fixture(), Scratch::new());
    let path = fixture.to_str().unwrap();
    let text = |options: &[&str]| String::from_utf8(succeed(bprec().args(options)).stdout).unwrap();
    // The samples that `script` selects must be those that `rewrite` keeps for the same programs; `rewrite` also keeps the states of the recorder.
    let rewritten = scratch.path("rewritten");
    succeed(bprec().args(["rewrite", "--prog=account_syscall_enter", "-i", path, "-o"]).arg(&rewritten));
    let fields = ["script", "-F", "comm,tid,time,event,ip,sym"];
    let samples = |text: &str| {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.contains("bprec:state"));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let selected = text(&[&fields[..], &["--prog", "account_syscall_enter", "-i", path]].concat());
    let judged = samples(&text(&[&fields[..], &["-i", rewritten.to_str().unwrap()]].concat()));
    let all = samples(&text(&[&fields[..], &["-i", path]].concat()));
    assert_eq!(samples(&selected), judged);
    assert!(!judged.is_empty() && judged.len() < all.len() && !selected.contains("bprec:state"));
    // bprec copies a stream before it reads it. A selection of the stream gives the same output.
    let mut piped = bprec();
    piped
        .args([&fields[..], &["--prog", "account_syscall_enter", "-i", "-"]].concat())
        .stdin(File::open(path).unwrap());
    assert_eq!(String::from_utf8(piped.output().unwrap().stdout).unwrap(), selected);

    let position = text(&["annotate", "account_syscall_enter:mix*", "-i", path]);
    assert_eq!(text(&["annotate", "--prog", "account_syscall_enter:mix*", path]), position);
    let two = text(&["annotate", "--prog", "account_syscall_enter,account_syscall_exit", path]);
    assert!(["account_syscall_enter", "account_syscall_exit"].iter().all(|name| two.contains(name)), "{two}");
    let twice = bprec().args(["annotate", "--prog=account_syscall_enter", path, "-i", path]).output().unwrap();
    assert!(String::from_utf8(twice.stderr).unwrap().contains("cannot be used with '--input"));

    // Programs with the same code have the same tag.
    let json: serde_json::Value = serde_json::from_str(&text(&["report", "--json", "--all", "-i", path])).unwrap();
    let programs = json["programs"].as_array().unwrap();
    let tag = &programs.iter().find(|it| it["name"] == "account_syscall_enter").unwrap()["tag"];
    let ids: Vec<_> = programs.iter().filter(|it| it["tag"] == *tag).map(|it| it["id"].to_string()).collect();
    let by_id = text(&["report", "--prog", &ids.join(","), "-i", path]);
    let tag = tag.as_str().unwrap();
    for filter in [tag.to_owned(), format!("tag:{tag}")] {
        assert_eq!(text(&["report", "--prog", &filter, "-i", path]), by_id, "{filter}");
    }
}

/// Every command reports a directory, an empty file and a text in the same words.
#[test]
fn inputs_that_are_no_recordings_have_one_sentence() {
    let scratch = Scratch::new();
    std::fs::write(scratch.path("empty"), b"").unwrap();
    std::fs::write(scratch.path("text"), b"seconds elapsed: 3\n").unwrap();
    std::fs::create_dir(scratch.path("directory")).unwrap();
    for name in ["empty", "text", "directory"] {
        let lines = [
            format!("report {name}"),
            format!("report --header-only {name}"),
            format!("report --redact {name}"),
            format!("diff {name} {name}"),
            format!("annotate x -i {name}"),
            format!("script {name}"),
            format!("script --prog x {name}"),
            format!("export --to folded {name}"),
            format!("rewrite -o out {name}"),
            format!("recover {name}"),
            format!("recover --in-place {name}"),
        ];
        let said = lines.map(|line| {
            let output = bprec().args(line.split(' ')).current_dir(scratch.path("")).output().unwrap();
            assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{line}");
            String::from_utf8(output.stderr).unwrap()
        });
        assert!(said[0].starts_with(&format!("bprec: {name}: not a recording by bprec or perf: ")), "{}", said[0]);
        said.iter().for_each(|other| assert_eq!(*other, said[0]));
    }
}

/// An existing output is renamed by the recorder's rules: a recording that was cut off does not replace a complete one.
#[cfg(all(feature = "record", target_os = "linux"))]
#[test]
fn a_cut_off_output_replaces_no_complete_one() {
    let recordings = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recordings/linux-7.2");
    let scratch = Scratch::new();
    let bytes = |name: &str| std::fs::read(scratch.path(name)).ok();
    let write = |from: &str, to: &str| assert!(std::fs::copy(recordings.join(from), scratch.path(to)).unwrap() > 0);
    let input = fixture();
    for command in [&["rewrite", "-i"][..], &["recover"]] {
        write("cut-off.data", "out");
        write("ratio.data", "out.old");
        let [cut_off, complete] = ["out", "out.old"].map(bytes);
        succeed(bprec().args(command).arg(&input).args(["-o", "out"]).current_dir(scratch.path("")));
        assert_eq!((bytes("out.old"), bytes("out.cut-off")), (complete, cut_off.clone()), "{command:?}");
        let written = bytes("out");
        assert!(written.is_some() && written != cut_off);
        // The next renamed output is complete, so it replaces `out.old`.
        succeed(bprec().args(command).arg(&input).args(["-o", "out"]).current_dir(scratch.path("")));
        assert_eq!((bytes("out.old"), bytes("out.cut-off")), (written, cut_off));
        let mut left: Vec<_> =
            std::fs::read_dir(scratch.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["out", "out.cut-off", "out.old"]);
        std::fs::remove_file(scratch.path("out.cut-off")).unwrap();
    }
}
