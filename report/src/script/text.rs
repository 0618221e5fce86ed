//! Text from a recording, made fit for a terminal.

use std::fmt;

use crate::model::text::{is_plain, is_steering, printable};

/// What [`Text::push_padded`] copies at once.
pub(crate) const PADDING_BYTES: usize = 64;

/// Text that is being made. What is written into it as a value is escaped, whatever it is and wherever it comes from: only
/// [`Text::push`] and [`Text::push_str`], which take what stands in this program, can end a line.
///
/// Names are bytes, and what comes out of [`Plain`] is UTF-8, so that nothing has to be checked twice.
#[derive(Debug, Default)]
pub(crate) struct Text(Vec<u8>);

impl Text {
    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Forgets the text and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn push(&mut self, ascii: char) {
        self.0.push(ascii as u8);
    }

    pub(crate) fn push_str(&mut self, text: &'static str) {
        self.0.extend_from_slice(text.as_bytes());
    }

    /// Appends the first bytes of what was made before, behind which there are at least [`PADDING_BYTES`] more: short texts, which
    /// most are, are then copied by a few instructions.
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

    /// Takes off what was appended behind this length.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }

    /// Appends a number as `{:>16x}` does.
    #[inline]
    pub(crate) fn push_address(&mut self, addr: u64) {
        self.0.extend_from_slice(&address(addr));
    }

    /// Appends a name as [`Plain`] does.
    pub(crate) fn push_plain(&mut self, name: &[u8]) {
        if is_plain(name) {
            self.0.extend_from_slice(name);
        } else {
            // Writing to a text cannot fail.
            let _ = fmt::write(self, format_args!("{}", Plain(name)));
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

/// Sixteen hexadecimal digits, of which those in front of the first that counts are blanks.
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

/// Eight hexadecimal digits, all at once: a byte for each, which the letters are moved up in.
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

/// Prints bytes as text: control characters and bytes that are no UTF-8 as `\xNN`, so that a name can neither break the
/// line nor talk to the terminal.
pub(crate) struct Plain<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if is_plain(self.0) {
            // ASCII is UTF-8.
            return f.pad(std::str::from_utf8(self.0).unwrap_or_default());
        }
        let mut text = String::new();
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if is_steering(c) {
                    let mut utf8 = [0; 4];
                    c.encode_utf8(&mut utf8).bytes().for_each(|b| text.push_str(&format!("\\x{b:02x}")));
                } else {
                    text.push(c);
                }
            }
            chunk.invalid().iter().for_each(|b| text.push_str(&format!("\\x{b:02x}")));
        }
        f.pad(&text)
    }
}

/// Bytes as text of the same length, for beside their numbers: a dot for what is not to be printed.
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
        // Forgetting to say that a name is one changes nothing.
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
