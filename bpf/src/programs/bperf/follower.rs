//! Followers: what events came to in tasks and cgroups.

use std::ffi::CStr;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use libbpf_rs::{MapCore, MapFlags, Object as Loaded, ObjectBuilder, OpenObject};

use super::leader::{self, Leader};
use crate::error::{Error, Object, Result};
use crate::programs::names::{FOLLOW, INHERIT};
use crate::programs::quiet::{missing, quietly};
use crate::sys::memory::SharedWords;

/// Events that one follower charges at most (`EVENTS_MAX` of its source).
pub const FOLLOWED_MAX: usize = 8;

const OBJECT: &[u8] = include_bytes!("follower.bpf.o");
/// The programs, and the tracepoint that each is for.
const PROGRAMS: [(&str, &CStr); 2] = [(INHERIT, c"task_newtask"), (FOLLOW, c"sched_switch")];

// Words of `struct control`.
const ENABLED: usize = 0;
const NO_ROOM: usize = 1;
// Words of `struct target_stats`, of which there is one for each target and CPU.
const SEQUENCE: usize = 0;
const READINGS: usize = 1;
const TARGET_WORDS: usize = 32;
/// Limit on reading numbers again that move while they are read: they are written for some ten nanoseconds at a context switch.
const PATIENCE: Duration = Duration::from_millis(5);
/// Before this, programs like these must not have memory allocated while they run.
const ALLOCATES_SINCE: (u32, u32) = (6, 1);
/// `BPF_F_NO_PREALLOC`
const NO_PREALLOC: u32 = 1;
/// The helper that cgroups are found by, and since when tracing programs have it.
const CGROUP_HELPER: &str = "bpf_get_current_ancestor_cgroup_id";

/// Number of requests to a CPU to run a program that is at work there at that moment.
const ASK_AGAIN: usize = 100;

/// A session's follower.
#[derive(Debug)]
pub struct Follower {
    object: Loaded,
    program: OwnedFd,
    control: SharedWords,
    /// Words of target t on CPU c from `(t * cpus + c) * TARGET_WORDS` on.
    stats: SharedWords,
    cpus: usize,
    events: usize,
    links: Vec<OwnedFd>,
}

/// Targets of a follower, which it must know before it is loaded.
#[derive(Debug, Clone, Default)]
pub struct Targets {
    /// Number of accounts.
    pub accounts: u32,
    /// Tasks will be followed, see [`Follower::add_task`].
    pub tasks: bool,
    /// Cgroups by id, and the account of each; what is below them is charged to it as well.
    pub cgroups: Vec<(u64, u32)>,
    /// Bits of the levels of the hierarchy (0 is its root) on which those are.
    pub cgroup_levels: u32,
}

/// Tasks that a task creates and that are charged to its account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inherit {
    /// None.
    Nothing,
    /// Threads of its process.
    Threads,
    /// Processes too.
    All,
}

impl Follower {
    /// Loads a follower of these leaders, at most [`FOLLOWED_MAX`] of them, and attaches it behind them. It charges nothing yet.
    ///
    /// # Errors
    /// Fails if the kernel refuses it: before Linux 5.8, without BTF, without CAP_BPF and CAP_PERFMON.
    pub fn load(leaders: &[&Leader], targets: &Targets) -> Result<Follower> {
        let cpus = bprec_host::possible_cpus()?.last().map_or(1, |last| last + 1);
        let object = quietly(|| {
            let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
            configure(&mut open, leaders, targets, cpus)?;
            let object = open.load()?;
            for (id, account) in &targets.cgroups {
                put(&object, "cgroups", &id.to_ne_bytes(), &account.to_ne_bytes(), MapFlags::ANY)?;
            }
            Ok(object)
        })
        .map_err(refused)?;
        let program_of = |name: &str| {
            let program = object.progs().find(|program| program.name() == name);
            program
                .and_then(|program| program.as_fd().try_clone_to_owned().ok())
                .ok_or_else(|| unfit("it is not there"))
        };
        let control = mapped(&object, "controls", NO_ROOM + 1)?;
        let stats = mapped(&object, "targets", targets.accounts.max(1) as usize * cpus as usize * TARGET_WORDS)?;
        // New tasks are known before anyone is charged.
        let mut links = Vec::new();
        for (name, tracepoint) in PROGRAMS.iter().filter(|(name, _)| targets.tasks || *name == FOLLOW) {
            links.push(leader::attach(program_of(name)?.as_fd(), tracepoint)?);
        }
        let program = program_of(FOLLOW)?;
        Ok(Follower { object, program, control, stats, cpus: cpus as usize, events: leaders.len(), links })
    }

