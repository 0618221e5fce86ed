//! Feature sections that describe the machine.
//!
//! Readers are strict: perf refuses a whole file for one incomplete section. So a section is written completely or not
//! at all.

mod cpu;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bprec_format::Endian;
use bprec_format::feature::{Feature, SectionContent, Text, TextList};

/// The sections that can be filled in completely, as pairs of bit and payload in ascending order: HOSTNAME …
/// CPU_TOPOLOGY. CMDLINE comes from `argv`.
pub(crate) fn features(argv: &[OsString]) -> Vec<(u8, Vec<u8>)> {
    let sections = [
        (Feature::HOSTNAME, sysctl("hostname")),
        (Feature::OSRELEASE, sysctl("osrelease")),
        (Feature::VERSION, Some(text(concat!("bprec ", env!("CARGO_PKG_VERSION"))))),
        (Feature::ARCH, sysctl("arch").or_else(|| Some(text(std::env::consts::ARCH)))),
        (Feature::NRCPUS, cpu::count()),
        (Feature::CPUDESC, cpu::description()),
        (Feature::CPUID, cpu::id()),
        (Feature::CMDLINE, command_line(argv)),
        (Feature::CPU_TOPOLOGY, cpu::topology()),
    ];
    sections.into_iter().filter_map(|(feature, payload)| Some((feature.0, payload?))).collect()
}

fn encoded<'a>(payload: &impl SectionContent<'a>) -> Vec<u8> {
    payload.to_bytes(Endian::NATIVE)
}

fn text(text: &str) -> Vec<u8> {
    encoded(&Text(text.as_bytes()))
}

/// Section payload with the text of a file under /proc/sys/kernel.
fn sysctl(name: &str) -> Option<Vec<u8>> {
    line(Path::new("/proc/sys/kernel").join(name)).map(|line| text(&line))
}

/// The CMDLINE section: path of the recorder's executable, and the arguments.
fn command_line(argv: &[OsString]) -> Option<Vec<u8>> {
    let program = fs::read_link("/proc/self/exe").ok()?;
    let arguments = argv.iter().skip(1).map(|argument| argument.as_bytes());
    Some(encoded(&TextList(std::iter::once(program.as_os_str().as_bytes()).chain(arguments).collect())))
}

/// Text of a one-line file, trimmed; `None` if the file is missing or empty.
fn line(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// Number in a file that holds one decimal number.
fn number(path: impl AsRef<Path>) -> Option<u32> {
    line(path)?.parse().ok()
}
