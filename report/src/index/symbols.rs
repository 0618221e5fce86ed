//! The kernel's own code: named functions, and the ranges of its text and modules.

use super::intervals::AddressIntervals;
use super::kernel::{Dispatch, Role, meaning, stem};
use bprec_format::bprec::state::KernelSymbol;
use std::borrow::Cow;

/// Name of a function, and the distance of an address from its start.
pub(crate) type SymbolAndOffset<'n> = (&'n [u8], u64);

/// Kernel functions by address.
#[derive(Debug, Default, Clone)]
pub(crate) struct KernelSymbols {
    /// Functions, one per address.
    functions: AddressIntervals<KernelFunction>,
}

#[derive(Debug, Clone)]
struct KernelFunction {
    /// Name with the compiler's suffixes, and after a space the module.
    name: Vec<u8>,
    role: Role,
    /// True if the function runs programs or identifies a hook.
    dispatches: bool,
}

/// Length, bytes, assumed for a symbol that has none in the recording.
const LEN_LIMIT: u64 = 1 << 20;

impl KernelSymbols {
    /// Sorts the symbols. If an address has several names, keeps the first in byte order, so that the order in the recording does not matter.
    pub(crate) fn new(mut symbols: Vec<KernelSymbol>) -> KernelSymbols {
        symbols.sort_by(|a, b| (a.addr, &a.name).cmp(&(b.addr, &b.name)));
        symbols.dedup_by_key(|symbol| symbol.addr);
        let functions = symbols.into_iter().map(|symbol| {
            let len = if symbol.len_bytes == 0 { LEN_LIMIT } else { symbol.len_bytes.into() };
            let (role, dispatch, _) = meaning(&String::from_utf8_lossy(stem(&symbol.name)));
            let addrs = symbol.addr..symbol.addr.saturating_add(len);
            (addrs, KernelFunction { name: symbol.name, role, dispatches: dispatch != Dispatch::NotSaid })
        });
        KernelSymbols { functions: AddressIntervals::new(functions.collect()) }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// Returns the number of the function at an address.
    pub(crate) fn find(&self, addr: u64) -> Option<u32> {
        self.functions.find(addr)
    }

    /// Returns the function at an address with the distance from its start, and its module, if any.
    pub(crate) fn at(&self, addr: u64) -> Option<(SymbolAndOffset<'_>, Option<&[u8]>)> {
        let (function, offset) = self.functions.at(addr)?;
        let name = function.name.as_slice();
        Some(match name.iter().position(|byte| *byte == b' ') {
            Some(blank) => ((&name[..blank], offset), Some(&name[blank + 1..])),
            None => ((name, offset), None),
        })
    }

    /// Name of a function by its number.
    pub(crate) fn name(&self, number: u32) -> String {
        let function = self.functions.get(number);
        function.map_or_else(String::new, |(_, function)| String::from_utf8_lossy(&function.name).into_owned())
    }

    /// First address of a function by its number.
    pub(crate) fn start(&self, number: u32) -> Option<u64> {
        self.functions.get(number).map(|(addrs, _)| addrs.start)
    }

    /// Numbers and names of all functions, without the compiler's suffixes and the module.
    pub(crate) fn names(&self) -> impl Iterator<Item = (u32, Cow<'_, str>)> {
        self.functions
            .iter()
            .enumerate()
            .map(|(number, (_, function))| (number as u32, String::from_utf8_lossy(stem(&function.name))))
    }

    /// Functions that run programs or identify a hook: number, programs, and the part of the name that identifies the hook.
    pub(super) fn dispatches(&self) -> impl Iterator<Item = (u32, Dispatch, String)> {
        let functions = (0..).zip(self.functions.iter().map(|(_, function)| function));
        functions.filter(|(_, function)| function.dispatches).map(|(number, function)| {
            let stem = String::from_utf8_lossy(stem(&function.name));
            let (_, dispatch, subject) = meaning(&stem);
            (number, dispatch, subject.to_owned())
        })
    }

    /// Role of a function by its number.
    pub(crate) fn role(&self, number: u32) -> Role {
        self.functions.get(number).map_or(Role::Plain, |(_, function)| function.role)
    }

    /// Role of the function at an address.
    pub(crate) fn role_at(&self, addr: u64) -> Role {
        self.find(addr).map_or(Role::Plain, |number| self.role(number))
    }

    /// Removes a role from all functions that have it: called for the role of hooks to which this recording has no program attached.
    pub(crate) fn ignore(&mut self, role: Role) {
        self.functions.values_mut().filter(|function| function.role == role).for_each(|it| it.role = Role::Plain);
    }

    /// Ranges of the functions that run programs. A range ends where the next function starts, or earlier.
    pub(super) fn that_run_programs(&self) -> impl Iterator<Item = (u64, u64)> {
        let next = self.functions.iter().skip(1).map(|(addrs, _)| addrs.start).chain([u64::MAX]);
        let functions = self.functions.iter().zip(next).filter(|((_, function), _)| function.role.runs_programs());
        functions.map(|((addrs, _), next)| (addrs.start, addrs.end.min(next))).filter(|(start, end)| start < end)
    }
}

/// Ranges of the kernel's text and its modules, from the MMAP records that recorders write with pid −1.
#[derive(Debug, Default)]
pub(crate) struct KernelMaps {
    maps: AddressIntervals<String>,
}

impl KernelMaps {
    /// Collects mappings of the kernel and its modules, given by start, end and name.
    pub(crate) fn new(mut maps: Vec<(u64, u64, String)>) -> KernelMaps {
        maps.sort();
        maps.dedup();
        KernelMaps {
            maps: AddressIntervals::new(maps.into_iter().map(|(start, end, name)| (start..end, name)).collect()),
        }
    }

