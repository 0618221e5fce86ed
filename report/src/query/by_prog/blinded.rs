//! Blinded events: a perf event with a BPF program has no samples from inside kprobe, tracepoint and perf_event programs.

use bprec_format::bpf::names::ProgType;
use bprec_format::bprec::state::Attachment;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::model::{BlindedEvent, Program};

/// Returns the perf events that programs are attached to; an event with several programs occurs once for each. Programs of the recorder are left out,
/// because another note reports them. `names` has the events of the recording. Only programs of type perf_event count: before Linux 6.6, links on
/// tracepoints and probes look like links on perf events.
pub(super) fn find(attachments: &[Attachment], programs: &[Program], names: &[String]) -> Vec<BlindedEvent> {
    let mut found: Vec<BlindedEvent> = Vec::new();
    let mut told: FxHashSet<(usize, &[u8])> = FxHashSet::default();
    let mut carriers: FxHashMap<u32, usize> = FxHashMap::default();
    for (position, program) in programs.iter().enumerate() {
        let is_carrier = program.prog_type == Some(ProgType::PERF_EVENT) && !program.of_recorder;
        if let Some(id) = program.id.filter(|_| is_carrier) {
            carriers.entry(id).or_insert(position);
        }
    }
    for attachment in attachments.iter().filter(|attachment| attachment.kind == "perf_event") {
        let Some(&position) = carriers.get(&attachment.prog_id) else { continue };
        if !told.insert((position, attachment.target.text())) {
            continue;
        }
        let program = &programs[position];
        let event = String::from_utf8_lossy(attachment.target.text()).into_owned();
        // The recorder names its own events after the original event and the program on it, such as `cycles (name)`. The kernel's names of other
        // events do not end in a parenthesis.
        let own = event.ends_with(')') && names.contains(&event);
        found.push(BlindedEvent { event, program_id: program.id, program: program.name.clone(), own, position });
    }
    found
}

#[cfg(test)]
mod tests {
    use bprec_format::bprec::state::AttachTarget;

    use super::*;

    #[test]
    fn each_event_stands_once_and_own_ones_are_told_apart() {
        let attachment = |kind: &str, target: &str, link_id| Attachment {
            prog_id: 7,
            link_id,
            kind: kind.into(),
            target: AttachTarget::default().words(target),
        };
        let attachments = [
            attachment("perf_event", "cycles", Some(1)),
            attachment("perf_event", "cycles", Some(2)),
            attachment("perf_event", "cpu-clock (mine)", None),
            attachment("kprobe", "do_exit", None),
            attachment("perf_event", "cpu-clock", Some(3)),
            Attachment { prog_id: 8, ..attachment("perf_event", "cycles", None) },
        ];
        let program = Program {
            id: Some(7),
            name: "p".into(),
            prog_type: Some(ProgType::PERF_EVENT),
            ..super::super::rows::tests::program()
        };
        let found = find(&attachments, &[program], &["cpu-clock".into(), "cpu-clock (mine)".into()]);
        let expected = [("cycles", false), ("cpu-clock (mine)", true), ("cpu-clock", false)].map(|(event, own)| {
            BlindedEvent { event: event.into(), program_id: Some(7), program: "p".into(), own, position: 0 }
        });
        assert_eq!(found, expected);
    }

    /// The time grows linearly, not quadratically, with the number of programs, each of which is on two events.
    #[test]
    fn many_programs_are_each_looked_up_once() {
        const PROGRAMS: u32 = 100_000;
        let program = super::super::rows::tests::program();
        let programs: Vec<Program> = (0..PROGRAMS)
            .map(|id| Program { id: Some(id), prog_type: Some(ProgType::PERF_EVENT), ..program.clone() })
            .collect();
        let attachments: Vec<Attachment> = (0..2 * PROGRAMS)
            .map(|at| Attachment {
                prog_id: at / 2,
                link_id: None,
                kind: "perf_event".into(),
                target: AttachTarget::default().words(["cycles", "faults"][at as usize % 2]),
            })
            .collect();
        let found = find(&attachments, &programs, &[]);
        assert_eq!(found.len(), attachments.len());
        assert!(found.iter().zip(0..).all(|(event, at): (_, usize)| event.position == at / 2));
    }
}
