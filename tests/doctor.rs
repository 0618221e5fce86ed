//! `bprec doctor`: each row changes with the setting that it checks, and with the command that it shows. Compared with files and answers of the
//! kernel.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a test")]

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;

use crate::support::{self, alone};

const BPREC: &str = env!("CARGO_BIN_EXE_bprec");

/// Output of `bprec doctor --json` when `wrapper` runs it.
fn doctor(wrapper: &[&str]) -> Value {
    let output = run(wrapper);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{wrapper:?}: {output:?}");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let is_impossible = document["recording"] == "impossible";
    assert_eq!(output.status.code(), Some(i32::from(is_impossible)), "{wrapper:?}: {document:#}");
    document
}

fn run(wrapper: &[&str]) -> Output {
    let words = [wrapper, &[BPREC, "doctor", "--json"]].concat();
    Command::new(words[0]).args(&words[1..]).output().unwrap()
}

fn row<'a>(document: &'a Value, check: &str) -> &'a Value {
    let rows = document["checks"].as_array().unwrap();
    rows.iter().find(|row| row["check"] == check).unwrap_or_else(|| panic!("no row {check}: {document:#}"))
}

fn status(document: &Value, check: &str) -> String {
    row(document, check)["status"].as_str().unwrap().to_owned()
}

fn limit(document: &Value, check: &str) -> String {
    row(document, check)["limits"][0]["id"].as_str().unwrap_or("none").to_owned()
}

fn is_root(test: &str) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let is_root = status.lines().any(|line| line.starts_with("Uid:\t0\t"));
    if !is_root {
        println!("SKIP {test}: needs root");
    }
    is_root
}

/// A number below /proc/sys, restored on drop.
struct Sysctl {
    path: String,
    before: String,
}

impl Sysctl {
    fn keep(name: &str) -> Sysctl {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        Sysctl { before: fs::read_to_string(&path).unwrap(), path }
    }

    fn set(&self, value: &str) {
        fs::write(&self.path, value).unwrap();
    }
}

impl Drop for Sysctl {
    fn drop(&mut self) {
        // If the test has failed already, an error here is ignored.
        let _ = fs::write(&self.path, &self.before);
    }
}

/// Runs the command of a row: `sysctl NAME=VALUE…`.
fn obey(document: &Value, check: &str) {
    let command = row(document, check)["limits"][0]["command"].as_str().unwrap().to_owned();
    let settings = command.strip_prefix("sysctl ").unwrap_or_else(|| panic!("{command}"));
    for setting in settings.split(' ') {
        let (name, value) = setting.split_once('=').unwrap();
        fs::write(format!("/proc/sys/{}", name.replace('.', "/")), value).unwrap();
    }
}

const NOBODY: [&str; 4] = ["setpriv", "--reuid", "65534", "--clear-groups"];

#[test]
fn the_kernel_and_its_files_say_the_same() {
    alone();
    let document = doctor(&[]);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    assert_eq!(row(&document, "kernel")["found"], release.trim());
    let btf = fs::exists("/sys/kernel/btf/vmlinux").unwrap();
    assert_eq!(status(&document, "kernel types (BTF)") == "ok", btf, "{document:#}");
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
    let has = |kind: &str| mounts.lines().any(|line| line.split(' ').nth(2) == Some(kind));
    for (check, kind) in [("tracefs", "tracefs"), ("BPF file system", "bpf"), ("cgroup version 2", "cgroup2")] {
        if status(&document, check) != "unknown" {
            assert_eq!(status(&document, check) == "ok", has(kind), "{check}: {document:#}");
        }
    }
    // A row that reports a limit shows the cost and the command that removes the limit; other rows show neither.
    for row in document["checks"].as_array().unwrap() {
        let limits = row["limits"].as_array().unwrap();
        assert_eq!(limits.is_empty(), matches!(row["status"].as_str(), Some("ok" | "unknown")), "{row:#}");
        for limit in limits {
            assert!(limit["cost"].is_string() && limit["command"].is_string() != limit["hint"].is_string(), "{row:#}");
        }
    }
}

