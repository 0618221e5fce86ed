//! Function names of user space are in the recording. The names are compared with perf, which looks them up in the same files; the test has made the
//! files, so it knows from which file a name may come.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::support::{Running, Scratch, bprec, measured, perf, perf_installed, record, root, skip, succeed, wait_for};

/// Source of a program that works for the given number of seconds of CPU time, or endlessly. The function that replaces `WORK` does the work.
const PROGRAM: &str = r"
#include <stdlib.h>
#include <time.h>
volatile unsigned long sink;
static double seconds(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}
__attribute__((noinline)) void WORK(void) {
    for (int i = 0; i < 100000; i++) sink += i * sink;
}
__attribute__((noinline)) void caller_of_work(void) {
    for (int i = 0; i < 10; i++) WORK();
    sink++;
}
__attribute__((noinline)) void ask_for_times(void) {
    for (int i = 0; i < 20000; i++) sink += seconds(CLOCK_MONOTONIC);
    sink++;
}
int main(int count, char **arguments) {
    double end = count > 1 ? atof(arguments[1]) : 1e9;
    while (seconds(CLOCK_PROCESS_CPUTIME_ID) < end) { caller_of_work(); ask_for_times(); }
    return 0;
}
";

/// Returns true and prints a skip message if the machine lacks one of these tools or the user is not root.
fn lacks(test: &str, tools: &[&str]) -> bool {
    let is_there =
        |tool: &&&str| Command::new(tool).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    let missing = tools.iter().find(|tool| !is_there(tool));
    missing.inspect(|tool| skip(test, &format!("needs {tool}"))).is_some() || !root(test)
}

/// Compiles the program `name`, in which the function `work` does the work.
fn compile(scratch: &Scratch, name: &str, work: &str, flags: &[&str]) -> PathBuf {
    let (source, program) = (scratch.path(&format!("{name}.c")), scratch.path(name));
    fs::write(&source, PROGRAM.replace("WORK", work)).unwrap();
    let frames = ["-fno-omit-frame-pointer", "-mno-omit-leaf-frame-pointer", "-fno-optimize-sibling-calls"];
    let base = [&frames[..], &["-O0", "-o"]].concat();
    succeed(Command::new("cc").args(base).arg(&program).arg(&source).args(flags));
    program
}

/// Addresses in user space and their symbols, for all frames of all samples in order.
fn user_frames(text: &str) -> Vec<(u64, String)> {
    let frames = text.lines().filter_map(|line| {
        let (ip, symbol) = line.trim().split_once(' ')?;
        Some((u64::from_str_radix(ip, 16).ok().filter(|ip| *ip < 1 << 47)?, symbol.trim().to_owned()))
    });
    frames.collect()
}

fn script_text(path: &Path, more: &[&str]) -> String {
    let output = succeed(bprec().args(["script", "-F", "ip,sym", "-i"]).arg(path).args(more));
    String::from_utf8(output.stdout).unwrap()
}

fn our_symbols(path: &Path, more: &[&str]) -> BTreeMap<u64, String> {
    let frames = user_frames(&script_text(path, more));
    frames.into_iter().filter(|(_, symbol)| symbol != "[unknown]").collect()
}

fn names(path: &Path) -> BTreeSet<String> {
    our_symbols(path, &[]).into_values().collect()
}

/// Names of user-space functions in which this process was sampled.
fn names_of(path: &Path, pid: u32) -> BTreeSet<String> {
    our_symbols(path, &["--pid", &pid.to_string()]).into_values().collect()
}

/// Records these processes until each has worked for a tenth of a second, and then until `meanwhile` returns.
fn record_processes(path: &Path, children: &[&Child], meanwhile: impl FnOnce()) {
    let pids = children.iter().map(|child| child.id().to_string()).collect::<Vec<_>>().join(",");
    let arguments = ["record", "-q", "-g", "-p", &pids, "-o"].map(OsStr::new);
    let recording = Running::start(path, &[&arguments[..], &[path.as_os_str()]].concat());
    let ticks = |child: &Child| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
        stat.rsplit(") ").next().unwrap().split(' ').nth(11).unwrap().parse::<u64>().unwrap()
    };
    for child in children {
        let before = ticks(child);
        wait_for("a process that uses CPU time", || (ticks(child) >= before + 10).then_some(()));
    }
    meanwhile();
    recording.end();
}

/// A process that is killed when the test ends.
struct Works(Child);

