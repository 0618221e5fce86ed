//! Our sampling program: events of its own beside those that sample, and the event that its samples go out by.
//!
//! The events that carry the program have no ring: the program drops every sample, and makes one of its own as raw bytes of
//! a bpf-output event on the same CPU, which is redirected into the ring of that CPU. Nothing is put on the main events.

use std::os::fd::{AsFd, OwnedFd};

use bprec_bpf::{AttachMethod, Attached, Recipe, SamplerProgram};
use bprec_format::bprec::sampler::{self as layout, Parts};
use bprec_format::bprec::state::{self, SamplerCounts, State};
use bprec_format::{AttrFlags, EventAttr, SampleType, event_type, software};

use super::{Context, Source};
use crate::events::{Binding, CpuThreadTargets, OpenEvents, Sampler, everywhere, sampling};
use crate::{Error, Level, Options, Result, Target, sys};

/// Options of `--bpf-sampler`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SamplerFields {
    parts: Parts,
    registers: u64,
    kernel_stack: bool,
    /// `None`: as the main events.
    user_stack: Option<bool>,
    /// The value was asked for by name, rather than as one of the default.
    named_value: bool,
}

/// Fields that are one part each; of registers and stacks it is said which.
fn single_parts() -> impl Iterator<Item = (&'static str, Parts)> {
    Parts::NAMES.into_iter().filter(|(_, part)| ![Parts::REGISTERS, Parts::STACK].contains(part))
}

impl Default for SamplerFields {
    /// `ip,period,task,cgroup,comm,value,stack`, and `ustack` where the main events have user call chains.
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
    /// Reads a list: `ip,stack` for these fields, `+addr,-comm` for changes to the default. Behind `regs=`, names of
    /// registers follow. Nothing at all is the default.
    ///
    /// # Errors
    /// When a field or a register is not known.
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
                    return Err(wrong(text, "fields are either listed, or added with + and removed with -"));
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
                    return Err(wrong(word, &format!("no such register; there are {}", names.join(","))));
                }
                "regs" => fields.registers = if add { (1 << names.len()) - 1 } else { 0 },
                "stack" => fields.kernel_stack = add,
                "ustack" => fields.user_stack = Some(add),
                _ => {
                    let Some((_, part)) = single_parts().find(|(known, _)| *known == name) else {
                        let known: Vec<&str> = single_parts().map(|(name, _)| name).collect();
                        let problem = format!("no such field; there are {},regs=…,stack,ustack", known.join(","));
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
        // The kernel does not read events that others inherit.
        if matches!(options.target, Target::Processes(_) | Target::Command) && parts.contains(Parts::VALUE) {
            parts = parts.without(Parts::VALUE);
            if self.named_value {
                let text =
                    "--bpf-sampler: no value: the kernel does not read events that children inherit (as with -a)";
                (options.notify)(Level::Warning, text);
            }
        }
        Recipe { parts, registers: self.registers, kernel_stack: self.kernel_stack, user_stack }
    }
}

fn wrong(what: &str, problem: &str) -> Error {
    Error::Other(format!("--bpf-sampler: {what}: {problem}"))
}

/// The program with its events.
#[derive(Debug)]
pub(crate) struct BpfSampler {
    /// Taken off before its events close.
    attached: Vec<Attached>,
    /// Events that carry the program.
    sources: Vec<OwnedFd>,
    program: SamplerProgram,
    account: state::Sampler,
    /// Results of its runs before the file began.
    before: SamplerCounts,
}

impl BpfSampler {
    /// Loads the program if it is asked for. Nothing runs yet.
    ///
    /// # Errors
    /// When the kernel refuses it.
    pub(crate) fn load(options: &Options) -> Result<Option<BpfSampler>> {
        let Some(fields) = options.bpf_sampler else { return Ok(None) };
        super::refuse_foreign_process_ids("--bpf-sampler samples with")?;
        let recipe = fields.recipe(options);
        let program = SamplerProgram::load(recipe).map_err(|error| Error::Other(format!("--bpf-sampler: {error}")))?;
        let account = state::Sampler { prog_id: program.id(), parts: recipe.parts, ..state::Sampler::default() };
        Ok(Some(BpfSampler {
            attached: Vec::new(),
            sources: Vec::new(),
            program,
            account,
            before: SamplerCounts::default(),
        }))
    }

