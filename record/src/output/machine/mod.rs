//! Feature sections that describe the machine.
//!
//! Readers of these sections are strict: one that is incomplete makes perf refuse the whole file. So each is written
//! whole or not at all, and what the machine does not tell is left out.

mod cpu;
mod memory;
mod pmu;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bprec_format::Endian;
use bprec_format::feature::{Feature, Payload, Text, TextList};
use bprec_host::parse_cpu_list as number_list;

/// The sections that can be filled in completely, as bit and payload, ascending: HOSTNAME … PMU_CAPS, CMDLINE from
/// `argv`.
pub(crate) fn features(argv: &[OsString]) -> Vec<(u8, Vec<u8>)> {
    let sections = [
        (Feature::HOSTNAME, sysctl("hostname")),
        (Feature::OSRELEASE, sysctl("osrelease")),
        (Feature::VERSION, Some(text(concat!("bprec ", env!("CARGO_PKG_VERSION"))))),
        (Feature::ARCH, sysctl("arch").or_else(|| Some(text(std::env::consts::ARCH)))),
        (Feature::NRCPUS, cpu::count()),
        (Feature::CPUDESC, cpu::description()),
        (Feature::CPUID, cpu::id()),
        (Feature::TOTAL_MEM, memory::total()),
        (Feature::CMDLINE, command_line(argv)),
        (Feature::CPU_TOPOLOGY, cpu::topology()),
        (Feature::NUMA_TOPOLOGY, memory::nodes()),
        (Feature::PMU_MAPPINGS, pmu::mappings()),
        (Feature::CACHE, cpu::caches()),
        (Feature::MEM_TOPOLOGY, memory::blocks()),
        (Feature::CPU_PMU_CAPS, pmu::cpu_caps()),
        (Feature::HYBRID_TOPOLOGY, pmu::hybrid()),
        (Feature::PMU_CAPS, pmu::other_caps()),
    ];
    sections.into_iter().filter_map(|(feature, payload)| Some((feature.0, payload?))).collect()
}

fn encoded<'a>(payload: &impl Payload<'a>) -> Vec<u8> {
    payload.to_bytes(Endian::NATIVE)
}

fn text(text: &str) -> Vec<u8> {
    encoded(&Text(text.as_bytes()))
}

/// A line under /proc/sys/kernel.
fn sysctl(name: &str) -> Option<Vec<u8>> {
    line(Path::new("/proc/sys/kernel").join(name)).map(|line| text(&line))
}

/// The program's path, and its arguments.
fn command_line(argv: &[OsString]) -> Option<Vec<u8>> {
    let program = fs::read_link("/proc/self/exe").ok()?;
    let arguments = argv.iter().skip(1).map(|argument| argument.as_bytes());
    Some(encoded(&TextList(std::iter::once(program.as_os_str().as_bytes()).chain(arguments).collect())))
}

/// A file of one line, without blanks around it; `None` when it is not there, or empty.
fn line(path: impl AsRef<Path>) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.trim();
    (!line.is_empty()).then(|| line.to_owned())
}

/// A file that is one decimal number.
fn number(path: impl AsRef<Path>) -> Option<u32> {
    line(path)?.parse().ok()
}

/// The names in a directory, sorted.
fn names(directory: impl AsRef<Path>) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// The numbers behind a prefix among the names in a directory, ascending: `node0`, `node1` …
fn numbered(directory: impl AsRef<Path>, prefix: &str) -> Vec<u32> {
    let names = names(directory);
    let mut numbers: Vec<u32> = names.iter().filter_map(|name| name.strip_prefix(prefix)?.parse().ok()).collect();
    numbers.sort_unstable();
    numbers
}