#[test]
fn a_capability_that_is_dropped_changes_its_rows() {
    let test = "a_capability_that_is_dropped_changes_its_rows";
    if !is_root(test) {
        return;
    }
    alone();
    let all = doctor(&[]);
    let kptr = Sysctl::keep("kernel.kptr_restrict");
    kptr.set("1");
    let without = |dropped: &str| {
        let (bounding, inheritable) = (format!("--bounding-set=-{dropped}"), format!("--inh-caps=-{dropped}"));
        doctor(&["setpriv", &bounding, &inheritable])
    };
    for check in ["CAP_PERFMON", "CAP_BPF", "CAP_SYS_ADMIN", "CAP_SYSLOG", "BPF programs of others", "run statistics"] {
        assert_eq!(status(&all, check), "ok", "{all:#}");
    }
    let admin = without("sys_admin");
    assert_eq!(limit(&admin, "CAP_SYS_ADMIN"), "no-sys-admin");
    assert_eq!(limit(&admin, "BPF programs of others"), "programs-hidden");
    assert_eq!(limit(&admin, "run statistics"), "no-statistics");
    assert_eq!(status(&admin, "CAP_SYSLOG"), "ok");
    let syslog = without("syslog");
    assert_eq!(limit(&syslog, "CAP_SYSLOG"), "no-syslog");
    assert_eq!(limit(&syslog, "kernel addresses"), "addresses-hidden-from-user");
    assert_eq!((status(&syslog, "CAP_BPF"), status(&syslog, "run statistics")), ("ok".to_owned(), "ok".to_owned()));
    let bpf = without("sys_admin,-bpf");
    assert_eq!(limit(&bpf, "CAP_BPF"), "no-bpf-capability");
    assert_eq!(limit(&bpf, "BPF programs of bprec"), "no-loading");
    // The absence of CAP_PERFMON alone has no effect, because CAP_SYS_ADMIN includes it.
    assert_eq!(status(&without("perfmon"), "CAP_PERFMON"), "ok");
    let perfmon = without("sys_admin,-perfmon");
    assert_eq!(limit(&perfmon, "CAP_PERFMON"), "no-perfmon");
    assert_eq!(limit(&perfmon, "BPF programs of bprec"), "no-loading");
}

/// Words of a list in the example of a DaemonSet.
fn listed(name: &str) -> Vec<&'static str> {
    let example = include_str!("../docs/examples/kubernetes-daemonset.yml");
    let list = example.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": [")?.strip_suffix(']'));
    list.unwrap().split(", ").map(|word| word.trim_matches('"')).collect()
}

