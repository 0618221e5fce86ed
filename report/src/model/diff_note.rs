//! Notes of a comparison: reasons why its sides are hard to compare.

use super::Gravity;
use super::known::{DiffSide, coded};
use super::text::{counted, decimal};

/// Least count of recordings per side: with fewer recordings, differences between the sides say little.
pub(crate) const FEW_RECORDINGS: usize = 4;

impl DiffNote {
    /// Gravity of the note, which orders the notes below a table.
    pub(crate) fn gravity(&self) -> Gravity {
        match self {
            DiffNote::SidesDiffer { .. }
            | DiffNote::SideIsMixed { .. }
            | DiffNote::Lost { .. }
            | DiffNote::Throttled { .. }
            | DiffNote::CutOff { .. }
            | DiffNote::TooShort { .. } => Gravity::Wrong,
            DiffNote::EventNotCompared { .. } | DiffNote::EventsLeftOut { .. } | DiffNote::RunsUnknown { .. } => {
                Gravity::Missing
            }
            DiffNote::StatisticsInWindows { .. }
            | DiffNote::TagsNotCompared
            | DiffNote::PlacesNotCompared
            | DiffNote::FewRecordings { .. } => Gravity::Inexact,
            DiffNote::SampledAtOtherRate { .. } | DiffNote::HiddenPrograms { .. } | DiffNote::Marks { .. } => {
                Gravity::Explained
            }
        }
    }
}

/// Warning in the legend if a side has fewer than [`FEW_RECORDINGS`] recordings.
const OTHER_LOAD: &str = "; other load on the machine can cause the same change: give several recordings per side";

coded! {
    /// A note of a comparison.
    DiffNote {
        /// The sides differ in a property that numbers depend on.
        SidesDiffer { what: &'static str, base: String, new: String } = "sides_differ":
            "! the sides differ in {what}: base {base}, new {new}; this may explain changes";
        /// The recordings of a side differ in a property that numbers depend on.
        SideIsMixed { side: DiffSide, what: &'static str, has: String } = "side_is_mixed":
            "! recordings of the {side} side differ in {what}: {has}";
        /// An event is not compared because some recordings lack it.
        EventNotCompared { event: String, lacks: DiffSide } = "event_not_compared":
            "! {event} is not compared: not every recording of the {lacks} side has this event";
        /// Events are not compared because there are too many events and programs.
        EventsLeftOut { events: usize } = "events_left_out":
            "! {} not compared: too many events for this number of programs (--event selects the events to compare)",
            counted(*events as u64, "more event");
        /// The sides sampled an event at different rates.
        SampledAtOtherRate { event: String, base_weight: f64, new_weight: f64 } = "sampled_at_other_rate":
            "{event}: a sample has the weight {} on the base side and {} on the new side, so bprec compares weights, not \
             counts of samples",
            decimal(*base_weight), decimal(*new_weight);
        /// Samples were lost.
        Lost { side: DiffSide, event: String, samples: u64 } = "lost":
            "! {event}: {} lost on the {side} side; the cost shown is too low by the share of the lost samples", counted(*samples, "sample");
        /// Sampling was throttled.
        Throttled { side: DiffSide, event: String, times: u64 } = "throttled":
            "! {event}: the kernel throttled sampling {} on the {side} side", counted(*times, "time");
        /// Run statistics were on in short windows.
        StatisticsInWindows { side: DiffSide } = "statistics_in_windows":
            "{side} side: runs were counted only part of the time (--budget), so RUNS are estimates with wider intervals";
        /// Runs are unknown.
        RunsUnknown { path: String, why: String } = "runs_unknown": "runs of {path}: n/a, {why}";
        /// Tags are not comparable: kernels from 6.18 on use another hash.
        TagsNotCompared = "tags_not_compared":
            "tags are not compared, so a new version of a program looks unchanged: the kernels of the two sides compute tags \
             differently (Linux 6.18 changed the hash), or the kernel of a side is unknown";
        /// Some recordings lack attach points.
        PlacesNotCompared = "places_not_compared":
            "programs are matched by type and name only: some recordings lack their attach points";
        /// A recording was cut off.
        CutOff { path: String } = "cut_off": "! {path} was cut off: it ends where the recorder wrote last; `bprec recover` turns it into a file that perf opens";
        /// A recording is too short to estimate errors.
        TooShort { path: String, intervals: usize } = "too_short":
            "! {path} has {}: too few to estimate the error of its numbers (record 30 s or more)", counted(*intervals as u64, "interval");
        /// A side has two or three recordings: too few to know how much recordings vary.
        FewRecordings { side: DiffSide, recordings: usize } = "few_recordings":
            "the {side} side has only {}: the variation between recordings is uncertain, so confidence intervals are wide (use 4 or more)",
            counted(*recordings as u64, "recording");
        /// Some programs are hidden.
        HiddenPrograms { programs: usize } = "hidden_programs":
            "{} not shown: without samples and runs (--all shows these programs), or beyond --limit", counted(*programs as u64, "program");
        /// Legend of the marks.
        Marks { confidence_percent: f64, recordings: usize } = "marks":
            "*: the change is beyond chance within these recordings (at {confidence_percent} % for each number){}; ?: \
             undecided; [from to]: confidence interval", if *recordings < FEW_RECORDINGS { OTHER_LOAD } else { "" };
    }
}
