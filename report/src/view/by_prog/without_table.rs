//! Text in place of a table: no program is known, or another table has the same rows.

use super::opening::missing;
use crate::model::text::{counted, grouped};
use crate::model::{EventReport, Recording};
use crate::view::blocks::Block;
use crate::view::cells::percent;
use crate::view::line::{Line, share_tone};

/// Hottest symbols, when there is no program.
pub(super) fn hottest(event: &EventReport) -> Vec<Block<'static>> {
    let rows = event.hot.iter().map(|hot| {
        let share = percent(hot.share.percent);
        let mut line = Line::default();
        line.push(&format!("{share:>8}"), share_tone(&share));
        line.push(&format!("  {:>9}  {}  {}", grouped(hot.share.count.samples), hot.name, hot.object), None);
        line.trim_end();
        Block::Line(line)
    });
    let opening = [
        Block::Fact("no BPF programs in this recording; its hottest symbols:".to_owned()),
        Block::Heading("%SAMPLES    SAMPLES  SYMBOL OR ADDRESS".to_owned()),
    ];
    opening.into_iter().chain(rows).collect()
}

/// Most events that [`same_rows`] names.
const EVENTS_NAMED: usize = 20;

/// Names the events that a table stands for, too.
pub(super) fn same_rows(events: &[&EventReport], recording: &Recording) -> Option<String> {
    let name = |event: &&EventReport| {
        let mut parts = match event.samples.samples {
            0 => vec!["no samples".to_owned()],
            samples => vec![counted(samples, "sample"), format!("{} in BPF", grouped(event.total.count.samples))],
        };
        parts.extend(missing(event, recording));
        format!("{} ({})", event.name, parts.join(", "))
    };
    let mut names: Vec<String> = events.iter().take(EVENTS_NAMED).map(name).collect();
    if let Some(left) = events.len().checked_sub(EVENTS_NAMED).filter(|left| *left > 0) {
        names.push(format!("{} more", grouped(left as u64)));
    }
    let more = counted(events.len() as u64, "more event");
    (!events.is_empty())
        .then(|| format!("{more} with rows of the same programs (-e NAME shows one): {}", names.join(", ")))
}
