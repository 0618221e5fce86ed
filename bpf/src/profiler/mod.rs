//! The program profiler: a pair of programs of our own around functions of others' programs, which count their runs, how
//! long those take, and what perf events come to in them.
//!
//! One pair serves a function, for all events; the events are opened once per CPU for all pairs. The end of a function is
//! attached before its begin and detached after it, so that whatever began under our eyes also ends there. Everything
//! goes with its descriptors.
//!
//! Newer kernels (7.x) have fsession: one program for both ends, with a word that belongs to the run. What that word would be for, the
//! address of the arguments does on every kernel, and is tested where runs overlap (tests/overlap.rs); and a session takes as many of the
//! trampoline's places and of its calls as a pair.

mod account;
mod gauge;
mod refusal;
mod source;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use libbpf_rs::{MapCore, ObjectBuilder};

use crate::error::{Error, Object, Result};
use crate::prog::Program;
use crate::quiet::quietly;
use crate::sys::{self, load};

use account::Account;
pub use account::{Counted, EVENTS_MAX};
pub use gauge::Gauged;
pub use refusal::{Refusals, makes_tail_calls};
pub use source::Source;

const OBJECT: &[u8] = include_bytes!("../bpf/profiler.bpf.o");
const ENTER: &str = "bprec_enter";
const LEAVE: &str = "bprec_leave";
/// `BPF_TRACE_FENTRY`
const FENTRY: u32 = 24;
/// `BPF_TRACE_FEXIT`
const FEXIT: u32 = 25;
/// `BPF_LD | BPF_IMM | BPF_DW`, and its source registers that say that the number is a map's descriptor:
/// `BPF_PSEUDO_MAP_FD`, `BPF_PSEUDO_MAP_VALUE`.
const LOAD_IMM64: u8 = 0x18;
const OF_MAP: [u8; 2] = [1, 2];
/// Bytes for what the verifier says when it refuses.
const LOG_BYTES: usize = 1 << 16;
/// `struct bpf_prog_info` up to and with `recursion_misses`.
const MISSES_END: usize = 216;

/// The bits of [`bprec_format::state::Histogram`] that [`Counted::buckets`] are divided by.
pub const HISTOGRAM_SUB_BITS: u8 = account::SUB_BITS;

/// The pair in its loaded form, ready to be copied for each function, and the events of all of them.
#[derive(Debug)]
pub struct Profiler {
    enter: Vec<u64>,
    leave: Vec<u64>,
    /// Descriptor by which the instructions know their accounts.
    accounts: i32,
    /// The other maps, by the descriptors by which the instructions know them.
    maps: Vec<(i32, OwnedFd)>,
    events_map: OwnedFd,
    events: usize,
    cpus: u32,
    gauge: gauge::Gauge,
}

/// A pair, attached; gone when this is dropped.
#[derive(Debug)]
pub struct Pair {
    id: u32,
    account: Account,
    events: usize,
    enter: Option<Half>,
    leave: Option<Half>,
    /// Of the program that saw the begin, when it is gone.
    last_misses: Option<u64>,
}

#[derive(Debug)]
struct Half {
    /// Before the program: the link is what has to go.
    _link: OwnedFd,
    program: OwnedFd,
}

/// Whether a program is one of those that count others.
pub(crate) fn is_own(program: &Program) -> Result<bool> {
    let name = program.short_name()?;
    Ok(str::from_utf8(&name).is_ok_and(is_own_name))
}

