//! Options of perf and their equivalents in bprec, from the tables of `docs/perf.md`.

const TABLES: &str = include_str!("../docs/perf.md");

/// An option of one of perf's commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerfOption {
    /// Short name, without its hyphen.
    pub short: Option<char>,
    /// Long name, without its hyphens.
    pub long: Option<&'static str>,
    /// Support in bprec's command of the same name.
    pub here: Here,
    /// Explanation, or the option of bprec that replaces perf's option.
    pub remark: &'static str,
}

/// Support in bprec for an option of perf.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Here {
    /// bprec has the option with the same meaning.
    Same,
    /// bprec always behaves as the option asks.
    Always,
    /// Another option of bprec replaces perf's option, or the letter has another meaning in bprec.
    Other,
    /// bprec has no equivalent.
    No,
}

/// Options of the perf command with this name; empty if `docs/perf.md` has no table for it.
pub fn perf_options(command: &str) -> Vec<PerfOption> {
    let section = TABLES.split("\n## ").find_map(|section| section.strip_prefix(command)?.strip_prefix('\n'));
    section.into_iter().flat_map(str::lines).filter_map(row).flatten().collect()
}

/// Finds the option of a perf command by an argument as typed: `-b` or `--branch-any`.
pub(crate) fn perf_option(command: &str, given: &str) -> Option<PerfOption> {
    let is_it = |option: &PerfOption| match given.strip_prefix("--") {
        Some(long) => option.long == Some(long),
        None => given.strip_prefix('-').is_some_and(|letter| option.short.is_some_and(|it| letter.starts_with(it))),
    };
    perf_options(command).into_iter().find(is_it)
}

/// Parses the options of a table row: `` | `-b --branch-any`, `--aio` | no | remark | ``.
fn row(line: &'static str) -> Option<impl Iterator<Item = PerfOption>> {
    let [options, here, remark] = cells(line)?;
    let here = match here {
        "same" => Here::Same,
        "always" => Here::Always,
        "other" => Here::Other,
        "no" => Here::No,
        _ => return None,
    };
    Some(options.split(", ").map(move |option| {
        let mut names = option.trim_matches('`').split(' ');
        let long = names.clone().find_map(|name| name.strip_prefix("--"));
        let short = names.find_map(|name| name.strip_prefix('-').filter(|name| name.len() == 1)?.chars().next());
        PerfOption { short, long, here, remark }
    }))
}

fn cells(line: &'static str) -> Option<[&'static str; 3]> {
    let cells: Vec<_> = line.strip_prefix("| ")?.strip_suffix('|')?.split(" | ").map(str::trim).collect();
    cells.try_into().ok()
}