/// The capabilities of the example of a DaemonSet are sufficient: `doctor` finds no more limits than with all capabilities, and the command of the
/// example records.
#[test]
fn the_capabilities_of_the_daemonset_are_sufficient() {
    let test = "the_capabilities_of_the_daemonset_are_sufficient";
    if !is_root(test) {
        return;
    }
    alone();
    let capabilities: Vec<String> = listed("add").iter().map(|name| format!(",+{}", name.to_lowercase())).collect();
    assert!(capabilities.len() > 3, "{capabilities:?}");
    let bounding = format!("--bounding-set=-all{}", capabilities.concat());
    let confined = ["setpriv", &bounding, "--no-new-privs"];
    assert_eq!(doctor(&confined)["checks"], doctor(&[])["checks"]);

    let scratch = support::Scratch::new();
    let arguments =
        listed("args").into_iter().map(|word| word.replace("/var/log/bprec", scratch.path("").to_str().unwrap()));
    let mut record = Command::new(confined[0]);
    record.args(&confined[1..]).arg(BPREC).args(arguments).args(["--", "sleep", "1"]);
    support::succeed(&mut record);
    let files: Vec<_> = fs::read_dir(scratch.path("")).unwrap().map(|entry| entry.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    let report = support::report(file, &[]);
    assert!(report["events"][0]["samples"]["samples"].as_u64().unwrap() > 0, "{report:#}");
}

#[test]
fn each_command_changes_its_row() {
    let test = "each_command_changes_its_row";
    if !is_root(test) {
        return;
    }
    alone();
    // The permission to sample is tested by opening events, so it does not depend on the displayed level.
    let paranoid = Sysctl::keep("kernel.perf_event_paranoid");
    paranoid.set("3");
    let mut steps = Vec::new();
    loop {
        let document = doctor(&NOBODY);
        let now = limit(&document, "sampling");
        if now == "none" {
            break;
        }
        assert!(!steps.contains(&now), "the limit {now} is still there after its remedy: {steps:?}");
        obey(&document, "sampling");
        steps.push(now);
    }
    assert!(steps.ends_with(&["user-space-only".to_owned(), "own-tasks-only".to_owned()]), "{steps:?}");
    drop(paranoid);
    for (name, value, check, expected, wrapper) in [
        ("kernel.kptr_restrict", "2", "kernel addresses", "addresses-hidden", &[][..]),
        ("kernel.perf_event_mlock_kb", "64", "ring buffers", "small-rings", &[]),
        ("kernel.perf_event_max_sample_rate", "1000", "sampling rate", "low-rate", &[]),
        ("net.core.bpf_jit_harden", "1", "JIT compiler", "jit-hardened", &[]),
        ("kernel.kptr_restrict", "1", "kernel addresses", "addresses-hidden-from-user", &NOBODY),
    ] {
        let _paranoid = Sysctl::keep("kernel.perf_event_paranoid");
        let throttle = Sysctl::keep("kernel.perf_cpu_time_max_percent");
        let kept = Sysctl::keep(name);
        // While kernel.perf_cpu_time_max_percent is 0, the kernel refuses changes of the sampling rate. So the test changes this value before the
        // rate, and the command of that row must do the same.
        throttle.set("25");
        kept.set(value);
        throttle.set("0");
        let document = doctor(wrapper);
        assert_eq!(limit(&document, check), expected, "{name}={value}: {document:#}");
        obey(&document, check);
        let document = doctor(wrapper);
        assert_eq!(status(&document, check), "ok", "{document:#}");
    }
}

#[test]
fn mounts_and_namespaces_are_seen() {
    let test = "mounts_and_namespaces_are_seen";
    if !is_root(test) {
        return;
    }
    alone();
    let pids = doctor(&["unshare", "--pid", "--fork", "--mount-proc"]);
    assert_eq!(limit(&pids, "PID namespace"), "pid-namespace");
    let users = Command::new("unshare").args(["--user", "--map-root-user", "true"]).status();
    if users.is_ok_and(|status| status.success()) {
        // Root of a namespace has every capability there, but none in the initial namespace.
        let users = doctor(&["unshare", "--user", "--map-root-user"]);
        for check in ["CAP_PERFMON", "CAP_BPF", "CAP_SYS_ADMIN", "BPF programs of others", "run statistics"] {
            assert_eq!(status(&users, check), "limited", "{check}: {users:#}");
        }
    } else {
        println!("SKIP {test}: user namespaces are not available");
    }
    let shell = |before: &str| {
        let script = format!("{before}; exec \"$@\"");
        doctor(&["unshare", "--mount", "sh", "-c", &script, "sh"])
    };
    // Other mounts of these file systems may exist elsewhere.
    let bare = shell(
        "while read -r _ place kind _; do case $kind in bpf|tracefs|debugfs) umount -l \"$place\";; esac; \
         done </proc/self/mounts",
    );
    for check in ["BPF file system", "tracefs"] {
        assert_eq!(status(&bare, check), "limited", "{check}: {bare:#}");
        let command = row(&bare, check)["limits"][0]["command"].as_str().unwrap();
        assert_eq!(status(&shell(command), check), "ok", "{command}");
    }
    // ProtectKernelTunables= of systemd does this.
    let masked = shell("mount --bind /dev/null /proc/kallsyms");
    assert_eq!(limit(&masked, "kernel addresses"), "kallsyms-masked");
}

/// Uses a seccomp filter that refuses perf_event_open, like the filters of containers.
#[test]
#[cfg(target_arch = "x86_64")]
fn where_nothing_can_be_recorded_the_exit_code_says_so() {
    use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch};

    const PERF_EVENT_OPEN: i64 = 298;
    let refuse = SeccompAction::Errno(1);
    let rules = [(PERF_EVENT_OPEN, Vec::new())].into_iter().collect();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, TargetArch::x86_64).unwrap();
    let program = BpfProgram::try_from(filter).unwrap();
    let confined = std::thread::spawn(move || {
        seccompiler::apply_filter(&program).unwrap();
        doctor(&["env"])
    });
    let document = confined.join().unwrap();
    assert_eq!(document["recording"], "impossible");
    assert_eq!(
        (status(&document, "sampling").as_str(), limit(&document, "sampling").as_str()),
        ("impossible", "no-events")
    );
}

