//! Perf events that carry a program: they have no samples from inside other programs.

use bprec_format::state::Attachment;

use super::{Program, Report};

/// A perf event with a program of type perf_event on it.
///
/// Such a program does not run inside kprobe, tracepoint and perf_event programs, and a sample of the event that falls
/// there is dropped without being counted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlindedEvent {
    /// Its name; empty where the kernel did not tell.
    pub event: String,
    /// The program on it, by its position in [`Report::programs`].
    pub program: usize,
    /// It is an event of this recording, rather than of someone else's.
    pub own: bool,
}

/// The events that the attachments speak of, each once. `programs` are the ids by position of those that are of type perf_event
/// and not the recorder's, `names` those of the recording's own events. Before Linux 6.6 links on tracepoints and probes look like
/// any on a perf event.
pub(super) fn find(attachments: &[Attachment], programs: &[Option<u32>], names: &[String]) -> Vec<BlindedEvent> {
    let mut found: Vec<BlindedEvent> = Vec::new();
    for attachment in attachments.iter().filter(|attachment| attachment.kind == "perf_event") {
        let Some(program) = programs.iter().position(|id| *id == Some(attachment.prog_id)) else { continue };
        let event = String::from_utf8_lossy(&attachment.target).into_owned();
        // Ours are called after the event they are like and the program; what the kernel tells of others has no such names.
        let own = event.ends_with(')') && names.contains(&event);
        let blinded = BlindedEvent { event, program, own };
        if !found.contains(&blinded) {
            found.push(blinded);
        }
    }
    found
}

impl Report {
    /// The programs on an event of the recording, by their positions.
    pub fn programs_on<'r>(&'r self, event: &'r str) -> impl Iterator<Item = &'r Program> {
        let on = self.blinded.iter().filter(move |blinded| blinded.own && blinded.event == event);
        on.filter_map(|blinded| self.programs.get(blinded.program))
    }
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
        let found = find(&attachments, &[Some(7)], &["cpu-clock".into(), "cpu-clock (mine)".into()]);
        let expected = [("cycles", false), ("cpu-clock (mine)", true), ("cpu-clock", false)]
            .map(|(event, own)| BlindedEvent { event: event.into(), program: 0, own });
        assert_eq!(found, expected);
    }
}
