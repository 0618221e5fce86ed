//! Functions in a symbol table.

use std::cmp::Reverse;

use object::Endianness;
use object::elf::{
    SHN_ABS, SHN_UNDEF, STB_GLOBAL, STB_LOCAL, STB_WEAK, STT_FUNC, STT_GNU_IFUNC, STT_NOTYPE, Sym32, Sym64,
};
use object::pod::slice_from_all_bytes;
use object::read::elf::Sym;

use super::{Elf, ReadAt, Section};

/// Limit on the bytes of a symbol table: about three million symbols. Larger tables are skipped.
const TABLE_MAX_BYTES: u64 = 64 << 20;
/// Bytes of a table that are read at a time; a multiple of the symbol size of both ELF classes.
const PIECE_BYTES: u64 = 3 << 18;
/// Limit on the bytes of a name. The longest names that compilers make have a few thousand bytes.
const NAME_MAX_BYTES: usize = 16 << 10;
/// Bytes of the first read of a name, enough for most names.
const SHORT_NAME_BYTES: usize = 256;

/// A function of an ELF file.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ElfFunction {
    /// Offset of the first byte, from the start of the file.
    pub offset: u64,
    /// Length in bytes.
    pub len_bytes: u64,
    /// Symbol name, not demangled.
    pub name: Vec<u8>,
}

/// A symbol that may be the function at an address.
#[derive(Debug, Clone)]
struct Candidate {
    start: u64,
    /// First address after the symbol: the end of the symbol, or the end of its section if the symbol has no length.
    limit: u64,
    rank: Rank,
    /// Offset of the name in the string table.
    name_at: u32,
    /// Name of the symbol, read when it is first needed.
    name: Option<Vec<u8>>,
}

/// Rank among symbols with the same start: (has a length, is not weak, is global). The highest rank is chosen.
type Rank = (bool, bool, bool);

/// Search for the functions at the wanted addresses. Keeps at most one function and one label per address while tables are read.
#[derive(Debug)]
pub(super) struct Search {
    /// Addresses that are looked up, ascending.
    addrs: Vec<u64>,
    /// Per address: the last function that starts in the interval (previous address, address]. If several start together, the best by rank and name.
    functions: Vec<Option<Candidate>>,
    /// Per address: the last label that starts in this interval. Labels are symbols without a type, such as functions in assembly.
    labels: Vec<Option<Candidate>>,
    /// Per address: the lowest symbol start in this interval. One more entry is for the symbols after the last address.
    next: Vec<u64>,
}

impl Search {
    pub(super) fn new(mut addrs: Vec<u64>) -> Search {
        addrs.sort_unstable();
        addrs.dedup();
        let count = addrs.len();
        Search { functions: vec![None; count], labels: vec![None; count], next: vec![u64::MAX; count + 1], addrs }
    }

    /// Searches a symbol table to its end, or until `is_over` returns true. `None` if the string table is missing or the symbol table is too large.
    pub(super) fn table<S: ReadAt>(&mut self, elf: &Elf<S>, table: &Section, is_over: &dyn Fn() -> bool) -> Option<()> {
        let strings = elf.sections.get(table.link as usize)?;
        if table.bytes > TABLE_MAX_BYTES {
            return None;
        }
        let mut at = 0;
        while at < table.bytes && !is_over() {
            let len = PIECE_BYTES.min(table.bytes - at);
            let piece = table.offset.checked_add(at).and_then(|at| elf.source.read_at(at, len as usize));
            let Some(piece) = piece else { break };
            match elf.is_64 {
                true => self.symbols::<S, Sym64<Endianness>>(elf, strings, &piece),
                false => self.symbols::<S, Sym32<Endianness>>(elf, strings, &piece),
            }
            at += len;
        }
        // Names are read now, because the next symbol table has another string table.
        let candidates = self.functions.iter_mut().chain(&mut self.labels).flatten();
        candidates.for_each(|candidate| {
            candidate.name(elf, strings);
        });
        Some(())
    }

