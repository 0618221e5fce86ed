//! How wide tables may be.

use std::io::IsTerminal;

/// Of a table that goes to no terminal: enough for every row to be whole.
pub(crate) const UNBOUNDED: usize = usize::MAX;
/// Of a terminal that does not say how wide it is.
const USUAL: usize = 80;

/// Columns of where a table goes: those of a terminal; elsewhere `COLUMNS`, or without it no limit.
pub(crate) fn columns(out: &impl IsTerminal) -> usize {
    if out.is_terminal() {
        return terminal_size::terminal_size().map_or(USUAL, |(width, _)| usize::from(width.0));
    }
    let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    columns.filter(|columns| *columns > 0).unwrap_or(UNBOUNDED)
}
