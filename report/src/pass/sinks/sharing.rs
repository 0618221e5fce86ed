//! Sharing of the cost of a hook among its programs in the ratio of their runs. The shares add up to the whole.

use crate::index::Index;
use crate::index::runners::HookGroup;
use crate::input::window::Window;
use crate::model::Count;
use std::cell::OnceCell;
use std::cmp::Ordering;

/// Programs that share a cost, in one interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Sharers {
    /// Number of the group of these programs in the index.
    pub(crate) group: u32,
    /// Number of further programs that may be on the hook.
    pub(crate) strangers: u32,
    /// Number of the interval between two readings of run statistics; `None` outside of all intervals.
    pub(crate) interval: Option<u32>,
}

/// Ratios in which programs share hooks: their run rates while they were loaded.
#[derive(Debug)]
pub(crate) struct HookWeights<'i> {
    index: &'i Index,
    window: &'i Window,
    /// Runs per 1,000 seconds of each program in all of the window, if known.
    rates: OnceCell<Vec<Option<u64>>>,
}

impl<'i> HookWeights<'i> {
    pub(crate) fn new(index: &'i Index, window: &'i Window) -> HookWeights<'i> {
        HookWeights { index, window, rates: OnceCell::new() }
    }

    #[cfg(test)]
    pub(crate) fn of_rates(index: &'i Index, window: &'i Window, rates: Vec<Option<u64>>) -> HookWeights<'i> {
        HookWeights { index, window, rates: rates.into() }
    }

    /// Returns the weights of a group's programs in an interval, as the first of these that is known:
    /// - Their run rates in the interval, if known for all programs and not all zero.
    /// - Their run rates in the whole window, under the same condition.
    /// - Equal weights, if the hook runs all programs of the group whenever it is reached.
    fn of(&self, group: &HookGroup, interval: Option<u32>) -> Option<Vec<u64>> {
        let known = |rates: Option<Vec<u64>>| rates.filter(|rates| rates.iter().any(|rate| *rate > 0));
        let runs = &self.index.runs;
        let in_interval = |program: &u32, interval: u32| {
            let stretch =
                runs.in_interval(self.index.programs.list[*program as usize].key()?, interval).into_value()?;
            per_1000_seconds(stretch.count(), stretch.length_ns as u64)
        };
        let of_interval =
            |interval| known(group.programs.iter().map(|program| in_interval(program, interval)).collect());
        let of_all = || known(group.programs.iter().map(|program| self.rates()[*program as usize]).collect());
        let together = || group.run_together.then(|| vec![1; group.programs.len()]);
        interval.and_then(of_interval).or_else(of_all).or_else(together)
    }

    fn rates(&self) -> &[Option<u64>] {
        self.rates.get_or_init(|| {
            let rate = |known| {
                let runs = self.index.runs_of(known, self.window).into_value()?;
                per_1000_seconds(runs.count(), runs.span.1.checked_sub(runs.span.0)?)
            };
            self.index.programs.list.iter().map(rate).collect()
        })
    }
}

fn per_1000_seconds(runs: u64, in_ns: u64) -> Option<u64> {
    const SPAN_NS: u128 = 1_000_000_000_000;
    let rate = (u128::from(runs) * SPAN_NS).checked_div(in_ns.into())?;
    Some(u64::try_from(rate).unwrap_or(u64::MAX))
}

/// Splits counts of shared hooks among the programs of each group in proportion to the programs' weights. Calls `give(program, key, share)`.
/// `program` is `None` for the share of strangers (programs that may be on the hook), and for a group without weights. The order of `parts` does not
/// matter. A program's share of an interval's sum does not depend on how the interval is divided into parts.
pub(crate) fn share_out<K: Ord>(
    parts: Vec<(Sharers, K, Count)>,
    weights: &HookWeights<'_>,
    give: impl FnMut(Option<u32>, &K, Count),
) {
    share_out_among(parts, weights.index.hooks.groups(), weights, give);
}

/// Splits counts as [`share_out`] does, but among the programs of `groups` instead of the groups of hooks.
pub(crate) fn share_out_among<K: Ord>(
    parts: Vec<(Sharers, K, Count)>,
    groups: &[HookGroup],
    weights: &HookWeights<'_>,
    give: impl FnMut(Option<u32>, &K, Count),
) {
    share_by(parts, groups, |group, interval| weights.of(group, interval), give);
}

