//! The sources of a recording or a count, and the state that they share.

use std::fmt;
use std::time::Instant;

use crate::output::Summary;
use crate::sources::inventory::Programs;
use crate::sources::statistics::Statistics;
use crate::sources::{Context, Event, Outbox, Source, Tick};
use crate::sys::Waker;
use crate::{Error, Level, Result};

/// All sources, in order.
pub(crate) struct Sources {
    /// All sources. Declared before the shared state, so that the sources are dropped first.
    all: Vec<SourceEntry>,
    /// True if the other sources continue after a source has failed.
    goes_on: bool,
    pub(crate) programs: Programs,
    pub(crate) out: Outbox,
    statistics: Statistics,
    events: Vec<Event>,
    /// Woken when a source has work for a tick.
    waker: Waker,
    notify: fn(Level, &str),
}

struct SourceEntry {
    source: Box<dyn Source>,
    has_failed: bool,
}

impl Sources {
    /// Creates an empty list of sources; threads of sources wake `waker` when a source has work for a tick.
    pub(crate) fn new(
        mut programs: Programs,
        statistics: Statistics,
        out: Outbox,
        waker: Waker,
        notify: fn(Level, &str),
    ) -> Sources {
        statistics.own_program().into_iter().for_each(|id| programs.add_own(id));
        Sources { all: Vec::new(), goes_on: false, programs, out, statistics, events: Vec::new(), waker, notify }
    }

    /// Adds a source at the end of the order.
    pub(crate) fn add(&mut self, source: impl Source + 'static) {
        self.all.push(SourceEntry { source: Box::new(source), has_failed: false });
    }

    /// From here on an error of a source does not end the recording; an error of the output still does.
    pub(crate) fn go_on_without_failed(&mut self) {
        self.goes_on = true;
    }

    /// Waker that is readable when a source has work for a tick.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// Calls [`Source::begin_file`] of all sources.
    ///
    /// # Errors
    /// Returns the first error of a source, or, after `go_on_without_failed`, only an error of the output. The same
    /// holds for `tick` and `end_file`.
    pub(crate) fn begin_file(&mut self, is_first: bool) -> Result<()> {
        self.out.addresses.clear();
        self.each(|source, context| source.begin_file(is_first, context))
    }

    /// Calls [`Source::tick`] of all sources and returns the earliest time that a source asks for. Each `Event` that a
    /// source reports is visible to the sources after it.
    pub(crate) fn tick(&mut self, tick: Tick) -> Result<Option<Instant>> {
        let mut next: Option<Instant> = None;
        self.each(|source, context| {
            let asked = source.tick(tick, context)?;
            next = next.into_iter().chain(asked).min();
            Ok(())
        })?;
        self.events.clear();
        Ok(next)
    }

    /// Calls [`Source::end_file`] of all sources. For the last file the order is reversed: a source that starts before
    /// other sources is read after the other sources have ended.
    pub(crate) fn end_file(&mut self, is_last: bool) -> Result<()> {
        if is_last {
            self.all.reverse();
        }
        let ended = self.each(|source, context| source.end_file(is_last, context));
        if is_last {
            self.all.reverse();
        }
        ended
    }

    /// Calls [`Source::switch`] of all sources, in reverse order to switch off.
    pub(crate) fn switch(&mut self, is_on: bool) -> Result<()> {
        if is_on {
            return self.each(|source, _| source.switch(true));
        }
        self.all.iter_mut().rev().try_for_each(|entry| entry.source.switch(false))
    }

    /// Adds the figures of all sources to the summary.
    pub(crate) fn sum_up(&self, summary: &mut Summary) {
        let own = &self.out.summary;
        // Since Linux 6.0, `own.lost` is the sum of the lost samples that each event counts. Before, only LOST records
        // count lost samples.
        summary.lost = own.lost.or(summary.lost);
        summary.weighted = own.weighted;
        (summary.statistics_time, summary.statistics_part) = (own.statistics_time, own.statistics_part);
        (summary.programs, summary.missed) = self.programs.counts();
        summary.unheld = self.programs.unheld();
    }

    fn each(&mut self, mut call: impl FnMut(&mut dyn Source, &mut Context<'_>) -> Result<()>) -> Result<()> {
        let Sources { all, goes_on, programs, out, statistics, events, notify, .. } = self;
        let mut context = Context { programs, statistics, events, out, notify: *notify };
        for SourceEntry { source, has_failed } in all.iter_mut().filter(|entry| !entry.has_failed) {
            match call(source.as_mut(), &mut context) {
                Err(error) if *goes_on && !matches!(error, Error::OutputEnded) => {
                    *has_failed = true;
                    let text = format!("{error}; the recording continues, without the data that this error concerns");
                    notify(Level::Warning, &text);
                }
                called => called?,
            }
        }
        // Closes descriptors of released programs only after the calls to all sources: until then, no other program can
        // have the same addresses.
        programs.let_go();
        Ok(())
    }
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} sources", self.all.len())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::{Arc, Mutex};

    use bprec_bpf::BtfCache;
    use bprec_format::bprec::state::Session;

    use super::*;

    /// A source with ticks that return a given result.
    struct Ticked {
        error: fn() -> Result<()>,
        ticks: Arc<AtomicU32>,
    }

    impl Source for Ticked {
        fn tick(&mut self, _tick: Tick, _context: &mut Context<'_>) -> Result<Option<Instant>> {
            self.ticks.fetch_add(1, Ordering::Relaxed);
            (self.error)().map(|()| None)
        }
    }

    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

    #[test]
    fn a_source_that_fails_is_left_out_and_the_others_go_on() {
        let programs = Programs::new(Arc::new(BtfCache::new()), None, Vec::new());
        let out = Outbox::collecting(Session::default());
        let notify = |_, text: &str| SAID.lock().unwrap().push(text.to_owned());
        let mut sources = Sources::new(programs, Statistics::default(), out, Waker::new().unwrap(), notify);
        let tick = Tick { now: Instant::now(), is_reading: false };
        let ticks: [Arc<AtomicU32>; 3] = Default::default();
        let errors: [fn() -> Result<()>; 3] =
            [|| Ok(()), || Err(Error::Other("the map is busy".to_owned())), || Ok(())];
        for (error, ticks) in errors.into_iter().zip(&ticks) {
            sources.add(Ticked { error, ticks: Arc::clone(ticks) });
        }
        assert!(sources.tick(tick).is_err(), "an error before the recording starts is returned");
        sources.go_on_without_failed();
        for _ in 0..2 {
            sources.tick(tick).unwrap();
        }
        assert_eq!(ticks.map(|ticks| ticks.load(Ordering::Relaxed)), [3, 2, 2]);
        let said = SAID.lock().unwrap();
        assert!(
            said.len() == 1 && said[0].starts_with("the map is busy; the recording continues, without"),
            "{said:?}"
        );
        // An error of the output ends the recording.
        sources.add(Ticked { error: || Err(Error::OutputEnded), ticks: Arc::default() });
        assert!(matches!(sources.tick(tick), Err(Error::OutputEnded)));
    }
}
