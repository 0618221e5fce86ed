//! All sources of a recording, or of a count, and what they share.

use std::fmt;
use std::time::Instant;

use crate::output::Summary;
use crate::sources::inventory::Programs;
use crate::sources::statistics::Statistics;
use crate::sources::{Context, Event, Outbox, Source, Tick};
use crate::sys::Waker;
use crate::{Error, Level, Result};

/// The sources, in their order.
pub(crate) struct Sources {
    /// Go before what they share.
    all: Vec<SourceEntry>,
    /// One that fails is left out from then on, and the others go on.
    goes_on: bool,
    pub(crate) programs: Programs,
    pub(crate) out: Outbox,
    statistics: Statistics,
    events: Vec<Event>,
    /// Woken when there is something to tick for.
    waker: Waker,
    notify: fn(Level, &str),
}

struct SourceEntry {
    source: Box<dyn Source>,
    has_failed: bool,
}

impl Sources {
    /// `waker` is woken by threads of sources that have found something.
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

    /// Adds one behind the others.
    pub(crate) fn add(&mut self, source: impl Source + 'static) {
        self.all.push(SourceEntry { source: Box::new(source), has_failed: false });
    }

    /// Errors from here on end no recording, unless they are the output's.
    pub(crate) fn go_on_without_failed(&mut self) {
        self.goes_on = true;
    }

    /// Readable when there is something to tick for.
    pub(crate) fn waker(&self) -> &Waker {
        &self.waker
    }

    /// [`Source::begin_file`] of all.
    ///
    /// # Errors
    /// The first that one of them has; so for all of these.
    pub(crate) fn begin_file(&mut self, is_first: bool) -> Result<()> {
        self.out.addresses.clear();
        self.each(|source, context| source.begin_file(is_first, context))
    }

    /// [`Source::tick`] of all. Returns the first time that one of them asks for. What one of them finds is known to all behind it.
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

    /// [`Source::end_file`] of all. The last one goes backwards: what is around others is read when these have ended.
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

    /// [`Source::switch`] of all, backwards when they are switched off.
    pub(crate) fn switch(&mut self, is_on: bool) -> Result<()> {
        if is_on {
            return self.each(|source, _| source.switch(true));
        }
        self.all.iter_mut().rev().try_for_each(|entry| entry.source.switch(false))
    }

    /// Adds what all of them have to say in the closing line.
    pub(crate) fn sum_up(&self, summary: &mut Summary) {
        let own = &self.out.summary;
        // Before 6.0 the LOST records are all there is.
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
                    let text = format!("{error}; the recording goes on, and lacks what depends on it from here on");
                    notify(Level::Warning, &text);
                }
                called => called?,
            }
        }
        // When every source has had its call: nothing else is at a program's addresses before that.
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

    /// A source that fails at its ticks, or works.
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
        assert!(sources.tick(tick).is_err(), "nothing is recorded yet");
        sources.go_on_without_failed();
        for _ in 0..2 {
            sources.tick(tick).unwrap();
        }
        assert_eq!(ticks.map(|ticks| ticks.load(Ordering::Relaxed)), [3, 2, 2]);
        let said = SAID.lock().unwrap();
        assert!(said.len() == 1 && said[0].starts_with("the map is busy; the recording goes on"), "{said:?}");
        // An error of the output ends the recording.
        sources.add(Ticked { error: || Err(Error::OutputEnded), ticks: Arc::default() });
        assert!(matches!(sources.tick(tick), Err(Error::OutputEnded)));
    }
}
