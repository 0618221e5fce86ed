//! Containers that available recordings lack: compressed streams cut anywhere, decompression bombs, data outside of records.

#![allow(clippy::unwrap_used, reason = "a test")]

use bprec_format::records::UserPayload;
use bprec_format::records::user::{
    Auxtrace, AuxtraceError, BpfMetadata, CpuMap, EventUpdate, IdIndex, IdIndexEntry, IdIndexGuest, SchedstatCpu,
    SchedstatDomain, Stat, StatConfig, StatRound, TimeConv, TimeConvCycles, Update,
};
use bprec_format::{Availability, Endian, Origin, Record, RecordType, Stream, pipe_header};

/// Returns (type and origin of each record, problems) of a stream that arrives in pieces of `piece` bytes.
fn read(bytes: &[u8], piece: usize) -> (Vec<(RecordType, Origin)>, Vec<String>) {
    let (mut stream, mut seen, mut problems) = (Stream::new(), Vec::new(), Vec::new());
    for piece in bytes.chunks(piece) {
        stream.feed(piece);
        loop {
            match stream.next_chunk() {
                Ok(Availability::NeedMore) => break,
                Ok(Availability::Ready(chunk)) => seen.extend(chunk.records().map(|r| (r.unwrap().kind, chunk.origin))),
                Err(error) => problems.push(error.to_string()),
            }
        }
    }
    problems.extend(stream.finish().err().map(|e| e.to_string()));
    (seen, problems)
}

/// Builds a record of this size.
fn record(kind: u32, size: u16) -> Vec<u8> {
    let mut bytes = vec![0x5a; size.into()];
    bytes[..4].copy_from_slice(&kind.to_le_bytes());
    bytes[4..6].fill(0);
    bytes[6..8].copy_from_slice(&size.to_le_bytes());
    bytes
}

/// Trace data after a record is kept up to 16 MiB; larger data is skipped, for any size of the pieces.
#[test]
fn trace_data_does_not_depend_on_pieces() {
    trace_data(1 << 20, Origin::Input);
    trace_data(17 << 20, Origin::InputWithoutOutside);
}

fn trace_data(trace_bytes: usize, origin: Origin) {
    let mut bytes = pipe_header(Endian::Little).to_vec();
    let trace = Auxtrace { size_bytes: trace_bytes as u64, offset: 0, reference: 0, idx: 0, tid: 1, cpu: 2 };
    UserPayload::Auxtrace(trace).encode(Endian::Little, &mut bytes).unwrap();
    bytes.resize(bytes.len() + trace_bytes, 0xee);
    bytes.extend(record(68, 8));
    for piece in [777, 4096, 256 << 10, bytes.len()] {
        let (seen, problems) = read(&bytes, piece);
        let expected = [(RecordType::AUXTRACE, origin), (RecordType::FINISHED_ROUND, Origin::Input)];
        assert_eq!(seen, expected, "pieces of {piece}");
        assert!(problems.is_empty(), "{problems:?}");
    }
    let (_, problems) = read(&bytes[..bytes.len() - 5000], 4096);
    assert_eq!(problems.len(), 1, "{problems:?}");
    assert!(problems[0].contains("data after a record"), "{problems:?}");
}

#[cfg(feature = "zstd")]
mod compressed {
    use super::*;
    use zstd::stream::raw::{Encoder, Operation, OutBuffer};

    /// Compresses `plain` into one endless stream, flushed at each cut, with one record per part.
    fn compressed(plain: &[u8], cuts: &[usize], padded: bool) -> Vec<u8> {
        let mut encoder = Encoder::new(1).unwrap();
        let mut bytes = pipe_header(Endian::Little).to_vec();
        let ends = cuts.iter().copied().chain([plain.len()]);
        let starts = [0].into_iter().chain(cuts.iter().copied());
        for (start, end) in starts.zip(ends) {
            let mut slice = vec![0; 60_000];
            let status = encoder.run_on_buffers(&plain[start..end], &mut slice).unwrap();
            assert_eq!(status.bytes_read, end - start);
            let mut len = status.bytes_written;
            let mut rest = OutBuffer::around(&mut slice[len..]);
            assert_eq!(encoder.flush(&mut rest).unwrap(), 0);
            len += rest.pos();
            let payload =
                if padded { UserPayload::Compressed2(&slice[..len]) } else { UserPayload::Compressed(&slice[..len]) };
            payload.encode(Endian::Little, &mut bytes).unwrap();
        }
        bytes
    }