    /// Returns true if no range is known: the recorder was not allowed to see the kernel's addresses.
    pub(crate) fn is_empty(&self) -> bool {
        self.maps.is_empty()
    }

    /// Returns the name of the mapping that contains an address, such as `[kernel.kallsyms]` or `[module]`.
    pub(crate) fn find(&self, addr: u64) -> Option<&str> {
        self.maps.at(addr).map(|(name, _)| name.as_str())
    }

    /// Range from the first module to the end of the last.
    pub(crate) fn module_area(&self) -> Option<(u64, u64)> {
        let modules = self.maps.iter().filter(|(_, name)| !name.starts_with("[kernel.kallsyms]"));
        let areas = modules.map(|(addrs, _)| (addrs.start, addrs.end));
        areas.reduce(|(low, high), (start, end)| (low.min(start), high.max(end)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn symbol(addr: u64, len_bytes: u32, name: &str) -> KernelSymbol {
        KernelSymbol { addr, len_bytes, name: name.as_bytes().to_vec() }
    }

    #[test]
    fn functions_are_found_and_known_for_what_they_do() {
        let symbols = KernelSymbols::new(vec![
            symbol(0x3000, 0x100, "pv_native_safe_halt"),
            symbol(0x1000, 0x10, "vfs_read"),
            symbol(0x2000, 0, "trace_call_bpf"),
            symbol(0x4000, 0x40, "__bpf_prog_enter_recur"),
            symbol(0x5000, 0x40, "bpf_trace_run2.constprop.0 [mod]"),
        ]);
        let name = |addr| symbols.find(addr).map(|n| symbols.name(n));
        assert_eq!(name(0x100f).as_deref(), Some("vfs_read"));
        assert_eq!(name(0x1010), None);
        assert_eq!(name(0x2fff).as_deref(), Some("trace_call_bpf"));
        assert_eq!(symbols.role_at(0x1000), Role::Plain);
        assert_eq!(symbols.role_at(0x3010), Role::Idle);
        assert_eq!(symbols.role_at(0x4000), Role::Guard);
        let addrs: Vec<_> = symbols.that_run_programs().collect();
        assert_eq!(addrs, [(0x2000, 0x3000), (0x5000, 0x5040)]);
    }

    #[test]
    fn kernel_functions_end_and_modules_are_told_apart() {
        let symbols =
            KernelSymbols::new(vec![symbol(0x1000, 0x10, "vfs_read"), symbol(0x2000, 0, "loop_queue_rq [loop]")]);
        assert_eq!(symbols.at(0x100f), Some(((&b"vfs_read"[..], 15), None)));
        assert_eq!(symbols.at(0x1010), None);
        assert_eq!(symbols.at(0x2010), Some(((&b"loop_queue_rq"[..], 16), Some(&b"[loop]"[..]))));
    }

    /// The symbols of one address can be in any order; the chosen name is always the same.
    #[test]
    fn names_of_one_address_do_not_depend_on_their_order() {
        let (one, other) = (symbol(0x1000, 0x10, "__x64_sys_read"), symbol(0x1000, 0x10, "sys_read"));
        for symbols in [vec![one.clone(), other.clone()], vec![other, one]] {
            assert_eq!(KernelSymbols::new(symbols).at(0x1001), Some(((&b"__x64_sys_read"[..], 1), None)));
        }
    }

    #[test]
    fn maps_tell_text_from_modules() {
        let maps = KernelMaps::new(vec![
            (0xc000, 0xd000, "[loop]".into()),
            (0x1000, 0x9000, "[kernel.kallsyms]_text".into()),
            (0xa000, 0xb000, "[xfs]".into()),
        ]);
        assert_eq!(maps.find(0x8fff), Some("[kernel.kallsyms]_text"));
        assert_eq!(maps.find(0x9000), None);
        assert_eq!(maps.module_area(), Some((0xa000, 0xd000)));
    }
}