fn share_by<K: Ord>(
    mut parts: Vec<(Sharers, K, Count)>,
    groups: &[HookGroup],
    weights: impl Fn(&HookGroup, Option<u32>) -> Option<Vec<u64>>,
    mut give: impl FnMut(Option<u32>, &K, Count),
) {
    parts.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    for parts in parts.chunk_by(|a, b| (a.0.group, a.0.strangers) == (b.0.group, b.0.strangers)) {
        let Sharers { group, strangers, .. } = parts[0].0;
        let group = &groups[group as usize];
        let mut owed = (Owed::default(), Owed::default());
        for parts in parts.chunk_by(|a, b| a.0 == b.0) {
            let Some(mut ratio) = weights(group, parts[0].0.interval) else {
                parts.iter().for_each(|(_, key, count)| give(None, key, *count));
                continue;
            };
            // The run rates of strangers on this hook are unknown. Each stranger gets the highest rate among the known programs, an upper estimate.
            let most = ratio.iter().copied().max().unwrap_or(0);
            ratio.push(most.saturating_mul(strangers.into()));
            let whole: Count = parts.iter().map(|(.., count)| *count).sum();
            let mut left = (owed.0.share(whole.samples, &ratio), owed.1.share(whole.weight, &ratio));
            for (_, key, part) in parts {
                let taken = (take(&mut left.0, part.samples), take(&mut left.1, part.weight));
                for (at, (samples, weight)) in taken.0.into_iter().zip(taken.1).enumerate() {
                    if samples > 0 || weight > 0 {
                        give(group.programs.get(at).copied(), key, Count { samples, weight });
                    }
                }
            }
        }
    }
}

/// Splits a part in proportion to `left`, the shares not yet given to parts. Subtracts the result from `left` and returns it.
fn take(left: &mut [u64], part: u64) -> Vec<u64> {
    let taken = Owed::default().share(part, left);
    // The subtraction does not overflow. A share's exact value is at most what is left of it, which is a whole number, so the rounded value is not
    // larger either.
    left.iter_mut().zip(&taken).for_each(|(left, taken)| *left -= taken);
    taken
}

/// Fractions of a unit that each sharer has lost by rounding so far. A sharer gets them when the next numbers are shared.
#[derive(Debug, Default)]
struct Owed(Vec<f64>);

