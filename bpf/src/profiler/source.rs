//! How the value of an event in a run is found, and the times that belong to it. Reading an event is most of what measuring a run costs:
//! what is known otherwise is not read.

/// Where the numbers of an event come from. Those of a group stand together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Read with the times for which it was enabled and on the hardware: it may have to wait for that, and the group that it leads too.
    Leading,
    /// Read; its times are those of the [`Source::Leading`] before it.
    Following,
    /// Read; it counts all the time, as software events do.
    Always,
    /// A clock of the CPU, which counts the time of the run: not read.
    Clock,
}

/// The bits of the events of each kind, as profiler.bpf.c has them: leading, following, clocks.
pub(super) fn masks(events: &[Source]) -> [u32; 3] {
    [Source::Leading, Source::Following, Source::Clock].map(|kind| {
        let bits = events.iter().enumerate().filter(|(_, source)| **source == kind);
        bits.fold(0, |mask, (index, _)| mask | 1 << index)
    })
}

#[cfg(test)]
mod tests {
    use super::{Source, masks};

    #[test]
    fn each_kind_has_its_bits() {
        let events = [Source::Leading, Source::Following, Source::Clock, Source::Always, Source::Leading];
        assert_eq!(masks(&events), [0b1_0001, 0b10, 0b100]);
        assert_eq!(masks(&[]), [0; 3]);
    }
}
