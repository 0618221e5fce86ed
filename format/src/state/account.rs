//! What a recording lost, what it did not see, and what it cost.

use super::parts::{get_list, get_option, get_string, put_list, put_option, put_text};
use crate::{Reader, Result, Writer};

/// Samples that did not make it into the recording, as the kernel counted them per event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Loss {
    /// Per event and CPU, those with a loss only.
    pub events: Vec<EventLoss>,
    /// The kernel does not count losses per event (before 6.0): LOST records are all there is.
    pub not_counted: bool,
}

/// Lost samples of one event on one CPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EventLoss {
    /// The event's id.
    pub event_id: u64,
    /// The CPU, or −1 for an event that follows a task.
    pub cpu: i32,
    /// Samples and side-band records lost.
    pub lost: u64,
}

/// A CPU that was not sampled from here on: it went offline, or came online when it was too late to sample it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CpuNotSampled {
    /// When that was noticed, ns of the recording's clock.
    pub time_ns: u64,
    /// Its number.
    pub cpu: u32,
    /// It came online. If not, it was sampled until it went offline.
    pub came_online: bool,
}

/// The clock of load times has moved against that of the recording: the machine was suspended. From here on this holds, and not what
/// the session says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BootClock {
    /// When that was noticed, ns of the recording's clock.
    pub time_ns: u64,
    /// Add this to a time of the recording's clock to get `CLOCK_BOOTTIME`, ns.
    pub to_boottime_ns: i64,
}

/// What the recording itself cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cost {
    /// When sampling was switched off, ns of the recording's clock.
    pub end_ns: u64,
    /// CPU time of the recorder in user mode, start and stop included.
    pub user_ns: u64,
    /// CPU time of the recorder in the kernel.
    pub system_ns: u64,
    /// Largest resident set.
    pub max_rss_bytes: u64,
    /// Bytes written into the recording so far.
    pub written_bytes: u64,
    /// Times the recorder woke to drain the rings.
    pub wakeups: u64,
    /// Programs captured.
    pub programs: u32,
    /// Programs seen but not captured.
    pub missed: u32,
    /// The longest time between two looks at the rings; None in older recordings.
    pub longest_gap_ns: Option<u64>,
    /// Bytes of the rings that were overwritten before they could be read, or are no records.
    pub overrun_bytes: u64,
    /// What run statistics took of the machine for this recording: runs while they were on, times what they add to a run. None
    /// when that is not known.
    pub statistics_ns: Option<u64>,
    /// Programs that were unloaded while the recorder had no descriptor of them: of their runs, those after the last reading are unknown. None in
    /// older recordings.
    pub unheld: Option<u32>,
}

/// From this moment on [`RunStats`](super::RunStats) are not kept on behalf of the recording: what has a later time says nothing of runs and their times.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StatsOff {
    /// When they were switched off, ns of the recording's clock.
    pub time_ns: u64,
    /// Why.
    pub reason: String,
}

impl StatsOff {
    pub(super) fn put(&self, w: &mut Writer<'_>) {
        w.u64(self.time_ns);
        put_text(w, self.reason.as_bytes());
    }

    pub(super) fn get(r: &mut Reader<'_>) -> Result<StatsOff> {
        Ok(StatsOff { time_ns: r.u64("stats off time")?, reason: get_string(r, "stats off reason")? })
    }
}

impl Loss {
    pub(super) fn put(&self, w: &mut Writer<'_>) {
        put_list(w, &self.events, |event, w| {
            w.u64(event.event_id).u32(event.cpu as u32).u64(event.lost);
        });
        w.u8(self.not_counted.into());
    }

    pub(super) fn get(r: &mut Reader<'_>) -> Result<Loss> {
        Ok(Loss {
            events: get_list(r, 20, |r| {
                Ok(EventLoss {
                    event_id: r.u64("loss event")?,
                    cpu: r.u32("loss cpu")? as i32,
                    lost: r.u64("loss count")?,
                })
            })?,
            not_counted: r.u8("loss not counted")? != 0,
        })
    }
}

impl CpuNotSampled {
    pub(super) fn put(&self, w: &mut Writer<'_>) {
        w.u64(self.time_ns).u32(self.cpu).u8(self.came_online.into());
    }

    pub(super) fn get(r: &mut Reader<'_>) -> Result<CpuNotSampled> {
        Ok(CpuNotSampled {
            time_ns: r.u64("unsampled cpu time")?,
            cpu: r.u32("unsampled cpu")?,
            came_online: r.u8("unsampled cpu online")? != 0,
        })
    }
}

impl BootClock {
    pub(super) fn put(&self, w: &mut Writer<'_>) {
        w.u64(self.time_ns).u64(self.to_boottime_ns.cast_unsigned());
    }

    pub(super) fn get(r: &mut Reader<'_>) -> Result<BootClock> {
        Ok(BootClock { time_ns: r.u64("boot clock time")?, to_boottime_ns: r.u64("boot clock offset")?.cast_signed() })
    }
}

impl Cost {
    pub(super) fn put(&self, w: &mut Writer<'_>) {
        w.u64(self.end_ns).u64(self.user_ns).u64(self.system_ns).u64(self.max_rss_bytes);
        w.u64(self.written_bytes).u64(self.wakeups).u32(self.programs).u32(self.missed);
        if let Some(gap_ns) = self.longest_gap_ns {
            w.u64(gap_ns).u64(self.overrun_bytes);
            put_option(w, self.statistics_ns);
            if let Some(unheld) = self.unheld {
                w.u32(unheld);
            }
        }
    }

    pub(super) fn get(r: &mut Reader<'_>) -> Result<Cost> {
        Ok(Cost {
            end_ns: r.u64("cost end")?,
            user_ns: r.u64("cost user")?,
            system_ns: r.u64("cost system")?,
            max_rss_bytes: r.u64("cost rss")?,
            written_bytes: r.u64("cost written")?,
            wakeups: r.u64("cost wakeups")?,
            programs: r.u32("cost programs")?,
            missed: r.u32("cost missed")?,
            // Older recordings end here.
            longest_gap_ns: if r.is_empty() { None } else { Some(r.u64("cost gap")?) },
            overrun_bytes: if r.is_empty() { 0 } else { r.u64("cost overrun")? },
            statistics_ns: if r.is_empty() { None } else { get_option(r, "cost statistics")? },
            unheld: if r.is_empty() { None } else { Some(r.u32("cost unheld")?) },
        })
    }
}
