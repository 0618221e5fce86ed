//! Headings that the help of all commands puts options under.

/// What is measured, or which part of a recording is read.
pub(crate) const SELECTION: &str = "Selection";
/// What is shown of a recording.
pub(crate) const VIEWS: &str = "Views";
/// Where the result goes, and in which form.
pub(crate) const OUTPUT: &str = "Output";
/// When a command begins and ends, what it says, and what it may do.
pub(crate) const RUNNING: &str = "Running";
