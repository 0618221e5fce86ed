//! PMUs as sysfs describes them (`Documentation/ABI/testing/sysfs-bus-event_source-devices-{format,events}`).

use std::fs;
use std::path::{Path, PathBuf};

use bprec_format::EventAttr;

use super::{Result, Term, names, terms, wrong};
use crate::Error;
use bprec_filter::parse_cpu_list;
use bprec_host::Answer;

/// A PMU and its sysfs directory.
#[derive(Debug)]
pub(super) struct Pmu {
    /// Name of the directory, such as `cpu`, `msr`, `uncore_imc_0`.
    pub(super) name: String,
    /// `attr.type` of the events of this PMU.
    pub(super) kind: u32,
    dir: PathBuf,
}

/// All PMUs, sorted by name.
pub(super) fn all(devices: &Path) -> Vec<Pmu> {
    let Ok(entries) = fs::read_dir(devices) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let mut pmus: Vec<Pmu> = names.filter_map(|name| Pmu::open(devices, name)).collect();
    pmus.sort_by(|a, b| a.name.cmp(&b.name));
    pmus
}

/// PMUs of CPU cores: one on most machines, one per kind of core on hybrid machines, none in many guests.
pub(super) fn cores(devices: &Path) -> Vec<Pmu> {
    let mut pmus = all(devices);
    pmus.retain(|pmu| pmu.name == "cpu" || pmu.dir.join("cpus").exists());
    pmus
}

impl Pmu {
    fn open(devices: &Path, name: String) -> Option<Pmu> {
        let dir = devices.join(&name);
        let kind = fs::read_to_string(dir.join("type")).ok()?.trim().parse().ok()?;
        Some(Pmu { name, kind, dir })
    }

    /// CPUs on which to open the events: the CPUs of the PMU's cores, or one CPU per package for an uncore PMU. `None` if
    /// sysfs lists no CPUs.
    pub(super) fn cpus(&self) -> Option<Vec<u32>> {
        let read = |file: &str| fs::read_to_string(self.dir.join(file)).ok();
        parse_cpu_list(&read("cpus").or_else(|| read("cpumask"))?)
    }

    /// Returns true if the PMU has an event of this name in `events/`.
    pub(super) fn has_event(&self, name: &str) -> bool {
        is_file_name(name) && self.dir.join("events").join(name).exists()
    }

    /// Event names in `events/`, without the `.unit` and `.scale` files.
    pub(super) fn event_names(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.dir.join("events")) else { return Vec::new() };
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        names.filter(|name| !name.contains('.')).collect()
    }

    /// Attributes for a list of terms: `type` and the config words.
    pub(super) fn attr(&self, item: &str, terms: &[Term]) -> Result<EventAttr> {
        let mut attr = EventAttr { kind: self.kind, ..EventAttr::default() };
        // The terms of a named event are applied first, so that other terms of the list override them.
        for (key, value) in terms {
            if value.is_none() && self.has_event(key) {
                for (key, value) in self.event_terms(item, key)? {
                    self.apply(item, &key, value.as_deref(), &mut attr)?;
                }
            }
        }
        for (key, value) in terms {
            if value.is_some() || !self.has_event(key) {
                self.apply(item, key, value.as_deref(), &mut attr)?;
            }
        }
        Ok(attr)
    }

    /// Terms in the file `events/<name>`.
    fn event_terms(&self, item: &str, name: &str) -> Result<Vec<Term>> {
        let path = self.dir.join("events").join(name);
        let text = fs::read_to_string(&path)
            .map_err(|error| wrong(item, format!("{}: {}", path.display(), Answer(&error))))?;
        Ok(terms::Terms::parse(item, text.trim())?.config)
    }

    fn apply(&self, item: &str, key: &str, value: Option<&str>, attr: &mut EventAttr) -> Result<()> {
        let number = match value {
            None => None,
            Some(text) => {
                Some(terms::number(text).ok_or_else(|| wrong(item, format!("`{key}={text}` is not a number")))?)
            }
        };
        let format = is_file_name(key).then(|| fs::read_to_string(self.dir.join("format").join(key)).ok()).flatten();
        if let Some(format) = format {
            let (word, bits) = parse_format(format.trim()).ok_or_else(|| {
                wrong(
                    item,
                    format!(
                        "{}/format/{key}: bprec does not understand the kernel's description {format:?}",
                        self.name
                    ),
                )
            })?;
            // A term without a value is a flag of one bit.
            let number = match number {
                Some(number) => number,
                None if bits.count_ones() == 1 => 1,
                None => return Err(wrong(item, format!("`{key}` needs a value, as in {key}=1"))),
            };
            let placed = deposit(number, bits).ok_or_else(|| {
                let most = bits.count_ones();
                wrong(item, format!("the value {number:#x} is too large for `{key}`, which has {most} bits"))
            })?;
            let config = config_word(attr, word);
            *config = *config & !bits | placed;
            return Ok(());
        }
        match (word_number(key), number, names::raw(key)) {
            (Some(word), Some(number), _) => *config_word(attr, word) = number,
            (None, None, Some(code)) => attr.config = code,
            _ => return Err(self.unknown_term(item, key)),
        }
        Ok(())
    }

    fn unknown_term(&self, item: &str, key: &str) -> Error {
        let formats = fs::read_dir(self.dir.join("format")).into_iter().flatten().flatten();
        let terms = formats.filter_map(|entry| entry.file_name().into_string().ok());
        let near = names::closest(key, terms.chain(self.event_names()));
        wrong(item, format!("{} has no event or term `{key}`{near}", self.name))
    }
}

/// Returns true if `name` is a plain file name, which cannot lead out of a directory.
fn is_file_name(name: &str) -> bool {
    !name.is_empty() && !name.contains('/') && name != "." && name != ".."
}

/// Index of a config word: 0 for `config`, 1 to 4 for `config1` to `config4`.
fn word_number(name: &str) -> Option<usize> {
    match name.strip_prefix("config")? {
        "" => Some(0),
        digit => digit.parse().ok().filter(|n| (1..=4).contains(n)),
    }
}

fn config_word(attr: &mut EventAttr, word: usize) -> &mut u64 {
    match word {
        1 => &mut attr.config1,
        2 => &mut attr.config2,
        3 => &mut attr.config3,
        4 => &mut attr.config4,
        _ => &mut attr.config,
    }
}

/// Parses `config1:0-7,32` into the index of a config word and a mask of its bits.
fn parse_format(text: &str) -> Option<(usize, u64)> {
    let (word, ranges) = text.split_once(':')?;
    let mut bits = 0u64;
    for range in ranges.split(',') {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let (low, high): (u32, u32) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
        if low > high || high > 63 {
            return None;
        }
        bits |= u64::MAX >> (63 - high) & u64::MAX << low;
    }
    Some((word_number(word)?, bits))
}

/// Spreads the bits of `value` over the set bits of `bits`, lowest first; `None` if the value does not fit.
fn deposit(value: u64, bits: u64) -> Option<u64> {
    let (mut left, mut placed) = (value, 0);
    for bit in (0..64).filter(|bit| bits >> bit & 1 == 1) {
        placed |= (left & 1) << bit;
        left >>= 1;
    }
    (left == 0).then_some(placed)
}