impl Works {
    fn start(command: &mut Command) -> Works {
        Works(command.stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Works {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Compresses the symbols of a file, as distributions do.
fn pack_symbols(scratch: &Scratch, program: &Path) {
    let (inner, packed) = (scratch.path("inner"), scratch.path("inner.xz"));
    fs::copy(program, &inner).unwrap();
    succeed(Command::new("objcopy").args(["--only-keep-debug"]).arg(&inner));
    succeed(Command::new("xz").arg("--force").arg(&inner));
    succeed(Command::new("strip").arg(program));
    let section = format!(".gnu_debugdata={}", packed.display());
    succeed(Command::new("objcopy").args(["--add-section", &section]).arg(program));
}

/// Moves the symbols of a file to another file, which debuggers find by its name.
fn move_symbols(scratch: &Scratch, program: &Path) {
    let debug = scratch.path(".debug");
    fs::create_dir(&debug).unwrap();
    let beside = debug.join("moved.debug");
    succeed(Command::new("objcopy").arg("--only-keep-debug").arg(program).arg(&beside));
    succeed(Command::new("strip").arg(program));
    succeed(Command::new("objcopy").arg(format!("--add-gnu-debuglink={}", beside.display())).arg(program));
}

/// A name, flags of the compiler, processing of the program, and functions that must be found.
type Variant<'a> = (&'a str, &'a [&'a str], fn(&Scratch, &Path), &'a [&'a str]);

#[test]
fn functions_have_the_names_that_perf_finds() {
    let test = "functions_have_the_names_that_perf_finds";
    if lacks(test, &["cc", "objcopy", "strip", "xz"]) || !perf_installed(test) {
        return;
    }
    let scratch = Scratch::new();
    let all = ["the_work", "caller_of_work", "main", "ask_for_times"];
    let nothing: fn(&Scratch, &Path) = |_, _| ();
    let variants: [Variant<'_>; 7] = [
        ("pie", &["-pie", "-fPIE"], nothing, &all),
        ("fixed", &["-no-pie", "-fno-pie"], nothing, &all),
        ("apart", &["-no-pie", "-fno-pie", "-Wl,-Ttext-segment=0x12340000,-z,max-page-size=0x200000"], nothing, &all),
        ("exported", &["-rdynamic", "-s"], nothing, &["the_work", "caller_of_work"]),
        ("packed", &["-pie", "-fPIE"], pack_symbols, &all),
        ("moved", &["-pie", "-fPIE", "-Wl,--build-id=sha1"], move_symbols, &all),
        ("plain", &["-Wl,--build-id=none"], nothing, &all),
    ];
    for (name, flags, change, expected) in variants {
        let program = compile(&scratch, name, "the_work", flags);
        change(&scratch, &program);
        let path = scratch.path(&format!("{name}.data"));
        record(&path, &["-q", "-g", "--", program.to_str().unwrap(), "0.2"]);
        let ours = our_symbols(&path, &[]);
        let found: BTreeSet<&str> = ours.values().map(String::as_str).collect();
        for function in expected {
            assert!(found.contains(function), "{name}: {function} is not among {found:?}");
        }
        assert!(found.iter().any(|symbol| symbol.contains("clock_gettime")), "{name}: no vdso among {found:?}");
        let script = [OsStr::new("script"), "-F".as_ref(), "ip,sym".as_ref(), "-i".as_ref(), path.as_os_str()];
        let (ours, perfs) = (user_frames(&script_text(&path, &[])), user_frames(&perf(&script)));
        assert_eq!(ours.len(), perfs.len(), "{name}");
        // Names can differ in three cases. PLT stubs have no symbol: perf invents one, or uses the previous symbol. A return address at the start of
        // `_dl_start_user` follows a call that ends the function before: perf names the wrong one of the two functions. During `execve`, the frames
        // belong to the old program, and the mappings to the new one.
        // Some builds of perf cannot read compressed or moved symbols.
        let others = |symbol: &str| {
            symbol.ends_with("@plt") || symbol.contains("execve") || ["_init", "_dl_start_user"].contains(&symbol)
        };
        let has_all = !["packed", "moved"].contains(&name);
        let differs = |(ours, perfs): &(&(u64, String), &(u64, String))| match (ours.1.as_str(), perfs.1.as_str()) {
            ("[unknown]", perfs) => perfs != "[unknown]" && !others(perfs),
            (_, "[unknown]") => has_all,
            (ours, perfs) => ours != perfs,
        };
        let differing: BTreeSet<_> = ours.iter().zip(&perfs).filter(differs).collect();
        assert!(differing.is_empty(), "{name}: these symbols of bprec and perf differ: {differing:?}");
    }
}

/// The program runs in a mount namespace; another program has the same path outside of it.
#[test]
fn a_path_is_that_of_the_process() {
    let test = "a_path_is_that_of_the_process";
    if lacks(test, &["cc", "unshare"]) {
        return;
    }
    for build_id in ["sha1", "none"] {
        let scratch = Scratch::new();
        let build_id = format!("-Wl,--build-id={build_id}");
        let outer = compile(&scratch, "program", "outer_work", &[&build_id]);
        let inner = compile(&scratch, "inner", "inner_work", &[&build_id]);
        let script = "mount --bind \"$0\" \"$1\" && exec \"$1\"";
        let inside = Works::start(Command::new("unshare").args(["--mount", "sh", "-c", script]).args([&inner, &outer]));
        let exe = format!("/proc/{}/exe", inside.0.id());
        wait_for("the program in its namespace", || fs::read_link(&exe).ok().filter(|path| *path == outer));
        let outside = Works::start(&mut Command::new(&outer));
        let path = scratch.path("perf.data");
        record_processes(&path, &[&inside.0, &outside.0], || ());
        let (inside, outside) = (names_of(&path, inside.0.id()), names_of(&path, outside.0.id()));
        assert!(inside.contains("inner_work") && !inside.contains("outer_work"), "{build_id}: {inside:?}");
        assert!(outside.contains("outer_work") && !outside.contains("inner_work"), "{build_id}: {outside:?}");
    }
}

#[test]
fn a_file_that_was_deleted_or_replaced_gives_its_own_names_or_none() {
    let test = "a_file_that_was_deleted_or_replaced_gives_its_own_names_or_none";
    if lacks(test, &["cc"]) {
        return;
    }
    /// Event that happens to a running program.
    #[derive(Debug, Clone, Copy, PartialEq)]
    enum Fate {
        Deleted,
        Replaced,
        /// The process ends, and another file replaces the program.
        EndedAndReplaced,
        /// The process ends, and a FIFO replaces the program; opening it would block.
        EndedAndFifo,
    }
    for (build_id, fate) in ["sha1", "none"].into_iter().flat_map(|id| {
        [Fate::Deleted, Fate::Replaced, Fate::EndedAndReplaced, Fate::EndedAndFifo].map(|fate| (id, fate))
    }) {
        let scratch = Scratch::new();
        let flag = format!("-Wl,--build-id={build_id}");
        let program = compile(&scratch, "program", "first_work", &[&flag]);
        let other = compile(&scratch, "other", "other_work", &[&flag]);
        let mut works = Command::new(&program).stdin(Stdio::null()).spawn().unwrap();
        let exe = format!("/proc/{}/exe", works.id());
        wait_for("the program", || fs::read_link(&exe).ok().filter(|path| *path == program));
        let path = scratch.path("perf.data");
        let pid = works.id().to_string();
        record_processes(&path, &[&works], || match fate {
            Fate::Deleted => fs::remove_file(&program).unwrap(),
            Fate::Replaced => fs::rename(&other, &program).unwrap(),
            Fate::EndedAndReplaced => {
                succeed(Command::new("kill").arg(&pid));
                wait_for("its end", || fs::read_link(&exe).is_err().then_some(()));
                fs::rename(&other, &program).unwrap();
            }
            Fate::EndedAndFifo => {
                succeed(Command::new("kill").arg(&pid));
                wait_for("its end", || fs::read_link(&exe).is_err().then_some(()));
                fs::remove_file(&program).unwrap();
                succeed(Command::new("mkfifo").arg(&program));
            }
        });
        drop(works.kill());
        works.wait().unwrap();
        let found = names(&path);
        let is_known = matches!(fate, Fate::Deleted | Fate::Replaced);
        assert_eq!(found.contains("first_work"), is_known, "{build_id} {fate:?}: {found:?}");
        assert!(!found.contains("other_work"), "{build_id} {fate:?}: {found:?}");
        // A file that other processes also map, such as the C library, keeps its names.
        assert!(found.iter().any(|symbol| symbol.contains("clock_gettime")), "{build_id} {fate:?}: {found:?}");
    }
}

#[test]
fn names_are_left_out_where_that_is_asked_for_and_where_they_come_too_late() {
    let test = "names_are_left_out_where_that_is_asked_for_and_where_they_come_too_late";
    if lacks(test, &["cc", "nm"]) {
        return;
    }
    let scratch = Scratch::new();
    let program = compile(&scratch, "program", "the_work", &["-no-pie", "-fno-pie"]);
    let work = addresses(&program, "the_work");
    let program = program.to_str().unwrap();
    let (off, piped) = (scratch.path("off.data"), scratch.path("piped.data"));
    record(&off, &["-q", "-g", "--user-symbols", "off", "--", program, "0.1"]);
    assert_eq!(names(&off), BTreeSet::new());
    let output = succeed(bprec().args(["record", "-q", "-g", "-o", "-", "--", program, "0.1"]));
    fs::write(&piped, output.stdout).unwrap();
    assert_eq!(names(&piped), BTreeSet::new());
    // A compressed recording, and each of several files, contain the names, too.
    measured(|| {
        let packed = scratch.path("packed.data");
        record_in_time(&packed, &["-z", "--", program, "0.1"])?;
        assert!(names(&packed).contains("the_work"));
        let directory = Scratch::new();
        let switched = directory.path("switched.data");
        record_in_time(&switched, &["--switch-output=64K", "--", program, "0.5"])?;
        let parts: Vec<PathBuf> = fs::read_dir(switched.parent().unwrap())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|path| path.to_string_lossy().contains("switched.data."))
            .collect();
        assert!(parts.len() > 1, "{parts:?}");
        // A file with samples of other processes may lack samples of this process.
        let (mut at_work, mut samples) = (0, 0);
        for part in &parts {
            let frames = succeed(bprec().args(["script", "-F", "ip,sym", "-i"]).arg(part));
            for (ip, symbol) in user_frames(&String::from_utf8(frames.stdout).unwrap()) {
                if work.contains(&ip) {
                    samples += 1;
                    assert_eq!(symbol, "the_work", "{}", part.display());
                }
            }
            at_work += usize::from(std::mem::take(&mut samples) > 0);
        }
        if at_work > 1 {
            Ok(())
        } else {
            Err(format!("expected samples of the function in several of {} files, but {at_work} have any", parts.len()))
        }
    });
}

