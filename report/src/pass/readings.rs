//! Samples that read counters (`PERF_SAMPLE_READ`): what each counter has grown by since it was read before.

use bprec_format::{AttrFlags, Error, Events, ReadFormat, SampleFields};
use rustc_hash::FxHashMap;

/// Event id and, where each thread has a counter of its own, thread.
pub(crate) type Counter = (u64, u32);

/// Growth of a counter from one sample to the next.
pub(crate) struct Growth {
    /// Position among the values of the sample.
    pub(crate) nr: usize,
    pub(crate) counter: Counter,
    pub(crate) event: usize,
    pub(crate) grown: u64,
}

/// The values that were read last.
#[derive(Debug, Default)]
pub(crate) struct Readings {
    last: FxHashMap<Counter, u64>,
    /// The first value of a counter is its growth in any case.
    counts_from_zero: bool,
}

impl Readings {
    /// Readings as perf has them: counts from before the recording are growth in its first sample.
    pub(crate) fn like_perf() -> Readings {
        Readings { counts_from_zero: true, ..Readings::default() }
    }

    /// Puts the events that have moved since they were read before, and by how much, into `growth`. Samples must come in the order in which the kernel
    /// wrote them, whether they are asked for or not.
    ///
    /// # Errors
    /// When a value is of no event, or smaller than the one before. The sample's other values are taken in all the same.
    pub(crate) fn take(
        &mut self,
        events: &Events,
        sampled: usize,
        fields: &SampleFields<'_>,
        offset: u64,
        growth: &mut Vec<(usize, u64)>,
    ) -> bprec_format::Result<()> {
        growth.clear();
        self.each(events, sampled, fields, offset, |it| {
            if it.grown > 0 {
                growth.push((it.event, it.grown));
            }
        })
    }

    /// Hands the growth of each counter of a sample to `visit`.
    ///
    /// Counters start at 0, so that the first value of a counter is its growth, unless the recording lacks its beginning (later files of
    /// `--switch-output`): the sampled counter then stands beyond the period after which it first overflows. It has grown by its
    /// period since the sample before, wherever that is, and the growth of the others is not known until their second value.
    ///
    /// # Errors
    /// As [`Readings::take`].
    pub(crate) fn each(
        &mut self,
        events: &Events,
        sampled: usize,
        fields: &SampleFields<'_>,
        offset: u64,
        mut visit: impl FnMut(Growth),
    ) -> bprec_format::Result<()> {
        let event = &events.all()[sampled];
        let is_group = event.layout.read_format().contains(ReadFormat::GROUP);
        // With inheritance each thread has counters of its own under the id of the first.
        let is_per_thread = event.attr.flags.contains(AttrFlags::INHERIT);
        let thread = fields.pid_tid.filter(|_| is_per_thread).map_or(0, |(_, tid)| tid);
        let always = (!event.attr.flags.contains(AttrFlags::FREQ)).then_some(event.attr.sample_period);
        let period = fields.period.or(always).filter(|period| *period > 0);
        let values = || fields.read.iter().flat_map(|values| values.iter());
        let id_of = |id: Option<u64>| id.or(fields.id.filter(|_| !is_group));
        // Interrupts come late now and then, by less than a period.
        let is_beyond = |value: u64| period.is_some_and(|period| value > period.saturating_mul(2));
        let lacks_beginning = values().filter(|_| !self.counts_from_zero).any(|read| {
            id_of(read.id).is_some_and(|id| {
                events.index_of_id(id) == Some(sampled)
                    && !self.last.contains_key(&(id, thread))
                    && is_beyond(read.value)
            })
        });
        let mut problem = None;
        for (nr, read) in values().enumerate() {
            let Some((id, member)) = id_of(read.id).and_then(|id| Some((id, events.index_of_id(id)?))) else {
                problem = Some("value of an unknown event");
                continue;
            };
            let counter = (id, thread);
            let before = self.last.insert(counter, read.value).unwrap_or(match lacks_beginning {
                true if member == sampled => read.value.saturating_sub(period.unwrap_or(0)),
                true => read.value,
                false => 0,
            });
            match read.value.checked_sub(before) {
                Some(grown) => visit(Growth { nr, counter, event: member, grown }),
                None => problem = Some("value smaller than the one read before"),
            }
        }
        problem.map_or(Ok(()), |problem| Err(Error::other(offset, "sample read", problem)))
    }
}
