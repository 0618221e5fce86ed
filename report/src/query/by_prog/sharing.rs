//! In what ratio programs share the cost of a hook that several are on: in that of their runs, while they were there.

use crate::index::Index;
use crate::index::runners::Group;
use crate::index::runs::{Key, RunSeries};
use crate::model::{Program, Runs};

/// How often programs that share hooks ran.
#[derive(Debug)]
pub(crate) struct HookWeights<'i> {
    /// By number of a program.
    programs: Vec<Sharer>,
    runs: &'i RunSeries,
}

/// What is known of the runs of a program.
#[derive(Debug, Clone, Copy, Default)]
struct Sharer {
    key: Option<Key>,
    /// Runs in 1,000 seconds, in all of the part that is looked at.
    rate: Option<u64>,
}

impl HookWeights<'_> {
    pub(super) fn new<'i>(index: &'i Index, programs: &[Program]) -> HookWeights<'i> {
        let sharers = index.programs.list.iter().zip(programs).map(|(known, program)| Sharer {
            key: known.key(),
            rate: program.runs.value().and_then(|runs| rate(runs)),
        });
        HookWeights { programs: sharers.collect(), runs: &index.runs }
    }

    /// The weights of a group's programs in an interval: by their runs in it, where those are known, or else by their runs in all of the part that is
    /// looked at. Where not all of these are known either, or none of the programs ran, those that run together have run as often as each
    /// other, and of others nothing can be said.
    pub(super) fn of(&self, group: &Group, interval: Option<u32>) -> Option<Vec<u64>> {
        let weights = |rate: &dyn Fn(&Sharer) -> Option<u64>| {
            let rates = group.programs.iter().map(|program| rate(self.programs.get(*program as usize)?));
            let rates: Option<Vec<u64>> = rates.collect();
            rates.filter(|rates| rates.iter().any(|rate| *rate > 0))
        };
        let in_interval = |interval: u32| {
            weights(&|sharer| {
                let stretch = self.runs.in_interval(sharer.key?, interval).into_value()?;
                per_1000_seconds(stretch.count(), stretch.length_ns as u64)
            })
        };
        let of_all = || weights(&|sharer| sharer.rate);
        let together = || group.run_together.then(|| vec![1; group.programs.len()]);
        interval.and_then(in_interval).or_else(of_all).or_else(together)
    }
}

fn rate(runs: &Runs) -> Option<u64> {
    let (from_ns, to_ns) = runs.span?;
    per_1000_seconds(runs.count, to_ns.checked_sub(from_ns)?)
}

fn per_1000_seconds(runs: u64, in_ns: u64) -> Option<u64> {
    const SPAN_NS: u128 = 1_000_000_000_000;
    let rate = (u128::from(runs) * SPAN_NS).checked_div(in_ns.into())?;
    Some(u64::try_from(rate).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 300 runs in 2 s and 100 runs in 1 s: while both are there, 3 : 2.
    #[test]
    fn programs_share_in_the_ratio_of_their_runs_while_they_were_there() {
        let known = [
            Runs::new(300, 1, None, Some((0, 2_000_000_000))),
            Runs::new(100, 1, None, Some((1_000_000_000, 2_000_000_000))),
            Runs::new(0, 0, None, Some((0, 2_000_000_000))),
            Runs::new(5, 0, None, None),
        ];
        let programs = known.iter().map(|runs| Sharer { rate: rate(runs), ..Sharer::default() }).collect();
        let weights = HookWeights { programs, runs: &RunSeries::default() };
        let of = |programs: &[u32], run_together| {
            let group = Group { programs: programs.into(), run_together };
            assert_eq!(weights.of(&group, Some(0)), weights.of(&group, None), "there are no intervals");
            weights.of(&group, None)
        };
        assert_eq!(of(&[0, 1], false), Some(vec![150_000, 100_000]));
        assert_eq!(of(&[0, 2], true), Some(vec![150_000, 0]));
        assert_eq!(of(&[2], false), None, "it did not run");
        assert_eq!(of(&[0, 3], false), None, "nothing says in what time");
        assert_eq!(of(&[0, 9], false), None, "nothing is known of one");
        assert_eq!(of(&[0, 9], true), Some(vec![1, 1]));
    }
}
