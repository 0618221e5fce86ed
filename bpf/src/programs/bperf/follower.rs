//! Followers: programs that add up event counts by task and by cgroup.

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

/// Limit on the events of one follower (`EVENTS_MAX` of its source).
pub const FOLLOWED_MAX: usize = 8;

const OBJECT: &[u8] = include_bytes!("follower.bpf.o");
/// Programs of the follower, each with its tracepoint.
const PROGRAMS: [(&str, &CStr); 2] = [(INHERIT, c"task_newtask"), (FOLLOW, c"sched_switch")];

// Offsets in `struct control`, in words of 64 bits.
const ENABLED: usize = 0;
const NO_ROOM: usize = 1;
// Offsets in `struct target_stats`, in words of 64 bits. There is one structure per target and CPU.
const SEQUENCE: usize = 0;
const READINGS: usize = 1;
const TARGET_WORDS: usize = 32;
/// Limit on the time for retries while the program changes the counts being read. The program writes for some ten nanoseconds at a context switch.
const PATIENCE: Duration = Duration::from_millis(5);
/// First Linux version on which these programs may use a map that allocates memory while they run.
const ALLOCATES_SINCE: (u32, u32) = (6, 1);
/// `BPF_F_NO_PREALLOC`
const NO_PREALLOC: u32 = 1;
/// Helper by which the follower finds the cgroup of a task. Tracing programs have it since Linux 5.14.
const CGROUP_HELPER: &str = "bpf_get_current_ancestor_cgroup_id";

/// Limit on attempts to run the program on a CPU. The kernel skips an attempt while the program already runs on that CPU.
const ASK_AGAIN: usize = 100;

/// The follower of one session.
#[derive(Debug)]
pub struct Follower {
    object: Loaded,
    program: OwnedFd,
    control: SharedWords,
    /// Counts. The words of target t on CPU c begin at `(t * cpus + c) * TARGET_WORDS`.
    stats: SharedWords,
    cpus: usize,
    events: usize,
    links: Vec<OwnedFd>,
}

/// Tasks and cgroups for which a follower adds up counts. The sizes are fixed when the follower is loaded.
#[derive(Debug, Clone, Default)]
pub struct Targets {
    /// Count of accounts. An account is the sum of the counts of the tasks and cgroups that are charged to it.
    pub accounts: u32,
    /// True if tasks will be added, see [`Follower::add_task`].
    pub tasks: bool,
    /// Pairs of cgroup id and account. Descendants of the cgroup are counted in the same account.
    pub cgroups: Vec<(u64, u32)>,
    /// Bit mask of the hierarchy levels (0 is the root) on which these cgroups are.
    pub cgroup_levels: u32,
}

/// Tasks that are charged to the account of the task that creates them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inherit {
    /// No new tasks.
    Nothing,
    /// Threads of the same process.
    Threads,
    /// Threads and processes.
    All,
}

impl Follower {
    /// Loads a follower of at most [`FOLLOWED_MAX`] leaders and attaches its programs after theirs. It charges nothing before [`Follower::enable`].
    ///
    /// # Errors
    /// Fails if the kernel refuses the programs: before Linux 5.8, without BTF, without CAP_BPF and CAP_PERFMON.
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
                .ok_or_else(|| unfit("the object does not contain the program"))
        };
        let control = mapped(&object, "controls", NO_ROOM + 1)?;
        let stats = mapped(&object, "targets", targets.accounts.max(1) as usize * cpus as usize * TARGET_WORDS)?;
        // The program for new tasks is attached first, so that no new task is missed once charging begins.
        let mut links = Vec::new();
        for (name, tracepoint) in PROGRAMS.iter().filter(|(name, _)| targets.tasks || *name == FOLLOW) {
            links.push(leader::attach(program_of(name)?.as_fd(), tracepoint)?);
        }
        let program = program_of(FOLLOW)?;
        Ok(Follower { object, program, control, stats, cpus: cpus as usize, events: leaders.len(), links })
    }

    /// Charges a thread to an account from its next context switch on. `tid` is the thread id in the initial pid namespace; `inherit` selects
    /// which of the tasks that the thread creates are charged, too. Returns false, and changes nothing, if the thread is already charged.
    ///
    /// # Errors
    /// Fails if the map of tasks is full.
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

    /// Charges the counts of the time slice in progress on `cpu`, up to the last readings of the leaders. Returns false if the CPU is offline.
    ///
    /// # Errors
    /// Fails if the kernel refuses the run.
    pub fn charge_now(&self, cpu: u32) -> Result<bool> {
        for _ in 0..ASK_AGAIN {
            match leader::run_on_cpu(self.program.as_fd(), cpu, FOLLOW)? {
                None => return Ok(false),
                // The kernel skipped this run, because the program was already running on that CPU.
                Some(0) => std::thread::yield_now(),
                Some(_) => return Ok(true),
            }
        }
        Ok(true)
    }

    /// Starts charging. On each CPU, counts before the last [`Follower::charge_now`] are not charged.
    pub fn enable(&self) {
        self.control.set(ENABLED, 1);
    }

    /// Reads the counts of an account: value, time enabled (ns) and time running (ns) of each event.
    ///
    /// # Errors
    /// Fails if the counts change during every attempt to read them.
    pub fn read(&self, account: u32) -> Result<Vec<[u64; 3]>> {
        let mut sums = vec![[0u64; 3]; self.events];
        for cpu in 0..self.cpus {
            let at = (account as usize * self.cpus + cpu) * TARGET_WORDS;
            let on_cpu = self.read_at(at).ok_or_else(|| unfit("the counts kept changing while bprec read them"))?;
            for (sum, reading) in sums.iter_mut().zip(on_cpu) {
                sum.iter_mut().zip(reading).for_each(|(sum, part)| *sum += part);
            }
        }
        Ok(sums)
    }

    /// Reads the counts of one target on one CPU, at word `at`. Returns `None` if they change during every attempt.
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

    /// Count of new tasks that are not charged, because the map of tasks was full.
    pub fn no_room(&self) -> u64 {
        self.control.get(NO_ROOM)
    }

    /// Stops charging and detaches the programs. The counts can still be read.
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

/// Converts a load failure into an error with its cause.
fn refused((source, log): (libbpf_rs::Error, String)) -> Error {
    if log.contains(&format!("unknown func {CGROUP_HELPER}")) {
        return unfit(
            "counting by cgroup needs Linux 5.14 or later; count processes (-p) or the whole machine (-a) here",
        );
    }
    Error::not_loaded(FOLLOW)((source, log))
}

/// Flags of the map of tasks on this kernel version.
fn table_flags(kernel: (u32, u32)) -> u32 {
    if kernel < ALLOCATES_SINCE { 0 } else { NO_PREALLOC }
}

/// Builds the constants of the programs: `.rodata`.
fn constants(leaders: usize, targets: &Targets, cpus: u32) -> Vec<u8> {
    [leaders as u32, targets.tasks.into(), targets.cgroup_levels, cpus].map(u32::to_ne_bytes).concat()
}

/// Maps the first `words` words of a map's memory.
fn mapped(object: &Loaded, name: &'static str, words: usize) -> Result<SharedWords> {
    let map = object
        .maps()
        .find(|map| map.name() == name)
        .ok_or_else(|| unfit("the object lacks a map that the program needs"))?;
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
