//! The report by program, made while it is written.

use super::facts::{Facts, WantedFacts};
use super::over_time::IntervalQuery;
use crate::index::Index;
use crate::input::recording::OpenRecording;
use crate::model::{EventReport, ItemByItem, OverTime, Report};
use crate::pass::Asked;
use crate::{Options, Result, TableStyle};
use serde::{Serialize, Serializer};

/// Report by program that makes the part of an event when it is written. The rows of many events with many programs would take much memory together.
pub struct LazyReport<'s> {
    facts: Facts<'s>,
    /// The report without events.
    pub(crate) head: Report,
    pub(crate) style: TableStyle,
    /// Costs of all programs in intervals, even of programs that the options leave out, if the table has spark lines.
    pub(crate) over_time: Option<OverTime>,
}

impl<'s> LazyReport<'s> {
    /// Reads the samples.
    pub(crate) fn new(
        recording: &'s OpenRecording<'_>,
        index: &'s Index,
        options: &'s Options,
        style: TableStyle,
    ) -> Result<LazyReport<'s>> {
        let has_spark = style.columns.has_spark();
        let intervals = has_spark.then(|| IntervalQuery::new(recording, index, options, None)).transpose()?;
        let wanted = intervals.as_ref().map_or_else(WantedFacts::default, IntervalQuery::wanted);
        let (facts, ()) = Facts::gather(recording, index, options, wanted, |_| ())?;
        let over_time = intervals.map(|intervals| intervals.report(&facts, 0, None, &Asked::default()));
        Ok(LazyReport { head: facts.report_of(Vec::new()), facts, style, over_time })
    }

    /// Number of events.
    pub(crate) fn event_count(&self) -> usize {
        self.facts.events().count()
    }

    /// Reports of the events, each made when it is reached.
    pub(crate) fn events(&self) -> impl Iterator<Item = EventReport> + Clone {
        self.facts.event_reports()
    }

    /// Returns true if the selection has samples.
    pub fn has_samples(&self) -> bool {
        self.facts.events().any(|event| self.facts.ledgers[event].samples.samples > 0)
    }

    /// Returns the number of programs that [`crate::Options::programs`] matches; the number of all programs if this list is empty.
    pub fn matched_programs(&self) -> usize {
        self.head.matched_programs()
    }
}

impl Serialize for LazyReport<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.facts.report_of(ItemByItem(self.events())).serialize(serializer)
    }
}
