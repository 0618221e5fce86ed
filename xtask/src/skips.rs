//! Compares the skipped tests with the list of tests that may be skipped (`tests/skips`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::{Result, bail, ensure};

/// Path of the list of tests that may be skipped.
pub(crate) const LIST: &str = "tests/skips";
/// Place of this machine; other places are guests.
pub(crate) const HOST: &str = "host";
/// Place of a line about all places, and test of a line about all tests.
pub(crate) const ANY: &str = "*";

/// A test that was skipped, or a skipped part of a test.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Skip {
    /// [`HOST`] or the name of the guest.
    pub(crate) place: String,
    pub(crate) test: String,
    pub(crate) reason: String,
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SKIP {} {}: {}", self.place, self.test, self.reason)
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
    fn is_of(&self, place: &str, test: &str) -> bool {
        let is_at = [ANY, place].contains(&self.place) || self.place == "guests" && place != HOST;
        is_at && [ANY, test].contains(&self.test)
    }
}

/// Parses the lines of the list: place, lack, test, and a text that the reason must contain.
///
/// # Errors
/// Fails on a line with fewer than four words.
pub(crate) fn parse(list: &str) -> Result<Vec<Expected<'_>>> {
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let expected = lines.map(|line| match line.splitn(4, ' ').collect::<Vec<_>>()[..] {
        [place, lack, test, text] => Ok(Expected { place, lack, test, text }),
        _ => bail!("{LIST}: expected four words: {line}"),
    });
    expected.collect()
}

/// Returns lines `TEST REASON` for the tests that a guest does not start.
///
/// # Errors
/// Fails as [`parse`] does.
pub(crate) fn withheld(list: &str, guest: &str) -> Result<String> {
    let lines = parse(list)?.into_iter().filter(|it| it.lack == "withheld" && it.is_of(guest, it.test));
    Ok(lines.map(|it| format!("{} {}\n", it.test, it.text)).collect())
}

/// Returns the faults of a run: skips that no line of the list explains, skips for something that `required` names, and tests that ran although the
/// list says that they cannot. The head of the list describes the words of its lines.
///
/// # Errors
/// Fails if the list is malformed, or `required` contains an unknown name.
pub(crate) fn faults(
    skipped: &BTreeSet<Skip>,
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
    // Facilities that this machine lacks, each with a test that was skipped.
    let mut lacking: BTreeMap<&str, &str> = BTreeMap::new();
    for skip in skipped {
        let test = short(&skip.test);
        match list.iter().find(|it| it.is_of(&skip.place, test) && skip.reason.contains(it.text)) {
            None => faults.push(format!("{skip}: not in {LIST}")),
            Some(Expected { test: ANY, lack, .. }) if !required.contains(lack) => {}
            Some(Expected { test: ANY, lack, .. }) => faults.push(format!("{skip}: {lack} is required")),
            Some(it) if skip.place == HOST => drop(lacking.insert(it.lack, test)),
            Some(_) => {}
        }
    }
    let skipped: BTreeSet<_> = skipped.iter().map(|it| (it.place.as_str(), short(&it.test))).collect();
    for (place, test) in ran.iter().filter(|(place, test)| !skipped.contains(&(place, test))) {
        let listed = list.iter().filter(|it| it.test != ANY && it.lack != "chance" && it.is_of(place, test));
        for Expected { lack, .. } in listed {
            if place != HOST || ["always", "withheld"].contains(lack) {
                faults.push(format!("{test} ran, but {LIST} says that it never runs here ({lack})"));
            } else if let Some(other) = lacking.get(lack) {
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
        faults(&skipped.iter().cloned().collect(), &ran, LIST, required).unwrap()
    }

    #[test]
    fn an_unlisted_skip_is_a_fault_unless_the_machine_accounts_for_it() {
        let listed = skip("host", "it::counts_cycles", "no hardware event 1");
        assert_eq!(judged(std::slice::from_ref(&listed), &[], ""), Vec::<String>::new());
        let other_reason = skip("host", "counts_cycles", "the moon is full");
        assert_eq!(judged(&[other_reason], &[], ""), ["SKIP host counts_cycles: the moon is full: not in tests/skips"]);
        let other_place = skip("x86-6.12", "counts_cycles", "no hardware event 1");
        assert_eq!(judged(&[other_place], &[], "").len(), 1);
        let root = skip("host", "records", "needs root");
        assert_eq!(judged(std::slice::from_ref(&root), &[], "perf"), Vec::<String>::new());
        assert_eq!(judged(&[root], &[], "root,perf"), ["SKIP host records: needs root: root is required"]);
        // A line about one test says that the place never has what the test needs.
        let paths = |place| skip(place, "paths", "needs cc");
        assert_eq!(judged(&[paths("x86-5.10")], &[], "tools"), Vec::<String>::new());
        assert_eq!(judged(&[paths("host")], &[], "tools"), ["SKIP host paths: needs cc: tools is required"]);
        assert!(faults(&BTreeSet::new(), &BTreeSet::new(), LIST, "moon").is_err());
        assert!(faults(&BTreeSet::new(), &BTreeSet::new(), LIST, "pmu").is_err());
        assert!(faults(&BTreeSet::new(), &BTreeSet::new(), "host pmu short", "").is_err());
    }

    #[test]
    fn a_listed_test_that_ran_is_a_fault() {
        // This machine has a PMU or has none, so one skipped and one executed PMU test contradict each other.
        assert_eq!(judged(&[], &[("host", "counts_cycles"), ("host", "counts_misses")], ""), Vec::<String>::new());
        let one = skip("host", "counts_cycles", "hardware event 1");
        assert_eq!(
            judged(std::slice::from_ref(&one), &[("host", "counts_cycles"), ("host", "counts_misses")], "").len(),
            1
        );
        assert_eq!(judged(&[one], &[("host", "counts_cycles")], ""), Vec::<String>::new());
        // The facilities of a guest are fixed, so a listed test that runs there is a fault.
        assert_eq!(judged(&[], &[("x86-5.10", "names")], "").len(), 1);
        assert_eq!(
            judged(&[], &[("x86-6.12", "names"), ("x86-new", "shares"), ("host", "shares"), ("host", "late")], "")
                .len(),
            1
        );
        assert_eq!(withheld(LIST, "x86-new").unwrap(), "shares compares times\n");
        assert_eq!(withheld(LIST, "host").unwrap(), "");
    }
}
