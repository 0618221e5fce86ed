//! Counts samples by stack in the kernel, with a BPF program of bprec on the sampling event.
//!
//! # A drain neither loses a sample nor counts it twice
//!
//! There are two tables. The program counts into the active table, which is in the slot of an array of maps; the other table is empty.
//! [`Aggregator::drain`] puts the empty table into the slot and then removes all entries from the old table.
//!
//! 1. A run of the program is one RCU read-side critical section (the handler of the event opens it around the program). The program
//!    reads the slot once, so each run uses one table until it ends.
//! 2. `BPF_MAP_UPDATE_ELEM` on an array of maps returns only after a grace period. The kernel guarantees this for maps of maps, so
//!    that user space knows when no running program uses the old map. A run that read the old table from the slot began before the
//!    update, so it has ended when the call returns. A run that begins later uses the new table.
//! 3. Therefore no program writes to the old table while `drain` reads it: each entry is complete, and no entry appears behind the
//!    reader. The call that copies an entry also deletes it, so each entry is read once. When the kernel reports that no entry is
//!    left, the table is empty and ready for the next drain.
//!
//! If a sample finds no free entry, or another CPU holds a lock of the table, the program adds the sample to overflow counts of the CPU.
//! These counts only grow, and readers take differences: a sample counted during a drain belongs to that drain or to the next.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use bprec_format::{CONTEXT_MAX, context};
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, Object, ObjectBuilder, OpenObject};

use crate::error::{self, Error, Result};
use crate::programs::names::AGGREGATE;
use crate::programs::perf_event::Attached;
use crate::programs::quiet::{missing, quietly};
use crate::sys;

const OBJECT: &[u8] = include_bytes!("aggregate.bpf.o");

/// Limit on the words of a call chain in a table entry (`WORDS` in aggregate.bpf.c).
const WORDS: usize = 130;
/// Bytes of `struct key`: `ip u64 · hash u64 · cgroup u64 · tgid u32 · tid u32 · cpu u32 · words u16 · kernel_words u16 · comm [u8; 16]`.
const KEY_BYTES: usize = 56;
/// Bytes of `struct entry`: `samples u64 · period u64 · first_ns u64 · chain [u64; WORDS]`.
const ENTRY_BYTES: usize = 24 + 8 * WORDS;
/// Bytes of `struct per_cpu_stats`: `samples u64 · period u64 · overflow_samples u64 · overflow_period u64`.
const STATS_BYTES: usize = 32;
/// Limit on calls that read one table. A call ends early while another CPU holds a lock of the table.
const TRIES: usize = 1000;

/// Value of `config.machine` in aggregate.bpf.c for this architecture: it selects the layout of registers and period. `None` if the program does not
/// support the architecture.
const MACHINE: Option<u32> = if cfg!(target_arch = "x86_64") {
    Some(1)
} else if cfg!(target_arch = "aarch64") {
    Some(2)
} else if cfg!(target_arch = "riscv64") {
    Some(3)
} else if cfg!(target_arch = "s390x") {
    Some(4)
} else {
    None
};

/// The loaded program with its two tables.
#[derive(Debug)]
pub struct Aggregator {
    object: Object,
    tables: [MapHandle; 2],
    /// Index of the table that is in the slot.
    active: usize,
    keys: Vec<u8>,
    entries: Vec<u8>,
    chain: Vec<u64>,
}

/// User-space data in the key of a stack, in addition to thread, CPU, cgroup and kernel call chain. Samples with different keys are counted
/// separately.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UserDetail {
    /// True if the key has the user call chain.
    pub chains: bool,
    /// True if the key has the instruction pointer of samples in user mode. If both fields are false, [`Stack::ip`] of these samples is 0.
    pub addresses: bool,
}

/// Samples of one thread on one CPU at one address, with one call chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stack<'a> {
    /// Instruction pointer.
    pub ip: u64,
    /// Process id and thread id in the initial pid namespace.
    pub pid_tid: (u32, u32),
    /// CPU number.
    pub cpu: u32,
    /// Id of the cgroup (v2).
    pub cgroup: u64,
    /// Count of samples.
    pub samples: u64,
    /// Sum of the periods of these samples.
    pub period: u64,
    /// Time of the first sample, ns of `CLOCK_MONOTONIC`.
    pub first_ns: u64,
    /// Call chain in the format of perf samples, with `PERF_CONTEXT_*` words.
    pub chain: &'a [u64],
}

/// Sample counts of one CPU since the program was loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PerCpuStats {
    /// Count of all samples, including the samples that did not fit into the table.
    pub samples: u64,
    /// Sum of the periods of all samples.
    pub period: u64,
    /// Count of samples that did not fit into the table.
    pub overflow_samples: u64,
    /// Sum of the periods of the samples that did not fit.
    pub overflow_period: u64,
}

