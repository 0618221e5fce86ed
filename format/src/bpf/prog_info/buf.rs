//! An owned `bpf_prog_info` with its arrays, as a recorder collects it.

use super::{Array, ProgInfo};
use crate::{Endian, Error, Writer};

/// Length in bytes of the info that perf reads since 6.0. perf rejects a file with a longer info and accepts a shorter
/// one.
pub const DEFAULT_INFO_LEN: usize = 232;

/// One program's info and arrays, owned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProgInfoBuf {
    /// Byte order of `info` and `arrays`: the byte order of the kernel that wrote them.
    pub endian: Endian,
    /// `bpf_prog_info` from the kernel, cut to the length that the kernel reported. Pointer fields are ignored.
    pub info: Vec<u8>,
    /// Bytes of each array, indexed by [`Array`]; `None` for an array that was not requested or was withheld.
    pub arrays: [Option<Vec<u8>>; Array::COUNT],
}

impl ProgInfoBuf {
    /// Program as the running kernel returned it, in the byte order of this machine.
    ///
    /// The counts of absent arrays are set to 0, because perf crashes otherwise: the kernel gives the count even if it withholds the array, and perf
    /// walks `jited_ksyms` by this count. The lengths of machine code and BPF instructions stay: they give the size of the program, and perf does not
    /// follow them.
    pub fn new(mut info: Vec<u8>, arrays: [Option<Vec<u8>>; Array::COUNT]) -> ProgInfoBuf {
        for (array, bytes) in Array::ALL.into_iter().zip(&arrays) {
            let is_counted = bytes.is_none() && !matches!(array, Array::JitedInsns | Array::XlatedInsns);
            let count = info.get_mut(array.count_at()..).filter(|_| is_counted);
            if let Some(count) = count.and_then(|rest| rest.first_chunk_mut::<4>()) {
                *count = [0; 4];
            }
        }
        ProgInfoBuf { endian: Endian::NATIVE, info, arrays }
    }

    /// Views the buffer as a program. If the length of an array disagrees with its count in the info, the array is in [`ProgInfo::dropped`].
    pub fn view(&self) -> ProgInfo<'_> {
        ProgInfo::new(self.endian, &self.info, |array| {
            let Some(bytes) = &self.arrays[array as usize] else { return Ok(None) };
            let needed = array.stored_bytes(self.endian, &self.info)?;
            if bytes.len() != needed {
                return Err(Error::truncated(0, array.name(), needed as u64, bytes.len() as u64));
            }
            Ok(Some(bytes.as_slice()))
        })
    }

    /// Appends the blob of the `BPF_PROG_INFO` section, with at most `max_info_len` bytes of info (see [`DEFAULT_INFO_LEN`]). An array is left out if
    /// [`view`](Self::view) drops it, or if its pointer or count field lies beyond `max_info_len`.
    pub fn encode(&self, out: &mut Vec<u8>, max_info_len: usize) {
        let cut = ProgInfoBuf {
            endian: self.endian,
            info: self.info.iter().take(max_info_len).copied().collect(),
            arrays: [const { None }; Array::COUNT],
        };
        let info_len = cut.info.len();
        let full = self.view();
        let kept: Vec<(Array, &[u8])> = Array::ALL
            .into_iter()
            .filter(|array| {
                array.pointer(self.endian, &cut.info).is_ok() && array.stored_bytes(self.endian, &cut.info).is_ok()
            })
            .filter_map(|array| Some((array, full.array(array)?)))
            .collect();

        let mut info = cut.info;
        for array in Array::ALL {
            if let Some(pointer) = info.get_mut(array.pointer_at()..).and_then(|b| b.first_chunk_mut::<8>()) {
                *pointer = [0; 8];
            }
        }
        let mut data_len = 0usize;
        for (array, bytes) in &kept {
            if let Some(pointer) = info.get_mut(array.pointer_at()..).and_then(|b| b.first_chunk_mut::<8>()) {
                *pointer = self.endian.bytes_u64(data_len as u64);
            }
            data_len += bytes.len().next_multiple_of(8);
        }

        let mut writer = Writer::new(out, self.endian);
        writer.u32(info_len as u32).u32(data_len as u32);
        writer.u64(kept.iter().map(|(array, _)| array.bit()).sum()).bytes(&info);
        for (_, bytes) in kept {
            writer.bytes(bytes).zeros(bytes.len().next_multiple_of(8) - bytes.len());
        }
    }

    /// Copies a borrowed program.
    pub fn from_view(program: &ProgInfo<'_>) -> ProgInfoBuf {
        ProgInfoBuf {
            endian: program.endian(),
            info: program.info().to_vec(),
            arrays: Array::ALL.map(|array| program.array(array).map(<[u8]>::to_vec)),
        }
    }
}
