//! Contents of maps, compared with the values that libbpf wrote.
#![allow(missing_docs, clippy::unwrap_used, clippy::expect_used, clippy::print_stdout)]

mod common;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::os::fd::{AsFd, AsRawFd};

use bprec_bpf::{Bounds, Map, Program};
use bprec_format::bprec::state::{ContentsEnd, MapContents, PAYLOAD_MAX_BYTES, State};
use common::{can_load, fdinfo, load_inventory, prog_id, program};
use libbpf_rs::libbpf_sys::bpf_map_create_opts;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, num_possible_cpus};

/// Creates a map; `None`, with a skip message, if this kernel lacks the type.
fn create(test: &str, kind: MapType, sizes: [u32; 3], flags: u32, inner: Option<&MapHandle>) -> Option<MapHandle> {
    let opts = bpf_map_create_opts {
        sz: size_of::<bpf_map_create_opts>() as _,
        map_flags: flags,
        inner_map_fd: inner.map_or(0, |map| map.as_fd().as_raw_fd() as u32),
        ..bpf_map_create_opts::default()
    };
    let [key, value, entries] = sizes;
    MapHandle::create(kind, Some("bprec_contents"), key, value, entries, &opts)
        .inspect_err(|error| println!("SKIP {test}: no map of type {kind:?}: {error}"))
        .ok()
}

fn id(map: &MapHandle) -> u32 {
    fdinfo(map.as_fd().as_raw_fd(), "map_id")
}

/// Reads the contents of a map and returns their parts in order. Checks that each part fits into a record.
fn parts(map: &MapHandle, bounds: &Bounds) -> Vec<MapContents> {
    let mut parts = Vec::new();
    let read = Map::take(id(map)).unwrap().read_contents(
        bounds,
        || 7,
        |part| {
            parts.push(part);
            Ok::<(), Infallible>(())
        },
    );
    assert_eq!(read, Ok(()));
    for (n, part) in parts.iter().enumerate() {
        let mut payload = Vec::new();
        State::MapContents(part.clone()).encode(&mut payload, bprec_format::Endian::NATIVE);
        assert!(payload.len() <= PAYLOAD_MAX_BYTES, "{} bytes", payload.len());
        assert_eq!(part.end.is_some(), n + 1 == parts.len());
    }
    parts
}

/// Reads a map. Returns its keys and values, and the end of the last part.
fn read(map: &MapHandle, bounds: &Bounds) -> (BTreeMap<Vec<u8>, Vec<u8>>, ContentsEnd) {
    let parts = parts(map, bounds);
    let first = parts[0].clone();
    let end = parts.last().unwrap().end.clone().unwrap();
    let run: Vec<u8> = parts.into_iter().flat_map(|part| part.bytes).collect();
    let values = first.cpus.len().max(1) * first.value_bytes as usize;
    let entries: Vec<_> = run.chunks((first.key_bytes as usize + values).max(1)).collect();
    assert_eq!(entries.len() as u64, end.entries);
    let split = entries.iter().map(|entry| entry.split_at(first.key_bytes as usize));
    let map: BTreeMap<_, _> = split.map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    assert_eq!(map.len(), entries.len(), "an entry appears twice");
    (map, end)
}

fn all(map: &MapHandle) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let (entries, end) = read(map, &Bounds::default());
    assert_eq!(end.cut, "");
    entries
}

