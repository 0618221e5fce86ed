//! Sampling events: from the specification to an event that this machine can sample, with rates and fallbacks.

use std::io;
use std::path::Path;

use bprec_format::{AttrFlags, EventAttr, SampleType, event_type, software};

use super::abilities::Abilities;
use super::machine;
use super::syntax::{self, EventSpec};
use super::targets::{Binding, CpuThreadTargets};
use crate::limits::Limit;
use crate::{Error, Level, Options, Rate, Result, UserChains};

/// User registers that perf samples to unwind a stack, as a mask of their numbers in `asm/perf_regs.h`: all but DS, ES,
/// FS and GS on x86-64, x0 to pc on arm64.
const USER_REGISTERS: u64 = if cfg!(target_arch = "aarch64") { (1 << 33) - 1 } else { 0xff_0fff };
/// Default sampling frequency in Hz.
const DEFAULT_FREQUENCY: u64 = 4000;
/// `PERF_COUNT_HW_CPU_CYCLES`.
const CYCLES: u64 = 0;

/// An event that samples.
#[derive(Debug, Clone)]
pub(crate) struct Sampler {
    /// The requested event. A fallback changes its name.
    pub(crate) spec: EventSpec,
    /// Attributes with which the event is opened.
    pub(crate) attr: EventAttr,
    /// Reason why the event differs from the requested event; empty if it does not differ.
    pub(crate) note: String,
}

/// The events that the options request, or cycles by default.
pub(crate) fn specs(options: &Options) -> Result<Vec<EventSpec>> {
    let has_registers = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
    if matches!(options.user_chains, UserChains::Dwarf { .. }) && !has_registers {
        let text = "--call-graph dwarf: supported on x86-64 and arm64 only; use --call-graph fp here";
        return Err(Error::Other(text.to_owned()));
    }
    if options.events.is_empty() {
        // One event per kind of core on machines with several kinds.
        return syntax::parse("cycles:P");
    }
    let mut specs = Vec::new();
    for list in &options.events {
        specs.extend(syntax::parse(list)?);
    }
    Ok(specs)
}

impl Sampler {
    /// Adds the attributes that the recorder needs on every event.
    pub(crate) fn new(spec: EventSpec, options: &Options, abilities: Abilities, binding: Binding) -> Sampler {
        let base = abilities.base();
        let mut attr = spec.attr.clone();
        let mut fields = base.sample_type.with(SampleType::IP).with(SampleType::PERIOD).with(SampleType::CALLCHAIN);
        if abilities.cgroup {
            fields = fields.with(SampleType::CGROUP);
        }
        if attr.kind == event_type::TRACEPOINT {
            fields = fields.with(SampleType::RAW);
        }
        if let UserChains::Dwarf { stack_bytes } = options.user_chains {
            fields = fields.with(SampleType::REGS_USER).with(SampleType::STACK_USER);
            attr.sample_regs_user = USER_REGISTERS;
            attr.sample_stack_user = stack_bytes;
        }
        attr.sample_type = fields;
        attr.read_format = base.read_format;
        attr.clockid = base.clockid;
        attr.flags = attr.flags.with(base.flags).with(AttrFlags::DISABLED);
        // The kernel lets a program read the call chain of a precise event only if the event records both the kernel
        // part and the user part of the chain.
        let is_precise = attr.flags.precise_ip() > 0 || spec.precise_as_possible;
        let takes_whole_chains = options.aggregate.is_some() && is_precise;
        for (wanted, flag) in [
            (!options.user_chains.are_by_kernel() && !takes_whole_chains, AttrFlags::EXCLUDE_CALLCHAIN_USER),
            (binding.inherit, AttrFlags::INHERIT),
            (binding.enable_on_exec, AttrFlags::ENABLE_ON_EXEC),
            (options.overwrite, AttrFlags::WRITE_BACKWARD),
        ] {
            if wanted {
                attr.flags = attr.flags.with(flag);
            }
        }
        let rate = match (spec.rate, options.rate) {
            (Some(own), _) => own,
            (None, Rate::Default) => spec.default_rate.unwrap_or(Rate::Default),
            (None, rate) => rate,
        };
        set_rate(&mut attr, rate, options);
        Sampler { spec, attr, note: String::new() }
    }

