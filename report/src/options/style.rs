//! Style of text for people: width, columns, colours.

/// Style of text for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextStyle {
    /// Width of the screen in characters; exceeded only where a narrower line would be useless.
    pub width: usize,
    /// Colours of the text.
    pub paint: Paint,
    /// True to show all notes below a table, false for the few most severe notes.
    pub all_notes: bool,
}

/// Style of this width, without colours.
impl From<usize> for TextStyle {
    fn from(width: usize) -> TextStyle {
        TextStyle { width, paint: Paint::Plain, all_notes: false }
    }
}

/// Style of unlimited width, without colours.
impl Default for TextStyle {
    fn default() -> TextStyle {
        usize::MAX.into()
    }
}

/// Style of the table by program. The default has all columns that fit, without a legend.
#[derive(Debug, Clone, Default)]
pub struct TableStyle {
    /// Columns of the table.
    pub columns: TableColumns,
    /// True to hide the column with the cost of each program together with the programs that it tail-calls or triggers.
    pub hides_inclusive: bool,
    /// True to draw a bar of each row's cost.
    pub bars: bool,
    /// True to explain columns and marks below the table.
    pub legend: bool,
    /// Width of the text, in characters; spark lines take a part of it.
    pub width: usize,
}

/// Selection of columns of the table by program, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TableColumns {
    /// Columns that have content and fit into the width.
    #[default]
    Fitting,
    /// Exactly these columns, in this order.
    Only(Vec<String>),
    /// Columns that have content and fit into the width, and these columns in any case.
    FittingAnd(Vec<String>),
}

impl TableColumns {
    /// Name of the column of samples over time. The column needs a report over time.
    pub(crate) const SPARK: &str = "SPARK";

    /// Parses a list of names. A leading `+` adds the names to the default columns, as in util-linux.
    pub fn of(mut names: Vec<String>) -> TableColumns {
        let Some(first) = names.first_mut() else { return TableColumns::Fitting };
        match first.strip_prefix('+').map(str::to_owned) {
            Some(name) => {
                *first = name;
                TableColumns::FittingAnd(names)
            }
            None => TableColumns::Only(names),
        }
    }

    /// Returns true if the column of samples over time is selected.
    pub(crate) fn has_spark(&self) -> bool {
        match self {
            TableColumns::Fitting => false,
            TableColumns::Only(names) | TableColumns::FittingAnd(names) => {
                names.iter().any(|name| name.trim().eq_ignore_ascii_case(TableColumns::SPARK))
            }
        }
    }
}

/// Colours of text for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Paint {
    /// No colours.
    #[default]
    Plain,
    /// Escape sequences of ANSI terminals (SGR).
    Ansi,
}

/// Emphasis of a piece of text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Names of columns and headings.
    Bold,
    /// Notes.
    Dim,
    /// Hot, worse, failed.
    Red,
    /// Better, passed.
    Green,
    /// Warm, unknown, or undecided.
    Yellow,
}

impl Paint {
    /// Paints a text. The text is not escaped: see [`crate::printable`].
    pub fn text(self, tone: Tone, text: &str) -> String {
        match self {
            Paint::Plain => text.to_owned(),
            Paint::Ansi => format!("\u{1b}[{}m{text}\u{1b}[0m", tone.sgr()),
        }
    }
}

impl Tone {
    /// SGR parameter of the tone.
    fn sgr(self) -> u8 {
        match self {
            Tone::Bold => 1,
            Tone::Dim => 2,
            Tone::Red => 31,
            Tone::Green => 32,
            Tone::Yellow => 33,
        }
    }
}
