//! The kernel's run statistics: runs of programs, and the time that they took.

use bprec_bpf::{StatsGuard, stats_sysctl};

use super::{Context, Source};
use crate::{Level, Result};

/// The switch of run statistics, ours alone: others may have them on as well.
#[derive(Debug, Default)]
pub(crate) struct Statistics {
    guard: Option<StatsGuard>,
}

impl Statistics {
    /// Whether they are on by us.
    pub(crate) fn is_on(&self) -> bool {
        self.guard.is_some()
    }

    /// Switches them on.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn switch_on(&mut self) -> bprec_bpf::Result<()> {
        self.guard = Some(StatsGuard::enable()?);
        Ok(())
    }

    /// Switches them off; whether they were on.
    pub(crate) fn switch_off(&mut self) -> bool {
        self.guard.take().is_some()
    }
}

/// Runs of programs as the kernel counts them.
#[derive(Debug, Default)]
pub(crate) struct RunStatistics;

impl Source for RunStatistics {
    fn start(&mut self, context: &mut Context<'_>) -> Result<()> {
        context.session.stats_were_on = stats_sysctl().unwrap_or(false);
        match context.statistics.switch_on() {
            Ok(()) => context.session.counters = "stats".to_owned(),
            Err(error) => {
                context.note_counters(&error.to_string());
                (context.notify)(Level::Warning, &format!("no run counts of programs: {error}"));
            }
        }
        Ok(())
    }

    fn begin(&mut self, context: &mut Context<'_>) -> Result<()> {
        self.read(context)
    }

    fn begin_file(&mut self, context: &mut Context<'_>) -> Result<()> {
        self.read(context)
    }

    fn read(&mut self, context: &mut Context<'_>) -> Result<()> {
        if context.statistics.is_on() {
            context.out.states(context.programs.run_stats())?;
        }
        Ok(())
    }

    /// Switched off first: what is read then is all that the kernel will ever have counted for us.
    fn finish(&mut self, context: &mut Context<'_>) -> Result<()> {
        if context.statistics.switch_off() {
            context.out.states(context.programs.run_stats())?;
        }
        Ok(())
    }
}
