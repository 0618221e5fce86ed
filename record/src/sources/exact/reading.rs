//! Reading of the events that exact counters count.

use bprec_bpf::Source as EventSource;
use bprec_format::bprec::state::{CounterEvent, CounterUnit};

/// Method of reading each event. A group of software events always counts. Any other group may have to wait for hardware counters, and then all of
/// its events wait.
pub(super) fn sources(events: &[CounterEvent]) -> Vec<EventSource> {
    let groups = events.chunk_by(|a, b| a.group == b.group);
    let of_group = |group: &[CounterEvent]| -> Vec<EventSource> {
        let never_waits = group.iter().all(|event| event.software);
        let source = |(index, event): (usize, &CounterEvent)| match never_waits {
            true if event.unit == CounterUnit::NANOSECONDS => EventSource::Clock,
            true => EventSource::Always,
            false if index == 0 => EventSource::Leading,
            false => EventSource::Following,
        };
        group.iter().enumerate().map(source).collect()
    };
    groups.flat_map(of_group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_wait_is_read_with_its_times_once_a_group() {
        let event = |group, software, unit| CounterEvent {
            name: String::new(),
            attr_type: 0,
            config: 0,
            group,
            unit,
            software,
        };
        let (number, clock) = (CounterUnit::EVENTS, CounterUnit::NANOSECONDS);
        let events = [
            // {cycles,instructions,cpu-clock}
            event(0, false, number),
            event(0, false, number),
            event(0, true, clock),
            // cpu-clock, {page-faults,task-clock}, cycles
            event(3, true, clock),
            event(4, true, number),
            event(4, true, clock),
            event(6, false, number),
        ];
        use EventSource::{Always, Clock, Following, Leading};
        assert_eq!(sources(&events), [Leading, Following, Following, Clock, Always, Clock, Leading]);
    }
}
