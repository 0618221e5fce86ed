//! Common code of the tests against the running kernel.
#![allow(dead_code, missing_docs, unreachable_pub, clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use bprec_bpf::{Attachments, BtfCache, Probe, Profiler, ProgSnapshot, Program, Refs, Source};
use bprec_fixtures::Loaded;
use bprec_format::bpf::btf::Btf;
use libbpf_rs::{Object, ObjectBuilder, ProgramMut};
use serde_json::Value;

pub const INVENTORY: &[u8] = include_bytes!("../../../fixtures/bpf/inventory.bpf.o");

/// Returns true if this process may load programs; otherwise prints that the test is skipped.
pub fn can_load(test: &str) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let is_root = status.lines().any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"));
    if !is_root {
        println!("SKIP {test}: needs root");
        return false;
    }
    if let Some(Err(error)) = bprec_bpf::prog_ids().next() {
        println!("SKIP {test}: {error}");
        return false;
    }
    true
}

/// Returns true if the kernel compiles programs to machine code; otherwise prints that the test is skipped.
pub fn has_jit(test: &str) -> bool {
    let is_off = std::fs::read_to_string("/proc/sys/net/core/bpf_jit_enable").is_ok_and(|text| text.trim() == "0");
    if is_off {
        println!("SKIP {test}: net.core.bpf_jit_enable is 0");
    }
    !is_off
}

/// Returns true if the running kernel is of this version or newer.
pub fn kernel_is(major: u32, minor: u32) -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).map(|number| number.parse::<u32>().unwrap_or(0));
    (numbers.next().unwrap(), numbers.next().unwrap()) >= (major, minor)
}

/// Returns true if bpftool is installed; otherwise prints that the test is skipped.
pub fn has_bpftool(test: &str) -> bool {
    let found = bpftool_path().is_some();
    if !found {
        println!("SKIP {test}: no bpftool");
    }
    found
}

fn bpftool_path() -> Option<&'static str> {
    ["/usr/sbin/bpftool", "/usr/local/sbin/bpftool", "/usr/bin/bpftool"]
        .into_iter()
        .find(|path| Path::new(path).exists())
}

/// Runs bpftool and parses its output.
pub fn bpftool(args: &[&str]) -> Value {
    let output = Command::new(bpftool_path().unwrap()).arg("-j").args(args).output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
}

/// Returns the bytes that bpftool dumps into a file.
pub fn bpftool_dump(what: &str, id: u32) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("dump");
    let id = id.to_string();
    bpftool(&["prog", "dump", what, "id", &id, "file", file.to_str().unwrap()]);
    std::fs::read(file).unwrap_or_default()
}

/// Loads all programs of `inventory.bpf.c`, or only the programs in `only`. Dropping the object unloads them.
pub fn load_inventory(only: &[&str]) -> Object {
    let mut open = ObjectBuilder::default().open_memory(INVENTORY).unwrap();
    for mut program in open.progs_mut() {
        let name = program.name().to_str().unwrap().to_owned();
        program.set_autoload(only.is_empty() || only.contains(&name.as_str()));
    }
    open.load().unwrap()
}

/// Loads programs of `inventory_tracing.bpf.c`; programs that need a target get `target`. `Err` holds the reason of a failure.
pub fn load_tracing(only: &[&str], target: Option<(BorrowedFd<'_>, &str)>) -> Result<Object, String> {
    let bytes = include_bytes!("../../../fixtures/bpf/inventory_tracing.bpf.o");
    let mut open = ObjectBuilder::default().open_memory(bytes).map_err(|error| error.to_string())?;
    // libbpf prints nothing, because the caller reports refusals of this machine in one line.
    libbpf_rs::set_print(None);
    let has_ops = only.iter().any(|name| name.ends_with("_cong_avoid"));
    for mut map in open.maps_mut() {
        map.set_autocreate(has_ops).map_err(|error| error.to_string())?;
    }
    for mut program in open.progs_mut() {
        let name = program.name().to_str().unwrap().to_owned();
        program.set_autoload(only.contains(&name.as_str()));
        if let Some((fd, function)) = target
            && only.contains(&name.as_str())
        {
            program.set_attach_target(fd.as_raw_fd(), Some(function.to_owned())).map_err(|error| error.to_string())?;
        }
    }
    open.load().map_err(|error| error.to_string())
}

/// Id of a loaded program.
pub fn prog_id(object: &Object, name: &str) -> u32 {
    let program = object.progs().find(|program| program.name() == name).unwrap();
    fdinfo(program.as_fd().as_raw_fd(), "prog_id")
}

/// Reads a number from the fdinfo of a descriptor of this process.
pub fn fdinfo(fd: i32, key: &str) -> u32 {
    let text = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap();
    text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(":")?.trim().parse().ok()).unwrap()
}

