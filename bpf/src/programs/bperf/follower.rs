//! Followers: what events came to in tasks and cgroups.

use std::ffi::CStr;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, OwnedFd};

use libbpf_rs::{MapCore, MapFlags, Object as Loaded, ObjectBuilder, OpenObject};

use super::leader::{self, Leader};
use crate::error::{Error, Object, Result};
use crate::programs::quiet::quietly;
use crate::sys::{self, load::SharedWords};

/// Events that one follower charges at most (`EVENTS_MAX` of its source).
pub const FOLLOWED_MAX: usize = 8;

const OBJECT: &[u8] = include_bytes!("follower.bpf.o");
const FOLLOW: &str = "bprec_follow";
/// The programs, and the tracepoint that each is for.
pub(super) const PROGRAMS: [(&str, &CStr); 2] = [("bprec_inherit", c"task_newtask"), (FOLLOW, c"sched_switch")];

// Words of `struct control`.
const ENABLED: usize = 0;
const NO_ROOM: usize = 1;
/// Bytes of `struct account`: `done u64 · readings [3 × u64; EVENTS_MAX] · begun u64`.
const ACCOUNT_BYTES: usize = 16 + 24 * FOLLOWED_MAX;
/// How often an account that moves while it is read is read again.
const READ_AGAIN: usize = 8;
/// How often a CPU is asked again to run a program that is at work there at that moment.
const ASK_AGAIN: usize = 100;

/// A session's follower.
#[derive(Debug)]
pub struct Follower {
    object: Loaded,
    program: OwnedFd,
    control: SharedWords,
    events: usize,
    links: Vec<OwnedFd>,
}

/// What a follower charges to, for which it must know before it is loaded.
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

/// Which of the tasks that a task creates are charged to its account.
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
    /// When the kernel refuses it: before Linux 5.8, without BTF, without CAP_BPF and CAP_PERFMON.
    pub fn load(leaders: &[&Leader], targets: &Targets) -> Result<Follower> {
        let refused = |(source, log)| Error::Load { program: FOLLOW, source, log };
        let object = quietly(|| {
            let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
            configure(&mut open, leaders, targets)?;
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
        let controls = object.maps().find(|map| map.name() == "controls").ok_or_else(|| unfit("it lacks a map"))?;
        let words = NonZeroUsize::MIN.saturating_add(NO_ROOM);
        let control = SharedWords::map(controls.as_fd(), words).map_err(|errno| Error::Syscall {
            call: "mmap",
            object: Object::Named("controls"),
            errno,
            remedy: None,
        })?;
        // Who is created is known before anyone is charged.
        let mut links = Vec::new();
        for (name, tracepoint) in PROGRAMS.iter().filter(|(name, _)| targets.tasks || *name == FOLLOW) {
            links.push(leader::attach(program_of(name)?.as_fd(), tracepoint)?);
        }
        let program = program_of(FOLLOW)?;
        Ok(Follower { object, program, control, events: leaders.len(), links })
    }

    /// Charges a thread, by its number in the initial pid namespace, to an account from its next switch on; what it creates
    /// too, if it is to `inherit`. A thread that is charged already stays as it is; whether this one was new.
    ///
    /// # Errors
    /// When there is no room for it.
    pub fn add_task(&self, tid: u32, account: u32, inherit: Inherit) -> Result<bool> {
        // `struct followed`: `process u64 · account u32 · inherit u32`.
        let mut value = [0; 16];
        value[8..12].copy_from_slice(&account.to_ne_bytes());
        value[12..].copy_from_slice(&(inherit as u32).to_ne_bytes());
        let put = put(&self.object, "tasks", &tid.to_ne_bytes(), &value, MapFlags::NO_EXIST);
        match put {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == libbpf_rs::ErrorKind::AlreadyExists => Ok(false),
            Err(source) => Err(Error::Load { program: FOLLOW, source, log: String::new() }),
        }
    }

    /// Charges the slice in progress on `cpu` as far as its leaders have read it; false when that CPU is not online.
    ///
    /// # Errors
    /// When the kernel refuses.
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

    /// What an account has come to: value, time enabled and time running of each event.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn read(&self, account: u32) -> Result<Vec<[u64; 3]>> {
        let unreadable = |source| Error::Load { program: FOLLOW, source, log: String::new() };
        let missing = || unfit("it lacks an account");
        let map = self.object.maps().find(|map| map.name() == "accounts").ok_or_else(missing)?;
        let mut sums = vec![[0u64; 3]; self.events];
        for attempt in 1..=READ_AGAIN {
            let per_cpu = map.lookup_percpu(&account.to_ne_bytes(), MapFlags::ANY).map_err(unreadable)?;
            let per_cpu = per_cpu.ok_or_else(missing)?;
            let settled = |bytes: &Vec<u8>| sys::get_u64(bytes, 0) == sys::get_u64(bytes, ACCOUNT_BYTES - 8);
            if attempt < READ_AGAIN && !per_cpu.iter().all(settled) {
                continue;
            }
            for bytes in &per_cpu {
                for (event, sum) in sums.iter_mut().enumerate() {
                    sum.iter_mut()
                        .enumerate()
                        .for_each(|(part, it)| *it += sys::get_u64(bytes, 8 + 24 * event + 8 * part));
                }
            }
            break;
        }
        Ok(sums)
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

fn configure(open: &mut OpenObject, leaders: &[&Leader], targets: &Targets) -> libbpf_rs::Result<()> {
    // In the order of their definition.
    let config = [leaders.len() as u32, targets.tasks.into(), targets.cgroup_levels];
    for mut map in open.maps_mut() {
        let name = map.name().to_string_lossy().into_owned();
        if let Some(number) = name.strip_prefix("leader_").and_then(|number| number.parse::<usize>().ok()) {
            if let Some(leader) = leaders.get(number).or(leaders.first()) {
                map.reuse_fd(leader.readings_map())?;
            }
        } else if name == "accounts" {
            map.set_max_entries(targets.accounts.max(1))?;
        } else if name == "cgroups" {
            map.set_max_entries(targets.cgroups.len().max(1) as u32)?;
        } else if name.ends_with(".rodata") {
            map.set_initial_value(&config.map(u32::to_ne_bytes).concat())?;
        }
    }
    Ok(())
}

fn put(object: &Loaded, map: &str, key: &[u8], value: &[u8], flags: MapFlags) -> libbpf_rs::Result<()> {
    let missing = || libbpf_rs::Error::from(std::io::Error::from_raw_os_error(libc::ENOENT));
    object.maps().find(|it| it.name() == map).ok_or_else(missing)?.update(key, value, flags)
}

fn unfit(problem: &str) -> Error {
    Error::Answer { call: "our program", object: Object::Named(FOLLOW), problem: problem.to_owned() }
}
