//! System calls that reading commands can make, tested in the kernel: every call number, in each phase of a command, with the filters that the
//! program itself installs. `docs/security.md` has the table; `BPREC_UPDATE=1` updates the table.
#![cfg(all(target_os = "linux", target_arch = "x86_64"))]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::print_stdout, reason = "a test")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::support::{Scratch, skip};
use crate::tracee::{Tracee, Verdict, terminal};
use bprec_generate::{Container, Shape, generate_bytes};

/// Limit on tested numbers: all numbers of existing kernels, and as many above.
const NUMBERS: u64 = 1024;
/// Numbers of `uretprobe` and `uprobe`, which the kernel never passes to a filter: it ends a process that calls them outside the code placed by the
/// kernel.
const UNFILTERED: std::ops::RangeInclusive<u64> = 335..=336;
/// Bit in the call numbers of x32 programs (32-bit pointers). With the bit, a number means the same call.
const X32: u64 = 1 << 30;

macro_rules! names {
    ($($name:ident = $number:ident)*) => { &[$((stringify!($name), libc::$number)),*] };
}
/// Names of the calls that commands make.
#[rustfmt::skip]
const NAMES: &[(&str, libc::c_long)] = names!(
    read = SYS_read readv = SYS_readv pread64 = SYS_pread64 write = SYS_write writev = SYS_writev lseek = SYS_lseek close = SYS_close
    fstat = SYS_fstat fstatfs = SYS_fstatfs poll = SYS_poll ppoll = SYS_ppoll brk = SYS_brk mmap = SYS_mmap munmap = SYS_munmap
    mremap = SYS_mremap mprotect = SYS_mprotect madvise = SYS_madvise clone = SYS_clone clone3 = SYS_clone3 futex = SYS_futex
    set_robust_list = SYS_set_robust_list rseq = SYS_rseq sched_getaffinity = SYS_sched_getaffinity sched_yield = SYS_sched_yield
    getpid = SYS_getpid gettid = SYS_gettid getrandom = SYS_getrandom clock_gettime = SYS_clock_gettime
    clock_nanosleep = SYS_clock_nanosleep nanosleep = SYS_nanosleep sigaltstack = SYS_sigaltstack rt_sigaction = SYS_rt_sigaction
    rt_sigprocmask = SYS_rt_sigprocmask rt_sigreturn = SYS_rt_sigreturn restart_syscall = SYS_restart_syscall wait4 = SYS_wait4
    exit = SYS_exit exit_group = SYS_exit_group prctl = SYS_prctl fcntl = SYS_fcntl ioctl = SYS_ioctl tgkill = SYS_tgkill
    landlock_create_ruleset = SYS_landlock_create_ruleset landlock_add_rule = SYS_landlock_add_rule
    landlock_restrict_self = SYS_landlock_restrict_self seccomp = SYS_seccomp capset = SYS_capset
    statx = SYS_statx newfstatat = SYS_newfstatat stat = SYS_stat lstat = SYS_lstat readlink = SYS_readlink readlinkat = SYS_readlinkat
    getdents64 = SYS_getdents64 getcwd = SYS_getcwd unlink = SYS_unlink unlinkat = SYS_unlinkat fchmod = SYS_fchmod open = SYS_open
    openat = SYS_openat epoll_wait = SYS_epoll_wait epoll_pwait = SYS_epoll_pwait fsync = SYS_fsync link = SYS_link linkat = SYS_linkat
    rename = SYS_rename renameat = SYS_renameat renameat2 = SYS_renameat2 geteuid = SYS_geteuid flock = SYS_flock
    ftruncate = SYS_ftruncate pwrite64 = SYS_pwrite64
);

