//! Compares the skipped tests with the list of tests that may be skipped (`tests/skips`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::{Context, Result, ensure};

/// Path of the list of tests that may be skipped.
pub(crate) const LIST: &str = "tests/skips";
/// Place name of this machine in the list; other places are guests.
const HOST: &str = "host";
/// Place of a line about all places, and test of a line about all tests.
pub(crate) const ANY: &str = "*";

/// A test that was skipped, or a skipped part of a test.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Skip {
    /// Name of the guest; empty for this machine.
    pub(crate) place: String,
    pub(crate) test: String,
    pub(crate) reason: String,
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.place.is_empty() { HOST } else { &self.place };
        write!(f, "SKIP {place} {}: {}", self.test, self.reason)
    }
}

/// Returns a test's name without its modules, so that names stay the same when a test moves to another file.
pub(crate) fn short(test: &str) -> &str {
    test.rsplit("::").next().unwrap_or(test)
}

/// A line of the list.
#[derive(Debug)]
pub(crate) struct Expected<'a> {
    place: &'a str,
    lack: &'a str,
    pub(crate) test: &'a str,
    /// Text that the reason must contain.
    pub(crate) text: &'a str,
}

impl Expected<'_> {
    fn is_at(&self, place: &str) -> bool {
        match self.place {
            ANY => true,
            "guests" => !place.is_empty(),
            HOST => place.is_empty(),
            guest => guest == place,
        }
    }

    fn is_of(&self, place: &str, test: &str) -> bool {
        self.is_at(place) && [ANY, test].contains(&self.test)
    }
}

/// Parses the lines of the list: place, lack, test, and a text that the reason must contain.
///
/// # Errors
/// Fails on a line with fewer than four words.
pub(crate) fn parse(list: &str) -> Result<Vec<Expected<'_>>> {
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.splitn(4, ' ');
            let mut next = || words.next().with_context(|| format!("{LIST}: expected four words: {line}"));
            Ok(Expected { place: next()?, lack: next()?, test: next()?, text: next()? })
        })
        .collect()
}

/// Returns lines `TEST REASON` for the tests that a guest does not start.
///
/// # Errors
/// Fails as [`parse`] does.
pub(crate) fn withheld(list: &str, guest: &str) -> Result<String> {
    let lines = parse(list)?.into_iter().filter(|it| it.lack == "withheld" && it.is_at(guest));
    Ok(lines.map(|it| format!("{} {}\n", it.test, it.text)).collect())
}

/// Returns the faults of a run: skips that no line of the list explains, skips for something that `required` names, and tests that ran although the
/// list says that they cannot. The head of the list describes the words of its lines.
///
/// # Errors
/// Fails if the list is malformed, or `required` contains an unknown name.
pub(crate) fn faults(
    skipped: &[Skip],
    ran: &BTreeSet<(String, String)>,
    list: &str,
    required: &str,
) -> Result<Vec<String>> {
    let list = parse(list)?;
    let required: Vec<&str> = required.split(',').filter(|name| !name.is_empty()).collect();
    for name in &required {
        ensure!(list.iter().any(|it| it.test == ANY && it.lack == *name), "BPREC_REQUIRE: unknown: {name}");
    }
    let mut faults = Vec::new();
    let mut lacking: BTreeMap<&str, &str> = BTreeMap::new();
    for skip in skipped {
        let test = short(&skip.test);
        let explains = |it: &&Expected<'_>| it.is_of(&skip.place, test) && skip.reason.contains(it.text);
        match list.iter().find(explains) {
            None => faults.push(format!("{skip}: not in {LIST}")),
            Some(it) if it.test != ANY && skip.place.is_empty() => drop(lacking.insert(it.lack, test)),
            Some(it) if it.test == ANY && required.contains(&it.lack) => {
                faults.push(format!("{skip}: {} is required", it.lack))
            }
            Some(_) => {}
        }
    }
    let is_skipped = |place: &str, test: &str| skipped.iter().any(|it| it.place == place && short(&it.test) == test);
    for (place, test) in ran.iter().filter(|(place, test)| !is_skipped(place, test)) {
        for Expected { lack, .. } in list.iter().filter(|it| it.test != ANY && it.is_of(place, test)) {
            if *lack != "chance" && (!place.is_empty() || ["always", "withheld"].contains(lack)) {
                faults.push(format!("{test} ran, but {LIST} says that it never runs here ({lack})"));
            } else if let Some(other) = lacking.get(lack).filter(|_| *lack != "chance") {
                faults.push(format!("{test} ran, but {other} was skipped; {LIST}: both need {lack}"));
            }
        }
    }
    Ok(faults)
}

