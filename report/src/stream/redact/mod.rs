//! Redaction of recordings, record by record and section by section.
//!
//! This module alone decides which data is secret. Reports and exports of a redacted recording use only the remaining data. Records, sample fields
//! and sections of unlisted kinds are left out.

mod code;
mod names;
mod programs;
mod records;
mod shift;
mod state;

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use bprec_format::feature::{EventDesc, Feature, SectionContent as _, Text};
use bprec_format::{Endian, EventAttr, FeatureSection, FileAttr, Metadata, SampleType, event_type, software};

use names::{Names, SecretKind};
use rustc_hash::FxHashSet;
use shift::Shift;

/// Kinds of redaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Redact {
    /// Data about the machine, its users and its purpose: names of hosts, tasks, files and cgroups, command lines, and addresses.
    #[default]
    Machine,
    /// Also data about BPF programs: names, tags, types, code, and names of maps.
    MachineAndPrograms,
}

impl std::str::FromStr for Redact {
    type Err = &'static str;

    /// Parses an empty text, or `+progs`.
    fn from_str(text: &str) -> Result<Redact, &'static str> {
        match text {
            "" => Ok(Redact::Machine),
            "+progs" => Ok(Redact::MachineAndPrograms),
            _ => Err("expected no value, or +progs"),
        }
    }
}

/// Replaces secrets. Equal secrets get equal replacements in all recordings that one redactor redacts.
#[derive(Debug)]
pub struct Redactor {
    names: Names,
    shift: Shift,
    programs: bool,
    /// Ids of events that carry output of programs.
    outputs: FxHashSet<u64>,
    /// True while a record of the kernel's code is redacted: its paths and files are public.
    is_of_kernel: bool,
    /// True while the name of an event with output of programs is redacted.
    is_output: bool,
}

impl Redactor {
    /// Makes a redactor with random address offsets and hash keys.
    pub fn new(what: Redact) -> Redactor {
        let programs = what == Redact::MachineAndPrograms;
        let (names, shift, outputs) = (Names::default(), Shift::random(), FxHashSet::default());
        Redactor { names, shift, programs, outputs, is_of_kernel: false, is_output: false }
    }

    /// Redacts the file name of a recording.
    pub(crate) fn recording_name(&mut self, path: &Path) -> PathBuf {
        let name = self.names.replace(SecretKind::Recording, path.as_os_str().as_encoded_bytes());
        PathBuf::from(String::from_utf8_lossy(&name).into_owned())
    }

    /// Redacts the events of a recording.
    pub(crate) fn events(&mut self, metadata: &Metadata<'_>) -> Metadata<'static> {
        let outputs = metadata.attrs().iter().filter(|event| is_output(&event.attr));
        self.outputs.extend(outputs.flat_map(|event| &event.ids));
        let attrs = metadata.attrs().iter();
        let attrs = attrs.map(|event| FileAttr { attr: self.attr(&event.attr), ids: event.ids.clone() }).collect();
        metadata.redescribed(attrs, Vec::new())
    }

    /// Redacts the sections of a recording. Called after the last record.
    pub(crate) fn sections(&mut self, metadata: &Metadata<'_>) -> Metadata<'static> {
        let endian = metadata.endian();
        let mut sections = Vec::new();
        let mut push = |feature, bytes| {
            sections.push(FeatureSection { feature, offset: 0, bytes: Cow::Owned(bytes), is_whole: true });
        };
        for section in metadata.sections().iter().filter(|section| section.is_whole) {
            if let Some(bytes) = self.section(section, endian) {
                push(section.feature, bytes);
            }
        }
        if metadata.feature(Feature::BPF_PROG_INFO).chain(metadata.feature(Feature::BPF_BTF)).next().is_some() {
            let machine = metadata.feature(Feature::ARCH).last();
            let machine = machine.and_then(|section| Text::parse(&section.bytes, section.offset, endian).ok());
            let machine = machine.map_or(Cow::Borrowed(""), |text| String::from_utf8_lossy(text.value.0));
            let programs = self.programs(metadata.sections(), endian, &machine);
            programs.into_iter().for_each(|(feature, bytes)| push(feature, bytes));
        }
        metadata.redescribed(Vec::new(), sections)
    }

    /// Redacts an event. Removes registers, stacks, physical addresses, AUX data and raw data from its samples. Raw data of bpf-output events stays:
    /// it may hold states.
    fn attr(&self, attr: &EventAttr) -> EventAttr {
        let mut removed = [
            SampleType::REGS_USER,
            SampleType::STACK_USER,
            SampleType::REGS_INTR,
            SampleType::PHYS_ADDR,
            SampleType::AUX,
        ]
        .into_iter()
        .fold(SampleType(0), SampleType::with);
        if !is_output(attr) {
            removed = removed.with(SampleType::RAW);
        }
        // A config value from this number on may be a pointer of the recorder, to the name of a function or a file.
        const POINTERS: u64 = 1 << 40;
        let config = |number| match attr.kind {
            event_type::BREAKPOINT => self.shift.of(number),
            kind if kind > event_type::BREAKPOINT && number >= POINTERS => self.shift.of(number),
            _ => number,
        };
        EventAttr {
            sample_type: attr.sample_type.without(removed),
            config1: config(attr.config1),
            config2: if attr.kind == event_type::BREAKPOINT { attr.config2 } else { config(attr.config2) },
            sample_regs_user: 0,
            sample_regs_intr: 0,
            sample_stack_user: 0,
            aux_sample_size: 0,
            sig_data: 0,
            ..attr.clone()
        }
    }

    /// Redacts a section; `None` for sections that are left out, or that [`Redactor::programs`] writes.
    fn section(&mut self, section: &FeatureSection<'_>, endian: Endian) -> Option<Vec<u8>> {
        (self.is_of_kernel, self.is_output) = (false, false);
        match section.feature {
            Feature::EVENT_DESC => {
                let mut events = EventDesc::parse(&section.bytes, section.offset, endian).ok()?.value;
                let replaced: Vec<(Vec<u8>, Vec<u8>)> = events
                    .events
                    .iter()
                    .map(|event| {
                        let mut attr = Vec::new();
                        let known = EventAttr::parse(event.attr, 0, endian).ok();
                        known.iter().for_each(|known| self.attr(known).encode(&mut attr, endian));
                        self.is_output = known.as_ref().is_some_and(is_output);
                        (attr, self.event_name(event.name))
                    })
                    .collect();
                for (event, (attr, name)) in events.events.iter_mut().zip(&replaced) {
                    (event.attr, event.name) = (attr, name);
                }
                Some(events.to_bytes(endian))
            }
            // Sections without secrets, copied as they are: the layout of the topology depends on another section, and the two flags have no layout.
            Feature::CPU_TOPOLOGY | Feature::BRANCH_STACK | Feature::STAT => Some(section.bytes.to_vec()),
            // Redacted records are not compressed.
            Feature::COMPRESSED => None,
            feature => feature.redacted(&section.bytes, endian, self),
        }
    }
}

/// Returns true for an event that programs write to. Its samples hold states or arbitrary data.
fn is_output(attr: &EventAttr) -> bool {
    (attr.kind, attr.config) == (event_type::SOFTWARE, software::BPF_OUTPUT)
}
