//! The sampling BPF program of the recorder, its events, and the event that outputs its samples.
//!
//! The program is attached to separate events without rings. The program drops every sample of these events, and writes its own sample as raw data of
//! a bpf-output event on the same CPU. That event writes into the ring of the CPU. No program is attached to the main events: the events that the
//! user asked to sample, or the default event.

use std::os::fd::{AsFd, OwnedFd};
use std::time::Instant;

use bprec_bpf::{AttachMethod, Attached, Recipe, SamplerProgram};
use bprec_format::bprec::sampler::{self as layout, Parts};
use bprec_format::bprec::state::{self, SamplerCounts, State};
use bprec_format::{AttrFlags, EventAttr, SampleType, event_type, software};

use super::{Context, Event, Source, Tick};
use crate::events::{Binding, CpuThreadTargets, EventFd, OpenEvents, ReopenedCpu, Sampler, everywhere, sampling};
use crate::{Error, Level, Options, Result, Target, sys};

/// Fields of the samples of `--bpf-sampler`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SamplerFields {
    parts: Parts,
    registers: u64,
    kernel_stack: bool,
    /// True to record user stacks; `None` records user stacks if the main events record user call chains.
    user_stack: Option<bool>,
    /// True if the user named the field `value`; false if it is only in the default list.
    named_value: bool,
}

/// Returns all fields except registers and stacks, which have options of their own.
fn single_parts() -> impl Iterator<Item = (&'static str, Parts)> {
    Parts::NAMES.into_iter().filter(|(_, part)| ![Parts::REGISTERS, Parts::STACK].contains(part))
}

impl Default for SamplerFields {
    /// Returns `ip,period,task,cgroup,comm,value,stack`, and `ustack` if the main events record user call chains.
    fn default() -> SamplerFields {
        let parts = single_parts().filter(|(_, part)| *part != Parts::ADDR);
        SamplerFields {
            parts: parts.fold(Parts::STACK, |all, (_, part)| all.with(part)),
            registers: 0,
            kernel_stack: true,
            user_stack: None,
            named_value: false,
        }
    }
}

impl SamplerFields {
    /// Parses a list of fields: `ip,stack` selects these fields, `+addr,-comm` changes the default. Names of registers
    /// follow `regs=`. An empty text means the default.
    ///
    /// # Errors
    /// Fails if a field or a register is unknown.
    pub fn parse(text: &str) -> Result<SamplerFields> {
        if text.is_empty() {
            return Ok(SamplerFields::default());
        }
        let names = layout::register_names(std::env::consts::ARCH).unwrap_or_default();
        let is_change = text.starts_with(['+', '-']);
        let none = SamplerFields {
            parts: Parts::default(),
            registers: 0,
            kernel_stack: false,
            user_stack: Some(false),
            named_value: false,
        };
        let mut fields = if is_change { SamplerFields::default() } else { none };
        let mut in_registers = false;
        for word in text.split(',') {
            let (add, name) = match word.split_at_checked(1) {
                Some(("+", name)) if is_change => (true, name),
                Some(("-", name)) if is_change => (false, name),
                _ if is_change && !in_registers => {
                    return Err(wrong(text, "give either a list of fields, or only changes with + and -"));
                }
                _ => (true, word),
            };
            let register = name.strip_prefix("regs=").or((in_registers && name == word).then_some(name));
            if let Some(register) = register
                && let Some(number) = names.iter().position(|known| *known == register)
            {
                in_registers = true;
                fields.registers |= 1 << number;
                continue;
            }
            in_registers = false;
            match name {
                _ if name.starts_with("regs=") => {
                    return Err(wrong(word, &format!("no such register; the registers are {}", names.join(","))));
                }
                "regs" => fields.registers = if add { (1 << names.len()) - 1 } else { 0 },
                "stack" => fields.kernel_stack = add,
                "ustack" => fields.user_stack = Some(add),
                _ => {
                    let Some((_, part)) = single_parts().find(|(known, _)| *known == name) else {
                        let known: Vec<&str> = single_parts().map(|(name, _)| name).collect();
                        let problem = format!("no such field; the fields are {},regs=…,stack,ustack", known.join(","));
                        return Err(wrong(word, &problem));
                    };
                    fields.named_value |= add && part == Parts::VALUE;
                    fields.parts = if add { fields.parts.with(part) } else { fields.parts.without(part) };
                }
            }
        }
        Ok(fields)
    }

