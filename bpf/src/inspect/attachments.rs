//! Maps, attachments, owners, pins and metadata of programs, gathered in one scan of the machine.

use std::collections::{BTreeSet, HashMap};
use std::os::unix::ffi::OsStrExt;

use bprec_format::Secret;
use bprec_format::bpf::btf::Btf;
use bprec_format::bpf::names::{MapType, ProgType};
use bprec_format::bprec::state::{self, AttachTarget, Attachment, ProgArray, TailCall};

use crate::inspect::btf::BtfCache;
use crate::inspect::holders::Holders;
use crate::inspect::hooks;
use crate::inspect::kallsyms::Kallsyms;
use crate::inspect::links::links;
use crate::inspect::maps::Map;
use crate::inspect::names::Names;
use crate::inspect::net;
use crate::inspect::pins::{Pins, pins};
use crate::inspect::programs::{ProgSnapshot, Program, prog_ids};

/// Limit on the slots read from one program array.
const MAX_SLOTS: u32 = 1024;
/// Limit on the slots read from all program arrays in one scan.
const MAX_SLOTS_OF_ALL: u32 = 1 << 16;

/// Names and values of metadata variables, in the form of [`state::Program`].
type Metadata = Vec<(Vec<u8>, Vec<u8>)>;

/// Result of one scan for some programs. An object that could not be read is missing here; `problems` has the reason.
#[derive(Debug, Default)]
pub struct Attachments {
    /// Attachments sorted by program id, of all programs on the machine.
    pub attachments: Vec<Attachment>,
    /// The maps that the programs use, by id.
    pub maps: Vec<state::Map>,
    /// Contents of the program arrays in `maps`.
    pub prog_arrays: Vec<ProgArray>,
    /// Objects that could not be read, each with the reason.
    pub problems: Vec<String>,
    holders: Holders,
    pins: Pins,
    /// `bpf_metadata_*` variables, by the map that contains them.
    metadata: HashMap<u32, Metadata>,
}

impl Attachments {
    /// Scans the machine once for all of these programs. Never fails as a whole. `recorders` are programs that only recorders hold: a process with a
    /// descriptor of one of them is not listed as an owner. Names of kernel functions come from `kallsyms` if no module has changed since it was
    /// read; otherwise the table is read again.
    pub fn scan(
        programs: &[&ProgSnapshot],
        btfs: &BtfCache,
        recorders: &BTreeSet<u32>,
        kallsyms: Option<&Kallsyms>,
    ) -> Attachments {
        let mut around = Attachments::default();
        let names = Names::new();
        around.add_maps(programs, btfs);
        if let Some(found) = around.note(links(&names, btfs, kallsyms)) {
            around.attachments.extend(found.attachments);
            around.problems.extend(found.problems);
        }
        if let Some(holders) = around.note(Holders::scan(&names, recorders)) {
            around.holders = holders;
        }
        if let Some(pins) = around.note(pins()) {
            around.problems.extend(pins.problems.iter().cloned());
            around.pins = pins;
        }
        around.add_unlinked(programs, &names);
        around.problems.extend(names.problems().iter().cloned());
        around.attachments.sort_by(|a, b| {
            (a.prog_id, &a.kind, &a.target, a.link_id).cmp(&(b.prog_id, &b.kind, &b.target, b.link_id))
        });
        around
    }

    /// Attachments of a program.
    pub fn of(&self, prog_id: u32) -> &[Attachment] {
        let start = self.attachments.partition_point(|it| it.prog_id < prog_id);
        let behind = self.attachments.partition_point(|it| it.prog_id <= prog_id);
        &self.attachments[start..behind]
    }

    /// Returns the facts about a scanned program. `loaded_during` is true if the program was loaded during the recording.
    pub fn program(&self, snapshot: &ProgSnapshot, loaded_during: bool) -> state::Program {
        let info = snapshot.info.view();
        let id = info.id().unwrap_or(0);
        let map_ids = map_ids(snapshot);
        let pins = self.pins.by_prog.get(&id).map(Vec::as_slice).unwrap_or_default();
        state::Program {
            id,
            load_time_ns: info.load_time_ns().unwrap_or(0),
            loaded_during,
            owners: self.holders.owners(id, &map_ids),
            pins: pins.iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect(),
            metadata: map_ids.iter().filter_map(|id| self.metadata.get(id)).flatten().cloned().collect(),
            withheld: snapshot.withheld.clone(),
        }
    }

