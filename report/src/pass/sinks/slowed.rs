//! Sampled time of programs, for runs that were counted in windows: counting slows a load, and samples are taken beside windows too.

use crate::Options;
use crate::index::Index;
use crate::index::runs::SampledTime;
use crate::index::states::SYSTEM_WIDE;
use crate::input::event_kind::EventKind;
use crate::input::recording::Recording;
use crate::input::window::Window;
use crate::model::{Count, Unit};
use crate::pass::attribution::{Attribution, Charge, Column};
use crate::pass::{SampleView, Selection, Sink, run};
use rustc_hash::FxHashMap;

/// CPU numbers from here up are from no machine.
const MAX_CPUS: u32 = 1 << 16;

/// Corrects the runs of an index, if they were counted in windows and what that took is known: for that, all samples are read once more.
pub(crate) fn correct_runs(recording: &Recording<'_>, index: &mut Index, threads: Option<usize>) {
    let run_ns = index.states.session.as_ref().and_then(|session| session.statistics_run_ns);
    let Some(run_ns) = run_ns.filter(|_| index.runs.has_windows()) else { return };
    let sampled = timer(recording, index).and_then(|event| sampled(recording, index, event, threads));
    index.runs.correct(run_ns, sampled.as_ref());
}

/// An event whose samples are of time, of all that ran.
fn timer(recording: &Recording<'_>, index: &Index) -> Option<usize> {
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

/// Sampled time of an event by program; `None` where samples cannot be read.
fn sampled(
    recording: &Recording<'_>,
    index: &Index,
    event: usize,
    threads: Option<usize>,
) -> Option<FxHashMap<(u32, u64), SampledTime>> {
    let options = Options { events: vec![recording.names[event].clone()], threads, ..Options::default() };
    let window = Window::everything();
    let selection = Selection::new(recording, index, &window, &options).ok()?;
    let (sink, unreadable) =
        run(recording, index, &selection, InPrograms { event, ..InPrograms::default() }, |_, _| {});
    // One that goes on was read a moment ago.
    let end_ns = index.states.cost.map(|cost| cost.end_ns).or(index.runs.moments_ns().next_back())?;
    let start_ns = index.states.session.as_ref()?.start_ns;
    let length_ns = end_ns.checked_sub(start_ns).filter(|length_ns| *length_ns > 0)? as f64;
    if unreadable.samples > 0 {
        return None;
    }
    let mut times: FxHashMap<(u32, u64), SampledTime> = FxHashMap::default();
    for ((number, cpu), count) in sink.programs {
        let Some(key) = index.programs.list[number as usize].key() else { continue };
        // Ticks of a timer come late, and are merged.
        let arrived = sink.cpus.get(cpu as usize).map_or(0.0, |of_cpu| (*of_cpu as f64 / length_ns).min(1.0));
        let time = times.entry(key).or_default();
        time.samples = time.samples.saturating_add(count.samples);
        time.least_ns += count.weight as f64;
        time.most_ns += count.weight as f64 / arrived;
    }
    Some(times)
}

/// Samples in programs.
#[derive(Debug, Default)]
struct InPrograms {
    event: usize,
    /// Time of all samples by CPU, ns.
    cpus: Vec<u64>,
    /// By number of the program, and CPU.
    programs: FxHashMap<(u32, u32), Count>,
}

impl Sink for InPrograms {
    fn fork(&self) -> InPrograms {
        InPrograms { event: self.event, ..InPrograms::default() }
    }

    fn sample(&mut self, sample: &SampleView<'_>, attribution: &Attribution<'_>) -> bprec_format::Result<()> {
        let Some(cpu) = sample.cpu.filter(|cpu| *cpu < MAX_CPUS && sample.event == self.event) else { return Ok(()) };
        self.on_cpu(cpu as usize, sample.count.weight);
        if let Charge::Program { program, column: Column::Own | Column::Helper, .. } = attribution.charge {
            self.programs.entry((program, cpu)).or_default().merge(sample.count);
        }
        Ok(())
    }

    fn merge(&mut self, other: InPrograms) {
        other.cpus.into_iter().enumerate().for_each(|(cpu, time_ns)| self.on_cpu(cpu, time_ns));
        other.programs.into_iter().for_each(|(of, count)| self.programs.entry(of).or_default().merge(count));
    }
}

impl InPrograms {
    fn on_cpu(&mut self, cpu: usize, time_ns: u64) {
        if cpu >= self.cpus.len() {
            self.cpus.resize(cpu + 1, 0);
        }
        self.cpus[cpu] = self.cpus[cpu].saturating_add(time_ns);
    }
}