/// Address range of a function in a program that is not relocated, from `nm`.
fn addresses(program: &Path, function: &str) -> Range<u64> {
    let symbols = String::from_utf8(succeed(Command::new("nm").arg("-S").arg(program)).stdout).unwrap();
    let line = symbols.lines().find(|line| line.ends_with(&format!(" {function}"))).unwrap();
    let mut numbers = line.split(' ').map_while(|number| u64::from_str_radix(number, 16).ok());
    let (start, bytes) = (numbers.next().unwrap(), numbers.next().unwrap());
    start..start + bytes
}

/// Makes a recording; fails if the machine was so busy that the time limit for names ended before all names were found.
fn record_in_time(path: &Path, arguments: &[&str]) -> Result<(), String> {
    let said = record(path, &[&["-q", "-g"], arguments].concat()).stderr;
    let said = String::from_utf8(said).unwrap();
    if said.contains("some user functions have no names") { Err(said) } else { Ok(()) }
}

/// Names of C++ functions as perf prints them, and as the file stores them.
#[test]
fn names_are_those_of_the_language() {
    let test = "names_are_those_of_the_language";
    if lacks(test, &["g++"]) || !perf_installed(test) {
        return;
    }
    let scratch = Scratch::new();
    let (source, program, path) = (scratch.path("a.cc"), scratch.path("a"), scratch.path("a.data"));
    fs::write(
        &source,
        "#include <ctime>\nvolatile unsigned long sink;\nnamespace outer { struct Worker { __attribute__((noinline)) void \
         work(int n) { for (int i = 0; i < n; i++) sink += i * sink; } }; }\nint main() { outer::Worker worker; while (clock() < \
         CLOCKS_PER_SEC / 5) worker.work(100000); }\n",
    )
    .unwrap();
    succeed(Command::new("g++").args(["-O1", "-o"]).arg(&program).arg(&source));
    record(&path, &["-q", "-g", "--", program.to_str().unwrap()]);
    assert!(names(&path).contains("outer::Worker::work"), "{:?}", names(&path));
    let raw: BTreeSet<String> = our_symbols(&path, &["--no-demangle"]).into_values().collect();
    assert!(raw.contains("_ZN5outer6Worker4workEi"), "{raw:?}");
    let folded = |more: &[&str]| {
        let output = succeed(bprec().args(["export", "--to", "folded", "-i"]).arg(&path).args(more));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(
        folded(&[]).contains(";outer::Worker::work ")
            && folded(&["--no-demangle"]).contains(";_ZN5outer6Worker4workEi ")
    );
    let perfs = perf(&[
        OsStr::new("report"),
        "--stdio".as_ref(),
        "--sort".as_ref(),
        "sym".as_ref(),
        "-i".as_ref(),
        path.as_os_str(),
    ]);
    assert!(perfs.contains("outer::Worker::work"), "{perfs}");
}
