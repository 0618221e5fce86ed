//! Maps as one JSON document.

use super::Json;
use crate::maps::{Atlas, Entry, Frame, Map, Shown, User};
use bprec_format::bpf::btf::Value;
use bprec_format::bpf::names::map_flags;
use std::io::{self, Write};

/// Version of the document: counted up when a member goes away or changes its meaning.
const VERSION: u64 = 1;

pub(crate) fn write(atlas: &Atlas<'_>, out: &mut dyn Write) -> io::Result<()> {
    let mut json = Json::new(out);
    json.object(|json| {
        json.text("format", "bprec maps")?;
        json.number("version", VERSION)?;
        json.list("maps", &atlas.maps, |json, map| self::map(json, atlas, map))?;
        json.list("problems", &atlas.problems, |json, problem| json.string(problem))
    })?;
    writeln!(json.out)
}

fn map(json: &mut Json<'_>, atlas: &Atlas<'_>, map: &Map<'_>) -> io::Result<()> {
    let about = map.about;
    json.object(|json| {
        json.number("id", map.id.into())?;
        json.optional_text("name", about.map(|_| map.name.as_str()))?;
        json.optional_text("type", map.map_type().map(|it| it.to_string()).as_deref())?;
        json.optional("key_bytes", about.map(|about| about.key_bytes.into()))?;
        json.optional("value_bytes", about.map(|about| about.value_bytes.into()))?;
        json.optional("max_entries", about.map(|about| about.max_entries.into()))?;
        json.optional("memory_bytes", about.and_then(|about| about.memlock_bytes))?;
        let flags: Vec<String> = about.into_iter().flat_map(|about| map_flags(about.flags)).collect();
        json.list("flags", &flags, |json, flag| json.string(flag))?;
        match about {
            Some(about) => json.boolean("frozen", about.frozen)?,
            None => json.null("frozen")?,
        }
        json.list("programs", &map.users, user)?;
        let types = map.types.as_ref();
        let named = |id: u32| types.filter(|_| id != 0).map(|types| types.btf.type_name(id));
        json.optional_text("key_type", types.and_then(|types| named(types.key)).as_deref())?;
        json.optional_text("value_type", types.and_then(|types| named(types.value)).as_deref())?;
        let mut definitions: Vec<String> = Vec::new();
        for id in types.into_iter().flat_map(|types| [types.key, types.value]).filter(|id| *id != 0) {
            let new = types.map(|types| types.btf.definitions(id)).unwrap_or_default();
            definitions.extend(new.into_iter().filter(|new| !definitions.contains(new)).collect::<Vec<_>>());
        }
        json.list("types", &definitions, |json, definition| json.string(definition))?;
        json.boolean("types_annotated", types.is_some_and(|types| types.annotated))?;
        match map.contents {
            None => json.null("contents"),
            Some(contents) => json.member("contents", |json| {
                json.object(|json| {
                    let time_ns = contents.time_ns().wrapping_sub(atlas.start_ns) as i64;
                    json.member("time_ns", |json| json.raw(&time_ns.to_string()))?;
                    json.number("entries", contents.len() as u64)?;
                    json.optional_text("cut", contents.cut().as_deref())?;
                    json.member("list", |json| {
                        json.nested(["[", "]"], |json| {
                            atlas.entries(map).try_for_each(|entry| {
                                json.next()?;
                                self::entry(json, atlas, &entry)
                            })
                        })
                    })
                })
            }),
        }
    })
}

fn user(json: &mut Json<'_>, user: &User) -> io::Result<()> {
    json.object(|json| {
        json.number("id", user.id.into())?;
        json.number("load_time_ns", user.load_time_ns)?;
        json.text("name", &user.name)
    })
}

/// One line: there may be many.
fn entry(json: &mut Json<'_>, atlas: &Atlas<'_>, entry: &Entry<'_>) -> io::Result<()> {
    let mut is_whole = entry.key.as_ref().is_none_or(Value::is_whole);
    json.raw("{")?;
    if let Some(key) = &entry.key {
        json.raw("\"key\": ")?;
        value(json, key)?;
        json.raw(", ")?;
    }
    match &entry.values[..] {
        [(None, one)] => {
            json.raw("\"value\": ")?;
            is_whole &= shown(json, atlas, one)?;
        }
        values => {
            json.raw("\"values\": [")?;
            for (n, (cpu, one)) in values.iter().enumerate() {
                let separator = if n > 0 { ", " } else { "" };
                json.raw(&format!("{separator}{{\"cpu\": {}, \"value\": ", cpu.unwrap_or(0)))?;
                is_whole &= shown(json, atlas, one)?;
                json.raw("}")?;
            }
            json.raw("]")?;
        }
    }
    json.raw(if is_whole { "}" } else { ", \"cut\": true}" })
}

