//! Colours of programs on the HTML page and on the screen of a terminal: a hue by owner, a shade by program, and grey for rows that are no program.

use super::ScreenRow;
use rustc_hash::FxHashMap;

/// Hues of owners, as (red, green, blue). The first seven hues are at least 30° apart; each further hue is between two of them. Dark text is readable
/// on all hues.
const HUES: [[u8; 3]; 14] = [
    [255, 122, 107],
    [240, 169, 58],
    [169, 139, 255],
    [62, 196, 176],
    [98, 168, 255],
    [124, 197, 106],
    [240, 139, 192],
    [215, 141, 226],
    [173, 200, 65],
    [102, 204, 134],
    [142, 152, 246],
    [84, 186, 212],
    [237, 130, 151],
    [231, 136, 85],
];
const GREY: [u8; 3] = [125, 133, 144];
/// Largest part of white in a shade. With more white, the hue cannot be recognised.
const LIGHTEST: f64 = 0.7;
/// Distance between the shades of successive programs, as a part of the range of shades. The golden ratio keeps each new shade far from all earlier
/// shades.
const SHADE_STEP: f64 = 0.618_034;

/// Colour of a program: a hue in a shade, or grey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Hue {
    /// Index of the owner's hue in [`HUES`]; `None` for grey.
    pub(super) number: Option<usize>,
    pub(super) rgb: [u8; 3],
}

impl Hue {
    pub(super) const GREY: Hue = Hue { number: None, rgb: GREY };
    /// Colour of the first owner.
    pub(super) const FIRST: Hue = Hue { number: Some(0), rgb: HUES[0] };

    /// Returns the hue with another brightness; 1 is the full hue.
    pub(super) fn dimmed(self, light: f64) -> Hue {
        Hue { rgb: self.rgb.map(|part| (f64::from(part) * light) as u8), ..self }
    }
}

/// Colours given to programs so far. A program keeps its colour when other programs appear.
#[derive(Debug, Clone, Default)]
pub(super) struct Hues {
    programs: FxHashMap<String, Hue>,
    /// Owners in the order of their hues, each with its count of programs.
    owners: Vec<(String, usize)>,
}

impl Hues {
    /// Returns the colours of rows. If fewer than two owners are known, each program gets a hue of its own: with hues by owner, all programs would
    /// look alike.
    pub(super) fn of(&mut self, rows: &[ScreenRow]) -> Vec<Hue> {
        let owners = rows.iter().map(|row| row.owner.as_str()).filter(|owner| !owner.is_empty());
        let first = owners.clone().next();
        let has_owners = owners.clone().any(|owner| Some(owner) != first);
        let hue = |row: &ScreenRow| match (row.program, self.programs.get(&row.name)) {
            (None, _) => Hue::GREY,
            (Some(_), Some(known)) => *known,
            (Some(_), None) => {
                let is_by_owner = has_owners && !row.owner.is_empty();
                let hue = self.next(if is_by_owner { &row.owner } else { &row.name });
                self.programs.insert(row.name.clone(), hue);
                hue
            }
        };
        rows.iter().map(hue).collect()
    }

    /// Returns the next shade of an owner's hue. A new owner gets the next hue.
    fn next(&mut self, owner: &str) -> Hue {
        let number = self.owners.iter().position(|(name, _)| name == owner).unwrap_or_else(|| {
            self.owners.push((owner.to_owned(), 0));
            self.owners.len() - 1
        });
        let shade = self.owners[number].1;
        self.owners[number].1 += 1;
        let number = number % HUES.len();
        let white = LIGHTEST * (shade as f64 * SHADE_STEP).fract();
        let lighter = |part: u8| (f64::from(part) + (255.0 - f64::from(part)) * white).round() as u8;
        Hue { number: Some(number), rgb: HUES[number].map(lighter) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(owner: &str, name: &str) -> ScreenRow {
        let mut row = ScreenRow::default();
        (row.owner, row.name, row.program) = (owner.to_owned(), name.to_owned(), Some(0));
        row
    }

    /// Angle of a colour on the circle of hues, in degrees.
    fn angle([red, green, blue]: [u8; 3]) -> f64 {
        let [red, green, blue] = [red, green, blue].map(f64::from);
        // The colour is projected on the plane that is perpendicular to the axis of greys.
        (3_f64.sqrt() * (green - blue)).atan2(2.0 * red - green - blue).to_degrees().rem_euclid(360.0)
    }

    fn distance(one: f64, other: f64) -> f64 {
        let apart = (one - other).abs();
        apart.min(360.0 - apart)
    }

    /// Relative luminance as WCAG 2 defines it.
    fn luminance(rgb: [u8; 3]) -> f64 {
        let linear = rgb.map(|part| {
            let part = f64::from(part) / 255.0;
            if part <= 0.03928 { part / 12.92 } else { ((part + 0.055) / 1.055).powf(2.4) }
        });
        0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    }

    #[test]
    fn owners_have_hues_far_apart_and_their_programs_shades() {
        let names: Vec<(String, String)> =
            (0..HUES.len() * 9).map(|at| (format!("owner {}", at % HUES.len()), format!("program {at}"))).collect();
        let rows: Vec<ScreenRow> = names.iter().map(|(owner, name)| row(owner, name)).collect();
        let hues = Hues::default().of(&rows);
        for (at, (one, hue)) in rows.iter().zip(&hues).enumerate() {
            // WCAG requires a contrast of 4.5 between a text and its background. Here, the text is the dark text of the page.
            let contrast = (luminance(hue.rgb) + 0.05) / (luminance([12, 15, 19]) + 0.05);
            assert!(contrast >= 4.5, "{hue:?}: {contrast}");
            for (other, other_hue) in rows.iter().zip(&hues).skip(at + 1) {
                let apart = distance(angle(hue.rgb), angle(other_hue.rgb));
                assert_ne!(hue.rgb, other_hue.rgb, "{one:?} {other:?}");
                if one.owner == other.owner {
                    assert!(apart < 6.0, "{hue:?} {other_hue:?}: {apart}°");
                } else {
                    let is_first = [hue, other_hue].iter().all(|hue| hue.number < Some(7));
                    assert!(apart > if is_first { 24.0 } else { 9.0 }, "{hue:?} {other_hue:?}: {apart}°");
                }
            }
        }
    }

    #[test]
    fn programs_keep_their_colours() {
        let mut hues = Hues::default();
        let rows = [row("a", "1"), row("b", "2"), row("a", "3"), ScreenRow::default()];
        let of = hues.of(&rows);
        assert_eq!(of.iter().map(|hue| hue.number).collect::<Vec<_>>(), [Some(0), Some(1), Some(0), None]);
        assert_eq!(hues.of(&[row("b", "2"), row("a", "3")]), [of[1], of[2]]);
        // With one owner, each program has its own hue, and keeps this hue when a second owner appears.
        let mut hues = Hues::default();
        let of = hues.of(&[row("a", "1"), row("a", "2")]);
        assert_ne!(of[0].number, of[1].number);
        let later = hues.of(&[row("a", "1"), row("b", "9"), row("a", "2")]);
        assert_eq!([later[0], later[2]], [of[0], of[1]]);
        assert!(later[1].number > of[1].number);
    }
}
