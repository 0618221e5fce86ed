//! Terms between the slashes of `pmu/term=value,term/`.

use super::{Rate, Result, wrong};

/// Name and value of a term.
pub(super) type Term = (String, Option<String>);

/// Terms of an event. Terms that any event can have are separate from terms that the PMU defines.
#[derive(Debug, Default)]
pub(super) struct Terms {
    /// Rate given by `period=` or `freq=`.
    pub(super) rate: Option<Rate>,
    /// Name given by `name=`.
    pub(super) name: Option<String>,
    /// Terms for the PMU, in order, with their values.
    pub(super) config: Vec<Term>,
}

impl Terms {
    /// Parses `text`, the terms of the event `item`.
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
                _ => terms.config.push((key.to_owned(), value.map(str::to_owned))),
            }
        }
        Ok(terms)
    }
}

/// Parses a decimal number, or a hexadecimal number with the prefix `0x`.
pub(super) fn number(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}