    fn recipe(self, options: &Options) -> Recipe {
        let mut parts = self.parts.without(Parts::STACK);
        let user_stack = self.user_stack.unwrap_or(options.user_chains.are_by_kernel());
        if self.kernel_stack || user_stack {
            parts = parts.with(Parts::STACK);
        }
        if self.registers != 0 {
            parts = parts.with(Parts::REGISTERS);
        }
        // A BPF program cannot read the counter of an event that child tasks inherit.
        if matches!(options.target, Target::Processes(_) | Target::Command) && parts.contains(Parts::VALUE) {
            parts = parts.without(Parts::VALUE);
            if self.named_value {
                let text = "--bpf-sampler: samples lack the field `value`, because a BPF program cannot read an event that \
                            child processes inherit; use -a";
                (options.notify)(Level::Warning, text);
            }
        }
        Recipe { parts, registers: self.registers, kernel_stack: self.kernel_stack, user_stack }
    }
}

fn wrong(what: &str, problem: &str) -> Error {
    Error::Other(format!("--bpf-sampler: {what}: {problem}"))
}

/// The sampling program and its events.
#[derive(Debug)]
pub(crate) struct BpfSampler {
    /// Events with the program attached. The attachment is dropped before its event closes.
    sources: Vec<SampledEvent>,
    /// Events to open on `targets`.
    carriers: Vec<Sampler>,
    targets: Option<CpuThreadTargets>,
    /// Index of the event that outputs the samples.
    output: Option<usize>,
    is_on: bool,
    program: SamplerProgram,
    account: state::Sampler,
    /// Counts of the program on each CPU before the file began; empty before the first file.
    before: Vec<SamplerCounts>,
}

/// Event with the sampling program, on one CPU.
#[derive(Debug)]
struct SampledEvent {
    attached: Attached,
    fd: OwnedFd,
    cpu: u32,
}

impl BpfSampler {
    /// Loads the program if the options request it. The program does not run before [`BpfSampler::attach`].
    ///
    /// # Errors
    /// Fails if the kernel refuses the program.
    pub(crate) fn load(options: &Options) -> Result<Option<BpfSampler>> {
        let Some(fields) = options.bpf_sampler else { return Ok(None) };
        super::refuse_foreign_process_ids("--bpf-sampler samples with")?;
        let recipe = fields.recipe(options);
        let program = SamplerProgram::load(recipe).map_err(|error| Error::Other(format!("--bpf-sampler: {error}")))?;
        let account = state::Sampler { prog_id: program.id(), parts: recipe.parts, ..state::Sampler::default() };
        Ok(Some(BpfSampler {
            sources: Vec::new(),
            carriers: Vec::new(),
            targets: None,
            output: None,
            is_on: false,
            program,
            account,
            before: Vec::new(),
        }))
    }

    /// Opens disabled events for the program and attaches the program to them. The events copy the first of `samplers`
    /// that accepts programs, with the rate of the BPF sampler.
    ///
    /// # Errors
    /// Fails if no event accepts programs, an event cannot be opened, or the kernel refuses to attach the program.
    pub(crate) fn attach(
        &mut self,
        options: &Options,
        samplers: &[Sampler],
        targets: &CpuThreadTargets,
        opened: &OpenEvents,
    ) -> Result<()> {
        self.output = opened.sampler_output;
        opened.fds().iter().try_for_each(|event_fd| self.set_output(event_fd))?;
        let carriers = carriers(options, samplers, targets.binding);
        let Some(first) = carriers.first() else {
            let names: Vec<&str> = samplers.iter().map(|sampler| sampler.spec.name.as_str()).collect();
            return Err(Error::Other(format!(
                "--bpf-sampler: {} cannot carry a BPF program; add an event that can: -e cpu-clock",
                names.join(", ")
            )));
        };
        self.account.event = first.spec.name.clone();
        self.account.event_type = first.attr.kind;
        self.account.event_config = first.attr.config;
        self.account.is_frequency = first.attr.flags.contains(AttrFlags::FREQ);
        self.account.rate = first.attr.sample_period;
        self.carriers = carriers;
        self.targets = Some(targets.clone());
        self.open(targets)
    }

