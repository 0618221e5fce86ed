//! Counters of a window: the snapshots that the index found, folded into what happened between them.

use super::CounterHistory;
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
    pub(crate) counters: CounterHistory,
}

/// Walks the snapshots, slice by slice.
pub(crate) struct HistoryWalk<'i> {
    recording: &'i Recording<'i>,
    index: &'i Index,
    window: &'i Window,
    next: usize,
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
        let history = History { counters, ..History::default() };
        HistoryWalk { recording, index, window, next: 0, history }
    }

    /// Takes in the snapshots of a slice; slices come in order.
    pub(crate) fn slice(&mut self, slice: u32, records: &Records<'_>) {
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
                self.state(state);
            }
        }
    }

    fn state(&mut self, state: State) {
        let (states, window) = (&self.index.states, self.window);
        let History { runs, counters } = &mut self.history;
        match state {
            State::RunStats(stats) if states.has_run_stats_at(stats.time_ns) => {
                runs.add(&stats, window);
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

    /// What all slices came to.
    pub(crate) fn finish(self) -> History {
        self.history
    }
}

impl History {
    /// Walks a recording for the snapshots alone.
    pub(crate) fn of(recording: &Recording<'_>, index: &Index, window: &Window, keep_intervals: bool) -> History {
        let mut walk = HistoryWalk::new(recording, index, window, keep_intervals);
        let mut slice = 0;
        recording.for_each_slice(|records| {
            if let Ok(records) = records {
                walk.slice(slice, &records);
            }
            slice += 1;
        });
        walk.finish()
    }
}
