//! Encoding of samples.

use super::{Chain, Regs, SampleFields, SampleLayout};
use crate::layout::{Address, Codec, Plain};
use crate::{SampleType, Writer};

impl SampleFields<'_> {
    /// Appends the body of a sample of this layout. A missing field becomes 0 or empty; a field that the layout lacks is dropped. Of the user stack,
    /// only the copied bytes are written.
    pub fn encode(&self, layout: &SampleLayout, w: &mut Writer<'_>) {
        let sample_type = layout.sample_type();
        let has = |bit| sample_type.contains(bit);
        let number = |w: &mut Writer<'_>, bit, value: Option<u64>| field::<Plain>(w, has(bit), value);
        let address = |w: &mut Writer<'_>, bit, value: Option<u64>| field::<Address>(w, has(bit), value);
        number(w, SampleType::IDENTIFIER, self.id);
        address(w, SampleType::IP, self.ip);
        if has(SampleType::TID) {
            let (pid, tid) = self.pid_tid.unwrap_or_default();
            w.u32(pid).u32(tid);
        }
        number(w, SampleType::TIME, self.time_ns);
        address(w, SampleType::ADDR, self.addr);
        number(w, SampleType::ID, self.id);
        number(w, SampleType::STREAM_ID, self.stream_id);
        if has(SampleType::CPU) {
            w.u32(self.cpu.unwrap_or_default()).u32(0);
        }
        number(w, SampleType::PERIOD, self.period);
        if let Some(read) = self.read.as_ref().filter(|_| has(SampleType::READ)) {
            read.encode(w);
        }
        if has(SampleType::CALLCHAIN) {
            Chain::put(&self.callchain.unwrap_or_default(), w);
        }
        if has(SampleType::RAW) {
            let raw = self.raw.unwrap_or_default();
            // Size, bytes and padding together fill whole words of 8 bytes.
            let padded = (4 + raw.len()).next_multiple_of(8) - 4;
            w.u32(padded as u32).bytes(raw).zeros(padded - raw.len());
        }
        if has(SampleType::BRANCH_STACK) {
            match &self.branches {
                Some(branches) => branches.encode(w),
                None => drop(w.u64(0)),
            }
        }
        let registers = |w: &mut Writer<'_>, bit, registers: &Option<Regs<'_>>| {
            if has(bit) {
                match registers {
                    Some(registers) => registers.encode(w),
                    None => drop(w.u64(0)),
                }
            }
        };
        registers(w, SampleType::REGS_USER, &self.regs_user);
        if has(SampleType::STACK_USER) {
            let stack = self.stack_user.unwrap_or_default();
            let size = stack.len().next_multiple_of(8);
            w.u64(size as u64).bytes(stack).zeros(size - stack.len());
            if size > 0 {
                w.u64(stack.len() as u64);
            }
        }
        if has(SampleType::WEIGHT) || has(SampleType::WEIGHT_STRUCT) {
            w.u64(self.weight.unwrap_or_default());
        }
        number(w, SampleType::DATA_SRC, self.data_src);
        number(w, SampleType::TRANSACTION, self.transaction);
        registers(w, SampleType::REGS_INTR, &self.regs_intr);
        address(w, SampleType::PHYS_ADDR, self.phys_addr);
        number(w, SampleType::CGROUP, self.cgroup);
        number(w, SampleType::DATA_PAGE_SIZE, self.data_page_size);
        number(w, SampleType::CODE_PAGE_SIZE, self.code_page_size);
        if has(SampleType::AUX) {
            let aux = self.aux.unwrap_or_default();
            w.u64(aux.len() as u64).bytes(aux);
        }
    }
}

/// Appends a number that the layout has.
fn field<C: for<'a> Codec<'a, u64>>(w: &mut Writer<'_>, is_there: bool, value: Option<u64>) {
    if is_there {
        C::put(&value.unwrap_or_default(), w);
    }
}
