//! What became of a recording.

use std::fmt;
use std::process::ExitStatus;
use std::time::Duration;

/// What became of a recording, for the closing line.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// Samples in the file.
    pub samples: u64,
    /// Samples and side-band records lost.
    pub lost: u64,
    /// Times that the kernel throttled an event.
    pub throttled: u64,
    /// BPF programs captured.
    pub programs: u32,
    /// BPF programs seen but not captured.
    pub missed: u32,
    /// Bytes written.
    pub written_bytes: u64,
    /// Where to; `None` for standard output.
    pub path: Option<std::path::PathBuf>,
    /// CPU time of the recorder, user and kernel.
    pub cpu_time: Duration,
    /// How the command ended, if one ran to its end.
    pub command: Option<ExitStatus>,
}

impl fmt::Display for Summary {
    /// The closing line: samples, lost, programs, bytes, own cost.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[ bprec: {} samples, {} lost, ", grouped(self.samples), grouped(self.lost))?;
        if self.throttled > 0 {
            write!(f, "throttled {} times, ", grouped(self.throttled))?;
        }
        write!(f, "{} programs", grouped(self.programs.into()))?;
        if self.missed > 0 {
            write!(f, " ({} missed)", grouped(self.missed.into()))?;
        }
        let megabytes = self.written_bytes as f64 / 1e6;
        let decimals = if megabytes < 1.0 { 3 } else { 1 };
        write!(f, ", {megabytes:.decimals$} MB -> ")?;
        match &self.path {
            Some(path) => write!(f, "{}", path.display())?,
            None => f.write_str("-")?,
        }
        write!(f, "; cost {:.2} s CPU ]", self.cpu_time.as_secs_f64())
    }
}

/// 1234567 → `1,234,567`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_line_says_what_there_is() {
        let summary = Summary {
            samples: 12_345,
            programs: 57,
            missed: 1,
            written_bytes: 3_210_000,
            path: Some("perf.data".into()),
            cpu_time: Duration::from_millis(31),
            ..Summary::default()
        };
        let expected =
            "[ bprec: 12,345 samples, 0 lost, 57 programs (1 missed), 3.2 MB -> perf.data; cost 0.03 s CPU ]";
        assert_eq!(summary.to_string(), expected);
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(1_000_000), "1,000,000");
    }
}
