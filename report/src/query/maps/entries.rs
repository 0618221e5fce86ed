//! Entries of a map: keys and values.

use super::{Map, MapsReport};
use crate::index::map_contents::Contents;
use crate::index::symbolizer::Symbolizer;
use bprec_format::CONTEXT_MAX;
use bprec_format::bpf::btf::{Limits, Value};
use bprec_format::bpf::names::MapType;
use serde::Serialize;

/// Returns the limits on the text of a key or value. Types come from the recording and may be hostile: a union, or a type without a size, can expand
/// one byte to any number of values.
fn limits(bytes: &[u8]) -> Limits {
    const CHARS_MIN: usize = 1 << 10;
    const CHARS_PER_BYTE: usize = 1 << 8;
    const CHARS_MAX: usize = 1 << 20;
    let chars = bytes.len().saturating_mul(CHARS_PER_BYTE).saturating_add(CHARS_MIN).min(CHARS_MAX);
    Limits { depth: 32, elements: 1 << 16, chars }
}

/// `BPF_F_STACK_BUILD_ID`: a stack trace has build ids and offsets instead of addresses.
const STACK_BUILD_ID: u32 = 1 << 5;
/// Bytes of `struct bpf_stack_build_id`: `status s32, build_id[20], offset or ip u64`.
const BUILD_ID_FRAME_BYTES: usize = 32;
/// `BPF_STACK_BUILD_ID_VALID`: the frame has a build id and an offset.
const BUILD_ID_VALID: u32 = 1;

/// Entry of a map.
pub(crate) struct MapEntry<'a> {
    /// Key; `None` if entries have no keys.
    pub(crate) key: Option<Value<'a>>,
    /// Values, each with its CPU if the map has one value per CPU.
    pub(crate) values: Vec<(Option<u32>, EntryValue<'a>)>,
}

/// Value of an entry.
pub(crate) enum EntryValue<'a> {
    /// Value by its type; bytes if the type is unknown.
    Value(Value<'a>),
    /// Call chain, innermost first.
    Stack(Vec<StackTraceFrame>),
    /// Id of a program.
    Program(u32),
    /// Id of a map.
    Map(u32),
}

/// Frame of a stack trace in a map.
#[derive(Serialize)]
#[serde(untagged)]
pub(crate) enum StackTraceFrame {
    /// Address, with the function and the distance from its start, if known.
    Address {
        #[serde(serialize_with = "crate::model::address")]
        addr: u64,
        symbol: Option<String>,
        offset: Option<u64>,
    },
    /// Offset in a file, by the file's build id in hexadecimal.
    File {
        build_id: String,
        #[serde(rename = "file_offset")]
        offset: u64,
    },
}

