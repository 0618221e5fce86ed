//! Redaction of the recorder's states: layouts mark secrets, this module replaces them.

use bprec_format::bprec::state::State;
use bprec_format::records::Mmap2File;
use bprec_format::{Secret, Secrets};

use super::Redactor;
use super::names::SecretKind;
use super::records::REMOVED;

impl Redactor {
    /// Redacts a state, or returns the reason for leaving it out.
    pub(super) fn state(&mut self, mut state: State) -> Result<State, &'static str> {
        match &mut state {
            // Map contents and unknown kinds may hold any data. Names of containers are found by the container ids in cgroup paths. Redaction
            // replaces these ids, so the names would be of no use.
            State::MapContents(_) | State::PodContainers(_) | State::Unknown { .. } => return Err(REMOVED),
            State::Attachment(attachment) => *attachment = self.attachment(std::mem::take(attachment)),
            State::Program(program) if self.programs => program.metadata.clear(),
            _ => {}
        }
        state.secrets(self);
        Ok(state)
    }
}

impl Secrets for Redactor {
    fn text(&mut self, secret: Secret, text: &mut Vec<u8>) {
        *text = match secret {
            Secret::Comm => self.names.comm(text),
            Secret::CommOrCgroup if !text.starts_with(b"/") => self.names.comm(text),
            Secret::Cgroup | Secret::CommOrCgroup => self.names.cgroup(text),
            Secret::Path => self.names.replace(SecretKind::Path, text),
            Secret::Mapping => self.names.mapping(text),
            Secret::Target if is_plain_target(text) => return,
            Secret::Target => self.names.replace(SecretKind::Command, text),
            Secret::Tier if [&b"exact"[..], b"stats", b"off"].contains(&&text[..]) => return,
            Secret::Event => self.event(&String::from_utf8_lossy(text)).into_bytes(),
            Secret::Machine => self.names.replace(SecretKind::Machine, text),
            Secret::Boot => self.names.replace(SecretKind::Boot, text),
            Secret::Symbol => self.symbol(text),
            Secret::Program if self.programs => self.names.program(text),
            Secret::Map if self.programs => self.names.replace(SecretKind::Map, text),
            Secret::Program | Secret::Map => return,
            Secret::Message if self.programs && !text.is_empty() => b"redacted".to_vec(),
            Secret::Message => self.names.message(&String::from_utf8_lossy(text), &self.shift).into_bytes(),
            // All other secrets: values chosen by a program's author, unknown words in place of a tier of counters, and kinds that later versions of
            // the format add.
            _ => self.names.replace(SecretKind::Text, text),
        }
    }

    fn address(&mut self, address: &mut u64) {
        *address = self.shift.of(*address);
    }

    fn tag(&mut self, tag: &mut [u8; 8]) {
        if self.programs {
            *tag = self.names.tag(*tag);
        }
    }

    fn file(&mut self, file: &mut Mmap2File) {
        *file = self.names.file(file);
    }

    fn btf_id(&mut self, id: &mut u32) {
        if self.programs {
            *id = 0;
        }
    }
}

/// Returns true if a target consists of numbers and fixed words: `system wide`, `pid 12,13`.
fn is_plain_target(target: &[u8]) -> bool {
    let is_numbers = |text: &[u8]| text.iter().all(|byte| byte.is_ascii_digit() || *byte == b',');
    let kinds: [&[u8]; 3] = [b"cpu ", b"pid ", b"tid "];
    target == b"system wide" || kinds.iter().any(|kind| target.strip_prefix(*kind).is_some_and(is_numbers))
}
