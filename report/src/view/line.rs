//! Lines with highlighted pieces.

use crate::model::text::fit;
use crate::options::Tone;
use std::borrow::Cow;
use std::ops::Range;

/// Tone of a share, by perf's thresholds: red from 5 %, yellow from 0.5 %. perf has green instead of yellow, but green would praise a cost.
pub(super) fn share_tone(cell: &str) -> Option<Tone> {
    // A mark such as `≈` may precede the number.
    let number = cell.trim_start_matches(|c: char| !c.is_ascii_digit());
    let (whole, decimals) = number.split_once('.').unwrap_or((number, ""));
    match whole {
        "" => None,
        "0" => (decimals >= "5").then_some(Tone::Yellow),
        "1" | "2" | "3" | "4" => Some(Tone::Yellow),
        _ => Some(Tone::Red),
    }
}

/// A line with highlighted pieces. The text has no escape sequences; these are added on output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct TonedLine {
    pub(super) text: String,
    /// Highlighted byte ranges of the text, in order, without overlap.
    marks: Vec<(Range<usize>, Tone)>,
}

impl TonedLine {
    pub(super) fn with_capacity(bytes: usize) -> TonedLine {
        TonedLine { text: String::with_capacity(bytes), marks: Vec::new() }
    }

    /// Line in one tone.
    pub(super) fn of(tone: Tone, text: String) -> TonedLine {
        TonedLine::toned(Some(tone), text)
    }

    /// Line in one tone, or plain.
    pub(super) fn toned(tone: Option<Tone>, text: String) -> TonedLine {
        TonedLine { marks: tone.map(|tone| (0..text.len(), tone)).into_iter().collect(), text }
    }

    /// Appends text in a tone.
    pub(super) fn push(&mut self, text: &str, tone: Option<Tone>) {
        let start = self.text.len();
        self.text.push_str(text);
        self.marks.extend(tone.map(|tone| (start..self.text.len(), tone)));
    }

    /// Removes trailing blanks.
    pub(super) fn trim_end(&mut self) {
        self.text.truncate(self.text.trim_end().len());
        self.end_marks(self.text.len());
    }

    /// Cuts the line to `width` characters. The last character becomes `…` if text is cut.
    pub(super) fn cut(&mut self, width: usize) {
        if let Cow::Owned(cut) = fit(&self.text, width) {
            let kept = cut.strip_suffix('…').map_or(0, str::len);
            self.text = cut;
            self.end_marks(kept);
        }
    }

    /// Removes highlights behind the first `len` bytes of the text.
    fn end_marks(&mut self, len: usize) {
        self.marks.retain(|(part, _)| part.start < len);
        self.marks.iter_mut().for_each(|(part, _)| part.end = part.end.min(len));
    }

    /// Line without highlights.
    pub(super) fn even(self) -> TonedLine {
        TonedLine { marks: Vec::new(), ..self }
    }

    /// Pieces of the text in order, each with its tone; `None` for plain text.
    pub(super) fn pieces(&self) -> impl Iterator<Item = (&str, Option<Tone>)> {
        let mut at = 0;
        let marked = self.marks.iter().flat_map(move |(part, tone)| {
            let before = at..part.start;
            at = part.end;
            [(before, None), (part.clone(), Some(*tone))]
        });
        let end = self.marks.last().map_or(0, |(part, _)| part.end);
        let all = marked.chain([(end..self.text.len(), None)]);
        all.map(|(part, tone)| (&self.text[part], tone)).filter(|(text, _)| !text.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_have_perfs_limits() {
        for (cell, tone) in [
            ("0.49", None),
            ("0.50", Some(Tone::Yellow)),
            ("≈4.99", Some(Tone::Yellow)),
            ("≥5.00", Some(Tone::Red)),
            ("12.34", Some(Tone::Red)),
            ("1,200.00", Some(Tone::Red)),
            ("n/a", None),
            ("", None),
        ] {
            assert_eq!(share_tone(cell), tone, "{cell}");
        }
    }

    #[test]
    fn marks_end_where_the_text_was_cut() {
        let mut line = TonedLine::default();
        line.push("ab", None);
        line.push("cd", Some(Tone::Red));
        line.push("ef", Some(Tone::Green));
        let pieces = |line: &TonedLine| line.pieces().map(|(text, tone)| (text.to_owned(), tone)).collect::<Vec<_>>();
        let piece = |text: &str, tone| (text.to_owned(), tone);
        assert_eq!(pieces(&line), [piece("ab", None), piece("cd", Some(Tone::Red)), piece("ef", Some(Tone::Green))]);
        line.cut(4);
        assert_eq!(pieces(&line), [piece("ab", None), piece("c", Some(Tone::Red)), piece("…", None)]);
    }
}
