#![allow(clippy::unwrap_used, reason = "a test")]

use super::*;
use crate::context;
use proptest::prelude::*;

/// Contents of a payload as owned values, for comparison.
type Said = (
    (Parts, Option<u64>, Option<u64>, Option<u64>, Option<(u32, u32)>, Option<u64>),
    (Option<Vec<u8>>, Option<CounterValue>, Option<(u64, Vec<(u32, u64)>)>, Option<Vec<u64>>),
);

fn said(it: &SamplerPayload<'_>) -> Said {
    let registers = it.registers.map(|registers| (registers.mask, registers.iter().collect()));
    (
        (it.missing, it.ip, it.period, it.addr, it.pid_tid, it.cgroup),
        (it.comm.map(<[u8]>::to_vec), it.value, registers, it.callchain.map(|chain| chain.iter().collect())),
    )
}

fn words(values: &[u64], endian: Endian) -> Vec<u8> {
    values.iter().flat_map(|value| endian.bytes_u64(*value)).collect()
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        parts in 0u16..512,
        missing in 0u16..512,
        numbers in prop::array::uniform9(any::<u64>()),
        comm in "[a-z:/]{0,15}",
        mask in any::<u64>(),
        frames in prop::collection::vec(any::<u64>(), 0..256),
        big in any::<bool>(),
        padding in 0usize..8,
    ) {
        let endian = if big { Endian::Big } else { Endian::Little };
        let missing = Parts(missing & parts);
        let there = Parts(parts).without(missing);
        let has = |part| there.contains(part);
        let values = words(&vec![numbers[0]; mask.count_ones() as usize], endian);
        let chain = words(&frames, endian);
        let payload = SamplerPayload {
            missing,
            ip: Some(numbers[1]).filter(|_| has(Parts::IP)),
            period: Some(numbers[2]).filter(|_| has(Parts::PERIOD)),
            addr: Some(numbers[3]).filter(|_| has(Parts::ADDR)),
            pid_tid: Some((numbers[4] as u32, numbers[5] as u32)).filter(|_| has(Parts::TASK)),
            cgroup: Some(numbers[5]).filter(|_| has(Parts::CGROUP)),
            comm: Some(comm.as_bytes()).filter(|_| has(Parts::COMM)),
            value: Some(CounterValue { value: numbers[6], enabled_ns: numbers[7], running_ns: numbers[8] })
                .filter(|_| has(Parts::VALUE)),
            registers: Some(Registers { mask, values: Words::new(&values, endian) }).filter(|_| has(Parts::REGISTERS)),
            callchain: Some(Words::new(&chain, endian)).filter(|_| has(Parts::STACK)),
        };
        let mut bytes = Vec::new();
        payload.encode(&mut bytes, endian);
        let whole = bytes.len();
        // The kernel pads with leftover bytes.
        bytes.resize(whole + padding, 0xa5);
        let read = SamplerPayload::parse(&bytes, 0, endian).unwrap();
        prop_assert_eq!(said(&read), said(&payload));
        prop_assert_eq!(read.parts(), Parts(parts));
        let mut again = Vec::new();
        read.encode(&mut again, endian);
        prop_assert_eq!(&again[..], &bytes[..whole]);
        // A shorter prefix is not a valid payload.
        for len in 0..whole {
            prop_assert!(SamplerPayload::parse(&bytes[..len], 0, endian).is_err());
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200), parts in 0u16..512) {
        let mut bytes = bytes;
        bytes.splice(0..0, [1, 0].into_iter().chain(parts.to_le_bytes()));
        if let Ok(payload) = SamplerPayload::parse(&bytes, 0, Endian::Little) {
            said(&payload);
        }
    }
}

/// The expected bytes are those that the BPF program writes.
#[test]
fn layout() {
    let chain = words(&[context::KERNEL, 0xffff_ffff_8100_0010], Endian::Little);
    let payload = SamplerPayload {
        missing: Parts::VALUE,
        period: Some(250_000),
        pid_tid: Some((7, 9)),
        comm: Some(b"sh"),
        callchain: Some(Words::new(&chain, Endian::Little)),
        ..SamplerPayload::default()
    };
    let mut bytes = Vec::new();
    payload.encode(&mut bytes, Endian::Little);
    let mut expected = vec![1, 0, 0x6a, 1, 0x40, 0, 0, 0, 96, 0, 0, 0, 0, 0, 0, 0];
    expected.extend(250_000u64.to_le_bytes());
    expected.extend([7, 0, 0, 0, 9, 0, 0, 0]);
    expected.extend(*b"sh\0\0\0\0\0\0\0\0\0\0\0\0\0\0");
    expected.extend([0; 24]);
    expected.extend([2, 0, 0, 0, 0, 0, 0, 0, 0x80, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]);
    expected.extend([0x10, 0, 0, 0x81, 0xff, 0xff, 0xff, 0xff]);
    assert_eq!(bytes, expected);
}

#[test]
fn lengths_that_lie_are_refused() {
    let mut bytes = Vec::new();
    SamplerPayload { ip: Some(1), ..SamplerPayload::default() }.encode(&mut bytes, Endian::Little);
    for length in [0u32, 15, 23, 25, u32::MAX] {
        bytes[8..12].copy_from_slice(&length.to_le_bytes());
        assert!(SamplerPayload::parse(&bytes, 100, Endian::Little).is_err(), "{length}");
    }
    bytes[0] = 2;
    assert!(SamplerPayload::parse(&bytes, 100, Endian::Little).unwrap_err().to_string().contains("version"));
}

#[test]
fn registers_have_as_many_names_as_words() {
    // Sizes of bpf_user_pt_regs_t: 168 and 272 bytes.
    assert_eq!(register_names("x86_64").unwrap().len() * 8, 168);
    assert_eq!(register_names("aarch64").unwrap().len() * 8, 272);
    assert_eq!(register_names("sparc64"), None);
}
