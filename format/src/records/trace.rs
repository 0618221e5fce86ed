//! Hardware traces in the AUX area: AUX (since 4.1), ITRACE_START (since 4.1), AUX_OUTPUT_HW_ID (since 5.16).

record! {
    /// AUX (since 4.1): `aux_offset u64, aux_size u64, flags u64`: new trace data.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct Aux {
        /// First byte, counted over the whole trace.
        pub offset: u64,
        /// Bytes.
        pub size_bytes: u64,
        /// 1 truncated, 2 overwrite mode, 4 with gaps, 8 collided with another; bits 8–15 say the PMU's format.
        pub flags: u64,
    }
}

record! {
    /// ITRACE_START (since 4.1): `pid u32, tid u32`: an instruction trace started while this task ran.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct ItraceStart {
        /// Process.
        pub pid: u32,
        /// Thread.
        pub tid: u32,
    }
}

record! {
    /// AUX_OUTPUT_HW_ID (since 5.16): `hw_id u64`: the number by which the trace names this event.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub struct AuxOutputHwId {
        /// The number.
        pub hw_id: u64,
    }
}
