//! Reads the snapshots of counters that the index found, and folds them into counts between snapshots.

use super::CounterHistory;
use crate::index::Index;
use crate::input::recording::OpenRecording;
use crate::input::window::Window;
use bprec_format::Records;
use bprec_format::bprec::state::State;

/// Reader of the snapshots of a recording, slice by slice.
pub(crate) struct Snapshots<'i> {
    recording: &'i OpenRecording<'i>,
    index: &'i Index,
    next: usize,
}

impl<'i> Snapshots<'i> {
    pub(crate) fn new(recording: &'i OpenRecording<'_>, index: &'i Index) -> Snapshots<'i> {
        Snapshots { recording, index, next: 0 }
    }

    /// Calls `take` with the snapshots of a slice; slices come in order.
    fn slice(&mut self, slice: u32, records: &Records<'_>, mut take: impl FnMut(State)) {
        let endian = self.recording.endian();
        while let Some((_, offset)) = self.index.snapshots.get(self.next).filter(|(of, _)| *of == slice) {
            self.next += 1;
            let at = offset.checked_sub(records.offset()).and_then(|at| usize::try_from(at).ok());
            let Some(bytes) = at.and_then(|at| records.rest().get(at..)) else { continue };
            let Some(Ok(record)) = Records::new(bytes, *offset, endian).next() else { continue };
            // The first pass has reported unreadable records.
            if let Some(Ok(state)) = self.recording.state(&record) {
                take(state);
            }
        }
    }

    /// Calls `take` with all snapshots.
    pub(crate) fn all(mut self, mut take: impl FnMut(State)) {
        let (recording, mut slice) = (self.recording, 0);
        recording.for_each_slice(|of_file| {
            if let Ok(records) = of_file.records {
                self.slice(slice, &records, &mut take);
            }
            slice += 1;
        });
    }
}

/// Folds the snapshots of a window, slice by slice.
pub(crate) struct HistoryWalk<'i> {
    snapshots: Snapshots<'i>,
    window: &'i Window,
    counters: CounterHistory,
}

impl<'i> HistoryWalk<'i> {
    /// Starts a walk. With `keep_intervals`, it also keeps the counts between each two successive snapshots.
    pub(crate) fn new(
        recording: &'i OpenRecording<'_>,
        index: &'i Index,
        window: &'i Window,
        keep_intervals: bool,
    ) -> HistoryWalk<'i> {
        let mut counters = CounterHistory { over_time: keep_intervals, ..CounterHistory::default() };
        if let Some(session) = &index.states.session {
            counters.begin(session);
        }
        HistoryWalk { snapshots: Snapshots::new(recording, index), window, counters }
    }

    /// Adds the snapshots of a slice; slices come in order.
    pub(crate) fn slice(&mut self, slice: u32, records: &Records<'_>) {
        let (window, counters) = (self.window, &mut self.counters);
        self.snapshots.slice(slice, records, |state| counters.add(state, window));
    }

    /// Returns the folded counts.
    pub(crate) fn finish(self) -> CounterHistory {
        self.counters
    }
}

impl CounterHistory {
    fn add(&mut self, state: State, window: &Window) {
        match state {
            State::StatsOff(off) => self.stats_off(&off),
            State::CounterEvents(events) => self.events(events),
            State::ProgramCounters(snapshot) => self.programs(&snapshot, window),
            State::SharedCounters(snapshot) => self.shared(&snapshot, window),
            _ => {}
        }
    }

    /// Folds the snapshots of a recording without reading its other records, and keeps the counts between each two successive snapshots.
    pub(crate) fn of(recording: &OpenRecording<'_>, index: &Index, window: &Window) -> CounterHistory {
        let HistoryWalk { snapshots, mut counters, .. } = HistoryWalk::new(recording, index, window, true);
        snapshots.all(|state| counters.add(state, window));
        counters
    }
}
