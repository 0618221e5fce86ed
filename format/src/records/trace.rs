//! Hardware traces in the AUX area: AUX (since 4.1), ITRACE_START (since 4.1), AUX_OUTPUT_HW_ID (since 5.16).

record! {
    /// AUX (since 4.1): `aux_offset u64, aux_size u64, flags u64`: trace data was added.
    #[derive(Copy)]
    pub struct Aux {
        /// Offset of the new data in the whole trace.
        pub offset: u64,
        /// Bytes of new data.
        pub size_bytes: u64,
        /// Bits: 1 truncated, 2 overwrite mode, 4 with gaps, 8 collided with another event; bits 8–15 hold the format of the PMU's trace data.
        pub flags: u64,
    }

    /// ITRACE_START (since 4.1): `pid u32, tid u32`: an instruction trace started in this task.
    #[derive(Copy)]
    pub struct ItraceStart {
        /// Process id.
        pub pid: u32,
        /// Thread id.
        pub tid: u32,
    }

    /// AUX_OUTPUT_HW_ID (since 5.16): `hw_id u64`: the id of this event in the trace.
    #[derive(Copy)]
    pub struct AuxOutputHwId {
        /// Id of the event in the trace.
        pub hw_id: u64,
    }
}
