//! MMAP records of the kernel and its modules.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{BufRead, Read};

use bprec_format::records::{BuildId, Mmap2, Mmap2File};
use bprec_format::{RecordType, SampleLayout, misc};
use bprec_host::elf::build_id_in_notes;
use bprec_host::{Kallsyms, SymbolReader};

use super::maps::hexadecimal;
use super::{NO_PID, append};
use crate::limits::Limit;

/// Range of the kernel's code.
#[derive(Debug, PartialEq, Eq)]
struct KernelText {
    /// Name and address of the symbol from which readers compute the kernel's relocation offset.
    reference: &'static str,
    reference_addr: u64,
    start: u64,
    end: u64,
}

/// Appends the MMAP records of the kernel and its modules. Returns the reason if the record of the kernel is missing: without this record, samples in
/// the kernel cannot be symbolised.
pub(crate) fn kernel(layout: &SampleLayout, out: &mut Vec<u8>) -> Option<String> {
    match KernelText::find() {
        Ok(text) => {
            let filename = format!("[kernel.kallsyms]{}", text.reference);
            let range = (text.start, text.end - text.start);
            map(layout, out, range, text.reference_addr, "/sys/kernel/notes", filename.as_bytes());
        }
        Err(reason) => return Some(reason),
    }
    modules(layout, out);
    None
}

fn map(layout: &SampleLayout, out: &mut Vec<u8>, range: (u64, u64), pgoff: u64, notes: &str, filename: &[u8]) {
    let build_id = fs::read(notes).ok().and_then(|notes| build_id_in_notes(&notes));
    let file = match build_id {
        Some(id) => Mmap2File::BuildId(BuildId::new(&id)),
        None => Mmap2File::Inode { major: 0, minor: 0, inode: 0, generation: 0 },
    };
    let (addr, len_bytes) = range;
    let mmap = Mmap2 { pid: NO_PID, tid: 0, addr, len_bytes, pgoff, file, prot: 0, flags: 0, filename };
    append(layout, out, RecordType::MMAP2, misc::KERNEL | mmap.misc(), |w| mmap.encode(w));
}

impl KernelText {
    fn find() -> Result<KernelText, String> {
        let mut symbols = SymbolReader::open().map_err(|error| error.to_string())?;
        let Some((text, stext)) = text_starts(&mut symbols) else {
            return Err(format!(
                "/proc/kallsyms has neither _text nor _stext, which mark the start of the kernel's code{}",
                match Kallsyms::is_masked() {
                    true => format!(": it is empty; bprec needs {}", Limit::KallsymsMasked.remedy()),
                    false => String::new(),
                }
            ));
        };
        let (reference, start) = match text {
            Some(addr) => ("_text", addr),
            None => ("_stext", stext.unwrap_or_default()),
        };
        if start == 0 {
            return Err(why_hidden());
        }
        // `_etext`, the symbol at the end, comes late in kallsyms, and reading all of kallsyms takes longer than everything else here. /proc/iomem
        // has the length of the code; on arm64 this length starts at _stext.
        let counted_from = if cfg!(target_arch = "aarch64") { stext.unwrap_or(start) } else { start };
        let memory = fs::read_to_string("/proc/iomem").unwrap_or_default();
        let end = match kernel_code_bytes(&memory) {
            Some(bytes) => counted_from.saturating_add(bytes),
            None => symbols.find_map(|it| (it.name == b"_etext").then_some(it.addr)).unwrap_or(0),
        };
        if end <= start {
            return Err("/proc/kallsyms does not show the end of the kernel's code".to_owned());
        }
        Ok(KernelText { reference, reference_addr: start, start, end })
    }
}

/// Reason why kernel addresses read as zero. `kptr_restrict` 2 hides them from everyone, 1 from users without CAP_SYSLOG. 0 hides them from users
/// without CAP_SYSLOG only if `perf_event_paranoid` is above 1.
fn why_hidden() -> String {
    let restricted = fs::read_to_string("/proc/sys/kernel/kptr_restrict").unwrap_or_default();
    let (what, limit) = match restricted.trim() {
        "2" => ("kernel.kptr_restrict is 2, which hides kernel addresses from everyone", Limit::AddressesHidden),
        _ => (
            "the kernel hides its addresses from this user; run as root or with CAP_SYSLOG",
            Limit::AddressesHiddenFromUser,
        ),
    };
    let or = if limit == Limit::AddressesHidden { ";" } else { ", or change the setting" };
    format!("{what}{or} as root: {}", limit.remedy())
}

/// Reads the addresses of `_text` and `_stext`, which are at the start of the kernel's code; `None` if neither is
/// found.
fn text_starts<R: BufRead>(symbols: &mut SymbolReader<R>) -> Option<(Option<u64>, Option<u64>)> {
    let (mut text, mut stext) = (None, None);
    // All kernels since 2.6 have both symbols, close to each other. So the search ends at the latest NEIGHBOURS symbols
    // after the first of them.
    let mut left = None;
    symbols.find_map(|it| {
        match it.name {
            b"_text" => text = Some(it.addr),
            b"_stext" => stext = Some(it.addr),
            _ => {}
        }
        if text.is_some() || stext.is_some() {
            left = left.or(Some(NEIGHBOURS)).map(|left: u32| left.saturating_sub(1));
        }
        (text.is_some() && stext.is_some() || left == Some(0)).then_some(())
    });
    (text.is_some() || stext.is_some()).then_some((text, stext))
}

