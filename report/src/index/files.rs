//! Accounts (losses, cost, samples) of each file of a recording, and their sums.

use super::states::States;
use crate::input::recording::OpenRecording;
use bprec_format::bprec::state::{Aggregation, Cost, Loss, Sampler, SamplerCounts, Session};
use std::collections::BTreeMap;

/// Limit on the time from the end of a file to the start of the next file, if the recorder's states say that the next file continues the recording; a
/// longer time is a gap in the recording. Between two separate recordings with states, any time is a gap.
const CONTIGUOUS_NS: u64 = 100_000_000;
/// Limit on the time between two files without the recorder's states: the times of their first and last samples stand for their start and end. A
/// longer time is a gap in the recording.
const CONTIGUOUS_SAMPLES_NS: u64 = 1_000_000_000;

/// Up to this difference, two boot times by the wall clock count as the same boot: the clock may have been set between the two files.
const CLOCK_SET_NS: u128 = 60_000_000_000;

/// Length of the id of a boot, in hexadecimal digits.
const BOOT_ID_DIGITS: usize = 32;

/// Time span of a file.
#[derive(Debug, Default)]
struct FileSpan {
    /// Start by the recorder's state, ns.
    start_ns: Option<u64>,
    /// End by the recorder's state, ns.
    end_ns: Option<u64>,
    /// Id of the boot; empty if unknown.
    boot_id: String,
    /// Wall clock at boot, ns since 1970.
    booted_unix_ns: Option<i128>,
    /// True if the file continues a recording.
    is_continued: bool,
}

/// Time spans of the files, and the accounts of the files that have ended.
#[derive(Debug, Default)]
pub(super) struct FileAccounts {
    spans: Vec<FileSpan>,
    ended: Option<Accounts>,
}

/// Accounts of one file, or the sum of several.
#[derive(Debug, Default)]
struct Accounts {
    loss: Option<Loss>,
    cost: Option<Cost>,
    sampler: Option<Sampler>,
    aggregations: BTreeMap<usize, Aggregation>,
}

impl FileAccounts {
    /// Adds the session of a file.
    pub(super) fn begin_session(&mut self, file: usize, session: &Session) {
        let span = self.span(file);
        (span.start_ns, span.is_continued) = (Some(session.start_ns), session.part > 0);
        span.boot_id.clone_from(&session.boot_id);
        let since_boot_ns = i128::from(session.start_ns) + i128::from(session.to_boottime_ns);
        span.booted_unix_ns = Some(i128::from(session.realtime_ns) - since_boot_ns);
    }

    /// Returns the position of the first file that was recorded after another boot than file 0. Two files are compared by the ids of their boots, or
    /// if an id is missing or redacted, by the wall clock at boot. Without states of bprec, the boot's time follows from the clocks in the feature
    /// sections; the recording's clock is then assumed to count from the boot.
    pub(super) fn other_boot(&self, recording: &OpenRecording<'_>) -> Option<usize> {
        let files = recording.files();
        // Redacted ids cannot be compared: redaction numbers the boots of each file anew, so every file has `boot-1`.
        let is_id = |id: &&String| id.len() == BOOT_ID_DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = |file: usize| self.spans.get(file).map(|span| &span.boot_id).filter(is_id);
        let told = |file: usize| self.spans.get(file).and_then(|span| span.booted_unix_ns);
        let by_clock = |file: usize| files[file].clock.map(|(wall_ns, at_ns)| i128::from(wall_ns) - i128::from(at_ns));
        (1..files.len()).find(|file| {
            if let Some((first, other)) = id(0).zip(id(*file)) {
                return first != other;
            }
            let pair = told(0).zip(told(*file)).or_else(|| by_clock(0).zip(by_clock(*file)));
            pair.is_some_and(|(first, other)| first.abs_diff(other) > CLOCK_SET_NS)
        })
    }

    fn span(&mut self, file: usize) -> &mut FileSpan {
        if self.spans.len() <= file {
            self.spans.resize_with(file + 1, FileSpan::default);
        }
        &mut self.spans[file]
    }

    /// Ends the current file: moves its accounts from `states` into the sum.
    pub(super) fn end_file(&mut self, states: &mut States, aggregations: &mut BTreeMap<usize, Aggregation>) {
        let file = self.spans.iter().rposition(|span| span.start_ns.is_some() && span.end_ns.is_none());
        if let Some(file) = file {
            self.spans[file].end_ns = states.cost.map(|cost| cost.end_ns);
        }
        let next = Accounts {
            loss: states.loss.take(),
            cost: states.cost.take(),
            sampler: states.sampler.take(),
            aggregations: std::mem::take(aggregations),
        };
        self.ended = Some(match self.ended.take() {
            Some(before) => before.merge(next),
            None => next,
        });
    }