impl Profiler {
    /// Loads the pair around a program of our own that does nothing. `events` are counted, of which those whose bits are
    /// set in `partial_events` need not be there on every CPU; a run in which another cannot be read is discarded. CPUs
    /// have numbers below `cpus`.
    ///
    /// # Errors
    /// When the kernel has no trampolines or does not allow them; with libbpf's account.
    pub fn load(events: &[Source], partial_events: u32, cpus: u32) -> Result<Profiler> {
        let gauge = gauge::Gauge::load()?;
        let refused = |(source, log)| Error::Load { program: ENTER, source, log };
        // In the order of their definition.
        let constants = [&(events.len() as u32).to_ne_bytes()[..], &source::kinds(events, partial_events)].concat();
        let (object, target) = (ObjectBuilder::default().open_memory(OBJECT), gauge.program());
        let loaded = quietly(|| {
            let mut object = object?;
            for mut map in object.maps_mut() {
                let name = map.name().to_string_lossy().into_owned();
                match name.as_str() {
                    "accounts" => map.set_max_entries(cpus)?,
                    "events" => map.set_max_entries(cpus * EVENTS_MAX as u32)?,
                    _ if name.ends_with(".rodata") => map.set_initial_value(&constants)?,
                    _ => (),
                }
            }
            for mut program in object.progs_mut() {
                program.set_attach_target(target.as_raw_fd(), Some(gauge::PROGRAM.to_owned()))?;
            }
            object.load()
        })
        .map_err(refused)?;
        let unfit = |problem: &str| Error::Answer {
            call: "our program",
            object: Object::Named(ENTER),
            problem: problem.to_owned(),
        };
        let insns = |name: &str| {
            let program = loaded.progs().find(|program| program.name() == name);
            program.map(|program| program.insns().iter().map(word_of).collect()).unwrap_or_default()
        };
        let (enter, leave): (Vec<u64>, Vec<u64>) = (insns(ENTER), insns(LEAVE));
        let (mut accounts, mut events_map, mut maps) = (None, None, Vec::new());
        for map in loaded.maps() {
            let own = || map.as_fd().try_clone_to_owned().map_err(|_| unfit("no descriptor is left for its maps"));
            match map.name().to_string_lossy().as_ref() {
                "accounts" => accounts = Some(map.as_fd().as_raw_fd()),
                "events" => {
                    events_map = Some(own()?);
                    maps.push((map.as_fd().as_raw_fd(), own()?));
                }
                _ => maps.push((map.as_fd().as_raw_fd(), own()?)),
            }
        }
        let (Some(accounts), Some(events_map)) = (accounts, events_map) else { return Err(unfit("it lacks a map")) };
        Ok(Profiler { enter, leave, accounts, maps, events_map, events: events.len(), cpus, gauge })
    }

    /// Why programs of others should not be traced on this kernel, though it would let us; None when they may.
    pub fn unsafe_here() -> Option<&'static str> {
        refusal::kernel_reason()
    }

    /// Has the events' `event` on `cpu` read from `fd`, which may be closed only after the last pair is gone.
    ///
    /// # Errors
    /// When the kernel refuses: the event is inherited, or not on that CPU.
    pub fn set_event(&self, event: usize, cpu: u32, fd: BorrowedFd<'_>) -> Result<()> {
        let index = cpu * EVENTS_MAX as u32 + event as u32;
        load::put_event(self.events_map.as_fd(), index, fd).map_err(|errno| Error::Syscall {
            call: "bpf(BPF_MAP_UPDATE_ELEM)",
            object: Object::Named("events"),
            errno,
            remedy: None,
        })
    }

    /// Attaches a pair to a function of the program `id`, by the type that `func_info` has for it; one in `every` runs is
    /// measured.
    ///
    /// # Errors
    /// When the kernel refuses: with the verifier's last words, where it has any.
    pub fn attach(&self, target: BorrowedFd<'_>, id: u32, function_type_id: u32, every: u64) -> Result<Pair> {
        let account = Account::new(self.cpus, every)?;
        let half = |name, insns: &[u64], attach_type| {
            let insns = self.relocated(insns, account.map().as_raw_fd());
            let tracing = load::Tracing { name, insns: &insns, attach_type, target, function_type_id };
            let program = load_with_words(&tracing, id)?;
            let link = load::attach_tracing(program.as_fd()).map_err(|errno| Error::Attach {
                id,
                errno,
                words: match errno {
                    libc::E2BIG => "as many programs as the kernel allows trace this function already".to_owned(),
                    libc::EBUSY => "an extension has replaced this function".to_owned(),
                    _ => String::new(),
                },
            })?;
            Ok(Half { _link: link, program })
        };
        // What is in between when only one half is there is left out: the end first, then the begin.
        let leave = half(LEAVE, &self.leave, FEXIT)?;
        let enter = half(ENTER, &self.enter, FENTRY)?;
        Ok(Pair { id, account, events: self.events, enter: Some(enter), leave: Some(leave), last_misses: None })
    }

    /// The instructions with the descriptors of the maps as they are now.
    fn relocated(&self, insns: &[u64], accounts: i32) -> Vec<u64> {
        let mut relocated = insns.to_vec();
        for insn in &mut relocated {
            let bytes = insn.to_ne_bytes();
            let (code, source) = (bytes[0], source_register(bytes[1]));
            if code != LOAD_IMM64 || !OF_MAP.contains(&source) {
                continue;
            }
            let known = i32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
            let now = if known == self.accounts {
                accounts
            } else {
                let map = self.maps.iter().find(|(number, _)| *number == known);
                map.map_or(known, |(_, fd)| fd.as_raw_fd())
            };
            let mut bytes = bytes;
            bytes[4..].copy_from_slice(&now.to_ne_bytes());
            *insn = u64::from_ne_bytes(bytes);
        }
        relocated
    }
}

