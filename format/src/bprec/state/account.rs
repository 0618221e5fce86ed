//! Losses, blind spots and cost of a recording.

use crate::layout::meaning::Message;
use crate::layout::{CountedText, Late, List, Optional, Plain, layout};

layout! {
    /// Samples lost before they reached the recording, as counted by the kernel per event.
    #[derive(Default)]
    pub struct Loss {
        /// Losses per event and CPU; entries without a loss are left out.
        pub events: Vec<EventLoss> as List,
        /// True if the kernel does not count losses per event (before 6.0): only LOST records show losses.
        pub not_counted: bool,
    }

    /// Lost samples of one event on one CPU.
    #[derive(Copy, Default)]
    pub struct EventLoss {
        /// The event's id.
        pub event_id: u64,
        /// The CPU, or −1 for an event that follows a task.
        pub cpu: i32,
        /// Samples and side-band records lost.
        pub lost: u64,
    }

    /// Gap in the sampling of a CPU, from `time_ns` on. The CPU went offline or was suspended with the machine, or it came online after the file
    /// began: the file then has no samples of it. A second state with the same CPU and time says when the CPU was sampled again.
    #[derive(Copy, Default)]
    pub struct CpuNotSampled {
        /// Begin of the gap, ns of the recording's clock: time of the check that found the change. If the CPU was online again by then: time of the
        /// check before, because the CPU may have gone offline at any time since.
        pub time_ns: u64,
        /// Number of the CPU.
        pub cpu: u32,
        /// True if the CPU was offline when the file began, and came online; false if it was sampled before.
        pub came_online: bool,
        late:
        /// Time when the CPU was sampled again, ns of the recording's clock; 0 if not yet known.
        pub until_ns: u64,
    }

    /// New offset between the clock of load times and the recording's clock, after a suspend of the machine. From
    /// `time_ns` on, it replaces the offset in the `Session` state.
    #[derive(Copy, Default)]
    pub struct BootClock {
        /// Time when the recorder noticed the new offset, ns of the recording's clock.
        pub time_ns: u64,
        /// Offset from the recording's clock to `CLOCK_BOOTTIME`, ns.
        pub to_boottime_ns: i64,
    }

    /// Cost of the recording itself.
    #[derive(Copy, Default)]
    pub struct Cost {
        /// Time when sampling was switched off, ns of the recording's clock.
        pub end_ns: u64,
        /// CPU time of the recorder in user mode for this file, start and stop included.
        pub user_ns: u64,
        /// CPU time of the recorder in the kernel for this file, start and stop included.
        pub system_ns: u64,
        /// Largest resident set of the recorder.
        pub max_rss_bytes: u64,
        /// Bytes written into the recording so far.
        pub written_bytes: u64,
        /// Count of wakeups of the recorder to drain the rings.
        pub wakeups: u64,
        /// Count of captured programs.
        pub programs: u32,
        /// Count of programs that were seen but not captured.
        pub missed: u32,
        late:
        /// Longest time between two drains of the rings, ns; `None` in older recordings.
        pub longest_gap_ns: Option<u64> as Late,
        /// Ring bytes that were overwritten before the recorder read them, or that are not records.
        pub overrun_bytes: u64,
        /// Cost of run statistics for this recording, ns: count of runs while statistics were on, times the cost per run. `None` if unknown.
        pub statistics_ns: Option<u64> as Optional<Plain>,
        /// Count of programs that were unloaded while the recorder held no descriptor of them; their runs after the last reading are unknown.
        /// `None` in older recordings.
        pub unheld: Option<u32> as Late,
    }

    /// End of run statistics for this recording: [`RunStats`](super::RunStats) with a later time say nothing about runs
    /// and their durations.
    #[derive(Default)]
    pub struct StatsOff {
        /// Time when run statistics were switched off, ns of the recording's clock.
        pub time_ns: u64,
        /// Reason for the switch.
        pub reason: String as CountedText<Message>,
    }
}
