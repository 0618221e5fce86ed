//! A recording is never lost because of the next recording, a limit, or files of other users. Real kernel, root.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test")]

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::support::{self, Scratch, bprec, record, root, signal, skip, succeed, wait_for, wait_for_checkpoint};
use bprec_format::bprec::journal::{Journal, recording_id};
use bprec_format::{Endian, Events, File, RecordType};

/// A user other than root.
const NOBODY: u32 = 65534;

fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

/// Number of samples of the sampling event; all records must be complete.
fn samples(path: &Path) -> usize {
    let bytes = fs::read(path).unwrap();
    let file = File::parse(&bytes).unwrap();
    let events = Events::new(file.attrs(), file.endian()).unwrap();
    let records = file.records().map(Result::unwrap);
    records.filter(|record| record.kind == RecordType::SAMPLE && events.index_of(record) == Some(0)).count()
}

fn has_samples(path: &Path) -> bool {
    let bytes = fs::read(path).unwrap();
    let Ok(file) = File::parse(&bytes) else { return false };
    let Ok(events) = Events::new(file.attrs(), file.endian()) else { return false };
    let mut records = file.records().map_while(Result::ok);
    records.any(|record| record.kind == RecordType::SAMPLE && events.index_of(&record) == Some(0))
}

/// Starts a recording, and kills the recorder once the file has a checkpoint and, with `with_samples`, samples.
fn killed(path: &Path, with_samples: bool) {
    let id = |path: &Path| recording_id(&File::parse(&fs::read(path).ok()?).ok()?);
    let before = id(path);
    let delay: &[&str] = if with_samples { &[] } else { &["-D", "100000"] };
    let mut child =
        bprec().args(["record", "-q", "-a", "-e", "cpu-clock"]).args(delay).arg("-o").arg(path).spawn().unwrap();
    wait_for("a file of its own", || id(path).filter(|id| Some(*id) != before));
    wait_for_checkpoint(path);
    if with_samples {
        wait_for("samples", || has_samples(path).then_some(()));
    }
    signal(&child, "-KILL");
    child.wait().unwrap();
}

fn journal_is_of(journal: &Path, recording: &Path) -> bool {
    let (journal, bytes) = (fs::read(journal).unwrap(), fs::read(recording).unwrap());
    let file = File::parse(&bytes).unwrap();
    let id = recording_id(&file);
    assert!(id.is_some(), "a recording has an id");
    Journal::parse(&journal, Endian::NATIVE).unwrap().belongs_to(file.attrs(), id)
}

