//! Kinds of events, by the contents of their samples.

use bprec_format::{
    AttrFlags, Callchain, EventAttr, Events, Sample,
    bprec::{sampler, state},
    event_type, software,
};

/// Kind of an event. Decides how its samples are parsed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    /// Samples of the instruction that the CPU executed.
    Pmu,
    /// Samples of the instruction that the CPU executed, as [`bprec_format::bprec::sampler`] payloads.
    BpfSampler,
    /// [`bprec_format::bprec::state`] payloads.
    State,
    /// Samples that no report uses: the event has only side-band records, or carries payloads of another tool.
    Other,
}

impl EventKind {
    /// Returns the kind of an event with this name.
    pub(crate) fn of(attr: &EventAttr, name: &str) -> EventKind {
        match (attr.kind, attr.config) {
            (event_type::SOFTWARE, software::DUMMY) => EventKind::Other,
            (event_type::SOFTWARE, software::BPF_OUTPUT) if name == state::EVENT_NAME => EventKind::State,
            (event_type::SOFTWARE, software::BPF_OUTPUT) if name == sampler::EVENT_NAME => EventKind::BpfSampler,
            // A recording that was cut off has no event names. Of bprec's bpf-output events, only the one for states has the attr flag `disabled`.
            (event_type::SOFTWARE, software::BPF_OUTPUT)
                if name == attr.default_name() && attr.flags.contains(AttrFlags::DISABLED) =>
            {
                EventKind::State
            }
            (event_type::SOFTWARE, software::BPF_OUTPUT) => EventKind::Other,
            _ => EventKind::Pmu,
        }
    }

    /// Returns the kind of each event of a recording.
    pub(crate) fn of_all(events: &Events, names: &[String]) -> Vec<EventKind> {
        events.all().iter().zip(names).map(|(event, name)| EventKind::of(&event.attr, name)).collect()
    }

    /// Returns the call chain of a sample of this kind. `offset` is the offset of the sample's record.
    ///
    /// # Errors
    /// Fails if the record is too short for the chain or for the fields before it.
    #[inline]
    pub(crate) fn callchain<'s>(self, sample: &Sample<'s>, offset: u64) -> bprec_format::Result<Option<Callchain<'s>>> {
        match self {
            EventKind::BpfSampler => payload(sample, offset).map(|payload| payload.callchain),
            _ => sample.callchain(),
        }
    }
}

/// Returns the payload of bprec's sampling program in a sample.
pub(crate) fn payload<'s>(sample: &Sample<'s>, offset: u64) -> bprec_format::Result<sampler::SamplerPayload<'s>> {
    sampler::SamplerPayload::parse(sample.raw()?.unwrap_or_default(), offset, sample.endian())
}
