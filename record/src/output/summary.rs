//! Figures of a recording.

use std::fmt;
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
    /// True if the output is a stream and its reader ended first.
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
    /// CPU time of run statistics as a fraction (0 to 1) of the time of all CPUs; `None` if unknown.
    pub statistics_part: Option<f64>,
    /// Exit status of the command, if the command ran to its end.
    pub command: Option<ExitStatus>,
}

/// The closing line of a recording.
impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lost = match self.lost {
            Some(lost) => format!("{} lost", grouped(lost)),
            None if self.reader_ended => "the reader of the pipe ended early".to_owned(),
            None => "this kernel does not count lost samples".to_owned(),
        };
        let of_programs = match self.of_programs {
            0 => String::new(),
            count => format!(" and {} of --bpf-object", grouped(count)),
        };
        let throttled = match self.throttled {
            0 => String::new(),
            times => format!(", throttled {}", counted(times, "time")),
        };
        let missed =
            (self.missed > 0).then(|| format!("{} more announced but not captured", grouped(self.missed.into())));
        let unheld =
            (self.unheld > 0).then(|| format!("last runs of {} programs unknown", grouped(self.unheld.into())));
        let missing = missed.into_iter().chain(unheld).collect::<Vec<_>>().join("; ");
        let missing = if missing.is_empty() { missing } else { format!(" ({missing})") };
        let records = self.weighted.map_or_else(String::new, |records| format!(" in {} records", grouped(records)));
        let files = match self.files {
            0 | 1 => String::new(),
            // `--max-files` may have deleted the first of these files.
            files => format!(", the last of {files} files"),
        };
        let path = self.path.as_ref().map_or_else(|| "standard output".to_owned(), |path| path.display().to_string());
        let ours = match self.bpf_samples {
            Some(samples) => format!(" and {} by the BPF sampler", grouped(samples)),
            None => String::new(),
        };
        // A smaller part is left out: it would be printed as 0.00 %.
        let statistics = match self.statistics_part {
            Some(part) if part >= 0.000_05 => format!(", counting runs took ≈{:.2} % of the machine", part * 100.0),
            _ => String::new(),
        };
        write!(
            f,
            "[ bprec: {}{records}{ours}{of_programs}, {lost}{throttled}; {}{missing}; {} -> {path}{files}; cost {:.3} s CPU{statistics} ]",
            counted(self.samples, "sample"),
            counted(self.programs, "BPF program"),
            bytes(self.written_bytes),
            self.cpu_time.as_secs_f64(),
        )
    }
}

/// Formats a number and its noun: `1 sample`, `2 samples`.
fn counted(number: impl Into<u64>, thing: &str) -> String {
    let number = number.into();
    format!("{} {thing}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// Formats `1234567` as `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a number of bytes as kB, MB or GB.
pub(super) fn bytes(count: u64) -> String {
    match count {
        0..1_000_000 => format!("{:.1} kB", count as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB", count as f64 / 1e6),
        _ => format!("{:.2} GB", count as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(12), "12");
        assert_eq!([counted(0u64, "sample"), counted(1u64, "sample")], ["0 samples", "1 sample"]);
    }
}
