//! Result of a recording.

use std::process::ExitStatus;
use std::time::Duration;

/// Result of a recording, for the closing line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// Samples in the file.
    pub samples: u64,
    /// Samples of our sampling program in the file, if there was one.
    pub bpf_samples: Option<u64>,
    /// Samples that the user's programs let through or wrote.
    pub of_programs: u64,
    /// Records that the samples were written as, where they were counted in the kernel.
    pub weighted: Option<u64>,
    /// Samples and side-band records lost, `None` where that is not known.
    pub lost: Option<u64>,
    /// It is a stream, and ended when its reader did.
    pub reader_ended: bool,
    /// Times that the kernel throttled an event.
    pub throttled: u64,
    /// BPF programs captured.
    pub programs: u32,
    /// BPF programs seen but not captured.
    pub missed: u32,
    /// BPF programs that were unloaded while the recorder had no descriptor of them, so that their last runs are unknown.
    pub unheld: u32,
    /// Files written.
    pub files: u32,
    /// Bytes written.
    pub written_bytes: u64,
    /// Path of the recording; `None` for standard output.
    pub path: Option<std::path::PathBuf>,
    /// CPU time of the recorder, user and kernel.
    pub cpu_time: Duration,
    /// CPU time that run statistics took of others for this recording; `None` when that is not known.
    pub statistics_time: Option<Duration>,
    /// The same as a part of 1 of the time of all CPUs.
    pub statistics_part: Option<f64>,
    /// Status of the command, if one ran to its end.
    pub command: Option<ExitStatus>,
}