/// A directory with a bpf file system in it, unmounted when dropped.
pub struct Bpffs(tempfile::TempDir);

impl Bpffs {
    pub fn mount() -> Option<Bpffs> {
        let dir = tempfile::tempdir().unwrap();
        let done = Command::new("mount").args(["-t", "bpf", "bpffs"]).arg(dir.path()).status().ok()?;
        done.success().then_some(Bpffs(dir))
    }

    pub fn path(&self) -> PathBuf {
        self.0.path().to_owned()
    }
}

impl Drop for Bpffs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

/// Reads all data of each program of an object.
pub fn snapshots(object: &Object, btfs: &BtfCache) -> Vec<ProgSnapshot> {
    object
        .progs()
        .filter(|program| program.autoload())
        .map(|program| {
            let id = prog_id(object, program.name().to_str().unwrap());
            Program::take(id).unwrap().fetch(btfs).unwrap()
        })
        .collect()
}

/// Finds the attachments of these programs.
pub fn look_around(snapshots: &[ProgSnapshot], btfs: &BtfCache) -> Attachments {
    // Other recorders that run at the same time hold the programs, too. The scan must not list them as owners.
    let references = Refs::load().and_then(|refs| refs.read()).unwrap_or_default();
    let recorders = references.iter().filter(|it| it.is_recorder).map(|it| it.id).collect();
    Attachments::scan(&snapshots.iter().collect::<Vec<_>>(), btfs, &recorders, None)
}

/// Returns `kind target` of each attachment of a program; attachments by link are marked.
pub fn attachments(around: &Attachments, prog_id: u32) -> Vec<String> {
    let of_prog = around.attachments.iter().filter(|it| it.prog_id == prog_id);
    of_prog
        .map(|it| {
            let how = if it.link_id.is_some() { "link " } else { "" };
            format!("{how}{} {}", it.kind, String::from_utf8_lossy(it.target.text()))
        })
        .collect()
}

/// A program of a loaded object, to be attached.
pub fn program<'a>(object: &'a Object, name: &str) -> ProgramMut<'a> {
    object.progs_mut().find(|program| program.name() == name).unwrap()
}

/// A perf event of this process on any CPU.
pub fn perf_event(kind: u32, config: u64) -> OwnedFd {
    let mut attr = [0u8; 64];
    attr[0..4].copy_from_slice(&kind.to_ne_bytes());
    attr[4..8].copy_from_slice(&64u32.to_ne_bytes());
    attr[8..16].copy_from_slice(&config.to_ne_bytes());
    attr[16..24].copy_from_slice(&10_000_000u64.to_ne_bytes());
    // SAFETY: `attr` is 64 readable bytes: the size in its `size` field, and the smallest size that the kernel accepts.
    let fd = unsafe { libc::syscall(libc::SYS_perf_event_open, attr.as_ptr(), 0, -1, -1, 8) };
    assert!(fd >= 0, "perf_event_open: {}", std::io::Error::last_os_error());
    // SAFETY: the kernel just made this descriptor for us.
    unsafe { OwnedFd::from_raw_fd(fd as i32) }
}

/// Attaches a program to a perf event without a link.
pub fn set_bpf(event: &OwnedFd, program: &ProgramMut<'_>) {
    const PERF_EVENT_IOC_SET_BPF: libc::c_ulong = 0x4004_2408;
    // SAFETY: the request takes a descriptor by value.
    let answer = unsafe { libc::ioctl(event.as_raw_fd(), PERF_EVENT_IOC_SET_BPF, program.as_fd().as_raw_fd()) };
    assert_eq!(answer, 0, "{}", std::io::Error::last_os_error());
}

