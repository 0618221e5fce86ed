//! What other processes ask for while a recording is under way.

use super::Recording;
use crate::control::remote::{Command, Remote};
use crate::{Level, Result};

impl Recording<'_> {
    /// Carries out what has been asked for; whether that is the end.
    pub(super) fn obey(&mut self) -> Result<bool> {
        let mut is_stopped = false;
        for command in self.remote.as_mut().map(Remote::take).unwrap_or_default() {
            let is_done = match &command {
                Command::Enable => self.sources.enable(&mut self.out).map(|()| true)?,
                Command::Disable => self.sources.pause().map(|()| true)?,
                Command::Snapshot if self.rotation.is_some() => {
                    let is_whole = self.switch_output()?;
                    // That it is answered says that the file can be used. An error is told where the recording ends.
                    let _ = is_whole.map(|is_whole| is_whole.recv());
                    true
                }
                Command::Snapshot => {
                    (self.options.notify)(Level::Warning, "--control: snapshot needs --switch-output");
                    false
                }
                Command::Stop => {
                    is_stopped = true;
                    true
                }
                Command::Ping => true,
                Command::Events => {
                    let names: Vec<&str> = self.opened.events.iter().map(|event| &event.name[..]).collect();
                    (self.options.notify)(Level::Warning, &format!("events: {}", names.join(", ")));
                    true
                }
                Command::Unsupported(text, why) => {
                    (self.options.notify)(Level::Warning, &format!("--control: '{text}' is not supported: {why}"));
                    false
                }
                Command::Unknown(text) => {
                    let text = format!(
                        "--control: '{text}' is unknown; expected enable, disable, snapshot, stop, ping or evlist"
                    );
                    (self.options.notify)(Level::Warning, &text);
                    false
                }
            };
            if is_done && self.remote.as_mut().is_some_and(|remote| !remote.answer()) {
                (self.options.notify)(Level::Warning, "--control: nobody reads the answers");
            }
        }
        Ok(is_stopped)
    }
}
