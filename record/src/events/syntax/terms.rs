//! Terms between the slashes of `pmu/term=value,term/`.

use super::{Rate, Result, wrong};

/// The terms of an event, those that any event may have sorted out from those that its PMU must explain.
#[derive(Debug, Default)]
pub(super) struct Terms {
    /// `period=`, `freq=`.
    pub(super) rate: Option<Rate>,
    /// `name=`.
    pub(super) name: Option<String>,
    /// Terms for the PMU, in order, with their values.
    pub(super) config: Vec<(String, Option<String>)>,
    /// Terms without effect here.
    pub(super) ignored: Vec<String>,
}

/// Terms of perf that do not change what is counted.
const WITHOUT_EFFECT: [&str; 14] = [
    "aux-output",
    "branch_type",
    "call-graph",
    "driver-config",
    "inherit",
    "max-stack",
    "metric-id",
    "no-inherit",
    "no-overwrite",
    "nr",
    "overwrite",
    "percore",
    "stack-size",
    "time",
];

impl Terms {
    /// Reads `text`, the terms of the event `item`.
    pub(super) fn parse(item: &str, text: &str) -> Result<Terms> {
        let mut terms = Terms::default();
        for term in text.split(',').map(str::trim).filter(|term| !term.is_empty()) {
            let (key, value) = match term.split_once('=') {
                Some((key, value)) => (key.trim(), Some(value.trim().trim_matches(['\'', '"']))),
                None => (term, None),
            };
            let positive = || {
                value
                    .and_then(number)
                    .filter(|number| *number > 0)
                    .ok_or_else(|| wrong(item, format!("`{key}=` needs a number above 0")))
            };
            match key {
                "period" => terms.rate = Some(Rate::Period(positive()?)),
                "freq" => terms.rate = Some(Rate::Frequency(positive()?)),
                "name" => {
                    let name = value.filter(|name| !name.is_empty());
                    terms.name = Some(name.ok_or_else(|| wrong(item, "`name=` needs a name"))?.to_owned());
                }
                _ if WITHOUT_EFFECT.contains(&key) => {
                    terms.ignored.push(key.to_owned());
                }
                _ => terms.config.push((key.to_owned(), value.map(str::to_owned))),
            }
        }
        Ok(terms)
    }
}

/// A decimal number, or a hexadecimal one behind `0x`.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
