//! BPF maps as a JSON document.

use super::c_types::{self, type_name};
use super::json;
use crate::model::{Header, ItemByItem};
use crate::query::maps::{EntryValue, Map, MapEntry, MapsReport, StackTraceFrame};
use bprec_format::bpf::btf::Value;
use bprec_format::bpf::names::map_flags;
use serde::ser::{Error as _, SerializeMap};
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use std::io::{self, Write};

/// Version of the document, increased when a member is removed or changes its meaning.
const VERSION: u32 = 1;

pub(crate) fn write(report: &MapsReport<'_>, header: Option<&Header>, out: &mut dyn Write) -> io::Result<()> {
    #[derive(Serialize)]
    struct MapsDocument<'d, M> {
        format: &'static str,
        version: u32,
        maps: M,
        problems: &'d [String],
    }
    let maps = ItemByItem(report.maps().map(|map| OneMap(report, map)));
    let document = MapsDocument { format: "bprec maps", version: VERSION, maps, problems: &report.problems };
    json::pretty_under(header, &document, out)
}

/// A map. If only its id was recorded, facts about the map are `null`, and `flags` is empty.
#[derive(Serialize)]
struct MapDocument<'d, P, E> {
    id: u32,
    name: Option<&'d str>,
    #[serde(rename = "type")]
    map_type: Option<String>,
    key_bytes: Option<u32>,
    value_bytes: Option<u32>,
    max_entries: Option<u32>,
    memory_bytes: Option<u64>,
    flags: Vec<String>,
    frozen: Option<bool>,
    programs: P,
    key_type: Option<String>,
    value_type: Option<String>,
    types: Vec<String>,
    types_annotated: bool,
    contents: Option<ContentsDocument<E>>,
}

#[derive(Serialize)]
struct UserDocument<'d> {
    id: u32,
    load_time_ns: u64,
    name: &'d str,
}

#[derive(Serialize)]
struct ContentsDocument<E> {
    time_ns: i64,
    entries: usize,
    cut: Option<String>,
    list: E,
}

struct OneMap<'d>(&'d MapsReport<'d>, Map<'d>);

impl Serialize for OneMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        map_document(self.0, &self.1).serialize(serializer)
    }
}

/// Serializes a value on one line, inside an indented document.
struct OneLine<T>(T);

impl<T: Serialize> Serialize for OneLine<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut line = Vec::new();
        json::line(&self.0, &mut line).map_err(S::Error::custom)?;
        let line = String::from_utf8(line).map_err(S::Error::custom)?;
        RawValue::from_string(line.trim_end().to_owned()).map_err(S::Error::custom)?.serialize(serializer)
    }
}

fn map_document<'d>(report: &'d MapsReport<'_>, map: &'d Map<'_>) -> impl Serialize + 'd {
    let about = map.about;
    let types = map.types.as_ref();
    let named = |id: u32| types.filter(|_| id != 0).map(|types| type_name(types.btf, id));
    let mut definitions: Vec<String> = Vec::new();
    for id in types.into_iter().flat_map(|types| [types.key, types.value]).filter(|id| *id != 0) {
        let new = types.map(|types| c_types::definitions(types.btf, id)).unwrap_or_default();
        definitions.extend(new.into_iter().filter(|new| !definitions.contains(new)).collect::<Vec<_>>());
    }
    MapDocument {
        id: map.id,
        name: about.map(|_| map.name),
        map_type: map.map_type().map(|it| it.to_string()),
        key_bytes: about.map(|about| about.key_bytes),
        value_bytes: about.map(|about| about.value_bytes),
        max_entries: about.map(|about| about.max_entries),
        memory_bytes: about.and_then(|about| about.memlock_bytes),
        flags: about.into_iter().flat_map(|about| map_flags(about.flags)).collect(),
        frozen: about.map(|about| about.frozen),
        programs: ItemByItem(report.users(map).map(|user| UserDocument {
            id: user.id,
            load_time_ns: user.load_time_ns,
            name: user.name,
        })),
        key_type: types.and_then(|types| named(types.key)),
        value_type: types.and_then(|types| named(types.value)),
        types: definitions,
        types_annotated: types.is_some_and(|types| types.annotated),
        contents: map.contents.map(|contents| ContentsDocument {
            time_ns: report.since_start_ns(contents),
            entries: contents.len(),
            cut: contents.cut(),
            list: ItemByItem(report.entries(map).map(move |entry| OneLine(EntryDocument(report, entry)))),
        }),
    }
}