    /// Writes the sums of all files into `states`. Returns the gaps between files.
    pub(super) fn finish(
        mut self,
        recording: &OpenRecording<'_>,
        states: &mut States,
        aggregations: &mut BTreeMap<usize, Aggregation>,
    ) -> Vec<(u64, u64)> {
        if recording.files().len() == 1 {
            return Vec::new();
        }
        self.end_file(states, aggregations);
        if let Some(ended) = self.ended.take() {
            (states.loss, states.cost, states.sampler) = (ended.loss, ended.cost, ended.sampler);
            *aggregations = ended.aggregations;
        }
        self.span(recording.files().len() - 1);
        let pairs = recording.files().windows(2).zip(self.spans.windows(2));
        let gaps = pairs.filter_map(|(files, spans)| {
            let end = spans[0].end_ns.or(files[0].span.map(|(_, last)| last));
            let start = spans[1].start_ns.or(files[1].span.map(|(first, _)| first));
            let is_told = spans[0].end_ns.is_some() && spans[1].start_ns.is_some();
            let least_ns = match (is_told, spans[1].is_continued) {
                (true, true) => CONTIGUOUS_NS,
                // Two recordings: the second recorder counted nothing before it started, so any time between the files is a gap.
                (true, false) => 0,
                (false, _) => CONTIGUOUS_SAMPLES_NS,
            };
            let (end_ns, start_ns) = end.zip(start)?;
            start_ns.checked_sub(end_ns).filter(|length_ns| *length_ns > least_ns).map(|_| (end_ns, start_ns))
        });
        gaps.collect()
    }
}

impl Accounts {
    /// Adds two accounts. The sum has the loss, the cost and the sampler only if both accounts have them.
    fn merge(self, next: Accounts) -> Accounts {
        let mut aggregations = self.aggregations;
        for (event, account) in next.aggregations {
            let both = aggregations.get(&event).map_or(account, |before| aggregation(before, &account));
            aggregations.insert(event, both);
        }
        Accounts {
            loss: self.loss.zip(next.loss).map(|(before, next)| Loss {
                events: before.events.into_iter().chain(next.events).collect(),
                not_counted: before.not_counted || next.not_counted,
            }),
            cost: self.cost.zip(next.cost).map(|(before, next)| cost(&before, &next)),
            sampler: self.sampler.zip(next.sampler).map(|(before, next)| Sampler {
                counts: before.counts.zip(next.counts).map(|(before, next)| sampler_counts(&before, &next)),
                ..before
            }),
            aggregations,
        }
    }
}

fn cost(before: &Cost, next: &Cost) -> Cost {
    let optional = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a.saturating_add(b));
    Cost {
        end_ns: next.end_ns,
        user_ns: before.user_ns.saturating_add(next.user_ns),
        system_ns: before.system_ns.saturating_add(next.system_ns),
        max_rss_bytes: before.max_rss_bytes.max(next.max_rss_bytes),
        written_bytes: before.written_bytes.saturating_add(next.written_bytes),
        wakeups: before.wakeups.saturating_add(next.wakeups),
        programs: before.programs.max(next.programs),
        missed: before.missed.saturating_add(next.missed),
        longest_gap_ns: before.longest_gap_ns.max(next.longest_gap_ns),
        overrun_bytes: before.overrun_bytes.saturating_add(next.overrun_bytes),
        statistics_ns: optional(before.statistics_ns, next.statistics_ns),
        unheld: before.unheld.zip(next.unheld).map(|(a, b)| a.saturating_add(b)),
    }
}

fn sampler_counts(before: &SamplerCounts, next: &SamplerCounts) -> SamplerCounts {
    SamplerCounts {
        runs: before.runs.saturating_add(next.runs),
        written: before.written.saturating_add(next.written),
        full: before.full.saturating_add(next.full),
        failed: before.failed.saturating_add(next.failed),
        last_errno: if next.last_errno == 0 { before.last_errno } else { next.last_errno },
    }
}

fn aggregation(before: &Aggregation, next: &Aggregation) -> Aggregation {
    Aggregation {
        samples: before.samples.saturating_add(next.samples),
        period: before.period.saturating_add(next.period),
        overflow_samples: before.overflow_samples.saturating_add(next.overflow_samples),
        overflow_period: before.overflow_period.saturating_add(next.overflow_period),
        counted: before.counted.zip(next.counted).map(|(a, b)| a.saturating_add(b)),
        ..*next
    }
}
