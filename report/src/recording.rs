//! A recording that was opened: its events, what they are for, its features, its records.

use crate::{Error, Input, Result};
use bprec_format::feature::{EventDesc, Feature, Payload, Text};
use bprec_format::{Endian, Event, EventAttr, Events, File, Records, event_type, software, state};
use std::path::Path;

/// What an event's samples are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Where the machine was.
    Sampling,
    /// [`bprec_format::state`] payloads.
    State,
    /// Nothing about where the machine was: the event is there for its side band, or carries another tool's payloads.
    Other,
}

/// A recording.
#[derive(Debug)]
pub(crate) struct Recording<'a> {
    path: &'a Path,
    file: File<'a>,
    pub(crate) events: Events,
    /// By event.
    pub(crate) names: Vec<String>,
    /// By event.
    pub(crate) roles: Vec<Role>,
}

/// Whole records, one behind the other.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slice<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) offset: u64,
    pub(crate) endian: Endian,
}

impl<'a> Slice<'a> {
    pub(crate) fn records(&self) -> Records<'a> {
        Records::new(self.bytes, self.offset, self.endian)
    }
}

impl<'a> Recording<'a> {
    pub(crate) fn open(input: &'a Input) -> Result<Recording<'a>> {
        let failed = |source| Error::Format { path: input.path().to_owned(), source };
        let file = File::parse(input.bytes()).map_err(failed)?;
        let events = Events::new(file.attrs(), file.endian()).map_err(failed)?;
        let mut recording = Recording { path: input.path(), file, events, names: Vec::new(), roles: Vec::new() };
        recording.name_events();
        Ok(recording)
    }

    /// Names and roles. Names come from EVENT_DESC, by id, or else by position: both are in the order of the attrs.
    fn name_events(&mut self) {
        let described = self.feature::<EventDesc<'_>>(Feature::EVENT_DESC).map(|desc| desc.events).unwrap_or_default();
        let by_position = described.len() == self.events.all().len();
        for (index, event) in self.events.all().iter().enumerate() {
            let named = described
                .iter()
                .find(|d| d.ids.first().is_some_and(|id| event.ids.contains(id)))
                .or_else(|| described.get(index).filter(|_| by_position));
            let name = named.map(|d| String::from_utf8_lossy(d.name).into_owned());
            self.roles.push(role(&event.attr, name.as_deref()));
            self.names.push(name.unwrap_or_else(|| default_name(&event.attr)));
        }
    }

    pub(crate) fn path(&self) -> &'a Path {
        self.path
    }

    pub(crate) fn endian(&self) -> Endian {
        self.file.endian()
    }

    /// The writer did not come to its end.
    pub(crate) fn is_unfinished(&self) -> bool {
        self.file.is_unfinished()
    }

    /// What is wrong with the container.
    pub(crate) fn problems(&self) -> impl Iterator<Item = String> {
        self.file.problems().iter().map(ToString::to_string)
    }

    pub(crate) fn event(&self, index: usize) -> &Event {
        &self.events.all()[index]
    }

    /// Bytes of a feature section, and their offset.
    pub(crate) fn feature_bytes(&self, feature: Feature) -> Option<(&'a [u8], u64)> {
        self.file.feature(feature.0)
    }

    /// A feature section, as far as it can be read.
    pub(crate) fn feature<T: Payload<'a>>(&self, feature: Feature) -> Option<T> {
        let (bytes, offset) = self.feature_bytes(feature)?;
        T::parse(bytes, offset, self.endian()).ok().map(|partial| partial.value)
    }

    /// A feature section that is one text.
    pub(crate) fn text(&self, feature: Feature) -> Option<String> {
        let Text(text) = self.feature(feature)?;
        (!text.is_empty()).then(|| String::from_utf8_lossy(text).into_owned())
    }

    /// Hands over the records, in the order of the input.
    pub(crate) fn for_each_slice(&self, visit: &mut dyn FnMut(Slice<'_>)) {
        let records = self.file.records();
        visit(Slice { bytes: records.rest(), offset: records.offset(), endian: self.endian() });
    }
}

fn role(attr: &EventAttr, name: Option<&str>) -> Role {
    match (attr.kind, attr.config) {
        (event_type::SOFTWARE, software::DUMMY) => Role::Other,
        // A recording without names was cut off; the only bpf-output event we write is this one.
        (event_type::SOFTWARE, software::BPF_OUTPUT) if name.is_none_or(|name| name == state::EVENT_NAME) => {
            Role::State
        }
        (event_type::SOFTWARE, software::BPF_OUTPUT) => Role::Other,
        _ => Role::Sampling,
    }
}

/// The name of an event that the recording does not name.
fn default_name(attr: &EventAttr) -> String {
    const HARDWARE: [&str; 10] = [
        "cycles",
        "instructions",
        "cache-references",
        "cache-misses",
        "branches",
        "branch-misses",
        "bus-cycles",
        "stalled-cycles-frontend",
        "stalled-cycles-backend",
        "ref-cycles",
    ];
    const SOFTWARE: [&str; 12] = [
        "cpu-clock",
        "task-clock",
        "page-faults",
        "context-switches",
        "cpu-migrations",
        "minor-faults",
        "major-faults",
        "alignment-faults",
        "emulation-faults",
        "dummy",
        "bpf-output",
        "cgroup-switches",
    ];
    // The upper half of a hardware event's config is a PMU's type on hybrid machines.
    let known = match attr.kind {
        event_type::HARDWARE => HARDWARE.get((attr.config & 0xffff_ffff) as usize),
        event_type::SOFTWARE => SOFTWARE.get(attr.config as usize),
        _ => None,
    };
    match known {
        Some(name) => (*name).to_owned(),
        None => format!("type {} config {:#x}", attr.kind, attr.config),
    }
}
