//! Event syntax: parses the names given to `-e` into attrs, as perf does.
//!
//! Names come from three sources: tables of the ABI (software, hardware and cache events, raw codes), the PMUs in
//! `/sys/bus/event_source/devices`, and the tracepoints of tracefs. Nothing is opened here; only opening shows if the
//! machine can count an event.

pub(crate) mod groups;
mod list;
mod modifier;
mod names;
mod pmu;
mod terms;
#[cfg(test)]
mod tests;
mod tracefs;

use std::path::{Path, PathBuf};

use bprec_format::{AttrFlags, EventAttr, event_type, software};

use modifier::Modifiers;
use pmu::Pmu;
use terms::Terms;
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
    /// `type`, `config` to `config4` (`bp_addr` and `bp_len` of breakpoints), `bp_type`, and the flags that modifiers
    /// set: `exclude_*`, `precise_ip`, `pinned`, `exclusive`. The code that opens the event sets the other fields.
    pub(crate) attr: EventAttr,
    /// Rate of the event's own `period=` or `freq=` term. It overrides the options.
    pub(crate) rate: Option<Rate>,
    /// Rate if neither the event nor the options give a rate: tracepoints and breakpoints sample every time.
    pub(crate) default_rate: Option<Rate>,
    /// `:P`: `precise_ip` is 3 and is lowered until the kernel accepts the event.
    pub(crate) precise_as_possible: bool,
    /// CPUs on which the PMU counts, if it does not count on all CPUs.
    pub(crate) cpus: Option<Vec<u32>>,
    /// Names of the tracepoint, if the event is a tracepoint.
    pub(crate) tracepoint: Option<Tracepoint>,
    /// Terms of perf that are recognized and have no effect in bprec.
    pub(crate) ignored_terms: Vec<String>,
}

