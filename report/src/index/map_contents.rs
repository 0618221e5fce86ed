//! Contents of a map, joined from the parts in the recording.

use bprec_format::bprec::state::{ContentsEnd, MapContents};

/// Contents of a map, joined.
#[derive(Debug, Default)]
pub(crate) struct Contents {
    /// Description of the map from the first part, with the bytes of all parts.
    pub(crate) whole: MapContents,
    end: Option<ContentsEnd>,
    /// True if a part is missing. The parts after a missing part are not used.
    has_gap: bool,
}

impl Contents {
    /// Appends the next part. A part at offset 0 starts again: the map was read a second time.
    pub(crate) fn add(&mut self, mut part: MapContents) {
        if part.offset == 0 && (!self.whole.bytes.is_empty() || self.end.is_some()) {
            *self = Contents::default();
        }
        if part.offset != self.whole.bytes.len() as u64 || self.has_gap {
            self.has_gap = true;
        } else if part.offset == 0 {
            self.end = part.end.take();
            self.whole = part;
        } else {
            self.end = part.end.take();
            self.whole.bytes.extend_from_slice(&part.bytes);
        }
    }

    /// Time at which reading began, ns of the recording's clock.
    pub(crate) fn time_ns(&self) -> u64 {
        self.whole.time_ns
    }

    /// Bytes of an entry: the key, and the value on each CPU.
    pub(crate) fn stride(&self) -> usize {
        let values = self.whole.cpus.len().max(1);
        (self.whole.value_bytes as usize).saturating_mul(values).saturating_add(self.whole.key_bytes as usize)
    }

    /// Number of complete entries.
    pub(crate) fn len(&self) -> usize {
        self.whole.bytes.len().checked_div(self.stride()).unwrap_or(0)
    }

    /// Returns the reason why entries are missing; `None` if no entry is missing.
    pub(crate) fn cut(&self) -> Option<String> {
        match &self.end {
            _ if self.has_gap => Some("a part of the contents is missing in the recording".to_owned()),
            None => Some("the recording ends before the contents end".to_owned()),
            Some(end) if !end.cut.is_empty() => Some(end.cut.clone()),
            Some(end) if end.entries != self.len() as u64 => Some(format!(
                "{} {} read, but the recording does not have them all",
                end.entries,
                if end.entries == 1 { "entry was" } else { "entries were" }
            )),
            Some(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(offset: u64, bytes: &[u8], end: Option<(u64, &str)>) -> MapContents {
        let end = end.map(|(entries, cut)| ContentsEnd { entries, time_ns: 9, cut: cut.into() });
        MapContents { key_bytes: 1, value_bytes: 2, offset, bytes: bytes.to_vec(), end, ..MapContents::default() }
    }

    fn of(parts: &[MapContents]) -> (usize, Option<String>) {
        let mut contents = Contents::default();
        parts.iter().cloned().for_each(|part| contents.add(part));
        (contents.len(), contents.cut())
    }

    #[test]
    fn parts_are_put_together_and_what_is_missing_is_said() {
        let whole = [part(0, &[1, 2], None), part(2, &[3, 4, 5], None), part(5, &[6], Some((2, "")))];
        assert_eq!(of(&whole), (2, None));
        assert_eq!(of(&[part(0, &[], Some((0, "no reason")))]), (0, Some("no reason".into())));
        assert_eq!(of(&[]), (0, Some("the recording ends before the contents end".into())));
        assert_eq!(of(&whole[..2]), (1, Some("the recording ends before the contents end".into())));
        let gap = Some("a part of the contents is missing in the recording".into());
        assert_eq!(of(&[whole[0].clone(), whole[2].clone()]), (0, gap));
        assert_eq!(
            of(&[part(0, &[1, 2, 3], Some((2, "")))]),
            (1, Some("2 entries were read, but the recording does not have them all".into()))
        );
        // A second reading replaces the first.
        let again = [&whole[..], &[part(0, &[9, 9, 9], Some((1, "")))]].concat();
        assert_eq!(of(&again), (1, None));
    }
}
