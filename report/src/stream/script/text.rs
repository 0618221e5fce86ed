//! Text buffer for recorded data, with escaping for terminals.

use std::fmt;

use crate::model::text::{is_plain, is_steering, printable};

/// Limit on the printed bytes of a name; longer names are cut. Names repeat in many lines, and kernel names are shorter, except some paths.
const NAME_BYTES: usize = 1 << 10;
/// Limit on the printed bytes of a name with anything but printable ASCII: such names are slower to print.
const ESCAPED_NAME_BYTES: usize = 1 << 9;
/// Block size of [`Text::push_padded`], bytes.
pub(crate) const PADDING_BYTES: usize = 64;

/// A text under construction. Values from all sources are escaped; only [`Text::push`] and [`Text::push_str`], which take literals from bprec's
/// source code, can end a line.
///
/// Names are bytes and [`Plain`] produces UTF-8, so that no text is validated twice.
#[derive(Debug, Default)]
pub(crate) struct Text(Vec<u8>);

impl Text {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Clears the text and keeps its memory.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn push(&mut self, ascii: char) {
        self.0.push(ascii as u8);
    }

    pub(crate) fn push_str(&mut self, text: &'static str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    /// Appends the first `len` bytes of `padded`, which has at least [`PADDING_BYTES`] further bytes. A whole block is copied and then cut to `len`:
    /// for short texts, the common case, this takes only a few instructions.
    #[inline]
    pub(crate) fn push_padded(&mut self, padded: &[u8], len: usize) {
        match padded.first_chunk::<PADDING_BYTES>() {
            Some(chunk) if len <= PADDING_BYTES => {
                self.0.extend_from_slice(chunk);
                self.0.truncate(self.0.len() - (PADDING_BYTES - len));
            }
            _ => self.0.extend_from_slice(&padded[..len]),
        }
    }

    /// Truncates the text to `len` bytes.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// Appends a number as `{:>16x}` does.
    #[inline]
    pub(crate) fn push_address(&mut self, addr: u64) {
        self.0.extend_from_slice(&address(addr));
    }

    /// Appends a name as [`Name`] does.
    pub(crate) fn push_name(&mut self, name: &[u8]) {
        match changed(name) {
            None => self.0.extend_from_slice(name),
            Some(text) => self.0.extend_from_slice(text.as_bytes()),
        }
    }
}

impl Text {
    /// Appends a line.
    pub(crate) fn line(&mut self, line: fmt::Arguments<'_>) {
        // Writing to a text cannot fail.
        let _ = fmt::write(self, line);
        self.push('\n');
    }
}

impl fmt::Write for Text {
    #[inline]
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if is_plain(text.as_bytes()) {
            self.0.extend_from_slice(text.as_bytes());
        } else {
            self.0.extend_from_slice(printable(text).as_bytes());
        }
        Ok(())
    }
}

/// Sixteen hexadecimal digits with blanks in place of leading zeros.
#[inline]
fn address(addr: u64) -> [u8; 16] {
    let (high, low) = (digits((addr >> 32) as u32), digits(addr as u32));
    let mut text = [0; 16];
    text[..8].copy_from_slice(&high);
    text[8..].copy_from_slice(&low);
    let blanks = ((addr | 1).leading_zeros() / 4) as usize;
    if blanks > 0 {
        text[..blanks].fill(b' ');
    }
    text
}

/// Converts all eight hexadecimal digits at once, one in each byte; the bytes of letters are corrected at the end.
#[inline]
fn digits(number: u32) -> [u8; 8] {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let spread = u64::from(number);
    let spread = (spread << 16 | spread) & 0x0000_ffff_0000_ffff;
    let spread = (spread << 8 | spread) & 0x00ff_00ff_00ff_00ff;
    let spread = (spread << 4 | spread) & 0x0f0f_0f0f_0f0f_0f0f;
    let letters = (spread + 6 * ONES) >> 4 & ONES;
    let text = spread + u64::from(b'0') * ONES + letters * u64::from(b'a' - b'9' - 1);
    text.to_be_bytes()
}

