//! Corrects run counts that were made only in windows, while run statistics were on. Counting slows programs, so they run more often outside of
//! windows. Samples cover the whole recording and show how much more often.

use super::pivot::{ChargedRow, Key, KeyBy, Pivot};
use super::sharing::HookWeights;
use crate::index::Index;
use crate::index::runs::SampledTime;
use crate::index::states::SYSTEM_WIDE;
use crate::input::event_kind::EventKind;
use crate::input::recording::OpenRecording;
use crate::model::Unit;
use crate::pass::{Selection, run};
use crate::{Options, Payer};
use rustc_hash::FxHashMap;

/// Corrects the runs of an index if they were counted in windows and the cost of counting is known. Reads all samples once more.
pub(crate) fn correct_runs(recording: &OpenRecording<'_>, index: &mut Index, threads: Option<usize>) {
    let run_ns = index.states.session.as_ref().and_then(|session| session.statistics_run_ns);
    let Some(run_ns) = run_ns.filter(|_| index.runs.has_windows()) else { return };
    let sampled = timer(recording, index).and_then(|event| sampled(recording, index, event, threads));
    index.runs.correct(run_ns, sampled.as_ref());
}

/// Returns a timer event whose samples cover everything that ran on the machine, without loss.
fn timer(recording: &OpenRecording<'_>, index: &Index) -> Option<usize> {
    let session = index.states.session.as_ref()?;
    let lost = &index.lost;
    if session.target != SYSTEM_WIDE || lost.samples_of_any > 0 || !index.states.cpus_not_sampled.is_empty() {
        return None;
    }
    (0..recording.names.len()).find(|event| {
        recording.kinds[*event] == EventKind::Pmu
            && index.unit(recording, *event) == Unit::Nanoseconds
            && index.has_chains(recording, *event)
            && !index.aggregations.contains_key(event)
            && !lost.filtered.contains_key(event)
            && lost.samples.get(event).is_none_or(|lost| *lost == 0)
    })
}

/// Returns the sampled time of an event by program; `None` if a sample is unreadable, or if the length of the recording is unknown.
fn sampled(
    recording: &OpenRecording<'_>,
    index: &Index,
    event: usize,
    threads: Option<usize>,
) -> Option<FxHashMap<(u32, u64), SampledTime>> {
    let options = Options { events: vec![recording.names[event].clone()], threads, ..Options::default() };
    let selection = Selection::new(recording, index, &options).ok()?;
    let by_cpu = KeyBy::Payers { payers: vec![Payer::Cpu], is_whole: true };
    let pivot = Pivot::new(index, by_cpu, recording.events.all().len());
    let (pivot, left_out) = run(recording, index, &selection, pivot, |_, _| {});
    // The recording may still be in progress: it then ends at its latest reading.
    let end_ns = index.states.cost.map(|cost| cost.end_ns).or(index.runs.moments_ns().next_back())?;
    let start_ns = index.states.session.as_ref()?.start_ns;
    let length_ns = index.recorded_ns(start_ns, end_ns)? as f64;
    if left_out.samples > 0 {
        return None;
    }
    let sampled = pivot.finish(&HookWeights::new(index, &selection.window));
    let (of_event, mut by_cpu) = (&sampled.events[event], FxHashMap::<Key, u64>::default());
    let cpu = |key: u32| sampled.keys[key as usize][0];
    for (key, count) in &of_event.all {
        let time_ns = by_cpu.entry(cpu(*key)).or_default();
        *time_ns = time_ns.saturating_add(count.weight);
    }
    let mut times: FxHashMap<(u32, u64), SampledTime> = FxHashMap::default();
    for cell in of_event.cells.iter().filter(|cell| cpu(cell.key) != Key::Unknown) {
        let (ChargedRow::Program(number), count) = (cell.charged, cell.charges.own + cell.charges.helper) else {
            continue;
        };
        let Some(key) = index.programs.list[number as usize].key().filter(|_| count.samples > 0) else { continue };
        // Part of this CPU's time for which timer ticks arrived. The other ticks are missing because the kernel merges late ticks.
        let arrived = (by_cpu[&cpu(cell.key)] as f64 / length_ns).min(1.0);
        let time = times.entry(key).or_default();
        time.samples = time.samples.saturating_add(count.samples);
        time.least_ns += count.weight as f64;
        time.most_ns += count.weight as f64 / arrived;
    }
    Some(times)
}
