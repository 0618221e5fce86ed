//! Events by name: what `-e` says, turned into attrs as perf would open them.
//!
//! Names come from three places: tables of the ABI (software, hardware and cache events, raw codes), the PMUs in
//! `/sys/bus/event_source/devices`, and the tracepoints of tracefs. Nothing is opened here; whether the machine can
//! count an event shows when it is opened.

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

/// A tracepoint's names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tracepoint {
    /// `sched`.
    pub(crate) system: String,
    /// `sched_switch`.
    pub(crate) name: String,
}

/// One event to open.
#[derive(Debug, Clone)]
pub(crate) struct EventSpec {
    /// Name as it was written, or as its `name=` term says.
    pub(crate) name: String,
    /// `type`, `config` to `config4` (`bp_addr` and `bp_len` of breakpoints), `bp_type`, and the flags that modifiers
    /// set: `exclude_*`, `precise_ip`, `pinned`, `exclusive`. Everything else is the opener's.
    pub(crate) attr: EventAttr,
    /// The `period=` or `freq=` that the event itself asks for; stands above the options.
    pub(crate) rate: Option<Rate>,
    /// Default if neither event nor options say anything: tracepoints and breakpoints sample each time.
    pub(crate) default_rate: Option<Rate>,
    /// `:P`: `precise_ip` is 3, and to be lowered until the event opens.
    pub(crate) precise_as_possible: bool,
    /// The CPUs that the PMU counts on, where it does not count on all.
    pub(crate) cpus: Option<Vec<u32>>,
    /// Set for tracepoints.
    pub(crate) tracepoint: Option<Tracepoint>,
    /// Terms of perf that were understood and have no effect here.
    pub(crate) ignored_terms: Vec<String>,
}

/// Reads one `-e` argument, a list with commas.
///
/// # Errors
/// When it cannot be understood, or names what this machine does not have; the message has the names nearest to it.
pub(crate) fn parse(list: &str) -> Result<Vec<EventSpec>> {
    Catalog::system(list).parse(list)
}

/// The TRACING_DATA section for the tracepoints among `events`, `None` when there are none.
///
/// # Errors
/// When the formats cannot be read.
pub(crate) fn tracing_data(events: &[EventSpec]) -> Result<Option<Vec<u8>>> {
    let tracepoints: Vec<&Tracepoint> = events.iter().filter_map(|event| event.tracepoint.as_ref()).collect();
    if tracepoints.is_empty() {
        return Ok(None);
    }
    let tracefs = Tracefs::open().map_err(Error::Other)?;
    tracefs.section(&tracepoints).map(Some)
}

/// Defect of an event in the list, and its remedy.
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
    /// The running system. Tracefs is looked for, and mounted for ourselves if need be, only when `list` has
    /// tracepoints in it.
    fn system(list: &str) -> Catalog {
        let tracefs = if list.contains(':') { Tracefs::open() } else { Err("tracefs was not looked for".to_owned()) };
        Catalog { devices: PathBuf::from("/sys/bus/event_source/devices"), tracefs }
    }

    /// A tree of PMUs elsewhere, and no tracepoints.
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
    /// Names the event that is not understood, and the names nearest to it.
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

    /// Adds the events of `item` without its modifiers; returns its terms and modifiers.
    fn parse_parts<'a>(&self, item: &'a str, out: &mut Vec<EventSpec>) -> Result<(Option<Terms>, &'a str)> {
        if let Some(rest) = item.strip_prefix("mem:") {
            let (spec, modifiers) = breakpoint(item, rest)?;
            out.push(spec);
            return Ok((None, modifiers));
        }
        if let Some((head, rest)) = item.split_once('/') {
            let Some((inside, modifiers)) = rest.rsplit_once('/') else {
                return Err(wrong(item, "the closing `/` of its terms is missing"));
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

    /// `head/terms/`: a PMU's event, or any other event with terms.
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

    /// Adds the event that the whole word `head` names, if it does.
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

    /// A hardware, cache, raw or software event. Machines with several kinds of cores have one PMU for each, and need
    /// an event on each.
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
            // Bits 32 and up of a generalised event's config choose the PMU; raw codes go to the PMU's own type.
            let (kind, config) = match kind {
                event_type::RAW => (core.kind, config),
                _ => (kind, config | u64::from(core.kind) << 32),
            };
            out.push(spec(format!("{}/{item}/", core.name), kind, config, core.cpus()));
        }
    }

    /// `system:name`, both possibly patterns.
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
            // An event directory without an id (ftrace's own events) cannot be opened.
            let Ok(id) = tracefs.id(&system, &name) else { continue };
            out.push(EventSpec::tracepoint(format!("{system}:{name}"), &system, &name, id));
        }
        Ok(())
    }

    fn unknown(&self, item: &str, head: &str) -> Error {
        if matches!(head, "duration_time" | "user_time" | "system_time") {
            return wrong(item, "exists only for counting; it cannot sample");
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

/// An event of a PMU; where one spec means several PMUs, each event says whose it is.
fn pmu_event(item: &str, pmu: &Pmu, attr: EventAttr, several: bool) -> EventSpec {
    let name = match item.split_once('/') {
        Some((_, rest)) if several => format!("{}/{rest}", pmu.name),
        _ => item.to_owned(),
    };
    EventSpec { attr, cpus: pmu.cpus(), ..EventSpec::new(name, pmu.kind, 0) }
}

/// `addr[/len][:access]`, and the modifiers behind it.
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
    // A lone tail may be access or modifiers; no modifier is spelled with r, w and x alone.
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

/// The flags that keep an event out of user, kernel and hypervisor mode.
const EXCLUDE_MODES: AttrFlags = AttrFlags::EXCLUDE_USER.with(AttrFlags::EXCLUDE_KERNEL).with(AttrFlags::EXCLUDE_HV);
