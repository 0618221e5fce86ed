//! Record by record, in the order of the input: as text, as a copy, without secrets.

pub(crate) mod redact;
pub(crate) mod rewrite;
pub(crate) mod script;

use crate::index::{Index, Wanted};
use crate::input::recording::OpenRecording;
use crate::input::source::Source;
use crate::input::window::Window;
use crate::{Result, TimeRange};

/// Works out a part of the time as reports do. Where that depends on the recording, all of it is looked at first: a stream goes into a
/// temporary file.
///
/// # Errors
/// When the recording cannot be read, or has no times to take a part of.
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
