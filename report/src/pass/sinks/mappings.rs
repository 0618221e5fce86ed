//! Files that tasks had mapped, and the functions in them: where an address of user space was.

use crate::index::file_functions::{FileFunctions, Files, Mapped};
use crate::input::recording::Recording;
use crate::pass::sinks::task_maps::{Map, TaskMaps};
use bprec_format::records::{Mmap2File, Payload};
use bprec_format::{Record, RecordType, Records};
use rustc_hash::FxHashMap;

/// Maps of tasks that are kept.
const MAX_MAPS: usize = 1 << 18;
/// A task whose maps are its parent's, whose maps are its parent's …
const MAX_FORKS: usize = 32;

/// What tasks had mapped, by process.
#[derive(Debug)]
pub(crate) struct Mappings<'i> {
    named: &'i Files,
    /// Path of each, and the number of its functions, if the recording has them.
    files: Vec<(String, Option<u32>)>,
    numbers: FxHashMap<(Vec<u8>, Option<u32>), u32>,
    maps: FxHashMap<u32, TaskMaps>,
    count: usize,
    /// Since when a process is the child of which.
    parents: FxHashMap<u32, (u64, u32)>,
}

impl<'i> Mappings<'i> {
    /// What the records of a recording say, and functions of files.
    pub(crate) fn of(recording: &Recording<'_>, named: &'i Files) -> Mappings<'i> {
        let mut maps = Mappings {
            named,
            files: Vec::new(),
            numbers: FxHashMap::default(),
            maps: FxHashMap::default(),
            count: 0,
            parents: FxHashMap::default(),
        };
        recording.for_each_slice(|records| {
            let records: Option<Records<'_>> = records.ok();
            records.into_iter().flatten().map_while(Result::ok).for_each(|record| maps.record(recording, &record));
        });
        maps.maps.values_mut().for_each(TaskMaps::build);
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
            Payload::Mmap(map) => {
                let file = self.number(map.filename, None);
                self.add(map.pid, time_ns, (map.addr, map.len_bytes, map.pgoff), file);
            }
            Payload::Mmap2(map) => {
                let file = self.number(map.filename, Some(map.file));
                self.add(map.pid, time_ns, (map.addr, map.len_bytes, map.pgoff), file);
            }
            Payload::Fork(task) if task.pid != task.ppid => {
                self.parents.insert(task.pid, (time_ns.max(task.time_ns), task.ppid));
            }
            _ => {}
        }
    }

    /// The number of a file. Those of one path are told apart where functions of them are known.
    fn number(&mut self, path: &[u8], file: Option<Mmap2File>) -> u32 {
        let functions = self.named.find(path, file);
        *self.numbers.entry((path.to_vec(), functions)).or_insert_with(|| {
            self.files.push((String::from_utf8_lossy(path).into_owned(), functions));
            self.files.len() as u32 - 1
        })
    }

    fn add(&mut self, pid: u32, time_ns: u64, (start, len_bytes, pgoff): (u64, u64, u64), file: u32) {
        if self.count < MAX_MAPS {
            self.count += 1;
            let map = Map { time_ns, start, end: start.saturating_add(len_bytes), pgoff, file };
            self.maps.entry(pid).or_default().push(map);
        }
    }

    /// Path of a file.
    pub(super) fn file(&self, file: u32) -> &str {
        &self.files[file as usize].0
    }

    fn functions(&self, file: u32) -> Option<&FileFunctions> {
        self.named.get(self.files[file as usize].1?)
    }

    /// The function that a mapped address is in, if the recording has it.
    pub(super) fn function(&self, file: u32, mapped: Mapped) -> Option<u32> {
        self.functions(file)?.find(mapped)
    }

    /// Name of a function of a file, as the file has it.
    pub(super) fn function_name(&self, file: u32, number: u32) -> &[u8] {
        self.functions(file).and_then(|functions| functions.name(number)).map_or(&[], |name| name)
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
