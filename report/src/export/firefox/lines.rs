//! Source lines of frames. `fxprof_processed_profile`, the crate that makes the document, does not support source lines: it tells frames apart by
//! name only. The name of a frame therefore carries its line into the document, and this module moves the line to the columns of the format.

use crate::model::FrameSource;
use crate::model::text::printable;
use fxprof_processed_profile::Profile as Document;
use rustc_hash::FxHashMap;
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Result, Value, from_str, from_value, json};
use std::collections::BTreeMap;
use std::io::Write;

/// Mark between the parts of a name; printable names do not contain it.
const MARK: char = '\0';

/// Members of a JSON object, not parsed yet.
type JsonMembers<'t> = BTreeMap<&'t str, &'t RawValue>;

/// Returns the name of a frame in the document: the name for viewers, and the line.
pub(super) fn named(name: &str, source: Option<&FrameSource>) -> String {
    let Some(FrameSource { file, line, function_line }) = source else { return name.to_owned() };
    format!("{name}{MARK}{line}{MARK}{function_line}{MARK}{}", printable(file))
}

/// Writes the document, with lines in their columns. Parses only the tables of frames and functions of the serialized document, not its samples.
pub(super) fn write(document: &Document, out: &mut dyn Write) -> Result<()> {
    let text = serde_json::to_string(document)?;
    let members: JsonMembers<'_> = from_str(&text)?;
    let threads: Vec<JsonMembers<'_>> =
        members.get("threads").map_or(Ok(Vec::new()), |threads| from_str(threads.get()))?;
    let threads: Vec<Box<RawValue>> = threads.into_iter().map(with_lines).collect::<Result<_>>()?;
    let threads = to_raw_value(&threads)?;
    let mut changed = members;
    changed.insert("threads", &threads);
    serde_json::to_writer(out, &changed)
}

/// Moves the lines of a thread's frames. All frames of a function then belong to the same entry of the table of functions.
fn with_lines(thread: JsonMembers<'_>) -> Result<Box<RawValue>> {
    let table = |name: &str| thread.get(name).map_or(Ok(Value::Null), |table| from_str::<Value>(table.get()));
    let [mut functions, mut frames] = [table("funcTable")?, table("frameTable")?];
    let mut texts: Vec<String> = from_value(table("stringArray")?)?;
    let names: Vec<usize> = from_value(functions["name"].clone())?;
    let (mut known, mut files) = (FxHashMap::<String, usize>::default(), FxHashMap::<String, usize>::default());
    let (mut kept, mut moved) = (Vec::new(), Vec::new());
    let mut sources: Vec<(Value, Value)> = Vec::new();
    for (function, name) in names.into_iter().enumerate() {
        let text = std::mem::take(&mut texts[name]);
        let mut parts = text.splitn(4, MARK);
        let label = parts.next().unwrap_or_default();
        let [line, function_line] = [(); 2].map(|()| parts.next().and_then(|part| part.parse::<u32>().ok()));
        let place = *known.entry(label.to_owned()).or_insert_with(|| {
            kept.push(function);
            sources.push(<(Value, Value)>::default());
            kept.len() - 1
        });
        if let Some(file) = parts.next()
            && sources[place].0.is_null()
        {
            let number = *files.entry(file.to_owned()).or_insert_with_key(|file| {
                texts.push(file.clone());
                texts.len() - 1
            });
            sources[place] = (json!(number), json!(function_line));
        }
        texts[name] = label.to_owned();
        moved.push((place, line));
    }
    for column in functions.as_object_mut().into_iter().flat_map(|columns| columns.values_mut()) {
        if let Value::Array(cells) = column {
            *cells = kept.iter().map(|function| cells[*function].take()).collect();
        }
    }
    functions["length"] = json!(kept.len());
    let (of_functions, lines): (Vec<Value>, Vec<Value>) = sources.into_iter().unzip();
    (functions["fileName"], functions["lineNumber"]) = (json!(of_functions), json!(lines));
    let of_frames: Vec<usize> = from_value(frames["func"].take())?;
    let (of_frames, lines): (Vec<usize>, Vec<Option<u32>>) =
        of_frames.into_iter().map(|function| moved[function]).unzip();
    (frames["func"], frames["line"]) = (json!(of_frames), json!(lines));
    let [texts, functions, frames] = [to_raw_value(&texts)?, to_raw_value(&functions)?, to_raw_value(&frames)?];
    let mut changed = thread;
    changed.extend([("stringArray", &*texts), ("funcTable", &*functions), ("frameTable", &*frames)]);
    to_raw_value(&changed)
}
