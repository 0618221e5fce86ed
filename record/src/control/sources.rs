//! All sources of a recording, and what they share.

use std::fmt;
use std::os::fd::BorrowedFd;
use std::time::Instant;

use bprec_format::state::Session;

use super::command::Workload;
use super::liveness::Liveness;
use crate::output::Summary;
use crate::sources::inventory::Programs;
use crate::sources::statistics::Statistics;
use crate::sources::{Context, News, Outlet, Source};
use crate::sys::{self, Signals};
use crate::{Error, Level, Result};

/// The sources, in their order.
pub(crate) struct Sources {
    /// Go before what they share.
    all: Vec<Entry>,
    /// One that fails is left out from then on, and the others go on.
    goes_on: bool,
    pub(crate) programs: Programs,
    pub(crate) session: Session,
    /// Kernel addresses that are to get names.
    pub(crate) addresses: Vec<u64>,
    statistics: Statistics,
    news: News,
    notify: fn(Level, &str),
}

struct Entry {
    source: Box<dyn Source>,
    has_failed: bool,
}

impl Sources {
    pub(crate) fn new(programs: Programs, session: Session, notify: fn(Level, &str)) -> Sources {
        Sources {
            all: Vec::new(),
            goes_on: false,
            programs,
            session,
            addresses: Vec::new(),
            statistics: Statistics::default(),
            news: News::default(),
            notify,
        }
    }

    /// Adds one behind the others.
    pub(crate) fn add(&mut self, source: impl Source + 'static) {
        self.all.push(Entry { source: Box::new(source), has_failed: false });
    }

    /// Errors from here on end no recording, unless they are the output's.
    pub(crate) fn go_on_without_failed(&mut self) {
        self.goes_on = true;
    }

    /// [`Source::prepare`] of all.
    ///
    /// # Errors
    /// The first that one of them has; so for all of these.
    pub(crate) fn prepare(&mut self, out: &mut dyn Outlet) -> Result<()> {
        self.each(out, |source, context| source.prepare(context))
    }

    /// [`Source::start`] of all, then [`Source::begin`].
    pub(crate) fn start(&mut self, out: &mut dyn Outlet) -> Result<()> {
        self.each(out, |source, context| source.start(context))?;
        self.each(out, |source, context| source.begin(context))
    }

    /// [`Source::enable`] of all.
    pub(crate) fn enable(&mut self, out: &mut dyn Outlet) -> Result<()> {
        self.each(out, |source, context| source.enable(context))
    }

    /// [`Source::poll`] of all. What is new for one of them is new for all that come behind it.
    pub(crate) fn poll(&mut self, now: Instant, out: &mut dyn Outlet) -> Result<()> {
        self.each(out, |source, context| source.poll(now, context))?;
        self.news = News::default();
        Ok(())
    }

    /// [`Source::read`] of all.
    pub(crate) fn read(&mut self, out: &mut dyn Outlet) -> Result<()> {
        self.each(out, |source, context| source.read(context))
    }

    /// [`Source::end_file`] of all.
    pub(crate) fn end_file(&mut self, out: &mut dyn Outlet) -> Result<()> {
        self.each(out, |source, context| source.end_file(context))
    }

    /// [`Source::begin_file`] of all.
    pub(crate) fn begin_file(&mut self, out: &mut dyn Outlet) -> Result<()> {
        self.addresses.clear();
        self.each(out, |source, context| source.begin_file(context))
    }

    /// [`Source::disable`] of all.
    pub(crate) fn disable(&mut self) {
        self.all.iter_mut().rev().for_each(|entry| entry.source.disable());
    }

    /// [`Source::finish`] of all.
    pub(crate) fn finish(&mut self, out: &mut dyn Outlet) -> Result<()> {
        self.all.reverse();
        let finished = self.each(out, |source, context| source.finish(context));
        self.all.reverse();
        finished
    }

    /// When [`Sources::poll`] is to be called next at the latest.
    pub(crate) fn poll_at(&self) -> Option<Instant> {
        self.in_use().filter_map(|source| source.poll_at()).min()
    }

