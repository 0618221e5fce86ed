//! Loads the counting programs once and copies them for each function.

use std::num::NonZeroUsize;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use libbpf_rs::{MapCore, ObjectBuilder};

use super::empty::EmptyProgram;
use super::insn::{source_register, word_of};
use super::per_cpu::{self, EVENTS_MAX, FunctionStats};
use super::probe::{End, Probe};
use super::refusal;
use super::source::{self, Source};
use crate::error::{Error, Object, Result};
use crate::programs::names;
use crate::programs::quiet::quietly;
use crate::sys::{self, load, memory::SharedWords};

const OBJECT: &[u8] = include_bytes!("profiler.bpf.o");
/// Program at the entry of a function, with its attach type `BPF_TRACE_FENTRY`.
const ENTER: (&str, u32) = (names::ENTER, 24);
/// Program at the exit of a function, with its attach type `BPF_TRACE_FEXIT`.
const LEAVE: (&str, u32) = (names::LEAVE, 25);
/// Program at both entry and exit of a function, with its attach type `BPF_TRACE_FSESSION`.
const SESSION: (&str, u32) = (names::SESSION, 58);
/// A pair in the order of attachment: the end first, so that the end of every counted begin is seen.
const PAIR: [(&str, u32); 2] = [LEAVE, ENTER];
/// Section that becomes the map of [`FunctionStats`].
const PER_CPU: &str = ".bss.per_cpu";
/// Section with one word: the time that counting adds to a run, ns.
const OVERHEAD: &str = ".bss.overhead";
/// True if other CPUs may see this CPU's stores in another order. x86 and s390x keep the order.
const STORES_ARE_REORDERED: bool = !cfg!(any(target_arch = "x86_64", target_arch = "s390x"));
/// `BPF_LD | BPF_IMM | BPF_DW`
const LOAD_IMM64: u8 = 0x18;
/// Source registers of [`LOAD_IMM64`] that mark the immediate as the descriptor of a map: `BPF_PSEUDO_MAP_FD`, `BPF_PSEUDO_MAP_VALUE`.
const OF_MAP: [u8; 2] = [1, 2];
/// Size of the buffer for the verifier's log, bytes.
const LOG_BYTES: usize = 1 << 16;

/// Programs of a session (fsession) or pair (fentry, fexit), which are copied for each function, and the events that all copies count.
#[derive(Debug)]
pub struct Profiler {
    /// Programs in the order of attachment.
    templates: Vec<Template>,
    /// Descriptor of the map of per-CPU counts in the instructions of the templates. It is replaced in each copy, because each copy has its own
    /// counts.
    per_cpu: i32,
    /// All other maps, each with its descriptor number in the instructions of the templates.
    maps: Vec<(i32, OwnedFd)>,
    events_map: OwnedFd,
    /// One word: the time that counting adds to a run, ns.
    overhead: SharedWords,
    pub(super) events: usize,
    cpus: u32,
    pub(super) empty: EmptyProgram,
}

/// A program to copy.
#[derive(Debug)]
struct Template {
    name: &'static str,
    attach_type: u32,
    insns: Vec<u64>,
}

impl Profiler {
    /// Loads a session, or a pair if sessions are not available, around an empty program of our own. The programs count `events`. An event with its
    /// bit set in `partial_events` may be missing on some CPUs. If any other event cannot be read in a run, the run is discarded. CPU numbers must be
    /// below `cpus`.
    ///
    /// # Errors
    /// Fails if the kernel has no trampolines or refuses the programs; the error includes libbpf's log.
    pub fn load(events: &[Source], partial_events: u32, cpus: u32) -> Result<Profiler> {
        let session = Profiler::load_as(&[SESSION], events, partial_events, cpus);
        // The error of the session is ignored: if its cause is not the lack of sessions, the pair fails too, and that error is returned.
        session.or_else(|_| Profiler::load_as(&PAIR, events, partial_events, cpus))
    }

