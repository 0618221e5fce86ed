//! What the recorder wrote beside perf's records.

use bprec_format::state::{SharedScope, State};

use super::Redactor;
use super::names::{Kind, Names};
use super::records::REMOVED;

impl Redactor {
    /// A payload of the recorder's; why it is left out, if it is.
    pub(super) fn state(&mut self, state: State) -> Result<State, &'static str> {
        let Redactor { names, shift, programs } = self;
        let programs = *programs;
        let event = |names: &mut Names, name: &mut String| *name = names.prose(name, shift);
        // What the recorder says may name programs.
        let prose = |names: &mut Names, text: &mut String| match programs && !text.is_empty() {
            true => *text = "redacted".to_owned(),
            false => *text = names.prose(text, shift),
        };
        Ok(match state {
            State::Session(mut session) => {
                session.target = match &session.target {
                    // Of a command, its words are here.
                    target if is_plain_target(target) => target.clone(),
                    target => String::from_utf8_lossy(&names.replace(Kind::Command, target.as_bytes())).into_owned(),
                };
                event(names, &mut session.event);
                for text in [&mut session.event_note, &mut session.counters_note] {
                    prose(names, text);
                }
                State::Session(session)
            }
            State::Program(mut program) => {
                for owner in &mut program.owners {
                    owner.comm = names.comm(&owner.comm);
                    owner.cgroup = names.cgroup(&owner.cgroup);
                }
                for pin in &mut program.pins {
                    *pin = names.replace(Kind::Path, pin);
                }
                if programs {
                    program.metadata.clear();
                }
                for (_, value) in &mut program.metadata {
                    *value = names.replace(Kind::Text, value);
                }
                prose(names, &mut program.withheld);
                State::Program(program)
            }
            State::Missed(mut missed) => {
                prose(names, &mut missed.reason);
                missed.tag = missed.tag.map(|tag| if programs { names.tag(tag) } else { tag });
                State::Missed(missed)
            }
            State::Map(mut map) => {
                if programs {
                    map.name = names.replace(Kind::Map, &map.name);
                    (map.btf_id, map.btf_key_type_id, map.btf_value_type_id) = (0, 0, 0);
                }
                State::Map(map)
            }
            State::Attachment(mut attachment) => {
                let target = String::from_utf8_lossy(&attachment.target).into_owned();
                attachment.target = match attachment.kind.as_str() {
                    kind if kind.contains("cgroup") && target.starts_with('/') => names.cgroup(&attachment.target),
                    "struct_ops" if programs => names.replace(Kind::Map, &attachment.target),
                    _ if programs && (target.contains(" of program ") || target.contains("map ")) => {
                        names.replace(Kind::Text, &attachment.target)
                    }
                    _ => names.prose(&target, shift).into_bytes(),
                };
                State::Attachment(attachment)
            }
            State::KernelSymbols(mut symbols) => {
                for symbol in &mut symbols {
                    symbol.addr = self.shift.of(symbol.addr);
                    symbol.name = self.symbol(&symbol.name);
                }
                State::KernelSymbols(symbols)
            }
            State::CounterEvents(mut counters) => {
                counters.events.iter_mut().for_each(|counted| event(names, &mut counted.name));
                for absent in &mut counters.absent {
                    event(names, &mut absent.name);
                    prose(names, &mut absent.reason);
                }
                prose(names, &mut counters.note);
                State::CounterEvents(counters)
            }
            State::ProgramCounters(mut counters) => {
                for target in &mut counters.targets {
                    prose(names, &mut target.reason);
                    if programs {
                        target.name = names.program(&target.name);
                    }
                }
                State::ProgramCounters(counters)
            }
            State::SharedCounters(mut counters) => {
                for target in &mut counters.targets {
                    prose(names, &mut target.reason);
                    target.name = match target.scope {
                        SharedScope::CGROUP => names.cgroup(&target.name),
                        _ => names.comm(&target.name),
                    };
                }
                State::SharedCounters(counters)
            }
            State::Sampler(mut sampler) => {
                event(names, &mut sampler.event);
                State::Sampler(sampler)
            }
            State::StatsOff(mut off) => {
                prose(names, &mut off.reason);
                State::StatsOff(off)
            }
            State::FileFunctions(mut functions) => {
                functions.path = names.mapping(&functions.path);
                functions.file = names.file(&functions.file);
                State::FileFunctions(functions)
            }
            State::UserSymbols(mut symbols) => {
                prose(names, &mut symbols.cut);
                State::UserSymbols(symbols)
            }
            State::RunStats(_)
            | State::Released(_)
            | State::Loss(_)
            | State::Cost(_)
            | State::Aggregation(_)
            | State::CpuNotSampled(_)
            | State::BootClock(_)
            | State::Recording(_) => state,
            // What a map holds may be anything.
            _ => return Err(REMOVED),
        })
    }
}

/// Whether a target says no more than numbers: `system wide`, `pid 12,13`.
fn is_plain_target(target: &str) -> bool {
    let is_numbers = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b',');
    let kinds = ["cpu ", "pid ", "tid "];
    target == "system wide" || kinds.iter().any(|kind| target.strip_prefix(kind).is_some_and(is_numbers))
}
