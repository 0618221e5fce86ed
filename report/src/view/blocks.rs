//! A view as data: comments, tables and notes in their order, for whoever writes or draws them.

use super::grid::{Column, Sheet};
use super::line::TonedLine;
use super::screen::Screen;
use crate::model::text::{clean, width_of};
use crate::options::Tone;
use std::io;

/// Makes a numbered part of a table's rows, and `None` behind the last.
type PartFn<'v> = Box<dyn Fn(usize) -> Option<Sheet> + 'v>;

/// Makes the columns of a table.
type ColumnsFn<'v> = Box<dyn Fn() -> Vec<Column> + 'v>;

/// Makes the blocks of a numbered event, and `None` behind the last.
type Series<'v> = Box<dyn Fn(usize) -> Option<Vec<Block<'static>>> + 'v>;

/// A piece of a view.
pub(super) enum Block<'v> {
    /// A comment that begins a line of its own.
    Fact(String),
    /// The same that stands out.
    Title(String),
    /// A comment on as many lines as it needs, in a tone.
    Note(String, Option<Tone>),
    /// A heading that is no comment.
    Heading(String),
    /// A line that is no comment.
    Text(String),
    /// An empty comment between two blocks.
    Gap,
    /// An empty line between two tables.
    Blank,
    /// A rule, sums and rows below the names of columns.
    Table(Sheet),
    /// The same in parts whose cells are not all kept.
    Parts(ColumnsFn<'v>, PartFn<'v>),
    /// A line that is laid out already.
    Line(TonedLine),
    /// Notes, with a gap before them.
    Notes(Legend, Vec<String>),
    /// Blocks of events, which may be thousands, made by the number of the event when it is its turn; `None` behind the last.
    Series(Series<'v>),
}

/// Meaning of columns and marks.
#[derive(Default)]
pub(super) struct Legend {
    /// Columns that say what they are.
    pub(super) columns: Vec<Column>,
    /// Marks: each where its column is shown, or in any case.
    pub(super) marks: Vec<(Option<&'static str>, &'static str)>,
}

impl Legend {
    /// Lines of a legend for columns with these names.
    fn lines(&self, is_shown: impl Fn(&str) -> bool) -> Vec<String> {
        let helps = self.columns.iter().filter(|column| is_shown(column.name()) && !column.what().is_empty());
        let helps: Vec<String> = helps.map(|column| format!("{}: {}", column.name(), column.what())).collect();
        let marks = self.marks.iter().filter(|(column, _)| column.is_none_or(&is_shown));
        let marks = marks.map(|(_, text)| (*text).to_owned());
        (!helps.is_empty()).then(|| helps.join("; ")).into_iter().chain(marks).collect()
    }
}

/// A note, which is dim.
pub(super) fn note(text: impl ToString) -> Block<'static> {
    Block::Note(text.to_string(), Some(Tone::Dim))
}

/// A view of a model.
#[derive(Default)]
pub(super) struct View<'v>(pub(super) Vec<Block<'v>>);

impl<'v> View<'v> {
    pub(super) fn push(&mut self, block: Block<'v>) {
        self.0.push(block);
    }

    /// Appends notes.
    pub(super) fn notes(&mut self, notes: impl IntoIterator<Item = String>) {
        self.push(Block::Notes(Legend::default(), notes.into_iter().collect()));
    }

