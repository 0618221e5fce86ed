//! Programs that a hook runs, by time.

use rustc_hash::FxHashMap;
use std::collections::BTreeSet;
use std::ops::Range;

/// Program or programs that a hook runs at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runner {
    /// One program.
    One(u32),
    /// Programs of a group, by its number in [`Runners::groups`]. `strangers` is the number of programs with unknown attach points that may be on the
    /// hook as well.
    Several { group: u32, strangers: u32 },
    /// The program is unknown.
    Unknown,
}

/// Programs that are on one hook at the same time.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct HookGroup {
    /// Numbers of the programs, ascending.
    pub(crate) programs: Box<[u32]>,
    /// True if the hook runs all programs of the group whenever it is reached.
    pub(crate) run_together: bool,
}

/// Programs of hooks by time.
#[derive(Debug, Default)]
pub(crate) struct Runners {
    hooks: Vec<Hook>,
    /// Strangers are programs with unknown attach points. For each set of them, by time: the number of loaded strangers, and the first of these.
    strangers: Vec<Timeline<(u32, Option<u32>)>>,
    /// Distinct groups.
    groups: Vec<HookGroup>,
    numbers: FxHashMap<HookGroup, u32>,
    /// Sum of the sizes of all groups.
    members: usize,
    /// Sum over all changes of all hooks: the count of programs attached to the hook after the change.
    looked_at: usize,
    /// True if hooks had more programs than the limits allow.
    is_incomplete: bool,
}

#[derive(Debug)]
struct Hook {
    attached: Timeline<OnHook>,
    /// Number of the set of strangers that may be on the hook.
    strangers: u32,
}

/// Programs attached to a hook at a time.
#[derive(Debug, Clone, Copy)]
enum OnHook {
    Nothing,
    Group(u32),
    /// The programs are unknown, because a limit on groups was exceeded.
    TooMany,
}

/// Values with the times from which they hold, ns, ascending.
type Timeline<T> = Vec<(u64, T)>;

/// Limit on [`Runners::members`], which bounds the memory of groups. Beyond it, the programs of further hooks are unknown. Real recordings need a few
/// thousand.
const MAX_MEMBERS: usize = 1 << 20;
/// Limit on [`Runners::looked_at`], which bounds the time to build groups.
const MAX_LOOKED_AT: usize = 1 << 27;

impl Runners {
    /// Adds a set of strangers, each with its number and lifetime. Returns the number of the set.
    pub(super) fn add_strangers(&mut self, programs: impl IntoIterator<Item = (u32, Range<u64>)>) -> u32 {
        self.strangers.push(timeline(programs, |here| (here.len() as u32, here.first().copied())));
        (self.strangers.len() - 1) as u32
    }

    /// Adds a hook with its attached programs, each with its number and lifetime. `strangers` is the number of a set made
    /// by [`Runners::add_strangers`]: its programs have unknown attach points, so they may be on the hook as well. Returns the number of the hook.
    pub(super) fn add(
        &mut self,
        attached: impl IntoIterator<Item = (u32, Range<u64>)>,
        strangers: u32,
        run_together: bool,
    ) -> u32 {
        let attached = timeline(attached, |here| self.group(here, run_together));
        self.hooks.push(Hook { attached, strangers });
        (self.hooks.len() - 1) as u32
    }

    fn group(&mut self, here: &BTreeSet<u32>, run_together: bool) -> OnHook {
        if here.is_empty() {
            return OnHook::Nothing;
        }
        self.looked_at = self.looked_at.saturating_add(here.len());
        if self.looked_at > MAX_LOOKED_AT {
            self.is_incomplete = true;
            return OnHook::TooMany;
        }
        let group = HookGroup { programs: here.iter().copied().collect(), run_together };
        if let Some(number) = self.numbers.get(&group) {
            return OnHook::Group(*number);
        }
        if self.members.saturating_add(here.len()) > MAX_MEMBERS {
            self.is_incomplete = true;
            return OnHook::TooMany;
        }
        self.members += here.len();
        let number = self.groups.len() as u32;
        self.numbers.insert(group.clone(), number);
        self.groups.push(group);
        OnHook::Group(number)
    }

