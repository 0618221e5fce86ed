//! Matches programs of the two sides.

use super::recorded::{Recorded, RecordedProgram, merged};
use crate::model::{Identity, Status, has_sha256_tags};
use bprec_format::bpf::Tag;
use std::collections::{BTreeMap, BTreeSet};

/// Program of one side, or of both sides if matched. `base` and `new` have the program's numbers in each recording of the side; `None` for a
/// recording without the program.
#[derive(Debug)]
pub(super) struct MatchedProgram {
    pub(super) status: Status,
    /// Identity on the new side, or else on the base side.
    pub(super) identity: Identity,
    /// Name on the base side, if different.
    pub(super) previous_name: Option<String>,
    pub(super) base: Vec<Option<RecordedProgram>>,
    pub(super) new: Vec<Option<RecordedProgram>>,
}

impl MatchedProgram {
    pub(super) fn tags(side: &[Option<RecordedProgram>]) -> BTreeSet<Tag> {
        side.iter().flatten().flat_map(|program| &program.tags).copied().collect()
    }

    /// Numbers of the program in each recording that has the program.
    pub(super) fn recorded(&self) -> impl Iterator<Item = &RecordedProgram> {
        self.base.iter().chain(&self.new).flatten()
    }

    pub(super) fn owners(&self) -> Vec<String> {
        let owners: BTreeSet<&String> = self.recorded().flat_map(|program| &program.owners).collect();
        owners.into_iter().cloned().collect()
    }
}

/// Returns true if all kernels compute tags with the same hash: SHA-1 before Linux 6.18, SHA-256 since then. Returns false if a kernel is unknown.
pub(super) fn are_tags_comparable<'r>(recordings: impl Iterator<Item = &'r Recorded>) -> bool {
    let eras: Option<BTreeSet<bool>> = recordings.map(|it| has_sha256_tags(it.facts.os_release.as_deref()?)).collect();
    eras.is_some_and(|eras| eras.len() <= 1)
}

type SidePrograms = BTreeMap<Identity, Vec<Option<RecordedProgram>>>;

/// Moves the programs out of the recordings, and matches the programs of both sides. With `has_places`, attach points distinguish programs. With
/// `has_tags`, tags show renamed programs and new versions.
pub(super) fn join(
    base: &mut [Recorded],
    new: &mut [Recorded],
    has_places: bool,
    has_tags: bool,
) -> Vec<MatchedProgram> {
    put_together(side(base, has_places), side(new, has_places), has_tags)
}

fn put_together(mut base: SidePrograms, new: SidePrograms, has_tags: bool) -> Vec<MatchedProgram> {
    let mut joined = Vec::new();
    let mut come: SidePrograms = BTreeMap::new();
    for (identity, programs) in new {
        match base.remove(&identity) {
            Some(before) => {
                let (old_tags, new_tags) = (MatchedProgram::tags(&before), MatchedProgram::tags(&programs));
                let is_new_version = has_tags && !old_tags.is_empty() && !new_tags.is_empty() && old_tags != new_tags;
                let status = if is_new_version { Status::NewVersion } else { Status::Same };
                joined.push(MatchedProgram { status, identity, previous_name: None, base: before, new: programs });
            }
            None => drop(come.insert(identity, programs)),
        }
    }
    // A program that is on one side only may match a program of the other side under another name or attach point. If it does not, it is new or gone.
    let tags_of =
        |programs: &[Option<RecordedProgram>]| Some(MatchedProgram::tags(programs)).filter(|tags| !tags.is_empty());
    if has_tags {
        pair(&mut base, &mut come, &mut joined, Status::Renamed, |identity, programs| {
            Some((identity.prog_type.clone(), identity.attached.clone(), tags_of(programs)?))
        });
    }
    pair(&mut base, &mut come, &mut joined, Status::Moved, |identity, _| {
        (!identity.name.is_empty()).then(|| (identity.prog_type.clone(), identity.name.clone()))
    });
    let absent = |programs: &[Option<RecordedProgram>]| vec![None; programs.len()];
    for (identity, programs) in base {
        let new = absent(&programs);
        joined.push(MatchedProgram { status: Status::Gone, identity, previous_name: None, base: programs, new });
    }
    for (identity, programs) in come {
        let base = absent(&programs);
        joined.push(MatchedProgram { status: Status::New, identity, previous_name: None, base, new: programs });
    }
    joined.sort_by(|a, b| (&a.identity, a.status).cmp(&(&b.identity, b.status)));
    joined
}

