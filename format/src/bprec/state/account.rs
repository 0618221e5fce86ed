//! Losses, blind spots and cost of a recording.

use crate::layout::meaning::Message;
use crate::layout::{CountedText, Late, List, Optional, Plain, layout};

layout! {
    /// Samples that did not make it into the recording, as the kernel counted them per event.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct Loss {
        /// Per event and CPU, those with a loss only.
        pub events: Vec<EventLoss> as List,
        /// The kernel does not count losses per event (before 6.0): LOST records are all there is.
        pub not_counted: bool,
    }
}

layout! {
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
}

layout! {
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
}

layout! {
    /// The clock of load times has moved against that of the recording: the machine was suspended. From here on this holds, and not what
    /// the session says.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
    pub struct BootClock {
        /// When that was noticed, ns of the recording's clock.
        pub time_ns: u64,
        /// Add this to a time of the recording's clock to get `CLOCK_BOOTTIME`, ns.
        pub to_boottime_ns: i64,
    }
}

layout! {
    /// Cost of the recording itself.
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
        late:
        /// The longest time between two looks at the rings; None in older recordings.
        pub longest_gap_ns: Option<u64> as Late,
        /// Bytes of the rings that were overwritten before they could be read, or are no records.
        pub overrun_bytes: u64,
        /// Cost of run statistics for this recording: runs while they were on, times what they add to a run. None
        /// when that is not known.
        pub statistics_ns: Option<u64> as Optional<Plain>,
        /// Programs that were unloaded while the recorder had no descriptor of them: of their runs, those after the last reading are unknown. None in
        /// older recordings.
        pub unheld: Option<u32> as Late,
    }
}

layout! {
    /// From this moment on [`RunStats`](super::RunStats) are not kept on behalf of the recording: what has a later time says nothing of runs and their times.
    #[derive(Debug, Clone, PartialEq, Eq, Default)]
    pub struct StatsOff {
        /// When they were switched off, ns of the recording's clock.
        pub time_ns: u64,
        /// Why.
        pub reason: String as CountedText<Message>,
    }
}
