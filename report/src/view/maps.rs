//! BPF maps as text: a few lines about each map, and a line per entry; and as a table with a line per map.

use super::blocks::{Block, View, problems};
use super::c_types::definitions;
use super::columns::{LineColumn, LineColumns};
use super::grid::Column;
use super::line::TonedLine;
use super::screen::Screen;
use crate::model::text::{UNKNOWN, grouped, seconds, wrap};
use crate::options::Tone;
use crate::query::maps::{EntryValue, Map, MapsReport, StackTraceFrame};
use bprec_format::bpf::names::map_flags;
use bprec_format::bprec::state;
use std::io;

/// Output of lines that are wrapped to a width.
pub(super) struct WrappedLines<'o> {
    pub(super) out: Screen<'o>,
    pub(super) width: usize,
}

impl WrappedLines<'_> {
    /// Writes a text, indented by `begin` columns; further lines by four more.
    fn line(&mut self, begin: usize, text: &str) -> io::Result<()> {
        let hanging = begin + 4;
        let indents = [begin].into_iter().chain(std::iter::repeat(hanging));
        let mut lines = wrap(text, self.width, begin, hanging).into_iter().zip(indents);
        lines.try_for_each(|(line, indent)| writeln!(self.out, "{:indent$}{line}", ""))
    }
}

pub(super) fn write(report: &MapsReport<'_>, out: &mut WrappedLines<'_>) -> io::Result<()> {
    for (n, map) in report.maps().enumerate() {
        if n > 0 {
            writeln!(out.out)?;
        }
        out.out.line(&TonedLine::of(Tone::Bold, format!("MAP {} {}", map.id, map.name)))?;
        facts(&map, out)?;
        users(report, &map, out)?;
        types(&map, out)?;
        contents(report, &map, out)?;
    }
    for problem in &report.problems {
        out.line(0, &format!("problem: {problem}"))?;
    }
    Ok(())
}

/// Columns of the tables: a line per map.
fn fields<'r>(report: &'r MapsReport<'r>) -> LineColumns<'r, Map<'r>> {
    type F<'r> = LineColumn<'r, Map<'r>>;
    let number = |name: &'static str, heading, value: fn(&state::Map) -> Option<u64>| {
        let of = move |map: &Map<'_>| map.about.and_then(value);
        F::csv(name, of)
            .and_text(Column::number(heading), move |map| of(map).map_or_else(|| UNKNOWN.to_owned(), grouped))
    };
    let map_type = |map: &Map<'_>| map.map_type().map(|it| it.to_string());
    let flags = |map: &Map<'_>| {
        let frozen = map.about.is_some_and(|about| about.frozen).then(|| "frozen".to_owned());
        map.about.map(|about| map_flags(about.flags).chain(frozen).collect::<Vec<_>>().join(" "))
    };
    let users = |map: &Map<'_>| {
        report.users(map).map(|user| format!("{} {}", user.id, user.name)).collect::<Vec<_>>().join(", ")
    };
    LineColumns::new([
        F::csv("id", |map| Some(map.id)).and_text(Column::number("ID"), |map| map.id.to_string()),
        F::csv("name", |map| Some(map.name.to_string())).and_text(Column::text("MAP"), |map| map.name.to_string()),
        F::csv("type", map_type).and_text(Column::text("TYPE"), move |map| map_type(map).unwrap_or_default()),
        number("key_bytes", "KEY", |about| Some(about.key_bytes.into())),
        number("value_bytes", "VALUE", |about| Some(about.value_bytes.into())),
        number("max_entries", "MAX ENTRIES", |about| Some(about.max_entries.into())),
        number("memory_bytes", "MEMORY", |about| about.memlock_bytes),
        F::csv("flags", flags).and_text(Column::text("FLAGS"), move |map| flags(map).unwrap_or_default()),
        F::csv("entries", |map| map.contents.map(|contents| contents.len())),
        F::csv("programs", move |map| Some(users(map))).and_text(Column::text("PROGRAMS"), users),
    ])
}

/// Table for Markdown.
pub(super) fn view<'r>(report: &'r MapsReport<'r>) -> View<'r> {
    let maps: Vec<Map<'_>> = report.maps().collect();
    let mut view = View::default();
    view.push(Block::Table(fields(report).sheet(&maps, &[])));
    view.notes(Vec::<String>::new(), problems(&report.problems));
    view
}

pub(super) fn csv(report: &MapsReport<'_>, out: &mut Screen<'_>) -> io::Result<()> {
    fields(report).write_csv(report.maps(), out)
}

