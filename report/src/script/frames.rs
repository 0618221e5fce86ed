//! Frames as text, kept while nothing changes at their addresses: call chains meet the same frames again and again.

use super::tasks::Tasks;

/// So many frames are kept, by the hash of their address.
const KEPT_BITS: u32 = 12;

/// Texts of frames.
pub(super) struct FrameTexts {
    kept: Box<[Kept]>,
}

#[derive(Clone, Default)]
struct Kept {
    ip: u64,
    /// Process; of the kernel's frames it makes no difference.
    pid: u32,
    kernel: bool,
    revision: u32,
    text: String,
}

impl Default for FrameTexts {
    fn default() -> FrameTexts {
        FrameTexts { kept: vec![Kept::default(); 1 << KEPT_BITS].into() }
    }
}

impl FrameTexts {
    /// The text of a frame, which `write` appends to a string when it is not kept.
    pub(super) fn text(
        &mut self,
        tasks: &Tasks,
        (pid, ip, kernel): (u32, u64, bool),
        write: impl FnOnce(&mut String),
    ) -> &str {
        let pid = if kernel { 0 } else { pid };
        let hash = (ip ^ u64::from(pid).rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let kept = &mut self.kept[(hash >> (64 - KEPT_BITS)) as usize];
        let revision = tasks.revision(kernel);
        let is_it = (kept.ip, kept.pid, kept.kernel, kept.revision) == (ip, pid, kernel, revision);
        // The text of a frame is never empty, so that none is taken for one that was never written.
        if !is_it || kept.text.is_empty() {
            kept.text.clear();
            write(&mut kept.text);
            (kept.ip, kept.pid, kept.kernel, kept.revision) = (ip, pid, kernel, revision);
        }
        &kept.text
    }
}
