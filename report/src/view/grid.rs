//! Columns side by side, each as wide as its widest cell.

use super::text::UNKNOWN;

/// Lines of a table. Columns whose name starts with `<` are flush left. Columns that say nothing in any row are left out.
pub(super) fn lines(names: &[String], rows: &[Vec<String>]) -> Vec<String> {
    let says_something = |at: usize| rows.iter().any(|row| !row[at].is_empty() && row[at] != UNKNOWN);
    let kept: Vec<usize> = (0..names.len()).filter(|at| says_something(*at)).collect();
    let name = |at: usize| names[at].trim_start_matches('<').to_owned();
    let header: Vec<String> = (0..names.len()).map(name).collect();
    let chars = |text: &str| text.chars().count();
    let widths: Vec<usize> = (0..names.len())
        .map(|at| std::iter::once(&header).chain(rows).map(|row| chars(&row[at])).max().unwrap_or(0))
        .collect();
    let line = |row: &Vec<String>| {
        let mut line = String::new();
        for at in &kept {
            let padding = " ".repeat(widths[*at] - chars(&row[*at]));
            match names[*at].starts_with('<') {
                true => line.extend([row[*at].as_str(), &padding]),
                false => line.extend([padding.as_str(), &row[*at]]),
            }
            line.push_str("  ");
        }
        line.truncate(line.trim_end().len());
        line
    };
    std::iter::once(&header).chain(rows).map(line).collect()
}