impl Aggregator {
    /// Loads the program with two tables of `entries` entries each. The program does not run before it is attached.
    ///
    /// # Errors
    /// Fails if the kernel refuses the program (before 5.6, without CAP_BPF and CAP_PERFMON); the error includes libbpf's log.
    pub fn load(entries: u32, user: UserDetail) -> Result<Aggregator> {
        let Some(machine) = MACHINE else {
            let unknown = io::Error::new(io::ErrorKind::Unsupported, "--aggregate does not support this architecture");
            return Err(Error::libbpf(AGGREGATE)(unknown.into()));
        };
        let (object, tables) = quietly(|| {
            let tables = [table(entries)?, table(entries)?];
            let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
            configure(&mut open, machine, user, &tables[0])?;
            let object = open.load()?;
            put(&object, &tables[0])?;
            Ok((object, tables))
        })
        .map_err(Error::not_loaded(AGGREGATE))?;
        let room = entries as usize;
        Ok(Aggregator {
            object,
            tables,
            active: 0,
            // The kernel provides pages of zeroed memory only when they are written, and a table seldom fills up: the buffers cost little.
            keys: vec![0; room * KEY_BYTES],
            entries: vec![0; room * ENTRY_BYTES],
            chain: Vec::new(),
        })
    }

    /// Attaches the program to an event. From now on the program counts the event's samples, and no sample reaches a ring.
    pub fn attach(&self, event: BorrowedFd<'_>) -> Result<Attached> {
        let program = self.object.progs().find(|program| program.name() == AGGREGATE);
        let program = program.ok_or_else(missing).map_err(Error::libbpf(AGGREGATE))?;
        Attached::new(program.as_fd(), event, 0)
    }

    /// Calls `each` for every stack that was counted since the last drain, in no particular order.
    ///
    /// # Errors
    /// Fails if the tables cannot be switched or read. Stacks passed to `each` before the error are valid.
    pub fn drain(&mut self, mut each: impl FnMut(&Stack<'_>)) -> Result<()> {
        let full = self.active;
        put(&self.object, &self.tables[1 - full]).map_err(Error::libbpf(AGGREGATE))?;
        self.active = 1 - full;
        for _ in 0..TRIES {
            let (taken, end) =
                sys::take_batch(self.tables[full].as_fd(), &mut self.keys, &mut self.entries, KEY_BYTES, ENTRY_BYTES);
            let keys = self.keys.chunks_exact(KEY_BYTES);
            for (key, entry) in keys.zip(self.entries.chunks_exact(ENTRY_BYTES)).take(taken) {
                let (words, kernel_words) = (sys::get_u16(key, 36) as usize, sys::get_u16(key, 38) as usize);
                let words = (0..words.min(WORDS)).map(|word| sys::get_u64(entry, 24 + 8 * word));
                with_contexts(words, kernel_words, &mut self.chain);
                each(&Stack {
                    ip: sys::get_u64(key, 0),
                    cgroup: sys::get_u64(key, 16),
                    pid_tid: (sys::get_u32(key, 24), sys::get_u32(key, 28)),
                    cpu: sys::get_u32(key, 32),
                    samples: sys::get_u64(entry, 0),
                    period: sys::get_u64(entry, 8),
                    first_ns: sys::get_u64(entry, 16),
                    chain: &self.chain,
                });
            }
            match end {
                Ok(()) | Err(libc::EAGAIN | libc::EBUSY | libc::EDEADLK | libc::ETIMEDOUT) => (),
                Err(libc::ENOENT) => return Ok(()),
                Err(errno) => return Err(unreadable(errno)),
            }
        }
        Err(unreadable(libc::EBUSY))
    }

    /// Reads the sample counts of each CPU.
    ///
    /// # Errors
    /// Fails if the map of counts cannot be read.
    pub fn accounts(&self) -> Result<Vec<(u32, PerCpuStats)>> {
        // A per-CPU map has one value per possible CPU, and the numbers of possible CPUs can have gaps.
        let cpus = bprec_host::possible_cpus()?;
        let read = || {
            let map = self.object.maps().find(|map| map.name() == "per_cpu").ok_or_else(missing)?;
            map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)?.ok_or_else(missing)
        };
        let accounts = read().map_err(Error::libbpf(AGGREGATE))?;
        let whole = accounts.iter().filter(|bytes| bytes.len() >= STATS_BYTES);
        Ok(cpus.into_iter().zip(whole.map(|bytes| PerCpuStats::parse(bytes))).collect())
    }
}

