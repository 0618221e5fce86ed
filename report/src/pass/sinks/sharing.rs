//! What several programs have in common, shared between them: no unit is added or lost.

use crate::index::runners::Group;
use crate::model::Count;

/// Whose something is: a group of programs by its number in the index, and perhaps so many more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Sharers {
    pub(crate) group: u32,
    pub(crate) strangers: u32,
    /// Number of the interval between two readings of run statistics, if it was in one.
    pub(crate) interval: Option<u32>,
}

/// Most shares that are in memory at a time, of all intervals and programs of a group.
const MAX_SHARES: usize = 1 << 16;

/// Hands out what sharers have in common, by the weights of their groups in each interval: `give` gets whose a share is, the part and the share;
/// nobody's is what strangers may have had, and all of a group without weights. The order of `parts` does not matter.
pub(crate) fn share_out<K: Ord>(
    mut parts: Vec<(Sharers, K, Count)>,
    groups: &[Group],
    weights: impl Fn(&Group, Option<u32>) -> Option<Vec<u64>>,
    mut give: impl FnMut(Option<u32>, &K, Count),
) {
    parts.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
    for parts in parts.chunk_by(|a, b| (a.0.group, a.0.strangers) == (b.0.group, b.0.strangers)) {
        let Sharers { group, strangers, .. } = parts[0].0;
        let group = &groups[group as usize];
        let intervals: Vec<_> = parts.chunk_by(|a, b| a.0 == b.0).collect();
        // Shares of one call to `shares_of` are rounded together.
        for intervals in intervals.chunks((MAX_SHARES / (group.programs.len() + 1)).max(1)) {
            let weights = intervals.iter().map(|parts| {
                let weights = weights(group, parts[0].0.interval)?;
                Some((parts.iter().map(|(.., count)| *count).sum(), with_strangers(weights, strangers)))
            });
            let weights: Vec<Option<(Count, Vec<u64>)>> = weights.collect();
            let mut shares = shares_of(weights.iter().flatten()).into_iter();
            for (parts, weights) in intervals.iter().zip(&weights) {
                let mut sharing = weights.as_ref().and_then(|_| Some(Sharing { left: shares.next()? }));
                for (_, part, count) in *parts {
                    let (shares, nobodys) =
                        sharing.as_mut().map_or((Vec::new(), *count), |sharing| sharing.take(*count));
                    let shares =
                        group.programs.iter().map(|program| Some(*program)).zip(shares).chain([(None, nobodys)]);
                    shares
                        .filter(|(_, share)| *share != Count::default())
                        .for_each(|(who, share)| give(who, part, share));
                }
            }
        }
    }
}

/// Weights of sharers, and then of all strangers: each counts as the one with the most, as it may have had no more.
fn with_strangers(mut weights: Vec<u64>, strangers: u32) -> Vec<u64> {
    let most = weights.iter().copied().max().unwrap_or(0);
    weights.push(most.saturating_mul(strangers.into()));
    weights
}

/// What each gets of several wholes, each of which is shared in the ratio of its weights.
fn shares_of<'w>(wholes: impl Iterator<Item = &'w (Count, Vec<u64>)> + Clone) -> Vec<Vec<Count>> {
    let of = |value: fn(&Count) -> u64| {
        share_each(&wholes.clone().map(|(whole, weights)| (value(whole), weights.as_slice())).collect::<Vec<_>>())
    };
    let (samples, weights) = (of(|count| count.samples), of(|count| count.weight));
    samples.iter().zip(&weights).map(|(samples, weights)| counts(samples, weights)).collect()
}

/// What of a part of something is each one's, by what each has of all of it: no more than that.
pub(crate) fn part_of(shares: &[Count], part: Count) -> Vec<Count> {
    let of = |value: fn(&Count) -> u64| share(value(&part), &shares.iter().map(value).collect::<Vec<_>>());
    counts(&of(|count| count.samples), &of(|count| count.weight))
}

/// Shares of a whole, handed out part by part.
#[derive(Debug)]
struct Sharing {
    /// Of each sharer, and then of all strangers: what it gets of the parts that are still to come.
    left: Vec<Count>,
}

impl Sharing {
    /// What each gets of a part of the whole, and what strangers may have had of it. The parts of the whole add up to what each gets of it,
    /// and what all get of a part to the part.
    fn take(&mut self, part: Count) -> (Vec<Count>, Count) {
        let mut taken = part_of(&self.left, part);
        for (left, taken) in self.left.iter_mut().zip(&taken) {
            // No share is rounded to more than is left: that is a whole number, and no less than the share.
            left.samples -= taken.samples;
            left.weight -= taken.weight;
        }
        let of_strangers = taken.pop().unwrap_or_default();
        (taken, of_strangers)
    }
}