    /// Opens the events that carry the program, switched off, and puts it on them: of the kind of the first of `samplers`
    /// that takes programs, with a rate of their own.
    ///
    /// # Errors
    /// When an event cannot be opened, or does not take the program.
    pub(crate) fn attach(
        &mut self,
        options: &Options,
        samplers: &[Sampler],
        targets: &CpuThreadTargets,
        opened: &OpenEvents,
    ) -> Result<()> {
        for event_fd in opened.fds.iter().filter(|it| Some(it.event) == opened.sampler_output) {
            let Ok(cpu) = u32::try_from(event_fd.cpu) else { continue };
            self.program.set_output(cpu, event_fd.fd.as_fd()).map_err(|error| Error::Other(error.to_string()))?;
        }
        let carriers = carriers(options, samplers, targets.binding);
        let Some(first) = carriers.first() else {
            let names: Vec<&str> = samplers.iter().map(|sampler| sampler.spec.name.as_str()).collect();
            return Err(Error::Other(format!(
                "--bpf-sampler: it needs an event like the main ones, and {} cannot carry it; add one that can: -e cpu-clock",
                names.join(", ")
            )));
        };
        self.account.event = first.spec.name.clone();
        self.account.event_type = first.attr.kind;
        self.account.event_config = first.attr.config;
        self.account.is_frequency = first.attr.flags.contains(AttrFlags::FREQ);
        self.account.rate = first.attr.sample_period;
        for carrier in &carriers {
            for fd in everywhere(carrier, targets)? {
                let attached = self.program.attach(fd.1.as_fd()).map_err(|error| {
                    Error::Other(format!("--bpf-sampler on {} of cpu {}: {error}", carrier.spec.name, fd.0))
                })?;
                self.account.links += u32::from(attached.method() == AttachMethod::Link);
                self.attached.push(attached);
                self.sources.push(fd.1);
            }
        }
        self.account.events = self.sources.len() as u32;
        Ok(())
    }
}

impl Source for BpfSampler {
    fn begin_file(&mut self, _is_first: bool, context: &mut Context<'_>) -> Result<()> {
        context.out.state(State::Sampler(self.account.clone()))
    }

    fn switch(&mut self, is_on: bool) -> Result<()> {
        self.sources.iter().try_for_each(|source| {
            if !is_on {
                // An event that cannot be switched off ends with its descriptor.
                drop(sys::disable(source.as_fd()));
                return Ok(());
            }
            sys::enable(source.as_fd()).map_err(|answer| Error::Syscall {
                call: "ioctl(PERF_EVENT_IOC_ENABLE)",
                object: format!("{} of the BPF sampler", self.account.event),
                answer,
                remedy: String::new(),
            })
        })
    }

    /// Settings of the sampler, and its results.
    fn end_file(&mut self, _is_last: bool, context: &mut Context<'_>) -> Result<()> {
        let counts = match self.program.counts() {
            Ok(now) => {
                let before = std::mem::replace(&mut self.before, now);
                Some(SamplerCounts {
                    runs: now.runs.saturating_sub(before.runs),
                    written: now.written.saturating_sub(before.written),
                    full: now.full.saturating_sub(before.full),
                    failed: now.failed.saturating_sub(before.failed),
                    last_errno: now.last_errno,
                })
            }
            Err(error) => {
                (context.notify)(Level::Warning, &format!("losses of the BPF sampler are unknown: {error}"));
                None
            }
        };
        context.out.state(State::Sampler(state::Sampler { counts, ..self.account.clone() }))
    }
}

/// The events that carry the program: as one that samples, without what only the ring would need.
fn carriers(options: &Options, samplers: &[Sampler], binding: Binding) -> Vec<Sampler> {
    let takes_programs = |attr: &EventAttr| {
        attr.kind != event_type::TRACEPOINT
            && (attr.kind, attr.config) != (event_type::SOFTWARE, software::BPF_OUTPUT)
            && (attr.kind, attr.config) != (event_type::SOFTWARE, software::DUMMY)
    };
    let Some(first) = samplers.iter().find(|sampler| takes_programs(&sampler.attr)) else {
        return Vec::new();
    };
    // On machines with several kinds of cores an event is one per kind.
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
        // With a call chain the kernel would take one before the program runs, whatever the program does. Precise events
        // would need that.
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
