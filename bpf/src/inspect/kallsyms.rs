//! BPF symbols in `/proc/kallsyms`: functions of programs, and the images that the kernel generates (trampolines, dispatchers).

use std::collections::BTreeSet;

use bprec_format::bpf::Insn;
use bprec_format::bpf::prog_info::ProgInfoBuf;
use bprec_format::bprec::state::KernelSymbol;

use crate::error::Result;
use crate::inspect::visibility;

/// Pseudo module of all BPF symbols.
const MODULE: &str = "bpf";

/// Snapshot of the symbol table of the running kernel.
#[derive(Debug)]
pub struct Kallsyms(bprec_host::Kallsyms);

impl Kallsyms {
    /// Reads the whole table.
    ///
    /// # Errors
    /// Fails if /proc/kallsyms cannot be read.
    pub fn read() -> Result<Kallsyms> {
        Ok(Kallsyms(bprec_host::Kallsyms::read()?))
    }

    /// Reads the symbols of the kernel and its modules, and possibly some of the BPF symbols that follow them in the file.
    ///
    /// # Errors
    /// Fails if /proc/kallsyms cannot be read.
    pub fn read_without_bpf() -> Result<Kallsyms> {
        Ok(Kallsyms(bprec_host::Kallsyms::read_before(MODULE)?))
    }

    /// Returns true if no module was loaded, unloaded or moved since the table was read.
    pub fn has_current_modules(&self) -> bool {
        self.0.has_current_modules()
    }

    /// Returns true if the kernel hides addresses from this process: all addresses are zero.
    pub fn is_hidden(&self) -> bool {
        self.0.is_hidden()
    }

    /// Trampolines, dispatchers and struct_ops stubs (`bpf_trampoline_*`, `bpf_dispatcher_*`, `bpf__*`), by address.
    ///
    /// The kernel does not show their lengths.
    pub fn bpf_images(&self) -> Vec<KernelSymbol> {
        self.bpf_symbols(|name| !name.starts_with(b"bpf_prog_"))
    }

    /// Functions of programs (`bpf_prog_<tag>_<name>`) by address, including functions that the verifier added.
    pub fn bpf_functions(&self) -> Vec<KernelSymbol> {
        self.bpf_symbols(|name| name.starts_with(b"bpf_prog_"))
    }

    /// Functions that contain `addresses`, in the order of their addresses, each once. Addresses outside of all functions are left out.
    pub fn functions_at(&self, addresses: &[u64]) -> Vec<KernelSymbol> {
        let functions = self.0.functions_at(addresses).into_iter();
        functions.map(|it| KernelSymbol { addr: it.addr, len_bytes: it.len_bytes, name: it.name }).collect()
    }

    /// Addresses of the kernel functions that programs call, and of `__bpf_call_base`, from which the calls count.
    pub fn called_by(&self, programs: &[ProgInfoBuf]) -> Vec<u64> {
        let base = self.0.address_of(b"__bpf_call_base").filter(|base| *base != 0);
        base.map(|base| called_from(base, programs)).unwrap_or_default()
    }

    /// Reason why images or functions are missing from the table, if any are.
    pub fn problem(&self) -> Option<&'static str> {
        if self.is_hidden() { bprec_host::hidden_addresses() } else { visibility::hidden_symbols() }
    }

    fn bpf_symbols(&self, wanted: impl Fn(&[u8]) -> bool) -> Vec<KernelSymbol> {
        let mut symbols: Vec<KernelSymbol> = self
            .0
            .symbols_of(MODULE)
            .filter(|it| it.addr != 0 && wanted(it.name))
            .map(|it| KernelSymbol { addr: it.addr, len_bytes: 0, name: it.name.to_vec() })
            .collect();
        symbols.sort_by(|a, b| (a.addr, &a.name).cmp(&(b.addr, &b.name)));
        symbols
    }
}

/// Addresses of the kernel functions that programs call, and `base`, the address of `__bpf_call_base`. The calls in instructions are relative to
/// `base`, so a reader needs both to name the called functions.
pub(crate) fn called_from(base: u64, programs: &[ProgInfoBuf]) -> Vec<u64> {
    // On x86-64, each kfunc is within 32 bits of the base. On other machines it may be farther, so calls of kfuncs are left out there.
    let is_near = |insn: &Insn| insn.src == 0 || cfg!(target_arch = "x86_64") && insn.src == Insn::PSEUDO_KFUNC_CALL;
    let mut called = BTreeSet::from([base]);
    for program in programs {
        let view = program.view();
        let insns = view.xlated().into_iter().flat_map(|insns| insns.iter());
        // The immediate is 0 if the kernel withholds the address.
        let calls = insns.filter(|insn| insn.is_call() && is_near(insn) && insn.imm != 0 && !insn.is_tail_call());
        called.extend(calls.map(|insn| base.wrapping_add_signed(insn.imm.into())));
    }
    called.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kallsyms(text: &[u8]) -> Kallsyms {
        Kallsyms(bprec_host::Kallsyms::from_text(text.to_vec()))
    }

    fn names(symbols: &[KernelSymbol]) -> Vec<&str> {
        symbols.iter().map(|symbol| std::str::from_utf8(&symbol.name).unwrap_or("?")).collect()
    }

    #[test]
    fn images_are_told_from_programs() {
        let all = kallsyms(
            b"ffffffff81000000 T _text
ffffffffc0001000 t mod_fn\t[ext4]
ffffffffc0002000 t bpf_prog_0011223344556677_name\t[bpf]
ffffffffc0001800 t bpf_trampoline_6442463123\t[bpf]
ffffffffc0003000 t bpf_dispatcher_xdp\t[bpf]
",
        );
        assert_eq!(names(&all.bpf_images()), ["bpf_trampoline_6442463123", "bpf_dispatcher_xdp"]);
        assert_eq!(names(&all.bpf_functions()), ["bpf_prog_0011223344556677_name"]);
        assert!(!all.is_hidden());
        let hidden = kallsyms(b"0000000000000000 T _text\n0000000000000000 t bpf_prog_00_x\t[bpf]\n");
        assert!(hidden.is_hidden() && hidden.bpf_functions().is_empty());
        assert!(kallsyms(b"zz\n\n1 \nffff t\n").bpf_images().is_empty());
    }
}
