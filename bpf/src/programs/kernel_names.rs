//! Names of kernel functions by the kernel's own look-up.
//!
//! The kernel finds the function at an address in less than a microsecond, but takes tens of milliseconds to print all symbols in `/proc/kallsyms`.

use std::num::NonZeroUsize;
use std::os::fd::AsFd;

use bprec_format::bpf::prog_info::ProgInfoBuf;
use bprec_format::bprec::state::KernelSymbol;
use libbpf_rs::{MapCore, Object, ObjectBuilder, ProgramInput};

use crate::error::{self, Error, Result};
use crate::inspect::called_from;
use crate::programs::names::NAMES;
use crate::programs::quiet::{missing, quietly};
use crate::sys::memory::SharedWords;
use crate::sys::up_to_nul;

const OBJECT: &[u8] = include_bytes!("kernel_names.bpf.o");

/// Name of the map with the addresses and the answers.
const SLOTS: &str = "bprec_slots";
/// Words of `struct slot` in kernel_names.bpf.c: the address, then the text.
const SLOT_WORDS: usize = 80;
/// Number of addresses in a run.
const ADDRESSES: usize = 32;

/// A program that looks up kernel functions.
#[derive(Debug)]
pub struct KernelNames {
    object: Object,
    slots: SharedWords,
}

impl KernelNames {
    /// Loads the program.
    ///
    /// # Errors
    /// Fails if the kernel refuses the program (before 5.16, without CAP_BPF and CAP_PERFMON).
    pub fn load() -> Result<KernelNames> {
        let object =
            quietly(|| ObjectBuilder::default().open_memory(OBJECT)?.load()).map_err(Error::not_loaded(NAMES))?;
        let words = NonZeroUsize::new((1 + ADDRESSES) * SLOT_WORDS).unwrap_or(NonZeroUsize::MIN);
        let slots = {
            let map =
                object.maps().find(|map| map.name() == SLOTS).ok_or_else(missing).map_err(Error::libbpf(NAMES))?;
            SharedWords::map(map.as_fd(), words).map_err(Error::refused("mmap", error::Object::Named(NAMES)))?
        };
        Ok(KernelNames { object, slots })
    }

    /// Functions that contain `addresses`, and functions that `programs` call, in the order of their addresses, each once. `None` if the kernel hides
    /// addresses from this process, or names no function at one of the addresses: only `/proc/kallsyms` has pages of kprobes, for example.
    ///
    /// # Errors
    /// Fails if the program cannot be run.
    pub fn functions_at(&self, addresses: &[u64], programs: &[ProgInfoBuf]) -> Result<Option<Vec<KernelSymbol>>> {
        self.run(&[])?;
        let base = self.slots.get(0);
        if base == 0 {
            return Ok(None);
        }
        let mut wanted = [addresses, &called_from(base, programs)].concat();
        wanted.retain(|addr| *addr != 0);
        wanted.sort_unstable();
        wanted.dedup();
        let mut found: Vec<KernelSymbol> = Vec::new();
        for some in wanted.chunks(ADDRESSES) {
            self.run(some)?;
            for (index, addr) in some.iter().enumerate() {
                let Some(function) = self.function(index, *addr) else { return Ok(None) };
                if found.last() != Some(&function) {
                    found.push(function);
                }
            }
        }
        Ok(Some(found))
    }

    /// Looks up at most [`ADDRESSES`] addresses.
    fn run(&self, addresses: &[u64]) -> Result<()> {
        let ending = addresses.iter().chain(&[0]).take(ADDRESSES);
        ending.enumerate().for_each(|(index, addr)| self.slots.set((1 + index) * SLOT_WORDS, *addr));
        let ran = self.object.progs_mut().next().ok_or_else(missing).and_then(|program| {
            program.test_run(ProgramInput::default())?;
            Ok(())
        });
        ran.map_err(Error::libbpf(NAMES))
    }

    /// Reads the answer for the address at this index of a run: `name+0x12/0x34`, and ` [module]` if the function belongs to a module.
    fn function(&self, index: usize, addr: u64) -> Option<KernelSymbol> {
        let words = (1 + index) * SLOT_WORDS + 1..(2 + index) * SLOT_WORDS;
        let bytes: Vec<u8> = words.flat_map(|word| self.slots.get(word).to_ne_bytes()).collect();
        parse(std::str::from_utf8(up_to_nul(&bytes)).ok()?, addr)
    }
}

fn parse(text: &str, addr: u64) -> Option<KernelSymbol> {
    let (function, module) = text.split_once(' ').map_or((text, None), |(function, module)| (function, Some(module)));
    let (name, place) = function.rsplit_once("+0x")?;
    let (offset, len_bytes) = place.split_once("/0x")?;
    let addr = addr.checked_sub(u64::from_str_radix(offset, 16).ok()?)?;
    let len_bytes = u32::from_str_radix(len_bytes, 16).ok().filter(|bytes| *bytes > 0)?;
    let name = module.map_or_else(|| name.to_owned(), |module| format!("{name} {module}"));
    Some(KernelSymbol { addr, len_bytes, name: name.into_bytes() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_of_the_kernel_are_parsed() {
        let found = |text| parse(text, 0x1234).map(|it| (it.addr, it.len_bytes, String::from_utf8(it.name).unwrap()));
        assert_eq!(found("do_work.isra.0+0x34/0x50"), Some((0x1200, 0x50, "do_work.isra.0".to_owned())));
        assert_eq!(found("fill+0x0/0x8 [ext4]"), Some((0x1234, 8, "fill [ext4]".to_owned())));
        for bad in ["0xffffffff81000000", "", "f+0x9999/0x10", "f+0x4/0x0", "f+0x4/", "f+0x/0x1"] {
            assert_eq!(found(bad), None, "{bad}");
        }
    }
}