/// False when a part of it was left out.
fn shown(json: &mut Json<'_>, atlas: &Atlas<'_>, shown: &Shown<'_>) -> io::Result<bool> {
    match shown {
        Shown::Value(it) => {
            value(json, it)?;
            return Ok(it.is_whole());
        }
        Shown::Program(id) => object_id(json, "program", *id, atlas.program_name(*id))?,
        Shown::Map(id) => object_id(json, "map", *id, atlas.map_name(*id).as_deref())?,
        Shown::Stack(frames) => {
            json.raw("[")?;
            for (n, frame) in frames.iter().enumerate() {
                json.raw(if n > 0 { ", " } else { "" })?;
                self::frame(json, frame)?;
            }
            json.raw("]")?;
        }
    }
    Ok(true)
}

fn object_id(json: &mut Json<'_>, what: &str, id: u32, name: Option<&str>) -> io::Result<()> {
    json.raw(&format!("{{\"{what}\": {id}, \"name\": "))?;
    match name {
        Some(name) => json.string(name)?,
        None => json.raw("null")?,
    }
    json.raw("}")
}

fn frame(json: &mut Json<'_>, frame: &Frame) -> io::Result<()> {
    match frame {
        Frame::Address { addr, symbol: None } => {
            json.raw(&format!("{{\"addr\": \"{addr:#x}\", \"symbol\": null, \"offset\": null}}"))
        }
        Frame::Address { addr, symbol: Some((symbol, offset)) } => {
            json.raw(&format!("{{\"addr\": \"{addr:#x}\", \"symbol\": "))?;
            json.string(symbol)?;
            json.raw(&format!(", \"offset\": {offset}}}"))
        }
        Frame::File { build_id, offset } => {
            json.raw(&format!("{{\"build_id\": \"{build_id}\", \"file_offset\": {offset}}}"))
        }
    }
}

/// A value of a type: what JSON has no form for is a string.
fn value(json: &mut Json<'_>, it: &Value<'_>) -> io::Result<()> {
    match it {
        Value::Unsigned(number) => json.raw(&number.to_string()),
        Value::Negative(number) => json.raw(&number.to_string()),
        Value::Bool(value) => json.raw(&value.to_string()),
        Value::Single(number) if number.is_finite() => json.raw(&number.to_string()),
        Value::Double(number) if number.is_finite() => json.raw(&number.to_string()),
        Value::Text(bytes) => match std::str::from_utf8(bytes) {
            Ok(text) => json.string(text),
            Err(_) => list(json, ["[", "]"], bytes, |json, byte| json.raw(&byte.to_string())),
        },
        Value::Bytes(bytes) => json.string(&bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>()),
        Value::Array(items) => list(json, ["[", "]"], items, value),
        Value::Members(_) => {
            let mut named = Vec::new();
            flatten(it, &mut named);
            list(json, ["{", "}"], &named, |json, (name, value)| {
                json.string(&String::from_utf8_lossy(name))?;
                json.raw(": ")?;
                self::value(json, value)
            })
        }
        Value::Missing | Value::Cut => json.raw("null"),
        Value::Enum(_) | Value::Pointer(_) | Value::Single(_) | Value::Double(_) => json.string(&it.to_string()),
        _ => json.raw("null"),
    }
}

/// Members by name: those of structs and unions without one belong to what is around them, as in C.
fn flatten<'v>(it: &'v Value<'v>, named: &mut Vec<(&'v [u8], &'v Value<'v>)>) {
    let Value::Members(members) = it else { return };
    for (name, value) in members {
        match name {
            Some(name) => named.push((name, value)),
            // Unnamed bit fields are padding.
            None => flatten(value, named),
        }
    }
}

fn list<T>(
    json: &mut Json<'_>,
    ends: [&str; 2],
    items: &[T],
    mut item: impl FnMut(&mut Json<'_>, &T) -> io::Result<()>,
) -> io::Result<()> {
    json.raw(ends[0])?;
    for (n, it) in items.iter().enumerate() {
        json.raw(if n > 0 { ", " } else { "" })?;
        item(json, it)?;
    }
    json.raw(ends[1])
}