/// Requests to devices: those that the program makes, and harmful ones.
const REQUESTS: &[(&str, u64)] = &[
    ("TCGETS", 0x5401),
    ("TCSETS", 0x5402),
    ("TIOCSTI", 0x5412),
    ("TIOCGWINSZ", 0x5413),
    ("TIOCLINUX", 0x541c),
    ("TIOCSETD", 0x5423),
    ("TCGETS2", 0x802c_542a),
    ("TCSETS2", 0x402c_542b),
    ("TIOCGPTPEER", 0x5441),
    ("FIBMAP", 0x0001),
    ("FS_IOC_SETFLAGS", 0x4008_6602),
    ("FS_IOC_FSSETXATTR", 0x401c_5820),
    ("FICLONE", 0x4004_9409),
    ("FICLONERANGE", 0x4020_940d),
    ("FIDEDUPERANGE", 0xc018_9436),
    ("FIFREEZE", 0xc004_5877),
    ("FS_IOC_SETVERSION", 0x4008_7602),
    ("FS_IOC_ENABLE_VERITY", 0x4080_6685),
    ("BLKDISCARD", 0x1277),
    ("NS_GET_USERNS", 0xb701),
    ("PERF_EVENT_IOC_SET_BPF", 0x4004_2408),
    ("SECCOMP_IOCTL_NOTIF_ADDFD", 0x4018_2103),
    ("PIDFD_GET_NET_NAMESPACE", 0xff04),
    ("KVM_CREATE_VM", 0xae01),
    ("TUNSETIFF", 0x4004_54ca),
    ("UFFDIO_API", 0xc018_aa3f),
];

/// Arguments of a call, each with its name in the table; empty if the arguments make no difference.
fn arguments(call: libc::c_long, own: u64) -> Vec<(String, [u64; 5])> {
    let each = |at: usize, values: &[u64], name: &dyn Fn(u64) -> String| {
        let with = |value: &u64| {
            let mut arguments = [0; 5];
            arguments[at] = *value;
            (name(*value), arguments)
        };
        values.iter().map(with).collect::<Vec<_>>()
    };
    let first = |count: u64| (0..count).collect::<Vec<_>>();
    let named = |names: &[(&str, u64)], value: u64| {
        let name = names.iter().find(|(_, named)| *named == value);
        name.map_or_else(|| format!("{value:#x}"), |(name, _)| (*name).to_owned())
    };
    match call {
        libc::SYS_mmap | libc::SYS_mprotect => {
            each(2, &first(16), &|bits| if bits & 4 == 0 { "without PROT_EXEC" } else { "PROT_EXEC" }.to_owned())
        }
        libc::SYS_madvise => each(2, &first(256), &|advice| {
            let names = ["NORMAL", "RANDOM", "SEQUENTIAL", "WILLNEED", "DONTNEED"].iter().zip(0..);
            let guards = [(&"GUARD_INSTALL", 102), (&"GUARD_REMOVE", 103)];
            let names: Vec<_> = names.chain(guards).map(|(name, advice)| (*name, advice)).collect();
            named(&names, advice)
        }),
        libc::SYS_futex => each(1, &first(512), &|operation| {
            let names = [("WAIT", 0), ("WAKE", 1), ("REQUEUE", 3), ("WAIT_BITSET", 9), ("WAKE_BITSET", 10)];
            named(&names, operation & !(128 | 256))
        }),
        libc::SYS_clone => {
            const THREAD: u64 = 0x003d_0f00;
            const IGNORED: u64 = 0x0040_0000;
            let other = (0..32).map(|bit| THREAD ^ (1 << bit)).filter(|flags| *flags != THREAD | IGNORED);
            let flags: Vec<u64> =
                [THREAD, THREAD | IGNORED, 0, 17, 0x4111, 0x1000_0011].into_iter().chain(other).collect();
            each(0, &flags, &|flags| match flags & !IGNORED {
                THREAD => "a thread".to_owned(),
                _ => format!("{flags:#x}"),
            })
        }
        libc::SYS_prctl => {
            let options: Vec<u64> = (0..256).chain([0x5356_4d41, 0x5961_6d61, 0x4155_5856]).collect();
            each(0, &options, &|option| named(&[("PR_SET_NAME", 15), ("PR_SET_NO_NEW_PRIVS", 38)], option))
        }
        libc::SYS_fcntl => {
            let commands: Vec<u64> = (0..64).chain(1024..1088).collect();
            each(1, &commands, &|command| named(&[("F_GETFD", 1), ("F_DUPFD_CLOEXEC", 1030)], command))
        }
        libc::SYS_ioctl => {
            // All requests of terminals (type `T`), in four sizes and each direction; and the first 16 requests of every type, without size and
            // direction.
            let terminals = (0..256u64).flat_map(|number| {
                let sizes = [0u64, 4, 36, 44];
                sizes.into_iter().flat_map(move |size| (0..4).map(move |way| way << 30 | size << 16 | 0x5400 | number))
            });
            let others = (0..256).flat_map(|kind| (0..16).map(move |number| kind << 8 | number));
            let requests = REQUESTS.iter().map(|(_, request)| *request);
            let requests: BTreeSet<u64> = terminals.chain(others).chain(requests).collect();
            each(1, &requests.into_iter().collect::<Vec<_>>(), &|request| named(REQUESTS, request))
        }
        libc::SYS_tgkill => {
            let of = |process: u64, whose: &'static str| {
                (0..66).map(move |signal| {
                    let name = match (whose, signal) {
                        ("own", 6) => "SIGABRT to itself".to_owned(),
                        ("own", 7) => "SIGBUS to itself".to_owned(),
                        _ => format!("{signal} to {whose}"),
                    };
                    (name, [process, 1, signal, 0, 0])
                })
            };
            of(own, "own").chain(of(own + 1, "others")).chain(of(1, "init")).chain(of(u64::MAX, "any")).collect()
        }
        libc::SYS_fchmod => {
            let modes: Vec<u64> = (0..12).map(|bit| 0o600 ^ 1 << bit).chain([0, 0o600, 0o4755]).collect();
            each(1, &modes, &|mode| format!("{mode:04o}"))
        }
        libc::SYS_open => opening(1),
        libc::SYS_openat => opening(2),
        _ => Vec::new(),
    }
}

