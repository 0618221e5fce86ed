//! Meaning of perf's options: the tables of `docs/perf.md`, from which the answers to perf's options are made.

const TABLES: &str = include_str!("../docs/perf.md");

/// An option of one of perf's commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PerfOption {
    /// The letter, without its hyphen.
    pub short: Option<char>,
    /// The long name, without its hyphens.
    pub long: Option<&'static str>,
    /// Support by the command of this name.
    pub here: Here,
    /// Remark on it, or the option that replaces it.
    pub remark: &'static str,
}

/// Support for an option of perf's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Here {
    /// It has the option, with the same meaning.
    Same,
    /// It always does what the option asks for.
    Always,
    /// Another option does it, or the letter means something else.
    Other,
    /// Nothing.
    No,
}

/// The options of perf's command of this name; none when the tables do not have it.
pub fn perf_options(command: &str) -> Vec<PerfOption> {
    let section = TABLES.split("\n## ").find_map(|section| section.strip_prefix(command)?.strip_prefix('\n'));
    section.into_iter().flat_map(str::lines).filter_map(row).flatten().collect()
}

/// The option that perf's command of this name has under what was given: `-b`, `--branch-any`.
pub(crate) fn perf_option(command: &str, given: &str) -> Option<PerfOption> {
    let is_it = |option: &PerfOption| match given.strip_prefix("--") {
        Some(long) => option.long == Some(long),
        None => given.strip_prefix('-').is_some_and(|letter| option.short.is_some_and(|it| letter.starts_with(it))),
    };
    perf_options(command).into_iter().find(is_it)
}

/// The options of a row: `` | `-b --branch-any`, `--aio` | no | remark | ``.
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