    /// Charges a thread, by its number in the initial pid namespace, to an account from its next switch on; what it creates
    /// too, if it is to `inherit`. A thread that is charged already stays as it is; whether this one was new.
    ///
    /// # Errors
    /// Fails if there is no room for it.
    pub fn add_task(&self, tid: u32, account: u32, inherit: Inherit) -> Result<bool> {
        // `struct followed`: `process u64 · target u32 · inherit u32`.
        let mut value = [0; 16];
        value[8..12].copy_from_slice(&account.to_ne_bytes());
        value[12..].copy_from_slice(&(inherit as u32).to_ne_bytes());
        let put = put(&self.object, "tasks", &tid.to_ne_bytes(), &value, MapFlags::NO_EXIST);
        match put {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == libbpf_rs::ErrorKind::AlreadyExists => Ok(false),
            Err(source) => Err(Error::libbpf(FOLLOW)(source)),
        }
    }

    /// Charges the slice in progress on `cpu` as far as its leaders have read it; false when that CPU is not online.
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    pub fn charge_now(&self, cpu: u32) -> Result<bool> {
        for _ in 0..ASK_AGAIN {
            match leader::run_on_cpu(self.program.as_fd(), cpu, FOLLOW)? {
                None => return Ok(false),
                // It was at work there already.
                Some(0) => std::thread::yield_now(),
                Some(_) => return Ok(true),
            }
        }
        Ok(true)
    }

    /// Begins to charge. What leaders read before the last [`Follower::charge_now`] of a CPU is not charged.
    pub fn enable(&self) {
        self.control.set(ENABLED, 1);
    }

    /// Counts of an account: value, time enabled and time running of each event.
    ///
    /// # Errors
    /// Fails if it cannot be read.
    pub fn read(&self, account: u32) -> Result<Vec<[u64; 3]>> {
        let mut sums = vec![[0u64; 3]; self.events];
        for cpu in 0..self.cpus {
            let at = (account as usize * self.cpus + cpu) * TARGET_WORDS;
            let on_cpu = self.read_at(at).ok_or_else(|| unfit("its counts keep changing while they are read"))?;
            for (sum, reading) in sums.iter_mut().zip(on_cpu) {
                sum.iter_mut().zip(reading).for_each(|(sum, part)| *sum += part);
            }
        }
        Ok(sums)
    }

    /// The readings of one target on one CPU; `None` when they did not keep still for long enough to be read together.
    fn read_at(&self, at: usize) -> Option<Vec<[u64; 3]>> {
        let mut deadline = None;
        loop {
            let sequence = self.stats.get(at + SEQUENCE);
            let part = |event: usize, part: usize| self.stats.get(at + READINGS + 3 * event + part);
            let readings = (0..self.events).map(|event| [0, 1, 2].map(|it| part(event, it))).collect();
            if sequence.is_multiple_of(2) && self.stats.get(at + SEQUENCE) == sequence {
                return Some(readings);
            }
            if Instant::now() > *deadline.get_or_insert_with(|| Instant::now() + PATIENCE) {
                return None;
            }
            std::hint::spin_loop();
        }
    }

    /// Tasks that were created and found no room: they are not charged.
    pub fn no_room(&self) -> u64 {
        self.control.get(NO_ROOM)
    }

    /// Ends charging. What was charged can still be read.
    pub fn detach(&mut self) {
        self.control.set(ENABLED, 0);
        self.links.clear();
    }
}

fn configure(open: &mut OpenObject, leaders: &[&Leader], targets: &Targets, cpus: u32) -> libbpf_rs::Result<()> {
    let config = constants(leaders.len(), targets, cpus);
    for mut program in open.progs_mut() {
        program.set_autoload([FOLLOW, INHERIT].iter().any(|name| program.name() == *name));
    }
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some(number) = name.strip_prefix("leader_").and_then(|number| number.parse::<usize>().ok()) {
            if let Some(leader) = leaders.get(number).or(leaders.first()) {
                map.reuse_fd(leader.readings_map())?;
            }
        } else if name == "targets" {
            map.set_max_entries(targets.accounts.max(1) * cpus)?;
        } else if name == "tasks" {
            map.set_map_flags(table_flags(bprec_host::kernel_version()))?;
        } else if name == "cgroups" {
            map.set_max_entries(targets.cgroups.len().max(1) as u32)?;
        } else if name.ends_with(".rodata") {
            map.set_initial_value(&config)?;
        }
    }
    Ok(())
}

