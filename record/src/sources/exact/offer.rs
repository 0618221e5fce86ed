//! What exact counters could count, for a recording that does without them.

use bprec_bpf::{Profiler, Refusals, may_trace};

use super::Pattern;
use crate::Result;
use crate::events::machine;
use crate::output::Summary;
use crate::sources::{Context, Source};

/// Looks, when sampling has ended, how many programs could be counted exactly. Nothing is attached to any of them.
#[derive(Debug, Default)]
pub(crate) struct ExactOffer {
    countable: Option<u32>,
}

impl Source for ExactOffer {
    fn finish(&mut self, context: &mut Context<'_>) -> Result<()> {
        if Profiler::unsafe_here().is_some() || !may_trace() {
            return Ok(());
        }
        // Where tracing is not allowed, it is refused here.
        let Ok(refusals) = Refusals::look() else { return Ok(()) };
        if Profiler::load(&[], 0, machine::present_cpus()).is_err() {
            return Ok(());
        }
        let pattern = Pattern::new(None);
        let is_countable = |known: &super::Known<'_>| {
            let candidates = pattern.choose(*known, refusals.reason(known.snapshot).as_deref());
            candidates.iter().any(|candidate| candidate.program_id().is_some())
        };
        self.countable = Some(context.programs.known().filter(is_countable).count() as u32);
        Ok(())
    }

    fn sum_up(&self, summary: &mut Summary) {
        summary.countable = self.countable.filter(|countable| *countable > 0);
    }
}
