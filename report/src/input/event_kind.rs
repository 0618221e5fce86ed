//! Kinds of an event's samples.

use bprec_format::{
    AttrFlags, Callchain, EventAttr, Events, Sample,
    bprec::{sampler, state},
    event_type, software,
};

/// Kind of an event's samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// The processor was there.
    Pmu,
    /// The same, as [`bprec_format::bprec::sampler`] payloads.
    BpfSampler,
    /// [`bprec_format::bprec::state`] payloads.
    State,
    /// Neither: the event is there for its side band, or carries another tool's payloads.
    Other,
}

impl EventKind {
    /// Kind of the samples of an event with this name.
    pub(crate) fn of(attr: &EventAttr, name: &str) -> EventKind {
        match (attr.kind, attr.config) {
            (event_type::SOFTWARE, software::DUMMY) => EventKind::Other,
            (event_type::SOFTWARE, software::BPF_OUTPUT) if name == state::EVENT_NAME => EventKind::State,
            (event_type::SOFTWARE, software::BPF_OUTPUT) if name == sampler::EVENT_NAME => EventKind::BpfSampler,
            // A recording without names was cut off; of the bpf-output events that we write only this one is never enabled.
            (event_type::SOFTWARE, software::BPF_OUTPUT)
                if name == attr.default_name() && attr.flags.contains(AttrFlags::DISABLED) =>
            {
                EventKind::State
            }
            (event_type::SOFTWARE, software::BPF_OUTPUT) => EventKind::Other,
            _ => EventKind::Pmu,
        }
    }

    /// The same of each event of a recording.
    pub(crate) fn of_all(events: &Events, names: &[String]) -> Vec<EventKind> {
        events.all().iter().zip(names).map(|(event, name)| EventKind::of(&event.attr, name)).collect()
    }

    /// The call chain of a sample of an event with this kind, which is in a record at `offset`.
    ///
    /// # Errors
    /// When it, or what is in front of it, overruns the record.
    #[inline]
    pub(crate) fn callchain<'s>(self, sample: &Sample<'s>, offset: u64) -> bprec_format::Result<Option<Callchain<'s>>> {
        match self {
            EventKind::BpfSampler => payload(sample, offset).map(|payload| payload.callchain),
            _ => sample.callchain(),
        }
    }
}

/// Payload of our sampling program in a sample.
pub(crate) fn payload<'s>(sample: &Sample<'s>, offset: u64) -> bprec_format::Result<sampler::SamplerPayload<'s>> {
    sampler::SamplerPayload::parse(sample.raw()?.unwrap_or_default(), offset, sample.endian())
}
