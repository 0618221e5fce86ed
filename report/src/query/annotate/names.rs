//! Names for numbers in instructions, all from the recording.

use super::listing::PairedCall;
use super::machine::Isa;
use super::xlated::Operand;
use crate::index::Index;
use crate::index::kernel::CALL_BASE;
use crate::index::programs::IndexedProgram;
use crate::index::symbolizer::Symbolizer;
use rustc_hash::FxHashMap;

/// Returns the address of [`CALL_BASE`], if the recording has it.
pub(super) fn call_base(index: &Index) -> Option<u64> {
    let kernel = &index.code.kernel;
    let number = kernel.names().find(|(_, name)| name == CALL_BASE).map(|(number, _)| number);
    number.and_then(|number| kernel.start(number))
}

/// Infers the address of `__bpf_call_base` from calls of helpers: it is the helper's address in the machine code minus the distance in the BPF
/// instruction. Returns `None` if there are no calls, or if they give different addresses.
pub(super) fn call_base_of(calls: impl Iterator<Item = (PairedCall, i32)>) -> Option<u64> {
    let mut bases = calls.map(|(call, imm)| call.target.wrapping_sub_signed(imm.into()));
    let base = bases.next()?;
    bases.all(|other| other == base).then_some(base)
}

/// Names for the code of a program.
pub(super) struct CodeNames<'i> {
    index: &'i Index,
    program: &'i IndexedProgram,
    symbolizer: Symbolizer<'i>,
    isa: Option<Isa>,
    call_base: Option<u64>,
    /// Time at which addresses are looked up, ns. The program is still loaded then.
    time_ns: u64,
    /// Paired calls by slot.
    pub(super) calls: FxHashMap<u32, PairedCall>,
}

impl<'i> CodeNames<'i> {
    pub(super) fn new(
        index: &'i Index,
        program: &'i IndexedProgram,
        isa: Option<Isa>,
        call_base: Option<u64>,
    ) -> CodeNames<'i> {
        let time_ns = program.unloaded_ns.map_or(u64::MAX - 1, |gone_ns| gone_ns.saturating_sub(1));
        let symbolizer = Symbolizer::new(index);
        CodeNames { index, program, symbolizer, isa, call_base, time_ns, calls: FxHashMap::default() }
    }

    /// Returns the name of the function at an address, followed by the distance from the function's start if it is not 0.
    pub(super) fn function(&self, addr: u64) -> Option<String> {
        let symbol = self.symbolizer.find(addr, self.time_ns)?;
        Some(match symbol.offset {
            Some(0) | None => symbol.name.into_owned(),
            Some(offset) => format!("{}+{offset:#x}", symbol.name),
        })
    }

    /// Returns the name of an operand of a BPF instruction.
    pub(super) fn operand(&self, operand: Operand) -> Option<String> {
        match operand {
            Operand::Map(id) => {
                let name = &self.index.states.maps.get(&id)?.name;
                (!name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned())
            }
            Operand::Function(number) => {
                let function = self.program.functions.get(number as usize)?;
                (!function.name.is_empty()).then(|| function.name.clone())
            }
            Operand::Called { at, imm, is_kfunc } => {
                let addr = self.target(at, imm, is_kfunc)?;
                Some(self.function(addr).unwrap_or_else(|| format!("{addr:#x}")))
            }
            Operand::Address(addr) => {
                let symbol = self.symbolizer.find(addr, self.time_ns)?;
                (symbol.offset == Some(0)).then(|| symbol.name.into_owned())
            }
        }
    }

    /// Returns the target of a call by its machine code, or else by the distance in the BPF instruction.
    fn target(&self, at: u32, imm: i32, is_kfunc: bool) -> Option<u64> {
        let by_distance = || {
            // A kfunc may be too far away for a relative call on architectures other than x86-64. The instruction then has the kfunc's BTF id instead
            // of a distance.
            let has_distance = imm != 0 && (!is_kfunc || self.isa == Some(Isa::X86_64));
            self.call_base.filter(|_| has_distance).map(|base| base.wrapping_add_signed(imm.into()))
        };
        self.calls.get(&at).map(|call| call.target).or_else(by_distance)
    }
}
