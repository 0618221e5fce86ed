//! Colours and characters of the screen: one hue per owner, as on the page, and grey for all else.

use crate::view::{ScreenRow, to_ascii};
use ratatui::style::{Color, Style};

/// Hues of owners, each as (red, green, blue). The page has the same list (`report/src/view/html/first.js`).
const HUES: [[u8; 3]; 7] = [
    [255, 122, 107],
    [240, 169, 58],
    [169, 139, 255],
    [62, 196, 176],
    [98, 168, 255],
    [124, 197, 106],
    [240, 139, 192],
];
/// Nearest colours of a terminal with 16 colours.
const SIXTEEN: [Color; 7] =
    [Color::LightRed, Color::Yellow, Color::Magenta, Color::Cyan, Color::LightBlue, Color::Green, Color::LightMagenta];
const GREY: [u8; 3] = [125, 133, 144];
/// Colour of text on a tinted background.
const WHITE: [u8; 3] = [240, 243, 246];
/// Share of white that each further program of an owner adds to the owner's hue, and the largest number of such steps.
const LIGHTER: (f64, usize) = (0.22, 3);
/// Brightness of a hue as the background of the chosen row.
const TINT: f64 = 0.28;

/// Number of colours that the terminal shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Depth {
    /// No colours.
    Plain,
    /// The 16 colours of every terminal.
    Sixteen,
    /// The palette of 256 colours.
    Indexed,
    /// 24 bits a colour.
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
    /// Text as the terminal shows it.
    pub(super) fn shown(self, text: &str) -> String {
        if self == Charset::Ascii { to_ascii(text) } else { text.to_owned() }
    }
}

/// Colour of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hue {
    /// Position in [`HUES`]; `None` for grey.
    pub(super) hue: Option<usize>,
    pub(super) rgb: [u8; 3],
}

impl Hue {
    pub(super) const GREY: Hue = Hue { hue: None, rgb: GREY };

    /// Returns the hue with another brightness; 1 is the full hue.
    pub(super) fn dimmed(self, light: f64) -> Hue {
        Hue { rgb: self.rgb.map(|part| (f64::from(part) * light) as u8), ..self }
    }
}

/// Colours and characters of a terminal. Owners and programs keep their colours while the screen is shown.
pub struct Palette {
    depth: Depth,
    pub(super) charset: Charset,
    /// Owners in the order of their hues, each with its programs in the order of their shades.
    owners: Vec<(String, Vec<String>)>,
}

impl Palette {
    /// Colours and characters for a terminal.
    pub fn new(depth: Depth, charset: Charset) -> Palette {
        Palette { depth, charset, owners: Vec::new() }
    }

    /// Returns true if the terminal shows shades of a hue.
    pub(super) fn has_shades(&self) -> bool {
        matches!(self.depth, Depth::Indexed | Depth::Full)
    }

    /// Returns true if the terminal shows colours.
    pub(super) fn has_colors(&self) -> bool {
        self.depth != Depth::Plain
    }

    /// Colours of rows: a hue by owner, a shade by program. With one owner, each program has a hue.
    pub(super) fn hues(&mut self, rows: &[ScreenRow]) -> Vec<Hue> {
        let owners = rows.iter().map(|row| row.owner.as_str()).filter(|owner| !owner.is_empty());
        let first = owners.clone().next();
        let has_owners = owners.clone().any(|owner| Some(owner) != first);
        let hue = |row: &ScreenRow| match row.program {
            None => Hue::GREY,
            Some(_) if has_owners && !row.owner.is_empty() => self.hue(&row.owner, &row.name),
            Some(_) => self.hue(&row.name, &row.name),
        };
        rows.iter().map(hue).collect()
    }

    fn hue(&mut self, owner: &str, program: &str) -> Hue {
        let at = self.owners.iter().position(|(name, _)| name == owner).unwrap_or_else(|| {
            self.owners.push((owner.to_owned(), Vec::new()));
            self.owners.len() - 1
        });
        let programs = &mut self.owners[at].1;
        let shade = programs.iter().position(|name| name == program).unwrap_or_else(|| {
            programs.push(program.to_owned());
            programs.len() - 1
        });
        let hue = at % HUES.len();
        let white = shade.min(LIGHTER.1) as f64 * LIGHTER.0;
        let lighter = |part: u8| (f64::from(part) + (255.0 - f64::from(part)) * white).round() as u8;
        Hue { hue: Some(hue), rgb: HUES[hue].map(lighter) }
    }

    /// Colour of the terminal that is nearest to a hue.
    pub(super) fn color(&self, hue: Hue) -> Color {
        match (self.depth, hue.hue) {
            (Depth::Plain, _) => Color::Reset,
            (Depth::Sixteen, Some(at)) => SIXTEEN[at],
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
            true => Style::new().bg(self.color(hue.dimmed(TINT))).fg(self.color(Hue { hue: None, rgb: WHITE })).bold(),
            false => Style::new().reversed(),
        }
    }

    /// Style of a frame of a flame graph by its position in the row.
    pub(super) fn frame(&self, at: usize) -> Style {
        const LIGHT: [f64; 2] = [0.34, 0.24];
        match self.has_shades() {
            true => Style::new().bg(self.color(Hue { hue: Some(0), rgb: HUES[0] }.dimmed(LIGHT[at % LIGHT.len()]))),
            false => Style::new(),
        }
    }

    /// Style of a statement that something is missing.
    pub(super) fn warning(&self) -> Style {
        if self.has_colors() { Style::new().yellow() } else { Style::new().bold() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_same_hues() {
        let script = include_str!("../html/first.js");
        let hues = HUES.map(|[red, green, blue]| format!("[{red}, {green}, {blue}]")).join(", ");
        assert!(script.contains(&format!("const HUES = [{hues}];")), "{hues}");
    }

    #[test]
    fn owners_have_hues_and_their_programs_shades() {
        let row = |owner: &str, name: &str| {
            let mut row = ScreenRow::default();
            (row.owner, row.name, row.program) = (owner.to_owned(), name.to_owned(), Some(0));
            row
        };
        let mut palette = Palette::new(Depth::Full, Charset::Unicode);
        let rows = [row("a", "1"), row("b", "2"), row("a", "3"), ScreenRow::default()];
        let hues = palette.hues(&rows);
        assert_eq!((hues[0].hue, hues[1].hue, hues[2].hue, hues[3]), (Some(0), Some(1), Some(0), Hue::GREY));
        assert_ne!(hues[0], hues[2]);
        // Rows in another order keep their colours.
        assert_eq!(palette.hues(&[row("b", "2"), row("a", "3")]), [hues[1], hues[2]]);
        // If all programs have one owner, each program has a hue of its own.
        let hues = Palette::new(Depth::Full, Charset::Unicode).hues(&[row("a", "1"), row("a", "2")]);
        assert_ne!(hues[0].hue, hues[1].hue);
    }

    #[test]
    fn colours_are_those_that_the_terminal_shows() {
        let hue = Hue { hue: Some(0), rgb: HUES[0] };
        let colors = [Depth::Plain, Depth::Sixteen, Depth::Indexed, Depth::Full]
            .map(|it| Palette::new(it, Charset::Unicode).color(hue));
        assert_eq!(colors, [Color::Reset, Color::LightRed, Color::Indexed(209), Color::Rgb(255, 122, 107)]);
    }
}
