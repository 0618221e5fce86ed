//! Samples that read counters (`PERF_SAMPLE_READ`): what each counter has grown by since it was read before.

use bprec_format::{AttrFlags, Error, Events, ReadFormat, SampleFields};
use rustc_hash::FxHashMap;

/// The values that were read last.
#[derive(Debug, Default)]
pub(crate) struct Readings {
    /// By event id and thread.
    last: FxHashMap<(u64, u32), u64>,
}

impl Readings {
    /// Puts the events that have moved since they were read before, and by how much, into `growth`. Samples must come in the order in which the kernel
    /// wrote them, whether they are asked for or not. Counters start at 0, so that the first value of an id is its growth.
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
        let event = &events.all()[sampled];
        let is_group = event.layout.read_format().contains(ReadFormat::GROUP);
        // With inheritance each thread has counters of its own under the id of the first.
        let is_per_thread = event.attr.flags.contains(AttrFlags::INHERIT);
        let thread = fields.pid_tid.filter(|_| is_per_thread).map_or(0, |(_, tid)| tid);
        let mut problem = None;
        for read in fields.read.iter().flat_map(|values| values.iter()) {
            let id = read.id.or(fields.id.filter(|_| !is_group));
            let Some((id, member)) = id.and_then(|id| Some((id, events.index_of_id(id)?))) else {
                problem = Some("value of an unknown event");
                continue;
            };
            let before = self.last.insert((id, thread), read.value).unwrap_or(0);
            match read.value.checked_sub(before) {
                Some(0) => {}
                Some(grown) => growth.push((member, grown)),
                None => problem = Some("value smaller than the one read before"),
            }
        }
        problem.map_or(Ok(()), |problem| Err(Error::other(offset, "sample read", problem)))
    }
}
