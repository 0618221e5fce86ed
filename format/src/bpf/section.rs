//! Feature sections with a count in front: `count u32`, then the elements back to back.

use crate::{Endian, Reader, Result};

/// Iterator over the elements of a section. The first damaged element yields its error and ends the iteration, because
/// the start of the next element is unknown.
#[derive(Debug, Clone)]
pub struct CountedSection<'a, T> {
    reader: Reader<'a>,
    left: u32,
    read: fn(&mut Reader<'a>) -> Result<T>,
}

impl<'a, T> CountedSection<'a, T> {
    /// Reads a section that starts at offset `base` of the file; `read` reads an element.
    ///
    /// # Errors
    /// Fails if the section is too short for its count.
    pub(super) fn open(
        bytes: &'a [u8],
        base: u64,
        endian: Endian,
        read: fn(&mut Reader<'a>) -> Result<T>,
    ) -> Result<CountedSection<'a, T>> {
        let mut reader = Reader::new(bytes, base, endian);
        let left = reader.u32("count of a section")?;
        Ok(CountedSection { reader, left, read })
    }

    /// Elements left to read, by the count in the section. This count may be damaged: do not allocate memory by it.
    pub fn left(&self) -> u32 {
        self.left
    }
}

impl<T> Iterator for CountedSection<'_, T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        self.left = self.left.checked_sub(1)?;
        let element = (self.read)(&mut self.reader);
        if element.is_err() {
            self.left = 0;
        }
        Some(element)
    }
}
