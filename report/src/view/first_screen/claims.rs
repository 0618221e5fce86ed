//! Sentences at the top of the first screen.

use super::{Claim, ScreenRow, ScreenSource};
use crate::model::Slice;
use crate::model::text::{clean, fixed};
use crate::view::cells::of_machine;

impl ScreenSource<'_> {
    /// Sentences on the costliest program, the largest payer, the reason of the cost, and the remedy, each if known.
    pub(super) fn claims(&self, rows: &[ScreenRow]) -> Vec<Claim> {
        let (event, overview) = (self.event, self.overview);
        let of = if overview.is_of_machine { "of the machine" } else { "of all samples" };
        let share = |slice: &Slice| {
            let of_bpf = slice.bpf_percent.map(|part| format!(", {part:.0} % of BPF"));
            format!("{} % {of}{}", of_machine(slice.percent, event.is_scaled()), of_bpf.unwrap_or_default())
        };
        let mut claims = Vec::new();
        let at = overview.programs.iter().position(|slice| slice.program.is_some());
        let costliest = at.and_then(|at| Some((at, overview.programs.get(at)?, rows.get(at)?)));
        if let Some((at, slice, row)) = costliest {
            let runs = match (row.runs.is_empty(), row.time.is_empty()) {
                (false, false) => Some(format!("{} runs/s of {} each", row.runs, row.time)),
                _ => None,
            };
            let owner = (!row.owner.is_empty()).then(|| format!("owner: {}", row.owner));
            let text = [share(&slice.slice)].into_iter().chain(runs).chain(owner).collect();
            claims.push(Claim { label: "Costs most", name: row.name.clone(), program: Some(at), text });
        }
        if let Some(payer) = overview.payers.first().filter(|payer| payer.slice.folded.is_none()) {
            let tax = payer.payer_percent.map(|tax| format!("{} % of its own CPU time", fixed(tax, 1)));
            let text = [share(&payer.slice)].into_iter().chain(tax).collect();
            claims.push(Claim { label: "Pays most", name: clean(&payer.name), program: None, text });
        }
        if let Some((at, slice, row)) = costliest {
            let part = slice.parts.first().map(|(name, part)| {
                let name = match name.as_str() {
                    "(own code)" => "its own code".to_owned(),
                    "(entry)" => "code that runs it".to_owned(),
                    "(interrupt)" => "interrupts that came".to_owned(),
                    _ => clean(name),
                };
                (name, format!("{part:.0}"))
            });
            let name = row.lines.first().map(|line| format!("{}:{}", line.file, line.line));
            let hottest =
                row.lines.first().map(|line| format!("{:.0} % of the program: {}", line.percent, line.source));
            let most = part.as_ref().map(|(name, part)| format!("{part} % in {name}"));
            let name = name.or_else(|| part.map(|(name, _)| name));
            let text = hottest.into_iter().chain(most).collect();
            claims.extend(name.map(|name| Claim { label: "Why", name, program: Some(at), text }));
        }
        claims.extend(self.remedy(rows));
        claims
    }

    /// Sentence on the remedy with the largest saving; `None` without a finding.
    fn remedy(&self, rows: &[ScreenRow]) -> Option<Claim> {
        let found = self.advice.first()?;
        let (most, others) = found.finding.programs().split_first()?;
        let is_it = |at: usize| self.report.programs[at].label_with_id() == most.program;
        // Copies of a program have the same name, so the second copy is shown by its id alone.
        let rest = match (others, most.program.rsplit_once(" (")) {
            ([], _) => String::new(),
            ([second], Some((name, _))) if second.program.starts_with(&format!("{name} (")) => {
                format!(",{}", &second.program[name.len()..])
            }
            _ => format!(" and {} more", others.len()),
        };
        Some(Claim {
            label: "What to do",
            name: found.finding.remedy().to_owned(),
            program: rows.iter().position(|row| row.program.is_some_and(is_it)),
            text: vec![format!("saves at most {}", found.saves), clean(&format!("{}{rest}", most.program))],
        })
    }
}
