//! Composes samples in the kernel, with a BPF program of bprec on a second sampling event.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use bprec_format::bprec::sampler::Parts;
use bprec_format::bprec::state::SamplerCounts;
use libbpf_rs::{MapCore, MapFlags, MapImpl, MapMut, Object, ObjectBuilder, OpenObject};

use crate::error::{Error, Result};
use crate::programs::names::SAMPLER;
use crate::programs::perf_event::Attached;
use crate::programs::quiet::{missing, quietly};
use crate::sys;
use crate::sys::FdInfo;

const OBJECT: &[u8] = include_bytes!("sampler.bpf.o");

/// Bytes of `struct sampler_config` in sampler.bpf.c: `registers u64 · parts u32 · ip_word u32 · period_word u32 · stacks u32`.
const CONFIG_BYTES: usize = 24;
/// Bytes of `struct sampler_counts`: `runs u64 · written u64 · full u64 · failed u64 · last_error u64`.
const COUNTS_BYTES: usize = 40;
const STACK_KERNEL: u32 = 1 << 0;
const STACK_USER: u32 = 1 << 1;

/// Indexes of two words in the context of the program: the instruction pointer, and the period, which follows the registers. `None` on architectures
/// that the program does not support.
const MACHINE_WORDS: Option<(u32, u32)> = if cfg!(target_arch = "x86_64") {
    Some((16, 21))
} else if cfg!(target_arch = "aarch64") {
    Some((32, 34))
} else {
    None
};

/// Selection of the data in each sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Recipe {
    /// Parts of each payload.
    pub parts: Parts,
    /// With [`Parts::REGISTERS`]: bit n selects word n of the interrupted context.
    pub registers: u64,
    /// With [`Parts::STACK`]: true to include kernel frames.
    pub kernel_stack: bool,
    /// With [`Parts::STACK`]: true to include user frames, by frame pointer.
    pub user_stack: bool,
}

/// The loaded program. It runs on the events to which it is [attached](SamplerProgram::attach). It writes payloads in the format of
/// [`bprec_format::bprec::sampler`] to the [output](SamplerProgram::set_output) of the current CPU.
#[derive(Debug)]
pub struct SamplerProgram {
    object: Object,
    id: u32,
}

impl SamplerProgram {
    /// Loads the program. The kernel unloads it when this value and all its attachments are dropped.
    ///
    /// # Errors
    /// Fails if the register layout of this architecture is unknown, or if the kernel refuses the program (before 5.7, without CAP_BPF and
    /// CAP_PERFMON); the error then includes libbpf's log.
    pub fn load(recipe: Recipe) -> Result<SamplerProgram> {
        let Some(words) = MACHINE_WORDS else {
            let unknown = io::Error::new(io::ErrorKind::Unsupported, "--bpf-sampler works only on x86-64 and arm64");
            return Err(Error::libbpf(SAMPLER)(unknown.into()));
        };
        let object = quietly(|| {
            let mut open = ObjectBuilder::default().open_memory(OBJECT)?;
            configure(&mut open, recipe, words)?;
            open.load()
        })
        .map_err(Error::not_loaded(SAMPLER))?;
        let info = with_program(&object, FdInfo::of_own)?;
        Ok(SamplerProgram { object, id: info.prog_id.unwrap_or(0) })
    }

    /// Id of the program.
    pub fn id(&self) -> u32 {
        self.id
    }

    /// Attaches the program to an event. From now on the program composes the event's samples, and no sample reaches the event's own
    /// ring.
    pub fn attach(&self, event: BorrowedFd<'_>) -> Result<Attached> {
        with_program(&self.object, |program| Attached::new(program, event, 0))
    }

    /// Sets `output`, a bpf-output event on `cpu`, as the output of runs on that CPU until this value is dropped.
    ///
    /// # Errors
    /// Fails if the kernel refuses the event or if the CPU does not exist.
    pub fn set_output(&mut self, cpu: u32, output: BorrowedFd<'_>) -> Result<()> {
        let fd = output.as_raw_fd().to_ne_bytes();
        let set = |map: MapMut<'_>| map.update(&cpu.to_ne_bytes(), &fd, MapFlags::ANY);
        let map = self.object.maps_mut().find(|map| map.name() == "sampler_output");
        map.ok_or_else(missing).and_then(set).map_err(Error::libbpf(SAMPLER))
    }

    /// Results of all runs so far, by CPU. Of each CPU, `last_errno` is the error number of its last failed sample.
    ///
    /// # Errors
    /// Fails if the map of counts cannot be read.
    pub fn counts(&self) -> Result<Vec<SamplerCounts>> {
        let map = self.object.maps().find(|map| map.name() == "sampler_counts").ok_or_else(missing);
        let read = |map: MapImpl<'_>| map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY)?.ok_or_else(missing);
        let per_cpu = map.and_then(read).map_err(Error::libbpf(SAMPLER))?;
        let cpus = per_cpu.iter().filter(|counts| counts.len() >= COUNTS_BYTES);
        let counts = cpus.map(|counts| SamplerCounts {
            runs: sys::get_u64(counts, 0),
            written: sys::get_u64(counts, 8),
            full: sys::get_u64(counts, 16),
            failed: sys::get_u64(counts, 24),
            last_errno: sys::get_u64(counts, 32) as u32,
        });
        Ok(counts.collect())
    }
}

fn with_program<T>(object: &Object, act: impl FnOnce(BorrowedFd<'_>) -> Result<T>) -> Result<T> {
    let found = object.progs().find(|program| program.name() == SAMPLER);
    act(found.ok_or_else(missing).map_err(Error::libbpf(SAMPLER))?.as_fd())
}

fn configure(open: &mut OpenObject, recipe: Recipe, (ip_word, period_word): (u32, u32)) -> libbpf_rs::Result<()> {
    let stacks = [(recipe.kernel_stack, STACK_KERNEL), (recipe.user_stack, STACK_USER)];
    let stacks = stacks.into_iter().filter(|(asked, _)| *asked).fold(0, |bits, (_, bit)| bits | bit);
    let mut config = recipe.registers.to_ne_bytes().to_vec();
    for number in [u32::from(recipe.parts.0), ip_word, period_word, stacks] {
        config.extend(number.to_ne_bytes());
    }
    let mut map = open.maps_mut().find(|map| map.name().to_string_lossy().ends_with(".rodata")).ok_or_else(missing)?;
    let value = map.initial_value_mut().and_then(|value| value.get_mut(..CONFIG_BYTES)).ok_or_else(missing)?;
    value.copy_from_slice(&config);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::programs::layout::Layout;

    #[test]
    fn structures_are_those_of_the_program() {
        let config = Layout::of(OBJECT, "sampler_config").unwrap();
        let fields = [("registers", 0), ("parts", 8), ("ip_word", 12), ("period_word", 16), ("stacks", 20)];
        assert_eq!((config.members(), config.bytes()), (fields.to_vec(), CONFIG_BYTES));
        let counts = Layout::of(OBJECT, "sampler_counts").unwrap();
        let fields = [("runs", 0), ("written", 8), ("full", 16), ("failed", 24), ("last_error", 32)];
        assert_eq!((counts.members(), counts.bytes()), (fields.to_vec(), COUNTS_BYTES));
    }
}
