//! Source lines, from the BTF of programs.

use crate::model::SourceLine;
use bprec_format::bpf::btf::Btf;
use bprec_format::bpf::prog_info::LineInfo;
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Limit on the stored text of a line, bytes: small entries of the line table may refer to long texts.
const MAX_CHARS: usize = 240;

/// Texts of a BTF blob, each read once.
pub(super) struct SourceFiles<'b> {
    btf: Option<&'b Btf<'b>>,
    texts: FxHashMap<u32, Arc<str>>,
}

impl<'b> SourceFiles<'b> {
    pub(super) fn new(btf: Option<&'b Btf<'b>>) -> SourceFiles<'b> {
        SourceFiles { btf, texts: FxHashMap::default() }
    }

    /// Returns the source line of an entry of the line table.
    pub(super) fn line(&mut self, line: &LineInfo) -> Option<SourceLine> {
        self.btf?;
        let file = self.text(line.file_name_off);
        let text = self.text(line.line_off);
        let is_known = !file.is_empty() || line.line > 0;
        is_known.then_some(SourceLine { file, line: line.line, column: line.column, text })
    }

    fn text(&mut self, offset: u32) -> Arc<str> {
        let btf = self.btf;
        let text = self.texts.entry(offset).or_insert_with(|| {
            let bytes = btf.and_then(|btf| btf.name(offset)).unwrap_or_default().trim_ascii();
            let (kept, cut) = match bytes.get(..MAX_CHARS) {
                Some(kept) if bytes.len() > MAX_CHARS => (kept, "…"),
                _ => (bytes, ""),
            };
            // A truncated character is left out.
            let text = String::from_utf8_lossy(kept);
            let text = if cut.is_empty() { &text } else { text.trim_end_matches(char::REPLACEMENT_CHARACTER) };
            format!("{text}{cut}").into()
        });
        Arc::clone(text)
    }
}
