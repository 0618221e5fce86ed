//! Sections that are a text, a list of texts, or a few numbers about the machine.

use crate::layout::meaning::Host;
use crate::layout::{CommandWords, PaddedText, Public, layout};

layout! {
    /// HOSTNAME, OSRELEASE, VERSION, ARCH, CPUDESC, CPUID (since 3.2): one text, without its NUL. In a file of the other byte order, perf
    /// rejects the feature bits if the file has no HOSTNAME.
    #[derive(Copy)]
    pub struct Text<'a>(pub &'a [u8] as PaddedText<Public>);

    /// HOSTNAME as a secret.
    #[derive(Copy)]
    pub struct HostName<'a>(pub &'a [u8] as PaddedText<Host>);

    /// CMDLINE (since 3.2): `nr u32`, then the texts.
    pub struct TextList<'a>(pub Vec<&'a [u8]> as CommandWords);

    /// NRCPUS (since 3.2). CPU_TOPOLOGY cannot be read without it.
    #[derive(Copy)]
    pub struct CpuCount {
        /// One more than the highest number of a present CPU.
        pub available: u32,
        /// Count of online CPUs.
        pub online: u32,
    }

    /// TOTAL_MEM (since 3.2).
    #[derive(Copy)]
    pub struct TotalMemory {
        /// Memory of the machine in KiB.
        pub kib: u64,
    }

    /// E_MACHINE (perf 7.3 writes it, 6.12 does not know it).
    #[derive(Copy)]
    pub struct ElfMachine {
        /// `EM_*` of the machine's binaries.
        pub e_machine: u32,
        /// ELF flags of the machine's binaries.
        pub e_flags: u32,
    }

    /// CLN_SIZE (perf 7.3 writes it, 6.12 does not know it).
    #[derive(Copy)]
    pub struct CacheLineSize {
        /// Bytes of a cache line.
        pub bytes: u32,
    }
}