    /// Opens the events on `targets` and attaches the program to them.
    fn open(&mut self, targets: &CpuThreadTargets) -> Result<()> {
        for carrier in &self.carriers {
            for (cpu, fd) in everywhere(carrier, targets)? {
                let attached = self.program.attach(fd.as_fd()).map_err(|error| {
                    Error::Other(format!("--bpf-sampler on {} of cpu {cpu}: {error}", carrier.spec.name))
                })?;
                self.account.links += u32::from(attached.method() == AttachMethod::Link);
                self.sources.push(SampledEvent { attached, fd, cpu });
            }
        }
        self.account.events = self.sources.len() as u32;
        Ok(())
    }

    /// Sends the samples of a CPU to the output event of that CPU.
    fn set_output(&mut self, event_fd: &EventFd) -> Result<()> {
        match u32::try_from(event_fd.cpu) {
            Ok(cpu) if Some(event_fd.event) == self.output => {
                let set = self.program.set_output(cpu, event_fd.fd.as_fd());
                set.map_err(|error| Error::Other(format!("--bpf-sampler on cpu {cpu}: {error}")))
            }
            _ => Ok(()),
        }
    }

    /// Opens the events again on a CPU that came online.
    fn reopen(&mut self, reopened: &ReopenedCpu) -> Result<()> {
        reopened.fds.iter().try_for_each(|(_, event_fd)| self.set_output(event_fd))?;
        let Some(targets) = self.targets.as_ref().filter(|targets| !targets.binding.tasks) else { return Ok(()) };
        let mut on_cpu = targets.clone();
        on_cpu.cpus = vec![reopened.cpu];
        let ended = self.sources.extract_if(.., |source| source.cpu == reopened.cpu);
        self.account.links -= ended.filter(|it| it.attached.method() == AttachMethod::Link).count() as u32;
        self.open(&on_cpu)?;
        if self.is_on { self.enable(|source| source.cpu == reopened.cpu) } else { Ok(()) }
    }

    fn enable(&self, is_meant: impl Fn(&SampledEvent) -> bool) -> Result<()> {
        self.sources.iter().filter(|source| is_meant(source)).try_for_each(|source| {
            sys::enable(source.fd.as_fd()).map_err(Error::refused(
                "ioctl(PERF_EVENT_IOC_ENABLE)",
                format!("{} of the BPF sampler", self.account.event),
            ))
        })
    }
}

impl Source for BpfSampler {
    fn begin_file(&mut self, _is_first: bool, context: &mut Context<'_>) -> Result<()> {
        context.out.state(State::Sampler(self.account.clone()))
    }

    fn tick(&mut self, _tick: Tick, context: &mut Context<'_>) -> Result<Option<Instant>> {
        for event in context.events.iter() {
            if let Event::CpuReopened(reopened) = event {
                self.reopen(reopened)?;
            }
        }
        Ok(None)
    }

    fn switch(&mut self, is_on: bool) -> Result<()> {
        self.is_on = is_on;
        if is_on {
            return self.enable(|_| true);
        }
        // An event that cannot be disabled ends when its descriptor is closed.
        self.sources.iter().for_each(|source| drop(sys::disable(source.fd.as_fd())));
        Ok(())
    }

    /// Writes the settings of the sampler and its counts for this file.
    fn end_file(&mut self, _is_last: bool, context: &mut Context<'_>) -> Result<()> {
        let counts = match self.program.counts() {
            Ok(now) => {
                let of_file = since(&now, &self.before);
                self.before = now;
                Some(of_file)
            }
            Err(error) => {
                (context.notify)(
                    Level::Warning,
                    &format!("it is unknown how many samples the BPF sampler lost: {error}"),
                );
                None
            }
        };
        context.out.state(State::Sampler(state::Sampler { counts, ..self.account.clone() }))
    }
}

/// Returns the sum over all CPUs of the counts `now` without the counts `before`. An error number counts only on CPUs with samples that failed since
/// `before`; of several, the highest is returned.
fn since(now: &[SamplerCounts], before: &[SamplerCounts]) -> SamplerCounts {
    let mut sum = SamplerCounts::default();
    for (cpu, now) in now.iter().enumerate() {
        let before = before.get(cpu).copied().unwrap_or_default();
        sum.runs += now.runs.saturating_sub(before.runs);
        sum.written += now.written.saturating_sub(before.written);
        sum.full += now.full.saturating_sub(before.full);
        if now.failed > before.failed {
            sum.failed += now.failed - before.failed;
            sum.last_errno = sum.last_errno.max(now.last_errno);
        }
    }
    sum
}

