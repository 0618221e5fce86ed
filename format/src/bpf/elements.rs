//! Arrays of fixed-size elements, decoded one by one in either byte order.

use crate::Endian;
use std::marker::PhantomData;

/// Array element of a fixed size.
pub trait Element: Sized {
    /// Bytes of one element.
    const BYTES: usize;

    /// Decodes the element at the start of `bytes`; `None` if `bytes` are too short.
    fn decode(endian: Endian, bytes: &[u8]) -> Option<Self>;
}

impl Element for u32 {
    const BYTES: usize = 4;

    fn decode(endian: Endian, bytes: &[u8]) -> Option<u32> {
        endian.u32_at(bytes, 0)
    }
}

impl Element for u64 {
    const BYTES: usize = 8;

    fn decode(endian: Endian, bytes: &[u8]) -> Option<u64> {
        endian.u64_at(bytes, 0)
    }
}

/// Elements of an array, decoded on access.
#[derive(Debug, Clone, Copy)]
pub struct Elements<'a, T> {
    bytes: &'a [u8],
    stride: usize,
    endian: Endian,
    element: PhantomData<T>,
}

impl<'a, T: Element> Elements<'a, T> {
    /// Elements of `T` that start `stride` bytes apart.
    pub(super) fn new(bytes: &'a [u8], stride: usize, endian: Endian) -> Elements<'a, T> {
        Elements { bytes, stride: stride.max(T::BYTES), endian, element: PhantomData }
    }

    /// Count of elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.stride
    }

    /// Returns true if the array has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Element `index`, from 0; `None` beyond the end.
    pub fn get(&self, index: usize) -> Option<T> {
        let at = index.checked_mul(self.stride)?;
        T::decode(self.endian, self.bytes.get(at..at.checked_add(self.stride)?)?)
    }

    /// All elements in order.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'a, T> {
        let endian = self.endian;
        self.bytes.chunks_exact(self.stride).filter_map(move |bytes| T::decode(endian, bytes))
    }
}