    /// Returns the value, or adds the error to the problems.
    fn note<T>(&mut self, result: crate::Result<T>) -> Option<T> {
        result.inspect_err(|error| self.problems.push(error.to_string())).ok()
    }

    fn add_maps(&mut self, programs: &[&ProgSnapshot], btfs: &BtfCache) {
        let ids: BTreeSet<u32> = programs.iter().flat_map(|program| map_ids(program)).collect();
        let mut slots_left = MAX_SLOTS_OF_ALL;
        for id in ids {
            let map = match Map::take(id) {
                Ok(map) => map,
                Err(error) if error.is_gone() => continue,
                Err(error) => {
                    self.problems.push(error.to_string());
                    continue;
                }
            };
            if map.about().btf_id != 0 {
                // Loads the map's BTF into the cache; the recorder writes the blobs of the cache to the file.
                self.note(btfs.get(map.about().btf_id));
            }
            self.metadata.extend(metadata(&map, btfs).map(|metadata| (id, metadata)));
            if map.about().map_type == MapType::PROG_ARRAY.0 {
                let array = prog_array(&map, &mut slots_left);
                self.attachments.extend(tail_calls(&map, &array));
                self.prog_arrays.push(array);
            }
            self.maps.push(map.about().clone());
        }
    }

    /// Adds attachments without a link. The queries also return attachments by links; they are dropped here, because `links` has found them.
    fn add_unlinked(&mut self, programs: &[&ProgSnapshot], names: &Names) {
        let types: BTreeSet<ProgType> = programs.iter().filter_map(|program| program.info.view().prog_type()).collect();
        let has = |wanted: &[ProgType]| wanted.iter().any(|kind| types.contains(kind));
        let mut unlinked = self.holders.probes.clone();
        if has(&[ProgType::XDP]) {
            unlinked.extend(net::xdp_attachments(names.interfaces()));
            unlinked.extend(names.other_networks().xdp_attachments());
        }
        if has(&[ProgType::SCHED_CLS, ProgType::SCHED_ACT]) {
            unlinked.extend(self.note(net::tc_attachments(names.interfaces())).unwrap_or_default());
            unlinked.extend(names.other_networks().tc_attachments());
            unlinked.extend(hooks::interface_attachments(names.interfaces()));
            unlinked.extend(names.other_networks().hook_attachments());
        }
        if has(&[ProgType::FLOW_DISSECTOR]) {
            unlinked.extend(hooks::dissectors());
            unlinked.extend(names.other_networks().dissectors());
        }
        if has(&[ProgType::SK_SKB, ProgType::SK_MSG]) {
            unlinked.extend(hooks::sockmap_attachments(|id| names.map(id)));
        }
        let of_cgroups: Vec<u32> = types.iter().flat_map(|kind| hooks::of_cgroups(*kind)).copied().collect();
        if !of_cgroups.is_empty() {
            unlinked.extend(hooks::cgroup_attachments(names.cgroups(), &of_cgroups));
        }
        unlinked.extend(self.perf_events());
        let linked: BTreeSet<(u32, String, AttachTarget)> =
            self.attachments.iter().map(|it| (it.prog_id, it.kind.clone(), it.target.clone())).collect();
        unlinked.retain(|it| !linked.contains(&(it.prog_id, it.kind.clone(), it.target.clone())));
        self.attachments.extend(unlinked);
    }

    /// Programs attached to perf events by ioctl. The kernel reports that an event has a program of type perf_event, but not which program. The
    /// program is therefore known only if exactly one program of this type on the machine has no link.
    fn perf_events(&mut self) -> Vec<Attachment> {
        let pids: BTreeSet<u32> = self.holders.perf_event_pids.iter().copied().collect();
        if pids.is_empty() {
            return Vec::new();
        }
        let all: Vec<u32> = prog_ids().map_while(Result::ok).filter(|id| is_perf_event(*id)).collect();
        let is_linked = |id: &u32| self.attachments.iter().any(|it| it.prog_id == *id && it.link_id.is_some());
        let unlinked: Vec<u32> = all.into_iter().filter(|id| !is_linked(id)).collect();
        let prog_id = match unlinked[..] {
            // All perf_event programs have links. The perf events of these processes belong to the links, so their attachments are known already.
            [] => return Vec::new(),
            [prog_id] => prog_id,
            _ => {
                self.problems.push(format!(
                    "perf_event programs {unlinked:?} have unknown attach points: they have no link, and the kernel does not \
                     report which of them runs on the perf events of processes {pids:?}"
                ));
                return Vec::new();
            }
        };
        pids.into_iter()
            .map(|pid| Attachment {
                prog_id,
                link_id: None,
                kind: "perf_event".to_owned(),
                target: AttachTarget::default().words(format!("event of process {pid}")),
            })
            .collect()
    }
}

