//! Listings: the code of a function, joined from entries of the line table, BPF instructions and machine instructions.
//!
//! BPF and machine instructions are grouped by the kernel's line table alone. Each entry of the table has the first BPF instruction and the address
//! of its machine code. The kernel's compiler translates a program in order, so the machine code between two addresses belongs to the BPF
//! instructions between two entries.

use super::machine::{Call, Insn as MachineInsn, Isa};
use super::xlated;
use crate::pass::sinks::instructions::Site;
use bprec_format::bpf::prog_info::{Function, LineInfo, ProgInfo};
use bprec_format::bpf::{Elements, Insn};
use std::collections::BTreeSet;
use std::ops::Range;

/// Code of a function.
#[derive(Debug)]
pub(super) struct FunctionListing<'a> {
    /// Address of the machine code.
    pub(super) start: Option<u64>,
    /// Length of the machine code in bytes, if the recording has it.
    pub(super) len_bytes: Option<u32>,
    /// Machine code; empty if the recording has none.
    pub(super) code: &'a [u8],
    /// Machine instructions: they cover all of `code`. Empty if the instruction set is unknown.
    pub(super) insns: Vec<MachineInsn>,
    /// All BPF instructions of the program.
    xlated: Option<Elements<'a, Insn>>,
    /// True if the recording has the BPF instructions of the program.
    pub(super) has_xlated: bool,
    /// Range of the function's BPF instructions, in slots of 8 bytes; `None` if unknown.
    pub(super) slots: Option<Range<u32>>,
    /// Lines in the order of BPF instructions; each slot and each machine instruction is in one line.
    pub(super) lines: Vec<ListedLine>,
    /// True if the line table has entries for the function.
    pub(super) has_lines: bool,
    /// True if lines have addresses.
    pub(super) has_addresses: bool,
}

/// Code of an entry of the line table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ListedLine {
    /// Entry of the line table; `None` for code that has no entry, for instance before the first entry.
    pub(super) info: Option<LineInfo>,
    /// Slots of the BPF instructions.
    pub(super) slots: Range<u32>,
    /// Offset of the machine code from the start of the function, bytes; `None` if unknown.
    from: Option<u32>,
    /// Positions of the machine instructions.
    pub(super) insns: Range<usize>,
}

/// Place of a sample in a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ListedAt {
    pub(super) line: usize,
    /// Position of the machine instruction, if decoded.
    pub(super) insn: Option<usize>,
}

/// Relation of a line's BPF instructions to its machine instructions, if it can be proven.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Proof {
    /// The line has a single BPF instruction, to which all machine instructions belong.
    Single,
    /// Each BPF instruction has one machine instruction, in order.
    OneToOne,
    /// Unknown. Only calls can be paired ([`FunctionListing::calls`]).
    Line,
}

/// A call in the BPF code, paired with the same call in the machine code: slot of the BPF instruction, position of the machine instruction, and
/// target address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PairedCall {
    pub(super) slot: u32,
    pub(super) insn: usize,
    pub(super) target: u64,
}

/// Returns the range of slots of each function of a program; `None` if the recording does not show where functions start.
pub(super) fn slots_of_functions(info: &ProgInfo<'_>) -> Vec<Option<Range<u32>>> {
    let functions = info.functions();
    let count = functions.len().max(1);
    let Some(xlated) = info.xlated() else { return vec![None; count] };
    let end = xlated.len() as u32;
    let told: Option<BTreeSet<u32>> = functions.map(|function| function.insn_off).collect();
    // Without BTF, or if the verifier added functions, the starts come from references: each function after the first is called or referred to by
    // other code.
    let starts = told.filter(|told| told.len() == count).unwrap_or_else(|| {
        let referred = (0..end).filter_map(|at| xlated.get(at as usize)?.refers_to(at));
        std::iter::once(0).chain(referred).collect()
    });
    if starts.len() != count || starts.first() != Some(&0) || starts.last().is_some_and(|last| *last >= end) {
        return vec![None; count];
    }
    let starts: Vec<u32> = starts.into_iter().chain([end]).collect();
    starts.windows(2).map(|pair| Some(pair[0]..pair[1])).collect()
}

/// Index of a program's line table by slot and by address.
#[derive(Debug, Default)]
pub(super) struct LineStarts {
    /// Slot and position of each entry, ascending.
    slots: Vec<(u32, usize)>,
    /// Address and position of each entry, ascending.
    addrs: Vec<(u64, usize)>,
}

impl LineStarts {
    pub(super) fn new(info: &ProgInfo<'_>) -> LineStarts {
        let slots = info.line_info().into_iter().flat_map(|lines| lines.iter().map(|line| line.insn_off));
        let addrs = info.jited_line_info().into_iter().flat_map(|addrs| addrs.iter());
        let mut starts = LineStarts { slots: slots.zip(0..).collect(), addrs: addrs.zip(0..).collect() };
        starts.slots.sort_unstable();
        starts.addrs.sort_unstable();
        starts
    }

