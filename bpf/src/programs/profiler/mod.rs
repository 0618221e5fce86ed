//! The program profiler: programs of our own around functions of others' programs, which count their runs, how long those take, and what
//! perf events come to in them.
//!
//! Around a function is a session (fsession, from Linux 7.0 on): one program, called at both ends and attached to both by one call. Where
//! the kernel or the processor has no sessions it is a pair (fentry, fexit), of which the end of a function is attached before its begin and
//! detached after it. Either way whatever began under our eyes also ends there. One session or pair serves a function, for all events;
//! the events are opened once per CPU for all functions. Everything goes with its descriptors.
//!
//! A session takes as many of the trampoline's places and of its calls as a pair, and counting takes as long. What it has over a pair: it is
//! there or not, never half; its begins and ends cannot come in between each other; and it is one program to load, attach and detach.

mod calibrate;
mod per_cpu;
mod refusal;
mod source;

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use libbpf_rs::{MapCore, ObjectBuilder};

use crate::error::{Error, Object, Result};
use crate::programs::quiet::quietly;
use crate::sys::{self, load};

pub use calibrate::Gauged;
use per_cpu::Account;
pub use per_cpu::{Counted, EVENTS_MAX};
pub use refusal::{Refusals, makes_tail_calls};
pub use source::Source;

const OBJECT: &[u8] = include_bytes!("profiler.bpf.o");
/// The programs, with their attach types: `BPF_TRACE_FENTRY`, `BPF_TRACE_FEXIT`, `BPF_TRACE_FSESSION`.
const ENTER: (&str, u32) = ("bprec_enter", 24);
const LEAVE: (&str, u32) = ("bprec_leave", 25);
const SESSION: (&str, u32) = ("bprec_session", 58);
/// A pair, in the order in which it is attached: what is in between when only one of them is there is left out.
const PAIR: [(&str, u32); 2] = [LEAVE, ENTER];
/// The section that is the accounts' map.
const ACCOUNTS: &str = ".bss.accounts";
/// `BPF_LD | BPF_IMM | BPF_DW`, and its source registers that say that the number is a map's descriptor:
/// `BPF_PSEUDO_MAP_FD`, `BPF_PSEUDO_MAP_VALUE`.
const LOAD_IMM64: u8 = 0x18;
const OF_MAP: [u8; 2] = [1, 2];
/// Bytes for what the verifier says when it refuses.
const LOG_BYTES: usize = 1 << 16;
/// `struct bpf_prog_info` up to and with `recursion_misses`.
const MISSES_END: usize = 216;

/// The bits of [`bprec_format::state::Histogram`] that [`Counted::buckets`] are divided by.
pub const HISTOGRAM_SUB_BITS: u8 = per_cpu::SUB_BITS;

/// A session or a pair in its loaded form, ready to be copied for each function, and the events of all of them.
#[derive(Debug)]
pub struct Profiler {
    /// In the order in which they are attached.
    templates: Vec<Template>,
    /// Descriptor by which the instructions know their accounts.
    accounts: i32,
    /// The other maps, by the descriptors by which the instructions know them.
    maps: Vec<(i32, OwnedFd)>,
    events_map: OwnedFd,
    events: usize,
    cpus: u32,
    gauge: calibrate::Gauge,
}

/// A program with its instructions.
#[derive(Debug)]
struct Template {
    name: &'static str,
    attach_type: u32,
    insns: Vec<u64>,
}

/// A session or a pair around a function, attached; gone when this is dropped.
#[derive(Debug)]
pub struct Pair {
    id: u32,
    account: Account,
    events: usize,
    /// In the order in which they were attached.
    ends: Vec<End>,
    /// The most that was ever sure.
    misses: AtomicU64,
    /// When there are no programs any more.
    last_misses: Option<u64>,
}

/// A program at one end of a function, or at both.
#[derive(Debug)]
struct End {
    link: Option<OwnedFd>,
    program: OwnedFd,
    /// From some moment after this on it runs: attaching takes its time.
    after: Instant,
}

