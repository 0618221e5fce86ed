//! An empty program, which runs only in test runs (`BPF_PROG_TEST_RUN`).

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use libbpf_rs::ObjectBuilder;

use crate::error::{Error, Object, Result};
use crate::inspect::{BtfCache, Program};
use crate::programs::names::EMPTY;
use crate::programs::quiet::quietly;
use crate::sys;

const OBJECT: &[u8] = include_bytes!("empty.bpf.o");

/// The empty program, loaded twice: one copy for probes, one copy without a probe.
#[derive(Debug)]
pub(super) struct EmptyProgram {
    program: OwnedFd,
    /// Copy that never gets a probe.
    bare: BareProgram,
}

/// An empty program that is never traced.
#[derive(Debug)]
pub(super) struct BareProgram(OwnedFd);

impl BareProgram {
    pub(super) fn load() -> Result<BareProgram> {
        load().map(BareProgram)
    }

    /// Id of the program.
    pub(super) fn id(&self) -> Result<u32> {
        Ok(sys::FdInfo::of_own(self.0.as_fd())?.prog_id.unwrap_or(0))
    }

    /// Reads the count of runs and their total time in ns, from the kernel's run statistics.
    pub(super) fn counted(&self) -> Result<(u64, u64)> {
        sys::prog_summary(self.0.as_fd(), 0).map(|(info, _)| (info.run_cnt, info.run_time_ns))
    }

    /// Runs the program `runs` times. Returns the mean time of a run, ns.
    pub(super) fn run(&self, runs: u32) -> Result<u64> {
        run(self.0.as_fd(), runs)
    }
}

fn load() -> Result<OwnedFd> {
    let object = quietly(|| ObjectBuilder::default().open_memory(OBJECT)?.load()).map_err(Error::not_loaded(EMPTY))?;
    let program = object.progs().find(|program| program.name() == EMPTY);
    let program = program.and_then(|program| program.as_fd().try_clone_to_owned().ok());
    program.ok_or_else(|| unfit("the object does not contain the program".to_owned()))
}

impl EmptyProgram {
    pub(super) fn load() -> Result<EmptyProgram> {
        Ok(EmptyProgram { program: load()?, bare: BareProgram::load()? })
    }

    pub(super) fn program(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }

    /// Reads the count of runs of the copy without a probe, from the kernel's run statistics.
    pub(super) fn counted_runs(&self) -> Result<u64> {
        self.bare.counted().map(|(runs, _)| runs)
    }

    /// Runs the program `runs` times. Returns the mean time of a run, ns.
    pub(super) fn run(&self, runs: u32) -> Result<u64> {
        run(self.program(), runs)
    }

    /// Runs the copy without a probe `runs` times. Returns the mean time of a run, ns.
    pub(super) fn run_bare(&self, runs: u32) -> Result<u64> {
        self.bare.run(runs)
    }

    /// BTF id of the type of the program's function.
    pub(super) fn function_type_id(&self) -> Result<u32> {
        let id = sys::FdInfo::of_own(self.program())?.prog_id.unwrap_or(0);
        let snapshot = Program::take(id)?.fetch(&BtfCache::new())?;
        let function = snapshot.info.view().functions().next().and_then(|function| function.type_id);
        function.ok_or_else(|| unfit("the kernel does not report the BTF id of the program's function".to_owned()))
    }
}

/// Runs a program `runs` times. Returns the mean time of a run, ns.
fn run(program: BorrowedFd<'_>, runs: u32) -> Result<u64> {
    let refused = Error::refused("bpf(BPF_PROG_TEST_RUN)", Object::Named(EMPTY));
    sys::run::run_socket_filter(program, runs).map(u64::from).map_err(refused)
}

pub(super) fn unfit(problem: String) -> Error {
    Error::own_program(EMPTY, problem)
}
