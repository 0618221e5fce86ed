//! Completion of a file into which nothing more is recorded: function names, the cost of the recording, and the feature
//! sections.

use bprec_bpf::Kallsyms;
use bprec_format::bprec::state::{Cost, FileFunctions, State, UserSymbols};

use super::sections::{self, Section};
use super::{Sink, StateWriter, Tally, stamp};
use crate::Result;
use crate::sys::{self, Usage};

/// Data with which a file is completed.
pub(crate) struct Ending<'a> {
    /// Kernel symbols, if they can be read.
    pub(crate) kallsyms: Option<&'a Kallsyms>,
    /// Kernel addresses to name in addition to the addresses that samples hit.
    pub(crate) addresses: &'a [u64],
    /// User-space functions that samples hit, and statistics of the lookup; `None` if names of user functions were not
    /// requested.
    pub(crate) user_functions: Option<(Vec<FileFunctions>, UserSymbols)>,
    /// Cost of the recording; fields known only at the end are filled in here.
    pub(crate) cost: Cost,
    /// Resources that the recorder had used when the file began.
    pub(crate) used_before: Usage,
    /// Feature sections.
    pub(crate) sections: Vec<Section>,
    /// Monotonic times at which sampling began and ended, in nanoseconds; they become the SAMPLE_TIME section of a file
    /// without samples.
    pub(crate) sampled_ns: (u64, u64),
}

/// Writes the last states, then the feature sections and the final header of a file.
///
/// # Errors
/// Fails if the output cannot be written.
pub(crate) fn complete(sink: &mut Sink, tally: &Tally, writer: &mut StateWriter, mut ending: Ending<'_>) -> Result<()> {
    let mut states = Vec::new();
    if let Some(kallsyms) = ending.kallsyms {
        let addresses: Vec<u64> = tally.addresses().iter().chain(ending.addresses).copied().collect();
        writer.encode(&kernel_symbols(kallsyms, &addresses), &mut states)?;
    }
    if let Some((files, done)) = ending.user_functions.take() {
        for functions in files {
            writer.encode(&State::FileFunctions(functions), &mut states)?;
        }
        writer.encode(&State::UserSymbols(done), &mut states)?;
    }
    let usage = sys::usage();
    let cost = Cost {
        user_ns: usage.user_ns - ending.used_before.user_ns,
        system_ns: usage.system_ns - ending.used_before.system_ns,
        max_rss_bytes: usage.max_rss_bytes,
        written_bytes: sink.written_bytes(),
        ..ending.cost
    };
    writer.encode(&State::Cost(cost), &mut states)?;
    stamp(&mut states, sys::monotonic_ns());
    sink.append(&states)?;
    sink.finished_round()?;
    if sink.is_file() {
        let (first, last) = tally.times.unwrap_or(ending.sampled_ns);
        ending.sections.push(sections::sample_time(first, last));
        ending.sections.extend(sink.compression());
        ending.sections.sort_by_key(|(bit, _)| *bit);
        ending.sections.dedup_by_key(|(bit, _)| *bit);
    }
    sink.finish(&ending.sections)
}

/// Names of the kernel functions at the addresses. Functions of BPF programs are left out, because their own records
/// name them.
pub(crate) fn kernel_symbols(kallsyms: &Kallsyms, addresses: &[u64]) -> State {
    let mut symbols = kallsyms.functions_at(addresses);
    symbols.retain(|symbol| !symbol.name.ends_with(b" [bpf]"));
    State::KernelSymbols(symbols)
}
