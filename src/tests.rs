//! Options of commands that measure: parsing, and pairs of options.
#![allow(clippy::unwrap_used, reason = "a test")]

use super::*;

/// Parses a command line; returns the command, or clap's error as text.
fn parsed(line: &str) -> Result<Command, String> {
    parse(line.split(' ').map(OsString::from).collect()).map(|cli| cli.command).map_err(|error| error.to_string())
}

fn of_record(line: &str) -> Result<record::Args, String> {
    match parsed(line)? {
        Command::Record(args) => Ok(*args),
        _ => Err("another subcommand".to_owned()),
    }
}

#[test]
fn a_level_of_compression_may_follow_at_once() {
    let level = |line: &str| of_record(line).map(|args| args.compression_level);
    for line in
        ["bprec record -z3", "bprec record -z=3", "bprec record -a -z1 -z3 -- gzip -z9", "bprec record -z3 gzip -z9"]
    {
        assert_eq!(level(line), Ok(Some(3)), "{line}");
    }
    assert_eq!(level("bprec record -z22"), Ok(Some(22)));
    assert_eq!(level("bprec record -z sleep 3"), Ok(Some(1)), "the next word is the command");
    assert_eq!(level("bprec record gzip -z9"), Ok(None), "an option of the command");
    assert!(level("bprec record -z23").unwrap_err().contains("expected a whole number from 1 to 22"));
    assert!(level("bprec record --bad gzip -z9").unwrap_err().contains("'--bad'"));
    assert!(level("bprec record -z3x").is_err() && level("bprec report -z3").is_err());
}

#[test]
fn optional_values_need_no_equals_sign() {
    let settings = |line: &str| {
        let options = of_record(line).and_then(|args| record::options(args).map_err(|error| error.to_string()));
        options.map(|options| format!("{:?}", bprec_record::Options { argv: Vec::new(), ..options }))
    };
    for (with, without) in [
        ("--switch-output=10m -o f -- true", "--switch-output 10m -o f -- true"),
        ("--switch-output=signal -o f true -z 3", "--switch-output signal -o f true -z 3"),
        ("-z=3 -o f true", "-z 3 -o f true"),
        ("-z=3 --switch-output=4M -o f true 7", "-z 3 --switch-output 4M -o f true 7"),
        ("--compression-level=3 -o f -- true", "--compression-level 3 -o f -- true"),
        ("--bpf-sampler=+addr,-comm -o f -- true", "--bpf-sampler +addr,-comm -o f -- true"),
    ] {
        let [with, without] = [with, without].map(|line| settings(&format!("bprec record {line}")));
        assert_eq!(with.as_ref(), without.as_ref());
        assert!(with.is_ok(), "{with:?}");
    }
    let command = |line: &str| of_record(line).map(|args| args.measure.command.unwrap_or_default());
    assert_eq!(command("bprec record -z -- 3"), Ok(vec!["3".into()]));
    assert_eq!(command("bprec record --switch-output make 10m"), Ok(vec!["make".into(), "10m".into()]));
    assert_eq!(command("bprec record gzip -z 9"), Ok(vec!["gzip".into(), "-z".into(), "9".into()]));
    assert!(command("bprec record -z 99 true").unwrap_err().contains("from 1 to 22"));
    let ambiguous = command("bprec record --bpf-sampler ip link").unwrap_err();
    assert!(ambiguous.contains("write --bpf-sampler=ip, or --bpf-sampler -- ip"), "{ambiguous}");

    let exact = |line: &str| match parsed(line) {
        Ok(Command::Top(args)) => top::counted(&args),
        _ => panic!("{line}"),
    };
    assert_eq!(
        exact("bprec top --exact foo,tag:8b74812dd297655f:f -b"),
        exact("bprec top --exact=foo,tag:8b74812dd297655f:f")
    );
    assert_eq!(exact("bprec top --exact foo"), Some("foo".to_owned()));
    assert_eq!((exact("bprec top --exact -b"), exact("bprec top")), (Some(String::new()), None));
    for line in ["report --redact +progs file", "script --redact +progs file", "diff --redact +progs file other"] {
        let with = parsed(&format!("bprec {}", line.replace(" +", "=+")));
        assert!(with.is_ok() && parsed(&format!("bprec {line}")).is_ok(), "{line}");
    }
}

