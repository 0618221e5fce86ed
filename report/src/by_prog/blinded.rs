//! Perf events that carry a program: they have no samples from inside other programs.

use bprec_format::bpf::names::ProgType;
use bprec_format::state::Attachment;

use crate::model::{BlindedEvent, Program};

/// The events that the attachments speak of, each once. Of the recorder's own programs it is told elsewhere. `names` are
/// those of the recording's own events. Before Linux 6.6 links on tracepoints and probes look like any on a perf event.
pub(super) fn find(attachments: &[Attachment], programs: &[Program], names: &[String]) -> Vec<BlindedEvent> {
    let mut found: Vec<BlindedEvent> = Vec::new();
    let carriers = || {
        programs.iter().enumerate().filter(|(_, program)| {
            program.prog_type == Some(ProgType::PERF_EVENT) && !program.name.starts_with("bprec_")
        })
    };
    for attachment in attachments.iter().filter(|attachment| attachment.kind == "perf_event") {
        let carrier = carriers().find(|(_, program)| program.id == Some(attachment.prog_id));
        let Some((position, program)) = carrier else { continue };
        let event = String::from_utf8_lossy(&attachment.target).into_owned();
        // Ours are called after the event they are like and the program; what the kernel tells of others has no such names.
        let own = event.ends_with(')') && names.contains(&event);
        let blinded = BlindedEvent { event, program_id: program.id, program: program.name.clone(), own, position };
        if !found.contains(&blinded) {
            found.push(blinded);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_stands_once_and_own_ones_are_told_apart() {
        let attachment = |kind: &str, target: &str, link_id| Attachment {
            prog_id: 7,
            link_id,
            kind: kind.into(),
            target: target.into(),
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
}
