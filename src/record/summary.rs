//! Closing line of `bprec record`.

use bprec_record::Summary;

/// Formats the result of a recording as one line.
pub(super) fn closing_line(summary: &Summary) -> String {
    let lost = match summary.lost {
        Some(lost) => format!("{} lost", grouped(lost)),
        None if summary.reader_ended => "the reader ended early".to_owned(),
        None => "this kernel does not count lost samples".to_owned(),
    };
    let of_programs = match summary.of_programs {
        0 => String::new(),
        count => format!(" and {} of --bpf-object", grouped(count)),
    };
    let throttled = match summary.throttled {
        0 => String::new(),
        times => format!(", throttled {}", counted(times, "time")),
    };
    let missed =
        (summary.missed > 0).then(|| format!("{} more announced but not captured", grouped(summary.missed.into())));
    let unheld =
        (summary.unheld > 0).then(|| format!("last runs of {} programs unknown", grouped(summary.unheld.into())));
    let missing = missed.into_iter().chain(unheld).collect::<Vec<_>>().join("; ");
    let missing = if missing.is_empty() { missing } else { format!(" ({missing})") };
    let records = summary.weighted.map_or_else(String::new, |records| format!(" in {} records", grouped(records)));
    let files = match summary.files {
        0 | 1 => String::new(),
        files => format!(" and {} before it", counted(files - 1, "file")),
    };
    let path = summary.path.as_ref().map_or_else(|| "standard output".to_owned(), |path| path.display().to_string());
    let ours = match summary.bpf_samples {
        Some(samples) => format!(" and {} by the BPF sampler", grouped(samples)),
        None => String::new(),
    };
    // A smaller part is printed as 0.00 %.
    let statistics = match summary.statistics_part {
        Some(part) if part >= 0.000_05 => format!(", counting runs took ≈{:.2} % of the machine", part * 100.0),
        _ => String::new(),
    };
    format!(
        "[ bprec: {}{records}{ours}{of_programs}, {lost}{throttled}; {}{missing}; {} -> {path}{files}; cost {:.3} s CPU{statistics} ]",
        counted(summary.samples, "sample"),
        counted(summary.programs, "BPF program"),
        bytes(summary.written_bytes),
        summary.cpu_time.as_secs_f64(),
    )
}

/// Formats a number and its noun: `1 sample`, `2 samples`.
fn counted(number: impl Into<u64>, thing: &str) -> String {
    let number = number.into();
    format!("{} {thing}{}", grouped(number), if number == 1 { "" } else { "s" })
}

/// Formats `1234567` as `1,234,567`.
fn grouped(number: u64) -> String {
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
