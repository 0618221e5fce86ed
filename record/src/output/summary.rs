//! Figures of a recording.

use std::process::ExitStatus;
use std::time::Duration;

/// Figures of a recording, for the closing line.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Summary {
    /// Samples in the recording.
    pub samples: u64,
    /// Samples of the recorder's own sampling program, if the program was used.
    pub bpf_samples: Option<u64>,
    /// Samples that the user's BPF programs wrote or let pass.
    pub of_programs: u64,
    /// Number of records that carry the samples, if samples were aggregated in the kernel.
    pub weighted: Option<u64>,
    /// Lost samples and side-band records; `None` if unknown.
    pub lost: Option<u64>,
    /// The output is a stream, and its reader ended first.
    pub reader_ended: bool,
    /// Number of times that the kernel throttled an event.
    pub throttled: u64,
    /// BPF programs that were captured.
    pub programs: u32,
    /// BPF programs that were seen but not captured.
    pub missed: u32,
    /// BPF programs that were unloaded while the recorder held no descriptor of them, so their last runs are unknown.
    pub unheld: u32,
    /// Number of files written.
    pub files: u32,
    /// Bytes written.
    pub written_bytes: u64,
    /// Path of the recording; `None` for standard output.
    pub path: Option<std::path::PathBuf>,
    /// CPU time of the recorder, in user mode and in the kernel.
    pub cpu_time: Duration,
    /// CPU time that run statistics of this recording cost other tasks; `None` if unknown.
    pub statistics_time: Option<Duration>,
    /// CPU time of run statistics as a fraction (0 to 1) of the time of all CPUs.
    pub statistics_part: Option<f64>,
    /// Exit status of the command, if the command ran to its end.
    pub command: Option<ExitStatus>,
}