fn from_shell(script: &str, path: &Path) -> Output {
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_bprec")]).arg(path).stdin(Stdio::null());
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn starts_that_are_killed_do_not_push_out_what_is_whole() {
    if !root("starts_that_are_killed_do_not_push_out_what_is_whole") {
        return;
    }
    let dir = Scratch::new();
    let path = dir.path("perf.data");
    let (old, cut_off) = (beside(&path, ".old"), beside(&path, ".cut-off"));
    record(&path, &["-q", "-a", "--", "true"]);
    let whole = fs::read(&path).unwrap();
    for _ in 0..3 {
        killed(&path, false);
        assert!(fs::read(&old).unwrap() == whole && !cut_off.exists());
    }
    killed(&path, true);
    assert!(
        fs::read(&old).unwrap() == whole && !cut_off.exists(),
        "an incomplete recording without samples is replaced"
    );
    let with_samples = fs::read(&path).unwrap();
    killed(&path, false);
    assert!(fs::read(&old).unwrap() == whole);
    assert!(
        fs::read(&cut_off).unwrap() == with_samples,
        "an incomplete recording with samples is kept under another name"
    );
    assert!(journal_is_of(&beside(&cut_off, ".journal"), &cut_off));
    record(&path, &["-q", "-a", "--", "true"]);
    assert!(fs::read(&old).unwrap() == whole && fs::read(&cut_off).unwrap() == with_samples);
    let second = fs::read(&path).unwrap();
    record(&path, &["-q", "-a", "--", "true"]);
    assert!(fs::read(&old).unwrap() == second, "a complete recording replaces the older complete recording");
}

/// perf rejects a file if its header says that it has no records.
#[test]
fn perf_opens_a_file_that_has_just_begun() {
    const NAME: &str = "perf_opens_a_file_that_has_just_begun";
    if !root(NAME) || !support::perf_installed(NAME) {
        return;
    }
    let dir = Scratch::new();
    let mut begun = 0;
    for number in 0..20 {
        let path = dir.path(&format!("perf.data{number}"));
        let mut child = bprec().args(["record", "-q", "-a", "-D", "100000", "-o"]).arg(&path).spawn().unwrap();
        while !path.exists() {
            assert!(child.try_wait().unwrap().is_none(), "the recorder ended before it created the file");
            std::thread::yield_now();
        }
        signal(&child, "-KILL");
        child.wait().unwrap();
        begun += u32::from(!support::has_checkpoint(&path));
        // Any text on standard error means a failure.
        let script = support::perf(&["script", "-F", "time,event", "-i", path.to_str().unwrap()]);
        let times = script.lines().filter_map(|line| line.split_once(':')?.0.trim().parse::<f64>().ok());
        assert!(times.clone().count() > 0 && times.min_by(f64::total_cmp) > Some(0.0), "{script}");
    }
    assert!(begun > 0, "no recorder was killed before its first checkpoint");
}

#[test]
fn a_journal_stays_with_its_recording() {
    if !root("a_journal_stays_with_its_recording") {
        return;
    }
    let dir = Scratch::new();
    let path = dir.path("perf.data");
    let (old, journal) = (beside(&path, ".old"), beside(&path, ".journal"));
    killed(&path, true);
    assert!(journal_is_of(&journal, &path));
    killed(&path, true);
    assert!(journal_is_of(&beside(&old, ".journal"), &old) && journal_is_of(&journal, &path));
    let kept = fs::read(beside(&old, ".journal")).unwrap();

    fs::remove_file(&path).unwrap();
    killed(&path, true);
    assert!(
        fs::read(beside(&old, ".journal")).unwrap() == kept,
        "the journal of a recording that was not moved is kept"
    );
    assert!(journal_is_of(&journal, &path), "the journal without a recording was removed");

    // State of the files after a power loss between two renames: the recording has its new name, and its journal still has the old one.
    fs::rename(&path, &old).unwrap();
    record(&path, &["-q", "-a", "--", "true"]);
    assert!(journal_is_of(&beside(&old, ".journal"), &old));
    assert!(!journal.exists());
}

#[test]
fn a_limit_of_the_size_of_files_is_an_error_like_any_other() {
    if !root("a_limit_of_the_size_of_files_is_an_error_like_any_other") {
        return;
    }
    let dir = Scratch::new();
    for (name, more) in [("plain", ""), ("packed", "-z")] {
        let path = dir.path(name);
        let script =
            format!("ulimit -f 4000; exec \"$0\" record -a {more} -F 20000 -e cpu-clock --duration 60 -o \"$1\"");
        let output = from_shell(&script, &path);
        let text = said(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("File too large") && text.contains("and can be opened"), "{text}");
        let bytes = fs::read(&path).unwrap();
        assert!(File::parse(&bytes).unwrap().records().all(|record| record.is_ok()));
    }
    // A command that exceeds a file size limit of its own is killed by SIGXFSZ, unlike the recorder.
    let script =
        "exec \"$0\" record -q -a -o \"$1\" -- sh -c 'ulimit -f 1; head -c 100000 /dev/zero > \"$0\"' \"$1.zeros\"";
    let output = from_shell(script, &dir.path("command"));
    assert_eq!(output.status.code(), Some(128 + 25), "killed by SIGXFSZ: {}", said(&output));
}

#[test]
fn a_thread_that_cannot_be_started_is_an_error() {
    if !root("a_thread_that_cannot_be_started_is_an_error") {
        return;
    }
    let dir = Scratch::new();
    let path = dir.path("perf.data");
    fs::write(&path, "an older one").unwrap();
    // With a stack of 1 << 60 bytes, no thread can start.
    let output = bprec()
        .env("RUST_MIN_STACK", (1u64 << 60).to_string())
        .args(["record", "-q", "-a", "-o"])
        .arg(&path)
        .args(["--", "true"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("cannot start a thread"), "{}", said(&output));
    assert_eq!(fs::read(&path).unwrap(), b"an older one");
}

#[test]
fn standard_output_that_is_closed_is_an_error() {
    if !root("standard_output_that_is_closed_is_an_error") {
        return;
    }
    let dir = Scratch::new();
    let output = from_shell("exec \"$0\" record -q -a -o - -- true >&-", &dir.path("none"));
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("standard output"), "{}", said(&output));
    let output = from_shell("exec \"$0\" record -q -a -o - -- true >/dev/null", &dir.path("none"));
    assert_eq!(output.status.code(), Some(0), "{}", said(&output));
}

/// bprec refuses files of other users like the kernel's protected_regular and protected_fifos, which apply only to O_CREAT.
#[test]
fn what_others_put_where_anyone_may_is_refused() {
    if !root("what_others_put_where_anyone_may_is_refused") {
        return;
    }
    // `stat` needs a program to count.
    let _counted = bprec_fixtures::Fixture::IDLE.open().unwrap().load().unwrap();
    let dir = Scratch::new();
    let shared = dir.path("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    let path = shared.join("perf.data");
    let plant = |what: &str, at: &Path| match what {
        "file" => fs::write(at, "planted").unwrap(),
        "fifo" => drop(succeed(Command::new("mkfifo").arg(at))),
        _ => symlink("/etc/passwd", at).unwrap(),
    };
    for suffix in ["", ".old", ".older", ".journal", ".old.journal"] {
        for what in ["file", "fifo", "link"] {
            let planted = beside(&path, suffix);
            plant(what, &planted);
            std::os::unix::fs::lchown(&planted, Some(NOBODY), Some(NOBODY)).unwrap();
            let output = bprec().args(["record", "-q", "-a", "-o"]).arg(&path).args(["--", "true"]).output().unwrap();
            assert_eq!(output.status.code(), Some(2), "{what} {suffix}: {}", said(&output));
            assert!(said(&output).contains("belongs to user 65534"), "{what} {suffix}: {}", said(&output));
            assert_eq!(fs::read_dir(&shared).unwrap().count(), 1);
            fs::remove_file(&planted).unwrap();
        }
    }
    // The same rules apply to the output of commands that read, and of `stat`.
    let input = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recordings/linux-6.1/ratio.data");
    let input = input.to_str().unwrap();
    for (arguments, suffixes) in [
        (&["rewrite", "-i", input, "-o"][..], &["", ".old", ".journal"][..]),
        (&["recover", input, "-o"], &["", ".old", ".old.journal"]),
        (&["export", "--to", "folded", "-i", input, "-o"], &["", ".old"]),
        (&["stat", "--timeout", "10", "-o"], &[""]),
    ] {
        for (suffix, what) in suffixes.iter().flat_map(|suffix| ["file", "fifo", "link"].map(|what| (suffix, what))) {
            let planted = beside(&path, suffix);
            plant(what, &planted);
            std::os::unix::fs::lchown(&planted, Some(NOBODY), Some(NOBODY)).unwrap();
            let output = bprec().args(arguments).arg(&path).output().unwrap();
            let about = format!("{arguments:?}, {what} {suffix}: {}", said(&output));
            assert!(output.status.code() == Some(2) && said(&output).contains("belongs to user 65534"), "{about}");
            assert_eq!(fs::read_dir(&shared).unwrap().count(), 1, "{about}");
            fs::remove_file(&planted).unwrap();
        }
        // The user's own link points to a file of another user.
        if arguments[0] == "stat" {
            let theirs = shared.join("theirs");
            fs::write(&theirs, "planted").unwrap();
            chown(&theirs, Some(NOBODY), Some(NOBODY)).unwrap();
            symlink(&theirs, &path).unwrap();
            let output = bprec().args(arguments).arg(&path).output().unwrap();
            assert!(output.status.code() == Some(2) && fs::read(&theirs).unwrap() == b"planted", "{}", said(&output));
            fs::remove_file(&path).unwrap();
            fs::remove_file(&theirs).unwrap();
        }
        // The user's own file is written.
        fs::write(&path, "own").unwrap();
        succeed(bprec().args(arguments).arg(&path));
        assert_ne!(fs::read(&path).unwrap(), b"own");
        for entry in fs::read_dir(&shared).unwrap() {
            fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }
    // Allowed: the user's own file in that directory, and files of other users in directories that not everyone may write.
    fs::write(&path, "own").unwrap();
    record(&path, &["-q", "-a", "--", "true"]);
    assert_eq!(fs::read(beside(&path, ".old")).unwrap(), b"own");
    let elsewhere = dir.path("perf.data");
    fs::write(&elsewhere, "theirs").unwrap();
    chown(&elsewhere, Some(NOBODY), Some(NOBODY)).unwrap();
    record(&elsewhere, &["-q", "-a", "--", "true"]);
}

/// Compares with the kernel's count of syncs.
#[test]
fn what_was_recorded_is_put_on_the_disk() {
    const NAME: &str = "what_was_recorded_is_put_on_the_disk";
    if !root(NAME) || !support::perf_installed(NAME) {
        return;
    }
    let dir = Scratch::new();
    let path = dir.path("perf.data");
    let counted = |arguments: &[&str]| {
        let mut command = Command::new("perf");
        command.args(["stat", "-x,", "-e", "syscalls:sys_enter_fsync,syscalls:sys_enter_fdatasync", "-o"]);
        command.arg(dir.path("counts")).arg("--").arg(env!("CARGO_BIN_EXE_bprec")).args(arguments);
        let output = command.stdin(Stdio::null()).stdout(Stdio::null()).output().unwrap();
        let text = fs::read_to_string(dir.path("counts")).unwrap_or_default();
        let count = |line: &str| line.split(',').next().and_then(|count| count.parse::<u64>().ok());
        let counts: Vec<u64> = text.lines().filter_map(count).collect();
        (output.status.success() && counts.len() == 2).then(|| (counts[0], counts[1]))
    };
    let name = path.to_str().unwrap();
    let Some((at_end, meanwhile)) = counted(&["record", "-q", "-a", "--sync=off", "-o", name, "--", "true"]) else {
        skip(NAME, "perf cannot count system calls");
        return;
    };
    // Syncs: fdatasync of the header before the file gets its name; at the end, fsync of features, header and directory.
    assert!(at_end >= 3 && meanwhile == 1, "{at_end} and {meanwhile}");
    let until_synced = ["record", "-q", "-a", "--sync=0.01", "-o", name, "--", "sleep", "1"];
    let (at_end, meanwhile) = counted(&until_synced).unwrap();
    assert!(at_end >= 3 && meanwhile >= 2, "{at_end} and {meanwhile}");
    let copy = dir.path("copy");
    let (synced, _) = counted(&["rewrite", "-i", name, "-o", copy.to_str().unwrap()]).unwrap();
    assert!(synced >= 2, "expected syncs of the file and its directory: {synced}");
    let output = bprec().args(["record", "-o"]).arg(&path).arg("--sync=no").output().unwrap();
    assert!(said(&output).contains("expected seconds, a time like 500ms or 10s, or off"), "{}", said(&output));
}

#[test]
fn a_recording_that_goes_on_is_not_mended() {
    if !root("a_recording_that_goes_on_is_not_mended") {
        return;
    }
    let dir = Scratch::new();
    let path = dir.path("perf.data");
    let mut child = bprec().args(["record", "-q", "-a", "-e", "cpu-clock", "-o"]).arg(&path).spawn().unwrap();
    wait_for_checkpoint(&path);
    let output = bprec().args([OsStr::new("recover"), OsStr::new("--in-place"), path.as_os_str()]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", said(&output));
    assert!(said(&output).contains("is still writing"), "{}", said(&output));
    signal(&child, "-INT");
    assert!(child.wait().unwrap().success());
    samples(&path);
}

/// Copies the recorder with file capabilities into a directory that everyone may read; also returns a directory that everyone may write.
fn with_capabilities(name: &str, dir: &Scratch, given: &str) -> Option<(PathBuf, PathBuf)> {
    if !root(name) {
        return None;
    }
    let (own, shared) = (dir.path("bprec"), dir.path("shared"));
    // Another process makes the copy: otherwise a child that another test starts at the same time would inherit the executable open for writing.
    succeed(Command::new("cp").arg(env!("CARGO_BIN_EXE_bprec")).arg(&own));
    fs::create_dir(&shared).unwrap();
    for (path, mode) in [(own.parent().unwrap(), 0o755), (&own, 0o755), (&shared, 0o777)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let has_them = Command::new("setcap").arg(given).arg(&own).output().is_ok_and(|output| output.status.success());
    if !has_them {
        skip(name, "no setcap, or a file system without capabilities");
    }
    has_them.then_some((own, shared))
}

const AS_NOBODY: [&str; 6] = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"];

/// A process that is killed when the test ends.
struct Sleeper(Child);

impl Sleeper {
    fn start(before: &[&str]) -> Sleeper {
        let command = [before, &["sleep", "600"]].concat();
        let sleeper = Sleeper(Command::new(command[0]).args(&command[1..]).spawn().unwrap());
        let comm = format!("/proc/{}/comm", sleeper.0.id());
        wait_for("a sleeper", || fs::read(&comm).is_ok_and(|comm| comm == b"sleep\n").then_some(()));
        sleeper
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

/// Number of records of a kind about a process.
fn count(path: &Path, kind: RecordType, id: u32) -> usize {
    let bytes = fs::read(path).unwrap();
    let file = File::parse(&bytes).unwrap();
    let of_kind = file.records().map(Result::unwrap).filter(|record| record.kind == kind);
    of_kind.filter(|record| file.endian().u32_at(record.body(), 0) == Some(id)).count()
}

/// A recorder with file capabilities does not lend its privileges to its caller: it refuses options that would, such as reading any BPF map.
#[test]
fn rights_that_the_caller_lacks_are_not_lent() {
    let dir = Scratch::new();
    let given = "cap_perfmon,cap_bpf,cap_syslog,cap_sys_admin+ep";
    let Some((own, shared)) = with_capabilities("rights_that_the_caller_lacks_are_not_lent", &dir, given) else {
        return;
    };
    let as_nobody = |arguments: &[&str]| {
        let mut command = Command::new(AS_NOBODY[0]);
        command.args(&AS_NOBODY[1..]).arg(&own).args(arguments);
        command.current_dir(&shared).output().unwrap()
    };
    for (option, more) in [
        ("--dump-map", &["record", "-a", "--dump-map", "1"][..]),
        ("--bpf-object", &["record", "-a", "--bpf-object", "/dev/null"]),
        ("--bpf-attr-map", &["record", "-a", "--bpf-counters", "--bpf-attr-map", "/sys/fs/bpf/x"]),
        ("--bpf-attr-map", &["stat", "--bpf-counters", "--bpf-attr-map", "/sys/fs/bpf/x", "-a"]),
    ] {
        let output = as_nobody(&[more, &["--", "true"][..]].concat());
        assert_eq!(output.status.code(), Some(2), "{option}: {}", said(&output));
        assert!(said(&output).contains(&format!("{option} is refused")), "{option}: {}", said(&output));
    }
    // Without these options, recording works. The recording names tasks of other users, but does not contain their mappings, which the kernel shows
    // only to their owner.
    let sleepers = [Sleeper::start(&[]), Sleeper::start(&AS_NOBODY)];
    let output = as_nobody(&["record", "-a", "-o", "perf.data", "--", "true"]);
    assert!(output.status.success(), "{}", said(&output));
    let path = shared.join("perf.data");
    let ids = sleepers.each_ref().map(|sleeper| sleeper.0.id());
    assert_eq!(ids.map(|id| count(&path, RecordType::COMM, id) > 0), [true, true], "both processes have names");
    assert_eq!(
        ids.map(|id| count(&path, RecordType::MMAP2, id) > 0),
        [false, true],
        "only the process of the same user has mappings"
    );
}

/// The privilege to inspect processes of other users (CAP_SYS_PTRACE: descriptors, namespaces, mappings) is also passed on only if root has allowed
/// it, by one line in a file. The test reads the recorder's capabilities from the kernel while it records.
#[test]
fn processes_of_others_are_looked_into_where_root_allows_it() {
    const NAME: &str = "processes_of_others_are_looked_into_where_root_allows_it";
    let dir = Scratch::new();
    let given = "cap_perfmon,cap_bpf,cap_syslog,cap_sys_admin,cap_sys_ptrace+ep";
    let Some((own, shared)) = with_capabilities(NAME, &dir, given) else { return };
    let theirs = Sleeper::start(&[]);
    // Only the recorder sees this directory as /etc.
    let etc = dir.path("etc");
    fs::create_dir_all(etc.join("bprec")).unwrap();
    for (line, is_allowed) in [("--dump-map\n", false), ("--user-symbols\n", true)] {
        fs::write(etc.join("bprec/allowed"), line).unwrap();
        let path = shared.join("perf.data");
        // The recorded command prints the capabilities of each thread of its parent, the recorder.
        let rights = shared.join("rights");
        // A thread may end after the shell has listed its directory.
        let ask = format!("grep -hs CapEff /proc/$PPID/task/*/status >{} || true", rights.display());
        let inside = format!("mount --bind {} /etc && exec \"$@\"", etc.display());
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", &inside, "sh"]).args(AS_NOBODY).arg(&own);
        succeed(command.args(["record", "-q", "-a", "-o"]).arg(&path).args(["--", "sh", "-c", &ask]));
        let rights = fs::read_to_string(&rights).unwrap();
        let sys_ptrace = rights.lines().map(|line| {
            let set = u64::from_str_radix(line.rsplit('\t').next().unwrap(), 16).unwrap();
            set >> 19 & 1 == 1
        });
        let sys_ptrace: Vec<bool> = sys_ptrace.collect();
        assert!(sys_ptrace.len() > 1 && sys_ptrace.iter().all(|has| *has == is_allowed), "{line}: {rights}");
        assert!(count(&path, RecordType::COMM, theirs.0.id()) > 0, "{line}: the process has a name");
        assert_eq!(count(&path, RecordType::MMAP2, theirs.0.id()) > 0, is_allowed, "{line}: its mappings");
    }
}
