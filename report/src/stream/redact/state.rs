//! Redaction of the recorder's states: the layouts of `bprec_format` mark the secrets in a state, and this module replaces them.

use bprec_format::bprec::state::{AttachTarget, Attachment, State};
use bprec_format::records::Mmap2File;
use bprec_format::{Secret, Secrets};

use super::Redactor;
use super::names::SecretKind;
use super::records::REMOVED;

impl Redactor {
    /// Prepares a state for the redaction by its layout: marks names in attachment targets, and removes metadata if programs are redacted.
    ///
    /// # Errors
    /// Returns the reason for leaving out the state.
    pub(super) fn state(&mut self, mut state: State) -> Result<State, &'static str> {
        match &mut state {
            // Map contents and unknown kinds may hold any data. Names of containers are found by the container ids in cgroup paths. Redaction
            // replaces these ids, so the names would be of no use.
            State::MapContents(_) | State::PodContainers(_) | State::Unknown { .. } => return Err(REMOVED),
            State::Attachment(attachment) => mark_names(attachment),
            State::Program(program) if self.programs => program.metadata.clear(),
            _ => {}
        }
        Ok(state)
    }
}

impl Secrets for Redactor {
    fn text(&mut self, secret: Secret, text: &[u8]) -> Vec<u8> {
        match secret {
            Secret::Host => self.names.replace(SecretKind::Host, text),
            Secret::CommandLine => self.names.replace(SecretKind::Command, text),
            Secret::Contents => Vec::new(),
            Secret::Comm => self.names.comm(text),
            Secret::CommOrCgroup if !text.starts_with(b"/") => self.names.comm(text),
            Secret::Cgroup | Secret::CommOrCgroup => self.names.cgroup(text),
            Secret::Path => self.names.replace(SecretKind::Path, text),
            Secret::Mapping if !self.is_of_kernel => self.names.mapping(text),
            Secret::Mapping | Secret::KernelMapping => self.names.kernel_mapping(text),
            Secret::Target if is_plain_target(text) => text.to_vec(),
            Secret::Target => self.names.replace(SecretKind::Command, text),
            Secret::Tier if [&b"exact"[..], b"stats", b"off"].contains(&text) => text.to_vec(),
            Secret::Event => self.event_name(text),
            Secret::Machine => self.names.replace(SecretKind::Machine, text),
            Secret::Boot => self.names.replace(SecretKind::Boot, text),
            Secret::Symbol => self.symbol(text),
            Secret::Address => self.names.message(&String::from_utf8_lossy(text), &self.shift).into_bytes(),
            Secret::NetworkNamespace => self.names.replace(SecretKind::Network, text),
            Secret::NamespaceNumber => match std::str::from_utf8(text).map(str::parse) {
                Ok(Ok(inode)) => self.names.namespace(inode).to_string().into_bytes(),
                _ => self.names.replace(SecretKind::Text, text),
            },
            Secret::AttachTarget => self.names.replace(SecretKind::Target, text),
            Secret::Program if self.programs => self.names.program(text),
            Secret::Map if self.programs => self.names.replace(SecretKind::Map, text),
            Secret::Program | Secret::Map => text.to_vec(),
            Secret::Message if self.programs && !text.is_empty() => b"redacted".to_vec(),
            Secret::Message => self.names.message(&String::from_utf8_lossy(text), &self.shift).into_bytes(),
            // All other secrets: values chosen by a program's author, unknown words in place of a tier of counters, and kinds that later versions of
            // the format add.
            _ => self.names.replace(SecretKind::Text, text),
        }
    }

    fn address(&mut self, address: u64) -> u64 {
        self.shift.of(address)
    }

    fn tag(&mut self, tag: [u8; 8]) -> [u8; 8] {
        if self.programs { self.names.tag(tag) } else { tag }
    }

    fn file(&mut self, file: Mmap2File) -> Mmap2File {
        if self.is_of_kernel { file } else { self.names.file(&file) }
    }

    fn namespace(&mut self, inode: u64) -> u64 {
        self.names.namespace(inode)
    }

    fn btf_id(&mut self, id: u32) -> u32 {
        if self.programs { 0 } else { id }
    }
}

/// Marks the name in an attachment's target that an older recorder wrote without marks, so that redaction treats the name by its kind: a kernel
/// function, tracepoint or device, an event, or a map of tail calls. A target of any other kind of attachment stays unmarked, and is replaced as a
/// whole.
fn mark_names(attachment: &mut Attachment) {
    const KERNEL_NAMES: [&str; 11] = [
        "tracepoint",
        "raw_tracepoint",
        "tp_btf",
        "fentry",
        "fexit",
        "fmod_ret",
        "lsm",
        "kprobe",
        "kretprobe",
        "xdp",
        "iter",
    ];
    let Ok(text) = std::str::from_utf8(attachment.target.text()) else { return };
    let is_name = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.:+".contains(&byte));
    let marked = match (attachment.kind.as_str(), text.rsplit_once('[')) {
        (kind, None) if KERNEL_NAMES.contains(&kind) && is_name && !text.starts_with("0x") => {
            AttachTarget::default().name(Secret::Symbol, text)
        }
        ("perf_event", _) => AttachTarget::default().name(Secret::Event, text),
        ("tail_call", Some((map, index))) => AttachTarget::default().name(Secret::Map, map).words("[").words(index),
        _ => return,
    };
    if attachment.target == AttachTarget::default().name(Secret::AttachTarget, text) {
        attachment.target = marked;
    }
}

/// Returns true if a target consists of numbers and fixed words: `system wide`, `pid 12,13`.
fn is_plain_target(target: &[u8]) -> bool {
    let is_numbers = |text: &[u8]| text.iter().all(|byte| byte.is_ascii_digit() || *byte == b',');
    let kinds: [&[u8]; 3] = [b"cpu ", b"pid ", b"tid "];
    target == b"system wide" || kinds.iter().any(|kind| target.strip_prefix(*kind).is_some_and(is_numbers))
}
