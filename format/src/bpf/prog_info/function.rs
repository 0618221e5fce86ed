//! The functions of a program, and the source line of an address in them.

use super::{Elements, FuncInfo, ProgInfo};
use crate::bpf::Tag;
use std::ops::Range;

/// Function of a program. A field is `None` if the recording lacks the array that the field comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Function<'a> {
    /// Position among the program's functions; 0 is the entry.
    pub index: usize,
    /// Address of the machine code; `None` also if the function is not compiled.
    pub addr: Option<u64>,
    /// Bytes of machine code; 0 if the function is interpreted.
    pub len: Option<u32>,
    /// BTF type of kind FUNC that names the function.
    pub type_id: Option<u32>,
    /// First BPF instruction of the function, in units of 8 bytes of the verified program.
    pub insn_off: Option<u32>,
    /// Machine code of the function.
    pub jited: Option<&'a [u8]>,
    /// Digest after verification. If the program has several functions, it is the tag in the function's symbol `bpf_prog_<tag>_<name>`.
    pub tag: Option<Tag>,
}

impl Function<'_> {
    /// Address range of the machine code.
    pub fn range(&self) -> Option<Range<u64>> {
        let start = self.addr?;
        Some(start..start.checked_add(u64::from(self.len?))?)
    }
}

impl<'a> ProgInfo<'a> {
    /// The functions in the program's order, the entry first.
    pub fn functions(&self) -> impl ExactSizeIterator<Item = Function<'a>> + use<'a> {
        let (ksyms, lens) = (self.jited_ksyms(), self.jited_func_lens());
        let (func_info, tags, jited) = (self.func_info(), self.prog_tags(), self.jited_insns());
        let lengths = [
            ksyms.map(|e| e.len()),
            lens.map(|e| e.len()),
            func_info.map(|e: Elements<'_, FuncInfo>| e.len()),
            tags.map(|e| e.len()),
        ];
        // Offset of the function's code in `jited`; `None` after a function of unknown length.
        let mut jited_at = Some(0usize);
        (0..lengths.into_iter().flatten().max().unwrap_or(0)).map(move |index| {
            let len = lens.and_then(|e| e.get(index));
            let code = jited_at.and_then(|at| Some(at..at.checked_add(len? as usize)?));
            jited_at = code.as_ref().map(|range| range.end);
            let func_info = func_info.and_then(|e| e.get(index));
            Function {
                index,
                // The kernel gives an interpreted function the interpreter's address, and 0 bytes.
                addr: ksyms.and_then(|e| e.get(index)).filter(|addr| *addr != 0 && len != Some(0)),
                len,
                type_id: func_info.map(|f| f.type_id),
                insn_off: func_info.map(|f| f.insn_off),
                jited: code.and_then(|range| jited?.get(range)),
                tag: tags.and_then(|e| e.get(index)),
            }
        })
    }
}
