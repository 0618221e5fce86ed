//! `/proc/kallsyms`: images that the kernel makes beside programs, and names for a set of addresses.
//!
//! Reading the file costs the kernel tens of milliseconds per 100,000 symbols, whatever is done with them here, and for
//! the symbols of BPF a time that grows with the square of their number (0.4 s for 4,000). They come after those of the
//! kernel and its modules, so that who needs only these is spared that.

use std::fs;
use std::io::Read;

use bprec_format::bpf::names::ProgType;
use bprec_format::state::KernelSymbol;

use crate::access;
use crate::error::{Error, Result};

const PATH: &str = "/proc/kallsyms";
/// What is read at once while looking for the first symbol of BPF.
const PIECE_BYTES: u64 = 64 << 10;
/// The end of the line of a symbol of BPF.
const BPF_TAG: &[u8] = b"\t[bpf]\n";

/// The symbol table of the running kernel, as one reading of it gave it.
#[derive(Debug)]
pub struct Kallsyms {
    text: Vec<u8>,
}

/// One line: address, type letter, name, module.
struct Line<'a> {
    addr: u64,
    kind: u8,
    name: &'a [u8],
    module: Option<&'a [u8]>,
}

impl Kallsyms {
    /// Reads it all.
    ///
    /// # Errors
    /// When /proc/kallsyms cannot be read.
    pub fn read() -> Result<Kallsyms> {
        fs::read(PATH).map(|text| Kallsyms { text }).map_err(|source| Error::file(PATH, source))
    }

    /// Reads the symbols of the kernel and its modules, but not those of BPF.
    ///
    /// # Errors
    /// When /proc/kallsyms cannot be read.
    pub fn read_without_bpf() -> Result<Kallsyms> {
        let read = || {
            let mut file = fs::File::open(PATH)?;
            let mut text = Vec::with_capacity(8 << 20);
            loop {
                let before = text.len();
                if (&mut file).take(PIECE_BYTES).read_to_end(&mut text)? == 0 {
                    break;
                }
                // A tag may be cut in two by the end of a piece.
                let tail = text.get(before.saturating_sub(BPF_TAG.len())..).unwrap_or_default();
                if tail.windows(BPF_TAG.len()).any(|window| window == BPF_TAG) {
                    break;
                }
            }
            let end = text.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
            text.truncate(end);
            Ok(Kallsyms { text })
        };
        read().map_err(|source| Error::file(PATH, source))
    }

    /// True when the kernel hides addresses from this process: every one of them reads as zero.
    pub fn is_hidden(&self) -> bool {
        self.lines().next().is_some_and(|first| first.addr == 0) && self.lines().all(|line| line.addr == 0)
    }

    /// Trampolines, dispatchers and struct_ops stubs (`bpf_trampoline_*`, `bpf_dispatcher_*`, `bpf__*`), by address.
    ///
    /// The kernel tells neither their lengths nor, when hidden, their addresses.
    pub fn bpf_images(&self) -> Vec<KernelSymbol> {
        self.bpf_symbols(|name| !name.starts_with(b"bpf_prog_"))
    }

    /// Functions of programs (`bpf_prog_<tag>_<name>`), by address: those the verifier added are among them.
    pub fn bpf_functions(&self) -> Vec<KernelSymbol> {
        self.bpf_symbols(|name| name.starts_with(b"bpf_prog_"))
    }

