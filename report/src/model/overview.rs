//! The answer in one screen: what BPF costs, which programs, who pays, why and how sure.

use super::{Count, SourceLine};

/// The first screen of a page, about one event.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Overview {
    /// Shares are of all that the machine's CPUs could have done; if not, of all samples.
    pub is_of_machine: bool,
    /// All of BPF, in CPUs; `None` where the number of CPUs is not known.
    pub cpus: Option<f64>,
    /// The machine's time in parts; `None` where samples of some programs only were looked at.
    pub machine: Option<MachineParts>,
    /// Half of the 95 % confidence interval of the share of all BPF, in per cent of the same whole.
    pub margin_percent: Option<f64>,
    /// The costliest programs, then all others in one. Their sum is all of BPF.
    pub programs: Vec<ProgramSlice>,
    /// The payers who pay most, then all others in one.
    pub payers: Vec<PayerSlice>,
    /// Cost of the programs to the payers, by position in both.
    pub flows: Vec<Flow>,
    /// Length of an interval of [`ProgramSlice::intervals`], and of all together, ns.
    pub interval_ns: u64,
    /// The last interval may be shorter.
    pub elapsed_ns: u64,
}

/// Shares of the machine's time, per cent.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MachineParts {
    /// Waited.
    pub idle: f64,
    /// In user space.
    pub user: f64,
    /// In the kernel, BPF apart.
    pub kernel: f64,
    /// All that is charged to BPF.
    pub bpf: f64,
}

/// A part of what BPF costs.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Slice {
    /// Samples and weight that are charged.
    pub count: Count,
    /// Share of the machine, or of all samples ([`Overview::is_of_machine`]).
    pub percent: Option<f64>,
    /// Share of all BPF.
    pub bpf_percent: Option<f64>,
    /// Number of programs or payers in it, where it stands for several.
    pub folded: Option<usize>,
}

/// A program, or several.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProgramSlice {
    /// Its cost.
    pub slice: Slice,
    /// Position in [`super::Report::programs`]; `None` for what no program could be told for, and for several.
    pub program: Option<usize>,
    /// Its name where it is no program.
    pub name: String,
    /// In its own code, in what it called, in what runs it: per cent of the same whole as [`Slice::percent`].
    pub columns: [Option<f64>; 3],
    /// By number of the interval: its share of the machine meanwhile, per cent.
    pub intervals: Vec<(u64, f64)>,
    /// Its hottest source lines, the costliest first, with their part of the program, per cent.
    pub lines: Vec<(SourceLine, f64)>,
    /// Its own code, its entry and each helper, the costliest first, with their part of the program, per cent.
    pub parts: Vec<(String, f64)>,
}

/// A payer, or several.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct PayerSlice {
    /// Cost of BPF to it.
    pub slice: Slice,
    /// Its name.
    pub name: String,
    /// Part of its own CPU time that BPF takes.
    pub payer_percent: Option<f64>,
    /// Part of what is charged that fell into interrupts.
    pub in_interrupts_percent: Option<f64>,
}

/// Cost of a program to a payer.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Flow {
    /// Position in [`Overview::programs`].
    pub program: usize,
    /// Position in [`Overview::payers`].
    pub payer: usize,
    /// Samples and weight that are charged.
    pub count: Count,
    /// Share of the machine, or of all samples.
    pub percent: Option<f64>,
}
