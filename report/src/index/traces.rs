//! Hardware traces (AUX area data), which are in a recording beside its samples and are not decoded here.

use bprec_format::records::user::AuxtraceInfo;
use bprec_format::records::{Payload, UserPayload};

/// How much trace data a recording has.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    info: Option<AuxtraceInfo>,
    pub(crate) bytes: u64,
}

impl Traces {
    pub(crate) fn take(&mut self, payload: &Payload<'_>) {
        match payload {
            Payload::User(UserPayload::AuxtraceInfo(info)) => {
                self.info.get_or_insert_with(|| info.clone());
            }
            Payload::User(UserPayload::Auxtrace(trace)) => self.bytes = self.bytes.saturating_add(trace.size_bytes),
            _ => {}
        }
    }

    /// What made them, if the recording says so.
    pub(crate) fn kind(&self) -> Option<String> {
        let info = self.info.as_ref()?;
        Some(info.kind_name().map_or_else(|| format!("type {}", info.kind), str::to_owned))
    }
}
