//! `/proc/kallsyms`: symbols of the kernel, its modules and pseudo modules such as `[bpf]`.
//!
//! The kernel takes tens of milliseconds to print 100,000 symbols. Symbols of pseudo modules such as `[bpf]` take longer: their time grows with the
//! square of their count (0.4 s for 4,000). They come last in the file. [`Kallsyms::read_before`] stops before them, for a caller that needs only
//! symbols of the kernel and its modules. [`SymbolReader`] reads line by line, for a caller that needs only a few of the first symbols.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::sync::OnceLock;

use crate::error::{Error, Result};

const PATH: &str = "/proc/kallsyms";
/// Bytes that are read at a time in the search for the first symbol of a module.
const PIECE_BYTES: u64 = 64 << 10;
/// Typical bytes of a line, for the capacity of a table of all lines.
const BYTES_PER_LINE: usize = 40;

/// One line: `<hex address> <type> <name>[\t[module]]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Address; zero if the kernel hides addresses.
    pub addr: u64,
    /// Type letter, as in `nm`.
    pub kind: u8,
    /// Name without the module.
    pub name: &'a [u8],
    /// Module or pseudo module; `None` for the kernel itself.
    pub module: Option<&'a [u8]>,
}

/// A function. It ends at the next symbol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelFunction {
    /// Address of the first byte.
    pub addr: u64,
    /// Distance to the next symbol, in bytes.
    pub len_bytes: u32,
    /// Name as `name`, or `name [module]`.
    pub name: Vec<u8>,
}

impl<'a> Symbol<'a> {
    /// Parses a line, with or without its line end; `None` if the line is not a symbol.
    pub fn parse(line: &'a [u8]) -> Option<Symbol<'a>> {
        let line = line.trim_ascii_end();
        let (addr, kind, rest) = address_and_kind(line)?;
        // Most lines have no module. Names have no brackets, so only a module ends with `]`.
        let Some(with_module) = rest.strip_suffix(b"]") else {
            return Some(Symbol { addr, kind, name: rest, module: None });
        };
        let tab = with_module.iter().position(|byte| *byte == b'\t')?;
        let module = with_module.get(tab + 1..)?.strip_prefix(b"[")?;
        Some(Symbol { addr, kind, name: with_module.get(..tab)?, module: Some(module) })
    }

    fn full_name(&self) -> Vec<u8> {
        match self.module {
            None => self.name.to_vec(),
            Some(module) => [self.name, b" [", module, b"]"].concat(),
        }
    }
}

/// Splits a line into its address, its type letter and the rest.
fn address_and_kind(line: &[u8]) -> Option<(u64, u8, &[u8])> {
    let digits = line.iter().position(|byte| *byte == b' ')?;
    let mut addr = 0u64;
    for digit in line.get(..digits.min(16))? {
        addr = addr << 4 | u64::from(char::from(*digit).to_digit(16)?);
    }
    Some((addr, *line.get(digits + 1)?, line.get(digits + 3..)?))
}

/// Returns true if a type letter means a function.
fn is_function(kind: u8) -> bool {
    matches!(kind, b't' | b'T' | b'w' | b'W')
}

/// Lines of a text with their offsets, without line ends. `skip_until` calls memchr and is several times faster than `split`; the text has 100,000
/// lines.
fn lines(text: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let (at, line) = (text.len() - rest.len(), rest);
        let bytes = rest.skip_until(b'\n').ok().filter(|bytes| *bytes > 0)?;
        Some((at, line.get(..bytes)?.trim_ascii_end()))
    })
}

/// Reads symbols line by line.
#[derive(Debug)]
pub struct SymbolReader<R> {
    lines: R,
    line: Vec<u8>,
}

impl SymbolReader<BufReader<File>> {
    /// Opens the symbol table of the running kernel.
    ///
    /// # Errors
    /// Fails if the file cannot be read.
    pub fn open() -> Result<Self> {
        let file = File::open(PATH).map_err(|source| Error::new(PATH, source))?;
        Ok(SymbolReader::new(BufReader::with_capacity(1 << 16, file)))
    }
}

impl<R: BufRead> SymbolReader<R> {
    /// Creates a reader of the symbols in a text.
    pub fn new(lines: R) -> SymbolReader<R> {
        SymbolReader { lines, line: Vec::new() }
    }