#[cfg(test)]
mod tests {
    use super::{Skip, faults, withheld};
    use std::collections::BTreeSet;

    const LIST: &str = "# place lack test reason\n\nhost pmu counts_cycles hardware event\nhost pmu counts_misses hardware event\n\
                        guests withheld shares compares times\nx86-5.10 btf names needs BTF\nhost chance late fired late\n\
                        x86-5.10 tools paths needs cc\n* root * needs root\n* perf * no perf\n* tools * needs cc\n";

    fn skip(place: &str, test: &str, reason: &str) -> Skip {
        Skip { place: place.into(), test: test.into(), reason: reason.into() }
    }

    fn judged(skipped: &[Skip], ran: &[(&str, &str)], required: &str) -> Vec<String> {
        let ran: BTreeSet<_> = ran.iter().map(|(place, test)| ((*place).to_owned(), (*test).to_owned())).collect();
        faults(skipped, &ran, LIST, required).unwrap()
    }

    #[test]
    fn an_unlisted_skip_is_a_fault_unless_the_machine_accounts_for_it() {
        let listed = skip("", "it::counts_cycles", "no hardware event 1");
        assert_eq!(judged(std::slice::from_ref(&listed), &[], ""), Vec::<String>::new());
        let other_reason = skip("", "counts_cycles", "the moon is full");
        assert_eq!(judged(&[other_reason], &[], ""), ["SKIP host counts_cycles: the moon is full: not in tests/skips"]);
        let other_place = skip("x86-6.12", "counts_cycles", "no hardware event 1");
        assert_eq!(judged(&[other_place], &[], "").len(), 1);
        let root = skip("", "records", "needs root");
        assert_eq!(judged(std::slice::from_ref(&root), &[], "perf"), Vec::<String>::new());
        assert_eq!(judged(&[root], &[], "root,perf"), ["SKIP host records: needs root: root is required"]);
        // A line about one test says that the place never has what the test needs.
        let paths = |place| skip(place, "paths", "needs cc");
        assert_eq!(judged(&[paths("x86-5.10")], &[], "tools"), Vec::<String>::new());
        assert_eq!(judged(&[paths("")], &[], "tools"), ["SKIP host paths: needs cc: tools is required"]);
        assert!(faults(&[], &BTreeSet::new(), LIST, "moon").is_err());
        assert!(faults(&[], &BTreeSet::new(), LIST, "pmu").is_err());
        assert!(faults(&[], &BTreeSet::new(), "host pmu short", "").is_err());
    }

    #[test]
    fn a_listed_test_that_ran_is_a_fault() {
        // This machine has a PMU or has none, so one skipped and one executed PMU test contradict each other.
        assert_eq!(judged(&[], &[("", "counts_cycles"), ("", "counts_misses")], ""), Vec::<String>::new());
        let one = skip("", "counts_cycles", "hardware event 1");
        assert_eq!(judged(std::slice::from_ref(&one), &[("", "counts_cycles"), ("", "counts_misses")], "").len(), 1);
        assert_eq!(judged(&[one], &[("", "counts_cycles")], ""), Vec::<String>::new());
        // The facilities of a guest are fixed, so a listed test that runs there is a fault.
        assert_eq!(judged(&[], &[("x86-5.10", "names")], "").len(), 1);
        assert_eq!(
            judged(&[], &[("x86-6.12", "names"), ("x86-new", "shares"), ("", "shares"), ("", "late")], "").len(),
            1
        );
        assert_eq!(withheld(LIST, "x86-new").unwrap(), "shares compares times\n");
        assert_eq!(withheld(LIST, "").unwrap(), "");
    }
}
