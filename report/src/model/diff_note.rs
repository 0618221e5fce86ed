//! What has to be said beside a comparison: what makes its sides hard to compare.

use super::known::{DiffSide, coded, coded_schema};
use super::text::{counted, decimal};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::borrow::Cow;
use std::fmt;

/// Fewer recordings of a side say little of what differs between them.
pub(crate) const FEW_RECORDINGS: usize = 4;

coded! {
    /// A note of a comparison.
    DiffNote {
        /// The sides differ in something that numbers depend on.
        SidesDiffer {
            /// In what.
            what: &'static str,
            /// What the base has.
            base: String,
            /// What the new side has.
            new: String,
        } = "sides_differ",
        /// Recordings of a side differ in something that numbers depend on.
        SideIsMixed {
            /// Which side.
            side: DiffSide,
            /// In what.
            what: &'static str,
            /// What they have.
            has: String,
        } = "side_is_mixed",
        /// An event is not compared, as not every recording has it.
        EventNotCompared {
            /// Its name.
            event: String,
            /// Which side lacks it.
            lacks: DiffSide,
        } = "event_not_compared",
        /// Events are not compared, as there are too many for the programs.
        EventsLeftOut {
            /// How many.
            events: usize,
        } = "events_left_out",
        /// Events are sampled at other rates.
        SampledAtOtherRate {
            /// Which event.
            event: String,
            /// Mean weight of a sample of the base.
            base_weight: f64,
            /// The same of the new side.
            new_weight: f64,
        } = "sampled_at_other_rate",
        /// Samples were lost.
        Lost {
            /// Of which side.
            side: DiffSide,
            /// Of which event.
            event: String,
            /// How many.
            samples: u64,
        } = "lost",
        /// Sampling was throttled.
        Throttled {
            /// Of which side.
            side: DiffSide,
            /// Of which event.
            event: String,
            /// How often.
            times: u64,
        } = "throttled",
        /// Run statistics were on in windows only.
        StatisticsInWindows {
            /// On which side.
            side: DiffSide,
        } = "statistics_in_windows",
        /// Runs are not known.
        RunsUnknown {
            /// Of which recording.
            path: String,
            /// Why, in words.
            why: String,
        } = "runs_unknown",
        /// Tags mean different things, as the kernel's hash is another from 6.18 on.
        TagsNotCompared = "tags_not_compared",
        /// Where programs are attached is not known of every recording.
        PlacesNotCompared = "places_not_compared",
        /// A recording was cut off.
        CutOff {
            /// Which.
            path: String,
        } = "cut_off",
        /// A recording is too short to tell how far numbers may be off.
        TooShort {
            /// Which.
            path: String,
            /// How many intervals it has.
            intervals: usize,
        } = "too_short",
        /// A side has recordings too few to tell what differs between them.
        FewRecordings {
            /// Which.
            side: DiffSide,
            /// How many.
            recordings: usize,
        } = "few_recordings",
        /// Programs are not shown.
        HiddenPrograms {
            /// How many.
            programs: usize,
        } = "hidden_programs",
        /// What the marks mean.
        Marks {
            /// Of intervals and marks, in per cent.
            confidence_percent: f64,
            /// Recordings of the side that has fewer.
            recordings: usize,
        } = "marks",
    }
}

impl fmt::Display for DiffNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiffNote::SidesDiffer { what, base, new } => {
                write!(f, "! the sides differ in {what}: base {base}, new {new}; this may explain changes")
            }
            DiffNote::SideIsMixed { side, what, has } => {
                write!(f, "! recordings of the {side} side differ in {what}: {has}")
            }
            DiffNote::EventNotCompared { event, lacks } => {
                write!(f, "! {event} is not compared: not every recording of the {lacks} side has it")
            }
            DiffNote::EventsLeftOut { events } => write!(
                f,
                "! {} not compared, as there are too many for so many programs (--event compares them)",
                counted(*events as u64, "more event")
            ),
            DiffNote::SampledAtOtherRate { event, base_weight, new_weight } => write!(
                f,
                "{event}: a sample stands for {} on the base side and for {} on the new side; weights are compared, not samples",
                decimal(*base_weight),
                decimal(*new_weight)
            ),
            DiffNote::Lost { side, event, samples } => {
                write!(f, "! {event}: {} lost on the {side} side; cost is too low by their share", counted(*samples, "sample"))
            }
            DiffNote::Throttled { side, event, times } => {
                write!(f, "! {event}: the kernel stopped sampling {} on the {side} side", counted(*times, "time"))
            }
            DiffNote::StatisticsInWindows { side } => write!(
                f,
                "run statistics were on in windows on the {side} side: runs are estimates, and their intervals wider"
            ),
            DiffNote::RunsUnknown { path, why } => write!(f, "runs of {path}: n/a, {why}"),
            DiffNote::TagsNotCompared => f.write_str(
                "tags are not compared, so a new version of a program looks unchanged: Linux 6.18 changed the hash of tags, or \
                 the kernel of a side is not known",
            ),
            DiffNote::PlacesNotCompared => {
                f.write_str("programs are matched by type and name only: some recordings lack their attach points")
            }
            DiffNote::CutOff { path } => write!(f, "! {path} was cut off: it ends where the recorder wrote last"),
            DiffNote::TooShort { path, intervals } => write!(
                f,
                "! {path} has {}: too few to estimate the error of its numbers (record 30 s or more)",
                counted(*intervals as u64, "interval")
            ),
            DiffNote::FewRecordings { side, recordings } => write!(
                f,
                "the {side} side has {}: the variation between recordings is hardly known, so intervals are wide (record 4 or \
                 more)",
                counted(*recordings as u64, "recording")
            ),
            DiffNote::HiddenPrograms { programs } => write!(
                f,
                "{} without samples and runs, or beyond --limit, not shown (--all shows them)",
                counted(*programs as u64, "program")
            ),
            DiffNote::Marks { confidence_percent, recordings } => {
                write!(f, "* beyond chance within these recordings (at {confidence_percent} % for each number)")?;
                if *recordings < FEW_RECORDINGS {
                    f.write_str("; other load on the machine changes it as easily: give several recordings per side")?;
                }
                f.write_str("; ? undecided; [from to] is the confidence interval")
            }
        }
    }
}
