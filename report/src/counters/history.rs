//! Counters of a window: the snapshots that the index found, folded into what happened between them.

use super::CounterHistory;
use super::run_points::RunPoints;
use crate::index::Index;
use crate::index::runs::RunHistory;
use crate::input::recording::Recording;
use crate::input::window::Window;
use bprec_format::state::State;
use bprec_format::{RECORD_HEADER_BYTES, Records};

/// What was counted in a window.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) runs: RunHistory,
    /// Of programs that share a hook with others.
    pub(crate) sharers: RunPoints,
    pub(crate) counters: CounterHistory,
}

/// The snapshots of a recording, slice by slice.
pub(crate) struct Snapshots<'i> {
    recording: &'i Recording<'i>,
    index: &'i Index,
    next: usize,
}

impl<'i> Snapshots<'i> {
    pub(crate) fn new(recording: &'i Recording<'_>, index: &'i Index) -> Snapshots<'i> {
        Snapshots { recording, index, next: 0 }
    }

    /// Hands out the snapshots of a slice; slices come in order.
    fn slice(&mut self, slice: u32, records: &Records<'_>, mut take: impl FnMut(State)) {
        let endian = self.recording.endian();
        while let Some((_, offset)) = self.index.snapshots.get(self.next).filter(|(of, _)| *of == slice) {
            self.next += 1;
            let at = offset.checked_sub(records.offset()).and_then(|at| usize::try_from(at).ok());
            let Some(bytes) = at.and_then(|at| records.rest().get(at..)) else { continue };
            let Some(Ok(record)) = Records::new(bytes, *offset, endian).next() else { continue };
            let Some(event) = self.recording.events.index_of(&record) else { continue };
            let layout = &self.recording.event(event).layout;
            let raw = layout
                .sample(record.body(), record.offset + RECORD_HEADER_BYTES as u64)
                .and_then(|sample| sample.raw())
                .and_then(|raw| State::decode(raw.unwrap_or_default(), record.offset, endian));
            // What cannot be read was told in the first pass.
            if let Ok(state) = raw {
                take(state);
            }
        }
    }

    /// Hands out all of them.
    pub(crate) fn all(mut self, mut take: impl FnMut(State)) {
        let (recording, mut slice) = (self.recording, 0);
        recording.for_each_slice(|records| {
            if let Ok(records) = records {
                self.slice(slice, &records, &mut take);
            }
            slice += 1;
        });
    }
}

/// Folds the snapshots, slice by slice.
pub(crate) struct HistoryWalk<'i> {
    snapshots: Snapshots<'i>,
    window: &'i Window,
    history: History,
}

impl<'i> HistoryWalk<'i> {
    /// With `keep_intervals`, what happened from snapshot to snapshot is kept.
    pub(crate) fn new(
        recording: &'i Recording<'_>,
        index: &'i Index,
        window: &'i Window,
        keep_intervals: bool,
    ) -> HistoryWalk<'i> {
        let mut counters = CounterHistory { over_time: keep_intervals, ..CounterHistory::default() };
        if let Some(session) = &index.states.session {
            counters.begin(session);
        }
        let history = History { counters, sharers: RunPoints::of_sharers(index), ..History::default() };
        HistoryWalk { snapshots: Snapshots::new(recording, index), window, history }
    }

    /// Takes in the snapshots of a slice; slices come in order.
    pub(crate) fn slice(&mut self, slice: u32, records: &Records<'_>) {
        let (index, window, history) = (self.snapshots.index, self.window, &mut self.history);
        self.snapshots.slice(slice, records, |state| history.add(state, index, window));
    }

    /// What all slices came to.
    pub(crate) fn finish(self) -> History {
        self.history
    }
}

impl History {
    fn add(&mut self, state: State, index: &Index, window: &Window) {
        let states = &index.states;
        let History { runs, sharers, counters } = self;
        match state {
            State::RunStats(stats) if states.has_run_stats_at(stats.time_ns) => {
                runs.add(&stats, window);
                sharers.add(&stats);
                let start_ns = states.session.as_ref().map(|session| session.start_ns);
                counters.stats(&stats, start_ns.map(|start_ns| (start_ns, &states.boot_times)), window);
            }
            State::StatsOff(off) => counters.stats_off(&off),
            State::CounterEvents(events) => counters.events(events),
            State::ProgramCounters(snapshot) => counters.programs(&snapshot, window),
            State::SharedCounters(snapshot) => counters.shared(&snapshot, window),
            _ => {}
        }
    }

    /// Walks a recording for the snapshots alone.
    pub(crate) fn of(recording: &Recording<'_>, index: &Index, window: &Window, keep_intervals: bool) -> History {
        let HistoryWalk { snapshots, mut history, .. } = HistoryWalk::new(recording, index, window, keep_intervals);
        snapshots.all(|state| history.add(state, index, window));
        history
    }
}
