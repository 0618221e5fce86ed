//! Names of a recording's events and code.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use bprec_format::feature::tracing::TracingData;
use bprec_format::feature::{Feature, Partial, SectionContent as _, Text};
use bprec_format::{EventAttr, Metadata, bprec::sampler, event_type};

use super::line::{LinePlan, TracepointFormat};
use crate::index::stream_symbols::SectionSymbols;
use crate::input::event_kind::EventKind;

/// Limit on the width of the event-name column.
const EVENT_WIDTH_MAX: usize = 128;

/// Names of events and code from the sections of a recording.
#[derive(Default)]
pub(super) struct Naming {
    /// Plans for printing, one per event.
    pub(super) plans: Vec<LinePlan>,
    /// Register names of the recorded machine, if known.
    pub(super) registers: &'static [&'static str],
    /// Width of the event-name column: the longest name, within a limit.
    pub(super) event_width: usize,
    /// Symbols of code.
    pub(super) code: Arc<SectionSymbols>,
}

impl Naming {
    /// Reads the names from the sections; `code` has the names of code already.
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

/// Returns the format of each event that is a tracepoint; events may share a format.
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
