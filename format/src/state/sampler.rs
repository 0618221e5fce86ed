//! Our sampling program: on which event it is, and what became of its samples.

use super::parts::{get_string, put_text};
use crate::sampler::Parts;
use crate::{Reader, Result, Writer};

/// The program that writes [`bprec:sampler`](crate::sampler): where it is, and what came of it. Told when sampling starts,
/// and again, with [`counts`](Sampler::counts), at the end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sampler {
    /// The program.
    pub prog_id: u32,
    /// Name of the event that it sits on.
    pub event: String,
    /// `perf_event_attr.type` of that event.
    pub event_type: u32,
    /// `perf_event_attr.config` of that event.
    pub event_config: u64,
    /// `rate` is samples per second, not events per sample.
    pub is_frequency: bool,
    /// How often the event samples.
    pub rate: u64,
    /// What its samples have.
    pub parts: Parts,
    /// Events opened, one per CPU or per task and CPU.
    pub events: u32,
    /// Those where the program is attached by a link; by ioctl otherwise.
    pub links: u32,
    /// What came of it.
    pub counts: Option<SamplerCounts>,
}

/// What became of the runs of our sampling program: each was written, or is in one of the other counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SamplerCounts {
    /// Times that the program ran.
    pub runs: u64,
    /// Samples written.
    pub written: u64,
    /// Samples lost as the ring had no room (ENOSPC).
    pub full: u64,
    /// Samples that the kernel did not take for another reason.
    pub failed: u64,
    /// The last such reason; 0 when there was none.
    pub last_errno: u32,
}

impl Sampler {
    pub(super) fn put(&self, w: &mut Writer<'_>) {
        w.u32(self.prog_id);
        put_text(w, self.event.as_bytes());
        w.u32(self.event_type).u64(self.event_config).u8(self.is_frequency.into()).u64(self.rate);
        w.u16(self.parts.0).u32(self.events).u32(self.links).u8(self.counts.is_some().into());
        if let Some(counts) = &self.counts {
            w.u64(counts.runs).u64(counts.written).u64(counts.full).u64(counts.failed).u32(counts.last_errno);
        }
    }

    pub(super) fn get(r: &mut Reader<'_>) -> Result<Sampler> {
        let mut sampler = Sampler {
            prog_id: r.u32("sampler program")?,
            event: get_string(r, "sampler event")?,
            event_type: r.u32("sampler event type")?,
            event_config: r.u64("sampler event config")?,
            is_frequency: r.u8("sampler frequency")? != 0,
            rate: r.u64("sampler rate")?,
            parts: Parts(r.u16("sampler parts")?),
            events: r.u32("sampler events")?,
            links: r.u32("sampler links")?,
            counts: None,
        };
        if r.u8("sampler counts")? != 0 {
            sampler.counts = Some(SamplerCounts {
                runs: r.u64("sampler runs")?,
                written: r.u64("sampler written")?,
                full: r.u64("sampler full")?,
                failed: r.u64("sampler failed")?,
                last_errno: r.u32("sampler errno")?,
            });
        }
        Ok(sampler)
    }
}