fn facts(map: &Map<'_>, out: &mut WrappedLines<'_>) -> io::Result<()> {
    let Some(about) = map.about else { return out.line(2, "the recording has only the map's id") };
    let memory = about.memlock_bytes.map_or_else(|| UNKNOWN.to_owned(), grouped);
    let map_type = map.map_type().map(|it| it.to_string()).unwrap_or_default();
    let (key_bytes, value_bytes) = (grouped(about.key_bytes.into()), grouped(about.value_bytes.into()));
    let max_entries = grouped(about.max_entries.into());
    let flags: Vec<String> = map_flags(about.flags).collect();
    let flags = if flags.is_empty() { String::new() } else { format!(", flags {}", flags.join(" ")) };
    let frozen = if about.frozen { ", frozen" } else { "" };
    let text = format!(
        "{map_type}, key {key_bytes} bytes, value {value_bytes} bytes, at most {max_entries} entries, memory {memory} \
         bytes{flags}{frozen}"
    );
    out.line(2, &text)
}

/// Limit on listed programs per map; JSON lists all programs.
const USERS: usize = 100;

fn users(report: &MapsReport<'_>, map: &Map<'_>, out: &mut WrappedLines<'_>) -> io::Result<()> {
    let users = report.users(map);
    let more = users.len().saturating_sub(USERS);
    if users.len() == 0 {
        return out.line(2, "used by no program of the recording");
    }
    let mut users: Vec<String> = users.take(USERS).map(|user| format!("{} {}", user.id, user.name)).collect();
    if more > 0 {
        users.push(format!("+{} more", grouped(more as u64)));
    }
    out.line(2, &format!("used by {}", users.join(", ")))
}

fn types(map: &Map<'_>, out: &mut WrappedLines<'_>) -> io::Result<()> {
    let Some(types) = &map.types else { return Ok(()) };
    for (what, id) in [("key  ", types.key), ("value", types.value)] {
        if id == 0 {
            continue;
        }
        for (n, definition) in definitions(types.btf, id).iter().enumerate() {
            out.line(2, &format!("{}  {definition}", if n == 0 { what } else { "     " }))?;
        }
    }
    if types.annotated {
        out.line(2, "types from a ____btf_map_ struct of the program")?;
    }
    Ok(())
}

fn contents(report: &MapsReport<'_>, map: &Map<'_>, out: &mut WrappedLines<'_>) -> io::Result<()> {
    let Some(contents) = map.contents else { return Ok(()) };
    let when = seconds(report.since_start_ns(contents));
    let cut = contents.cut().map(|cut| format!("; {}", cut)).unwrap_or_default();
    let entries = match contents.len() {
        1 => "1 entry".to_owned(),
        entries => format!("{} entries", grouped(entries as u64)),
    };
    out.line(2, &format!("{entries} at {when} s{cut}"))?;
    for entry in report.entries(map) {
        let key = entry.key.map(|key| format!("{}: ", key)).unwrap_or_default();
        match &entry.values[..] {
            [(None, EntryValue::Stack(frames))] => {
                out.line(4, &format!("{key}{} frames", frames.len()))?;
                frames.iter().try_for_each(|frame| out.line(6, &self::frame(frame)))?;
            }
            [(None, value)] => out.line(4, &format!("{key}{}", shown(report, value)))?,
            values => {
                out.line(4, key.trim_end())?;
                for (cpu, value) in values {
                    let cpu = cpu.map_or_else(String::new, |cpu| format!("cpu {cpu}: "));
                    out.line(6, &format!("{cpu}{}", shown(report, value)))?;
                }
            }
        }
    }
    match contents.len().checked_sub(report.limit.unwrap_or(usize::MAX)) {
        None | Some(0) => Ok(()),
        Some(more) => out.line(4, &format!("... {} more", grouped(more as u64))),
    }
}

fn shown(report: &MapsReport<'_>, value: &EntryValue<'_>) -> String {
    let name = |name: Option<&str>| name.map(|name| format!(" {}", name)).unwrap_or_default();
    match value {
        EntryValue::Value(value) => value.to_string(),
        EntryValue::Stack(frames) => frames.iter().map(frame).collect::<Vec<_>>().join(" "),
        EntryValue::Program(id) => format!("program {id}{}", name(report.program_name(*id))),
        EntryValue::Map(id) => format!("map {id}{}", name(report.map_name(*id))),
    }
}

fn frame(frame: &StackTraceFrame) -> String {
    match frame {
        StackTraceFrame::Address { addr, symbol: None, .. } => format!("{addr:#x}"),
        StackTraceFrame::Address { addr, symbol: Some(symbol), offset } => {
            let offset = offset.unwrap_or(0);
            // `symbol` is the name of a function. The name of its module, if any, follows after a space.
            let (function, module) = symbol.split_once(' ').unwrap_or((symbol, ""));
            let module = if module.is_empty() { String::new() } else { format!(" {module}") };
            format!("{addr:#x} {function}+{offset:#x}{module}")
        }
        StackTraceFrame::File { build_id, offset } => format!("{build_id}+{offset:#x}"),
    }
}
