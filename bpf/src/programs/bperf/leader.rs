//! Leaders: programs that read one event at each context switch.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use bprec_format::bpf::names::LinkType;
use bprec_host::ENOTSUPP;
use libbpf_rs::{MapCore, ObjectBuilder};

use super::attr_map::LeaderSlot;
use crate::error::{Error, Object, Result};
use crate::programs::names::LEADER;
use crate::programs::quiet::quietly;
use crate::sys::{self, Kind, load};

const OBJECT: &[u8] = include_bytes!("leader.bpf.o");
const TRACEPOINT: &std::ffi::CStr = c"sched_switch";
/// Name of the map with the last readings, in leaders of bprec and of perf.
const READINGS: &[u8] = b"prev_readings";
/// Type, key size, value size, entries and flags of the maps of readings and of differences.
const SHAPE: [u32; 5] = [PERCPU_ARRAY, 4, READING_BYTES, 1, 0];
const PERCPU_ARRAY: u32 = 6;
const READING_BYTES: u32 = 24;
/// Index of the map ids among the arrays of a program's info.
const MAP_IDS: usize = 2;

/// A leader of this session or of another session. It stays attached while any session holds its link.
#[derive(Debug)]
pub struct Leader {
    /// Keeps the leader attached.
    _link: OwnedFd,
    program: OwnedFd,
    readings: OwnedFd,
    link_id: u32,
    program_id: u32,
    readings_id: u32,
    differences_id: u32,
}

/// Reading of an event on one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventReading {
    /// CPU number.
    pub cpu: u32,
    /// Count of the event.
    pub value: u64,
    /// Time for which the event was enabled, ns.
    pub enabled_ns: u64,
    /// Time for which the event was on the hardware, ns.
    pub running_ns: u64,
}