    /// Returns the first result of `pick` that is not `None`; `None` if the table ends or cannot be read further.
    pub fn find_map<T>(&mut self, mut pick: impl FnMut(Symbol<'_>) -> Option<T>) -> Option<T> {
        loop {
            self.line.clear();
            if self.lines.read_until(b'\n', &mut self.line).ok()? == 0 {
                return None;
            }
            if let Some(found) = Symbol::parse(&self.line).and_then(&mut pick) {
                return Some(found);
            }
        }
    }
}

/// Snapshot of the symbol table of the running kernel.
#[derive(Debug)]
pub struct Kallsyms {
    text: Vec<u8>,
    /// Name and address of each module that was loaded when the table was read.
    modules: Vec<String>,
    /// Symbols sorted by address, each as (address, (0 for a function or 1, offset of its line in `text`)). Made at the first lookup of a function.
    by_address: OnceLock<Vec<(u64, (u8, u32))>>,
}

impl Kallsyms {
    /// Reads the whole table.
    ///
    /// # Errors
    /// Fails if /proc/kallsyms cannot be read.
    pub fn read() -> Result<Kallsyms> {
        let modules = modules();
        let text = std::fs::read(PATH).map_err(|source| Error::new(PATH, source))?;
        Ok(Kallsyms { modules, ..Kallsyms::from_text(text) })
    }

    /// Returns true if no module was loaded, unloaded or moved since the table was read.
    pub fn has_current_modules(&self) -> bool {
        self.modules == modules()
    }

    /// Reads the symbols before the first symbol of `module`. A few symbols of `module` may follow, from the last piece that was read.
    ///
    /// # Errors
    /// Fails if /proc/kallsyms cannot be read.
    pub fn read_before(module: &str) -> Result<Kallsyms> {
        let tag = format!("\t[{module}]\n").into_bytes();
        let modules = modules();
        let read = || {
            let mut file = File::open(PATH)?;
            let mut text = Vec::with_capacity(8 << 20);
            loop {
                let before = text.len();
                if (&mut file).take(PIECE_BYTES).read_to_end(&mut text)? == 0 {
                    break;
                }
                // The end of a piece may split a tag.
                let tail = text.get(before.saturating_sub(tag.len())..).unwrap_or_default();
                if tail.windows(tag.len()).any(|window| window == tag) {
                    break;
                }
            }
            let end = text.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
            text.truncate(end);
            Ok(Kallsyms { modules, ..Kallsyms::from_text(text) })
        };
        read().map_err(|source| Error::new(PATH, source))
    }

    /// Returns true if this process sees no table: a container or a service manager may mount an empty file over it.
    pub fn is_masked() -> bool {
        File::open(PATH).and_then(|mut file| file.read(&mut [0])).map_or(true, |bytes| bytes == 0)
    }

    /// Creates a table from its text.
    pub fn from_text(text: Vec<u8>) -> Kallsyms {
        Kallsyms { text, modules: Vec::new(), by_address: OnceLock::new() }
    }

    /// Returns true if the kernel hides addresses from this process: the table has symbols, and all addresses are zero.
    pub fn is_hidden(&self) -> bool {
        self.symbols().next().is_some_and(|first| first.addr == 0) && self.symbols().all(|symbol| symbol.addr == 0)
    }

    /// All symbols, in the order of the file.
    pub fn symbols(&self) -> impl Iterator<Item = Symbol<'_>> {
        lines(&self.text).filter_map(|(_, line)| Symbol::parse(line))
    }

    /// Symbols of a module, in the reverse order of the file. Modules follow the kernel, so only the end of the file is searched.
    pub fn symbols_of(&self, module: &str) -> impl Iterator<Item = Symbol<'_>> {
        let tag = format!("\t[{module}]").into_bytes();
        let lines = self.text.trim_ascii_end().rsplit(|byte| *byte == b'\n');
        lines.take_while(|line| line.ends_with(b"]")).filter(move |line| line.ends_with(&tag)).filter_map(Symbol::parse)
    }

    /// Address of the first symbol with this name that belongs to no module.
    pub fn address_of(&self, name: &[u8]) -> Option<u64> {
        let ending = lines(&self.text).filter(|(_, line)| line.ends_with(name));
        let mut symbols = ending.filter_map(|(_, line)| Symbol::parse(line));
        symbols.find(|symbol| symbol.name == name && symbol.module.is_none()).map(|symbol| symbol.addr)
    }

    /// Functions that contain `addresses`, sorted by address, without duplicates. Addresses outside of all functions
    /// are left out.
    ///
    /// A function ends where the next symbol starts. Of several names, the first in the file is chosen, as the kernel does.
    pub fn functions_at(&self, addresses: &[u64]) -> Vec<KernelFunction> {
        let mut wanted = addresses.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        let starts = self.by_address.get_or_init(|| self.sorted());
        let mut functions: Vec<KernelFunction> = Vec::new();
        for addr in wanted {
            let after = starts.partition_point(|(start, _)| *start <= addr);
            let Some(start) = starts[..after].last().map(|(start, _)| *start) else { continue };
            if functions.last().is_some_and(|function| function.addr == start) {
                continue;
            }
            let first = starts.partition_point(|(other, _)| *other < start);
            let (_, (_, place)) = starts[first];
            let line = lines(&self.text[place as usize..]).next();
            let Some(best) = line.and_then(|(_, line)| Symbol::parse(line)) else { continue };
            let Some((next, _)) = starts.get(after) else { continue };
            let len_bytes = u32::try_from(next - start).unwrap_or(0);
            if !is_function(best.kind) || len_bytes == 0 {
                continue;
            }
            functions.push(KernelFunction { addr: start, len_bytes, name: best.full_name() });
        }
        functions
    }

    /// Symbols at which functions can start or end, sorted by address. If an address has several names, those of functions come first, in the order
    /// of the file.
    fn sorted(&self) -> Vec<(u64, (u8, u32))> {
        let mut starts = Vec::with_capacity(self.text.len() / BYTES_PER_LINE);
        for (at, line) in lines(&self.text) {
            let (Some((addr, kind, _)), Ok(place)) = (address_and_kind(line), u32::try_from(at)) else { continue };
            // Data symbols stay in the table, because a function ends at the next symbol of any kind.
            if addr != 0 && !kind.eq_ignore_ascii_case(&b'a') {
                starts.push((addr, (u8::from(!is_function(kind)), place)));
            }
        }
        // Most of the file is sorted already; the stable sort is fast then.
        starts.sort();
        starts
    }
}