#[test]
fn hashes_and_arrays_give_what_was_put_in() {
    let test = "hashes_and_arrays_give_what_was_put_in";
    if !can_load(test) {
        return;
    }
    const NO_PREALLOC: u32 = 1;
    for (kind, flags) in
        [(MapType::Hash, 0), (MapType::Hash, NO_PREALLOC), (MapType::LruHash, 0), (MapType::LpmTrie, NO_PREALLOC)]
    {
        // With values of 11 bytes, any padding would show. A key of the LPM trie is a prefix: its length in bits (32), then the address.
        let Some(map) = create(test, kind, [8, 11, 5000], flags, None) else { continue };
        let mut expected = BTreeMap::new();
        for n in 0..3000u32 {
            let key = [32u32.to_ne_bytes(), n.to_be_bytes()].concat();
            let value = [&n.to_ne_bytes()[..], b"payload"].concat();
            map.update(&key, &value, MapFlags::ANY).unwrap();
            expected.insert(key, value);
        }
        // An LRU map may have evicted some entries already.
        let there: BTreeMap<_, _> = map.keys().map(|key| (key.clone(), expected[&key].clone())).collect();
        assert!(kind == MapType::LruHash && there.len() > 1000 || there.len() == 3000, "{kind:?}: {}", there.len());
        assert_eq!(all(&map), there, "{kind:?}");
        let (some, end) = read(&map, &Bounds { entries: 10, bytes: 1 << 20 });
        assert_eq!((some.len(), end.cut.as_str()), (10, "cut at 10 entries"));
        let (some, end) = read(&map, &Bounds { entries: 100, bytes: 200 });
        assert_eq!((some.len(), end.cut.as_str()), (10, "cut at 190 bytes, 10 entries"));
    }
    let Some(map) = create(test, MapType::Array, [4, 4, 70_000], 0, None) else { return };
    map.update(&69_999u32.to_ne_bytes(), &7u32.to_ne_bytes(), MapFlags::ANY).unwrap();
    let entries = all(&map);
    assert_eq!(entries.len(), 70_000);
    assert_eq!(entries[&69_999u32.to_ne_bytes()[..]], 7u32.to_ne_bytes());
    assert!(parts(&map, &Bounds::default()).len() > 9, "560,000 bytes are split into parts");
    // With exactly as many entries as the limit, nothing is cut.
    let exact = Bounds { entries: 70_000, bytes: 560_000 };
    assert_eq!(read(&map, &exact).1.cut, "");

    // Entries that are larger than the payload of one record.
    let Some(map) = create(test, MapType::Array, [4, 150_001, 2], 0, None) else { return };
    let value: Vec<u8> = (0..150_001u32).map(|n| (n % 251) as u8).collect();
    map.update(&1u32.to_ne_bytes(), &value, MapFlags::ANY).unwrap();
    assert_eq!(all(&map)[&1u32.to_ne_bytes()[..]], value);
    let (none, end) = read(&map, &Bounds { entries: 9, bytes: 1000 });
    assert_eq!(
        (none.len(), end.cut.as_str()),
        (0, "one entry has 150005 bytes; the limit is 1000 bytes for the whole map")
    );
}

#[test]
fn per_cpu_maps_give_the_value_of_each_cpu() {
    let test = "per_cpu_maps_give_the_value_of_each_cpu";
    if !can_load(test) {
        return;
    }
    let cpus = num_possible_cpus().unwrap();
    for kind in [MapType::PercpuArray, MapType::PercpuHash, MapType::LruPercpuHash] {
        let Some(map) = create(test, kind, [4, 12, 8], 0, None) else { continue };
        let values: Vec<Vec<u8>> = (0..cpus).map(|cpu| vec![cpu as u8 + 1; 12]).collect();
        map.update_percpu(&3u32.to_ne_bytes(), &values, MapFlags::ANY).unwrap();
        let first = parts(&map, &Bounds::default()).swap_remove(0);
        assert_eq!((first.value_bytes, first.cpus.len()), (12, cpus), "{kind:?}");
        assert_eq!(all(&map)[&3u32.to_ne_bytes()[..]], values.concat(), "{kind:?}");
    }
}