/// Parses one `-e` argument, a comma-separated list.
///
/// # Errors
/// Fails if the list has a syntax error, or names an event that this machine lacks; the message lists similar names.
pub(crate) fn parse(list: &str) -> Result<Vec<EventSpec>> {
    Catalog::system(list).parse(list)
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
        let tracefs = if list.contains(':') { Tracefs::open() } else { Err("tracefs was not looked for".to_owned()) };
        Catalog { devices: PathBuf::from("/sys/bus/event_source/devices"), tracefs }
    }

    /// Catalog of a PMU directory of a test, without tracepoints.
    #[cfg(test)]
    fn at(devices: &Path) -> Catalog {
        Catalog { devices: devices.to_owned(), tracefs: Err("no tracefs in this test".to_owned()) }
    }

    fn devices(&self) -> &Path {
        &self.devices
    }

    /// Parses a comma-separated list of events.
    ///
    /// # Errors
    /// Names the event that is wrong, and lists similar names.
    fn parse(&self, list: &str) -> Result<Vec<EventSpec>> {
        let mut parsed = Vec::new();
        for item in list::split(list)? {
            self.parse_event(item, &mut parsed)?;
        }
        Ok(parsed)
    }

    fn parse_event(&self, item: &str, out: &mut Vec<EventSpec>) -> Result<()> {
        let first = out.len();
        let (terms, modifiers) = self.parse_parts(item, out)?;
        let modifiers = Modifiers::parse(item, modifiers)?;
        for spec in &mut out[first..] {
            modifiers.apply(spec);
            let Some(terms) = &terms else { continue };
            spec.rate = terms.rate;
            spec.ignored_terms.clone_from(&terms.ignored);
            if let Some(name) = &terms.name {
                spec.name.clone_from(name);
            }
        }
        Ok(())
    }

    /// Adds the events of `item`; returns its terms and its unparsed modifiers.
    fn parse_parts<'a>(&self, item: &'a str, out: &mut Vec<EventSpec>) -> Result<(Option<Terms>, &'a str)> {
        if let Some(rest) = item.strip_prefix("mem:") {
            let (spec, modifiers) = breakpoint(item, rest)?;
            out.push(spec);
            return Ok((None, modifiers));
        }
        if let Some((head, rest)) = item.split_once('/') {
            let Some((inside, modifiers)) = rest.rsplit_once('/') else {
                return Err(wrong(item, "the closing `/` of the terms is missing"));
            };
            let terms = Terms::parse(item, inside)?;
            self.with_terms(item, head, &terms, out)?;
            return Ok((Some(terms), modifiers.strip_prefix(':').unwrap_or(modifiers)));
        }
        let mut parts = item.splitn(2, ':');
        let (head, tail) = (parts.next().unwrap_or_default(), parts.next());
        if self.plain(item, head, out)? {
            return Ok((None, tail.unwrap_or_default()));
        }
        match tail {
            Some(tail) => {
                let (name, modifiers) = tail.split_once(':').unwrap_or((tail, ""));
                self.tracepoints(item, head, name, out)?;
                Ok((None, modifiers))
            }
            None => Err(self.unknown(item, head)),
        }
    }

    /// Adds the events of `head/terms/`: an event of a PMU, or any other event with terms.
    fn with_terms(&self, item: &str, head: &str, terms: &Terms, out: &mut Vec<EventSpec>) -> Result<()> {
        let pmus = pmu::matching(self.devices(), head);
        if !pmus.is_empty() {
            for pmu in &pmus {
                let attr = pmu.attr(item, &terms.config)?;
                out.push(pmu_event(item, pmu, attr, pmus.len() > 1));
            }
            return Ok(());
        }
        if let Some((key, _)) = terms.config.first() {
            let problem = if self.is_plain(head) {
                format!("`{key}` is not a term of `{head}`, which takes period=, freq= and name=")
            } else {
                let known = names::closest(head, pmu::all(self.devices()).iter().map(|pmu| pmu.name.clone()));
                format!("there is no PMU `{head}` in {}{known}", self.devices().display())
            };
            return Err(wrong(item, problem));
        }
        if self.plain(item, head, out)? {
            return Ok(());
        }
        match head.split_once(':') {
            Some((system, name)) => self.tracepoints(item, system, name, out),
            None => Err(self.unknown(item, head)),
        }
    }

    /// Adds the event whose whole name is `head`; returns false if there is no such event.
    fn plain(&self, item: &str, head: &str, out: &mut Vec<EventSpec>) -> Result<bool> {
        if let Some((kind, config)) = names::legacy(head) {
            self.push_legacy(item, kind, config, out);
            return Ok(true);
        }
        if let Some(config) = names::raw(head) {
            self.push_legacy(item, event_type::RAW, config, out);
            return Ok(true);
        }
        let mut found = false;
        for pmu in pmu::all(self.devices()) {
            if pmu.has_event(head) {
                let attr = pmu.attr(item, &[(head.to_owned(), None)])?;
                out.push(pmu_event(item, &pmu, attr, false));
                found = true;
            }
        }
        Ok(found)
    }

    fn is_plain(&self, head: &str) -> bool {
        names::legacy(head).is_some() || names::raw(head).is_some()
    }

    /// Adds a hardware, cache, raw or software event. A machine with several kinds of cores has one PMU per kind, and
    /// gets one event per PMU.
    fn push_legacy(&self, item: &str, kind: u32, config: u64, out: &mut Vec<EventSpec>) {
        let spec = |name: String, kind, config, cpus| {
            let default_rate =
                (kind == event_type::SOFTWARE && config == software::BPF_OUTPUT).then_some(Rate::Period(1));
            EventSpec { default_rate, cpus, ..EventSpec::new(name, kind, config) }
        };
        let cores = if kind == event_type::SOFTWARE { Vec::new() } else { pmu::cores(self.devices()) };
        if cores.len() < 2 {
            out.push(spec(item.to_owned(), kind, config, None));
            return;
        }
        for core in &cores {
            // Bits 32 and up of the config of a generalised event select the PMU; raw codes use the type of the PMU.
            let (kind, config) = match kind {
                event_type::RAW => (core.kind, config),
                _ => (kind, config | u64::from(core.kind) << 32),
            };
            out.push(spec(format!("{}/{item}/", core.name), kind, config, core.cpus()));
        }
    }

    /// Adds the tracepoints `system:name`; both parts may be patterns.
    fn tracepoints(&self, item: &str, system: &str, name: &str, out: &mut Vec<EventSpec>) -> Result<()> {
        let tracefs = self.tracefs.as_ref().map_err(|why| wrong(item, why.clone()))?;
        let is_pattern = |text: &str| text.contains(['*', '?', '[']);
        if !is_pattern(system) && !is_pattern(name) {
            let id = tracefs.id(system, name).map_err(|problem| wrong(item, problem))?;
            out.push(EventSpec::tracepoint(item.to_owned(), system, name, id));
            return Ok(());
        }
        let found = tracefs.matching(system, name);
        if found.is_empty() {
            return Err(wrong(item, "no tracepoint matches"));
        }
        for (system, name) in found {
            // A directory without an id, as for ftrace's own events, is not an event that can be opened.
            let Ok(id) = tracefs.id(&system, &name) else { continue };
            out.push(EventSpec::tracepoint(format!("{system}:{name}"), &system, &name, id));
        }
        Ok(())
    }

    fn unknown(&self, item: &str, head: &str) -> Error {
        if matches!(head, "duration_time" | "user_time" | "system_time") {
            return wrong(item, "can only be counted; it cannot sample");
        }
        let pmu_events = pmu::all(self.devices()).into_iter().flat_map(|pmu| pmu.event_names());
        wrong(item, format!("unknown event{}", names::closest(head, names::all().chain(pmu_events))))
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
            ignored_terms: Vec::new(),
        }
    }

    fn tracepoint(shown: String, system: &str, name: &str, id: u64) -> EventSpec {
        EventSpec {
            default_rate: Some(Rate::Period(1)),
            tracepoint: Some(Tracepoint { system: system.to_owned(), name: name.to_owned() }),
            ..EventSpec::new(shown, event_type::TRACEPOINT, id)
        }
    }
}