fn is_perf_event(prog_id: u32) -> bool {
    let prog_type = Program::take(prog_id).and_then(|program| program.prog_type());
    prog_type.is_ok_and(|prog_type| prog_type == ProgType::PERF_EVENT)
}

fn map_ids(program: &ProgSnapshot) -> Vec<u32> {
    program.info.view().map_ids().map(|ids| ids.iter().collect()).unwrap_or_default()
}

/// Returns the `bpf_metadata_*` variables of a map. `None` if the map is not a `.rodata` section with BTF, has no such variable, or cannot be read.
fn metadata(map: &Map, btfs: &BtfCache) -> Option<Metadata> {
    let about = map.about();
    let is_section = about.map_type == MapType::ARRAY.0 && about.key_bytes == 4 && about.max_entries == 1;
    let is_constant = about.name.windows(7).any(|part| part == b".rodata");
    if !is_section || !is_constant || about.btf_id == 0 || about.btf_value_type_id == 0 {
        return None;
    }
    let blob = btfs.get(about.btf_id).ok()?;
    let btf = Btf::parse(&blob).ok()?;
    if !btf.variables(about.btf_value_type_id).any(|variable| variable.name.starts_with(b"bpf_metadata_")) {
        return None;
    }
    let value = map.value(0).ok()?;
    let variables = btf.metadata(about.btf_value_type_id, &value);
    Some(variables.into_iter().map(|(name, value)| (name.to_vec(), value.into_bytes())).collect())
}

/// Current contents of these program arrays. Arrays that cannot be read are left out, for example because they were freed.
pub fn prog_arrays(map_ids: impl IntoIterator<Item = u32>) -> Vec<ProgArray> {
    let mut slots_left = MAX_SLOTS_OF_ALL;
    map_ids.into_iter().filter_map(|id| Some(prog_array(&Map::take(id).ok()?, &mut slots_left))).collect()
}

/// Reads at most `MAX_SLOTS` and at most `slots_left` slots of a program array. Subtracts the count of slots read from `slots_left`.
fn prog_array(map: &Map, slots_left: &mut u32) -> ProgArray {
    let looked_at = map.about().max_entries.min(MAX_SLOTS).min(*slots_left);
    *slots_left -= looked_at;
    let slot = |index| Some(TailCall { index, prog_id: crate::sys::get_u32(&map.value(index).ok()?, 0) });
    ProgArray {
        map_id: map.about().id,
        slots: (0..looked_at).filter_map(slot).collect(),
        unread_slots: map.about().max_entries - looked_at,
    }
}

/// Returns an attachment of kind `tail_call` for each program in a program array.
fn tail_calls(map: &Map, array: &ProgArray) -> Vec<Attachment> {
    let array_name = AttachTarget::default().name(Secret::Map, &map.about().name);
    let attachment = |slot: &TailCall| Attachment {
        prog_id: slot.prog_id,
        link_id: None,
        kind: "tail_call".to_owned(),
        target: array_name.clone().words(format!("[{}]", slot.index)),
    };
    array.slots.iter().map(attachment).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_program_has_its_own_attachments() {
        let on = |prog_id| Attachment { prog_id, link_id: None, kind: "xdp".to_owned(), ..Attachment::default() };
        let around = Attachments { attachments: [1, 3, 3, 7].map(on).to_vec(), ..Attachments::default() };
        let counts = [0, 1, 2, 3, 7, u32::MAX].map(|id| around.of(id).iter().filter(|it| it.prog_id == id).count());
        assert_eq!(counts, [0, 1, 0, 2, 1, 0]);
    }
}
