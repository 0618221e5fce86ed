//! First screen of a page or a terminal: the costliest programs and payers (tasks in which programs ran), with all others folded.

use crate::model::text::LEAST_SHOWN_PERCENT;
use crate::model::{
    Count, EventLines, EventOverTime, EventPayers, EventReport, Flow, MachineParts, Overview, PayerSlice, ProgramSlice,
    Report, Row, Slice,
};
use crate::query::by_prog::payers::{ByInterval, PaidByInterval, add_weights};
use crate::query::by_prog::shares::{margin, percent};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use std::ops::Range;

/// Limit on the source lines of a program.
const MAX_LINES: usize = 9;

/// Program by position, or another row by name.
type ProgramOrName<'p> = (Option<usize>, &'p str);

/// Reports of one event that the overview summarizes.
pub(super) struct OverviewFacts<'p> {
    pub(super) report: &'p Report,
    pub(super) event: &'p EventReport,
    pub(super) payers: &'p EventPayers,
    pub(super) over_time: &'p EventOverTime,
    pub(super) interval_ns: u64,
    pub(super) lines: &'p EventLines,
    /// Weights of payers by interval, if requested.
    pub(super) paid: PaidByInterval,
    /// Samples in user space; `None` if only some programs are selected.
    pub(super) user: Option<Count>,
    /// Limit on the rows of programs, and on the rows of payers. If there are more, the last row stands for the rest.
    pub(super) max_rows: usize,
}