/// Options of `bprec record` that are tried in pairs. An option that needs another option is in one line with it.
const OF_RECORD: [&str; 35] = [
    "--all-cpus",
    "--cpu=0",
    "--pid=1",
    "--tid=1",
    "--bpf-counters",
    "--bpf-counters --bpf-attr-map=/map",
    "--bpf-counters --counter-cgroup=/",
    "--duration=3",
    "--event=page-faults",
    "--freq=5",
    "--count=7",
    "-g",
    "--call-graph=dwarf,64",
    "--user-symbols=off",
    "--mmap-pages=8",
    "--overwrite",
    "--aggregate",
    "--aggregate --aggregate-by=ip",
    "--aggregate --aggregate-entries=9",
    "--bpf-sampler=ip",
    "--bpf-sampler=addr --bpf-sampler-freq=11",
    "--bpf-object=a.o",
    "--counters=exact=a*",
    "--counters=off",
    "--counter-event=instructions",
    "--interval=50",
    "--budget=1",
    "--dump-map=7",
    "--dump-map=8 --dump-entries=1",
    "--dump-map=9 --dump-bytes=1M",
    "--output=file",
    "--switch-output=10m",
    "--switch-output=1h --max-files=2",
    "--sync=5",
    "--compression-level=3",
];

/// Options of `bprec record` that are not tried in pairs.
const OTHERS_OF_RECORD: [&str; 3] = ["--output=-", "--delay=3", "--counters=stats"];

/// Pairs of options for the same setting that are allowed, because command lines for perf may have both. The second
/// option counts.
const TWICE_IN_RECORD: [(&str, &str); 1] = [("-g", "--call-graph=dwarf,64")];

