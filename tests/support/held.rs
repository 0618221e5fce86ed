//! Holders of BPF objects: another recorder may hold an object that still exists after its creator has ended.

use std::collections::BTreeSet;
use std::process::Command;

use serde_json::Value;

/// Kinds of objects, as bpftool calls them.
pub(crate) const KINDS: [&str; 3] = ["prog", "map", "link"];

/// Ids by kind.
pub(crate) type Ids = [BTreeSet<u64>; 3];

/// Objects for which a process has descriptors, also objects of other creators, because a recorder holds every program.
pub(crate) fn held_by(pid: u32) -> Ids {
    let mut ids = Ids::default();
    // Descriptors and processes may be gone before they are read.
    for entry in std::fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten() {
        let text = std::fs::read_to_string(entry.path()).unwrap_or_default();
        for line in text.lines() {
            for (kind, ids) in KINDS.iter().zip(&mut ids) {
                let id = line.strip_prefix(kind).and_then(|rest| rest.strip_prefix("_id:"));
                ids.extend(id.and_then(|id| id.trim().parse::<u64>().ok()));
            }
        }
    }
    ids
}

/// Ids of the maps that programs use, and of the inner maps of map-in-map types. A process that holds a program, such as another recorder, also holds
/// its maps.
fn maps_of(programs: &BTreeSet<u64>) -> BTreeSet<u64> {
    let list = bpftool(&["prog", "list"]);
    let used = list.iter().filter(|program| programs.contains(&program["id"].as_u64().unwrap()));
    let mut maps: BTreeSet<u64> =
        used.filter_map(|program| program["map_ids"].as_array()).flatten().map(|id| id.as_u64().unwrap()).collect();
    for map in bpftool(&["map", "list"]) {
        let id = map["id"].as_u64().unwrap();
        if maps.contains(&id) && map["type"].as_str().is_some_and(|kind| kind.ends_with("_of_maps")) {
            for entry in bpftool(&["map", "dump", "id", &id.to_string()]) {
                let bytes = entry["value"].as_array().into_iter().flatten().rev();
                let byte = |text: &Value| u64::from_str_radix(text.as_str()?.trim_start_matches("0x"), 16).ok();
                maps.insert(bytes.filter_map(byte).fold(0, |id, byte| id << 8 | byte));
            }
        }
    }
    maps
}

/// Objects for which any process has descriptors, and the maps of held programs.
pub(crate) fn held_by_any() -> Ids {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let mut ids = Ids::default();
    for held in pids.map(held_by) {
        ids.iter_mut().zip(held).for_each(|(ids, held)| ids.extend(held));
    }
    let used = maps_of(&ids[0]);
    ids[1].extend(used);
    ids
}

/// Objects that bpftool lists.
pub(crate) fn bpftool(arguments: &[&str]) -> Vec<Value> {
    let output = Command::new("bpftool").arg("-j").args(arguments).output().unwrap();
    // bpftool fails if an object disappears while it lists.
    serde_json::from_slice(&output.stdout).unwrap_or_default()
}