    #[test]
    fn slices_may_end_inside_a_record() {
        let mut plain = Vec::new();
        (0..500u16).for_each(|n| plain.extend(record(9, 8 + n % 60 * 8)));
        for (padded, kind) in [(false, RecordType::COMPRESSED), (true, RecordType::COMPRESSED2)] {
            let cuts: Vec<usize> = (1..plain.len() / 701).map(|n| n * 701).collect();
            let bytes = compressed(&plain, &cuts, padded);
            for piece in [1, 333, bytes.len()] {
                let (seen, problems) = read(&bytes, piece);
                assert!(problems.is_empty(), "{problems:?}");
                let count = |wanted| seen.iter().filter(|found| **found == wanted).count();
                assert_eq!(count((RecordType::SAMPLE, Origin::Decompressed)), 500);
                assert_eq!(count((kind, Origin::Input)), cuts.len() + 1);
            }
        }
    }

    #[test]
    fn a_stream_that_ends_inside_a_record_says_so() {
        let mut plain = record(9, 64);
        plain.truncate(40);
        let (seen, problems) = read(&compressed(&plain, &[], true), 100);
        assert_eq!(seen.len(), 1);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].contains("ends inside a record"), "{problems:?}");
    }

    /// A frame of a few bytes may require a window of any size (RFC 8878, 3.1.1.1.2), which the decompressor would have to keep in memory.
    #[test]
    fn windows_that_no_recorder_uses_are_refused() {
        let frame = |window_log: u8| {
            // A header without a content size, and one RLE block of 8 bytes.
            let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0, (window_log - 10) << 3];
            frame.extend([8 << 3 | 1 << 1 | 1, 0, 0, 0]);
            let mut bytes = pipe_header(Endian::Little).to_vec();
            UserPayload::Compressed2(&frame).encode(Endian::Little, &mut bytes).unwrap();
            read(&bytes, 4096).1.join("; ")
        };
        for window_log in [28, 31, 41] {
            assert!(frame(window_log).contains("requires too much memory"), "{}", frame(window_log));
        }
        // A window of 2^27 bytes, as the highest level has it, is accepted: the error is about the unpacked bytes,
        // which are no record.
        assert!(frame(27).contains("decompressed stream at"), "{}", frame(27));
    }

    /// A record of a few KiB that would unpack to 256 MiB is refused at 32 MiB; plain records after it are read.
    #[test]
    fn bombs_are_refused() {
        let mut encoder = Encoder::new(19).unwrap();
        let mut slice = vec![0; 60_000];
        let mut len = 0;
        let part = record(68, 8).repeat(1 << 17);
        for _ in 0..256 {
            let mut read = 0;
            while read < part.len() {
                let status = encoder.run_on_buffers(&part[read..], &mut slice[len..]).unwrap();
                read += status.bytes_read;
                len += status.bytes_written;
            }
        }
        let mut rest = OutBuffer::around(&mut slice[len..]);
        assert_eq!(encoder.flush(&mut rest).unwrap(), 0);
        len += rest.pos();
        let mut bytes = pipe_header(Endian::Little).to_vec();
        UserPayload::Compressed2(&slice[..len]).encode(Endian::Little, &mut bytes).unwrap();
        bytes.extend(record(9, 16));
        let (seen, problems) = read(&bytes, 4096);
        assert_eq!(seen.last(), Some(&(RecordType::SAMPLE, Origin::Input)));
        assert!(seen.len() <= (32 << 20) / 8 + 2, "{} records", seen.len());
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("decompresses to more than"), "{problems:?}");
    }
}

