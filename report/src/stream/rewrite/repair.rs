//! Repair: removes data that perf rejects and adds data that perf needs, so that perf opens the file without an error.

use bprec_format::feature::tracing::{TracingData, TracingSystem};
use bprec_format::feature::{Feature, SampleTime, SectionCheck, SectionContent as _, SectionWriter};
use bprec_format::rewrite::{Rewriter, is_cpu};
use bprec_format::{Error, Events, FeatureSection, Metadata, Record, RecordType, Resync, Writer, event_type};
use std::collections::BTreeMap;

/// State of a repair.
#[derive(Default)]
pub(super) struct Repair {
    /// Times of the first and the last sample, ns.
    times: Option<(u64, u64)>,
    /// Highest CPU number of a sample.
    highest_cpu: Option<u32>,
}

impl Repair {
    /// Returns the reason for leaving out a record, if perf would reject or misread it.
    pub(super) fn unfit(&mut self, events: &Events, record: &Record<'_>) -> Option<&'static str> {
        // The output is a file (`false`), even if the input is a stream.
        let unfit = Resync::new(events, false).unfit(record);
        if unfit.is_none() && record.kind == RecordType::SAMPLE {
            self.look_at_sample(events, record);
        }
        unfit
    }

    /// Returns the features that a repaired file must not have, because perf would reject the file or crash; each with its defect.
    pub(super) fn unfit_features(&self, metadata: &Metadata<'_>) -> Vec<(Feature, Error)> {
        let sections = metadata.sections().iter().filter(|section| section.is_whole);
        let sections = sections.map(|section| (section.feature, &*section.bytes));
        let check = SectionCheck::new(sections.clone(), metadata.endian(), SectionWriter::Anyone)
            .with_highest_cpu(self.highest_cpu);
        sections.filter_map(|(feature, bytes)| Some((feature, check.check(feature, bytes).err()?))).collect()
    }

    /// Returns the feature sections of the repaired file.
    pub(super) fn features(
        &self,
        rewriter: &Rewriter,
        metadata: &Metadata<'_>,
        extra: &[FeatureSection<'_>],
    ) -> BTreeMap<u8, Vec<u8>> {
        let unfit = self.unfit_features(metadata);
        let is_fit = |section: &&FeatureSection<'_>| unfit.iter().all(|(feature, _)| *feature != section.feature);
        let mut features = rewriter.features(metadata.sections().iter().chain(extra).filter(is_fit));
        let endian = rewriter.events().endian();
        if !features.contains_key(&Feature::TRACING_DATA.0) {
            let unknown = unknown_tracepoints(rewriter.events());
            features.extend(unknown.map(|section| (Feature::TRACING_DATA.0, section)));
        }
        if features.is_empty() {
            // perf takes a file without features for a file that was cut off. The file gets this feature so that it has at least one.
            let (first_ns, last_ns) = self.times.unwrap_or_default();
            let mut section = Vec::new();
            SampleTime { first_ns, last_ns }.encode(&mut Writer::new(&mut section, endian));
            features.insert(Feature::SAMPLE_TIME.0, section);
        }
        features
    }

    /// Stores the time and the CPU of a sample that stays.
    fn look_at_sample(&mut self, events: &Events, record: &Record<'_>) {
        let event = events.index_of(record).and_then(|index| events.all().get(index));
        let Some(Ok(sample)) = event.map(|event| event.layout.sample(record.body(), record.offset)) else { return };
        if let Some(time_ns) = sample.time_ns().filter(|time_ns| *time_ns > 0) {
            let (first, last) = self.times.unwrap_or((time_ns, time_ns));
            self.times = Some((first.min(time_ns), last.max(time_ns)));
        }
        self.highest_cpu = self.highest_cpu.max(sample.cpu().filter(|cpu| is_cpu(*cpu)));
    }
}

/// Returns formats with only the common fields, for tracepoints with lost formats: perf rejects a file without any formats.
fn unknown_tracepoints(events: &Events) -> Option<Vec<u8>> {
    let attrs = events.all().iter().map(|event| &event.attr);
    let mut ids: Vec<u64> = attrs.filter(|attr| attr.kind == event_type::TRACEPOINT).map(|attr| attr.config).collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.is_empty() {
        return None;
    }
    let texts: Vec<String> = ids.iter().map(|id| unknown_format(*id)).collect();
    let tracing = TracingData {
        endian: events.endian(),
        long_bytes: 8,
        page_size_bytes: 4096,
        header_page: HEADER_PAGE,
        header_event: b"",
        ftrace: Vec::new(),
        systems: vec![TracingSystem { name: b"unknown", formats: texts.iter().map(String::as_bytes).collect() }],
        kallsyms: b"",
        printk_formats: b"",
        saved_cmdlines: b"",
    };
    let mut section = Vec::new();
    tracing.encode(&mut Writer::new(&mut section, events.endian()));
    Some(section)
}

/// Layout of ring buffers of 64-bit kernels.
const HEADER_PAGE: &[u8] = b"\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:1;\n";

/// Format of a tracepoint with only the common fields.
fn unknown_format(id: u64) -> String {
    format!(
        "name: tracepoint_{id}\nID: {id}\nformat:\n\
         \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
         \tfield:unsigned char common_flags;\toffset:2;\tsize:1;\tsigned:0;\n\
         \tfield:unsigned char common_preempt_count;\toffset:3;\tsize:1;\tsigned:0;\n\
         \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
         print fmt: \"\"\n"
    )
}
