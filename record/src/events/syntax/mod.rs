//! Event syntax: parses the names given to `-e` into attrs, as perf does.
//!
//! Names come from three sources: tables of the ABI (software, hardware and cache events, raw codes), the PMUs in
//! `/sys/bus/event_source/devices`, and the tracepoints of tracefs. Nothing is opened here; only opening shows if the
//! machine can count an event.

mod list;
mod modifier;
mod names;
mod pmu;
mod terms;
#[cfg(test)]
mod tests;
mod tracefs;

use std::path::PathBuf;

use bprec_format::{AttrFlags, EventAttr, event_type, software};

use modifier::Modifiers;
use pmu::Pmu;
use terms::{Term, Terms};
use tracefs::Tracefs;

use crate::{Error, Rate, Result};

/// System and name of a tracepoint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tracepoint {
    /// System, such as `sched`.
    pub(crate) system: String,
    /// Name, such as `sched_switch`.
    pub(crate) name: String,
}

/// One event to open.
#[derive(Debug, Clone)]
pub(crate) struct EventSpec {
    /// Name as written, or the value of the `name=` term.
    pub(crate) name: String,
    /// `type`, `config` to `config4`, and the flags that modifiers set: `exclude_*`, `precise_ip`, `pinned`, `exclusive`.
    /// The code that opens the event sets the other fields.
    pub(crate) attr: EventAttr,
    /// Rate of the event's own `period=` or `freq=` term. It overrides the options.
    pub(crate) rate: Option<Rate>,
    /// Rate if neither the event nor the options give a rate: tracepoints and bpf-output sample every time.
    pub(crate) default_rate: Option<Rate>,
    /// `:P`: `precise_ip` is 3 and is lowered until the kernel accepts the event.
    pub(crate) precise_as_possible: bool,
    /// CPUs on which the PMU counts, if it does not count on all CPUs.
    pub(crate) cpus: Option<Vec<u32>>,
    /// Names of the tracepoint, if the event is a tracepoint.
    pub(crate) tracepoint: Option<Tracepoint>,
}

/// Parses one `-e` argument, a comma-separated list without groups.
///
/// # Errors
/// Fails if the list has a syntax error, or names an event that this machine lacks; the message lists similar names.
pub(crate) fn parse(list: &str) -> Result<Vec<EventSpec>> {
    Catalog::system(list).parse(list)
}

/// Parses a comma-separated list with groups in braces into one list per group.
///
/// # Errors
/// Fails as [`parse`] does.
pub(crate) fn parse_groups(list: &str) -> Result<Vec<Vec<EventSpec>>> {
    Catalog::system(list).parse_groups(list)
}

/// The TRACING_DATA section for the tracepoints among `events`, or `None` if there are no tracepoints.
///
/// # Errors
/// Fails if the formats of the tracepoints cannot be read.
pub(crate) fn tracing_data(events: &[EventSpec]) -> Result<Option<Vec<u8>>> {
    let tracepoints: Vec<&Tracepoint> = events.iter().filter_map(|event| event.tracepoint.as_ref()).collect();
    if tracepoints.is_empty() {
        return Ok(None);
    }
    let tracefs = Tracefs::open().map_err(Error::Other)?;
    tracefs.section(&tracepoints).map(Some)
}

/// Error in an event of the list.
fn wrong(event: &str, problem: impl Into<String>) -> Error {
    Error::Event { event: event.to_owned(), problem: problem.into() }
}

/// Sources of event names.
#[derive(Debug)]
struct Catalog {
    devices: PathBuf,
    tracefs: std::result::Result<Tracefs, String>,
}

impl Catalog {
    /// Catalog of the running system. Tracefs is opened, and if necessary mounted privately, only if `list` may contain
    /// tracepoints.
    fn system(list: &str) -> Catalog {
        let tracefs = if list.contains(':') { Tracefs::open() } else { Err("tracefs was not opened".to_owned()) };
        Catalog { devices: PathBuf::from("/sys/bus/event_source/devices"), tracefs }
    }

