//! Functions by address and time: of programs, images and the kernel.

use super::Index;
use super::code::Code;
use std::borrow::Cow;

/// Kind of code that an address belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SymbolKind {
    /// A function of a BPF program.
    Program {
        /// Id of the program, if the recording has it.
        id: Option<u32>,
    },
    /// A trampoline, dispatcher or struct_ops stub.
    Image,
    /// A kernel function.
    Kernel,
}

/// Function at an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol<'i> {
    /// Name of the function.
    pub name: Cow<'i, str>,
    /// Distance of the address from the function's start; `None` if the start is unknown.
    pub offset: Option<u64>,
    /// Kind of code that the function belongs to.
    pub kind: SymbolKind,
}

/// Looks up kernel addresses at a time. Threads may share it.
#[derive(Debug, Clone, Copy)]
pub struct Symbolizer<'i> {
    index: &'i Index,
}

impl<'i> Symbolizer<'i> {
    pub(crate) fn new(index: &'i Index) -> Symbolizer<'i> {
        Symbolizer { index }
    }

    /// Returns the function of the instruction at `addr`, at `time_ns` of the recording's clock.
    pub fn find(&self, addr: u64, time_ns: u64) -> Option<Symbol<'i>> {
        let index = self.index;
        let (start, name, kind) = match index.code.at(addr, time_ns) {
            Code::Function { program, function } => {
                let program = index.programs.list.get(program as usize)?;
                let function = program.functions.get(function as usize)?;
                (function.addr, function.name.as_str().into(), SymbolKind::Program { id: program.id })
            }
            Code::Image(image) => {
                (None, index.programs.images.get(image as usize)?.name.as_str().into(), SymbolKind::Image)
            }
            Code::Kernel { function, .. } => {
                let kernel = &index.code.kernel;
                (kernel.start(function?), kernel.name(function?).into(), SymbolKind::Kernel)
            }
            Code::Unknown => return None,
        };
        Some(Symbol { name, offset: start.and_then(|start| addr.checked_sub(start)), kind })
    }

    /// Returns the function that made the call returning to `addr`: the byte before `addr` is looked up, as the call may be the last instruction.
    pub fn find_caller(&self, addr: u64, time_ns: u64) -> Option<Symbol<'i>> {
        let mut symbol = self.find(addr.checked_sub(1)?, time_ns)?;
        symbol.offset = symbol.offset.map(|offset| offset + 1);
        Some(symbol)
    }
}
