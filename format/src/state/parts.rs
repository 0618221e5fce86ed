//! What bodies are made of: text, optional numbers, lists.

use crate::{Reader, Result, Writer};

/// Text longer than its length field can say is cut.
pub(super) fn put_text(w: &mut Writer<'_>, text: &[u8]) {
    let text = &text[..text.len().min(usize::from(u16::MAX))];
    w.u16(text.len() as u16).bytes(text);
}

pub(super) fn get_text(r: &mut Reader<'_>, what: &'static str) -> Result<Vec<u8>> {
    let len = r.u16(what)?;
    r.take(usize::from(len), what).map(<[u8]>::to_vec)
}

pub(super) fn get_string(r: &mut Reader<'_>, what: &'static str) -> Result<String> {
    get_text(r, what).map(|text| String::from_utf8_lossy(&text).into_owned())
}

pub(super) fn put_option(w: &mut Writer<'_>, value: Option<u64>) {
    match value {
        Some(value) => w.u8(1).u64(value),
        None => w.u8(0),
    };
}

pub(super) fn get_option(r: &mut Reader<'_>, what: &'static str) -> Result<Option<u64>> {
    if r.u8(what)? == 0 { Ok(None) } else { r.u64(what).map(Some) }
}

pub(super) fn put_list<T>(w: &mut Writer<'_>, items: &[T], put: impl Fn(&T, &mut Writer<'_>)) {
    w.u32(items.len() as u32);
    for item in items {
        put(item, w);
    }
}

/// `min_bytes` is the least an element can take: it bounds what a count may allocate.
pub(super) fn get_list<T>(
    r: &mut Reader<'_>,
    min_bytes: usize,
    get: impl Fn(&mut Reader<'_>) -> Result<T>,
) -> Result<Vec<T>> {
    let count = r.u32("list count")?;
    let count = r.count(count.into(), min_bytes, "list")?;
    let mut items = Vec::with_capacity(count);
    for _ in 0..count {
        items.push(get(r)?);
    }
    Ok(items)
}