/// Lines fit into the terminal, except commands, which stay whole; no word of the JSON is lost.
#[test]
fn lines_are_as_wide_as_the_terminal() {
    let document = doctor(&[]);
    let output = Command::new(BPREC).arg("doctor").env("COLUMNS", "80").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    for line in text.lines() {
        assert!(line.chars().count() <= 80 || line.trim_start().starts_with("change with: "), "{line}");
    }
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = words(&text);
    for check in document["checks"].as_array().unwrap() {
        let limits = check["limits"].as_array().unwrap().iter();
        let said = limits.flat_map(|limit| [&limit["cost"], &limit["command"], &limit["hint"]]);
        for said in said.chain([&check["check"]]).filter_map(Value::as_str) {
            assert!(text.contains(&words(said)), "{said}: {text}");
        }
    }
}

/// CSV and Markdown have a line per check, with the words of the JSON.
#[test]
fn tables_have_the_checks_of_the_json() {
    let document = doctor(&[]);
    let shown = |form: &str| {
        let output = Command::new(BPREC).args(["doctor", form]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let (csv, markdown) = (shown("--csv"), shown("--markdown"));
    assert_eq!(csv.lines().next(), Some("check,status,found,costs,remedies"));
    let rows = markdown.lines().skip_while(|line| !line.starts_with("| ---")).skip(1);
    let mut rows = rows.take_while(|line| line.starts_with('|'));
    let mut lines = csv.lines().skip(1);
    for check in document["checks"].as_array().unwrap() {
        let [name, status] = ["check", "status"].map(|member| check[member].as_str().unwrap());
        let line = lines.next().unwrap();
        assert!(line.starts_with(&format!("{name},{status},")), "{line}");
        for limit in check["limits"].as_array().unwrap() {
            let remedy = limit["command"].as_str().or(limit["hint"].as_str()).unwrap();
            let said = [limit["cost"].as_str().unwrap(), remedy].map(|text| text.replace('"', "\"\""));
            assert!(said.iter().all(|text| line.contains(text.as_str())), "{line}: {said:?}");
        }
        let row = rows.next().unwrap().replace('\\', "");
        assert!(row.starts_with(&format!("| {name} | {status} |")), "{row}");
    }
    assert_eq!((lines.next(), rows.next()), (None, None));
}

#[test]
fn nothing_stays() {
    let test = "nothing_stays";
    if !is_root(test) {
        return;
    }
    alone();
    let programs = || {
        let output = Command::new("bpftool").args(["-j", "prog", "show"]).output().unwrap();
        let list: Value = serde_json::from_slice(&output.stdout).unwrap();
        list.as_array().unwrap().iter().map(|program| program["id"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    let stats = || fs::read_to_string("/proc/sys/kernel/bpf_stats_enabled").unwrap_or_default();
    let (before, stats_before) = (programs(), stats());
    doctor(&[]);
    assert_eq!(stats(), stats_before);
    // Other tools may load programs meanwhile; their short-lived programs disappear, too.
    let came: Vec<u64> = programs().into_iter().filter(|id| !before.contains(id)).collect();
    support::wait_for(&format!("the end of programs {came:?}"), || {
        let now = programs();
        came.iter().all(|id| !now.contains(id)).then_some(())
    });
}

#[test]
fn colours_are_those_of_states() {
    alone();
    let printed = |color: &str| {
        let output = Command::new(BPREC).args(["doctor", color]).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let plain = printed("--color=auto");
    assert!(!plain.contains('\u{1b}'), "{plain}");
    let states = plain.lines().filter(|line| !line.starts_with(' '));
    let sgr = states.map(|line| match line.split(' ').next() {
        Some("ok") => 32,
        Some("limited") => 33,
        Some("impossible") => 31,
        Some("unknown") => 2,
        _ => panic!("{line}"),
    });
    let colored = printed("--color=always");
    let starts = colored.lines().filter(|line| line.starts_with('\u{1b}'));
    let starts: Vec<String> = starts.map(|line| line.split('m').next().unwrap().to_owned()).collect();
    assert_eq!(starts, sgr.map(|sgr| format!("\u{1b}[{sgr}")).collect::<Vec<_>>(), "{colored}");
}
