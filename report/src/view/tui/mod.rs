//! Interactive screens: a first page with all programs, and pages about one program.
//!
//! A [`Browser`] is the state of a screen; [`draw`] shows it. Keys and answers change the state and make requests. The caller reads the terminal, and
//! passes each [`Request`] to a thread that reads the recording with [`Session::answer`](crate::Session::answer).

mod browser;
mod dashboard;
mod draw;
mod model;
mod page;
mod palette;

use std::path::PathBuf;
use std::time::Duration;

use crate::Result;
use crate::options::Options;

pub use browser::{Action, Browser};
pub use draw::draw;
pub use model::{Kind, Model};
pub use palette::{Charset, Depth, Palette};

/// Request to the thread that reads the recording.
#[derive(Debug)]
pub enum Request {
    /// Read a model.
    Read(Read),
    /// Stop sending newer intervals (true), or send them again (false).
    Pause(bool),
    /// Send intervals of about this length.
    Every(Duration),
    /// Write the recorded samples to a file.
    Write(PathBuf),
}

/// Request for a model.
#[derive(Debug)]
pub struct Read {
    /// Number of the request, which the answer repeats.
    number: u64,
    kind: Kind,
    query: Options,
}

/// Answer of the reading thread.
pub enum Answer {
    /// The requested model or the error, with the number of the request.
    Read(u64, Result<Model>),
    /// The newest interval.
    Newer(Model),
    /// Message for the last line of the screen.
    Message(String),
}

impl Read {
    /// Kind of the requested model.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Selection and order of the requested model.
    pub fn query(&self) -> &Options {
        &self.query
    }

    /// Returns the answer to this request, from a model or an error.
    pub fn answer(&self, model: Result<Model>) -> Answer {
        Answer::Read(self.number, model)
    }
}
