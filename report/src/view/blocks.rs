//! A view as data: comments, tables and notes in their order. Writers and the interactive screen read these blocks.

use super::grid::{Column, Sheet};
use super::line::TonedLine;
use super::screen::Screen;
use crate::model::text::{clean, counted, wrap};
use crate::model::{Gravity, Note};
use crate::options::Tone;
use rustc_hash::FxHashSet;
use std::borrow::Cow;
use std::io;

/// Returns the part of a table by its index; `None` after the last part.
type PartFn<'v> = Box<dyn Fn(usize) -> Option<Sheet> + 'v>;

/// Returns the columns of a table.
type ColumnsFn<'v> = Box<dyn Fn() -> Vec<Column> + 'v>;

/// Returns the blocks of an event by its index; `None` after the last event.
type EventBlocks<'v> = Box<dyn Fn(usize) -> Option<Vec<Block<'static>>> + 'v>;

/// A block of a view.
pub(super) enum Block<'v> {
    /// A comment in plain text; [`comments`] does not wrap it.
    Fact(String),
    /// A comment in bold; [`comments`] does not wrap it.
    Title(String),
    /// A wrapped comment in a tone; `None` for plain text.
    Note(String, Option<Tone>),
    /// A bold line without the `#` of a comment.
    Heading(String),
    /// A line without the `#` of a comment.
    Text(String),
    /// An empty comment line.
    Gap,
    /// An empty line.
    Blank,
    /// A table with header, rule and totals.
    Table(Sheet),
    /// A table that is made part by part, to limit memory.
    Parts(ColumnsFn<'v>, PartFn<'v>),
    /// A line with tones, cut to the width.
    Line(TonedLine),
    /// Legend and notes in dim comments, below a gap. The notes are written the worst first, at most [`NOTES_SHOWN`] unless all are requested.
    Notes(Legend, Vec<GradedNote>),
    /// Blocks of events, made one event at a time because there may be thousands.
    Series(EventBlocks<'v>),
}

/// Meaning of columns and marks.
#[derive(Default)]
pub(super) struct Legend {
    /// Columns with their meanings.
    pub(super) columns: Vec<Column>,
    /// Meanings of marks, each with the name of the column that has the mark. A meaning is left out if its column is not shown. `None` for a meaning
    /// that is always shown.
    pub(super) marks: Vec<(Option<&'static str>, Cow<'static, str>)>,
}

impl Legend {
    /// Lines of the legend for the shown columns.
    fn lines(&self, is_shown: impl Fn(&str) -> bool) -> Vec<String> {
        let helps = self.columns.iter().filter(|column| is_shown(column.name()) && !column.what().is_empty());
        let helps: Vec<String> = helps.map(|column| format!("{}: {}", column.name(), column.what())).collect();
        let marks = self.marks.iter().filter(|(column, _)| column.is_none_or(&is_shown));
        let marks = marks.map(|(_, text)| text.to_string());
        (!helps.is_empty()).then(|| helps.join("; ")).into_iter().chain(marks).collect()
    }
}

/// A dim note.
pub(super) fn note(text: impl ToString) -> Block<'static> {
    Block::Note(text.to_string(), Some(Tone::Dim))
}

/// Text of a note with its gravity.
pub(super) type GradedNote = (Gravity, String);

/// Limit on the notes below a table; `--notes` removes the limit.
const NOTES_SHOWN: usize = 5;

/// Text and gravity of a note.
pub(super) fn graded(note: &Note) -> GradedNote {
    (note.gravity(), note.to_string())
}

/// Notes on the problems of a recording.
pub(super) fn problems(problems: &[String]) -> impl Iterator<Item = GradedNote> + '_ {
    problems.iter().map(|problem| (Gravity::Wrong, problem.clone()))
}

/// Distinct notes as text, the worst first. Without `all`: the first [`NOTES_SHOWN`] notes, then the count of the notes left out.
fn worst_first(mut notes: Vec<GradedNote>, all: bool) -> Vec<String> {
    notes.sort_by_key(|(gravity, _)| *gravity);
    let mut known = FxHashSet::default();
    notes.retain(|(_, text)| known.insert(text.clone()));
    let more = if all { 0 } else { notes.len().saturating_sub(NOTES_SHOWN) };
    notes.truncate(notes.len() - more);
    let left_out = (more > 0).then(|| format!("{} (--notes shows all)", counted(more as u64, "more note")));
    notes.into_iter().map(|(_, text)| text).chain(left_out).collect()
}

/// Text in place of events.
pub(super) const NO_EVENT: &str = "no event of this recording samples the CPUs";