/// Limit on symbols between `_text` and `_stext`.
const NEIGHBOURS: u32 = 1000;

/// Returns the length of the range `<start>-<end> : Kernel code` in `/proc/iomem`; `None` if it is hidden.
fn kernel_code_bytes(memory: &str) -> Option<u64> {
    let line = memory.lines().find(|line| line.ends_with(": Kernel code"))?;
    let (start, end) = line.split_once(" : ")?.0.trim().split_once('-')?;
    let (start, end) = (hexadecimal(start.as_bytes())?, hexadecimal(end.as_bytes())?);
    end.checked_sub(start).filter(|bytes| *bytes > 0)?.checked_add(1)
}

/// One line of `/proc/modules`.
#[derive(Debug, PartialEq, Eq)]
struct Module<'a> {
    name: &'a str,
    addr: u64,
    bytes: u64,
}

fn modules(layout: &SampleLayout, out: &mut Vec<u8>) {
    let text = fs::read_to_string("/proc/modules").unwrap_or_default();
    let modules = parse_modules(&text);
    if modules.is_empty() {
        return;
    }
    let paths = module_paths();
    for module in modules {
        let bracketed = format!("[{}]", module.name);
        let path = paths.get(module.name).unwrap_or(&bracketed);
        let notes = format!("/sys/module/{}/notes/.note.gnu.build-id", module.name);
        map(layout, out, (module.addr, module.bytes), 0, &notes, path.as_bytes());
    }
}

/// Parses lines of `name size references users state address`, sorted by address. Modules with a hidden address are left out.
/// Since Linux 6.4 the size includes data at other addresses, so each module is cut at the start of the next module.
fn parse_modules(text: &str) -> Vec<Module<'_>> {
    let parse = |line| {
        let fields: Vec<&str> = str::split_ascii_whitespace(line).collect();
        let addr = hexadecimal(fields.get(5)?.strip_prefix("0x")?.as_bytes())?;
        Some(Module { name: fields.first()?, addr, bytes: fields.get(1)?.parse().ok()? })
    };
    let mut modules: Vec<Module<'_>> = text.lines().filter_map(parse).filter(|module| module.addr != 0).collect();
    modules.sort_by_key(|module| module.addr);
    for next in 1..modules.len() {
        let next_addr = modules[next].addr;
        let module = &mut modules[next - 1];
        module.bytes = module.bytes.min(next_addr - module.addr);
    }
    modules
}

/// Returns the files of modules by module name.
fn module_paths() -> HashMap<String, String> {
    let mut release = String::new();
    let read = File::open("/proc/sys/kernel/osrelease").and_then(|mut file| file.read_to_string(&mut release));
    if read.is_err() {
        return HashMap::new();
    }
    let directory = format!("/lib/modules/{}", release.trim());
    let text = fs::read_to_string(format!("{directory}/modules.dep")).unwrap_or_default();
    let files = text.lines().filter_map(|line| line.split_once(':')).map(|(file, _)| file);
    files.filter_map(|file| Some((module_name(file)?, format!("{directory}/{file}")))).collect()
}

/// Returns the module name of a file: `dummy_x` for `kernel/drivers/net/dummy-x.ko.xz`.
fn module_name(file: &str) -> Option<String> {
    let (name, _) = file.rsplit('/').next()?.split_once(".ko")?;
    Some(name.replace('-', "_"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_end_where_the_next_starts() {
        let text = "xfs 2000000 1 - Live 0xffffffffc0a00000\n\
            hidden 4096 0 - Live 0x0000000000000000\n\
            dummy_x 16384 2 xfs,ext4 Live 0xffffffffc0900000 (OE)\n";
        let found = parse_modules(text);
        let expected = [("dummy_x", 0xffff_ffff_c090_0000, 16384), ("xfs", 0xffff_ffff_c0a0_0000, 2_000_000)];
        assert_eq!(found.iter().map(|m| (m.name, m.addr, m.bytes)).collect::<Vec<_>>(), expected);
        let close = "b 4096 0 - Live 0x2000\na 99999 0 - Live 0x1000\n";
        assert_eq!(parse_modules(close)[0].bytes, 0x1000);
        assert_eq!(module_name("kernel/drivers/net/dummy-x.ko.xz").as_deref(), Some("dummy_x"));
    }

    #[test]
    fn the_text_is_found_behind_other_symbols() {
        let symbols = |text: &'static str| text_starts(&mut SymbolReader::new(text.as_bytes()));
        assert_eq!(symbols("0 A percpu\n10 T _stext\n10 T _text\n"), Some((Some(16), Some(16))));
        assert_eq!(symbols("0 A percpu\nff T _stext\n"), Some((None, Some(255))));
        assert_eq!(symbols("0 A percpu\n"), None);
        assert_eq!(kernel_code_bytes("  01000000-02208d87 : Kernel code\n"), Some(0x0120_8d88));
        assert_eq!(kernel_code_bytes("  00000000-00000000 : Kernel code\n"), None);
    }
}