impl Profiler {
    /// Loads a session, or else a pair, around a program of our own that does nothing. `events` are counted, of which those whose bits are
    /// set in `partial_events` need not be there on every CPU; a run in which another cannot be read is discarded. CPUs
    /// have numbers below `cpus`.
    ///
    /// # Errors
    /// When the kernel has no trampolines or does not allow them; with libbpf's account.
    pub fn load(events: &[Source], partial_events: u32, cpus: u32) -> Result<Profiler> {
        let session = Profiler::load_as(&[SESSION], events, partial_events, cpus);
        // What is refused for another reason than that there are no sessions is so again, in better known words.
        session.or_else(|_| Profiler::load_as(&PAIR, events, partial_events, cpus))
    }

    /// The same, with a pair on every kernel.
    ///
    /// # Errors
    /// As [`Profiler::load`].
    pub fn load_pair(events: &[Source], partial_events: u32, cpus: u32) -> Result<Profiler> {
        Profiler::load_as(&PAIR, events, partial_events, cpus)
    }

    fn load_as(
        programs: &[(&'static str, u32)],
        events: &[Source],
        partial_events: u32,
        cpus: u32,
    ) -> Result<Profiler> {
        let gauge = calibrate::Gauge::load()?;
        let name = programs.first().map_or("", |(name, _)| name);
        let refused = |(source, log)| Error::Load { program: name, source, log };
        // In the order of their definition.
        let numbers = [events.len() as u32, cpus].map(u32::to_ne_bytes).concat();
        let constants = [&numbers[..], &source::kinds(events, partial_events)].concat();
        let (object, target) = (ObjectBuilder::default().open_memory(OBJECT), gauge.program());
        let loaded = quietly(|| {
            let mut object = object?;
            for mut map in object.maps_mut() {
                let name = map.name().to_string_lossy().into_owned();
                match name.as_str() {
                    ACCOUNTS => map.set_value_size(per_cpu::BYTES * cpus)?,
                    "events" => map.set_max_entries(cpus * EVENTS_MAX as u32)?,
                    _ if name.ends_with(".rodata") => map.set_initial_value(&constants)?,
                    _ => (),
                }
            }
            for mut program in object.progs_mut() {
                program.set_autoload(programs.iter().any(|(name, _)| program.name() == *name));
                program.set_attach_target(target.as_raw_fd(), Some(calibrate::PROGRAM.to_owned()))?;
            }
            object.load()
        })
        .map_err(refused)?;
        let unfit = |problem: &str| Error::Answer {
            call: "our program",
            object: Object::Named(name),
            problem: problem.to_owned(),
        };
        let template = |(name, attach_type): &(&'static str, u32)| {
            let program = loaded.progs().find(|program| program.name() == *name);
            let insns = program.map(|program| program.insns().iter().map(word_of).collect()).unwrap_or_default();
            Template { name, attach_type: *attach_type, insns }
        };
        let templates = programs.iter().map(template).collect();
        let (mut accounts, mut events_map, mut maps) = (None, None, Vec::new());
        for map in loaded.maps() {
            let own = || map.as_fd().try_clone_to_owned().map_err(|_| unfit("no descriptor is left for its maps"));
            match map.name().to_string_lossy().as_ref() {
                ACCOUNTS => accounts = Some(map.as_fd().as_raw_fd()),
                "events" => {
                    events_map = Some(own()?);
                    maps.push((map.as_fd().as_raw_fd(), own()?));
                }
                _ => maps.push((map.as_fd().as_raw_fd(), own()?)),
            }
        }
        let (Some(accounts), Some(events_map)) = (accounts, events_map) else { return Err(unfit("it lacks a map")) };
        Ok(Profiler { templates, accounts, maps, events_map, events: events.len(), cpus, gauge })
    }

    /// Why programs of others should not be traced on this kernel, though it would let us; None when they may.
    pub fn unsafe_here() -> Option<&'static str> {
        refusal::kernel_reason()
    }

    /// Whether one session is attached to each function, and not a pair.
    pub fn has_sessions(&self) -> bool {
        self.templates.iter().any(|template| template.name == SESSION.0)
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

    /// Attaches a session or a pair to a function of the program `id`, by the type that `func_info` has for it; one in `every` runs is
    /// measured.
    ///
    /// # Errors
    /// When the kernel refuses: with the verifier's last words, where it has any.
    pub fn attach(&self, target: BorrowedFd<'_>, id: u32, function_type_id: u32, every: u64) -> Result<Pair> {
        let account = Account::new(self.cpus, every)?;
        let end = |template: &Template| {
            let insns = self.relocated(&template.insns, account.map().as_raw_fd());
            let Template { name, attach_type, .. } = *template;
            let tracing = load::Tracing { name, insns: &insns, attach_type, target, function_type_id };
            let program = load_with_words(&tracing, id)?;
            let after = Instant::now();
            let link = load::attach_tracing(program.as_fd()).map_err(|errno| Error::Attach {
                id,
                errno,
                words: match errno {
                    libc::E2BIG => "as many programs as the kernel allows trace this function already".to_owned(),
                    libc::EBUSY => "an extension has replaced this function".to_owned(),
                    _ => String::new(),
                },
            })?;
            Ok(End { link: Some(link), program, after })
        };
        let ends = self.templates.iter().map(end).collect::<Result<_>>()?;
        Ok(Pair { id, account, events: self.events, ends, misses: AtomicU64::new(0), last_misses: None })
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

/// Whether a program goes by the name of one that counts others or finds out what that costs, of this process or another.
pub fn counts_others(name: &[u8]) -> bool {
    str::from_utf8(name).is_ok_and(is_own_name)
}

/// Whether a program goes by the name of one of those that count others.
fn is_own_name(name: &str) -> bool {
    [ENTER.0, LEAVE.0, SESSION.0, calibrate::PROGRAM].contains(&name)
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

    /// Runs so far, over all CPUs: much less to read than all of it.
    pub fn runs(&self) -> u64 {
        self.account.begun()
    }

    /// What has been counted so far on each CPU, by its number.
    pub fn read_cpus(&self) -> Vec<Counted> {
        self.account.read(self.events)
    }

    /// Runs whose begin the kernel's recursion guard kept from us. Around a session, of which the kernel counts begins and ends that it
    /// refused together, it is what is sure: two runs that are under way may hide one that was missed, until they end.
    pub fn misses(&self) -> Option<u64> {
        match &self.ends[..] {
            [] => self.last_misses,
            [session] => {
                // In this order: what ends meanwhile has begun.
                let ended = self.account.ended();
                let refused = session.misses()?;
                let begun = self.account.begun();
                // Each run has two ends, seen or refused, but for those that are under way.
                let sure = (ended + refused).saturating_sub(begun).div_ceil(2);
                Some(self.misses.fetch_max(sure, Ordering::Relaxed).max(sure))
            }
            [.., begin] => begin.misses(),
        }
    }

    /// Has one in `every` runs measured from here on.
    pub fn set_every(&self, every: u64) {
        self.account.set_every(every);
    }

    /// One in this many runs is measured.
    pub fn every(&self) -> u64 {
        self.account.every()
    }

    /// A moment before the first run that it could count, as near as is known; None when it is detached.
    pub fn began(&self) -> Option<Instant> {
        self.ends.last().map(|end| end.after)
    }

    /// References that it holds on its program.
    pub fn references(&self) -> i64 {
        self.ends.len() as i64
    }

    /// Detaches it, of a pair the begin first. What was counted can still be read; what was being measured is discarded.
    pub fn detach(&mut self) {
        self.ends.iter_mut().rev().for_each(|end| end.link = None);
        self.last_misses = self.misses();
        self.ends.clear();
    }
}

impl End {
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