impl MapsReport<'_> {
    /// Returns the entries of a map one at a time, because there may be many.
    pub(crate) fn entries<'s>(&'s self, map: &'s Map<'_>) -> impl Iterator<Item = MapEntry<'s>> + Clone {
        let contents = map.contents.filter(|contents| contents.stride() > 0);
        let run = contents.map_or(&[][..], |contents| &contents.whole.bytes[..]);
        let stride = contents.map_or(1, Contents::stride);
        run.chunks_exact(stride).take(self.limit.unwrap_or(usize::MAX)).map(|bytes| self.entry(map, bytes))
    }

    fn entry<'s>(&'s self, map: &'s Map<'_>, bytes: &[u8]) -> MapEntry<'s> {
        let Some(contents) = map.contents else { return MapEntry { key: None, values: Vec::new() } };
        let whole = &contents.whole;
        let (key, values) = bytes.split_at_checked(whole.key_bytes as usize).unwrap_or_default();
        let shown = |bytes| self.shown(map, contents, bytes);
        let value_bytes = (whole.value_bytes as usize).max(1);
        MapEntry {
            key: (!key.is_empty()).then(|| self.key(map, key)),
            values: if whole.cpus.is_empty() {
                vec![(None, shown(values))]
            } else {
                let cpus = whole.cpus.iter().map(|cpu| Some(*cpu));
                cpus.zip(values.chunks(value_bytes)).map(|(cpu, value)| (cpu, shown(value))).collect()
            },
        }
    }

    fn key<'s>(&'s self, map: &'s Map<'_>, bytes: &[u8]) -> Value<'s> {
        match (&map.types, map.map_type()) {
            (Some(types), _) if types.key != 0 => types.btf.value(types.key, bytes, &limits(bytes)),
            // The keys of these map types are numbers by definition of the kernel.
            (
                _,
                Some(
                    MapType::ARRAY
                    | MapType::PERCPU_ARRAY
                    | MapType::PROG_ARRAY
                    | MapType::ARRAY_OF_MAPS
                    | MapType::STACK_TRACE
                    | MapType::DEVMAP
                    | MapType::CPUMAP,
                ),
            ) => self.endian.u32_at(bytes, 0).map_or(Value::Missing, |index| Value::Unsigned(index.into())),
            _ => Value::Bytes(bytes.to_vec()),
        }
    }

    fn shown<'s>(&'s self, map: &'s Map<'_>, contents: &Contents, bytes: &[u8]) -> EntryValue<'s> {
        let id = || self.endian.u32_at(bytes, 0);
        match map.map_type() {
            Some(MapType::STACK_TRACE) => {
                let has_build_ids = map.about.is_some_and(|about| about.flags & STACK_BUILD_ID != 0);
                return EntryValue::Stack(if has_build_ids { self.files(bytes) } else { self.stack(contents, bytes) });
            }
            Some(MapType::PROG_ARRAY) if let Some(id) = id() => return EntryValue::Program(id),
            Some(MapType::ARRAY_OF_MAPS | MapType::HASH_OF_MAPS) if let Some(id) = id() => return EntryValue::Map(id),
            _ => {}
        }
        EntryValue::Value(match &map.types {
            Some(types) if types.value != 0 => types.btf.value(types.value, bytes, &limits(bytes)),
            _ => Value::Bytes(bytes.to_vec()),
        })
    }

    fn stack(&self, contents: &Contents, bytes: &[u8]) -> Vec<StackTraceFrame> {
        let addresses = bytes.chunks_exact(8).map_while(|word| self.endian.u64_at(word, 0));
        // The markers before kernel frames and before user frames are no addresses.
        let addresses = addresses.take_while(|addr| *addr != 0).filter(|addr| *addr < CONTEXT_MAX).enumerate();
        addresses
            // All addresses except the first are return addresses. If a call is the last instruction of its function, the return address is beyond
            // the function's end, so the byte before it is looked up.
            .map(|(at, addr)| {
                let (symbol, offset) = self.symbol(addr, at > 0, contents.time_ns()).unzip();
                StackTraceFrame::Address { addr, symbol, offset }
            })
            .collect()
    }

    fn files(&self, bytes: &[u8]) -> Vec<StackTraceFrame> {
        let frames = bytes.chunks_exact(BUILD_ID_FRAME_BYTES);
        let frame = |frame: &[u8]| {
            let (status, offset) = (self.endian.u32_at(frame, 0)?, self.endian.u64_at(frame, 24)?);
            let build_id = frame.get(4..24)?.iter().map(|byte| format!("{byte:02x}")).collect();
            match status {
                0 => None,
                BUILD_ID_VALID => Some(StackTraceFrame::File { build_id, offset }),
                _ => Some(StackTraceFrame::Address { addr: offset, symbol: None, offset: None }),
            }
        };
        frames.map_while(frame).collect()
    }

    /// Returns the function at an address, and the distance from its start.
    fn symbol(&self, addr: u64, is_return: bool, time_ns: u64) -> Option<(String, u64)> {
        let symbolizer = Symbolizer::new(self.index);
        let symbol = if is_return { symbolizer.find_caller(addr, time_ns) } else { symbolizer.find(addr, time_ns) }?;
        Some((symbol.name.into_owned(), symbol.offset.unwrap_or(0)))
    }
}
