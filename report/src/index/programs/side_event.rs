//! Side-band records about loaded and unloaded code.

use bprec_format::records::{BpfEventKind, KsymbolKind};

/// Side-band record about loaded or unloaded code.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SideEvent {
    /// Position of the record's file in the recording.
    pub(crate) file: u32,
    pub(crate) time_ns: u64,
    /// True if the record has no time: the recorder listed existing code at the start of the file.
    pub(crate) is_listed: bool,
    /// CPU and thread of the record: a program's symbols and its BPF_EVENT share them.
    pub(crate) place: (u32, u32),
    pub(crate) kind: SidebandKind,
}

/// Kind of the record, with its contents.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum SidebandKind {
    /// KSYMBOL.
    Symbol { addr: u64, len_bytes: u32, kind: KsymbolKind, gone: bool, name: Vec<u8> },
    /// BPF_EVENT.
    Program { kind: BpfEventKind, id: u32, tag: [u8; 8], pid: Option<u32> },
}

impl SideEvent {
    /// Address or program id of a record without a time; `None` for a record with a time.
    pub(crate) fn undated_about(&self) -> Option<u64> {
        let about = match self.kind {
            SidebandKind::Symbol { addr, .. } => addr,
            SidebandKind::Program { id, .. } => id.into(),
        };
        (self.time_ns == 0).then_some(about)
    }
}