fn counts(samples: &[u64], weights: &[u64]) -> Vec<Count> {
    samples.iter().zip(weights).map(|(samples, weight)| Count { samples: *samples, weight: *weight }).collect()
}

/// Shares a number in the ratio of the weights. What rounding down leaves goes to the largest remainders, of equal ones to the first. Weights
/// of 0 get nothing, and if all are 0 nobody gets anything.
fn share(whole: u64, weights: &[u64]) -> Vec<u64> {
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    if sum == 0 {
        return vec![0; weights.len()];
    }
    let product = |weight: &u64| u128::from(whole) * u128::from(*weight);
    let mut shares: Vec<u64> = weights.iter().map(|weight| (product(weight) / sum) as u64).collect();
    let rest = whole - shares.iter().sum::<u64>();
    let mut order: Vec<usize> = (0..weights.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(product(&weights[*at]) % sum));
    order.into_iter().take(rest as usize).for_each(|at| shares[at] += 1);
    shares
}

/// Fractions of units have so many bits.
const FRACTION_BITS: u32 = 16;

/// Shares several numbers, each in the ratio of its own weights. What one gets of all of them is what it would get without rounding, rounded once; of
/// each number it gets what brings it nearest to what it would have got up to there.
fn share_each(wholes: &[(u64, &[u64])]) -> Vec<Vec<u64>> {
    if let [(whole, weights)] = wholes {
        return vec![share(*whole, weights)];
    }
    let due: Vec<Vec<i128>> = wholes.iter().map(|(whole, weights)| due(*whole, weights)).collect();
    let mut left = rounded(wholes.iter().map(|(whole, _)| i128::from(*whole)).sum(), &due);
    let mut owed = vec![0; left.len()];
    let rows = wholes.iter().zip(&due).map(|((whole, _), due)| {
        owed.iter_mut().zip(due).for_each(|(owed, due)| *owed += due);
        let row = nearest(i128::from(*whole), &owed, &left);
        for ((owed, left), given) in owed.iter_mut().zip(&mut left).zip(&row) {
            *owed -= given << FRACTION_BITS;
            *left -= given;
        }
        row.into_iter().map(|given| given as u64).collect()
    });
    rows.collect()
}

/// What each is due of a number, in fractions of a unit.
fn due(whole: u64, weights: &[u64]) -> Vec<i128> {
    /// Weights that are larger than those of any machine lose their last bits.
    const WEIGHT_BITS: u32 = 48;
    let sum: u128 = weights.iter().map(|weight| u128::from(*weight)).sum();
    let shift = (u128::BITS - sum.leading_zeros()).saturating_sub(WEIGHT_BITS);
    let due = |weight: &u64| {
        let product = u128::from(whole) * (u128::from(*weight) >> shift);
        (product << FRACTION_BITS).checked_div(sum >> shift).unwrap_or(0) as i128
    };
    weights.iter().map(due).collect()
}

/// What each gets of several numbers that come to `whole`, rounded once.
fn rounded(whole: i128, due: &[Vec<i128>]) -> Vec<i128> {
    let sharers = due.first().map_or(0, Vec::len);
    let sums: Vec<i128> = (0..sharers).map(|at| due.iter().map(|due| due[at]).sum()).collect();
    nearest(whole, &sums, &vec![whole; sharers])
}

