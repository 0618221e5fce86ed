//! Records about code that came or went, as programs are joined from them.

use bprec_format::records::{BpfEventKind, KsymbolKind};

/// A record of the side band about code that came or went.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct SideEvent {
    /// Position of its file among those of the recording.
    pub(crate) file: u32,
    pub(crate) time_ns: u64,
    /// It has no time of its own: a tool listed what there was when the file began.
    pub(crate) is_listed: bool,
    /// CPU and thread that it happened on: a program's symbols and its BPF_EVENT share them.
    pub(crate) place: (u32, u32),
    pub(crate) kind: SidebandKind,
}

/// Kind of event.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum SidebandKind {
    /// KSYMBOL.
    Symbol { addr: u64, len_bytes: u32, kind: KsymbolKind, gone: bool, name: Vec<u8> },
    /// BPF_EVENT.
    Program { kind: BpfEventKind, id: u32, tag: [u8; 8], pid: Option<u32> },
}

impl SideEvent {
    /// Address or program of an event without a time.
    pub(crate) fn undated_about(&self) -> Option<u64> {
        let about = match self.kind {
            SidebandKind::Symbol { addr, .. } => addr,
            SidebandKind::Program { id, .. } => id.into(),
        };
        (self.time_ns == 0).then_some(about)
    }
}
