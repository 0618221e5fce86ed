//! Flame graph of call chains: the width of a box is in proportion to the weight of its frame.

use super::listing::{FlameBox, Listing, ListingRow};
use crate::model::text::{counted, fit, printable};
use crate::model::{Count, FrameKind, Stack, StackTree, Stacks};
use std::collections::BTreeMap;

/// Limit on boxes; a screen cannot show as many.
const MAX_NODES: usize = 4_000;
/// Label of a box that stands for several small frames.
const FOLDED: &str = "…";

impl Stacks {
    /// Flame graph that grows downwards, `width` columns wide: a row per depth, in which `|` starts a box. Boxes narrower than a column are left out.
    /// Only stacks that begin with the frames `below` (outermost first) are drawn, over the full width; all stacks if `below` is empty.
    pub fn flame_listing(&self, width: usize, below: &[String]) -> Listing {
        let part = self.below(below);
        let above = match below.last() {
            None => format!("{} · {}", self.event, counted(self.total.samples, "sample")),
            Some(frame) => {
                let all = counted(self.total.samples, "sample");
                format!("{} · {} of {all} below {frame}", self.event, part.total.samples)
            }
        };
        let rows = rows(&part, &part.tree(MAX_NODES), width, self.total.weight);
        Listing { above: vec![printable(&above).into_owned()], rows, ..Listing::default() }
    }

    /// Removes the frames of tasks and of user space, and merges stacks that are then equal. A program thus has one graph for all tasks that run it.
    pub fn in_kernel(self) -> Stacks {
        let is_outside =
            |frame: &&u32| matches!(self.frames[**frame as usize].kind, FrameKind::Task | FrameKind::User { .. });
        let mut merged: BTreeMap<&[u32], Count> = BTreeMap::new();
        for stack in &self.stacks {
            let outside = stack.frames.iter().take_while(is_outside).count();
            merged.entry(&stack.frames[outside..]).or_default().merge(stack.count);
        }
        let stacks = merged
            .into_iter()
            .map(|(frames, count)| Stack { frames: frames.to_vec(), container: None, count })
            .collect();
        Stacks { stacks, ..self }
    }

    /// Stacks that begin with these frames.
    fn below(&self, frames: &[String]) -> Stacks {
        let frame = |at: u32| self.frames.get(at as usize).map(|frame| frame.label());
        let begins = |stack: &&Stack| {
            let is_same = |(at, wanted): (&u32, &String)| frame(*at).as_ref() == Some(wanted);
            stack.frames.len() >= frames.len() && stack.frames.iter().zip(frames).all(is_same)
        };
        let stacks: Vec<Stack> = self.stacks.iter().filter(begins).cloned().collect();
        let total = stacks.iter().map(|stack| stack.count).sum();
        Stacks { stacks, total, event: self.event.clone(), frames: self.frames.clone(), ..*self }
    }
}

/// Rows of a flame graph. `all` is the weight that is 100 % in the texts of boxes.
fn rows(stacks: &Stacks, tree: &StackTree, width: usize, all: u64) -> Vec<ListingRow> {
    let inclusive = tree.inclusive();
    let Some(total) = inclusive.first().copied().filter(|total| *total > 0) else { return Vec::new() };
    let column = |weight: u64| (u128::from(weight) * width as u128 / u128::from(total)) as usize;
    // For each node: the number of its children's row, and the total weight of its children so far, which is to the left of the next child.
    let mut places: Vec<(usize, u64)> = vec![(0, 0)];
    let mut rows: Vec<ListingRow> = Vec::new();
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
            rows.resize_with(depth + 1, || ListingRow { text: String::new(), item: None, boxes: Vec::new() });
        }
        let frame = stacks.frames.get(tree.frame[at] as usize).map(|frame| frame.label());
        let label = printable(frame.as_deref().unwrap_or(FOLDED)).into_owned();
        let ListingRow { text, boxes, .. } = &mut rows[depth];
        let filled = boxes.last().map_or(0, |last| last.columns.end);
        text.push_str(&" ".repeat(first.saturating_sub(filled)));
        text.push_str(&format!("|{:room$}", fit(&label, end - first - 1), room = end - first - 1));
        let percent = weight as f64 * 100.0 / all as f64;
        boxes.push(FlameBox { columns: first..end, frame, text: format!("{label} · {percent:.2} %") });
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Frame, Unit};

    fn stack(frames: &[u32], samples: u64) -> Stack {
        Stack { frames: frames.to_vec(), container: None, count: Count { samples, weight: samples } }
    }

    /// Stacks with ten samples in all.
    fn ten(frames: Vec<Frame>, stacks: Vec<Stack>) -> Stacks {
        Stacks { event: "e".to_owned(), unit: Unit::Events, total: Count { samples: 10, weight: 10 }, frames, stacks }
    }

    /// Ten samples on twenty columns: two columns per sample.
    #[test]
    fn boxes_are_as_wide_as_their_part() {
        let frame = |name: &str| Frame { name: name.to_owned(), kind: FrameKind::Kernel, source: None };
        let stacks = ten(
            ["task", "left", "right\u{1b}", "other"].map(frame).to_vec(),
            vec![stack(&[0, 1], 3), stack(&[0, 2], 4), stack(&[3], 3)],
        );
        let texts = |listing: &Listing| -> Vec<String> { listing.rows.iter().map(|row| row.text.clone()).collect() };
        let all = stacks.flame_listing(20, &[]);
        // Seven of ten samples are 14 columns, three are 6, four are 8.
        assert_eq!(texts(&all), ["|task         |other", "|left |right\\…"]);
        let right = &all.rows[1].boxes[1];
        assert_eq!((right.columns.clone(), right.text.as_str()), (6..14, "right\\u{1b} · 40.00 %"));
        // The seven samples below the task fill the twenty columns, so three of them take eight. The shares in the texts refer to all ten samples.
        let below = stacks.flame_listing(20, &["task".to_owned()]);
        assert_eq!(texts(&below), ["|task               ", "|left   |right\\u{1b}"]);
        assert_eq!(below.above, ["e · 7 of 10 samples below task"]);
        assert_eq!(below.rows[1].boxes[0].text, "left · 30.00 %");
        assert!(stacks.flame_listing(20, &["other".to_owned(), "left".to_owned()]).rows.is_empty());
    }

    /// A hook that two tasks run is one box, with the samples of both.
    #[test]
    fn tasks_share_the_frames_of_the_kernel() {
        let kinds =
            [FrameKind::Task, FrameKind::Task, FrameKind::User { file: None }, FrameKind::Kernel, FrameKind::Kernel];
        let frames = kinds.into_iter().zip(["a", "b", "main", "hook", "helper"]);
        let stacks = ten(
            frames.map(|(kind, name)| Frame { name: name.to_owned(), kind, source: None }).collect(),
            vec![stack(&[0, 2, 3], 3), stack(&[0, 2, 3, 4], 2), stack(&[1, 3, 4], 5)],
        );
        let listing = stacks.in_kernel().flame_listing(20, &[]);
        let rows: Vec<&str> = listing.rows.iter().map(|row| row.text.as_str()).collect();
        assert_eq!(rows, ["|hook               ", "|helper       "]);
        assert_eq!(listing.rows[1].boxes[0].text, "helper · 70.00 %");
    }
}
