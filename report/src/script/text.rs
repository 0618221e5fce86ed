//! Text from a recording, made fit for a terminal.

use std::fmt;

/// Prints bytes as text: control characters and bytes that are no UTF-8 as `\xNN`, so that a name can neither break the
/// line nor talk to the terminal.
pub(crate) struct Plain<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.iter().all(|b| (b' '..=b'~').contains(b)) {
            // ASCII is UTF-8.
            return f.pad(std::str::from_utf8(self.0).unwrap_or_default());
        }
        let mut text = String::new();
        for chunk in self.0.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() {
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
pub(crate) fn printable(bytes: &[u8]) -> String {
    bytes.iter().map(|b| if (b' '..=b'~').contains(b) { *b as char } else { '.' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_reaches_the_terminal() {
        assert_eq!(Plain(b"\x1b]0;x\x07\xffok\xc3\xa9").to_string(), "\\x1b]0;x\\x07\\xffok\u{e9}");
        assert_eq!(format!("{:>5}", Plain(b"sh")), "   sh");
    }
}
