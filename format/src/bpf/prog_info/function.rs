//! The functions of a program, and the source line of an address in them.

use super::{Elements, FuncInfo, LineInfo, ProgInfo};
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

    /// The source line of a machine instruction, by its address. For a return address, pass the address minus 1.
    ///
    /// `None` if the address is in no function of this program, or if the kernel or the JIT gave no lines.
    pub fn line_for(&self, addr: u64) -> Option<LineInfo> {
        let lines = self.line_info()?;
        let addrs = self.jited_line_info()?;
        let function = self.functions().find(|f| f.range().is_some_and(|range| range.contains(&addr)))?;
        let start = function.addr?;
        // Addresses ascend only within a function, so only the entries of this function are searched. `func_info` gives these entries. If it is
        // absent, or the first entry has another address than the function, the entries are found by their addresses.
        let entries = self.line_entries(&lines, &function).filter(|range| addrs.get(range.start) == Some(start));
        let entries = match entries {
            Some(entries) => entries,
            None => {
                let first = addrs.iter().position(|a| a == start)?;
                let range = function.range()?;
                let rest = addrs.iter().skip(first).position(|a| !range.contains(&a));
                first..rest.map_or(addrs.len(), |n| first + n)
            }
        };
        let last = addrs.partition_point(entries.start, entries.end, |a| a <= addr).checked_sub(1)?;
        lines.get(last)
    }

    /// The source line of a BPF instruction, counted in units of 8 bytes of the verified program.
    pub fn line_for_insn(&self, insn_off: u32) -> Option<LineInfo> {
        let lines = self.line_info()?;
        lines.get(lines.partition_point(0, lines.len(), |line| line.insn_off <= insn_off).checked_sub(1)?)
    }

    /// The entries of the line table that belong to a function.
    fn line_entries(&self, lines: &Elements<'_, LineInfo>, function: &Function<'_>) -> Option<Range<usize>> {
        let first_of = |insn: u32| lines.partition_point(0, lines.len(), |line| line.insn_off < insn);
        let func_info = self.func_info()?;
        let start = first_of(function.insn_off?);
        let end = func_info.get(function.index + 1).map_or(lines.len(), |next: FuncInfo| first_of(next.insn_off));
        Some(start..end)
    }
}
