//! Kernel code that appears and disappears: KSYMBOL and BPF_EVENT (since 5.1), TEXT_POKE (since 5.8).

use crate::layout::meaning::Symbol;
use crate::layout::{Address, LastText, Tag, layout};
use crate::{Reader, Result, Writer};

layout! {
    /// Kind of code that a KSYMBOL names (`PERF_RECORD_KSYMBOL_TYPE_*`).
    #[derive(Copy, Hash)]
    pub struct KsymbolKind(pub u16);

    /// Event of a program (`PERF_BPF_EVENT_*`).
    #[derive(Copy, Hash)]
    pub struct BpfEventKind(pub u16);
}

impl KsymbolKind {
    /// A function of a BPF program, or an image: trampoline, dispatcher, struct_ops stub.
    pub const BPF: KsymbolKind = KsymbolKind(1);
    /// Out-of-line code: kprobe instruction pages, ftrace trampolines.
    pub const OOL: KsymbolKind = KsymbolKind(2);
}

impl BpfEventKind {
    /// The program was loaded by the task in the trailer.
    pub const PROG_LOAD: BpfEventKind = BpfEventKind(1);
    /// The task in the trailer, possibly a kernel worker, dropped the last reference to the program.
    pub const PROG_UNLOAD: BpfEventKind = BpfEventKind(2);
}

record! {
    /// KSYMBOL (since 5.1): `addr u64, len u32, ksym_type u16, flags u16, name`.
    ///
    /// The kernel writes one record per function of a program, the main function first, and then the program's BPF_EVENT.
    /// The record of an image has the length of a page, although images share pages. The record of a program without JIT
    /// code has the address of the interpreter and length 0.
    pub struct Ksymbol<'a> {
        /// First address.
        pub addr: u64 as Address,
        /// Bytes of code.
        pub len_bytes: u32,
        /// Kind of code.
        pub kind: KsymbolKind,
        /// Bit 0: the symbol is removed.
        pub flags: u16,
        /// `bpf_prog_<tag>_<name>`, `bpf_trampoline_<key>`, `bpf_dispatcher_…`; empty for unprivileged programs.
        pub name: &'a [u8] as LastText<Symbol>,
    }

    /// BPF_EVENT (since 5.1): `type u16, flags u16, id u32, tag[8]`.
    ///
    /// The record follows the KSYMBOLs of the program's functions. Maps, BTF, links and classic BPF programs (without an id) have no such record. The
    /// kernel writes the unload when the last reference is dropped; the code can still run for a grace period.
    #[derive(Copy)]
    pub struct BpfEvent {
        /// Kind of event.
        pub kind: BpfEventKind,
        /// 0 up to Linux 7.3.
        pub flags: u16,
        /// Id of the program.
        pub id: u32,
        /// Tag of the program.
        pub tag: [u8; 8] as Tag,
    }
}

impl Ksymbol<'_> {
    /// Bit in `flags`: the symbol is removed.
    pub const UNREGISTER: u16 = 1;

    /// Returns true if the symbol is removed.
    pub fn is_unregister(&self) -> bool {
        self.flags & Ksymbol::UNREGISTER != 0
    }
}

/// TEXT_POKE (since 5.8): `addr u64, old_len u16, new_len u16`, the old bytes, the new bytes, padding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextPoke<'a> {
    /// Address of the first changed byte.
    pub addr: u64,
    /// Old bytes; empty if code was added.
    pub old: &'a [u8],
    /// New bytes; empty if code was removed.
    pub new: &'a [u8],
}

impl<'a> TextPoke<'a> {
    pub(super) fn parse(r: &mut Reader<'a>) -> Result<TextPoke<'a>> {
        let addr = r.u64("TEXT_POKE addr")?;
        let (old_len, new_len) = (r.u16("TEXT_POKE old_len")?, r.u16("TEXT_POKE new_len")?);
        let old = r.take(old_len.into(), "TEXT_POKE old bytes")?;
        Ok(TextPoke { addr, old, new: r.take(new_len.into(), "TEXT_POKE new bytes")? })
    }

    /// Appends the payload without padding.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.addr).u16(self.old.len() as u16).u16(self.new.len() as u16).bytes(self.old).bytes(self.new);
    }
}