/// Returns the events for the program: copies of a sampling event, without the fields that only a ring needs.
fn carriers(options: &Options, samplers: &[Sampler], binding: Binding) -> Vec<Sampler> {
    let takes_programs = |attr: &EventAttr| {
        attr.kind != event_type::TRACEPOINT
            && (attr.kind, attr.config) != (event_type::SOFTWARE, software::BPF_OUTPUT)
            && (attr.kind, attr.config) != (event_type::SOFTWARE, software::DUMMY)
    };
    let Some(first) = samplers.iter().find(|sampler| takes_programs(&sampler.attr)) else {
        return Vec::new();
    };
    // On a machine with several core types, each requested event is one sampler per core type. The same event of the
    // other core types is copied, too.
    let same_elsewhere = |sampler: &&Sampler| {
        let attr = &sampler.attr;
        first.spec.cpus.is_some()
            && sampler.spec.cpus.is_some()
            && sampler.spec.cpus != first.spec.cpus
            && attr.config & 0xffff_ffff == first.attr.config & 0xffff_ffff
            && takes_programs(attr)
    };
    let elsewhere = samplers.iter().filter(same_elsewhere);
    let mut carriers: Vec<Sampler> = std::iter::once(first).chain(elsewhere).cloned().collect();
    for carrier in &mut carriers {
        let attr = &mut carrier.attr;
        // With CALLCHAIN, the kernel would unwind the stack before each run of the program, even if the program does not
        // use it. Only precise events need CALLCHAIN; these events are not precise.
        attr.sample_type = SampleType::IP.with(SampleType::PERIOD);
        attr.read_format = Default::default();
        attr.flags = attr.flags.with_precise_ip(0).without(AttrFlags::SAMPLE_ID_ALL).with(AttrFlags::DISABLED);
        if binding.enable_on_exec {
            attr.flags = attr.flags.with(AttrFlags::ENABLE_ON_EXEC);
        }
        if let Some(rate) = options.bpf_sampler_rate {
            sampling::set_rate(attr, rate, options);
        }
    }
    carriers
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    #[test]
    fn fields_are_listed_or_changed() {
        let default = SamplerFields::default();
        assert_eq!(SamplerFields::parse("").unwrap(), default);
        assert!(default.parts.contains(Parts::VALUE) && !default.parts.contains(Parts::ADDR));
        let changed = SamplerFields::parse("+addr,-comm,-stack,+ustack").unwrap();
        assert!(changed.parts.contains(Parts::ADDR) && !changed.parts.contains(Parts::COMM));
        assert_eq!((changed.kernel_stack, changed.user_stack), (false, Some(true)));
        let listed = SamplerFields::parse("ip,value").unwrap();
        assert_eq!(listed.parts, Parts::IP.with(Parts::VALUE));
        assert_eq!((listed.kernel_stack, listed.user_stack, listed.named_value), (false, Some(false), true));
        for wrong in ["nonsense", "ip,+addr", "+ip,addr", "regs=nonsense", ","] {
            assert!(SamplerFields::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn an_error_number_is_of_the_file_in_which_a_sample_failed() {
        let cpu = |failed, last_errno| SamplerCounts { runs: 10 + failed, written: 10, full: 0, failed, last_errno };
        let first = [cpu(2, 95), cpu(0, 0)];
        assert_eq!(since(&first, &[]), SamplerCounts { runs: 22, written: 20, full: 0, failed: 2, last_errno: 95 });
        assert_eq!(since(&first, &first), SamplerCounts::default());
        let second = [cpu(2, 95), cpu(3, 11)];
        let of_second = SamplerCounts { runs: 3, written: 0, full: 0, failed: 3, last_errno: 11 };
        assert_eq!(since(&second, &first), of_second);
    }

    #[test]
    fn registers_follow_each_other() {
        let [first, last] = match std::env::consts::ARCH {
            "x86_64" => ["r15", "ss"],
            "aarch64" => ["x0", "pstate"],
            _ => return,
        };
        let count = layout::register_names(std::env::consts::ARCH).unwrap().len();
        let fields = SamplerFields::parse(&format!("value,regs={first},{last},stack")).unwrap();
        assert_eq!(fields.registers, 1 | 1 << (count - 1));
        assert!(fields.kernel_stack && fields.parts == Parts::VALUE);
        assert_eq!(SamplerFields::parse("regs").unwrap().registers.count_ones() as usize, count);
        let changed = SamplerFields::parse(&format!("+regs={first},{last},-comm")).unwrap();
        assert_eq!(changed.registers, fields.registers);
        assert!(!changed.parts.contains(Parts::COMM));
    }
}
