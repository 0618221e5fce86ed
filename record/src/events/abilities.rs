//! Abilities and permissions of this kernel, as far as the recorder has to adapt to them.

use std::io;

use bprec_format::{AttrFlags, EventAttr, ReadFormat, SampleType, event_type, software};

use crate::limits::Limit;
use crate::sys;

/// Abilities of this kernel's perf events. Everything is tried rather than concluded from a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Abilities {
    /// Lost samples are counted per event (6.0).
    pub(crate) lost: bool,
    /// Build ids in MMAP2 (5.12).
    pub(crate) build_id: bool,
    /// CGROUP records and cgroup ids in samples (5.7).
    pub(crate) cgroup: bool,
    /// KSYMBOL and BPF_EVENT records (5.1).
    pub(crate) bpf: bool,
    /// Another clock than the scheduler's (4.1).
    pub(crate) clock: bool,
}

impl Abilities {
    /// Tries all at once on a dummy event, and one by one if that is refused.
    ///
    /// # Errors
    /// When not even the plainest event can be opened.
    pub(crate) fn probe() -> io::Result<Abilities> {
        let all = Abilities { lost: true, build_id: true, cgroup: true, bpf: true, clock: true };
        let none = Abilities { lost: false, build_id: false, cgroup: false, bpf: false, clock: false };
        if all.try_out().is_ok() {
            return Ok(all);
        }
        none.try_out()?;
        Ok(Abilities {
            lost: Abilities { lost: true, ..none }.try_out().is_ok(),
            build_id: Abilities { build_id: true, ..none }.try_out().is_ok(),
            cgroup: Abilities { cgroup: true, ..none }.try_out().is_ok(),
            bpf: Abilities { bpf: true, ..none }.try_out().is_ok(),
            clock: Abilities { clock: true, ..none }.try_out().is_ok(),
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

    /// Attributes that all events have in common: the fields for task, time and place, and the clock.
    pub(crate) fn base(self) -> EventAttr {
        let mut attr = EventAttr {
            // IP too, although nothing here has one: perf script looks only at the first event of each type to see what it
            // can print, and gives up on the rest.
            sample_type: [SampleType::IP, SampleType::TID, SampleType::TIME, SampleType::CPU]
                .into_iter()
                .fold(SampleType::IDENTIFIER, SampleType::with),
            flags: AttrFlags::SAMPLE_ID_ALL,
            ..EventAttr::default()
        };
        if self.lost {
            attr.read_format = ReadFormat::LOST;
        }
        if self.clock {
            attr.flags = attr.flags.with(AttrFlags::USE_CLOCKID);
            attr.clockid = sys::CLOCK_MONOTONIC;
        }
        attr
    }

    /// An event that never fires, to carry records of other kinds. Kernel mode is excluded so that it needs no
    /// permission to look at the kernel.
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

    /// The event that carries who runs and what is mapped.
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

    /// The event that carries which kernel code, BPF programs above all, comes and goes. It wakes its reader at each.
    pub(crate) fn code(self) -> EventAttr {
        let mut attr = self.dummy();
        attr.flags = attr.flags.with(AttrFlags::WATERMARK);
        attr.wakeup = 1;
        if self.bpf {
            attr.flags = attr.flags.with(AttrFlags::KSYMBOL).with(AttrFlags::BPF_EVENT);
        }
        attr
    }

    /// The event whose samples carry `bprec:state`. It is opened for its id alone and never enabled.
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

    /// An event that carries what programs put out. It is on from the start: the kernel refuses them otherwise. Its samples
    /// have the mode and the place of what was interrupted.
    pub(crate) fn output(self) -> EventAttr {
        let state = self.state();
        let off = AttrFlags::DISABLED.with(AttrFlags::EXCLUDE_KERNEL).with(AttrFlags::EXCLUDE_HV);
        EventAttr { flags: state.flags.without(off), ..state }
    }

    /// Limits of this kernel; empty when it has none.
    pub(crate) fn limits(self) -> Vec<Limit> {
        [
            (self.lost, Limit::NoLostCounts),
            (self.build_id, Limit::NoBuildIds),
            (self.cgroup, Limit::NoCgroups),
            (self.bpf, Limit::NoBpfEvents),
            (self.clock, Limit::NoClock),
        ]
        .into_iter()
        .filter(|(there, _)| !there)
        .map(|(_, limit)| limit)
        .collect()
    }
}
