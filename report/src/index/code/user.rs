//! The address spaces of processes, compiled: which file was mapped at an address at a time.

use super::cells::Cells;
use crate::index::file_functions::{FileFunctions, Files, Mapped};
use crate::index::runners::come_and_go;
use bprec_format::records::Mmap2File;
use rustc_hash::FxHashMap;
use std::collections::BTreeSet;

/// Limit on mappings; further mappings are only counted.
const MAX_MAPS: usize = 1 << 18;
/// Limit on segments while mappings are compiled, for hostile files with many overlaps: this many per mapping, and [`SPARE`] more per process.
const SEGMENTS_PER_MAP: usize = 16;
/// Number of segments per process that is allowed in addition to [`SEGMENTS_PER_MAP`].
const SPARE: usize = 1 << 12;
/// Limit on the chain of parent processes from which mappings are inherited.
const MAX_FORKS: usize = 32;

/// Mapping of a process.
#[derive(Debug, Clone, Copy)]
struct UserMap {
    time_ns: u64,
    start: u64,
    end: u64,
    pgoff: u64,
    file: u32,
}

/// Builder of [`UserMaps`], from records of mappings and forks.
#[derive(Debug, Default)]
pub(crate) struct UserMapsBuilder {
    numbers: FxHashMap<(Vec<u8>, Option<Mmap2File>), u32>,
    processes: FxHashMap<u32, Vec<UserMap>>,
    count: usize,
    /// Start times and parents of the processes with each pid: the kernel reuses pids.
    parents: FxHashMap<u32, Vec<(u64, u32)>>,
    /// Number of mappings beyond [`MAX_MAPS`].
    lost: u64,
}

impl UserMapsBuilder {
    /// Adds a mapping of a file: start, length and offset in the file.
    pub(crate) fn mapped(
        &mut self,
        pid: u32,
        time_ns: u64,
        (start, len_bytes, pgoff): (u64, u64, u64),
        path: &[u8],
        identity: Option<Mmap2File>,
    ) {
        if self.count >= MAX_MAPS {
            self.lost += 1;
            return;
        }
        self.count += 1;
        let next = self.numbers.len() as u32;
        let file = *self.numbers.entry((path.to_vec(), identity)).or_insert(next);
        let map = UserMap { time_ns, start, end: start.saturating_add(len_bytes), pgoff, file };
        self.processes.entry(pid).or_default().push(map);
    }

    /// Adds the start of a process by its parent.
    pub(crate) fn forked(&mut self, pid: u32, parent: u32, time_ns: u64) {
        self.parents.entry(pid).or_default().push((time_ns, parent));
    }

    /// Compiles the address spaces. Also returns a message about mappings that were left out.
    pub(crate) fn build(mut self, named: &Files) -> (UserMaps, Option<String>) {
        let mut files: Vec<(u32, MappedFile)> = self
            .numbers
            .into_iter()
            .map(|((path, identity), number)| {
                let functions = named.find(&path, identity);
                (number, MappedFile { path: String::from_utf8_lossy(&path).into_owned(), functions })
            })
            .collect();
        files.sort_unstable_by_key(|(number, _)| *number);
        self.parents.values_mut().for_each(|parents| parents.sort_unstable());
        let processes = self.processes.into_iter().map(|(pid, maps)| (pid, compile(maps))).collect();
        let files = files.into_iter().map(|(_, file)| file).collect();
        let lost = (self.lost > 0).then(|| {
            let lost = self.lost;
            format!(
                "{lost} file mappings beyond the limit of {MAX_MAPS} were left out: user-space code in them has no name"
            )
        });
        (UserMaps { files, processes, parents: self.parents }, lost)
    }
}

/// A mapped file. `functions` is the file's number in `Files`, if the recording has its functions.
#[derive(Debug)]
struct MappedFile {
    path: String,
    functions: Option<u32>,
}

/// Address spaces of all processes.
#[derive(Debug, Default)]
pub(crate) struct UserMaps {
    files: Vec<MappedFile>,
    processes: FxHashMap<u32, Cells<UserMap>>,
    parents: FxHashMap<u32, Vec<(u64, u32)>>,
}

impl UserMaps {
    /// Path of a file.
    pub(crate) fn path(&self, file: u32) -> &str {
        &self.files[file as usize].path
    }

    fn functions<'f>(&self, named: &'f Files, file: u32) -> Option<&'f FileFunctions> {
        named.get(self.files[file as usize].functions?)
    }

    /// Returns the function at a mapped address, if the recording has it.
    pub(crate) fn function(&self, named: &Files, file: u32, mapped: Mapped) -> Option<u32> {
        self.functions(named, file)?.find(mapped)
    }

    /// Name of a function of a file, mangled if it is mangled in the file.
    pub(crate) fn function_name<'f>(&self, named: &'f Files, file: u32, number: u32) -> &'f [u8] {
        self.functions(named, file).and_then(|functions| functions.name(number)).map_or(&[], |name| name)
    }

    /// Returns the file mapped at an address, and the mapping. A process without a mapping there has the mapping that it inherited at its start from
    /// its parent.
    pub(crate) fn find(&self, pid: u32, addr: u64, time_ns: u64) -> Option<(u32, Mapped)> {
        self.find_inherited(pid, addr, time_ns, MAX_FORKS)
    }

    fn find_inherited(&self, pid: u32, addr: u64, time_ns: u64, forks: usize) -> Option<(u32, Mapped)> {
        let parents = self.parents.get(&pid).map_or(&[][..], Vec::as_slice);
        let started = parents[..parents.partition_point(|(since, _)| *since <= time_ns)].last();
        let map = self.processes.get(&pid).and_then(|maps| maps.at(addr, time_ns).0);
        let map = map.filter(|map| addr < map.end);
        // A mapping from before the process started belongs to an earlier process with the same id.
        match map.filter(|map| started.is_none_or(|(since, _)| *since <= map.time_ns)) {
            Some(map) => Some((map.file, Mapped { ip: addr, map_start: map.start, pgoff: map.pgoff })),
            None => {
                let (since, parent) = started.or(parents.first()).filter(|_| forks > 0)?;
                self.find_inherited(*parent, addr, *since, forks - 1)
            }
        }
    }
}