/// Name and address of each loaded module.
fn modules() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/modules").unwrap_or_default();
    // The fields between name and address are left out: they contain use counts, which change often.
    let named = text.lines().filter_map(|line| {
        let fields: Vec<&str> = line.split(' ').collect();
        Some(format!("{} {}", fields.first()?, fields.get(5)?))
    });
    named.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"0000000000000000 A fixed_percpu_data
ffffffff81000000 t local_alias
ffffffff81000000 T _text
ffffffff81000100 T do_work
ffffffff81000200 D some_data
ffffffffc0001000 t mod_fn\t[ext4]
ffffffffc0001800 t stub_6442463123\t[jit]
";

    #[test]
    fn addresses_lead_to_the_function_that_holds_them() {
        let found = Kallsyms::from_text(TEXT.to_vec()).functions_at(&[
            0xffffffff81000150,
            0xffffffff81000100,
            0xffffffff810000ff,
            0xffffffff81000208,
            0xffffffffc0001004,
            0x10,
            u64::MAX,
        ]);
        let names: Vec<&str> = found.iter().map(|it| std::str::from_utf8(&it.name).unwrap()).collect();
        assert_eq!(names, ["local_alias", "do_work", "mod_fn [ext4]"]);
        assert_eq!((found[1].len_bytes, found[2].len_bytes), (0x100, 0x800));
    }

    #[test]
    fn a_name_leads_to_its_address() {
        let kallsyms = Kallsyms::from_text(TEXT.to_vec());
        assert_eq!(kallsyms.address_of(b"do_work"), Some(0xffffffff81000100));
        assert_eq!(kallsyms.address_of(b"work"), None);
        assert_eq!(kallsyms.address_of(b"mod_fn"), None);
    }

    #[test]
    fn zero_addresses_are_hidden_ones() {
        let hidden = Kallsyms::from_text(b"0000000000000000 T _text\n0000000000000000 t x\t[jit]\n".to_vec());
        assert!(hidden.is_hidden() && hidden.functions_at(&[4096]).is_empty());
        assert!(!Kallsyms::from_text(Vec::new()).is_hidden() && !Kallsyms::from_text(TEXT.to_vec()).is_hidden());
    }

    #[test]
    fn a_reader_stops_at_what_it_looked_for_and_skips_what_is_no_symbol() {
        let mut reader = SymbolReader::new(&b"zz\n\n1 \nffff t\n10 T _stext\n20 t stub\t[jit]\n"[..]);
        assert_eq!(reader.find_map(|it| (it.name == b"_stext").then_some(it.addr)), Some(16));
        let rest = reader.find_map(|it| Some((it.addr, it.kind, it.module.map(<[u8]>::to_vec))));
        assert_eq!(rest, Some((32, b't', Some(b"jit".to_vec()))));
        assert_eq!(reader.find_map(|_| Some(())), None);
    }

    #[test]
    fn what_is_read_before_a_module_is_the_start_of_all() {
        let (Ok(all), Ok(part)) = (Kallsyms::read(), Kallsyms::read_before("bpf")) else { return };
        assert_eq!(all.modules, part.modules);
        // Modules may be loaded or unloaded between the two reads.
        assert!(part.text.len() <= all.text.len() + (1 << 20));
        assert_eq!(part.symbols().next().map(|it| it.name.to_vec()), all.symbols().next().map(|it| it.name.to_vec()));
    }
}