/// Creates an event of a PMU. If one item stands for several PMUs, the name of the event names its PMU.
fn pmu_event(item: &str, pmu: &Pmu, attr: EventAttr, several: bool) -> EventSpec {
    let name = match item.split_once('/') {
        Some((_, rest)) if several => format!("{}/{rest}", pmu.name),
        _ => item.to_owned(),
    };
    EventSpec { attr, cpus: pmu.cpus(), ..EventSpec::new(name, pmu.kind, 0) }
}

/// Parses `addr[/len][:access]`; also returns the modifiers after it.
fn breakpoint<'a>(item: &str, rest: &'a str) -> Result<(EventSpec, &'a str)> {
    const READ: u32 = 1;
    const WRITE: u32 = 2;
    const EXECUTE: u32 = 4;
    let malformed = |problem: &str| wrong(item, format!("{problem}; expected mem:ADDR[/LEN][:rwx][:modifiers]"));
    let (place, tail) = rest.split_once(':').unwrap_or((rest, ""));
    let (addr, len) = match place.split_once('/') {
        Some((addr, len)) => (addr, Some(len)),
        None => (place, None),
    };
    let addr = terms::number(addr).ok_or_else(|| malformed("the address is not a number"))?;
    let (access, modifiers) = tail.split_once(':').unwrap_or((tail, ""));
    // A single part after the address may be access or modifiers; no modifier consists of r, w and x only.
    let is_access = access.chars().all(|c| "rwx".contains(c));
    let (access, modifiers) = if is_access { (access, modifiers) } else { ("", tail) };
    let mut bp_type = access.chars().fold(0, |bits, c| {
        bits | match c {
            'r' => READ,
            'w' => WRITE,
            _ => EXECUTE,
        }
    });
    if bp_type == 0 {
        bp_type = READ | WRITE;
    }
    let len = match len {
        Some(len) => terms::number(len).ok_or_else(|| malformed("the length is not a number"))?,
        None if bp_type & EXECUTE != 0 => size_of::<libc::c_long>() as u64,
        None => 4,
    };
    let mut spec = EventSpec::new(item.to_owned(), event_type::BREAKPOINT, 0);
    spec.attr = EventAttr { bp_type, config1: addr, config2: len, ..spec.attr };
    spec.default_rate = Some(Rate::Period(1));
    Ok((spec, modifiers))
}

/// Flags that exclude user, kernel and hypervisor mode.
const EXCLUDE_MODES: AttrFlags = AttrFlags::EXCLUDE_USER.with(AttrFlags::EXCLUDE_KERNEL).with(AttrFlags::EXCLUDE_HV);