impl Owed {
    /// Shares a number in the ratio of the weights. Shares are rounded down, and the remaining units go to the sharers that are owed most; of equals,
    /// to the first. A sharer with weight 0 gets nothing. If all weights are 0, all shares are 0.
    fn share(&mut self, whole: u64, weights: &[u64]) -> Vec<u64> {
        let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
        self.0.resize(weights.len(), 0.0);
        if sum == 0 {
            return vec![0; weights.len()];
        }
        let mut rest = whole;
        let owed = self.0.iter_mut();
        let shares = owed.zip(weights).map(|(owed, weight)| {
            let product = u128::from(whole) * u128::from(*weight);
            *owed += (product % sum) as f64 / sum as f64;
            let quotient = (product / sum) as u64;
            let units = quotient.saturating_add_signed(owed.floor() as i64).min(rest);
            *owed += (i128::from(quotient) - i128::from(units)) as f64;
            rest -= units;
            units
        });
        let mut shares: Vec<u64> = shares.collect();
        let most_first = |a: &usize, b: &usize| self.0[*b].total_cmp(&self.0[*a]).then(a.cmp(b));
        let mut order: Vec<usize> = (0..weights.len()).collect();
        let behind = usize::try_from(rest).map_or(order.len(), |rest| rest.min(order.len()));
        if (1..order.len()).contains(&behind) {
            order.select_nth_unstable_by(behind - 1, |a, b| -> Ordering { most_first(a, b) });
        }
        for at in &order[..behind] {
            shares[*at] += 1;
            self.0[*at] -= 1.0;
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(whole: u64, weights: &[u64]) -> Vec<u64> {
        Owed::default().share(whole, weights)
    }

    #[test]
    fn shares_are_in_the_ratio_of_the_weights_and_add_up() {
        assert_eq!(share(100, &[1, 4]), [20, 80]);
        assert_eq!(share(10, &[1, 1, 1]), [4, 3, 3]);
        assert_eq!(share(10, &[2, 0, 1]), [7, 0, 3], "6.67 and 3.33");
        assert_eq!(share(10, &[0, 0]), [0, 0]);
        assert_eq!(share(10, &[]), [0; 0]);
        assert_eq!(share(u64::MAX, &[u64::MAX, u64::MAX]), [u64::MAX / 2 + 1, u64::MAX / 2]);
        assert_eq!(share(3, &[0, 7, 0]), [0, 3, 0]);
    }

    /// Pseudo-random numbers below a bound.
    fn numbers(seed: u64) -> impl FnMut(u64) -> u64 {
        let mut state = seed;
        move |bound| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        }
    }

    /// Parts of several intervals, each interval with its own ratio. Every unit of a part is given to a program or to strangers. A program's share of
    /// an interval does not depend on the parts. Over all intervals, each program gets its proportional share.
    #[test]
    fn parts_add_up_to_shares_and_shares_to_the_ratios() {
        let mut below = numbers(1);
        for _ in 0..200 {
            let programs: Box<[u32]> = (10..11 + below(6) as u32).collect();
            let sharers = programs.len();
            let groups = [HookGroup { programs, run_together: true }];
            let strangers = below(3) as u32;
            let ratios: Vec<Vec<u64>> =
                (0..1 + below(9)).map(|_| (0..sharers).map(|at| below(50) + u64::from(at == 0)).collect()).collect();
            let weights = |_: &HookGroup, interval: Option<u32>| Some(ratios[interval? as usize].clone());
            let mut parts = Vec::new();
            for interval in 0..ratios.len() as u32 {
                let sharers = Sharers { group: 0, strangers, interval: Some(interval) };
                parts.extend((0..1 + below(6)).map(|key| {
                    let count = Count { samples: below(4), weight: below(1000) << below(40) };
                    (sharers, (interval, key), count)
                }));
            }
            let whole: Vec<_> =
                parts.iter().map(|(sharers, (interval, _), count)| (*sharers, (*interval, 0), *count)).collect();
            let (mut of_parts, mut of_wholes) = (Vec::new(), Vec::new());
            share_by(parts.clone(), &groups, weights, |program, key, count| of_parts.push((program, *key, count)));
            share_by(whole, &groups, weights, |program, key, count| of_wholes.push((program, *key, count)));
            for (_, key, count) in &parts {
                let given = of_parts.iter().filter(|(_, of, _)| of == key).map(|(.., count)| *count);
                assert_eq!(given.sum::<Count>(), *count);
            }
            for at in 0..=sharers {
                let program = groups[0].programs.get(at).copied();
                let mut due = 0.0;
                for (interval, ratio) in (0..).zip(&ratios) {
                    let of = |shares: &[(Option<u32>, (u32, u64), Count)]| {
                        let own = shares.iter().filter(|(of, key, _)| *of == program && key.0 == interval);
                        own.map(|(.., count)| *count).sum::<Count>()
                    };
                    assert_eq!(of(&of_parts), of(&of_wholes));
                    let most = ratio.iter().max().unwrap() * u64::from(strangers);
                    let samples = parts.iter().filter(|(_, key, _)| key.0 == interval).map(|(.., it)| it.samples);
                    let weight = ratio.get(at).copied().unwrap_or(most) as f64;
                    due += samples.sum::<u64>() as f64 * weight / (ratio.iter().sum::<u64>() + most) as f64;
                }
                let own = of_parts.iter().filter(|(of, ..)| *of == program).map(|(.., count)| count.samples);
                let given = own.sum::<u64>() as f64;
                assert!((given - due).abs() <= 2.0, "{given} {due}");
            }
        }
    }

    /// Shares many small numbers, first 9 : 1 and later 1 : 9. At any time, the sum of the first sharer's shares differs from its exact value by at
    /// most two units.
    #[test]
    fn what_rounding_leaves_does_not_add_up() {
        let mut owed = Owed::default();
        let (mut due, mut given) = (0.0, 0);
        for at in 0..200_u64 {
            let (whole, weights) = (1 + at % 3, if at < 100 { [9, 1] } else { [1, 9] });
            let shares = owed.share(whole, &weights);
            assert_eq!(shares.iter().sum::<u64>(), whole);
            due += whole as f64 * weights[0] as f64 / 10.0;
            given += shares[0];
            assert!((due - given as f64).abs() <= 2.0, "{due} {given}");
        }
        // The first hundred numbers are 199 units in total, the second hundred 200. The exact shares of the first sharer are 179.1 and 20.
        assert_eq!(given, 199);
    }

    /// If the runs of one program are unknown, programs that always run together share evenly. The shares of programs that do not always run together
    /// are then unknown.
    #[test]
    fn programs_without_runs_share_what_they_all_run_at() {
        let index = Index::default();
        let window = Window::everything();
        let rates = vec![Some(150_000), Some(100_000), Some(0), None];
        let weights = HookWeights::of_rates(&index, &window, rates);
        let of =
            |programs: &[u32], run_together| weights.of(&HookGroup { programs: programs.into(), run_together }, None);
        assert_eq!(of(&[0, 1], false), Some(vec![150_000, 100_000]));
        assert_eq!(of(&[0, 2], true), Some(vec![150_000, 0]));
        assert_eq!(of(&[2], false), None, "the program did not run");
        assert_eq!(of(&[0, 3], false), None, "the runs of one program are unknown");
        assert_eq!(of(&[0, 3], true), Some(vec![1, 1]));
        // 300 runs in 2 s and 100 runs in 1 s: the rates while the programs are loaded have the ratio 3 : 2.
        assert_eq!(
            [(300, 2), (100, 1)].map(|(runs, s)| per_1000_seconds(runs, s * 1_000_000_000)),
            [Some(150_000), Some(100_000)]
        );
        assert_eq!(per_1000_seconds(5, 0), None);
    }
}