    fn symbols<S: ReadAt, T: Sym<Endian = Endianness>>(&mut self, elf: &Elf<S>, strings: &Section, piece: &[u8]) {
        let endian = elf.endian;
        let whole = piece.len() - piece.len() % size_of::<T>();
        for symbol in slice_from_all_bytes::<T>(&piece[..whole]).unwrap_or_default() {
            let section = symbol.st_shndx(endian);
            if section == SHN_UNDEF || section == SHN_ABS {
                continue;
            }
            let is_label = match symbol.st_type() {
                STT_FUNC | STT_GNU_IFUNC => false,
                STT_NOTYPE => true,
                _ => continue,
            };
            if is_label && elf.has_marks && symbol.st_bind() == STB_LOCAL {
                continue;
            }
            let start: u64 = symbol.st_value(endian).into();
            // Index of the first address that the symbol may contain.
            let at = self.addrs.partition_point(|addr| *addr < start);
            self.next[at] = self.next[at].min(start);
            if at == self.addrs.len() {
                continue;
            }
            let len_bytes: u64 = symbol.st_size(endian).into();
            // A function without a length ends at the end of its section at the latest. After `_init`, for example, the section of the PLT follows.
            let limit = match elf.sections.get(usize::from(section)) {
                Some(section) if len_bytes == 0 => section.vaddr.saturating_add(section.bytes),
                Some(_) => start.saturating_add(len_bytes),
                None => continue,
            };
            let rank = (len_bytes > 0, symbol.st_bind() != STB_WEAK, symbol.st_bind() == STB_GLOBAL);
            let mut found = Candidate { start, limit, rank, name_at: symbol.st_name(endian), name: None };
            let slot = if is_label { &mut self.labels[at] } else { &mut self.functions[at] };
            let is_better = match slot {
                None => true,
                Some(known) if known.start != start => known.start < start,
                Some(known) if known.rank != rank => known.rank < rank,
                // If the ranks are equal, the name with fewer leading underscores wins, then the longer name.
                Some(known) => preference(known.name(elf, strings)) < preference(found.name(elf, strings)),
            };
            if is_better {
                *slot = Some(found);
            }
        }
    }

    /// Start, length and name of each function that contains an address; ascending, without duplicates.
    fn found(mut self) -> Vec<(u64, u64, Vec<u8>)> {
        // Suffix minimum: the next symbol start above each address.
        for at in (0..self.addrs.len()).rev() {
            self.next[at] = self.next[at].min(self.next[at + 1]);
        }
        let mut found: Vec<(u64, u64, Vec<u8>)> = Vec::new();
        let (mut function, mut label): (Option<Candidate>, Option<Candidate>) = (None, None);
        let slots = self.addrs.iter().zip(&self.next[1..]).zip(self.functions.into_iter().zip(self.labels));
        for ((addr, next), (of_function, of_label)) in slots {
            function = of_function.or(function);
            label = of_label.or(label);
            let end = |it: &Candidate| if it.rank.0 { it.limit } else { it.limit.min(*next) };
            let of_function = function.as_ref().filter(|it| *addr < end(it));
            // A label inside a function does not name addresses after the end of this function.
            let is_last = |it: &&Candidate| function.as_ref().is_none_or(|function| it.start >= end(function));
            let of_label = label.as_ref().filter(|it| *addr < end(it)).filter(is_last);
            if let Some(best) = of_function.or(of_label)
                && let Some(name) = best.name.clone().filter(|name| !name.is_empty())
                && found.last().is_none_or(|last| last.0 != best.start)
            {
                found.push((best.start, end(best) - best.start, name));
            }
        }
        found
    }

    /// Returns true if each address is inside a function with a length.
    pub(super) fn is_complete(&self) -> bool {
        let mut function: Option<&Candidate> = None;
        self.addrs.iter().zip(&self.functions).all(|(addr, found)| {
            function = found.as_ref().or(function);
            function.is_some_and(|it| it.rank.0 && *addr < it.limit)
        })
    }

    /// Converts the starts of the functions found to file offsets. Functions for which `offset_of` returns `None` are left out.
    pub(super) fn into_functions(self, offset_of: impl Fn(u64) -> Option<u64>) -> Vec<ElfFunction> {
        let found = self.found().into_iter();
        found
            .filter_map(|(start, len_bytes, name)| Some(ElfFunction { offset: offset_of(start)?, len_bytes, name }))
            .collect()
    }
}

impl Candidate {
    /// Name of the symbol; empty if the string table does not contain it.
    fn name<S: ReadAt>(&mut self, elf: &Elf<S>, strings: &Section) -> &[u8] {
        self.name.get_or_insert_with(|| name(elf, strings, self.name_at).unwrap_or_default())
    }
}

/// String at offset `at` of a string table.
fn name<S: ReadAt>(elf: &Elf<S>, strings: &Section, at: u32) -> Option<Vec<u8>> {
    let left = strings.bytes.checked_sub(u64::from(at))?;
    for most in [SHORT_NAME_BYTES, NAME_MAX_BYTES] {
        let len = most.min(usize::try_from(left).unwrap_or(most));
        let mut bytes = elf.source.read_at(strings.offset.checked_add(u64::from(at))?, len)?;
        if let Some(end) = bytes.iter().position(|byte| *byte == 0) {
            bytes.truncate(end);
            return Some(bytes);
        }
    }
    None
}

/// Preference for a name among several names of a function; the highest wins.
fn preference(name: &[u8]) -> (bool, Reverse<usize>, usize) {
    (!name.is_empty(), Reverse(name.iter().take_while(|byte| **byte == b'_').count()), name.len())
}