    /// Appends blocks of each of these, made when it is its turn.
    pub(super) fn series<T>(&mut self, of: &'v [T], blocks: impl Fn(usize, &'v T) -> Vec<Block<'static>> + 'v) {
        self.push(Block::Series(Box::new(move |nth| Some(blocks(nth, of.get(nth)?)))));
    }

    /// The blocks in their order, none of them a series.
    fn blocks(self) -> impl Iterator<Item = Block<'v>> {
        self.0.into_iter().flat_map(|block| match block {
            Block::Series(series) => {
                Box::new((0..).map_while(move |nth| -> Option<Vec<Block<'v>>> { series(nth) }).flatten())
            }
            block => Box::new(std::iter::once(block)) as Box<dyn Iterator<Item = Block<'v>> + 'v>,
        })
    }

    /// Writes it as text, `width` columns wide where that is possible.
    pub(super) fn write(self, out: &mut Screen<'_>, width: usize) -> io::Result<()> {
        let mut shown = Vec::new();
        let write_note = |text: &str, tone, out: &mut Screen<'_>| {
            wrapped(text, width).try_for_each(|(begin, text)| out.line(&TonedLine::toned(tone, begin.to_owned() + &text)))
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
                    let notes = [legend.lines(|name| shown.iter().any(|it| it == name)), notes].concat();
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

    /// Writes it as Markdown (GitHub's): tables with the columns that say something, and comments as lists.
    pub(super) fn write_markdown(self, out: &mut Screen<'_>) -> io::Result<()> {
        for block in self.blocks() {
            match block {
                Block::Fact(text) | Block::Note(text, _) => writeln!(out, "- {}", escaped(&text))?,
                Block::Heading(text) | Block::Title(text) => writeln!(out, "\n**{}**\n", escaped(&text))?,
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
                    let notes = [legend.lines(|_| true), notes].concat();
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

/// Text that Markdown shows as it is: nothing in it is markup, or ends a cell.
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

/// Lines of a comment that is at most `width` wide with what it begins with.
fn wrapped(text: &str, width: usize) -> impl Iterator<Item = (&'static str, String)> {
    let mut lines = vec![("# ", String::new())];
    let mut line_width = 1;
    for word in text.split(' ') {
        let word_width = width_of(word);
        let (begin, line) = lines.last_mut().map_or(("", ""), |(begin, line)| (*begin, line.as_str()));
        if line_width + 1 + word_width > width && begin.len() + line.len() > 4 {
            lines.push(("#   ", word.to_owned()));
            line_width = 4 + word_width;
            continue;
        }
        if let Some((_, line)) = lines.last_mut() {
            if line_width > 1 {
                line.push(' ');
            }
            line.push_str(word);
        }
        line_width += 1 + word_width;
    }
    lines.into_iter()
}

/// The text of comments, without marks, for whoever has a place of its own for them; nothing in it steers a terminal.
pub(super) fn comments(blocks: &[Block<'_>], width: usize) -> Vec<String> {
    let mut lines = Vec::new();
    for block in blocks {
        match block {
            Block::Fact(text) | Block::Title(text) => lines.push(clean(text.trim())),
            Block::Note(text, _) => lines.extend(wrapped(text, width).map(|(_, text)| clean(text.trim()))),
            Block::Notes(legend, notes) => {
                let notes = [legend.lines(|_| true), notes.clone()].concat();
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

    /// CommonMark: a backslash before punctuation takes its meaning away. GitHub makes `@name` and `#1` links.
    #[test]
    fn names_are_no_markup() {
        let name = "a|b*c*[x](y)<img>@someone #1";
        let columns = vec![Column::text("A|B").always(), Column::number("N").always()];
        let sheet = Sheet { columns, rows: vec![vec![name.to_owned(), "≈1".to_owned()]], totals: Vec::new() };
        let mut out = Vec::new();
        let view = View(vec![Block::Fact("x_y".to_owned()), Block::Table(sheet)]);
        view.write_markdown(&mut Screen::new(&mut out)).unwrap();
        let expected = "- x\\_y\n\n| A\\|B | N |\n| --- | ---: |\n\
                        | a\\|b\\*c\\*\\[x\\](y)\\<img\\>\\@someone \\#1 | ≈1 |\n\n";
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    /// Ten columns hold `#`, a blank and eight more.
    #[test]
    fn comments_are_wrapped_by_words() {
        let lines: Vec<String> =
            wrapped("one two three 日本語 four", 10).map(|(begin, text)| begin.to_owned() + &text).collect();
        assert_eq!(lines, ["# one two", "#   three", "#   日本語", "#   four"]);
    }
}
