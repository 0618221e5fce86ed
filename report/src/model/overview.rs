//! Summary of a report on one screen: cost of BPF, costliest programs, payers, reasons, and confidence.

use super::{Count, SourceLine};

/// First screen of a page, about one event.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Overview {
    /// True if shares refer to the capacity of all CPUs, false if they refer to all samples.
    pub is_of_machine: bool,
    /// Cost of all BPF, in CPUs; `None` if the count or the capacity of the CPUs is unknown.
    pub cpus: Option<f64>,
    /// Parts of the machine's time; `None` if only some programs are selected.
    pub machine: Option<MachineParts>,
    /// Half of the 95 % confidence interval of the share of all BPF, in % of the total named by `is_of_machine`.
    pub margin_percent: Option<f64>,
    /// The costliest programs, then one slice for all others. The slices add up to the cost of all BPF.
    pub programs: Vec<ProgramSlice>,
    /// The largest payers, then one slice for all others.
    pub payers: Vec<PayerSlice>,
    /// Cost of each program to each payer, ordered by position in `programs`, then in `payers`.
    pub flows: Vec<Flow>,
    /// Length of an interval of [`ProgramSlice::intervals`], ns; the last interval may be shorter.
    pub interval_ns: u64,
    /// Length of all intervals together, ns; 0 when unknown.
    pub elapsed_ns: u64,
    /// Weight of all samples in each interval: the total that costs are shares of. Empty if costs are shares of time.
    pub samples_by_interval: Vec<(u32, u64)>,
}

/// Shares of the machine's time, %.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MachineParts {
    /// Idle.
    pub idle: f64,
    /// In user space.
    pub user: f64,
    /// In the kernel, without BPF.
    pub kernel: f64,
    /// Charged to BPF.
    pub bpf: f64,
}

/// A part of the cost of BPF.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Slice {
    /// Charged samples and their weight.
    pub count: Count,
    /// Share of the machine, or of all samples ([`Overview::is_of_machine`]), %.
    pub percent: Option<f64>,
    /// Share of the cost of all BPF, %.
    pub bpf_percent: Option<f64>,
    /// Number of programs or payers, if the slice combines several.
    pub folded: Option<usize>,
}

/// A program, or several programs combined.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProgramSlice {
    /// Cost of the program.
    pub slice: Slice,
    /// Position in [`super::Report::programs`]; `None` for unattributed samples, and for several programs.
    pub program: Option<usize>,
    /// Name of the program, or of the kind of unattributed samples; empty for several programs.
    pub name: String,
    /// Shares in own code, in callees and in entry code, % of the same total as [`Slice::percent`]; `None` when unknown.
    pub columns: [Option<f64>; 3],
    /// Index of each interval, and the program's share of the total ([`Overview::is_of_machine`]) in that interval, %.
    pub intervals: Vec<(u64, f64)>,
    /// Hottest source lines, the costliest first, with their share of the program, %.
    pub lines: Vec<(SourceLine, f64)>,
    /// Own code, entry code and helpers, the costliest first, with their share of the program, %.
    pub parts: Vec<(String, f64)>,
}

/// A payer, or several payers combined.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PayerSlice {
    /// Cost of BPF to the payer.
    pub slice: Slice,
    /// Name of the payer; empty for several payers.
    pub name: String,
    /// Share of BPF in the payer's CPU time, %.
    pub payer_percent: Option<f64>,
    /// Share of interrupts in the charged samples, %.
    pub in_interrupts_percent: Option<f64>,
    /// Weight of all samples of the payer, in BPF or not, in each interval: (number of the interval, weight). Empty if intervals are not requested.
    pub all_by_interval: Vec<(u32, u64)>,
}

/// Cost of a program to a payer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Flow {
    /// Position in [`Overview::programs`].
    pub program: usize,
    /// Position in [`Overview::payers`].
    pub payer: usize,
    /// Samples of the program that are charged to the payer, and their weight.
    pub count: Count,
    /// Share of the machine, or of all samples ([`Overview::is_of_machine`]), %.
    pub percent: Option<f64>,
    /// Weight of `count` in each interval: (number of the interval, weight). Empty if intervals are not requested.
    pub by_interval: Vec<(u32, u64)>,
}
