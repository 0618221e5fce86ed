//! speedscope's file format: distinct frames, and stacks that refer to them.

use crate::model::text::printable;
use crate::model::{Stacks, Unit};
use serde::Serialize;
use std::io::{self, Write};

#[derive(Serialize)]
struct SpeedscopeFile {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: &'static str,
    shared: Shared,
    profiles: [SpeedscopeProfile; 1],
}

#[derive(Serialize)]
struct Shared {
    frames: Vec<SharedFrame>,
}

#[derive(Serialize)]
struct SharedFrame {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpeedscopeProfile {
    #[serde(rename = "type")]
    kind: &'static str,
    name: String,
    unit: &'static str,
    start_value: u64,
    end_value: u64,
    samples: Vec<Vec<u32>>,
    weights: Vec<u64>,
}

impl Stacks {
    /// Writes the call chains as speedscope's JSON.
    ///
    /// # Errors
    /// Fails if the output cannot be written.
    pub fn write_speedscope(&self, out: &mut dyn Write) -> io::Result<()> {
        let frames = self.frames.iter().map(|frame| SharedFrame {
            name: printable(&frame.label()).into_owned(),
            file: frame.kind.file().map(|file| printable(file).into_owned()),
        });
        let document = SpeedscopeFile {
            schema: "https://www.speedscope.app/file-format-schema.json",
            exporter: concat!("bprec ", env!("CARGO_PKG_VERSION")),
            shared: Shared { frames: frames.collect() },
            profiles: [SpeedscopeProfile {
                kind: "sampled",
                // Equal stacks are one sample, so the viewer's first view has no order of time to show.
                name: format!("{} (stacks are summed: Time Order has no meaning)", printable(&self.event)),
                unit: match self.unit {
                    Unit::Nanoseconds => "nanoseconds",
                    Unit::Events => "none",
                },
                start_value: 0,
                end_value: self.total.weight,
                samples: self.stacks.iter().map(|stack| stack.frames.clone()).collect(),
                weights: self.stacks.iter().map(|stack| stack.count.weight).collect(),
            }],
        };
        serde_json::to_writer(&mut *out, &document)?;
        out.write_all(b"\n")
    }
}