#[test]
fn maps_of_objects_give_ids_and_others_a_reason() {
    let test = "maps_of_objects_give_ids_and_others_a_reason";
    if !can_load(test) {
        return;
    }
    let inner = create(test, MapType::Array, [4, 8, 1], 0, None).unwrap();
    for kind in [MapType::ArrayOfMaps, MapType::HashOfMaps] {
        let Some(map) = create(test, kind, [4, 4, 3], 0, Some(&inner)) else { continue };
        map.update(&2u32.to_ne_bytes(), &inner.as_fd().as_raw_fd().to_ne_bytes(), MapFlags::ANY).unwrap();
        // Empty slots are left out.
        assert_eq!(all(&map), BTreeMap::from([(2u32.to_ne_bytes().to_vec(), id(&inner).to_ne_bytes().to_vec())]));
    }
    let object = load_inventory(&["inventory_raw_tp"]);
    if let Some(map) = create(test, MapType::ProgArray, [4, 4, 100], 0, None) {
        let fd = program(&object, "inventory_raw_tp").as_fd().as_raw_fd();
        map.update(&40u32.to_ne_bytes(), &fd.to_ne_bytes(), MapFlags::ANY).unwrap();
        let prog = prog_id(&object, "inventory_raw_tp");
        assert_eq!(all(&map), BTreeMap::from([(40u32.to_ne_bytes().to_vec(), prog.to_ne_bytes().to_vec())]));
    }
    // The head of a queue and the top of a stack are read, and stay in the map.
    for (kind, next) in [(MapType::Queue, 5u64), (MapType::Stack, 6)] {
        let Some(map) = create(test, kind, [0, 8, 4], 0, None) else { continue };
        assert_eq!(read(&map, &Bounds::default()), (BTreeMap::new(), ContentsEnd { time_ns: 7, ..Default::default() }));
        for value in [5u64, 6] {
            map.update(&[], &value.to_ne_bytes(), MapFlags::ANY).unwrap();
        }
        for _ in 0..2 {
            let (entries, end) = read(&map, &Bounds::default());
            assert_eq!(entries, BTreeMap::from([(Vec::new(), next.to_ne_bytes().to_vec())]));
            assert!(end.cut.starts_with("only the next element"), "{}", end.cut);
        }
        for value in if kind == MapType::Queue { [5u64, 6] } else { [6, 5] } {
            assert_eq!(map.lookup_and_delete(&[]).unwrap(), Some(value.to_ne_bytes().to_vec()));
        }
    }
    let page = 4096;
    for (kind, sizes, flags, reason) in [
        (MapType::RingBuf, [0, 0, page], 0, "a ring buffer has no entries"),
        (MapType::UserRingBuf, [0, 0, page], 0, "a ring buffer has no entries"),
        (MapType::PerfEventArray, [4, 4, 2], 0, "the kernel does not report which perf events"),
        (MapType::CgroupArray, [4, 4, 2], 0, "the kernel does not report which cgroups"),
        (MapType::BloomFilter, [0, 8, 10], 0, "a bloom filter has no entries"),
        (MapType::Xskmap, [4, 4, 2], 0, "the kernel does not report which sockets"),
        // bprec has no reason of its own for this type: the recording has the kernel's error.
        (MapType::Sockmap, [4, 4, 2], 0, ""),
        // BPF_F_MMAPABLE
        (MapType::Arena, [0, 0, 2], 1 << 10, "bprec would have to map the arena"),
    ] {
        let Some(map) = create(test, kind, sizes, flags, None) else { continue };
        let (entries, end) = read(&map, &Bounds::default());
        assert!(entries.is_empty() && end.cut.starts_with(reason), "{kind:?}: {}", end.cut);
    }
    for kind in [MapType::Devmap, MapType::Cpumap] {
        let Some(map) = create(test, kind, [4, 4, 2], 0, None) else { continue };
        assert!(all(&map).is_empty(), "{kind:?}: all slots are empty");
    }
    // A stack trace map without entries.
    let Some(map) = create(test, MapType::StackTrace, [4, 8 * 127, 16], 0, None) else { return };
    assert!(all(&map).is_empty());
    drop(Program::take(prog_id(&object, "inventory_raw_tp")).unwrap());
}

/// Reading an entry does not count as a use: an LRU map evicts the same entries with and without the reading.
#[test]
fn reading_does_not_keep_entries_of_an_lru_map() {
    let test = "reading_does_not_keep_entries_of_an_lru_map";
    if !can_load(test) {
        return;
    }
    const ENTRIES: u32 = 2000;
    let survivors = |touch: fn(&MapHandle)| {
        let map = create(test, MapType::LruHash, [4, 4, ENTRIES], 0, None)?;
        let fill = |from: u32| {
            for n in from..from + ENTRIES / 2 {
                map.update(&n.to_ne_bytes(), &n.to_ne_bytes(), MapFlags::ANY).unwrap();
            }
        };
        fill(0);
        touch(&map);
        (1..4).for_each(|n| fill(n * 10_000));
        Some(map.keys().filter(|key| u32::from_ne_bytes(key[..].try_into().unwrap()) < 10_000).count())
    };
    let untouched = survivors(|_| ());
    let read = survivors(|map| (0..3).for_each(|_| drop(all(map))));
    // Replacing a value counts as a use of its entry.
    let used = survivors(|map| {
        // The keys are collected first, because a walk over entries that are replaced meanwhile would not end.
        for key in map.keys().collect::<Vec<_>>() {
            map.update(&key, &key, MapFlags::ANY).unwrap();
        }
    });
    let (Some(untouched), Some(read), Some(used)) = (untouched, read, used) else { return };
    assert!(
        used > 3 * untouched.max(read) + 100,
        "entries left: {untouched} if untouched, {read} if read, {used} if used"
    );
}
