//! Why a machine, or a program, is not counted exactly.

use super::budget::Costs;

/// Why nothing can be put around programs.
pub(crate) fn not_allowed(error: bprec_bpf::Error) -> crate::Error {
    crate::Error::Other(match (error.is_permission(), bprec_bpf::may_trace()) {
        (true, true) => {
            "the kernel refuses fentry and fexit: EPERM despite sufficient privileges (lockdown, a security module or a container?)"
                .to_owned()
        }
        (true, false) => {
            "fentry and fexit: EPERM; needs CAP_BPF and CAP_PERFMON (run as root)".to_owned()
        }
        (false, _) => error.to_string(),
    })
}

/// Why a program is not counted that runs often. Without its rate, so that it is said once of many.
pub(super) fn too_often(costs: Costs) -> String {
    format!(
        "it runs too often: even skipping a run takes {:.0} ns, and all runs together exceed the --budget",
        costs.skipped_ns
    )
}