/// Prints bytes as text: control characters and invalid UTF-8 as `\xNN`, so that a name cannot end the line or control the terminal.
pub(crate) struct Plain<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_plain(self.0) {
            // ASCII is valid UTF-8, so the conversion cannot fail.
            return f.pad(std::str::from_utf8(self.0).unwrap_or_default());
        }
        f.pad(&escaped(self.0, usize::MAX))
    }
}

/// Text as [`Plain`] prints it, cut with `…` at `most_bytes`.
fn escaped(bytes: &[u8], most_bytes: usize) -> String {
    // Each byte yields at least one byte of text, so a prefix is enough. A character that the prefix cuts off is not shown.
    let bytes = bytes.get(..most_bytes.saturating_add(4)).unwrap_or(bytes);
    let mut text = String::with_capacity((4 * bytes.len()).min(most_bytes.saturating_add(8)));
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if text.len() >= most_bytes {
                return text + "…";
            }
            if is_steering(c) {
                push_escaped(&mut text, c.encode_utf8(&mut [0; 4]).as_bytes());
            } else {
                text.push(c);
            }
        }
        if text.len() >= most_bytes && !chunk.invalid().is_empty() {
            return text + "…";
        }
        push_escaped(&mut text, chunk.invalid());
    }
    text
}

fn push_escaped(text: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        let escape = [b'\\', b'x', DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]];
        // ASCII is valid UTF-8, so the conversion cannot fail.
        text.push_str(std::str::from_utf8(&escape).unwrap_or_default());
    }
}

/// Replacement for a name that is too long or needs escaping; `None` if the name is printed unchanged.
fn changed(name: &[u8]) -> Option<String> {
    // Only the printed part is checked: names may be long and occur in many lines.
    match is_plain(&name[..name.len().min(NAME_BYTES)]) {
        true if name.len() <= NAME_BYTES => None,
        true => Some(escaped(name, NAME_BYTES)),
        false => Some(escaped(name, ESCAPED_NAME_BYTES)),
    }
}

/// Prints a repeated name as [`Plain`] does, shortened if very long.
pub(crate) struct Name<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Name<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match changed(self.0) {
            None => Plain(self.0).fmt(f),
            Some(text) => f.pad(&text),
        }
    }
}

/// Text of the same length as the bytes, for hex dumps: unprintable bytes become dots.
pub(crate) fn dotted(bytes: &[u8]) -> String {
    bytes.iter().map(|b| if (b' '..=b'~').contains(b) { *b as char } else { '.' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal() {
        assert_eq!(Plain(b"\x1b]0;x\x07\xffok\xc3\xa9").to_string(), "\\x1b]0;x\\x07\\xffok\u{e9}");
        assert_eq!(Plain("a\u{202e}b".as_bytes()).to_string(), "a\\xe2\\x80\\xaeb");
        assert_eq!(format!("{:>5}", Plain(b"sh")), "   sh");
        for (name, shown) in
            [(&[b'a'; 2000], "a".repeat(1024)), (&[7; 2000], "\\x07".repeat(128)), (&[255; 2000], "\\xff".repeat(128))]
        {
            assert_eq!(Name(name).to_string(), shown.clone() + "…");
            let mut text = Text::default();
            text.push_name(name);
            assert_eq!(text.as_bytes(), (shown + "…").as_bytes());
        }
        assert_eq!(Name(&[b'a'; 1024]).to_string(), "a".repeat(1024));
        // A name that is written without `Name` is escaped, too.
        let mut text = Text::default();
        text.line(format_args!("{}\n{:>3}é", "a\u{1b}[0m\u{202e}", '\r'));
        assert_eq!(std::str::from_utf8(text.as_bytes()), Ok("a\\u{1b}[0m\\u{202e}\\u{a}  \\u{d}é\n"));
    }

    #[test]
    fn addresses_are_as_wide_as_the_largest() {
        let addrs = [0, 1, 9, 10, 0xabc, 0x9f, 0xffff_ffff_8100_10c0, 0x1234_5678_9abc_def0, u64::MAX, 1 << 60];
        for addr in addrs {
            let mut text = Text::default();
            text.push_address(addr);
            assert_eq!(std::str::from_utf8(text.as_bytes()), Ok(&*format!("{addr:>16x}")));
        }
    }
}
