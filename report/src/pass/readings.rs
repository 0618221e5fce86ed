//! Samples that read counters (`PERF_SAMPLE_READ`): growth of each counter since the reading before.

use bprec_format::{AttrFlags, Error, Events, ReadFormat, SampleFields};
use rustc_hash::FxHashMap;

/// Event id and thread id; the thread id is 0 if threads share the counter.
pub(crate) type Counter = (u64, u32);

/// Growth of a counter from one sample to the next.
pub(crate) struct Growth {
    /// Position of the counter among the values of the sample.
    pub(crate) nr: usize,
    pub(crate) counter: Counter,
    pub(crate) event: usize,
    pub(crate) grown: u64,
}

/// Latest value of each counter.
#[derive(Debug, Default)]
pub(crate) struct Readings {
    last: FxHashMap<Counter, u64>,
    /// True if a counter's first value always counts as growth; false if it may include growth from before the recording.
    counts_from_zero: bool,
}

impl Readings {
    /// Makes readings that count as perf does: a counter's first value is growth, even if it began before the recording.
    pub(crate) fn like_perf() -> Readings {
        Readings { counts_from_zero: true, ..Readings::default() }
    }

    /// Fills `growth` with (event, growth) for each counter that has grown. The caller must pass all samples, selected or not, in the order in which
    /// the kernel wrote them.
    ///
    /// # Errors
    /// Fails if a value belongs to no event or is smaller than the counter's previous value. The other values of the sample still count.
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

    /// Calls `visit` with the growth of each counter of a sample.
    ///
    /// Counters start at 0, so the first value of a counter is its growth. But a recording may lack its beginning (later files of `--switch-output`),
    /// which shows if the first value of the sampled counter is above twice its period. The sampled counter is then taken to have grown by one
    /// period, as between any two of its samples. The first growth of the other counters is unknown and counts as 0.
    ///
    /// # Errors
    /// Fails as [`Readings::take`] does.
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
        // With inheritance, each thread has its own counters, all under the event id of the first thread.
        let is_per_thread = event.attr.flags.contains(AttrFlags::INHERIT);
        let thread = fields.pid_tid.filter(|_| is_per_thread).map_or(0, |(_, tid)| tid);
        let always = (!event.attr.flags.contains(AttrFlags::FREQ)).then_some(event.attr.sample_period);
        let period = fields.period.or(always).filter(|period| *period > 0);
        let values = || fields.read.iter().flat_map(|values| values.iter());
        let id_of = |id: Option<u64>| id.or(fields.id.filter(|_| !is_group));
        // A value of up to twice the period still counts as the first overflow, because the interrupt of a counter may be late by nearly a period.
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
                None => problem = Some("value smaller than at the previous reading"),
            }
        }
        problem.map_or(Ok(()), |problem| Err(Error::other(offset, "sample read", problem)))
    }
}