    /// Waits until there is something to do for a source, a signal or one of the other descriptors came, a command or another target
    /// has ended, or the time is over.
    ///
    /// # Errors
    /// When the kernel has no memory for it.
    pub(crate) fn wait(
        &self,
        until: Instant,
        signals: &Signals,
        workload: Option<&Workload>,
        liveness: Option<&Liveness>,
        more: &[BorrowedFd<'_>],
    ) -> Result<()> {
        let mut fds = vec![sys::poll_in(signals)];
        fds.extend(self.in_use().filter_map(|source| source.waker()).map(sys::poll_in));
        fds.extend(workload.and_then(Workload::pidfd).map(sys::poll_in));
        fds.extend(liveness.into_iter().flat_map(Liveness::fds).map(sys::poll_in));
        fds.extend(more.iter().map(sys::poll_in));
        let wait = until.saturating_duration_since(Instant::now());
        sys::poll(&mut fds, Some(wait)).map_err(|answer| Error::Syscall {
            call: "poll",
            object: "signals".to_owned(),
            answer,
            remedy: String::new(),
        })
    }

    /// Adds the remarks of all sources to the closing line.
    pub(crate) fn sum_up(&self, summary: &mut Summary) {
        self.all.iter().for_each(|entry| entry.source.sum_up(summary));
        (summary.programs, summary.missed) = self.programs.counts();
        summary.unheld = self.programs.unheld();
    }

    fn in_use(&self) -> impl Iterator<Item = &dyn Source> {
        self.all.iter().filter(|entry| !entry.has_failed).map(|entry| entry.source.as_ref())
    }

    fn each(
        &mut self,
        out: &mut dyn Outlet,
        mut call: impl FnMut(&mut dyn Source, &mut Context<'_>) -> Result<()>,
    ) -> Result<()> {
        let Sources { all, goes_on, programs, session, addresses, statistics, news, notify } = self;
        let mut context = Context { programs, statistics, news, session, addresses, out, notify: *notify };
        for Entry { source, has_failed } in all.iter_mut().filter(|entry| !entry.has_failed) {
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
    use bprec_format::state::State;

    use super::*;

    /// A source that fails at its polls, or works.
    struct Polled {
        error: fn() -> Result<()>,
        polls: Arc<AtomicU32>,
    }

    impl Source for Polled {
        fn poll(&mut self, _now: Instant, _context: &mut Context<'_>) -> Result<()> {
            self.polls.fetch_add(1, Ordering::Relaxed);
            (self.error)()
        }
    }

    struct Nowhere;

    impl Outlet for Nowhere {
        fn state(&mut self, _state: State) -> Result<()> {
            Ok(())
        }
    }

    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

    #[test]
    fn a_source_that_fails_is_left_out_and_the_others_go_on() {
        let programs = Programs::new(Arc::new(BtfCache::new()), None, Vec::new());
        let mut sources =
            Sources::new(programs, Session::default(), |_, text| SAID.lock().unwrap().push(text.to_owned()));
        let polls: [Arc<AtomicU32>; 3] = Default::default();
        let errors: [fn() -> Result<()>; 3] =
            [|| Ok(()), || Err(Error::Other("the map is busy".to_owned())), || Ok(())];
        for (error, polls) in errors.into_iter().zip(&polls) {
            sources.add(Polled { error, polls: Arc::clone(polls) });
        }
        assert!(sources.poll(Instant::now(), &mut Nowhere).is_err(), "nothing is recorded yet");
        sources.go_on_without_failed();
        for _ in 0..2 {
            sources.poll(Instant::now(), &mut Nowhere).unwrap();
        }
        assert_eq!(polls.map(|polls| polls.load(Ordering::Relaxed)), [3, 2, 2]);
        let said = SAID.lock().unwrap();
        assert!(said.len() == 1 && said[0].starts_with("the map is busy; the recording goes on"), "{said:?}");
        // An error of the output ends the recording.
        sources.add(Polled { error: || Err(Error::OutputEnded), polls: Arc::default() });
        assert!(matches!(sources.poll(Instant::now(), &mut Nowhere), Err(Error::OutputEnded)));
    }
}
