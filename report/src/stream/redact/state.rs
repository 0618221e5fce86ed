//! States that the recorder wrote beside perf's records.

use bprec_format::state::{SharedScope, State};

use super::Redactor;
use super::names::SecretKind;
use super::records::REMOVED;

impl Redactor {
    /// A payload of the recorder's; why it is left out, if it is.
    pub(super) fn state(&mut self, state: State) -> Result<State, &'static str> {
        Ok(match state {
            State::Session(mut session) => {
                // Of a command, its words are here.
                if !is_plain_target(&session.target) {
                    session.target = self.text(SecretKind::Command, &session.target);
                }
                session.event = self.event(&session.event);
                if !["exact", "stats", "off"].contains(&&*session.counters) {
                    session.counters = self.text(SecretKind::Text, &session.counters);
                }
                for message in [&mut session.event_note, &mut session.counters_note] {
                    self.message(message);
                }
                State::Session(session)
            }
            State::Program(mut program) => {
                for owner in &mut program.owners {
                    owner.comm = self.names.comm(&owner.comm);
                    owner.cgroup = self.names.cgroup(&owner.cgroup);
                }
                for pin in &mut program.pins {
                    *pin = self.names.replace(SecretKind::Path, pin);
                }
                if self.programs {
                    program.metadata.clear();
                }
                for (_, value) in &mut program.metadata {
                    *value = self.names.replace(SecretKind::Text, value);
                }
                self.message(&mut program.withheld);
                State::Program(program)
            }
            State::Missed(mut missed) => {
                self.message(&mut missed.reason);
                missed.tag = missed.tag.map(|tag| if self.programs { self.names.tag(tag) } else { tag });
                State::Missed(missed)
            }
            State::Map(mut map) => {
                if self.programs {
                    map.name = self.names.replace(SecretKind::Map, &map.name);
                    (map.btf_id, map.btf_key_type_id, map.btf_value_type_id) = (0, 0, 0);
                }
                State::Map(map)
            }
            State::Attachment(attachment) => State::Attachment(self.attachment(attachment)),
            State::KernelSymbols(mut symbols) => {
                for symbol in &mut symbols {
                    symbol.addr = self.shift.of(symbol.addr);
                    symbol.name = self.symbol(&symbol.name);
                }
                State::KernelSymbols(symbols)
            }
            State::CounterEvents(mut counters) => {
                counters.events.iter_mut().for_each(|event| event.name = self.event(&event.name));
                for absent in &mut counters.absent {
                    absent.name = self.event(&absent.name);
                    self.message(&mut absent.reason);
                }
                self.message(&mut counters.note);
                State::CounterEvents(counters)
            }
            State::ProgramCounters(mut counters) => {
                for target in &mut counters.targets {
                    self.message(&mut target.reason);
                    if self.programs {
                        target.name = self.names.program(&target.name);
                    }
                }
                State::ProgramCounters(counters)
            }
            State::SharedCounters(mut counters) => {
                for target in &mut counters.targets {
                    self.message(&mut target.reason);
                    target.name = match target.scope {
                        SharedScope::CGROUP => self.names.cgroup(&target.name),
                        _ => self.names.comm(&target.name),
                    };
                }
                State::SharedCounters(counters)
            }
            State::Sampler(mut sampler) => {
                sampler.event = self.event(&sampler.event);
                State::Sampler(sampler)
            }
            State::StatsOff(mut off) => {
                self.message(&mut off.reason);
                State::StatsOff(off)
            }
            State::FileFunctions(mut functions) => {
                functions.path = self.names.mapping(&functions.path);
                functions.file = self.names.file(&functions.file);
                State::FileFunctions(functions)
            }
            State::UserSymbols(mut symbols) => {
                self.message(&mut symbols.cut);
                State::UserSymbols(symbols)
            }
            // Numbers.
            State::RunStats(_)
            | State::Released(_)
            | State::Loss(_)
            | State::Cost(_)
            | State::Aggregation(_)
            | State::CpuNotSampled(_)
            | State::BootClock(_)
            | State::Recording(_)
            | State::ProgArray(_) => state,
            // What a map holds may be anything, and so may what is not known.
            _ => return Err(REMOVED),
        })
    }

    /// A message of the recorder's, which may name programs.
    fn message(&mut self, text: &mut String) {
        if self.programs && !text.is_empty() {
            *text = "redacted".to_owned();
        } else {
            *text = self.names.message(text, &self.shift);
        }
    }
}

/// Returns true if a target has numbers alone: `system wide`, `pid 12,13`.
fn is_plain_target(target: &str) -> bool {
    let is_numbers = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit() || byte == b',');
    let kinds = ["cpu ", "pid ", "tid "];
    target == "system wide" || kinds.iter().any(|kind| target.strip_prefix(kind).is_some_and(is_numbers))
}
