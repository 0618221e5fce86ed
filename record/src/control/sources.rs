//! All sources of a recording, and what they share.

use std::fmt;
use std::time::Instant;

use bprec_format::state::Session;

use crate::output::Summary;
use crate::sources::inventory::Programs;
use crate::sources::statistics::Statistics;
use crate::sources::{Context, News, Outlet, Source};
use crate::sys::Waker;
use crate::{Level, Result};

/// The sources, in their order.
pub(crate) struct Sources {
    /// Go before what they share.
    all: Vec<Box<dyn Source>>,
    pub(crate) programs: Programs,
    pub(crate) session: Session,
    /// Kernel addresses that are to get names.
    pub(crate) addresses: Vec<u64>,
    statistics: Statistics,
    news: News,
    notify: fn(Level, &str),
}

impl Sources {
    pub(crate) fn new(programs: Programs, session: Session, notify: fn(Level, &str)) -> Sources {
        Sources {
            all: Vec::new(),
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
        self.all.push(Box::new(source));
    }

    /// [`Source::prepare`] of all.
    ///
    /// # Errors
    /// The first that one of them has; so for all of these.
    pub(crate) fn prepare(&mut self, out: &mut dyn Outlet) -> Result<()> {
        self.each(out, |source, context| source.prepare(context))
    }

    /// [`Source::start`] of all, then [`Source::begin`].
    ///
    /// # Errors
    /// As above.
    pub(crate) fn start(&mut self, out: &mut dyn Outlet) -> Result<()> {
        self.each(out, |source, context| source.start(context))?;
        self.each(out, |source, context| source.begin(context))
    }

    /// [`Source::enable`] of all.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn enable(&mut self, out: &mut dyn Outlet) -> Result<()> {
        self.each(out, |source, context| source.enable(context))
    }

    /// [`Source::poll`] of all. What is new for one of them is new for all that come behind it.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn poll(&mut self, now: Instant, out: &mut dyn Outlet) -> Result<()> {
        self.each(out, |source, context| source.poll(now, context))?;
        self.news = News::default();
        Ok(())
    }

    /// [`Source::read`] of all.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn read(&mut self, out: &mut dyn Outlet) -> Result<()> {
        self.each(out, |source, context| source.read(context))
    }

    /// [`Source::end_file`] of all.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn end_file(&mut self, out: &mut dyn Outlet) -> Result<()> {
        self.each(out, |source, context| source.end_file(context))
    }

    /// [`Source::begin_file`] of all.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn begin_file(&mut self, out: &mut dyn Outlet) -> Result<()> {
        self.addresses.clear();
        self.each(out, |source, context| source.begin_file(context))
    }

    /// [`Source::disable`] of all.
    pub(crate) fn disable(&mut self) {
        self.all.iter_mut().rev().for_each(|source| source.disable());
    }

    /// [`Source::finish`] of all.
    ///
    /// # Errors
    /// As above.
    pub(crate) fn finish(&mut self, out: &mut dyn Outlet) -> Result<()> {
        self.all.reverse();
        let finished = self.each(out, |source, context| source.finish(context));
        self.all.reverse();
        finished
    }

    /// When [`Sources::poll`] is to be called next at the latest.
    pub(crate) fn poll_at(&self) -> Option<Instant> {
        self.all.iter().filter_map(|source| source.poll_at()).min()
    }

    /// What wakes the control thread.
    pub(crate) fn wakers(&self) -> impl Iterator<Item = &Waker> {
        self.all.iter().filter_map(|source| source.waker())
    }

    /// What all of them have to say in the closing line.
    pub(crate) fn sum_up(&self, summary: &mut Summary) {
        self.all.iter().for_each(|source| source.sum_up(summary));
        (summary.programs, summary.missed) = self.programs.counts();
        summary.unheld = self.programs.unheld();
    }

    fn each(
        &mut self,
        out: &mut dyn Outlet,
        mut call: impl FnMut(&mut dyn Source, &mut Context<'_>) -> Result<()>,
    ) -> Result<()> {
        let Sources { all, programs, session, addresses, statistics, news, notify } = self;
        let mut context = Context { programs, statistics, news, session, addresses, out, notify: *notify };
        all.iter_mut().try_for_each(|source| call(source.as_mut(), &mut context))?;
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