/// Checks that each pair of `options` is refused, or that both options have an effect on the settings. Does not check the pairs in `twice`.
fn check_pairs(options: &[&'static str], twice: &[(&str, &str)], settings: impl Fn(&str) -> Result<String, String>) {
    let mut idle = Vec::new();
    for (at, first) in options.iter().enumerate() {
        let alone = settings(first).unwrap_or_else(|error| panic!("{first}: {error}"));
        for second in &options[at + 1..] {
            let other = settings(second).unwrap_or_else(|error| panic!("{second}: {error}"));
            let names = |line: &'static str| line.split(' ').filter_map(|option| option.split('=').next());
            let is_same_option = names(first).any(|name| names(second).any(|other| other == name));
            match settings(&format!("{first} {second}")) {
                Ok(both)
                    if !is_same_option && !twice.contains(&(*first, *second)) && (both == alone || both == other) =>
                {
                    idle.push(format!("{first} {second}"));
                }
                _ => {}
            }
        }
    }
    assert!(idle.is_empty(), "options that bprec neither refuses nor uses:\n{}", idle.join("\n"));
}

/// Checks that each option of a command is in one of its lists.
fn check_complete(command: &str, lists: &[&[&str]]) {
    let mut commands = super::command();
    commands.build();
    let command = commands.find_subcommand(command).unwrap();
    let known: Vec<&str> = lists.concat().iter().flat_map(|line| line.split([' ', '='])).collect();
    let global = ["quiet", "verbose", "color", "help", "version"];
    let missing: Vec<_> = command
        .get_arguments()
        .filter_map(clap::Arg::get_long)
        .filter(|long| !global.contains(long) && !known.contains(&&*format!("--{long}")))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn each_pair_of_options_of_record_has_an_effect_or_is_refused() {
    check_complete("record", &[&OF_RECORD, &OTHERS_OF_RECORD]);
    check_pairs(&OF_RECORD, &TWICE_IN_RECORD, |line| {
        let args = of_record(&format!("bprec record -o default {line} -- true"))?;
        record::options(args).map(|options| format!("{options:?}")).map_err(|error| error.to_string())
    });
    for (line, word) in [
        ("--counters=off --budget=1", "omit one of them"),
        ("--counters=off --interval=50", "omit one of them"),
        ("--counters=stats --counter-event=cycles", "needs --counters exact"),
        ("--counters=off --counter-event=cycles", "needs --counters exact"),
        ("--max-files=2", "needs --switch-output"),
        ("--aggregate --overwrite", "cannot be used with"),
    ] {
        let refused = of_record(&format!("bprec record {line} -o file -- true"));
        let refused = refused.and_then(|args| record::options(args).map_err(|error| error.to_string()));
        assert!(refused.as_ref().is_err_and(|error| error.contains(word)), "{line}: {refused:?}");
    }
}

/// Options of `bprec stat`.
const OF_STAT: [&str; 19] = [
    "--bpf-prog=1",
    "--bpf-counters",
    "--bpf-counters --bpf-attr-map=/map",
    "--bpf-counters --all-cpus",
    "--bpf-counters --cpu=0",
    "--bpf-counters --pid=1",
    "--bpf-counters --tid=1",
    "--bpf-counters --cgroup=/",
    "--bpf-counters --event=cycles",
    "--duration=3",
    "--timeout=40",
    "--interval-print=50",
    "--field-separator=;",
    "--json-output",
    "--csv",
    "--markdown",
    "--bpf-prog=2 --no-aggr",
    "--output=file",
    "--budget=1",
];

#[test]
fn each_pair_of_options_of_stat_has_an_effect_or_is_refused() {
    check_complete("stat", &[&OF_STAT]);
    check_pairs(&OF_STAT, &[], |line| {
        let Command::Stat(args) = parsed(&format!("bprec stat {line} -- true"))? else { panic!("{line}") };
        stat::settings(*args).map_err(|error| error.to_string())
    });
}

/// Options of `bprec top`; each of them has its own setting.
const OF_TOP: [&str; 18] = [
    "--interval=2",
    "--iterations=3",
    "--once",
    "--batch",
    "--json",
    "--csv",
    "--markdown",
    "--openmetrics=file",
    "--redact",
    "--prog=1",
    "--limit=1",
    "--all",
    "--sort=runs",
    "--event=cycles",
    "--freq=5",
    "--exact",
    "--budget=1",
    "--keep=5",
];

/// Pairs that `bprec top` refuses.
const REFUSED_BY_TOP: [(&str, &str); 8] = [
    ("--iterations=3", "--once"),
    ("--batch", "--json"),
    ("--batch", "--csv"),
    ("--batch", "--markdown"),
    ("--json", "--csv"),
    ("--json", "--markdown"),
    ("--csv", "--markdown"),
    ("--openmetrics=file", "--all"),
];

#[test]
fn pairs_of_options_of_top_without_effect_are_refused() {
    check_complete("top", &[&OF_TOP]);
    let mut refused = Vec::new();
    for (at, first) in OF_TOP.iter().enumerate() {
        for second in &OF_TOP[at + 1..] {
            match parsed(&format!("bprec top {first} {second}")) {
                Ok(Command::Top(args)) if top::refuse_idle(&args).is_ok() => {}
                _ => refused.push((*first, *second)),
            }
        }
    }
    assert_eq!(refused, REFUSED_BY_TOP);
    for line in ["--openmetrics=- --batch", "--openmetrics=- --json", "--openmetrics=- --csv"] {
        let Ok(Command::Top(args)) = parsed(&format!("bprec top {line}")) else { panic!("{line}") };
        assert!(top::refuse_idle(&args).unwrap_err().to_string().contains("write the counters to a file"), "{line}");
    }
}