    /// Opens the event for one task and CPU as a test. Falls back to similar events until the kernel accepts an
    /// event, or no similar event is left.
    ///
    /// # Errors
    /// Returns the kernel's answer to the last attempt.
    pub(crate) fn settle(&mut self, options: &Options, targets: &CpuThreadTargets, place: i32, cpu: i32) -> Result<()> {
        loop {
            match targets.open_event(&self.attr, place, cpu) {
                Ok(_) => return Ok(()),
                Err(error) if self.fall_back(&error, options, targets.binding) => (),
                Err(error) => return Err(refused(&self.spec.name, place, cpu, error)),
            }
        }
    }

    /// Changes the attr to the next fallback after `error`; returns false if none is left.
    fn fall_back(&mut self, error: &io::Error, options: &Options, binding: Binding) -> bool {
        let errno = error.raw_os_error().unwrap_or(0);
        let precise = self.attr.flags.precise_ip();
        match errno {
            libc::EINVAL if self.attr.flags.contains(AttrFlags::FREQ) && self.clamp(options) => true,
            libc::EINVAL | libc::EOPNOTSUPP | libc::ENOENT if self.spec.precise_as_possible && precise > 0 => {
                self.attr.flags = self.attr.flags.with_precise_ip(precise - 1);
                true
            }
            libc::ENOENT | libc::ENODEV | libc::ENXIO | libc::EOPNOTSUPP if self.is_cycles() => {
                let (clock, name) = match binding.tasks {
                    false => (software::CPU_CLOCK, "cpu-clock"),
                    true => (software::TASK_CLOCK, "task-clock"),
                };
                // A clock has no precision levels.
                let (base, modifiers) = self.spec.name.split_once(':').unwrap_or((&self.spec.name, ""));
                let modifiers = modifiers.replace(['p', 'P'], "");
                let separator = if modifiers.is_empty() { "" } else { ":" };
                let asked = format!("{base}{separator}{modifiers}");
                self.spec.name = format!("{name}{separator}{modifiers}");
                self.attr.kind = event_type::SOFTWARE;
                self.attr.config = clock;
                self.attr.flags = self.attr.flags.with_precise_ip(0);
                let why = if Path::new("/sys/bus/event_source/devices/cpu").exists() {
                    format!("the CPU's PMU does not count cycles ({})", errno_name(errno))
                } else {
                    "this machine has no hardware PMU (a virtual machine?)".to_owned()
                };
                self.note = format!("bprec samples {name} instead of {asked}: {why}; {}", Limit::NoPmu.cost());
                (options.notify)(Level::Notice, &self.note);
                true
            }
            libc::EACCES | libc::EPERM
                if binding.tasks
                    && machine::kernel_sysctl("perf_event_paranoid").is_some_and(|level| level == 2)
                    && !self.attr.flags.contains(AttrFlags::EXCLUDE_KERNEL) =>
            {
                self.attr.flags = self.attr.flags.with(AttrFlags::EXCLUDE_KERNEL).with(AttrFlags::EXCLUDE_HV);
                let separator = if self.spec.name.contains(':') { "" } else { ":" };
                let limit = Limit::UserSpaceOnly;
                let note = format!(
                    "{}: {}: kernel.perf_event_paranoid is 2; run as root or with CAP_PERFMON, or {}",
                    self.spec.name,
                    limit.cost(),
                    limit.remedy()
                );
                self.spec.name = format!("{}{separator}u", self.spec.name);
                (options.notify)(Level::Warning, &note);
                self.note = if self.note.is_empty() { note } else { format!("{}; {note}", self.note) };
                true
            }
            _ => false,
        }
    }