/// Whether a program goes by the name of one of those that count others.
fn is_own_name(name: &str) -> bool {
    [ENTER, LEAVE, gauge::PROGRAM].contains(&name)
}

/// The register of the second byte of an instruction that says what an immediate number is.
fn source_register(registers: u8) -> u8 {
    // Bitfields: which half comes first is the byte order's choice.
    if cfg!(target_endian = "little") { registers >> 4 } else { registers & 0xf }
}

/// The register of the second byte of an instruction that it writes, or that has the address it writes to.
fn target_register(registers: u8) -> u8 {
    if cfg!(target_endian = "little") { registers & 0xf } else { registers >> 4 }
}

/// The eight bytes of an instruction as the kernel reads them.
fn word_of(insn: &libbpf_rs::libbpf_sys::bpf_insn) -> u64 {
    let registers = if cfg!(target_endian = "little") {
        insn.dst_reg() | insn.src_reg() << 4
    } else {
        insn.dst_reg() << 4 | insn.src_reg()
    };
    let (offset, number) = (insn.off.to_ne_bytes(), insn.imm.to_ne_bytes());
    u64::from_ne_bytes([insn.code, registers, offset[0], offset[1], number[0], number[1], number[2], number[3]])
}

/// Loads a program, and when it is refused once more to hear why.
fn load_with_words(tracing: &load::Tracing<'_>, id: u32) -> Result<OwnedFd> {
    let errno = match load::load_tracing(tracing, &mut []) {
        Ok(program) => return Ok(program),
        Err(errno) => errno,
    };
    let mut log = vec![0; LOG_BYTES];
    load::load_tracing(tracing, &mut log).map_err(|_| {
        let log = String::from_utf8_lossy(sys::up_to_nul(&log)).into_owned();
        let words = log.lines().rfind(|line| !line.is_empty() && !line.starts_with("processed "));
        Error::Attach { id, errno, words: words.unwrap_or_default().trim().to_owned() }
    })
}

impl Pair {
    /// The program it is around.
    pub fn program_id(&self) -> u32 {
        self.id
    }

    /// What has been counted so far, over all CPUs.
    pub fn read(&self) -> Counted {
        Counted::sum(&self.read_cpus())
    }

    /// What has been counted so far on each CPU, by its number.
    pub fn read_cpus(&self) -> Vec<Counted> {
        self.account.read(self.events)
    }

    /// Runs whose begin the kernel's recursion guard kept from us.
    pub fn misses(&self) -> Option<u64> {
        self.enter.as_ref().map_or(self.last_misses, Half::misses)
    }

    /// Has one in `every` runs measured from here on.
    pub fn set_every(&self, every: u64) {
        self.account.set_every(every);
    }

    /// One in this many runs is measured.
    pub fn every(&self) -> u64 {
        self.account.every()
    }

    /// References that it holds on its program.
    pub fn references(&self) -> i64 {
        i64::from(self.enter.is_some()) + i64::from(self.leave.is_some())
    }

    /// Detaches it, the begin first. What was counted can still be read; what was being measured is discarded.
    pub fn detach(&mut self) {
        self.last_misses = self.misses();
        self.enter = None;
        self.leave = None;
    }
}

impl Half {
    fn misses(&self) -> Option<u64> {
        let (info, known) = sys::prog_block::<MISSES_END>(self.program.as_fd(), 0).ok()?;
        (known >= MISSES_END).then(|| sys::get_u64(&info, 208))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.detach();
    }
}