    /// Returns the first entry in a range of slots.
    fn in_slots(&self, slots: &Range<u32>) -> Option<usize> {
        let at = self.slots.partition_point(|(slot, _)| *slot < slots.start);
        self.slots.get(at).filter(|(slot, _)| slots.contains(slot)).map(|(_, position)| *position)
    }

    /// Returns the first entry at an address.
    fn at(&self, addr: u64) -> Option<usize> {
        let at = self.addrs.partition_point(|(start, _)| *start < addr);
        self.addrs.get(at).filter(|(start, _)| *start == addr).map(|(_, position)| *position)
    }
}

impl<'a> FunctionListing<'a> {
    /// Lists the code of a function by source line: its BPF instructions, and its machine code, which is at `start`. Decodes the machine instructions
    /// if `isa` is given.
    pub(super) fn new(
        info: &ProgInfo<'a>,
        starts: &LineStarts,
        function: Option<&Function<'a>>,
        start: Option<u64>,
        slots: Option<Range<u32>>,
        isa: Option<Isa>,
    ) -> FunctionListing<'a> {
        let code = function.and_then(|function| function.jited).filter(|_| start.is_some()).unwrap_or_default();
        let insns = isa.zip(start).map(|(isa, start)| isa.decode(code, start)).unwrap_or_default();
        let mut listing = FunctionListing {
            start,
            len_bytes: function.and_then(|function| function.len),
            code,
            insns,
            has_xlated: info.xlated().is_some(),
            xlated: info.xlated().filter(|_| slots.is_some()),
            slots,
            lines: Vec::new(),
            has_lines: false,
            has_addresses: false,
        };
        let entries = listing.entries(info, starts);
        listing.has_lines = !entries.is_empty();
        listing.has_addresses = listing.has_lines && entries.iter().all(|(_, from)| from.is_some());
        listing.cut(&entries);
        listing
    }

    /// Returns the function's entries of the line table, in order, each with the offset of its machine code. If the offsets do not start at 0 or do
    /// not ascend, no entry has an offset.
    fn entries(&self, info: &ProgInfo<'_>, starts: &LineStarts) -> Vec<(LineInfo, Option<u32>)> {
        let Some(lines) = info.line_info() else { return Vec::new() };
        let addrs = info.jited_line_info();
        let offset = |addr: u64| {
            let offset = u32::try_from(addr.checked_sub(self.start?)?).ok()?;
            self.len_bytes.is_some_and(|len| offset < len).then_some(offset)
        };
        let first = match &self.slots {
            Some(slots) => starts.in_slots(slots),
            // The first entry of a function has the function's address.
            None => self.start.and_then(|start| starts.at(start)),
        };
        let Some(first) = first else { return Vec::new() };
        let mut entries: Vec<(LineInfo, Option<u32>)> = Vec::new();
        for (at, line) in (first..).zip(lines.iter().skip(first)) {
            let from = addrs.and_then(|addrs| offset(addrs.get(at)?));
            let is_next = entries.last().is_none_or(|(last, _)| last.insn_off < line.insn_off);
            let is_own = self.slots.as_ref().map_or(from.is_some(), |slots| slots.contains(&line.insn_off));
            if !is_next || !is_own {
                break;
            }
            entries.push((line, from));
        }
        let ascends = entries.is_sorted_by_key(|(_, from)| *from);
        if !ascends || entries.first().is_some_and(|(_, from)| *from != Some(0)) {
            entries.iter_mut().for_each(|(_, from)| *from = None);
        }
        entries
    }

    /// Splits the code at the entries of the line table.
    fn cut(&mut self, entries: &[(LineInfo, Option<u32>)]) {
        let all = self.slots.clone().unwrap_or(0..0);
        let first = entries.first().map_or(all.end, |(line, _)| line.insn_off).clamp(all.start, all.end);
        let line = |info, slots, from| ListedLine { info, slots, from, insns: 0..0 };
        if first > all.start {
            self.lines.push(line(None, all.start..first, None));
        }
        for (at, (info, from)) in entries.iter().enumerate() {
            let end = entries.get(at + 1).map_or(all.end, |(next, _)| next.insn_off);
            let slots = if all.is_empty() { 0..0 } else { info.insn_off..end };
            self.lines.push(line(Some(*info), slots, *from));
        }
        // Without addresses in the line table, all machine code belongs to one line without an entry.
        if !self.has_addresses && (!self.insns.is_empty() || self.len_bytes.is_some()) {
            match self.lines.as_mut_slice() {
                [only] if only.info.is_none() => only.from = Some(0),
                _ => self.lines.push(line(None, 0..0, Some(0))),
            }
        }
        for at in 0..self.insns.len() {
            if let Some(line) = self.line_of(self.insns[at].offset) {
                let insns = &mut self.lines[line].insns;
                *insns = if insns.start == insns.end { at..at + 1 } else { insns.start..at + 1 };
            }
        }
    }

    /// Returns the line whose machine code has the byte at an offset.
    fn line_of(&self, offset: u32) -> Option<usize> {
        // The lines are sorted by address, and those without an address come first.
        self.lines
            .partition_point(|line| line.from.is_none_or(|from| from <= offset))
            .checked_sub(1)
            .filter(|line| self.lines[*line].from.is_some())
    }

    /// Returns the place of a sample; `None` for an address outside of the function's instructions.
    pub(super) fn place(&self, site: Site) -> Option<ListedAt> {
        let addr = match site {
            Site::At(addr) | Site::Return(addr) | Site::Interrupted(addr) => addr,
        };
        let offset = u32::try_from(addr.checked_sub(self.start?)?).ok()?;
        let offset = match site {
            Site::Return(_) => self.call_before(offset),
            Site::At(_) | Site::Interrupted(_) => offset,
        };
        if self.len_bytes.is_none_or(|len| offset >= len) {
            return None;
        }
        let insn = self.insn_at(offset);
        let line = self.line_of(insn.map_or(offset, |insn| self.insns[insn].offset))?;
        Some(ListedAt { line, insn })
    }

    /// Returns an offset within the call that ends at the return address `offset`. If the instruction that ends there is no call, `offset` is no
    /// return address but the place of an interrupt, and is returned as it is.
    fn call_before(&self, offset: u32) -> u32 {
        let Some(before) = offset.checked_sub(1) else { return offset };
        match self.insn_at(before).map(|at| &self.insns[at]) {
            Some(insn) if insn.end() == offset && insn.call == Call::No => offset,
            _ => before,
        }
    }

    /// Returns the position of the machine instruction that has the byte at an offset.
    fn insn_at(&self, offset: u32) -> Option<usize> {
        let at = self.insns.partition_point(|insn| insn.offset <= offset).checked_sub(1)?;
        (offset < self.insns[at].end()).then_some(at)
    }

    /// Returns the BPF instructions of a line, each with its slot and, for a wide instruction, its second slot.
    pub(super) fn bpf(&self, line: &ListedLine) -> Vec<(u32, Insn, Option<Insn>)> {
        let Some(xlated) = &self.xlated else { return Vec::new() };
        let mut insns = Vec::new();
        let mut slots = line.slots.clone();
        while let Some(slot) = slots.next() {
            let Some(insn) = xlated.get(slot as usize) else { break };
            let second = if insn.is_wide() { slots.next() } else { None };
            insns.push((slot, insn, second.and_then(|slot| xlated.get(slot as usize))));
        }
        insns
    }

    /// Returns the proven relation of a line's BPF instructions to its machine instructions.
    pub(super) fn proof(&self, line: &ListedLine, bpf: &[(u32, Insn, Option<Insn>)], isa: Option<Isa>) -> Proof {
        const EXIT: u8 = 0x95;
        // The first line also has the function's prologue. The last line also has the epilogue, unless it ends with an exit. Their instructions
        // belong to no BPF instruction.
        let has_prologue = line.from.is_none_or(|from| from == 0);
        let is_last = line.insns.end == self.insns.len();
        let ends_with_exit = bpf.last().is_some_and(|(_, insn, _)| insn.code == EXIT);
        if has_prologue || !self.has_addresses || is_last && !ends_with_exit {
            return Proof::Line;
        }
        if bpf.len() == 1 {
            return Proof::Single;
        }
        // If every BPF instruction of the line becomes at least one machine instruction, equal counts mean exactly one for each. Architectures that
        // are not decoded, and some BPF instructions, do not allow this conclusion.
        let makes_code =
            isa.is_some_and(Isa::is_decoded) && !bpf.iter().any(|(_, insn, _)| xlated::may_be_left_out(insn));
        if makes_code && !is_last && bpf.len() == line.insns.len() { Proof::OneToOne } else { Proof::Line }
    }

    /// Pairs the calls among a line's BPF instructions with the calls in its machine code, in order. Returns no pair if the two counts differ, if a
    /// target is unknown, or if a call of a function of the program has another target than that function. `functions` has the addresses of the
    /// program's functions.
    pub(super) fn calls(
        &self,
        line: &ListedLine,
        bpf: &[(u32, Insn, Option<Insn>)],
        functions: &[Option<u64>],
    ) -> Vec<PairedCall> {
        let calls: Vec<_> = bpf.iter().filter(|(_, insn, _)| insn.is_call() && !insn.is_tail_call()).collect();
        let called = line.insns.clone().filter_map(|at| match self.insns[at].call {
            Call::To(target) => Some((at, target)),
            Call::No | Call::Unknown => None,
        });
        let called: Vec<_> = called.collect();
        if calls.len() != called.len() {
            return Vec::new();
        }
        let paired = calls.into_iter().zip(called).map(|((slot, insn, _), (at, target))| {
            let target = target?;
            let is_right = match insn.src {
                Insn::PSEUDO_CALL => functions.get(insn.imm as usize).copied().flatten() == Some(target),
                _ => true,
            };
            is_right.then_some(PairedCall { slot: *slot, insn: at, target })
        });
        paired.collect::<Option<Vec<_>>>().unwrap_or_default()
    }
}