    fn parse(&self, list: &str) -> Result<Vec<EventSpec>> {
        let groups = list::groups(list)?;
        if groups.iter().any(|group| group.len() > 1) {
            return Err(wrong(list, "groups in braces are not supported yet; list the events without them"));
        }
        self.parse_events(&groups.concat())
    }

    fn parse_groups(&self, list: &str) -> Result<Vec<Vec<EventSpec>>> {
        list::groups(list)?.iter().map(|group| self.parse_events(group)).collect()
    }

    fn parse_events(&self, items: &[String]) -> Result<Vec<EventSpec>> {
        let events: Vec<_> = items.iter().map(|item| self.parse_event(item)).collect::<Result<_>>()?;
        Ok(events.concat())
    }

    /// Events of one item: `name[:modifiers]` or `name/terms/[modifiers]`.
    fn parse_event(&self, item: &str) -> Result<Vec<EventSpec>> {
        let (mut events, terms, modifiers) = match item.split_once('/') {
            None => {
                let (events, modifiers) = self.named(item, item)?;
                (events, Terms::default(), modifiers)
            }
            Some((head, rest)) => {
                let Some((inside, modifiers)) = rest.rsplit_once('/') else {
                    return Err(wrong(item, "the closing `/` of the terms is missing"));
                };
                let terms = Terms::parse(item, inside)?;
                (self.with_terms(item, head, &terms)?, terms, modifiers.strip_prefix(':').unwrap_or(modifiers))
            }
        };
        let modifiers = Modifiers::parse(item, modifiers)?;
        for event in &mut events {
            modifiers.apply(event);
            event.rate = terms.rate;
            event.name = terms.name.clone().unwrap_or(std::mem::take(&mut event.name));
        }
        Ok(events)
    }