/// Why the programs were not loaded.
fn refused((source, log): (libbpf_rs::Error, String)) -> Error {
    if log.contains(&format!("unknown func {CGROUP_HELPER}")) {
        return unfit(
            "counting by cgroup needs Linux 5.14 or later; count processes (-p) or the whole machine (-a) here",
        );
    }
    Error::not_loaded(FOLLOW)((source, log))
}

/// The flags of the table of tasks, before the kernel is asked to make it.
fn table_flags(kernel: (u32, u32)) -> u32 {
    if kernel < ALLOCATES_SINCE { 0 } else { NO_PREALLOC }
}

/// Constants of the programs: `.rodata`.
fn constants(leaders: usize, targets: &Targets, cpus: u32) -> Vec<u8> {
    [leaders as u32, targets.tasks.into(), targets.cgroup_levels, cpus].map(u32::to_ne_bytes).concat()
}

/// The first words of a map's memory.
fn mapped(object: &Loaded, name: &'static str, words: usize) -> Result<SharedWords> {
    let map = object.maps().find(|map| map.name() == name).ok_or_else(|| unfit("it lacks a map"))?;
    let words = NonZeroUsize::new(words).unwrap_or(NonZeroUsize::MIN);
    SharedWords::map(map.as_fd(), words).map_err(Error::refused("mmap", Object::Named(name)))
}

fn put(object: &Loaded, map: &str, key: &[u8], value: &[u8], flags: MapFlags) -> libbpf_rs::Result<()> {
    object.maps().find(|it| it.name() == map).ok_or_else(missing)?.update(key, value, flags)
}

fn unfit(problem: &str) -> Error {
    Error::own_program(FOLLOW, problem)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::layout::Layout;

    #[test]
    fn kernels_that_allow_no_allocation_while_programs_run_are_given_the_memory_before() {
        assert_eq!([(5, 10), (5, 15), (6, 0)].map(table_flags), [0; 3]);
        assert_eq!([(6, 1), (7, 3)].map(table_flags), [NO_PREALLOC; 2]);
    }

    #[test]
    fn a_kernel_without_the_helper_for_cgroups_is_told_in_one_sentence() {
        let answer = || libbpf_rs::Error::from(std::io::Error::from_raw_os_error(libc::EINVAL));
        let log = "libbpf: prog 'bprec_follow': -- BEGIN PROG LOAD LOG --\n\
                   156: (85) call bpf_get_current_ancestor_cgroup_id#123\n\
                   unknown func bpf_get_current_ancestor_cgroup_id#123\n-- END PROG LOAD LOG --\n";
        let said = refused((answer(), log.to_owned())).to_string();
        assert!(said.contains("needs Linux 5.14") && !said.contains("BEGIN PROG LOAD"), "{said}");
        let other = refused((answer(), "libbpf: something else".to_owned())).to_string();
        assert!(other.contains("something else"), "{other}");
    }

    #[test]
    fn structures_are_those_of_the_programs() {
        let stats = Layout::of(OBJECT, "target_stats").unwrap();
        assert_eq!(stats.members(), [("sequence", 8 * SEQUENCE), ("readings", 8 * READINGS)]);
        assert_eq!(stats.bytes(), 8 * TARGET_WORDS);
        let followed = Layout::of(OBJECT, "followed").unwrap();
        assert_eq!((followed.members(), followed.bytes()), (vec![("process", 0), ("target", 8), ("inherit", 12)], 16));
        let control = Layout::of(OBJECT, "control").unwrap();
        assert_eq!(control.members(), [("enabled", 8 * ENABLED), ("no_room", 8 * NO_ROOM)]);
        let constant = Layout::of_section(OBJECT, ".rodata").unwrap();
        let names = ["events_used", "with_tasks", "cgroup_levels", "cpus_used"];
        assert_eq!(names.map(|name| constant.offset(name)), [Some(0), Some(4), Some(8), Some(12)]);
        assert_eq!(constants(1, &Targets::default(), 1).len(), constant.bytes());
    }
}
