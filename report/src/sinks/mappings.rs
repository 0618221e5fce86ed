//! Files that tasks had mapped, and the functions in them: where an address of user space was.

use crate::index::file_functions::{FileFunctions, Files, Mapped, functions_of_files};
use crate::input::recording::Recording;
use crate::sinks::task_maps::{Map, TaskMaps};
use bprec_format::records::Payload;
use bprec_format::{Record, RecordType, Records};
use rustc_hash::FxHashMap;

/// Maps of tasks that are kept.
const MAX_MAPS: usize = 1 << 18;
/// A task whose maps are its parent's, whose maps are its parent's …
const MAX_FORKS: usize = 32;

/// What tasks had mapped, by process.
#[derive(Debug, Default)]
pub(super) struct Mappings {
    files: Vec<String>,
    /// By file: its functions, if the recording has them.
    functions: Vec<Option<FileFunctions>>,
    numbers: FxHashMap<Vec<u8>, u32>,
    maps: FxHashMap<u32, TaskMaps>,
    count: usize,
    /// Since when a process is the child of which.
    parents: FxHashMap<u32, (u64, u32)>,
}

impl Mappings {
    /// What the records of a recording say.
    pub(super) fn of(recording: &Recording<'_>) -> Mappings {
        let mut maps = Mappings::default();
        recording.for_each_slice(|records| {
            let records: Option<Records<'_>> = records.ok();
            records.into_iter().flatten().map_while(Result::ok).for_each(|record| maps.record(recording, &record));
        });
        maps.order(functions_of_files(recording.sections(), recording.endian()));
        maps
    }

    fn record(&mut self, recording: &Recording<'_>, record: &Record<'_>) {
        if !matches!(record.kind, RecordType::MMAP | RecordType::MMAP2 | RecordType::FORK) {
            return;
        }
        let event = recording.events.index_of(record).unwrap_or(0);
        let Ok((payload, id)) = Payload::decode(record, &recording.event(event).layout) else { return };
        let time_ns = id.time_ns.unwrap_or(0);
        match payload {
            Payload::Mmap(map) => self.add(map.pid, time_ns, map.addr, map.len_bytes, map.pgoff, map.filename),
            Payload::Mmap2(map) => self.add(map.pid, time_ns, map.addr, map.len_bytes, map.pgoff, map.filename),
            Payload::Fork(task) if task.pid != task.ppid => {
                self.parents.insert(task.pid, (time_ns.max(task.time_ns), task.ppid));
            }
            _ => {}
        }
    }

    fn add(&mut self, pid: u32, time_ns: u64, start: u64, len_bytes: u64, pgoff: u64, file: &[u8]) {
        if self.count >= MAX_MAPS {
            return;
        }
        self.count += 1;
        let file = match self.numbers.get(file) {
            Some(number) => *number,
            None => {
                let number = self.files.len() as u32;
                self.files.push(String::from_utf8_lossy(file).into_owned());
                self.numbers.insert(file.to_vec(), number);
                number
            }
        };
        let map = Map { time_ns, start, end: start.saturating_add(len_bytes), pgoff, file };
        self.maps.entry(pid).or_default().push(map);
    }

    fn order(&mut self, mut functions: Files) {
        self.maps.values_mut().for_each(TaskMaps::build);
        self.functions.resize_with(self.files.len(), || None);
        for (path, number) in &self.numbers {
            self.functions[*number as usize] = functions.remove(path);
        }
    }

    /// Path of a file.
    pub(super) fn file(&self, file: u32) -> &str {
        &self.files[file as usize]
    }

    /// The function that a mapped address is in, if the recording has it.
    pub(super) fn function(&self, file: u32, mapped: Mapped) -> Option<u32> {
        self.functions[file as usize].as_ref()?.find(mapped)
    }

    /// Name of a function of a file.
    pub(super) fn function_name(&self, file: u32, number: u32) -> String {
        let name = self.functions[file as usize].as_ref().and_then(|functions| functions.name(number));
        name.map(|name| String::from_utf8_lossy(name).into_owned()).unwrap_or_default()
    }

    /// The file that an address was mapped to, and how: by the newest map, or by what was inherited.
    pub(super) fn find(&self, pid: u32, addr: u64, time_ns: u64) -> Option<(u32, Mapped)> {
        self.find_inherited(pid, addr, time_ns, MAX_FORKS)
    }

    fn find_inherited(&self, pid: u32, addr: u64, time_ns: u64, forks: usize) -> Option<(u32, Mapped)> {
        match self.maps.get(&pid).and_then(|maps| maps.find(addr, time_ns)) {
            Some(map) => Some((map.file, Mapped { ip: addr, map_start: map.start, pgoff: map.pgoff })),
            None => {
                let (since, parent) = self.parents.get(&pid).filter(|_| forks > 0)?;
                self.find_inherited(*parent, addr, *since, forks - 1)
            }
        }
    }
}