/// A view of a model: blocks in order.
#[derive(Default)]
pub(super) struct View<'v>(pub(super) Vec<Block<'v>>);

impl<'v> View<'v> {
    pub(super) fn push(&mut self, block: Block<'v>) {
        self.0.push(block);
    }

    /// Appends a legend, which is always shown, and notes.
    pub(super) fn notes(
        &mut self,
        legend: impl IntoIterator<Item = impl Into<Cow<'static, str>>>,
        notes: impl IntoIterator<Item = GradedNote>,
    ) {
        let marks = legend.into_iter().map(|text| (None, text.into())).collect();
        self.push(Block::Notes(Legend { columns: Vec::new(), marks }, notes.into_iter().collect()));
    }

    /// Appends the blocks of each item of `of`; `blocks` makes them when they are written.
    pub(super) fn series<T>(&mut self, of: &'v [T], blocks: impl Fn(usize, &'v T) -> Vec<Block<'static>> + 'v) {
        self.push(Block::Series(Box::new(move |nth| Some(blocks(nth, of.get(nth)?)))));
    }

    /// Appends the blocks of each event, with an empty line between events; `none` if there are no events.
    pub(super) fn events<T, B>(&mut self, of: &'v [T], none: &str, blocks: impl Fn(&'v T) -> B + 'v)
    where
        B: IntoIterator<Item = Block<'static>>,
    {
        self.series(of, move |nth, event| (nth > 0).then_some(Block::Blank).into_iter().chain(blocks(event)).collect());
        if of.is_empty() {
            self.push(Block::Fact(none.to_owned()));
        }
    }

    /// Blocks in order, with each series expanded.
    fn blocks(self) -> impl Iterator<Item = Block<'v>> {
        self.0.into_iter().flat_map(|block| match block {
            Block::Series(series) => {
                Box::new((0..).map_while(move |nth| -> Option<Vec<Block<'v>>> { series(nth) }).flatten())
            }
            block => Box::new(std::iter::once(block)) as Box<dyn Iterator<Item = Block<'v>> + 'v>,
        })
    }

    /// Writes the view as text, at most `width` columns wide if possible.
    pub(super) fn write(self, out: &mut Screen<'_>, width: usize, all_notes: bool) -> io::Result<()> {
        let mut shown = Vec::new();
        let write_note = |text: &str, tone, out: &mut Screen<'_>| {
            wrapped(text, width)
                .try_for_each(|(begin, text)| out.line(&TonedLine::toned(tone, begin.to_owned() + &text)))
        };
        for block in self.blocks() {
            match block {
                Block::Fact(text) => write_note(&text, None, out)?,
                Block::Title(text) => write_note(&text, Some(Tone::Bold), out)?,
                Block::Note(text, tone) => write_note(&text, tone, out)?,
                Block::Heading(text) => out.line(&TonedLine::of(Tone::Bold, text))?,
                Block::Text(text) => writeln!(out, "{text}")?,
                Block::Gap => writeln!(out, "#")?,
                Block::Blank => writeln!(out)?,
                Block::Table(sheet) => sheet.write(out, width)?,
                Block::Parts(columns, part) => shown = Sheet::write_parts(columns(), part, out, width)?,
                Block::Line(mut line) => {
                    line.cut(width);
                    out.line(&line)?;
                }
                Block::Notes(legend, notes) => {
                    let legend = legend.lines(|name| shown.iter().any(|it| it == name));
                    let notes = [legend, worst_first(notes, all_notes)].concat();
                    if !notes.is_empty() {
                        writeln!(out, "#")?;
                    }
                    notes.iter().try_for_each(|note| write_note(note, Some(Tone::Dim), out))?;
                }
                Block::Series(_) => {}
            }
        }
        Ok(())
    }

    /// Writes GitHub-flavoured Markdown. Comments become list items; tables have the columns with content.
    pub(super) fn write_markdown(self, out: &mut Screen<'_>, all_notes: bool) -> io::Result<()> {
        for block in self.blocks() {
            match block {
                Block::Fact(text) | Block::Note(text, _) => writeln!(out, "- {}", escaped(&text))?,
                Block::Heading(text) | Block::Title(text) => {
                    writeln!(out)?;
                    writeln!(out, "**{}**", escaped(&text))?;
                    writeln!(out)?;
                }
                Block::Text(text) => writeln!(out, "{}", escaped(&text))?,
                Block::Gap | Block::Blank => {}
                Block::Table(sheet) => markdown_table(sheet, out)?,
                Block::Parts(columns, part) => {
                    let mut sheet = Sheet { columns: columns(), rows: Vec::new(), totals: Vec::new() };
                    for part in (0..).map_while(part) {
                        sheet.rows.extend(part.rows);
                        sheet.totals.extend(part.totals);
                    }
                    markdown_table(sheet, out)?;
                }
                Block::Line(line) => writeln!(out, "    {}", line.text)?,
                Block::Notes(legend, notes) => {
                    let notes = [legend.lines(|_| true), worst_first(notes, all_notes)].concat();
                    notes.iter().try_for_each(|note| writeln!(out, "- {}", escaped(note)))?;
                }
                Block::Series(_) => {}
            }
        }
        Ok(())
    }
}