/// What each is given of a number: as much as it is owed, but no more than is left for it. What rounding down leaves goes to the largest remainders, of
/// equal ones to the first.
fn nearest(whole: i128, owed: &[i128], left: &[i128]) -> Vec<i128> {
    let mut rest = whole;
    let given = owed.iter().zip(left).map(|(owed, left)| {
        let units = (owed >> FRACTION_BITS).clamp(0, (*left).min(rest));
        rest -= units;
        units
    });
    let mut given: Vec<i128> = given.collect();
    let mut order: Vec<usize> = (0..owed.len()).collect();
    order.sort_by_key(|at| std::cmp::Reverse(owed[*at] - (given[*at] << FRACTION_BITS)));
    // Where nothing is left for one of them, others get more than a unit.
    for units in [1, whole] {
        for at in &order {
            let units = units.min(left[*at] - given[*at]).min(rest);
            given[*at] += units;
            rest -= units;
        }
    }
    given
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// Of any parts, rows and columns add up to what they are of.
    #[test]
    fn parts_of_shares_add_up_both_ways() {
        let mut state = 1u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        for _ in 0..200 {
            let mut weights: Vec<u64> = (0..=below(6)).map(|_| below(50)).collect();
            weights.push(1);
            let parts: Vec<Count> = (0..below(12)).map(|_| Count { samples: below(4), weight: below(1000) }).collect();
            let whole: Count = parts.iter().copied().sum();
            let strangers = below(3) as u32;
            let most = weights.iter().max().unwrap() * u64::from(strangers);
            let expected = share(whole.weight, &[&weights[..], &[most]].concat());
            let mut shares = shares_of([(whole, with_strangers(weights.clone(), strangers))].iter());
            let mut sharing = Sharing { left: shares.remove(0) };
            let taken: Vec<(Vec<Count>, Count)> = parts.iter().map(|part| sharing.take(*part)).collect();
            for (part, (taken, of_strangers)) in parts.iter().zip(&taken) {
                assert_eq!(taken.iter().copied().sum::<Count>() + *of_strangers, *part);
            }
            for (at, expected) in expected[..weights.len()].iter().enumerate() {
                assert_eq!(taken.iter().map(|(taken, _)| taken[at].weight).sum::<u64>(), *expected);
            }
            assert_eq!(taken.iter().map(|(_, of_strangers)| of_strangers.weight).sum::<u64>(), expected[weights.len()]);
        }
    }

    /// Many small numbers, shared 9 : 1 and then 1 : 9: each sharer has what it is due of all of them up to any of them, within two units.
    #[test]
    fn what_rounding_leaves_does_not_add_up() {
        let (nine, one) = ([9, 1], [1, 9]);
        let wholes: Vec<(u64, &[u64])> =
            (0..200).map(|at| (1 + at % 3, if at < 100 { &nine[..] } else { &one[..] })).collect();
        let rows = share_each(&wholes);
        let (mut due, mut given) = (0.0, 0);
        for (row, (whole, weights)) in rows.iter().zip(&wholes) {
            assert_eq!(row.iter().sum::<u64>(), *whole);
            due += *whole as f64 * weights[0] as f64 / 10.0;
            given += row[0];
            assert!((due - given as f64).abs() <= 2.0, "{due} {given}");
        }
        // 199 units of the first hundred numbers, and 200 of the others: 179.1 and 20.
        assert_eq!((wholes[..100].iter().map(|(whole, _)| whole).sum::<u64>(), given), (199, 199));
        assert_eq!(share_each(&[(100, &[1, 9]), (300, &[9, 1]), (40, &[1, 1])]), [[10, 90], [270, 30], [20, 20]]);
    }

    /// Of any numbers, rows are what they are of, and columns what one rounding makes of what each is due.
    #[test]
    fn numbers_are_shared_each_by_its_own_weights() {
        let mut state = 7u64;
        let mut below = |bound: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % bound
        };
        for _ in 0..300 {
            let sharers = 1 + below(5) as usize;
            let of_any_size = |below: &mut dyn FnMut(u64) -> u64, bits: u64| {
                let bits = below(bits);
                below(1 << 31) << bits >> 31
            };
            let wholes: Vec<(u64, Vec<u64>)> = (0..2 + below(8))
                .map(|_| {
                    let mut weights: Vec<u64> = (0..sharers).map(|_| of_any_size(&mut below, 60)).collect();
                    weights[0] += 1;
                    (of_any_size(&mut below, 64), weights)
                })
                .collect();
            let wholes: Vec<(u64, &[u64])> = wholes.iter().map(|(whole, weights)| (*whole, &weights[..])).collect();
            let rows = share_each(&wholes);
            for (row, (whole, _)) in rows.iter().zip(&wholes) {
                assert_eq!(row.iter().map(|it| u128::from(*it)).sum::<u128>(), u128::from(*whole), "{wholes:?}");
            }
            for at in 0..sharers {
                let given: u128 = rows.iter().map(|row| u128::from(row[at])).sum();
                let due = |(whole, weights): &(u64, &[u64])| {
                    *whole as f64 * (weights[at] as f64 / weights.iter().map(|it| *it as f64).sum::<f64>())
                };
                let due: f64 = wholes.iter().map(due).sum();
                assert!((given as f64 - due).abs() <= 1.01 + due * 1e-9, "{given} {due} {wholes:?}");
            }
        }
    }
}
