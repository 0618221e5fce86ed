//! Fields of a sample's line.

use bprec_format::{EventAttr, SampleType, event_type};

use crate::{Error, Result};

/// A field, by its name in `-F`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names describe the fields")]
pub enum Field {
    Comm,
    Tid,
    Pid,
    Time,
    Cpu,
    Event,
    Period,
    Trace,
    Addr,
    /// Memory-access latency, or another hardware weight of the sample.
    Weight,
    /// Address of the sample; the call chain if recorded.
    Ip,
    Sym,
    /// Offset from the symbol.
    Symoff,
    Dso,
    /// Raw bytes of bpf-output events.
    BpfOutput,
    /// Decoded state of the recorder, instead of raw bytes.
    State,
    /// Path of the cgroup; its id if the path is unknown.
    Cgroup,
}

impl Field {
    const NAMES: [(&'static str, Field); 18] = [
        ("comm", Field::Comm),
        ("tid", Field::Tid),
        ("pid", Field::Pid),
        ("time", Field::Time),
        ("cpu", Field::Cpu),
        ("event", Field::Event),
        ("period", Field::Period),
        ("trace", Field::Trace),
        ("addr", Field::Addr),
        ("weight", Field::Weight),
        ("ip", Field::Ip),
        // In perf, `ip` includes the call chain.
        ("callchain", Field::Ip),
        ("sym", Field::Sym),
        ("symoff", Field::Symoff),
        ("dso", Field::Dso),
        ("bpf-output", Field::BpfOutput),
        ("state", Field::State),
        ("cgroup", Field::Cgroup),
    ];
}

/// A set of fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fields {
    bits: u32,
    /// Fields that the user requested by name. If a sample lacks one of them, a placeholder is printed.
    named: u32,
    /// True if the user gave a full list, which applies to every event.
    listed: bool,
    /// Fields that the user removed.
    removed: u32,
}

impl Default for Fields {
    /// Returns the default fields: `comm,tid,cpu,time,period,event,trace,ip,sym,symoff,dso,bpf-output`. Fields that an event does not record are not
    /// printed. As in perf, tracepoints have no `period`; tracepoints without call chains also have no `ip,sym,symoff,dso`. Raw events, such as
    /// events of memory accesses, also have `addr,weight`.
    fn default() -> Fields {
        let mut fields = Fields { bits: 0, named: 0, listed: false, removed: 0 };
        for (_, field) in Field::NAMES {
            let is_default = !matches!(field, Field::Pid | Field::Addr | Field::Weight | Field::Cgroup | Field::State);
            if is_default {
                fields.bits |= bit(field);
            }
        }
        fields
    }
}

fn bit(field: Field) -> u32 {
    1 << field as u32
}

impl Fields {
    /// Parses `-F`: `comm,ip` sets the fields, `+addr,-period` changes the default.
    ///
    /// # Errors
    /// Fails if a field is unknown, or both forms are mixed.
    pub fn parse(text: &str) -> Result<Fields> {
        let mut fields = Fields { bits: 0, named: 0, listed: true, removed: 0 };
        let relative = text.starts_with(['+', '-']);
        if relative {
            fields = Fields::default();
        }
        for part in text.split(',') {
            let (sign, name) = match part.split_at_checked(1) {
                Some(("+", name)) => (Some('+'), name),
                Some(("-", name)) => (Some('-'), name),
                _ => (None, part),
            };
            let Some((_, field)) = Field::NAMES.into_iter().find(|(known, _)| *known == name) else {
                let known: Vec<&str> = Field::NAMES.iter().map(|(name, _)| *name).collect();
                return Err(Error::option("-F", part, format!("no such field; the fields are {}", known.join(","))));
            };
            if sign.is_some() != relative {
                return Err(Error::option("-F", text, "give either a list of fields, or only changes with + and -"));
            }
            if sign == Some('-') {
                fields.bits &= !bit(field);
                fields.removed |= bit(field);
            } else {
                fields.bits |= bit(field);
                fields.named |= bit(field);
            }
        }
        Ok(fields)
    }

    /// Returns the fields printed for an event. Without a full list, they depend on the event's type.
    pub(crate) fn of_event(self, attr: &EventAttr) -> Fields {
        let mut bits = self.bits;
        if self.listed {
            return self;
        }
        let place = [Field::Ip, Field::Sym, Field::Symoff, Field::Dso];
        match attr.kind {
            event_type::TRACEPOINT => {
                let has_chain = attr.sample_type.contains(SampleType::CALLCHAIN);
                let hidden = place.into_iter().filter(|_| !has_chain).chain([Field::Period]);
                bits &= !hidden.fold(0, |bits, field| bits | bit(field)) | self.named;
            }
            event_type::RAW => {
                let access = [Field::Addr, Field::Weight];
                bits |= access.into_iter().fold(0, |bits, field| bits | bit(field)) & !self.removed;
            }
            _ => {}
        }
        Fields { bits, ..self }
    }

    /// Returns true if the field is requested.
    pub fn has(self, field: Field) -> bool {
        self.bits & bit(field) != 0
    }

    /// Returns true if the field is requested by name.
    pub(crate) fn is_named(self, field: Field) -> bool {
        self.named & bit(field) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tracepoints_and_memory_events_have_defaults_of_their_own() {
        let tracepoint = EventAttr { kind: event_type::TRACEPOINT, ..EventAttr::default() };
        let memory = EventAttr { kind: event_type::RAW, ..EventAttr::default() };
        let has = |fields: Fields, attr: &EventAttr| {
            [Field::Trace, Field::Period, Field::Ip, Field::Addr, Field::Weight].map(|it| fields.of_event(attr).has(it))
        };
        assert_eq!(has(Fields::default(), &tracepoint), [true, false, false, false, false]);
        assert_eq!(has(Fields::default(), &memory), [true, true, true, true, true]);
        assert_eq!(has(Fields::parse("+period").unwrap(), &tracepoint), [true, true, false, false, false]);
        assert_eq!(has(Fields::parse("ip").unwrap(), &memory), [false, false, true, false, false]);
        let with_chain = EventAttr { sample_type: SampleType::CALLCHAIN, ..tracepoint };
        assert_eq!(has(Fields::default(), &with_chain), [true, false, true, false, false]);
    }

    #[test]
    fn lists_replace_and_signs_change() {
        let listed = Fields::parse("pid,ip").unwrap();
        assert!(listed.has(Field::Pid) && listed.has(Field::Ip) && !listed.has(Field::Comm));
        let changed = Fields::parse("+addr,-comm").unwrap();
        assert!(changed.has(Field::Addr) && changed.has(Field::Time) && !changed.has(Field::Comm));
        assert!(Fields::parse("pid,+ip").is_err());
        assert!(Fields::parse("").is_err());
        assert!(Fields::parse("nonsense").unwrap_err().to_string().contains("comm,tid,pid"));
    }
}
