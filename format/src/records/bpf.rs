//! Kernel code that comes and goes: KSYMBOL and BPF_EVENT (since 5.1), TEXT_POKE (since 5.8).

use crate::layout::{LastText, number};
use crate::{Reader, Result, Writer};

/// Kind of code that a KSYMBOL names (`PERF_RECORD_KSYMBOL_TYPE_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct KsymbolKind(pub u16);

number!(KsymbolKind: u16);

impl KsymbolKind {
    /// A function of a BPF program, or an image: trampoline, dispatcher, struct_ops stub.
    pub const BPF: KsymbolKind = KsymbolKind(1);
    /// Out-of-line code: kprobe instruction pages, ftrace trampolines.
    pub const OOL: KsymbolKind = KsymbolKind(2);
}

record! {
    /// KSYMBOL (since 5.1): `addr u64, len u32, ksym_type u16, flags u16, name`.
    ///
    /// One per function of a program, the main function first, then its BPF_EVENT. Images always say one page although they
    /// share it with others; programs that are not JITed say the interpreter's address and length 0.
    #[derive(Debug, Clone, PartialEq, Eq)]
    pub struct Ksymbol<'a> {
        /// First address.
        pub addr: u64,
        /// Bytes of code.
        pub len_bytes: u32,
        /// Its kind.
        pub kind: KsymbolKind,
        /// Bit 0: the symbol goes away.
        pub flags: u16,
        /// `bpf_prog_<tag>_<name>`, `bpf_trampoline_<key>`, `bpf_dispatcher_…`; empty for unprivileged programs.
        pub name: &'a [u8] as LastText,
    }
}

impl<'a> Ksymbol<'a> {
    /// `flags` bit: unregistered.
    pub const UNREGISTER: u16 = 1;

    /// True when the symbol goes away.
    pub fn is_unregister(&self) -> bool {
        self.flags & Ksymbol::UNREGISTER != 0
    }
}

/// Event of a program (`PERF_BPF_EVENT_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BpfEventKind(pub u16);

number!(BpfEventKind: u16);

impl BpfEventKind {
    /// Loaded, by the task in the trailer.
    pub const PROG_LOAD: BpfEventKind = BpfEventKind(1);
    /// The last reference was dropped, by whoever is in the trailer (possibly a kernel worker).
    pub const PROG_UNLOAD: BpfEventKind = BpfEventKind(2);
}

record! {
    /// BPF_EVENT (since 5.1): `type u16, flags u16, id u32, tag[8]`.
    ///
    /// It follows the KSYMBOLs of the program's functions. There is none for maps, BTF or links, nor for classic BPF, which
    /// has no id. The unload is told when the last reference drops; the code can still run for a grace period.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct BpfEvent {
        /// Kind of event.
        pub kind: BpfEventKind,
        /// 0 so far.
        pub flags: u16,
        /// The program's id.
        pub id: u32,
        /// The program's tag.
        pub tag: [u8; 8],
    }
}

/// TEXT_POKE (since 5.8): `addr u64, old_len u16, new_len u16`, the old bytes, the new bytes, padding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextPoke<'a> {
    /// Where.
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
        Ok(TextPoke {
            addr,
            old: r.take(usize::from(old_len), "TEXT_POKE old bytes")?,
            new: r.take(usize::from(new_len), "TEXT_POKE new bytes")?,
        })
    }

    /// Appends the payload; the padding is the caller's.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.addr).u16(self.old.len() as u16).u16(self.new.len() as u16).bytes(self.old).bytes(self.new);
    }
}