/// Builds a call chain in the format of perf samples. Before Linux 6.1, programs get chains without the `PERF_CONTEXT_*` words; the
/// function then inserts them. The first `kernel_words` words belong to the kernel.
fn with_contexts(words: impl Iterator<Item = u64>, kernel_words: usize, chain: &mut Vec<u64>) {
    chain.clear();
    for (at, word) in words.enumerate() {
        let part = match at {
            0 if kernel_words > 0 => Some(context::KERNEL),
            _ if at == kernel_words => Some(context::USER),
            _ => None,
        };
        chain.extend(part.filter(|_| word < CONTEXT_MAX));
        chain.push(word);
    }
}

impl PerCpuStats {
    /// Adds samples.
    pub fn add(&mut self, samples: u64, period: u64) {
        self.samples += samples;
        self.period += period;
    }

    fn parse(bytes: &[u8]) -> PerCpuStats {
        PerCpuStats {
            samples: sys::get_u64(bytes, 0),
            period: sys::get_u64(bytes, 8),
            overflow_samples: sys::get_u64(bytes, 16),
            overflow_period: sys::get_u64(bytes, 24),
        }
    }
}

/// Creates a table. Its memory is allocated in advance, because programs in interrupt context cannot wait for memory.
fn table(entries: u32) -> libbpf_rs::Result<MapHandle> {
    let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as _,
        ..Default::default()
    };
    MapHandle::create(MapType::Hash, Some("bprec_stacks"), KEY_BYTES as u32, ENTRY_BYTES as u32, entries, &options)
}

fn configure(open: &mut OpenObject, machine: u32, user: UserDetail, inner: &MapHandle) -> libbpf_rs::Result<()> {
    for mut map in open.maps_mut() {
        if map.name() == "tables" {
            map.set_inner_map_fd(inner.as_fd())?;
        } else if map.name().to_string_lossy().ends_with(".rodata") {
            let config = [machine, user.chains.into(), user.addresses.into()];
            map.set_initial_value(&config.map(u32::to_ne_bytes).concat())?;
        }
    }
    Ok(())
}

/// Puts a table into the slot. When the call returns, no run of the program uses the previous table.
fn put(object: &Object, table: &MapHandle) -> libbpf_rs::Result<()> {
    let slot = object.maps().find(|map| map.name() == "tables").ok_or_else(missing)?;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&table.as_fd());
    slot.update(&0u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY)
}

fn unreadable(errno: i32) -> Error {
    let remedy = (errno == libc::EINVAL).then_some("needs Linux 5.6");
    Error::Syscall {
        call: "bpf(BPF_MAP_LOOKUP_AND_DELETE_BATCH)",
        object: error::Object::Named("of the map of counted stacks"),
        errno,
        remedy,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::layout::Layout;

    #[test]
    fn chains_without_context_words_get_them() {
        let chain = |words: &[u64], kernel_words| {
            let mut chain = vec![7];
            with_contexts(words.iter().copied(), kernel_words, &mut chain);
            chain
        };
        const KERNEL: u64 = 0xffff_ffff_8100_0000;
        let marked = [context::KERNEL, KERNEL, KERNEL, context::USER, 0x40_0000];
        assert_eq!(chain(&[KERNEL, KERNEL, 0x40_0000], 2), marked);
        assert_eq!(chain(&marked, 3), marked, "a chain that has context words is unchanged");
        assert_eq!(chain(&[0x40_0000], 0), [context::USER, 0x40_0000]);
        assert_eq!(chain(&[KERNEL], 1), [context::KERNEL, KERNEL]);
        assert_eq!(chain(&[], 0), []);
    }

    #[test]
    fn structures_are_those_of_the_program() {
        let key = Layout::of(OBJECT, "key").unwrap();
        let fields =
            [("ip", 0), ("cgroup", 16), ("tgid", 24), ("tid", 28), ("cpu", 32), ("words", 36), ("kernel_words", 38)];
        fields.iter().for_each(|(name, at)| assert_eq!(key.offset(name), Some(*at), "{name}"));
        assert_eq!(key.bytes(), KEY_BYTES);
        let entry = Layout::of(OBJECT, "entry").unwrap();
        let fields = [("samples", 0), ("period", 8), ("first_ns", 16), ("chain", 24)];
        assert_eq!((entry.members(), entry.bytes()), (fields.to_vec(), ENTRY_BYTES));
        let stats = Layout::of(OBJECT, "per_cpu_stats").unwrap();
        let fields = [("samples", 0), ("period", 8), ("overflow_samples", 16), ("overflow_period", 24)];
        assert_eq!((stats.members(), stats.bytes()), (fields.to_vec(), STATS_BYTES));
        let config = Layout::of_variable(OBJECT, "config").unwrap();
        assert_eq!(config.members(), [("machine", 0), ("user_chains", 4), ("user_ips", 8)]);
    }
}