/// Compiles the mappings of a process: at each address and time, the newest mapping wins. Beyond the limit on segments, an address has only its last
/// mapping.
fn compile(mut maps: Vec<UserMap>) -> Cells<UserMap> {
    maps.retain(|map| map.start < map.end);
    maps.sort_by_key(|map| map.time_ns);
    let max_segments = maps.len().saturating_mul(SEGMENTS_PER_MAP).saturating_add(SPARE);
    // Ends sort before starts: a mapping does not include its end address.
    let bounds = |map: &UserMap, number| [(map.end, false, number), (map.start, true, number)];
    let mut bounds: Vec<(u64, bool, u32)> = (0..).zip(&maps).flat_map(|(number, map)| bounds(map, number)).collect();
    bounds.sort_unstable();
    let mut cells = Cells::default();
    let mut here: BTreeSet<u32> = BTreeSet::new();
    for bounds in bounds.chunk_by(|a, b| a.0 == b.0) {
        come_and_go(&mut here, bounds);
        cells.begin(bounds[0].0);
        let is_kept = if cells.segments() < max_segments { here.len() } else { 1 };
        for number in here.iter().skip(here.len().saturating_sub(is_kept)) {
            let map = maps[*number as usize];
            cells.push(map.time_ns, map);
        }
    }
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_mapping_at_the_time_is_found() {
        let mut state = 7u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        for count in [0, 1, 2, 3, 40] {
            let maps: Vec<UserMap> = (0..count)
                .map(|file| {
                    let (start, time_ns) = (below(50), below(20));
                    UserMap { time_ns, start, end: start + below(30), pgoff: 0, file }
                })
                .collect();
            let cells = compile(maps.clone());
            for (addr, time_ns) in (0..90).flat_map(|addr| (0..22).map(move |time| (addr, time))) {
                let holding = maps.iter().filter(|map| map.time_ns <= time_ns && (map.start..map.end).contains(&addr));
                let newest = holding.max_by_key(|map| map.time_ns).map(|map| map.file);
                let found = cells.at(addr, time_ns).0.map(|map| map.file);
                assert_eq!(found, newest, "{addr} at {time_ns}");
            }
        }
    }

    /// Ten thousand mappings; each overlaps all earlier mappings.
    #[test]
    fn memory_does_not_grow_with_the_square_of_mappings() {
        let map = |file: u32| UserMap { time_ns: file.into(), start: file.into(), end: 1 << 20, pgoff: 0, file };
        let cells = compile((0..10_000).map(map).collect());
        assert!(cells.segments() <= 10_000 * (SEGMENTS_PER_MAP + 2), "{}", cells.segments());
        assert_eq!(cells.at(1 << 19, u64::MAX).0.map(|map| map.file), Some(9_999));
    }

    #[test]
    fn a_process_has_nothing_of_the_one_that_had_its_number() {
        let mut maps = UserMapsBuilder::default();
        let [sh, make, lib] = [&b"/bin/sh"[..], b"/bin/make", b"/lib/libc.so"];
        maps.mapped(10, 0, (0x1000, 0x1000, 0), sh, None);
        maps.mapped(20, 0, (0x1000, 0x1000, 0), make, None);
        maps.mapped(20, 30, (0x9000, 0x1000, 0), lib, None);
        // Process 20 ends, and process 10 starts another process 20, which maps a file later.
        maps.forked(20, 10, 50);
        maps.mapped(20, 60, (0x5000, 0x1000, 0), lib, None);
        let (maps, lost) = maps.build(&Files::default());
        assert_eq!(lost, None);
        let file = |addr, time_ns| maps.find(20, addr, time_ns).map(|(file, _)| maps.path(file));
        assert_eq!((file(0x1800, 40), file(0x9800, 40)), (Some("/bin/make"), Some("/lib/libc.so")));
        assert_eq!(
            (file(0x1800, 55), file(0x9800, 55)),
            (Some("/bin/sh"), None),
            "mappings of its parent, not of the earlier process with this pid"
        );
        assert_eq!((file(0x5800, 55), file(0x5800, 65)), (None, Some("/lib/libc.so")));
    }

    #[test]
    fn mappings_that_are_left_out_are_said() {
        let mut maps = UserMapsBuilder::default();
        for number in 0..MAX_MAPS as u64 + 3 {
            maps.mapped(1, number, (number << 12, 0x1000, 0), b"/bin/many", None);
        }
        let (maps, lost) = maps.build(&Files::default());
        assert!(maps.find(1, (MAX_MAPS as u64) << 12, u64::MAX).is_none());
        let said = "3 file mappings beyond the limit of 262144 were left out: user-space code in them has no name";
        assert_eq!(lost.as_deref(), Some(said));
    }
}