impl OverviewFacts<'_> {
    /// Makes the overview.
    pub(super) fn overview(&self) -> Overview {
        let (event, recording) = (self.event, &self.report.recording);
        let elapsed_ns = recording.elapsed_ns.unwrap_or(0);
        let bpf = event.percent(event.total.count);
        let is_of_machine = event.machine.value().is_some();
        let cpus =
            recording.cpus.filter(|_| is_of_machine).zip(bpf).map(|(cpus, percent)| percent * f64::from(cpus) / 100.0);
        let (programs, program_of) = self.programs();
        let (payers, payer_of) = self.payers();
        let mut flows: FxHashMap<(usize, usize), (Count, BTreeMap<u32, u64>)> = FxHashMap::default();
        // A cell without weight has no flow, and its payer may have no slice.
        for cell in self.payers.rows.iter().filter(|cell| cell.count.weight > 0) {
            let program = program_of.get(&(cell.program, cell.name.as_str())).copied().unwrap_or(programs.len() - 1);
            let (count, sums) = flows.entry((program, payer_of[cell.payer])).or_default();
            count.merge(cell.count);
            let name = if cell.program.is_some() { "" } else { cell.name.as_str() };
            let paid = self.paid.charges.get(&(cell.program, name, cell.payer)).into_iter().flatten();
            add_weights(sums, paid.map(|(interval, weight)| (interval, weight)));
        }
        let flow = |((program, payer), (count, sums)): ((usize, usize), (Count, BTreeMap<u32, u64>))| Flow {
            program,
            payer,
            count,
            percent: event.percent(count),
            by_interval: sums.into_iter().collect(),
        };
        let mut flows: Vec<Flow> = flows.into_iter().map(flow).collect();
        flows.sort_by_key(|flow| (flow.program, flow.payer));
        Overview {
            is_of_machine,
            cpus,
            machine: self.machine(),
            margin_percent: self.margin(),
            programs,
            payers,
            flows,
            interval_ns: self.interval_ns,
            elapsed_ns,
            samples_by_interval: self.wholes().into_iter().flatten().map(|(at, weight)| (*at, *weight)).collect(),
        }
    }

    /// Returns the weights of all samples by interval if shares are of samples, not of time, and if these weights were requested.
    fn wholes(&self) -> Option<&BTreeMap<u32, u64>> {
        let is_of_samples = self.event.is_scaled() || !self.event.machine.is_value();
        Some(&self.paid.samples).filter(|samples| is_of_samples && !samples.is_empty())
    }

    fn slice(&self, count: Count, folded: Option<usize>) -> Slice {
        let bpf_percent = percent(count.weight, Some(self.event.total.count.weight));
        Slice { count, percent: self.event.percent(count), bpf_percent, folded }
    }

    /// Returns the count of rows that get a slice of their own; the other rows share one slice. `counts` are the costs of all rows, descending.
    fn shown(&self, counts: impl Iterator<Item = Count>) -> usize {
        let counts: Vec<Count> = counts.collect();
        let is_seen =
            |count: &&Count| self.event.percent(**count).is_some_and(|percent| percent >= LEAST_SHOWN_PERCENT);
        let seen = counts.iter().take_while(is_seen).count();
        if counts.len() <= self.max_rows && seen == counts.len() { seen } else { seen.min(self.max_rows - 1) }
    }

    /// Returns the slices of programs, and for each program or other row the position of its slice.
    fn programs(&self) -> (Vec<ProgramSlice>, FxHashMap<ProgramOrName<'_>, usize>) {
        let mut charged: Vec<(ProgramOrName<'_>, Count)> = Vec::new();
        // Cells without weight belong to payers without a slice.
        for cell in self.payers.rows.iter().filter(|cell| cell.count.weight > 0) {
            let key = (cell.program, cell.name.as_str());
            match charged.last_mut().filter(|(last, _)| *last == key) {
                Some((_, sum)) => sum.merge(cell.count),
                None => charged.push((key, cell.count)),
            }
        }
        let shown = self.shown(charged.iter().map(|(_, count)| *count));
        let mut slices: Vec<ProgramSlice> =
            charged[..shown].iter().map(|(key, count)| self.program(*key, *count)).collect();
        let rest = &charged[shown..];
        if !rest.is_empty() {
            let count = rest.iter().map(|(_, count)| *count).sum();
            let mut slice = ProgramSlice { slice: self.slice(count, Some(rest.len())), ..ProgramSlice::default() };
            let rows: Vec<Option<&Row>> = rest.iter().map(|((program, _), _)| self.row(*program)).collect();
            slice.columns = self.columns(&rows);
            let intervals: FxHashMap<u64, Count> = rest.iter().fold(FxHashMap::default(), |mut all, (key, _)| {
                self.intervals(*key).for_each(|(at, count)| all.entry(at).or_insert_with(Count::default).merge(count));
                all
            });
            let mut intervals: Vec<(u64, Count)> = intervals.into_iter().collect();
            intervals.sort_unstable();
            slice.intervals = intervals.into_iter().filter_map(|(at, count)| self.of_interval(at, count)).collect();
            slices.push(slice);
        }
        let rows = charged.iter().enumerate().map(|(at, (key, _))| (*key, at.min(shown)));
        (slices, rows.collect())
    }

    fn row(&self, program: Option<usize>) -> Option<&Row> {
        self.event.rows.iter().find(|row| Some(row.program) == program)
    }

    fn program(&self, key: ProgramOrName<'_>, count: Count) -> ProgramSlice {
        let (program, name) = key;
        let row = self.row(program);
        let of_program = |weight: u64| weight as f64 * 100.0 / count.weight.max(1) as f64;
        let known = program.map(|at| &self.report.programs[at]);
        let lines = self.lines.rows.iter().filter(|line| {
            known.is_some_and(|program| program.id == line.id && program.load_time_ns == line.load_time_ns)
        });
        let lines = lines.filter_map(|line| {
            let weight = line.own.weight.saturating_add(line.helper.map_or(0, |helper| helper.weight));
            Some((line.source.clone()?, of_program(weight)))
        });
        let parts = row.and_then(|row| row.parts.as_ref()).into_iter().flatten();
        let parts = parts.filter(|part| part.line.count.weight > 0);
        ProgramSlice {
            slice: self.slice(count, None),
            program,
            name: name.to_owned(),
            columns: self.columns(&[row]),
            intervals: self.intervals(key).filter_map(|(at, count)| self.of_interval(at, count)).collect(),
            lines: lines.take(MAX_LINES).collect(),
            parts: parts.map(|part| (part.name.clone(), of_program(part.line.count.weight))).collect(),
        }
    }

    /// Returns the sums of self, helper and entry of these rows, %; `None` for a column that is unknown in all rows.
    fn columns(&self, rows: &[Option<&Row>]) -> [Option<f64>; 3] {
        let mut sums = [None; 3];
        for columns in rows.iter().flatten().filter_map(|row| row.line.as_ref()?.columns.as_ref()) {
            for (sum, share) in sums.iter_mut().zip([&columns.own, &columns.helper, &columns.entry]) {
                if let Some(share) = share.value() {
                    sum.get_or_insert_with(Count::default).merge(share.count);
                }
            }
        }
        sums.map(|sum| self.event.percent(sum?))
    }

    fn intervals(&self, (program, name): ProgramOrName<'_>) -> impl Iterator<Item = (u64, Count)> {
        let is_it =
            move |row: &&crate::model::RowOverTime| row.program == program && (program.is_some() || row.name == name);
        let row = self.over_time.rows.iter().find(is_it);
        row.into_iter().flat_map(|row| &row.intervals).map(|interval| (interval.interval, interval.count))
    }

    /// Returns the interval with the share of `count` in this interval, %: of all its samples if shares are of samples, otherwise of its length,
    /// as the last interval may be shorter. `None` for an interval after the end.
    fn of_interval(&self, interval: u64, count: Count) -> Option<(u64, f64)> {
        if let Some(wholes) = self.wholes() {
            let whole = u32::try_from(interval).ok().and_then(|at| wholes.get(&at).copied());
            return Some((interval, percent(count.weight, whole)?));
        }
        let elapsed_ns = self.report.recording.elapsed_ns?;
        let length_ns = elapsed_ns.saturating_sub(interval.saturating_mul(self.interval_ns)).min(self.interval_ns);
        let percent = self.event.percent(count)?;
        (length_ns > 0).then(|| (interval, percent * elapsed_ns as f64 / length_ns as f64))
    }

    /// Returns the slices of payers, and for each payer the position of its slice.
    fn payers(&self) -> (Vec<PayerSlice>, Vec<usize>) {
        let all = &self.payers.payers;
        let paying = all.iter().take_while(|payer| payer.count.weight > 0).count();
        let shown = self.shown(all[..paying].iter().map(|payer| payer.count));
        let mut slices: Vec<PayerSlice> = Vec::new();
        for (at, payer) in all[..shown].iter().enumerate() {
            slices.push(PayerSlice {
                slice: self.slice(payer.count, None),
                name: payer.payer.iter().map(|name| name.label()).collect::<Vec<_>>().join(" "),
                payer_percent: payer.payer_percent,
                in_interrupts_percent: payer.in_interrupts_percent,
                all_by_interval: self.all_by_interval(at..at + 1),
            });
        }
        let rest = &all[shown..paying];
        if !rest.is_empty() {
            let count: Count = rest.iter().map(|payer| payer.count).sum();
            let whole: Count = rest.iter().map(|payer| payer.all).sum();
            let payer_percent = percent(count.weight, Some(whole.weight));
            let slice = self.slice(count, Some(rest.len()));
            let all_by_interval = self.all_by_interval(shown..paying);
            slices.push(PayerSlice { slice, payer_percent, all_by_interval, ..PayerSlice::default() });
        }
        (slices, (0..all.len()).map(|at| at.min(shown)).collect())
    }

    /// Returns the weights of all samples of several payers by interval.
    fn all_by_interval(&self, payers: Range<usize>) -> ByInterval {
        let mut sums = BTreeMap::new();
        let paid = payers.filter_map(|payer| self.paid.all.get(&payer)).flatten();
        add_weights(&mut sums, paid.map(|(interval, weight)| (interval, weight)));
        sums.into_iter().collect()
    }

    fn machine(&self) -> Option<MachineParts> {
        let (event, user) = (self.event, self.user?);
        let whole = event.machine.value().copied().unwrap_or(event.samples.weight);
        let busy = event.busy.value().copied().unwrap_or(event.samples.weight);
        let bpf = event.total.count.weight;
        let kernel = busy.saturating_sub(user.weight).saturating_sub(bpf);
        let percent = |weight: u64| weight as f64 * 100.0 / whole as f64;
        let idle = [kernel, user.weight, bpf].into_iter().fold(whole, u64::saturating_sub);
        let parts = MachineParts {
            idle: percent(idle),
            user: percent(user.weight),
            kernel: percent(kernel),
            bpf: percent(bpf),
        };
        (whole > 0).then_some(parts)
    }

    /// Returns the margin of the BPF share; `None` without samples in BPF. The margin follows from the count of samples, because each sample is
    /// either in BPF or not.
    fn margin(&self) -> Option<f64> {
        let (samples, bpf) = (self.event.samples.samples, self.event.total.count.samples);
        let all = self.event.percent(self.event.samples)?;
        (bpf > 0).then(|| margin(bpf, samples) * all)
    }
}
