//! Sections that are a text, a list of texts, or a few numbers about the machine.

use super::{Payload, read_text, read_texts, write_text, write_texts};
use crate::{Error, Reader, Result, Writer};

/// HOSTNAME, OSRELEASE, VERSION, ARCH, CPUDESC, CPUID (since 3.2): one text, without its NUL. In a file of the other byte
/// order perf takes the feature bits for garbage unless HOSTNAME is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Text<'a>(pub &'a [u8]);

impl<'a> Payload<'a> for Text<'a> {
    fn read(r: &mut Reader<'a>, _: &mut Option<Error>) -> Result<Text<'a>> {
        read_text(r, "text of a feature").map(Text)
    }

    fn encode(&self, w: &mut Writer<'_>) {
        write_text(w, self.0);
    }
}

/// CMDLINE (since 3.2): `nr u32`, then the texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextList<'a>(pub Vec<&'a [u8]>);

impl<'a> Payload<'a> for TextList<'a> {
    fn read(r: &mut Reader<'a>, problem: &mut Option<Error>) -> Result<TextList<'a>> {
        read_texts(r, problem, "list of texts of a feature").map(TextList)
    }

    fn encode(&self, w: &mut Writer<'_>) {
        write_texts(w, &self.0);
    }
}

/// NRCPUS (since 3.2): `available u32, online u32`. CPU_TOPOLOGY cannot be read without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuCount {
    /// One more than the highest number of a present CPU.
    pub available: u32,
    /// CPUs that were online.
    pub online: u32,
}

impl<'a> Payload<'a> for CpuCount {
    fn read(r: &mut Reader<'a>, _: &mut Option<Error>) -> Result<CpuCount> {
        Ok(CpuCount { available: r.u32("NRCPUS available")?, online: r.u32("NRCPUS online")? })
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.available).u32(self.online);
    }
}

/// TOTAL_MEM (since 3.2): one `u64`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TotalMemory {
    /// Memory of the machine in KiB.
    pub kib: u64,
}

impl<'a> Payload<'a> for TotalMemory {
    fn read(r: &mut Reader<'a>, _: &mut Option<Error>) -> Result<TotalMemory> {
        Ok(TotalMemory { kib: r.u64("TOTAL_MEM")? })
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.kib);
    }
}

/// E_MACHINE (perf 7.3 writes it, 6.12 does not know it): `e_machine u32, e_flags u32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ElfMachine {
    /// `EM_*` of the machine's binaries.
    pub e_machine: u32,
    /// Their ELF flags.
    pub e_flags: u32,
}

impl<'a> Payload<'a> for ElfMachine {
    fn read(r: &mut Reader<'a>, _: &mut Option<Error>) -> Result<ElfMachine> {
        Ok(ElfMachine { e_machine: r.u32("E_MACHINE e_machine")?, e_flags: r.u32("E_MACHINE e_flags")? })
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.e_machine).u32(self.e_flags);
    }
}

/// CLN_SIZE (perf 7.3 writes it, 6.12 does not know it): one `u32`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheLineSize {
    /// Bytes of a cache line.
    pub bytes: u32,
}

impl<'a> Payload<'a> for CacheLineSize {
    fn read(r: &mut Reader<'a>, _: &mut Option<Error>) -> Result<CacheLineSize> {
        Ok(CacheLineSize { bytes: r.u32("CLN_SIZE")? })
    }

    fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.bytes);
    }
}
