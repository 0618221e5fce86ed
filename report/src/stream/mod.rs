//! Processing of records in input order: text, copies, redaction.

pub(crate) mod redact;
pub(crate) mod rewrite;
pub(crate) mod script;

use crate::index::{Index, Wanted};
use crate::input::recording::OpenRecording;
use crate::input::source::Source;
use crate::input::window::Window;
use crate::{Result, TimeRange};

/// Resolves a time range as reports do. For percentages and plain seconds, reads the whole recording first; a stream is stored in a temporary file.
///
/// # Errors
/// Fails if the recording cannot be read, has no timestamps to select by, or lies outside the range.
fn window(source: &mut Source, range: &TimeRange) -> Result<Window> {
    match range {
        TimeRange::All | TimeRange::Absolute(..) => Window::new(range, None),
        TimeRange::Percent(_) | TimeRange::Plain(..) => {
            let input = source.whole()?;
            let window = OpenRecording::open_with_events(input).and_then(|recording| {
                let counts_from_start = matches!(range, TimeRange::Plain(..));
                let index = counts_from_start.then(|| Index::build(&recording, Wanted::default()));
                Window::of(range, &recording, index.and_then(|index| index.start_ns()), &[])
            });
            input.checked(window)
        }
    }
}
