//! Default names of events, derived from the attr as perf does.

use std::collections::HashMap;

use crate::feature::tracing::TracingData;
use crate::feature::{EventDesc, Feature, SectionContent};
use crate::{AttrFlags, EventAttr, Metadata, event_type};

const HARDWARE: [&str; 10] = [
    "cycles",
    "instructions",
    "cache-references",
    "cache-misses",
    "branches",
    "branch-misses",
    "bus-cycles",
    "stalled-cycles-frontend",
    "stalled-cycles-backend",
    "ref-cycles",
];

const SOFTWARE: [&str; 12] = [
    "cpu-clock",
    "task-clock",
    "page-faults",
    "context-switches",
    "cpu-migrations",
    "minor-faults",
    "major-faults",
    "alignment-faults",
    "emulation-faults",
    "dummy",
    "bpf-output",
    "cgroup-switches",
];

const CACHES: [&str; 7] = ["L1-dcache", "L1-icache", "LLC", "dTLB", "iTLB", "branch", "node"];
const CACHE_OPS: [(&str, &str); 3] = [("load", "loads"), ("store", "stores"), ("prefetch", "prefetches")];

/// The name of a generalised hardware event or a software event; `None` for other types and for numbers without a name.
pub fn kernel_event_name(kind: u32, config: u64) -> Option<&'static str> {
    // On hybrid machines, the upper half of a hardware event's config is the type of a PMU.
    let number = (config & 0xffff_ffff) as usize;
    match kind {
        event_type::HARDWARE => HARDWARE.get(number).copied(),
        event_type::SOFTWARE => SOFTWARE.get(number).copied(),
        _ => None,
    }
}

impl EventAttr {
    /// The name that follows from the attr alone: `cycles:u`, `L1-dcache-load-misses`, `raw 0x1a8`.
    pub fn default_name(&self) -> String {
        let kernels = kernel_event_name(self.kind, self.config);
        let name = match self.kind {
            event_type::HARDWARE => kernels.unwrap_or("unknown-hardware").into(),
            event_type::SOFTWARE => kernels.unwrap_or("unknown-software").into(),
            event_type::HW_CACHE => cache_name(self.config),
            event_type::RAW => format!("raw {:#x}", self.config),
            event_type::BREAKPOINT => self.breakpoint_name(),
            event_type::TRACEPOINT => return "unknown tracepoint".into(),
            kind => return format!("unknown attr type: {kind}"),
        };
        name + &self.modifiers()
    }

    fn breakpoint_name(&self) -> String {
        let access = [(1, 'r'), (2, 'w'), (4, 'x')];
        let letters: String =
            access.into_iter().filter(|(bit, _)| self.bp_type & bit != 0).map(|(_, letter)| letter).collect();
        // `bp_addr` and `config1` are members of one union.
        format!("mem:{:#x}:{letters}", self.config1)
    }

    /// Modifiers of the event as perf prints them: `:u`, `:ppH`. perf's default counts the host; it counts guests only if a mode is excluded or
    /// `precise_ip` is not 0. An attr that differs from this default gets `H` if it counts the host, and `G` if it counts guests.
    fn modifiers(&self) -> String {
        let has = |flag| self.flags.contains(flag);
        let mut letters = String::new();
        let modes = [(AttrFlags::EXCLUDE_KERNEL, 'k'), (AttrFlags::EXCLUDE_USER, 'u'), (AttrFlags::EXCLUDE_HV, 'h')];
        let mut guests_excluded_by_default = false;
        if modes.iter().any(|(exclude, _)| has(*exclude)) {
            letters.extend(modes.iter().filter(|(exclude, _)| !has(*exclude)).map(|(_, letter)| letter));
            guests_excluded_by_default = true;
        }
        let precise = self.flags.precise_ip();
        if precise > 0 {
            letters.extend(std::iter::repeat_n('p', precise.into()));
            guests_excluded_by_default = true;
        }
        if has(AttrFlags::EXCLUDE_HOST) || has(AttrFlags::EXCLUDE_GUEST) == guests_excluded_by_default {
            let sides = [(AttrFlags::EXCLUDE_HOST, 'H'), (AttrFlags::EXCLUDE_GUEST, 'G')];
            letters.extend(sides.iter().filter(|(exclude, _)| !has(*exclude)).map(|(_, letter)| letter));
        }
        if letters.is_empty() { letters } else { format!(":{letters}") }
    }
}

/// Name of a generalised cache event: `config` has cache, operation and result in a byte each.
fn cache_name(config: u64) -> String {
    let [cache, op, result, ..] = config.to_le_bytes();
    match (CACHES.get(usize::from(cache)), CACHE_OPS.get(usize::from(op)), result) {
        (Some(cache), Some((_, ops)), 0) => format!("{cache}-{ops}"),
        (Some(cache), Some((op, _)), 1) => format!("{cache}-{op}-misses"),
        _ => "invalid-cache".into(),
    }
}

impl Metadata<'_> {
    /// Names of all events, each from the first source that has a name: EVENT_DESC, EVENT_UPDATE, the tracepoint's
    /// format, HEADER_EVENT_TYPE of an old stream, or [`EventAttr::default_name`].
    pub fn event_names(&self) -> Vec<String> {
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let described: Vec<_> = self
            .feature(Feature::EVENT_DESC)
            .filter_map(|section| EventDesc::parse(&section.bytes, section.offset, self.endian()).ok())
            .flat_map(|desc| desc.value.events)
            .collect();
        let tracing: Vec<TracingData<'_>> = self
            .feature(Feature::TRACING_DATA)
            .filter_map(|section| TracingData::parse(&section.bytes, section.offset, self.endian()).ok())
            .map(|tracing| tracing.value)
            .collect();
        let is_tracepoint = |event: &crate::FileAttr| event.attr.kind == event_type::TRACEPOINT;
        let mut tracepoints: HashMap<u64, String> = HashMap::new();
        if self.attrs().iter().any(is_tracepoint) {
            for (system, format) in tracing.iter().flat_map(TracingData::events) {
                let name = || format!("{}:{}", text(system), format.name);
                tracepoints.entry(u64::from(format.id)).or_insert_with(name);
            }
        }
        // If several described events have the same first id, the first one is used.
        let mut by_id: HashMap<u64, usize> = HashMap::new();
        for (index, desc) in described.iter().enumerate() {
            desc.ids.first().map(|id| *by_id.entry(*id).or_insert(index));
        }
        let name = |(index, event): (usize, &crate::FileAttr)| {
            // Attrs and described events are in the same order. An old file may describe fewer events than it has; then
            // the ids decide.
            let by_position = described.get(index).filter(|_| described.len() == self.attrs().len());
            let first_by_id = || described.get(*event.ids.iter().filter_map(|id| by_id.get(id)).min()?);
            if let Some(desc) = by_position.or_else(first_by_id) {
                return text(desc.name);
            }
            if let Some(name) = self.updated_name(index) {
                return text(name);
            }
            if let Some(name) = tracepoints.get(&event.attr.config).filter(|_| is_tracepoint(event)) {
                return name.clone();
            }
            let has_own = event.attr.kind < event_type::RAW && event.attr.kind != event_type::TRACEPOINT;
            match self.typed_name(index).filter(|_| !has_own) {
                Some(name) => text(name),
                None => event.attr.default_name(),
            }
        };
        self.attrs().iter().enumerate().map(name).collect()
    }
}
