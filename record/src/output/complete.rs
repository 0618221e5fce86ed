//! Completion of a file into which nothing more is recorded: function names, the cost of the recording, and the feature
//! sections.

use bprec_format::bprec::state::{Cost, FileFunctions, KernelSymbol, State, UserSymbols};

use super::sections::{self, Section};
use super::{Sink, StateWriter, Tally, stamp};
use crate::Result;
use crate::sys::{self, Usage};

/// Data with which a file is completed.
pub(crate) struct Ending {
    /// Kernel functions that samples hit or programs call, if the kernel shows its symbols.
    pub(crate) kernel_functions: Option<Vec<KernelSymbol>>,
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
pub(crate) fn complete(sink: &mut Sink, tally: &Tally, writer: &mut StateWriter, mut ending: Ending) -> Result<()> {
    let mut states = Vec::new();
    if let Some(functions) = ending.kernel_functions.take() {
        writer.encode(&outside_bpf(functions), &mut states)?;
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

/// Names of kernel functions. Functions of BPF programs are left out, because their own records name them.
pub(crate) fn outside_bpf(mut functions: Vec<KernelSymbol>) -> State {
    functions.retain(|function| !function.name.ends_with(b" [bpf]"));
    State::KernelSymbols(functions)
}