    /// Returns the program or programs that a hook ran at a time.
    pub(crate) fn at(&self, hook: u32, time_ns: u64) -> Runner {
        let Some(hook) = self.hooks.get(hook as usize) else { return Runner::Unknown };
        let strangers = self.strangers.get(hook.strangers as usize).and_then(|strangers| at(strangers, time_ns));
        match (at(&hook.attached, time_ns).unwrap_or(OnHook::Nothing), strangers.unwrap_or_default()) {
            // The hook ran a program, as the call chain shows, and no program is known to be attached. If a single stranger is loaded, it is the
            // program that ran.
            (OnHook::Nothing, (1, Some(stranger))) => Runner::One(stranger),
            (OnHook::Group(number), (strangers, _)) => match &self.groups[number as usize] {
                HookGroup { programs, .. } if programs.len() == 1 && strangers == 0 => Runner::One(programs[0]),
                // The cost of a hook is split by run counts, but the counts of strangers on this hook are unknown. Equal counts are certain only if
                // the hook runs all its programs whenever it is reached.
                HookGroup { run_together: false, .. } if strangers > 0 => Runner::Unknown,
                HookGroup { .. } => Runner::Several { group: number, strangers },
            },
            (OnHook::Nothing | OnHook::TooMany, _) => Runner::Unknown,
        }
    }

    /// Returns true if a program is known to be attached to the hook at a time.
    pub(crate) fn has_any(&self, hook: u32, time_ns: u64) -> bool {
        let attached = self.hooks.get(hook as usize).and_then(|hook| at(&hook.attached, time_ns));
        attached.is_some_and(|attached| !matches!(attached, OnHook::Nothing))
    }

    /// Groups of programs that share a hook, by number.
    pub(crate) fn groups(&self) -> &[HookGroup] {
        &self.groups
    }

    /// Returns true if hooks had more programs than the limits allow: the programs of some hooks are then unknown.
    pub(crate) fn is_incomplete(&self) -> bool {
        self.is_incomplete
    }
}

/// Returns the value that holds at a time; `None` before the first time.
pub(super) fn at<T: Copy>(timeline: &[(u64, T)], time_ns: u64) -> Option<T> {
    let since = timeline.partition_point(|(from_ns, _)| *from_ns <= time_ns);
    timeline[..since].last().map(|(_, there)| *there)
}

fn timeline<T>(
    programs: impl IntoIterator<Item = (u32, Range<u64>)>,
    mut there: impl FnMut(&BTreeSet<u32>) -> T,
) -> Timeline<T> {
    let mut changes: Vec<(u64, bool, u32)> = Vec::new();
    for (program, lifetime) in programs {
        if !lifetime.is_empty() {
            changes.extend([(lifetime.start, true, program), (lifetime.end, false, program)]);
        }
    }
    changes.sort_unstable();
    let mut here = BTreeSet::new();
    let at_once = changes.chunk_by(|a, b| a.0 == b.0).map(|at_once| {
        come_and_go(&mut here, at_once);
        (at_once[0].0, there(&here))
    });
    at_once.collect()
}

/// Adds to `here` the numbers that come at a place, and removes those that go.
pub(super) fn come_and_go(here: &mut BTreeSet<u32>, changes: &[(u64, bool, u32)]) {
    for (_, comes, number) in changes {
        if *comes {
            here.insert(*number)
        } else {
            here.remove(number)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_come_to_a_hook_and_go() {
        let mut runners = Runners::default();
        let strangers = runners.add_strangers([(7, 15..16), (8, 40..u64::MAX), (9, 50..60)]);
        let programs = [(3, 0..20), (1, 10..30), (4, 30..30)];
        let alone = runners.add(programs.clone(), strangers, false);
        let together = runners.add(programs, strangers, true);
        for hook in [alone, together] {
            let at = |time| runners.at(hook, time);
            assert_eq!((at(0), at(9)), (Runner::One(3), Runner::One(3)));
            let Runner::Several { group, strangers: 0 } = at(10) else { panic!("{:?}", at(10)) };
            assert_eq!(*runners.groups()[group as usize].programs, [1, 3]);
            let may_be_there = if hook == together { Runner::Several { group, strangers: 1 } } else { Runner::Unknown };
            assert_eq!(at(15), may_be_there);
            assert_eq!((at(16), at(19)), (at(10), at(10)));
            assert_eq!((at(20), at(29)), (Runner::One(1), Runner::One(1)));
            assert_eq!((at(30), at(39)), (Runner::Unknown, Runner::Unknown));
            assert_eq!(at(40), Runner::One(8), "no other program is on the hook");
            assert_eq!(at(50), Runner::Unknown, "two programs may be on the hook");
        }
        assert_eq!(runners.at(together + 1, 0), Runner::Unknown);
    }
}
