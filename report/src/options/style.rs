//! Style of text for people: its width, its columns, its colours.

/// Style of text for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextStyle {
    /// Columns of the screen, in characters; more than that is written only where less would say too little.
    pub width: usize,
    /// True if it has colours.
    pub paint: Paint,
}

/// Text of this width, without colours.
impl From<usize> for TextStyle {
    fn from(width: usize) -> TextStyle {
        TextStyle { width, paint: Paint::Plain }
    }
}

/// Style of the table by program.
#[derive(Debug, Clone)]
pub struct TableStyle {
    /// Width and colours.
    pub text: TextStyle,
    /// Columns that the table has.
    pub columns: TableColumns,
    /// True if there is a column of what each program and those that it leads to cost together.
    pub inclusive: bool,
    /// True if what columns and marks mean is said below the table.
    pub legend: bool,
    /// True if all notes are below the table, and not the worst ones alone.
    pub all_notes: bool,
}

impl TableStyle {
    /// All columns that fit, without a legend.
    pub fn new(text: impl Into<TextStyle>) -> TableStyle {
        TableStyle {
            text: text.into(),
            columns: TableColumns::Fitting,
            inclusive: true,
            legend: false,
            all_notes: false,
        }
    }
}

/// Columns of the table by program, by their names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum TableColumns {
    /// Columns that say something and fit.
    #[default]
    Fitting,
    /// These alone, in this order.
    Only(Vec<String>),
    /// Columns that say something and fit, and these in any case.
    FittingAnd(Vec<String>),
}

impl TableColumns {
    /// The column of samples over time, which takes a report over time.
    pub(crate) const SPARK: &str = "SPARK";

    /// From a list of names. As in util-linux, a `+` in front of the list adds to what there is without a list.
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

    /// True if samples over time are among them ([`crate::Session::by_prog_over_time`]).
    pub fn has_spark(&self) -> bool {
        match self {
            TableColumns::Fitting => false,
            TableColumns::Only(names) | TableColumns::FittingAnd(names) => {
                names.iter().any(|name| name.trim().eq_ignore_ascii_case(TableColumns::SPARK))
            }
        }
    }
}

/// True if text for people has colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Paint {
    /// Text alone.
    #[default]
    Plain,
    /// With the escape sequences of ANSI terminals (SGR).
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
    /// Warm, better, passed.
    Green,
    /// Limited, or undecided.
    Yellow,
}

impl Paint {
    /// A text in a tone. Nothing in it is escaped: see [`crate::printable`].
    pub fn text(self, tone: Tone, text: &str) -> String {
        match self {
            Paint::Plain => text.to_owned(),
            Paint::Ansi => format!("\u{1b}[{}m{text}\u{1b}[0m", tone.sgr()),
        }
    }
}

impl Tone {
    /// The parameter of SGR.
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