    /// Events that `text` names, and the modifiers after the name.
    fn named<'a>(&self, item: &str, text: &'a str) -> Result<(Vec<EventSpec>, &'a str)> {
        let (head, tail) = text.split_once(':').map_or((text, None), |(head, tail)| (head, Some(tail)));
        let plain = self.plain(item, head)?;
        match tail {
            None if plain.is_empty() => Err(self.unknown(item, head)),
            Some(tail) if plain.is_empty() => {
                let (name, modifiers) = tail.split_once(':').unwrap_or((tail, ""));
                Ok((self.tracepoints(item, head, name)?, modifiers))
            }
            tail => Ok((plain, tail.unwrap_or_default())),
        }
    }

    /// Events of `head/terms/`: an event of a PMU, or any other event with terms.
    fn with_terms(&self, item: &str, head: &str, terms: &Terms) -> Result<Vec<EventSpec>> {
        let pmus = pmu::all(&self.devices);
        if let Some(pmu) = pmus.iter().find(|pmu| pmu.name == head) {
            // A generalised event of one kind of core: `cpu_core/cycles/`.
            let generalised = match &terms.config[..] {
                [(name, None)] if !pmu.has_event(name) => names::legacy(name),
                _ => None,
            };
            return match generalised.filter(|(kind, _)| *kind != event_type::SOFTWARE) {
                Some((kind, config)) => Ok(self.legacy(item, kind, config, Some(pmu))),
                None => Ok(vec![pmu_event(item, pmu, &terms.config)?]),
            };
        }
        if let Some((key, _)) = terms.config.first() {
            let known = names::closest(head, pmus.into_iter().map(|pmu| pmu.name));
            let problem = format!("`{key}` is not a term of `{head}`, because there is no PMU of this name{known}");
            return Err(wrong(item, problem));
        }
        match self.named(item, head)? {
            (events, "") => Ok(events),
            _ => Err(wrong(item, "modifiers follow the terms: write them after the closing `/`")),
        }
    }

    /// Events with the name `head` that are not tracepoints; empty if no event has this name.
    fn plain(&self, item: &str, head: &str) -> Result<Vec<EventSpec>> {
        let raw = names::raw(head).map(|config| (event_type::RAW, config));
        if let Some((kind, config)) = names::legacy(head).or(raw) {
            return Ok(self.legacy(item, kind, config, None));
        }
        let pmus = pmu::all(&self.devices).into_iter().filter(|pmu| pmu.has_event(head));
        pmus.map(|pmu| pmu_event(item, &pmu, &[(head.to_owned(), None)])).collect()
    }

    /// A hardware, cache, raw or software event. A machine with several kinds of cores has one PMU per kind; there, the result
    /// is one event per PMU, or only the event of the PMU `of`.
    fn legacy(&self, item: &str, kind: u32, config: u64, of: Option<&Pmu>) -> Vec<EventSpec> {
        let spec = |name: String, kind, config, cpus| {
            let default_rate =
                (kind == event_type::SOFTWARE && config == software::BPF_OUTPUT).then_some(Rate::Period(1));
            EventSpec { default_rate, cpus, ..EventSpec::new(name, kind, config) }
        };
        let mut cores = if kind == event_type::SOFTWARE { Vec::new() } else { pmu::cores(&self.devices) };
        if cores.len() < 2 {
            return vec![spec(item.to_owned(), kind, config, None)];
        }
        cores.retain(|core| of.is_none_or(|pmu| pmu.kind == core.kind));
        let of_core = |core: &Pmu| {
            // Bits 32 and up of the config of a generalised event select the PMU; raw codes use the type of the PMU.
            let (kind, config) = match kind {
                event_type::RAW => (core.kind, config),
                _ => (kind, config | u64::from(core.kind) << 32),
            };
            let name = if of.is_some() { item.to_owned() } else { format!("{}/{item}/", core.name) };
            spec(name, kind, config, core.cpus())
        };
        cores.iter().map(of_core).collect()
    }

    /// The tracepoints `system:name`; both parts may be patterns.
    fn tracepoints(&self, item: &str, system: &str, name: &str) -> Result<Vec<EventSpec>> {
        let tracefs = self.tracefs.as_ref().map_err(|why| wrong(item, why.clone()))?;
        let events = tracefs.matching(system, name).into_iter().filter_map(|(system, name)| {
            let full = format!("{system}:{name}");
            let shown = if item.starts_with(&full) { item.to_owned() } else { full };
            let id = tracefs.id(&system, &name)?;
            Some(EventSpec {
                default_rate: Some(Rate::Period(1)),
                tracepoint: Some(Tracepoint { system, name }),
                ..EventSpec::new(shown, event_type::TRACEPOINT, id)
            })
        });
        let events: Vec<EventSpec> = events.collect();
        if events.is_empty() { Err(wrong(item, tracefs.missing(system, name))) } else { Ok(events) }
    }

    fn unknown(&self, item: &str, head: &str) -> Error {
        let of_pmus = pmu::all(&self.devices).into_iter().flat_map(|pmu| pmu.event_names());
        wrong(item, format!("unknown event{}", names::closest(head, names::all().chain(of_pmus))))
    }
}

impl EventSpec {
    fn new(name: String, kind: u32, config: u64) -> EventSpec {
        EventSpec {
            name,
            attr: EventAttr { kind, config, ..EventAttr::default() },
            rate: None,
            default_rate: None,
            precise_as_possible: false,
            cpus: None,
            tracepoint: None,
        }
    }
}

/// An event of a PMU.
fn pmu_event(item: &str, pmu: &Pmu, terms: &[Term]) -> Result<EventSpec> {
    Ok(EventSpec { attr: pmu.attr(item, terms)?, cpus: pmu.cpus(), ..EventSpec::new(item.to_owned(), pmu.kind, 0) })
}

/// Flags that exclude user, kernel and hypervisor mode.
const EXCLUDE_MODES: AttrFlags = AttrFlags::EXCLUDE_USER.with(AttrFlags::EXCLUDE_KERNEL).with(AttrFlags::EXCLUDE_HV);
