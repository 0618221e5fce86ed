//! Data of an HTML page.

use std::io::Read;

use flate2::read::DeflateDecoder;

/// Returns the JSON in a page: deflated, in base64.
pub(crate) fn data(page: &[u8]) -> Vec<u8> {
    let page = std::str::from_utf8(page).unwrap();
    let data = page.split_once("id=\"data\">").unwrap().1.split_once("</script>").unwrap().0;
    let mut json = Vec::new();
    DeflateDecoder::new(&base64(data)[..]).read_to_end(&mut json).unwrap();
    json
}

fn base64(text: &str) -> Vec<u8> {
    let (mut bits, mut held, mut bytes) = (0_u32, 0, Vec::new());
    for digit in text.bytes() {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            other => panic!("not base64: {other}"),
        };
        (bits, held) = (bits << 6 | u32::from(value), held + 6);
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held & 0xff) as u8);
        }
    }
    bytes
}
