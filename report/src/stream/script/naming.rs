//! Names of a recording's events and code.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use bprec_format::feature::tracing::TracingData;
use bprec_format::feature::{Feature, Partial, SectionContent as _, Text};
use bprec_format::{EventAttr, Metadata, bprec::sampler, event_type};

use super::line::{LinePlan, TracepointFormat};
use crate::index::stream_symbols::SectionSymbols;
use crate::input::event_kind::EventKind;

/// The widest column for names of events: every line is as wide.
const EVENT_WIDTH_MAX: usize = 128;

/// The names that a recording's sections have for events and for code.
#[derive(Default)]
pub(super) struct Naming {
    /// By event.
    pub(super) plans: Vec<LinePlan>,
    /// Names of registers on the machine that was recorded, if known.
    pub(super) registers: &'static [&'static str],
    /// Width of the column for names of events: as wide as the longest, but for very long ones.
    pub(super) event_width: usize,
    /// Symbols of code.
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
        let event_width = names.iter().map(String::len).max().unwrap_or(0).min(EVENT_WIDTH_MAX);
        let formats = formats(metadata);
        let plans = metadata.attrs().iter().zip(names).zip(formats);
        let plans = plans.map(|((event, name), format)| LinePlan {
            kind: EventKind::of(&event.attr, &name),
            name: name.into(),
            format,
        });
        Naming { plans: plans.collect(), registers, event_width, code }
    }
}

/// By event: the format of a tracepoint, which several events may share.
fn formats(metadata: &Metadata<'_>) -> Vec<Option<Arc<TracepointFormat>>> {
    let id = |attr: &EventAttr| (attr.kind == event_type::TRACEPOINT).then_some(attr.config);
    let mut formats: FxHashMap<u64, Option<Arc<TracepointFormat>>> =
        metadata.attrs().iter().filter_map(|event| Some((id(&event.attr)?, None))).collect();
    for section in metadata.feature(Feature::TRACING_DATA) {
        let Ok(tracing) = TracingData::parse(&section.bytes, section.offset, metadata.endian()) else { continue };
        for (_, format) in tracing.value.events() {
            if let Some(slot) = formats.get_mut(&u64::from(format.id)) {
                *slot = Some(Arc::new(TracepointFormat::new(&format, tracing.value.endian)));
            }
        }
    }
    metadata.attrs().iter().map(|event| formats.get(&id(&event.attr)?)?.clone()).collect()
}