struct EntryDocument<'d>(&'d MapsReport<'d>, MapEntry<'d>);

impl Serialize for EntryDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct OfCpu<'d> {
            cpu: u32,
            value: ShownDocument<'d>,
        }
        let EntryDocument(report, entry) = self;
        let mut map = serializer.serialize_map(None)?;
        if let Some(key) = &entry.key {
            map.serialize_entry("key", &ValueDocument(key))?;
        }
        match &entry.values[..] {
            [(None, one)] => map.serialize_entry("value", &ShownDocument::new(report, one))?,
            values => {
                let values: Vec<OfCpu<'_>> = values
                    .iter()
                    .map(|(cpu, value)| OfCpu { cpu: cpu.unwrap_or(0), value: ShownDocument::new(report, value) })
                    .collect();
                map.serialize_entry("values", &values)?;
            }
        }
        let is_whole = entry.key.as_ref().is_none_or(Value::is_whole)
            && entry.values.iter().all(|(_, value)| match value {
                EntryValue::Value(value) => value.is_whole(),
                EntryValue::Program(_) | EntryValue::Map(_) | EntryValue::Stack(_) => true,
            });
        if !is_whole {
            map.serialize_entry("cut", &true)?;
        }
        map.end()
    }
}

#[derive(Serialize)]
#[serde(untagged)]
enum ShownDocument<'d> {
    Value(ValueDocument<'d>),
    Program { program: u32, name: Option<&'d str> },
    Map { map: u32, name: Option<&'d str> },
    Stack(&'d [StackTraceFrame]),
}

impl<'d> ShownDocument<'d> {
    fn new(report: &'d MapsReport<'_>, shown: &'d EntryValue<'_>) -> ShownDocument<'d> {
        match shown {
            EntryValue::Value(value) => ShownDocument::Value(ValueDocument(value)),
            EntryValue::Program(id) => ShownDocument::Program { program: *id, name: report.program_name(*id) },
            EntryValue::Map(id) => ShownDocument::Map { map: *id, name: report.map_name(*id) },
            EntryValue::Stack(frames) => ShownDocument::Stack(frames),
        }
    }
}

/// Serializes a typed value. Enums, pointers, raw bytes and non-finite numbers are strings; missing and cut values are `null`.
struct ValueDocument<'d>(&'d Value<'d>);

impl Serialize for ValueDocument<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Value::Unsigned(number) => number.serialize(serializer),
            Value::Negative(number) => number.serialize(serializer),
            Value::Bool(value) => value.serialize(serializer),
            Value::Single(number) if number.is_finite() => number.serialize(serializer),
            Value::Double(number) if number.is_finite() => number.serialize(serializer),
            Value::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => text.serialize(serializer),
                Err(_) => bytes.serialize(serializer),
            },
            Value::Bytes(bytes) => {
                let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
                hex.serialize(serializer)
            }
            Value::Array(items) => serializer.collect_seq(items.iter().map(ValueDocument)),
            Value::Members(_) => {
                let mut named = Vec::new();
                flatten(self.0, &mut named);
                let members = named.iter().map(|(name, value)| (String::from_utf8_lossy(name), ValueDocument(value)));
                serializer.collect_map(members)
            }
            Value::Missing | Value::Cut => serializer.serialize_none(),
            Value::Enum(_) | Value::Pointer(_) | Value::Single(_) | Value::Double(_) => serializer.collect_str(self.0),
            _ => serializer.serialize_none(),
        }
    }
}

/// Collects members with their names. Members of unnamed structs and unions belong to the enclosing type, as in C.
fn flatten<'v>(it: &'v Value<'v>, named: &mut Vec<(&'v [u8], &'v Value<'v>)>) {
    let Value::Members(members) = it else { return };
    for (name, value) in members {
        match name {
            Some(name) => named.push((name, value)),
            // Adds nothing for an unnamed bit field, which is padding.
            None => flatten(value, named),
        }
    }
}