    /// Lowers the frequency to the kernel's limit, which may have fallen since the limit was read. Returns false if the
    /// frequency was not above the limit.
    fn clamp(&mut self, options: &Options) -> bool {
        let limit = machine::max_sample_rate();
        let is_above = self.attr.sample_period > limit;
        if is_above {
            clamped(options, self.attr.sample_period, limit);
            self.attr.sample_period = limit;
        }
        is_above
    }

    fn is_cycles(&self) -> bool {
        self.attr.kind == event_type::HARDWARE && self.attr.config & 0xffff_ffff == CYCLES
    }
}

/// Sets the period of an event, or its frequency, which is at most the kernel's limit.
pub(crate) fn set_rate(attr: &mut EventAttr, rate: Rate, options: &Options) {
    let limit = machine::max_sample_rate();
    let hz = match rate {
        Rate::Period(period) => {
            attr.flags = attr.flags.without(AttrFlags::FREQ);
            attr.sample_period = period;
            return;
        }
        Rate::Default => DEFAULT_FREQUENCY.min(limit),
        Rate::MaxFrequency => limit,
        Rate::Frequency(hz) => {
            if hz > limit {
                clamped(options, hz, limit);
            }
            hz.min(limit)
        }
    };
    attr.flags = attr.flags.with(AttrFlags::FREQ);
    attr.sample_period = hz;
}

fn clamped(options: &Options, asked: u64, limit: u64) {
    let text = format!(
        "bprec samples at {limit} Hz instead of {asked} Hz: {limit} Hz is the kernel's limit \
         (kernel.perf_event_max_sample_rate), which the kernel lowers under load"
    );
    (options.notify)(Level::Notice, &text);
}

/// Error for an event that the kernel refused, with the remedy.
pub(crate) fn refused(event: &str, pid: i32, cpu: i32, answer: io::Error) -> Error {
    let place = match (pid, cpu) {
        (-1, cpu) => format!("cpu {cpu}"),
        (pid, -1) => format!("task {pid}"),
        (pid, cpu) => format!("task {pid} on cpu {cpu}"),
    };
    let paranoid = machine::kernel_sysctl("perf_event_paranoid");
    let remedy = match answer.raw_os_error().unwrap_or(0) {
        libc::EACCES | libc::EPERM => match paranoid {
            Some(level) if level > 2 => format!(
                "kernel.perf_event_paranoid is {level}, so only CAP_SYS_ADMIN may open events; run as root, or set sysctl \
                 kernel.perf_event_paranoid=2 and record only your own processes"
            ),
            Some(level) if pid == -1 => format!(
                "kernel.perf_event_paranoid is {level}; to record whole CPUs, run as root or with CAP_PERFMON, or set it to \
                 0. You can record your own processes: bprec record -- COMMAND, or -p PID"
            ),
            Some(level) => format!(
                "kernel.perf_event_paranoid is {level}, so you can record only your own tasks; to record other tasks, run \
                 bprec as root"
            ),
            None => "run as root".to_owned(),
        },
        libc::EMFILE | libc::ENFILE => "raise the limit of open files (ulimit -n)".to_owned(),
        libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP => {
            "this machine does not offer the event; -e cpu-clock works everywhere".to_owned()
        }
        libc::ENOSYS => "this kernel is built without CONFIG_PERF_EVENTS".to_owned(),
        libc::ESRCH => "no such task".to_owned(),
        libc::EINVAL => "the event cannot sample, or cannot sample at this rate (-F) or period (-c)".to_owned(),
        libc::EBUSY => "another user has exclusive use of the counter".to_owned(),
        _ => String::new(),
    };
    Error::Syscall { call: "perf_event_open", object: format!("{event} on {place}"), answer, remedy }
}

fn errno_name(errno: i32) -> String {
    match errno {
        libc::ENOENT => "ENOENT".to_owned(),
        libc::ENODEV => "ENODEV".to_owned(),
        libc::ENXIO => "ENXIO".to_owned(),
        libc::EOPNOTSUPP => "EOPNOTSUPP".to_owned(),
        other => format!("errno {other}"),
    }
}