/// Links a program to an interface by `BPF_LINK_CREATE`, for kinds of links that libbpf-rs does not support.
pub fn link_create(program: &ProgramMut<'_>, ifindex: u32, attach_type: u32) -> Option<OwnedFd> {
    let mut attr = [0u8; 64];
    attr[0..4].copy_from_slice(&program.as_fd().as_raw_fd().to_ne_bytes());
    attr[4..8].copy_from_slice(&ifindex.to_ne_bytes());
    attr[8..12].copy_from_slice(&attach_type.to_ne_bytes());
    // SAFETY: `attr` is 64 readable bytes without pointers.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, 28, attr.as_ptr(), attr.len()) };
    // SAFETY: the kernel just made this descriptor for us.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Binds a map to a program that does not use the map, by `BPF_PROG_BIND_MAP`.
pub fn bind_map(program: BorrowedFd<'_>, map: BorrowedFd<'_>) {
    let attr = [program.as_raw_fd(), map.as_raw_fd(), 0];
    // SAFETY: `attr` is 12 readable bytes without pointers.
    let answer = unsafe { libc::syscall(libc::SYS_bpf, 35, attr.as_ptr(), 12) };
    assert_eq!(answer, 0, "BPF_PROG_BIND_MAP: {}", std::io::Error::last_os_error());
}

/// Moves this thread, and its children, into their own network namespace and mount namespace, because tc mounts a missing bpf file
/// system and does not unmount it.
pub fn own_network() -> bool {
    // SAFETY: takes no pointers; the namespaces of the other threads are not touched.
    let is_own = unsafe { libc::unshare(libc::CLONE_NEWNET | libc::CLONE_NEWNS) == 0 };
    let private = || Command::new("mount").args(["--make-rprivate", "/sys"]).status();
    is_own && private().is_ok_and(|status| status.success())
}

/// A network namespace with a name, as `ip netns` makes it.
pub struct NamedNetwork(pub String);

impl NamedNetwork {
    pub fn make() -> Option<NamedNetwork> {
        let name = format!("bprec-test-{}", std::process::id());
        let made = Command::new("ip").args(["netns", "add", &name]).status().is_ok_and(|status| status.success());
        made.then_some(NamedNetwork(name))
    }

    /// Runs a command in the namespace; the word PIN in the command is replaced by the path.
    pub fn run(&self, command: &str, pin: &Path) -> bool {
        let words = command.split(' ').map(|word| if word == "PIN" { pin.to_str().unwrap() } else { word });
        let output = Command::new("ip").args(["netns", "exec", &self.0]).args(words).output().unwrap();
        if !output.status.success() {
            println!("{command}: {}", String::from_utf8_lossy(&output.stderr));
        }
        output.status.success()
    }
}

impl Drop for NamedNetwork {
    fn drop(&mut self) {
        drop(Command::new("ip").args(["netns", "del", &self.0]).status());
    }
}

/// A process of another executable that holds a descriptor, as its standard input.
pub struct Holder(Child);

impl Holder {
    pub fn of(fd: OwnedFd) -> Holder {
        let child = Command::new("sleep").arg("600").stdin(Stdio::from(fd)).spawn().unwrap();
        let holder = Holder(child);
        // The child is a copy of the test until its exec of sleep.
        let comm = format!("/proc/{}/comm", holder.pid());
        while std::fs::read(&comm).unwrap() != b"sleep\n" {
            std::thread::yield_now();
        }
        holder
    }

    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A profiler without events; `None`, with a skip message, if the machine does not allow one.
pub fn profiler(test: &str) -> Option<Profiler> {
    profiler_of(test, &[], 0)
}

/// Profilers without events, of each kind that the machine allows: with an fsession program if possible, and with a pair.
pub fn profilers(test: &str) -> Vec<Profiler> {
    let Some(profiler) = profiler(test) else { return Vec::new() };
    let pair = profiler.has_sessions().then(|| Profiler::load_pair(&[], 0, cpus()).unwrap());
    pair.into_iter().chain([profiler]).collect()
}

/// Returns a profiler like [`profiler`], for these events. An event with its bit set in `partial` may be missing on some CPUs.
pub fn profiler_of(test: &str, events: &[Source], partial: u32) -> Option<Profiler> {
    if !can_load(test) || !has_jit(test) {
        return None;
    }
    match Profiler::load(events, partial, cpus()) {
        Ok(profiler) => Some(profiler),
        Err(error) if error.is_permission() => {
            println!("SKIP {test}: {error}");
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// One more than the highest possible CPU number.
fn cpus() -> u32 {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap();
    text.trim().rsplit([',', '-']).next().unwrap().parse::<u32>().unwrap() + 1
}

/// Attaches the profiler to function number `function` of the program `name`.
pub fn attach(profiler: &Profiler, loaded: &Loaded, name: &str, function: usize) -> Probe {
    let program = Program::take(loaded.id_of(name).unwrap()).unwrap();
    let snapshot = program.fetch(&BtfCache::new()).unwrap();
    let type_id = snapshot.info.view().functions().nth(function).unwrap().type_id.unwrap();
    profiler.attach(program.as_fd(), program.id(), type_id, 1).unwrap()
}

/// Returns the index of a function among the functions of a program.
pub fn position_of(loaded: &Loaded, program: &str, function: &str) -> usize {
    let snapshot = Program::take(loaded.id_of(program).unwrap()).unwrap().fetch(&BtfCache::new()).unwrap();
    let btf = Btf::parse(snapshot.btf.as_deref().unwrap()).unwrap();
    let name_of = |type_id| btf.func_name(type_id);
    let is_it = |type_id: Option<u32>| type_id.and_then(name_of) == Some(function.as_bytes());
    snapshot.info.view().functions().position(|found| is_it(found.type_id)).unwrap()
}