/// Matches programs of base and new by a key, among the programs that have no match yet. A program of base matches a program of new if both have the
/// same key, and no other program without a match has this key.
fn pair<K: Ord>(
    base: &mut SidePrograms,
    new: &mut SidePrograms,
    joined: &mut Vec<MatchedProgram>,
    status: Status,
    key: impl Fn(&Identity, &[Option<RecordedProgram>]) -> Option<K>,
) {
    let by_key = |side: &SidePrograms| {
        let mut by_key: BTreeMap<K, Vec<Identity>> = BTreeMap::new();
        for (identity, programs) in side {
            if let Some(key) = key(identity, programs) {
                by_key.entry(key).or_default().push(identity.clone());
            }
        }
        by_key
    };
    let candidates = by_key(new);
    for (key, before) in by_key(base) {
        let ([before], Some([after])) = (&before[..], candidates.get(&key).map(|it| &it[..])) else { continue };
        let (Some(old), Some(programs)) = (base.remove(before), new.remove(after)) else { continue };
        let previous_name = (before.name != after.name).then(|| before.name.clone());
        joined.push(MatchedProgram { status, identity: after.clone(), previous_name, base: old, new: programs });
    }
}

/// Returns the programs of a side by identity, with the numbers of each recording; `None` for a recording without the program.
fn side(recordings: &mut [Recorded], has_places: bool) -> SidePrograms {
    let count = recordings.len();
    let mut side: SidePrograms = BTreeMap::new();
    for (at, recorded) in recordings.iter_mut().enumerate() {
        let mut programs = std::mem::take(&mut recorded.programs);
        if !has_places {
            programs.iter_mut().for_each(|(identity, _)| identity.attached.clear());
            programs.sort_by(|(a, _), (b, _)| a.cmp(b));
        }
        for (identity, program) in merged(programs) {
            side.entry(identity).or_insert_with(|| vec![None; count])[at] = Some(program);
        }
    }
    side
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::diff::recorded::RecordedProgram;

    /// Builds programs from name, type, attach point and tag.
    fn side_of(programs: &[(&str, &str, &str, u8)]) -> SidePrograms {
        let identity = |name: &str, prog_type: &str, place: &str| Identity {
            name: name.into(),
            prog_type: prog_type.into(),
            attached: vec![place.to_owned()],
        };
        let of = programs.iter().map(|(name, prog_type, place, tag)| {
            (identity(name, prog_type, place), vec![Some(RecordedProgram::with_tag(Tag([*tag; 8])))])
        });
        of.collect()
    }

    fn statuses(base: &[(&str, &str, &str, u8)], new: &[(&str, &str, &str, u8)], has_tags: bool) -> Vec<String> {
        let joined = put_together(side_of(base), side_of(new), has_tags);
        let said = |joined: &MatchedProgram| match &joined.previous_name {
            Some(previous) => format!("{} {:?} {previous}", joined.identity.name, joined.status),
            None => format!("{} {:?}", joined.identity.name, joined.status),
        };
        joined.iter().map(said).collect()
    }

    #[test]
    fn programs_are_the_same_by_type_name_and_place() {
        let base = [("a", "xdp", "eth0", 1), ("b", "xdp", "eth0", 2), ("c", "tc", "eth0", 3), ("d", "tc", "x", 4)];
        let new = [("a", "xdp", "eth0", 9), ("b2", "xdp", "eth0", 2), ("c", "tc", "eth1", 3), ("e", "tc", "x", 5)];
        assert_eq!(statuses(&base, &new, true), ["a NewVersion", "b2 Renamed b", "c Moved", "d Gone", "e New"],);
        // If tags are not comparable, new versions cannot be detected, and no program is matched by its tag.
        assert_eq!(statuses(&base, &new, false), ["a Same", "b Gone", "b2 New", "c Moved", "d Gone", "e New"]);
        // A program that matches two others matches neither.
        let twice = [("b", "xdp", "eth0", 2), ("c", "xdp", "eth0", 2)];
        assert_eq!(statuses(&twice, &[("z", "xdp", "eth0", 2)], true), ["b Gone", "c Gone", "z New"]);
    }
}