/// Combinations of arguments to open a file, with the flags at this index.
fn opening(flags_at: usize) -> Vec<(String, [u64; 5])> {
    let ways = [
        ("to read", libc::O_RDONLY | libc::O_CLOEXEC),
        ("to read", libc::O_RDONLY | libc::O_DIRECTORY),
        ("to read", libc::O_PATH | libc::O_CLOEXEC),
        ("to change", libc::O_RDWR),
        ("to change", libc::O_WRONLY),
        ("to change", libc::O_WRONLY | libc::O_APPEND),
        ("to change or create", libc::O_WRONLY | libc::O_CREAT),
        ("to create", libc::O_RDONLY | libc::O_CREAT),
        ("to empty", libc::O_RDONLY | libc::O_TRUNC),
        ("to empty", libc::O_WRONLY | libc::O_TRUNC),
        ("to empty", libc::O_WRONLY | libc::O_CREAT | libc::O_TRUNC),
        ("a new file", libc::O_RDWR | libc::O_CREAT | libc::O_EXCL),
        ("a file without a name", libc::O_RDWR | libc::O_TMPFILE),
        ("a file without a name", libc::O_RDWR | libc::O_TMPFILE | libc::O_EXCL),
    ];
    let modes =
        [(0o600, ""), (0o666, ""), (0o4600, ", set-user-ID"), (0o2600, ", set-group-ID"), (0o700, ", executable")];
    let mut asked = Vec::new();
    for (way, flags) in ways {
        for (mode, kind) in modes {
            // The kernel uses the mode only if it creates a file.
            let kind = if flags & libc::O_CREAT != 0 || flags & libc::O_TMPFILE == libc::O_TMPFILE { kind } else { "" };
            let mut arguments = [0; 5];
            (arguments[flags_at], arguments[flags_at + 1]) = (u64::from(flags.cast_unsigned()), mode);
            asked.push((format!("{way}{kind}"), arguments));
        }
    }
    asked
}

/// A call, and the name of its arguments if they make a difference.
type Call = (String, String);

