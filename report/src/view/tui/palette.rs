//! Colours and characters of the screen. Colours are as near to those of the HTML page as the terminal allows.

use crate::view::hues::{Hue, Hues};
use crate::view::{ScreenRow, to_ascii};
use ratatui::style::{Color, Style};

/// Nearest colours of a terminal with 16 colours, by index of the hue. Hues from the eighth on repeat these colours.
const SIXTEEN: [Color; 7] =
    [Color::LightRed, Color::Yellow, Color::Magenta, Color::Cyan, Color::LightBlue, Color::Green, Color::LightMagenta];
/// Colour of text on a tinted background.
const WHITE: [u8; 3] = [240, 243, 246];
/// Brightness of a hue as the background of the chosen row; 1 is the full hue.
const TINT: f64 = 0.28;

/// Colour depth of the terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// No colours.
    Plain,
    /// The 16 colours of every terminal.
    Sixteen,
    /// The palette of 256 colours.
    Indexed,
    /// Colours of 24 bits.
    Full,
}

/// Characters that the terminal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charset {
    /// All of Unicode.
    Unicode,
    /// ASCII only.
    Ascii,
}

impl Charset {
    /// Converts a text to characters that the terminal shows.
    pub(super) fn shown(self, text: &str) -> String {
        if self == Charset::Ascii { to_ascii(text) } else { text.to_owned() }
    }
}

/// Colours and characters of a terminal. Programs keep their colours while the screen is shown.
pub struct Palette {
    depth: Depth,
    pub(super) charset: Charset,
    hues: Hues,
}

impl Palette {
    /// Colours and characters for a terminal.
    pub fn new(depth: Depth, charset: Charset) -> Palette {
        Palette { depth, charset, hues: Hues::default() }
    }

    /// Returns true if the terminal shows shades of a hue.
    pub(super) fn has_shades(&self) -> bool {
        matches!(self.depth, Depth::Indexed | Depth::Full)
    }

    /// Returns true if the terminal shows colours.
    pub(super) fn has_colors(&self) -> bool {
        self.depth != Depth::Plain
    }

    /// Colours of rows, the same for a program on every call.
    pub(super) fn hues(&mut self, rows: &[ScreenRow]) -> Vec<Hue> {
        self.hues.of(rows)
    }

    /// Nearest colour that the terminal shows.
    pub(super) fn color(&self, hue: Hue) -> Color {
        match (self.depth, hue.number) {
            (Depth::Plain, _) => Color::Reset,
            (Depth::Sixteen, Some(at)) => SIXTEEN[at % SIXTEEN.len()],
            (Depth::Sixteen, None) => Color::Gray,
            (Depth::Indexed, _) => {
                // Colours 16 to 231 are a cube with the levels 0, 95, 135, 175, 215 and 255 of red, green and blue.
                let [red, green, blue] = hue.rgb.map(|part| match part {
                    0..48 => 0,
                    48..115 => 1,
                    _ => (part - 35) / 40,
                });
                Color::Indexed(16 + 36 * red + 6 * green + blue)
            }
            (Depth::Full, _) => Color::Rgb(hue.rgb[0], hue.rgb[1], hue.rgb[2]),
        }
    }

    /// Style of the chosen row.
    pub(super) fn chosen(&self, hue: Hue) -> Style {
        match self.has_shades() {
            true => {
                Style::new().bg(self.color(hue.dimmed(TINT))).fg(self.color(Hue { number: None, rgb: WHITE })).bold()
            }
            false => Style::new().reversed(),
        }
    }

    /// Style of frame `at` in a row of a flame graph. On a terminal that shows shades, neighbouring frames differ in brightness.
    pub(super) fn frame(&self, at: usize) -> Style {
        const LIGHT: [f64; 2] = [0.34, 0.24];
        match self.has_shades() {
            true => Style::new().bg(self.color(Hue::FIRST.dimmed(LIGHT[at % LIGHT.len()]))),
            false => Style::new(),
        }
    }

    /// Style of a statement on missing data.
    pub(super) fn warning(&self) -> Style {
        if self.has_colors() { Style::new().yellow() } else { Style::new().bold() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_are_those_that_the_terminal_shows() {
        let colors = [Depth::Plain, Depth::Sixteen, Depth::Indexed, Depth::Full]
            .map(|it| Palette::new(it, Charset::Unicode).color(Hue::FIRST));
        assert_eq!(colors, [Color::Reset, Color::LightRed, Color::Indexed(209), Color::Rgb(255, 122, 107)]);
    }
}
