//! Abilities of the kernel's perf events, and the attributes of the recorder's own events.

use std::io;

use bprec_format::{AttrFlags, EventAttr, ReadFormat, SampleType, event_type, software};

use crate::limits::Limit;
use crate::sys;

/// Abilities of the perf events of this kernel. Each ability is tried out, not derived from a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// True if the kernel counts lost samples per event (Linux 6.0).
    pub(crate) lost: bool,
    /// True if MMAP2 records can have build ids (Linux 5.12).
    pub(crate) build_id: bool,
    /// True if the kernel writes CGROUP records, and cgroup ids in samples (Linux 5.7).
    pub(crate) cgroup: bool,
    /// True if the kernel writes KSYMBOL and BPF_EVENT records (Linux 5.1).
    pub(crate) bpf: bool,
}

impl Abilities {
    /// Tries all abilities at once on a dummy event, and one by one if the kernel refuses that.
    ///
    /// # Errors
    /// Fails if the kernel refuses even an event that needs none of the abilities.
    pub(crate) fn probe() -> io::Result<Abilities> {
        let all = Abilities { lost: true, build_id: true, cgroup: true, bpf: true };
        let none = Abilities { lost: false, build_id: false, cgroup: false, bpf: false };
        if all.try_out().is_ok() {
            return Ok(all);
        }
        none.try_out()?;
        Ok(Abilities {
            lost: Abilities { lost: true, ..none }.try_out().is_ok(),
            build_id: Abilities { build_id: true, ..none }.try_out().is_ok(),
            cgroup: Abilities { cgroup: true, ..none }.try_out().is_ok(),
            bpf: Abilities { bpf: true, ..none }.try_out().is_ok(),
        })
    }

    fn try_out(self) -> io::Result<()> {
        let mut attr = self.side_band();
        attr.flags = attr.flags.with(AttrFlags::DISABLED).with(self.code().flags);
        if self.cgroup {
            attr.sample_type = attr.sample_type.with(SampleType::CGROUP);
        }
        sys::perf_event_open(&attr, 0, -1).map(drop)
    }

    /// Attributes that all events have in common: sample fields for task, time and CPU, and the clock.
    pub(crate) fn base(self) -> EventAttr {
        let mut attr = EventAttr {
            // IP is included although a dummy event has no address: perf script takes the fields to print from the first
            // event of each type, and fails if another event of that type has more fields.
            sample_type: [SampleType::IP, SampleType::TID, SampleType::TIME, SampleType::CPU]
                .into_iter()
                .fold(SampleType::IDENTIFIER, SampleType::with),
            flags: AttrFlags::SAMPLE_ID_ALL.with(AttrFlags::USE_CLOCKID),
            clockid: sys::CLOCK_MONOTONIC,
            ..EventAttr::default()
        };
        if self.lost {
            attr.read_format = ReadFormat::LOST;
        }
        attr
    }

    /// Attributes of a dummy event, which counts nothing; the kernel writes side-band records for it. Kernel mode is excluded, so the event
    /// needs no permission to observe the kernel.
    pub(crate) fn dummy(self) -> EventAttr {
        let base = self.base();
        EventAttr {
            kind: event_type::SOFTWARE,
            config: software::DUMMY,
            sample_period: 1,
            flags: base.flags.with(AttrFlags::EXCLUDE_KERNEL).with(AttrFlags::EXCLUDE_HV),
            ..base
        }
    }

    /// Attributes of the event for the records of tasks and mappings.
    pub(crate) fn side_band(self) -> EventAttr {
        let mut attr = self.dummy();
        let mut add = |flag| attr.flags = attr.flags.with(flag);
        for flag in [AttrFlags::COMM, AttrFlags::COMM_EXEC, AttrFlags::TASK, AttrFlags::MMAP, AttrFlags::MMAP2] {
            add(flag);
        }
        if self.build_id {
            add(AttrFlags::BUILD_ID);
        }
        if self.cgroup {
            add(AttrFlags::CGROUP);
        }
        attr
    }

    /// Attributes of the event for the records of loads and unloads of kernel code, mostly BPF programs. It wakes its reader at each
    /// record.
    pub(crate) fn code(self) -> EventAttr {
        let mut attr = self.dummy();
        attr.flags = attr.flags.with(AttrFlags::WATERMARK);
        attr.wakeup = 1;
        if self.bpf {
            attr.flags = attr.flags.with(AttrFlags::KSYMBOL).with(AttrFlags::BPF_EVENT);
        }
        attr
    }

    /// Attributes of the event `bprec:state`: the states are its samples. The event is opened for its id only and never enabled.
    pub(crate) fn state(self) -> EventAttr {
        let base = self.base();
        EventAttr {
            kind: event_type::SOFTWARE,
            config: software::BPF_OUTPUT,
            sample_period: 1,
            sample_type: base.sample_type.with(SampleType::RAW),
            flags: base.flags.with(AttrFlags::DISABLED).with(AttrFlags::EXCLUDE_KERNEL).with(AttrFlags::EXCLUDE_HV),
            ..base
        }
    }

    /// Attributes of an event for the output of BPF programs. The event is enabled from the start, because the kernel otherwise
    /// refuses the output. Its samples have the mode and the address of the interrupted code.
    pub(crate) fn output(self) -> EventAttr {
        let state = self.state();
        let off = AttrFlags::DISABLED.with(AttrFlags::EXCLUDE_KERNEL).with(AttrFlags::EXCLUDE_HV);
        EventAttr { flags: state.flags.without(off), ..state }
    }

    /// Limits of this kernel; empty if it has all abilities.
    pub(crate) fn limits(self) -> Vec<Limit> {
        [
            (self.lost, Limit::NoLostCounts),
            (self.build_id, Limit::NoBuildIds),
            (self.cgroup, Limit::NoCgroups),
            (self.bpf, Limit::NoBpfEvents),
        ]
        .into_iter()
        .filter(|(there, _)| !there)
        .map(|(_, limit)| limit)
        .collect()
    }
}