/// Bytes written by hand according to `tools/lib/perf/include/perf/event.h`, for types that available recordings lack.
#[test]
fn records_of_tools_lie_as_the_header_says() {
    let expect = |payload: UserPayload<'_>, body: &[u8]| {
        for endian in [Endian::Little, Endian::Big] {
            let mut bytes = Vec::new();
            payload.encode(endian, &mut bytes).unwrap();
            let record = Record::parse_alone(&bytes, 0, endian).unwrap();
            assert_eq!(UserPayload::decode(&record, endian).unwrap(), payload, "{endian:?}");
            if endian == Endian::Little {
                assert_eq!(record.body(), body, "{payload:?}");
            }
        }
    };
    let words = |words: &[u64]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();

    let stat = Stat { id: 7, cpu: 1, thread: 2, value: 3, time_enabled_ns: 4, time_running_ns: 5 };
    expect(UserPayload::Stat(stat), &words(&[7, 1 | 2 << 32, 3, 4, 5]));
    expect(UserPayload::StatConfig(StatConfig { entries: vec![(2, 1)] }), &words(&[1, 2, 1]));
    expect(UserPayload::StatRound(StatRound { kind: 1, time_ns: 9 }), &words(&[1, 9]));

    let entry = IdIndexEntry { id: 1, idx: 2, cpu: 3, tid: 4 };
    let index = IdIndex { entries: vec![entry], guests: vec![IdIndexGuest { machine_pid: 5, vcpu: 6 }] };
    expect(UserPayload::IdIndex(index), &words(&[1, 1, 2, 3, 4, 5, 6]));

    expect(UserPayload::CpuMap(CpuMap::Cpus(vec![0, 0xffff])), &[0, 0, 2, 0, 0, 0, 0xff, 0xff]);
    let mask = CpuMap::Mask { word_bytes: 8, words: vec![5] };
    assert_eq!(mask.cpus(), [Some(0), Some(2)]);
    // type 1, nr 1, long_size 8, 4 bytes of padding, and the word at byte 10 of the body; padded to 24.
    expect(UserPayload::CpuMap(mask), &[1, 0, 1, 0, 8, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let range = CpuMap::Range { any_cpu: true, start: 2, end: 3 };
    assert_eq!(range.cpus(), [None, Some(2), Some(3)]);
    expect(UserPayload::CpuMap(range), &[2, 0, 1, 0, 2, 0, 3, 0]);

    let cycles = TimeConvCycles { time_cycles: 4, time_mask: 5, cap_user_time_zero: true, cap_user_time_short: true };
    let conv = TimeConv { time_shift: 1, time_mult: 2, time_zero: 3, cycles: Some(cycles) };
    expect(UserPayload::TimeConv(conv), &words(&[1, 2, 3, 4, 5, 0x101]));

    let update = EventUpdate { id: 9, update: Update::Scale(0.5) };
    expect(UserPayload::EventUpdate(update), &words(&[1, 9, 0x3fe0_0000_0000_0000]));

    let error = |time_ns, guest| {
        let message: &[u8] = b"no data";
        AuxtraceError { kind: 1, code: 2, cpu: 3, pid: 4, tid: 5, ip: 6, time_ns, message, guest }
    };
    let text = u64::from_le_bytes(*b"no data\0");
    expect(UserPayload::AuxtraceError(error(None, None)), &words(&[1 | 2 << 32, 3 | 4 << 32, 5, 6, text]));
    expect(
        UserPayload::AuxtraceError(error(Some(7), None)),
        &words(&[1 | 2 << 32, 3 | 4 << 32, 5 | 1 << 32, 6, 7, text]),
    );
    let mut body = vec![1 | 2 << 32, 3 | 4 << 32, 5 | 2 << 32, 6, 7, text];
    body.extend([0; 7]);
    body.push(8 | 9 << 32);
    expect(UserPayload::AuxtraceError(error(Some(7), Some((8, 9)))), &words(&body));

    // A record with formats inside must be longer than a record with the formats after it.
    expect(
        UserPayload::TracingData { size_bytes: 4, inside: &[1, 2, 3, 4] },
        &[4, 0, 0, 0, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 0, 0],
    );
    expect(UserPayload::TracingData { size_bytes: 4, inside: &[] }, &[4, 0, 0, 0, 0, 0, 0, 0]);

    let metadata = BpfMetadata { prog_name: b"bpf_prog_x", entries: vec![(b"k", b"v")] };
    let mut body = vec![0; 512 + 8 + 64 + 256];
    body[..10].copy_from_slice(b"bpf_prog_x");
    body[512] = 1;
    body[520] = b'k';
    body[584] = b'v';
    expect(UserPayload::BpfMetadata(metadata), &body);

    let cpu = SchedstatCpu {
        timestamp: 1,
        cpu: 2,
        version: 17,
        yld_count: 1,
        array_exp: 2,
        sched_count: 3,
        sched_goidle: 4,
        ttwu_count: 5,
        ttwu_local: 6,
        rq_cpu_time: 7,
        run_delay: 8,
        pcount: 9,
    };
    expect(UserPayload::SchedstatCpu(cpu), &words(&[1, 2 | 17 << 32, 1 | 2 << 32, 3 | 4 << 32, 5 | 6 << 32, 7, 8, 9]));
    let domain = SchedstatDomain { timestamp: 1, cpu: 2, version: 17, domain: 3, counts: (0..36).collect() };
    let mut lies_so = vec![1, 2 | 17 << 32 | 3 << 48];
    lies_so.extend((0..18).map(|at| (2 * at) | ((2 * at + 1) << 32)));
    expect(UserPayload::SchedstatDomain(domain), &words(&lies_so));
}