    /// Loads a pair even if sessions are available. Everything else is as in [`Profiler::load`].
    pub fn load_pair(events: &[Source], partial_events: u32, cpus: u32) -> Result<Profiler> {
        Profiler::load_as(&PAIR, events, partial_events, cpus)
    }

    fn load_as(
        programs: &[(&'static str, u32)],
        events: &[Source],
        partial_events: u32,
        cpus: u32,
    ) -> Result<Profiler> {
        let empty = EmptyProgram::load()?;
        let name = programs.first().map_or("", |(name, _)| name);
        let constants = constants(events, partial_events, cpus);
        let (object, target) = (ObjectBuilder::default().open_memory(OBJECT), empty.program());
        let loaded = quietly(|| {
            let mut object = object?;
            for mut map in object.maps_mut() {
                let name = map.name().to_string_lossy().into_owned();
                match name.as_str() {
                    PER_CPU => map.set_value_size(per_cpu::BYTES * cpus)?,
                    "events" => map.set_max_entries(cpus * EVENTS_MAX as u32)?,
                    _ if name.ends_with(".rodata") => map.set_initial_value(&constants)?,
                    _ => (),
                }
            }
            for mut program in object.progs_mut() {
                program.set_autoload(programs.iter().any(|(name, _)| program.name() == *name));
                program.set_attach_target(target.as_raw_fd(), Some(names::EMPTY.to_owned()))?;
            }
            object.load()
        })
        .map_err(Error::not_loaded(name))?;
        let unfit = |problem: &str| Error::own_program(name, problem);
        let template = |(name, attach_type): &(&'static str, u32)| {
            let program = loaded.progs().find(|program| program.name() == *name);
            let insns = program.map(|program| program.insns().iter().map(word_of).collect()).unwrap_or_default();
            Template { name, attach_type: *attach_type, insns }
        };
        let templates = programs.iter().map(template).collect();
        let (mut per_cpu, mut events_map, mut overhead, mut maps) = (None, None, None, Vec::new());
        for map in loaded.maps() {
            let own = || {
                map.as_fd().try_clone_to_owned().map_err(|_| {
                    unfit(
                        "no file descriptor is left for the program's maps; raise the limit of open files (ulimit -n)",
                    )
                })
            };
            match map.name().to_string_lossy().as_ref() {
                PER_CPU => per_cpu = Some(map.as_fd().as_raw_fd()),
                "events" => {
                    events_map = Some(own()?);
                    maps.push((map.as_fd().as_raw_fd(), own()?));
                }
                OVERHEAD => {
                    let words = SharedWords::map(map.as_fd(), NonZeroUsize::MIN);
                    overhead = Some(words.map_err(|_| unfit("cannot map the memory of the overhead map"))?);
                    maps.push((map.as_fd().as_raw_fd(), own()?));
                }
                _ => maps.push((map.as_fd().as_raw_fd(), own()?)),
            }
        }
        let (Some(per_cpu), Some(events_map), Some(overhead)) = (per_cpu, events_map, overhead) else {
            return Err(unfit("the object lacks a map that the program needs"));
        };
        Ok(Profiler { templates, per_cpu, maps, events_map, overhead, events: events.len(), cpus, empty })
    }

    /// Returns the reason why programs of other users must not be traced on this kernel, even if the kernel allows it; `None` if they may be traced.
    pub fn unsafe_here() -> Option<&'static str> {
        refusal::kernel_reason()
    }

    /// Returns true if each function gets a session, false if it gets a pair.
    pub fn has_sessions(&self) -> bool {
        self.templates.iter().any(|template| template.name == names::SESSION)
    }

    /// Sets the overhead that probes subtract from the time of a run before they count it in [`ProbeCounts::buckets`](super::ProbeCounts::buckets).
    /// Applies to all probes from now on. [`Profiler::calibrate`] sets the overhead that it measures.
    pub fn subtract(&self, overhead_ns: u64) {
        self.overhead.set(0, overhead_ns);
    }

    /// Sets the descriptor `fd` from which the programs read event number `event` on `cpu`. Close `fd` only after the last probe was dropped.
    ///
    /// # Errors
    /// Fails if the kernel refuses the event, because it is inherited or not on that CPU.
    pub fn set_event(&self, event: usize, cpu: u32, fd: BorrowedFd<'_>) -> Result<()> {
        let index = cpu * EVENTS_MAX as u32 + event as u32;
        load::put_event(self.events_map.as_fd(), index, fd)
            .map_err(Error::refused("bpf(BPF_MAP_UPDATE_ELEM)", Object::Named("events")))
    }

    /// Attaches a session or a pair to a function of the program `id`. `function_type_id` is the function's type in `func_info`. One in
    /// `every` runs is measured.
    ///
    /// # Errors
    /// Fails if the kernel refuses; the error includes the last line of the verifier's log, if the verifier wrote one.
    pub fn attach(&self, target: BorrowedFd<'_>, id: u32, function_type_id: u32, every: u64) -> Result<Probe> {
        let stats = FunctionStats::new(self.cpus, every)?;
        let end = |template: &Template| {
            let insns = self.relocated(&template.insns, stats.map().as_raw_fd());
            let Template { name, attach_type, .. } = *template;
            let tracing = load::Tracing { name, insns: &insns, attach_type, target, function_type_id };
            let program = load_with_words(&tracing, id)?;
            let after = Instant::now();
            let link = sys::attach_tracing(program.as_fd()).map_err(|errno| Error::Attach {
                id,
                errno,
                words: match errno {
                    libc::E2BIG => {
                        "the function already has the largest number of tracing programs that the kernel allows"
                            .to_owned()
                    }
                    libc::EBUSY => "an extension program has replaced the function".to_owned(),
                    _ => String::new(),
                },
            })?;
            Ok(End::new(link, program, after))
        };
        let ends = self.templates.iter().map(end).collect::<Result<_>>()?;
        Ok(Probe::new(id, stats, self.events, ends))
    }

    /// Copies the instructions and replaces the descriptor numbers by the current descriptors of the maps.
    fn relocated(&self, insns: &[u64], per_cpu: i32) -> Vec<u64> {
        let mut relocated = insns.to_vec();
        for insn in &mut relocated {
            let bytes = insn.to_ne_bytes();
            let (code, source) = (bytes[0], source_register(bytes[1]));
            if code != LOAD_IMM64 || !OF_MAP.contains(&source) {
                continue;
            }
            let known = i32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
            let now = if known == self.per_cpu {
                per_cpu
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

/// Loads a program. If the kernel refuses it, loads it again with a log, to report the verifier's reason.
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

/// Builds the constants of the programs: `.rodata`.
fn constants(events: &[Source], partial_events: u32, cpus: u32) -> Vec<u8> {
    let numbers = [events.len() as u32, cpus].map(u32::to_ne_bytes).concat();
    [&numbers[..], &source::kinds(events, partial_events), &u32::from(STORES_ARE_REORDERED).to_ne_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::layout::Layout;

    #[test]
    fn constants_are_where_the_programs_look_for_them() {
        let layout = Layout::of_section(OBJECT, ".rodata").unwrap();
        let at = ["events_used", "cpus_used", "event_kinds", "stores_are_reordered"].map(|name| layout.offset(name));
        assert_eq!(at, [Some(0), Some(4), Some(8), Some(16)]);
        assert_eq!(constants(&[Source::Leading], 0, 2).len(), layout.bytes());
        let overhead = Layout::of_section(OBJECT, OVERHEAD).unwrap();
        assert_eq!((overhead.offset("overhead_ns"), overhead.bytes()), (Some(0), 8));
        assert_eq!(Layout::of_section(OBJECT, PER_CPU).unwrap().bytes(), per_cpu::BYTES as usize);
    }
}
