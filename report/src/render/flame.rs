//! Call chains as boxes below each other, as wide as they are heavy.

use super::listing::{Listing, ListingRow};
use crate::model::text::{counted, fit, printable};
use crate::model::{StackTree, Stacks};

/// More boxes than a screen has room for.
const MAX_NODES: usize = 4_000;
/// Of what was folded together.
const FOLDED: &str = "…";

impl Stacks {
    /// A flame graph that grows downwards, `width` columns wide: a row for each depth, in which a box begins with `|`. What would have no column
    /// is left out.
    pub fn flame_listing(&self, width: usize) -> Listing {
        let tree = self.tree(MAX_NODES);
        let above = format!("{} · {}", self.event, counted(self.total.samples, "sample"));
        let rows = rows(self, &tree, width).into_iter().map(|text| ListingRow { text, item: None }).collect();
        Listing { above: vec![printable(&above).into_owned()], rows, ..Listing::default() }
    }
}

fn rows(stacks: &Stacks, tree: &StackTree, width: usize) -> Vec<String> {
    let inclusive = tree.inclusive();
    let Some(total) = inclusive.first().copied().filter(|total| *total > 0) else { return Vec::new() };
    let column = |weight: u64| (u128::from(weight) * width as u128 / u128::from(total)) as usize;
    // By node: its depth, and where its next child begins, in weight.
    let mut places: Vec<(usize, u64)> = vec![(0, 0)];
    let mut rows: Vec<String> = Vec::new();
    let mut filled: Vec<usize> = Vec::new();
    for (at, weight) in inclusive.iter().copied().enumerate().skip(1) {
        let parent = tree.parent[at] as usize;
        let (depth, from) = places[parent];
        places[parent].1 = from.saturating_add(weight);
        places.push((depth + 1, from));
        let (first, end) = (column(from), column(from.saturating_add(weight)));
        if end <= first {
            continue;
        }
        if rows.len() <= depth {
            rows.resize(depth + 1, String::new());
            filled.resize(depth + 1, 0);
        }
        let label = stacks.frames.get(tree.frame[at] as usize).map_or_else(|| FOLDED.to_owned(), |frame| frame.label());
        let label = printable(&label).into_owned();
        rows[depth].push_str(&" ".repeat(first.saturating_sub(filled[depth])));
        rows[depth].push_str(&format!("|{:room$}", fit(&label, end - first - 1), room = end - first - 1));
        filled[depth] = end;
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Count, Frame, FrameKind, Stack, Unit};

    /// Ten samples on twenty columns: two columns each.
    #[test]
    fn boxes_are_as_wide_as_their_part() {
        let frame = |name: &str| Frame { name: name.to_owned(), kind: FrameKind::Kernel };
        let stack =
            |frames: &[u32], samples| Stack { frames: frames.to_vec(), count: Count { samples, weight: samples } };
        let stacks = Stacks {
            event: "e".to_owned(),
            unit: Unit::Events,
            total: Count { samples: 10, weight: 10 },
            frames: ["task", "left", "right\u{1b}", "other"].map(frame).to_vec(),
            stacks: vec![stack(&[0, 1], 3), stack(&[0, 2], 4), stack(&[3], 3)],
        };
        let rows: Vec<String> = stacks.flame_listing(20).rows.into_iter().map(|row| row.text).collect();
        // Seven of ten samples are 14 columns, three are 6, four are 8.
        assert_eq!(rows, ["|task         |other", "|left |right\\…"]);
    }
}