/// Returns the calls that a program can make at the point where it stopped.
fn allowed(program: &mut Tracee) -> BTreeSet<Call> {
    let own = program.id();
    let anything = [[0; 5], [u64::MAX; 5], [1; 5], [own, own, 9, 0, 0], [own + 1, 9, 9, 9, 9]];
    let mut calls = BTreeMap::<Call, BTreeSet<bool>>::new();
    for number in (0..NUMBERS).chain(X32..X32 + NUMBERS).filter(|number| !UNFILTERED.contains(number)) {
        let name = NAMES.iter().find(|(_, known)| *known as u64 == number);
        let name = name.map_or_else(|| format!("call {number:#x}"), |(name, _)| (*name).to_owned());
        let mut asked = arguments(number as libc::c_long, own);
        if asked.is_empty() {
            asked.extend(anything.map(|arguments| (String::new(), arguments)));
        }
        for (kind, arguments) in asked {
            let verdict = program.verdict(number, arguments);
            // For `clone3`, the filter returns another error, so that the C library calls `clone` instead.
            let error = if name == "clone3" { libc::ENOSYS } else { libc::EPERM };
            assert!(
                matches!(verdict, Verdict::Allowed) || verdict == Verdict::Refused(error),
                "{name} {kind}: {verdict:?}"
            );
            calls.entry((name.clone(), kind)).or_default().insert(verdict == Verdict::Allowed);
        }
    }
    let depends = calls.iter().find(|(_, verdicts)| verdicts.len() > 1);
    assert_eq!(depends, None, "the verdict depends on arguments that the test does not distinguish");
    calls.into_iter().filter(|(_, verdicts)| verdicts.contains(&true)).map(|(call, _)| call).collect()
}

/// Files that commands are run on.
struct Inputs {
    scratch: Scratch,
    recording: String,
}

impl Inputs {
    fn new() -> Inputs {
        let scratch = Scratch::new();
        let recording = scratch.path("recording.data");
        let shape = |container| Shape { record_bytes: 16 << 10, container, ..Shape::default() };
        fs::write(&recording, generate_bytes(&shape(Container::File)).unwrap().0).unwrap();
        fs::write(scratch.path("stream.data"), generate_bytes(&shape(Container::Pipe)).unwrap().0).unwrap();
        Inputs { recording: recording.to_str().unwrap().to_owned(), scratch }
    }

    /// Returns the calls that a command can make once it has installed this number of filters. `-` is a stream that does not end, `IN` a recording,
    /// `OUT` a file that does not exist.
    fn calls(&self, arguments: &str, filters: usize) -> BTreeSet<Call> {
        let output = self.scratch.path("out.data");
        let mut command = Command::new(env!("CARGO_BIN_EXE_bprec"));
        command.args(arguments.split(' ').map(|argument| match argument {
            "IN" => &self.recording,
            "OUT" => output.to_str().unwrap(),
            _ => argument,
        }));
        command.env("TERM", "xterm").stdout(Stdio::null()).stdin(Stdio::null());
        let (ours, theirs) = io::pipe().map(|(read, write)| (write, read)).unwrap();
        let mut held = vec![OwnedFd::from(ours)];
        if arguments.split(' ').any(|argument| argument == "-") {
            let stream = fs::read(self.scratch.path("stream.data")).unwrap();
            // Limits the bytes to those that a pipe can hold, so that the write does not wait.
            File::from(held[0].try_clone().unwrap()).write_all(&stream[..stream.len().min(60 << 10)]).unwrap();
            command.stdin(theirs);
        }
        if arguments.contains("--tui") {
            let (ours, theirs) = terminal();
            command.stdin(theirs.try_clone().unwrap()).stdout(theirs);
            // The terminal's answer to the query of the cursor position.
            File::from(ours.try_clone().unwrap()).write_all(b"\x1b[1;1R").unwrap();
            held.push(ours);
        }
        let mut program = Tracee::start(&mut command);
        (0..filters).for_each(|_| program.run_to_filter());
        allowed(&mut program)
    }
}

/// Number of filters before a command opens files: the filter for `clone3`, and the list of allowed calls.
const OPENING: usize = 2;
/// Number of filters after all files are open.
const OPEN: usize = 3;