impl Leader {
    /// Loads and attaches a leader for one event. `events` has the event's descriptors, each with its CPU number, which must be below `cpus`. The
    /// leader keeps the event open.
    ///
    /// # Errors
    /// Fails if the kernel refuses the leader: before Linux 5.10, without CAP_BPF and CAP_PERFMON.
    pub fn load(cpus: u32, events: &[(u32, BorrowedFd<'_>)]) -> Result<Leader> {
        let object = quietly(|| {
            let mut object = ObjectBuilder::default().open_memory(OBJECT)?;
            for mut map in object.maps_mut().filter(|map| map.name() == "events") {
                map.set_max_entries(cpus)?;
            }
            object.load()
        })
        .map_err(Error::not_loaded(LEADER))?;
        let map = |name: &str| {
            let map = object.maps().find(|map| map.name() == name);
            map.and_then(|map| map.as_fd().try_clone_to_owned().ok())
                .ok_or_else(|| unfit("the object lacks a map that the program needs"))
        };
        let (array, readings, differences) = (map("events")?, map("prev_readings")?, map("diff_readings")?);
        let program = object.progs().find(|program| program.name() == LEADER);
        let program = program.and_then(|program| program.as_fd().try_clone_to_owned().ok());
        let program = program.ok_or_else(|| unfit("the object does not contain the program"))?;
        for (cpu, event) in events {
            load::put_event(array.as_fd(), *cpu, *event)
                .map_err(Error::refused("bpf(BPF_MAP_UPDATE_ELEM)", Object::Named("events")))?;
        }
        let link = attach(program.as_fd(), TRACEPOINT)?;
        let (info, _) = sys::link_info(link.as_fd(), 0)?;
        Ok(Leader {
            link_id: info.id(),
            program_id: info.prog_id(),
            readings_id: id_of(&readings)?,
            differences_id: id_of(&differences)?,
            _link: link,
            program,
            readings,
        })
    }

    /// Opens the leader with these ids of its link and its map of differences. Returns `LeaderSlot::Free` if an id now belongs to another object, and
    /// `LeaderSlot::Foreign` if the leader has no map of readings.
    pub(super) fn find(link_id: u32, differences_id: u32) -> Result<LeaderSlot> {
        let link = sys::fd_by_id(Kind::Link, link_id)?;
        let (info, arrays) = sys::link_info(link.as_fd(), link_id)?;
        if info.link_type() != LinkType::RAW_TRACEPOINT.0 || arrays.name.as_deref() != Some(TRACEPOINT.to_bytes()) {
            return Ok(LeaderSlot::Free);
        }
        let program_id = info.prog_id();
        let program = sys::fd_by_id(Kind::Prog, program_id)?;
        let (mut readings, mut has_differences) = (None, false);
        let ids = sys::prog_info(program.as_fd(), program_id)?.arrays[MAP_IDS].take().unwrap_or_default();
        for id in ids.chunks_exact(4).map(|id| sys::get_u32(id, 0)) {
            let map = sys::fd_by_id(Kind::Map, id)?;
            let about = sys::map_info(map.as_fd(), id)?;
            let is_fit = [about.type_, about.key_size, about.value_size, about.max_entries, about.map_flags] == SHAPE;
            if id == differences_id {
                has_differences = is_fit;
            } else if is_fit && sys::c_chars(&about.name) == READINGS {
                readings = Some((id, map));
            }
        }
        // The kernel reuses ids: the link or the map now belongs to another object.
        if !has_differences {
            return Ok(LeaderSlot::Free);
        }
        let Some((readings_id, readings)) = readings else {
            let problem =
                format!("program {program_id} reads the event, but has no map `prev_readings` with its readings");
            return Ok(LeaderSlot::Foreign(problem));
        };
        Ok(LeaderSlot::Leader(Leader {
            _link: link,
            program,
            readings,
            link_id,
            program_id,
            readings_id,
            differences_id,
        }))
    }

    /// Makes the leader read the event on `cpu` now. Returns false if the CPU is offline.
    ///
    /// If the leader is already running on that CPU, newer kernels skip the requested run; older kernels run it in the middle of the other run.
    ///
    /// # Errors
    /// Fails if the kernel refuses the run.
    pub fn read_now(&self, cpu: u32) -> Result<bool> {
        run_on_cpu(self.program.as_fd(), cpu, LEADER).map(|ran| ran.is_some())
    }

    /// Returns the last reading of each possible CPU.
    ///
    /// # Errors
    /// Fails if the map of readings cannot be read.
    pub fn readings(&self) -> Result<Vec<EventReading>> {
        let entries = sys::Entries::of(&self.readings, self.readings_id)?;
        let mut values = Vec::new();
        entries.lookup(&0u32.to_ne_bytes(), &mut values)?;
        let values = values.chunks_exact(READING_BYTES as usize).zip(entries.cpus());
        let reading = |(value, cpu): (&[u8], &u32)| EventReading {
            cpu: *cpu,
            value: sys::get_u64(value, 0),
            enabled_ns: sys::get_u64(value, 8),
            running_ns: sys::get_u64(value, 16),
        };
        Ok(values.map(reading).collect())
    }

    /// Id of the leader's program.
    pub fn program_id(&self) -> u32 {
        self.program_id
    }

    pub(super) fn link_id(&self) -> u32 {
        self.link_id
    }

    pub(super) fn differences_id(&self) -> u32 {
        self.differences_id
    }

    /// Map of the last readings, for followers.
    pub(super) fn readings_map(&self) -> BorrowedFd<'_> {
        self.readings.as_fd()
    }
}

/// Returns false only if the kernel reports that no link has this id.
pub(super) fn link_is_there(id: u32) -> bool {
    !sys::fd_by_id(Kind::Link, id).is_err_and(|error| error.is_gone())
}

pub(super) fn attach(program: BorrowedFd<'_>, tracepoint: &'static std::ffi::CStr) -> Result<OwnedFd> {
    let object = Object::Named(tracepoint.to_str().unwrap_or_default());
    sys::attach_raw_tracepoint(program, tracepoint).map_err(Error::refused("bpf(BPF_RAW_TRACEPOINT_OPEN)", object))
}

/// Runs the program on a CPU and returns its return value; `None` if the CPU is offline.
pub(super) fn run_on_cpu(program: BorrowedFd<'_>, cpu: u32, name: &'static str) -> Result<Option<u32>> {
    match sys::run::run_on_cpu(program, cpu) {
        Ok(returned) => Ok(Some(returned)),
        Err(libc::ENXIO) => Ok(None),
        Err(errno) => Err(Error::Syscall {
            call: "bpf(BPF_PROG_TEST_RUN)",
            object: Object::Named(name),
            errno,
            remedy: ([libc::ENOTSUP, ENOTSUPP].contains(&errno)).then_some("needs Linux 5.10"),
        }),
    }
}

fn id_of(map: &OwnedFd) -> Result<u32> {
    let info = sys::FdInfo::of_own(map.as_fd())?;
    info.map_id.ok_or_else(|| unfit("the kernel does not report the id of a map"))
}

fn unfit(problem: &str) -> Error {
    Error::own_program(LEADER, problem)
}
