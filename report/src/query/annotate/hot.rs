//! Selection of the hot lines that a listing shows.

use super::charges::SiteCost;
use std::cmp::Reverse;

/// Count of lines shown on either side of a hot line.
const CONTEXT: usize = 1;

/// Returns, for each line of each function, true if the line is shown. Shown are the hottest `limit` lines that have at least `percent_limit` % of
/// the weight `charged`, and the lines next to them. If both limits are `None`, all lines are shown.
pub(super) fn shown(
    costs: &[Vec<SiteCost>],
    charged: u64,
    limit: Option<usize>,
    percent_limit: Option<f64>,
) -> Vec<Vec<bool>> {
    let is_limited = limit.is_some() || percent_limit.is_some();
    let mut shown: Vec<Vec<bool>> = costs.iter().map(|lines| vec![!is_limited; lines.len()]).collect();
    if !is_limited {
        return shown;
    }
    let weights = costs.iter().enumerate().flat_map(|(function, lines)| {
        lines.iter().enumerate().map(move |(line, cost)| (Reverse(cost.sum().weight), function, line))
    });
    let is_hot =
        |weight: u64| weight > 0 && percent_limit.is_none_or(|limit| weight as f64 * 100.0 >= limit * charged as f64);
    let mut hottest: Vec<_> = weights.filter(|(Reverse(weight), ..)| is_hot(*weight)).collect();
    hottest.sort_unstable();
    for (_, function, line) in hottest.into_iter().take(limit.unwrap_or(usize::MAX)) {
        let lines = &mut shown[function];
        let near = line.saturating_sub(CONTEXT)..(line + CONTEXT + 1).min(lines.len());
        lines[near].fill(true);
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Count;

    #[test]
    fn hot_lines_are_shown_with_what_is_next_to_them() {
        let cost = |weight| SiteCost { own: Count { samples: 1, weight }, helper: Count::default() };
        let costs = [[0, 5, 0, 0, 90, 0, 0].map(cost).to_vec(), [0, 0, 5].map(cost).to_vec()];
        let positions = |limit, percent_limit| {
            let shown = shown(&costs, 100, limit, percent_limit);
            let positions = |lines: &Vec<bool>| (0..lines.len()).filter(|at| lines[*at]).collect::<Vec<_>>();
            [positions(&shown[0]), positions(&shown[1])]
        };
        assert_eq!(positions(None, None), [(0..7).collect::<Vec<_>>(), vec![0, 1, 2]]);
        assert_eq!(positions(Some(1), None), [vec![3, 4, 5], vec![]]);
        assert_eq!(positions(Some(2), None), [vec![0, 1, 2, 3, 4, 5], vec![]]);
        assert_eq!(positions(None, Some(5.0)), [vec![0, 1, 2, 3, 4, 5], vec![1, 2]]);
        assert_eq!(positions(None, Some(5.1)), [vec![3, 4, 5], vec![]]);
        assert_eq!(positions(Some(100), None), [vec![0, 1, 2, 3, 4, 5], vec![1, 2]]);
    }
}
