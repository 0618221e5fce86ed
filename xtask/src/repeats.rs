//! Counts repeated tests over all runs that are recorded in a file below the target directory.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context, Result};

use crate::target_directory;

/// Number of runs in which chance explains one repeat of a test. A test that repeats more often needs a fix.
const RUNS_PER_REPEAT: u64 = 50;

/// Adds a run and its repeats to the file in the target directory. Returns lines about the tests that this run repeated.
///
/// # Errors
/// Fails if the file cannot be written.
pub(crate) fn add<'a>(repeats: impl Iterator<Item = &'a String>) -> Result<String> {
    let path = target_directory().join("repeats.txt");
    let (text, said) = with(&fs::read_to_string(&path).unwrap_or_default(), repeats);
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    Ok(said)
}

/// Returns the contents of the file after one more run, and lines about the repeats. Lines of the file are `RUNS runs` and `TIMES TEST`.
fn with<'a>(text: &str, repeats: impl Iterator<Item = &'a String>) -> (String, String) {
    let lines = text.lines().filter_map(|line| line.split_once(' '));
    let mut times: BTreeMap<&str, u64> = lines.filter_map(|(times, test)| Some((test, times.parse().ok()?))).collect();
    let runs = times.remove("runs").unwrap_or(0) + 1;
    let mut said = String::new();
    for line in repeats {
        let test = line.split(": ").next().unwrap_or(line);
        let times = times.entry(test).or_default();
        *times += 1;
        let mend = if *times > 1 && *times * RUNS_PER_REPEAT > runs { ": must be fixed" } else { "" };
        let _ = writeln!(said, "REPEATED {test}: {times} times in {runs} runs{mend}");
    }
    let mut text = format!("{runs} runs\n");
    for (test, times) in times {
        let _ = writeln!(text, "{times} {test}");
    }
    (text, said)
}

#[cfg(test)]
mod tests {
    use super::with;

    #[test]
    fn repeats_are_counted_over_runs() {
        let one = ["AGAIN x86-new shares: 3 of 5".to_owned()];
        let (text, said) = with("", one.iter());
        assert_eq!(said, "REPEATED AGAIN x86-new shares: 1 times in 1 runs\n");
        let (text, said) = with(&text, [].iter());
        assert_eq!(said, "");
        let (text, said) = with(&text, one.iter());
        assert_eq!(said, "REPEATED AGAIN x86-new shares: 2 times in 3 runs: must be fixed\n");
        assert_eq!(text, "3 runs\n2 AGAIN x86-new shares\n");
    }
}