/// Columns of the table, each with a command and the number of its filters.
const COLUMNS: [(&str, &str, usize); 6] = [
    ("opening", "report IN", OPENING),
    ("reading", "report IN", OPEN),
    ("`--tui`", "report --tui IN", OPEN),
    ("copying", "report --redact -", OPEN),
    ("writing", "rewrite -i IN -o OUT", OPEN),
    ("in place", "recover --in-place IN", OPEN),
];
/// The first line of the table.
const HEAD: &str = "| system calls |";

/// Formats the table of these columns: calls that are allowed in the same columns share a row.
fn table(columns: &[BTreeSet<Call>]) -> String {
    let mut rows = BTreeMap::<Vec<bool>, BTreeMap<&str, Vec<&str>>>::new();
    for (name, kind) in columns.iter().flatten().collect::<BTreeSet<_>>() {
        let call = (name.clone(), kind.clone());
        let row = columns.iter().map(|column| column.contains(&call)).collect();
        rows.entry(row).or_default().entry(name).or_default().push(kind);
    }
    let names = COLUMNS.map(|(name, ..)| name).join(" | ");
    let mut text = format!("{HEAD} {names} |\n{}|\n", "| --- ".repeat(COLUMNS.len() + 1));
    for (row, calls) in rows.into_iter().rev() {
        let calls = calls.into_iter().map(|(name, kinds)| match &kinds[..] {
            [""] => format!("`{name}`"),
            kinds => format!("`{name}` ({})", kinds.join("; ")),
        });
        let cells = row.into_iter().map(|is_allowed| if is_allowed { " yes |" } else { " |" });
        text += &format!("| {} |{}\n", calls.collect::<Vec<_>>().join(", "), cells.collect::<String>());
    }
    text
}

#[test]
fn readers_can_make_the_calls_of_the_table() {
    let name = "readers_can_make_the_calls_of_the_table";
    if !Path::new("/proc/sys/kernel/seccomp/actions_avail").exists() {
        return skip(name, "the kernel has no filters of system calls");
    }
    let inputs = Inputs::new();
    let columns = COLUMNS.map(|(_, command, filters)| inputs.calls(command, filters));

    // Each command must make the calls of its column, before and after all files are open.
    let [opening, reading, screen, copying, writing, in_place] = &columns;
    let both = |one: &BTreeSet<Call>, other: &BTreeSet<Call>| one | other;
    for (command, filters, expected) in [
        ("diff IN IN", OPENING, opening),
        ("diff IN IN", OPEN, reading),
        ("annotate -i IN *", OPENING, opening),
        ("annotate -i IN *", OPEN, reading),
        ("script -i IN", OPENING, opening),
        ("script -i IN", OPEN, reading),
        ("script -i -", OPEN, copying),
        ("export --to folded -i IN", OPENING, opening),
        ("export --to folded -i IN", OPEN, reading),
        ("export --to folded -i IN -o OUT", OPENING, &both(opening, writing)),
        ("export --to folded -i IN -o OUT", OPEN, writing),
        ("recover IN -o OUT", OPENING, &both(opening, writing)),
        ("recover IN -o OUT", OPEN, writing),
        ("rewrite -i IN -o OUT", OPENING, &both(opening, writing)),
        ("recover --in-place IN", OPENING, &both(opening, in_place)),
        ("report --tui IN", OPENING, &both(opening, screen)),
    ] {
        let calls = inputs.calls(command, filters);
        let differing = &calls ^ expected;
        assert!(differing.is_empty(), "{command}, {filters} filters: {differing:?}");
    }

    let table = table(&columns);
    let document = include_str!("../docs/security.md");
    let start = document.find(HEAD).unwrap();
    let end = document[start..].find("\n\n").map_or(document.len(), |len| start + len + 1);
    if std::env::var_os("BPREC_UPDATE").is_some() {
        let updated = [&document[..start], &table, &document[end..]].concat();
        fs::write(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/security.md"), updated).unwrap();
        return;
    }
    assert!(document[start..end] == table, "docs/security.md differs; BPREC_UPDATE=1 updates it:\n{table}");
}
