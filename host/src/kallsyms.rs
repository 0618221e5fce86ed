//! `/proc/kallsyms`: symbols of the kernel, its modules and pseudo modules such as `[bpf]`.
//!
//! Reading the file costs the kernel tens of milliseconds per 100,000 symbols. Functions under pseudo modules such as
//! `[bpf]` cost more: their time grows with the square of their number (0.4 s for 4,000). They follow the symbols of
//! the kernel and its modules, so [`Kallsyms::read_before`] stops before them for a caller that needs only the latter.
//! [`SymbolReader`] reads line by line, for a caller that needs only a few of the first symbols.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::sync::OnceLock;

use crate::error::{Error, Result};

const PATH: &str = "/proc/kallsyms";
/// Bytes that are read at a time in the search for the first symbol of a module.
const PIECE_BYTES: u64 = 64 << 10;

/// One line: `<hex address> <type> <name>[\t[module]]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symbol<'a> {
    /// Address; zero if the kernel hides addresses.
    pub addr: u64,
    /// Type letter, as in `nm`.
    pub kind: u8,
    /// Name of the symbol.
    pub name: &'a [u8],
    /// Module or pseudo module; `None` for the kernel itself.
    pub module: Option<&'a [u8]>,
}

/// A function, which ends at the next symbol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
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
        let digits = line.iter().position(|byte| *byte == b' ')?;
        let mut addr = 0u64;
        for digit in line.get(..digits.min(16))? {
            addr = addr << 4 | u64::from(char::from(*digit).to_digit(16)?);
        }
        let kind = *line.get(digits + 1)?;
        let rest = line.get(digits + 3..)?;
        match rest.iter().position(|byte| *byte == b'\t') {
            None => Some(Symbol { addr, kind, name: rest, module: None }),
            Some(tab) => {
                let module = rest.get(tab + 1..)?.strip_prefix(b"[")?.strip_suffix(b"]")?;
                Some(Symbol { addr, kind, name: rest.get(..tab)?, module: Some(module) })
            }
        }
    }

    fn is_function(&self) -> bool {
        matches!(self.kind, b't' | b'T' | b'w' | b'W')
    }

    fn full_name(&self) -> Vec<u8> {
        match self.module {
            None => self.name.to_vec(),
            Some(module) => [self.name, b" [", module, b"]"].concat(),
        }
    }
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

    /// Returns the first result of `pick` that is not `None`; `None` at the end of the table.
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
    /// Modules that were loaded when the table was read.
    modules: Vec<String>,
    /// Addresses, with the offsets of their lines in the text; made at the first lookup of a function.
    by_address: OnceLock<Vec<(u64, usize)>>,
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

    /// Reads the symbols before the first symbol of `module`. The last piece read may also contain some of `module`.
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

    /// Creates a table from its text.
    pub fn from_text(text: Vec<u8>) -> Kallsyms {
        Kallsyms { text, modules: Vec::new(), by_address: OnceLock::new() }
    }

    /// Returns true if the kernel hides addresses from this process: all addresses are zero.
    pub fn is_hidden(&self) -> bool {
        self.symbols().next().is_some_and(|first| first.addr == 0) && self.symbols().all(|symbol| symbol.addr == 0)
    }

    /// All symbols, in the order of the file.
    pub fn symbols(&self) -> impl Iterator<Item = Symbol<'_>> {
        self.text.split(|byte| *byte == b'\n').filter_map(Symbol::parse)
    }

    /// Address of the first symbol with this name that belongs to no module.
    pub fn address_of(&self, name: &[u8]) -> Option<u64> {
        let lines = self.text.split(|byte| *byte == b'\n');
        let mut symbols = lines.filter(|line| line.ends_with(name)).filter_map(Symbol::parse);
        symbols.find(|symbol| symbol.name == name && symbol.module.is_none()).map(|symbol| symbol.addr)
    }

    /// Functions that contain `addresses`, sorted by address, without duplicates. Addresses outside of all functions
    /// are left out.
    ///
    /// A function ends where the next symbol starts. Of several names of one address a global name wins, then the first
    /// in the file.
    pub fn functions_at(&self, addresses: &[u64]) -> Vec<Function> {
        let mut wanted = addresses.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        let starts = self.by_address.get_or_init(|| self.sorted());
        let mut functions: Vec<Function> = Vec::new();
        for addr in wanted {
            let after = starts.partition_point(|(start, _)| *start <= addr);
            let Some(start) = starts[..after].last().map(|(start, _)| *start) else { continue };
            if functions.last().is_some_and(|function| function.addr == start) {
                continue;
            }
            let first = starts.partition_point(|(other, _)| *other < start);
            let line = self.text[starts[first].1..].split(|byte| *byte == b'\n').next();
            let Some(best) = line.and_then(Symbol::parse) else { continue };
            let Some((next, _)) = starts.get(after) else { continue };
            let len_bytes = u32::try_from(next - start).unwrap_or(0);
            if !best.is_function() || len_bytes == 0 {
                continue;
            }
            functions.push(Function { addr: start, len_bytes, name: best.full_name() });
        }
        functions
    }

    /// Symbols at which functions can start or end, sorted by address; of several names of one address the best comes
    /// first.
    fn sorted(&self) -> Vec<(u64, usize)> {
        let mut at = 0;
        let lines = self.text.split(|byte| *byte == b'\n').filter_map(|line| {
            let place = at;
            at += line.len() + 1;
            Some((Symbol::parse(line)?, place))
        });
        // Data symbols also end functions, so they are kept.
        let is_place = |symbol: &Symbol<'_>| symbol.addr != 0 && !symbol.kind.eq_ignore_ascii_case(&b'a');
        let mut starts: Vec<(Symbol<'_>, usize)> = lines.filter(|(symbol, _)| is_place(symbol)).collect();
        starts.sort_by_key(|(symbol, _)| (symbol.addr, !symbol.is_function(), symbol.kind.is_ascii_lowercase()));
        starts.into_iter().map(|(symbol, place)| (symbol.addr, place)).collect()
    }
}

/// Name and address of each loaded module.
fn modules() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/modules").unwrap_or_default();
    // The fields between the two are counts that change all the time.
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
        assert_eq!(names, ["_text", "do_work", "mod_fn [ext4]"]);
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