    /// Why images or functions are missing from it; None when nothing stands in the way.
    pub fn problem(&self) -> Option<&'static str> {
        if self.is_hidden() { access::hidden_addresses() } else { access::hidden_symbols() }
    }

    /// Whether programs of this type make the kernel build images: trampolines, dispatchers or stubs.
    pub fn has_images(prog_type: ProgType) -> bool {
        use ProgType as T;
        matches!(prog_type, T::TRACING | T::LSM | T::EXT | T::STRUCT_OPS | T::XDP)
    }

    fn bpf_symbols(&self, wanted: impl Fn(&[u8]) -> bool) -> Vec<KernelSymbol> {
        let mut symbols: Vec<KernelSymbol> = self
            .lines()
            .filter(|line| line.module == Some(b"bpf") && line.addr != 0 && wanted(line.name))
            .map(|line| KernelSymbol { addr: line.addr, len_bytes: 0, name: line.name.to_vec() })
            .collect();
        symbols.sort_by(|a, b| (a.addr, &a.name).cmp(&(b.addr, &b.name)));
        symbols
    }

    /// The functions that hold `addresses`, by address, each once. An address that no function can hold is left out.
    ///
    /// A function ends where the next symbol starts. Of several names for one address a global one wins, then the
    /// first in the file.
    pub fn functions_at(&self, addresses: &[u64]) -> Vec<KernelSymbol> {
        let mut wanted = addresses.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        // Symbols of data end functions too, so they stay in.
        let mut starts: Vec<Line<'_>> =
            self.lines().filter(|line| line.addr != 0 && !line.kind.eq_ignore_ascii_case(&b'a')).collect();
        starts.sort_by_key(|line| (line.addr, !line.is_function(), line.kind.is_ascii_lowercase()));
        let mut functions: Vec<KernelSymbol> = Vec::new();
        for addr in wanted {
            let after = starts.partition_point(|line| line.addr <= addr);
            let Some(start) = starts[..after].last().map(|line| line.addr) else { continue };
            if functions.last().is_some_and(|function| function.addr == start) {
                continue;
            }
            let first = starts.partition_point(|line| line.addr < start);
            let best = &starts[first];
            let Some(next) = starts.get(after) else { continue };
            let len_bytes = u32::try_from(next.addr - start).unwrap_or(0);
            if !best.is_function() || len_bytes == 0 {
                continue;
            }
            functions.push(KernelSymbol { addr: start, len_bytes, name: best.full_name() });
        }
        functions
    }

    fn lines(&self) -> impl Iterator<Item = Line<'_>> {
        self.text.split(|byte| *byte == b'\n').filter_map(Line::parse)
    }
}

impl<'a> Line<'a> {
    /// `<hex address> <type> <name>[\t[module]]`
    fn parse(line: &'a [u8]) -> Option<Line<'a>> {
        let digits = line.iter().position(|byte| *byte == b' ')?;
        let mut addr = 0u64;
        for digit in line.get(..digits.min(16))? {
            addr = addr << 4 | u64::from(char::from(*digit).to_digit(16)?);
        }
        let kind = *line.get(digits + 1)?;
        let rest = line.get(digits + 3..)?;
        match rest.iter().position(|byte| *byte == b'\t') {
            None => Some(Line { addr, kind, name: rest, module: None }),
            Some(tab) => {
                let module = rest.get(tab + 1..)?.strip_prefix(b"[")?.strip_suffix(b"]")?;
                Some(Line { addr, kind, name: rest.get(..tab)?, module: Some(module) })
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

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &[u8] = b"0000000000000000 A fixed_percpu_data
ffffffff81000000 t local_alias
ffffffff81000000 T _text
ffffffff81000100 T do_work
ffffffff81000200 D some_data
ffffffffc0001000 t mod_fn\t[ext4]
ffffffffc0002000 t bpf_prog_0011223344556677_name\t[bpf]
ffffffffc0001800 t bpf_trampoline_6442463123\t[bpf]
ffffffffc0003000 t bpf_dispatcher_xdp\t[bpf]
";

    fn kallsyms(text: &[u8]) -> Kallsyms {
        Kallsyms { text: text.to_vec() }
    }

    fn names(symbols: &[KernelSymbol]) -> Vec<&str> {
        symbols.iter().map(|symbol| std::str::from_utf8(&symbol.name).unwrap_or("?")).collect()
    }

    #[test]
    fn images_are_told_from_programs() {
        let all = kallsyms(TEXT);
        assert_eq!(names(&all.bpf_images()), ["bpf_trampoline_6442463123", "bpf_dispatcher_xdp"]);
        assert_eq!(names(&all.bpf_functions()), ["bpf_prog_0011223344556677_name"]);
        assert!(!all.is_hidden());
    }

    #[test]
    fn addresses_lead_to_the_function_that_holds_them() {
        let found = kallsyms(TEXT).functions_at(&[
            0xffffffff81000150,
            0xffffffff81000100,
            0xffffffff810000ff,
            0xffffffff81000208,
            0xffffffffc0001004,
            0x10,
            u64::MAX,
        ]);
        assert_eq!(names(&found), ["_text", "do_work", "mod_fn [ext4]"]);
        assert_eq!(found[1].len_bytes, 0x100);
        assert_eq!(found[2].len_bytes, 0x800);
    }

    #[test]
    fn zero_addresses_are_hidden_ones() {
        let hidden = kallsyms(b"0000000000000000 T _text\n0000000000000000 t bpf_prog_00_x\t[bpf]\n");
        assert!(hidden.is_hidden());
        assert!(hidden.bpf_functions().is_empty() && hidden.functions_at(&[4096]).is_empty());
        assert!(!kallsyms(b"").is_hidden());
        assert!(kallsyms(b"zz\n\n1 \nffff t\n").bpf_images().is_empty());
    }
}