fn markdown_table(sheet: Sheet, out: &mut Screen<'_>) -> io::Result<()> {
    let Sheet { columns, rows, totals } = sheet.without_idle_columns();
    let row = |cells: &[String]| format!("| {} |", cells.iter().map(|it| escaped(it)).collect::<Vec<_>>().join(" | "));
    let names: Vec<String> = columns.iter().map(|column| column.name().to_owned()).collect();
    let rules = columns.iter().map(|column| if column.is_number() { "---:" } else { "---" });
    writeln!(out)?;
    writeln!(out, "{}", row(&names))?;
    writeln!(out, "| {} |", rules.collect::<Vec<_>>().join(" | "))?;
    rows.iter().chain(&totals).try_for_each(|cells| writeln!(out, "{}", row(cells)))?;
    writeln!(out)
}

/// Escapes Markdown punctuation, so that names are shown literally and cannot end a cell.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        if matches!(c, '\\' | '`' | '*' | '_' | '[' | ']' | '<' | '>' | '|' | '~' | '#' | '&' | '@' | '!') {
            escaped.push('\\');
        }
        escaped.push(c);
    }
    escaped
}

/// Wraps a comment to `width`, including the prefixes. Returns the prefix and the text of each line.
fn wrapped(text: &str, width: usize) -> impl Iterator<Item = (&'static str, String)> {
    let begins = [FIRST].into_iter().chain(std::iter::repeat("#   "));
    begins.zip(wrap(text, width, FIRST.len(), 4))
}

/// Prefix of the first line of a comment.
const FIRST: &str = "# ";

/// Texts of comments without `#`, for screens that show notes apart from tables. Control characters are escaped.
pub(super) fn comments(blocks: &[Block<'_>], width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for block in blocks {
        match block {
            Block::Fact(text) | Block::Title(text) => lines.push(clean(text.trim())),
            Block::Note(text, _) => lines.extend(wrapped(text, width).map(|(_, text)| clean(text.trim()))),
            Block::Notes(legend, notes) => {
                let notes = [legend.lines(|_| true), worst_first(notes.clone(), true)].concat();
                lines.extend(notes.iter().flat_map(|note| wrapped(note, width)).map(|(_, text)| clean(text.trim())));
            }
            _ => {}
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_notes_come_first_each_once_and_at_most_five() {
        let mut notes: Vec<GradedNote> = (0..6).map(|it| (Gravity::Explained, format!("note {it}"))).collect();
        notes.extend([Gravity::Missing, Gravity::Wrong, Gravity::Wrong].map(|it| (it, format!("{it:?}"))));
        let few = worst_first(notes.clone(), false);
        assert_eq!(few, ["Wrong", "Missing", "note 0", "note 1", "note 2", "3 more notes (--notes shows all)"]);
        assert_eq!(worst_first(notes, true).len(), 8);
        assert_eq!(worst_first(Vec::new(), false), Vec::<String>::new());
    }

    /// CommonMark: a backslash before punctuation removes its meaning. GitHub turns `@name` and `#1` into links.
    #[test]
    fn names_are_no_markup() {
        let name = "a|b*c*[x](y)<img>@someone #1";
        let columns = vec![Column::text("A|B").always(), Column::number("N").always()];
        let sheet = Sheet { columns, rows: vec![vec![name.to_owned(), "≈1".to_owned()]], totals: Vec::new() };
        let mut out = Vec::new();
        let view = View(vec![Block::Fact("x_y".to_owned()), Block::Table(sheet)]);
        view.write_markdown(&mut Screen::new(&mut out), false).unwrap();
        let expected = "- x\\_y\n\n| A\\|B | N |\n| --- | ---: |\n\
                        | a\\|b\\*c\\*\\[x\\](y)\\<img\\>\\@someone \\#1 | ≈1 |\n\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    /// A width of ten leaves eight columns after `# `.
    #[test]
    fn comments_are_wrapped_by_words() {
        let lines: Vec<String> =
            wrapped("one two three 日本語 four", 10).map(|(begin, text)| begin.to_owned() + &text).collect();
        assert_eq!(lines, ["# one two", "#   three", "#   日本語", "#   four"]);
    }
}
