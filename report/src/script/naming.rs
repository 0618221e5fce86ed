//! What a recording says of its events, and what it calls code.

use std::sync::Arc;

use bprec_format::feature::tracing::{EventFormat, PrintFormat, TracingData};
use bprec_format::feature::{Feature, Partial, Payload as _, Text};
use bprec_format::{EventAttr, Metadata, event_type, sampler};

use super::line::{EventPlan, TracepointFormat};
use crate::index::stream_symbols::SectionSymbols;
use crate::input::event_kind::EventKind;

/// The names that a recording's sections have for events and for code.
#[derive(Default)]
pub(super) struct Naming {
    /// By event.
    pub(super) plans: Vec<EventPlan>,
    /// What registers are called on the machine that was recorded, where that is known.
    pub(super) registers: &'static [&'static str],
    /// Width of the longest name of an event.
    pub(super) event_width: usize,
    /// Of code.
    pub(super) code: Arc<SectionSymbols>,
}

impl Naming {
    /// The names in the sections, beside those of code.
    pub(super) fn new(metadata: &Metadata<'_>, code: Arc<SectionSymbols>) -> Naming {
        let names = metadata.event_names();
        let arch = metadata.feature(Feature::ARCH).next();
        let arch = arch.and_then(|section| Text::parse(&section.bytes, section.offset, metadata.endian()).ok());
        let arch = arch.map(|partial: Partial<Text<'_>>| String::from_utf8_lossy(partial.value.0).into_owned());
        let registers = arch.and_then(|arch| sampler::register_names(&arch)).unwrap_or_default();
        let event_width = names.iter().map(String::len).max().unwrap_or(0);
        let formats = formats(metadata, names.len());
        let plans = metadata.attrs().iter().zip(names).zip(formats);
        let plans = plans.map(|((event, name), format)| EventPlan {
            kind: EventKind::of(&event.attr, &name),
            name: name.into(),
            format,
        });
        Naming { plans: plans.collect(), registers, event_width, code }
    }
}

/// By event: the format of a tracepoint.
fn formats(metadata: &Metadata<'_>, events: usize) -> Vec<Option<TracepointFormat>> {
    let mut formats: Vec<Option<TracepointFormat>> = (0..events).map(|_| None).collect();
    for section in metadata.feature(Feature::TRACING_DATA) {
        let Ok(tracing) = TracingData::parse(&section.bytes, section.offset, metadata.endian()) else { continue };
        for (_, text) in tracing.value.systems.iter().flat_map(|s| s.formats.iter().map(move |text| (s, text))) {
            let Some(format) = EventFormat::parse(text) else { continue };
            let is_its = |attr: &EventAttr| attr.kind == event_type::TRACEPOINT && attr.config == u64::from(format.id);
            for (slot, event) in formats.iter_mut().zip(metadata.attrs()) {
                if is_its(&event.attr) {
                    *slot = Some(TracepointFormat {
                        print: PrintFormat::parse(&format),
                        text: text.to_vec(),
                        endian: tracing.value.endian,
                    });
                }
            }
        }
    }
    formats
}
