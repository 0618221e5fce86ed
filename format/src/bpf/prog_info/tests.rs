use super::*;
use proptest::prelude::*;

impl ProgInfoBuf {
    /// Returns the blob with the info in full length.
    fn as_blob(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.encode(&mut out, self.info.len());
        out
    }
}

const BOTH: [Endian; 2] = [Endian::Little, Endian::Big];

/// Info with methods that write u32 and u64 fields at their offsets in `struct bpf_prog_info`. The tests copy the offsets from the header file.
struct Info(Endian, Vec<u8>);

impl Info {
    fn new(endian: Endian, len: usize) -> Info {
        Info(endian, vec![0; len])
    }

    fn u32(mut self, at: usize, value: u32) -> Info {
        if let Some(b) = self.1.get_mut(at..at + 4) {
            b.copy_from_slice(&self.0.bytes_u32(value));
        }
        self
    }

    fn u64(mut self, at: usize, value: u64) -> Info {
        if let Some(b) = self.1.get_mut(at..at + 8) {
            b.copy_from_slice(&self.0.bytes_u64(value));
        }
        self
    }
}

fn u32s(endian: Endian, values: &[u32]) -> Vec<u8> {
    values.iter().flat_map(|v| endian.bytes_u32(*v)).collect()
}

fn u64s(endian: Endian, values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|v| endian.bytes_u64(*v)).collect()
}

/// A program of three functions with two lines each. The functions are neither ordered by address nor contiguous.
fn three_functions(endian: Endian) -> ProgInfoBuf {
    let info = Info::new(endian, 232)
        .u32(0, 5)
        .u32(4, 77)
        .u32(16, 60)
        .u32(20, 8 * 30)
        .u64(40, 1_000)
        .u32(84, if endian == Endian::Little { 1 } else { 1 << 31 })
        .u32(104, 3)
        .u32(108, 3)
        .u32(132, 8)
        .u32(144, 3)
        .u32(148, 6)
        .u32(168, 6)
        .u32(172, 16)
        .u32(176, 8)
        .u32(180, 3);
    let line = |insn: u32, line: u32| [insn, 1, 2, line << 10 | 7];
    let lines: Vec<u32> =
        [(0, 10), (4, 11), (10, 20), (15, 21), (20, 30), (25, 31)].iter().flat_map(|(i, l)| line(*i, *l)).collect();
    let mut arrays = [const { None }; Array::COUNT];
    arrays[Array::JitedInsns as usize] = Some([[1u8; 10].as_slice(), &[2; 20], &[3; 30]].concat());
    arrays[Array::JitedKsyms as usize] = Some(u64s(endian, &[0x9000, 0x1000, 0x5000]));
    arrays[Array::JitedFuncLens as usize] = Some(u32s(endian, &[10, 20, 30]));
    arrays[Array::FuncInfo as usize] = Some(u32s(endian, &[0, 100, 10, 101, 20, 102]));
    arrays[Array::LineInfo as usize] = Some(u32s(endian, &lines));
    arrays[Array::JitedLineInfo as usize] = Some(u64s(endian, &[0x9000, 0x9005, 0x1000, 0x1008, 0x5000, 0x5010]));
    arrays[Array::ProgTags as usize] = Some((0..24).collect());
    ProgInfoBuf { endian, info: info.1, arrays }
}

#[test]
fn functions_are_cut_out_of_the_concatenated_code() {
    for endian in BOTH {
        let buf = three_functions(endian);
        let view = buf.view();
        assert_eq!(view.dropped(), []);
        assert_eq!(view.gpl_compatible(), Some(true));
        let seen: Vec<_> =
            view.functions().map(|f| (f.range().unwrap(), f.type_id.unwrap(), f.jited.unwrap())).collect();
        assert_eq!(
            seen,
            [
                (0x9000..0x900a, 100, [1; 10].as_slice()),
                (0x1000..0x1014, 101, &[2; 20]),
                (0x5000..0x501e, 102, &[3; 30]),
            ]
        );
        assert_eq!(view.functions().nth(1).unwrap().tag.unwrap().to_string(), "08090a0b0c0d0e0f");
    }
}

#[test]
fn an_interpreted_function_has_no_address() {
    let info = Info::new(Endian::Little, 232).u32(104, 1).u32(108, 1);
    let mut arrays = [const { None }; Array::COUNT];
    arrays[Array::JitedKsyms as usize] = Some(u64s(Endian::Little, &[0xffff_ffff_8123_4560]));
    arrays[Array::JitedFuncLens as usize] = Some(u32s(Endian::Little, &[0]));
    let buf = ProgInfoBuf { endian: Endian::Little, info: info.1, arrays };
    let view = buf.view();
    let functions: Vec<_> = view.functions().collect();
    assert_eq!(functions.len(), 1);
    assert_eq!((functions[0].addr, functions[0].len), (None, Some(0)));
}

#[test]
fn a_withheld_array_is_absent_although_it_is_counted() {
    let info = Info::new(Endian::Little, 232).u32(20, 520).u32(52, 2);
    let buf = ProgInfoBuf { endian: Endian::Little, info: info.1, arrays: [const { None }; Array::COUNT] };
    let blob = buf.as_blob();
    let program = ProgInfo::read(&mut Reader::new(&blob, 0, Endian::Little)).unwrap();
    assert_eq!(program.xlated_insns(), None);
    assert!(program.map_ids().is_none());
    assert_eq!((program.xlated_prog_len(), program.nr_map_ids()), (Some(520), Some(2)));
    assert_eq!(program.dropped(), []);
}

#[test]
fn an_array_that_overruns_the_data_is_dropped_and_the_others_stay() {
    for endian in BOTH {
        let mut blob = three_functions(endian).as_blob();
        let at = 16 + 108; // nr_jited_func_lens
        blob[at..at + 4].copy_from_slice(&endian.bytes_u32(1000));
        let at = 16 + 136; // func_info, the offset in the data
        blob[at..at + 8].copy_from_slice(&endian.bytes_u64(u64::MAX));
        let program = ProgInfo::read(&mut Reader::new(&blob, 0, endian)).unwrap();
        let dropped: Vec<_> = program.dropped().iter().map(|(array, _)| *array).collect();
        assert_eq!(dropped, [Array::JitedFuncLens, Array::FuncInfo]);
        assert_eq!(program.jited_ksyms().unwrap().iter().collect::<Vec<_>>(), [0x9000, 0x1000, 0x5000]);
        assert_eq!(program.functions().len(), 3);
        assert_eq!(program.functions().next().unwrap().len, None);
    }
}

#[test]
fn fields_beyond_the_info_are_absent_not_zero() {
    let buf = three_functions(Endian::Little);
    let mut blob = Vec::new();
    buf.encode(&mut blob, 208);
    let program = ProgInfo::read(&mut Reader::new(&blob, 0, Endian::Little)).unwrap();
    assert_eq!(program.info().len(), 208);
    assert_eq!((program.run_cnt(), program.recursion_misses(), program.attach_btf_id()), (Some(0), None, None));
    assert_eq!(program.functions().len(), 3);

    let mut short = Vec::new();
    buf.encode(&mut short, 100);
    let program = ProgInfo::read(&mut Reader::new(&short, 0, Endian::Little)).unwrap();
    assert_eq!((program.id(), program.btf_id()), (Some(77), None));
    assert_eq!(program.dropped(), []);
    assert_eq!(program.functions().len(), 0);
    assert_eq!(program.jited_insns().map(<[u8]>::len), Some(60));
}

#[test]
fn offsets_in_a_blob_are_aligned_and_absent_arrays_have_none() {
    let blob = three_functions(Endian::Big).as_blob();
    let pointer = |at: usize| Endian::Big.u64_at(&blob, 16 + at).unwrap();
    // Bytes of the arrays, each padded to 8: machine code 60, addresses 3 × 8, lengths 3 × 4, func_info 3 × 8,
    // line_info 6 × 16, jited_line_info 6 × 8, tags 3 × 8. There are no BPF instructions and no map ids.
    assert_eq!((pointer(24), pointer(32), pointer(56)), (0, 0, 0));
    assert_eq!([pointer(112), pointer(120), pointer(136), pointer(152)], [64, 88, 104, 128]);
    assert_eq!([pointer(160), pointer(184)], [224, 272]);
    assert_eq!(Endian::Big.u64_at(&blob, 8), Some(0b1_1111_1001));
    assert_eq!(Endian::Big.u32_at(&blob, 4), Some(296));
    assert_eq!(blob.len(), 16 + 232 + 296);
}

#[test]
fn a_damaged_blob_ends_the_section_with_its_offset_and_earlier_ones_stay() {
    let mut section = Vec::new();
    let programs = [three_functions(Endian::Little), three_functions(Endian::Little)];
    write_section(&mut section, Endian::Little, &programs, DEFAULT_INFO_LEN);
    let second = 4 + programs[0].as_blob().len();
    section[second..second + 4].copy_from_slice(&5000u32.to_le_bytes());
    let read: Vec<_> = BpfProgInfoSection::new(&section, 0x100, Endian::Little).unwrap().collect();
    assert_eq!(read.len(), 2);
    assert_eq!(read[0].as_ref().unwrap().id(), Some(77));
    assert_eq!(read[1].as_ref().unwrap_err().offset, 0x100 + second as u64);
}

#[test]
fn a_section_is_ordered_by_id() {
    let with_id = |id| ProgInfoBuf {
        endian: Endian::Big,
        info: Info::new(Endian::Big, 232).u32(4, id).1,
        arrays: [const { None }; Array::COUNT],
    };
    let mut section = Vec::new();
    write_section(&mut section, Endian::Big, &[with_id(9), with_id(2), with_id(300)], DEFAULT_INFO_LEN);
    let ids: Vec<_> =
        BpfProgInfoSection::new(&section, 0, Endian::Big).unwrap().map(|p| p.unwrap().id().unwrap()).collect();
    assert_eq!(ids, [2, 9, 300]);
}

/// Any program: each array present or absent, with its count; other fields are random.
fn any_program() -> impl Strategy<Value = ProgInfoBuf> {
    let arrays = proptest::collection::vec(proptest::option::of(0u32..6), Array::COUNT);
    let info = proptest::collection::vec(any::<u8>(), 192..300);
    (any::<bool>(), info, arrays, any::<u8>()).prop_map(|(big, info, counts, fill)| {
        let endian = if big { Endian::Big } else { Endian::Little };
        let mut info = Info(endian, info).u32(132, 8).u32(172, 16).u32(176, 8);
        let described = [(24, 16, 1), (32, 20, 1), (56, 52, 4), (112, 104, 8), (120, 108, 4)];
        let described2 = [(136, 144, 8), (152, 148, 16), (160, 168, 8), (184, 180, 8)];
        let mut arrays = [const { None }; Array::COUNT];
        for (n, (pointer, count_at, bytes)) in described.into_iter().chain(described2).enumerate() {
            info = info.u64(pointer, 0);
            if let Some(count) = counts[n] {
                info = info.u32(count_at, count);
                arrays[n] = Some((0..count * bytes).map(|i| (i as u8).wrapping_mul(fill)).collect());
            }
        }
        ProgInfoBuf { endian, info: info.1, arrays }
    })
}

/// Calls every function that reads from a program.
fn exercise(program: &ProgInfo<'_>) {
    let _ = (program.prog_type(), program.name(), program.gpl_compatible(), program.verified_insns());
    let _ = (program.prog_tags().map(|t| t.iter().count()), program.map_ids().map(|t| t.iter().count()));
    for function in program.functions() {
        let _ = (function.range(), function.jited);
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(buf in any_program()) {
        prop_assert!(buf.view().dropped().is_empty());
        let blob = buf.as_blob();
        prop_assert_eq!(blob.len() % 8, buf.info.len() % 8);
        let mut reader = Reader::new(&blob, 0, buf.endian);
        let program = ProgInfo::read(&mut reader).unwrap();
        prop_assert!(reader.is_empty());
        prop_assert_eq!(program.dropped(), []);
        prop_assert_eq!(&program.arrays, &buf.view().arrays);
        exercise(&program);
        // Reading keeps the offsets that writing put into the pointer fields; writing again changes nothing.
        prop_assert_eq!(ProgInfoBuf::from_view(&program).as_blob(), blob);
    }

    #[test]
    fn damaged_blobs_are_read_or_refused(
        buf in any_program(),
        hits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..20),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut section = Vec::new();
        write_section(&mut section, buf.endian, &[buf.clone(), buf.clone()], DEFAULT_INFO_LEN);
        for (at, value) in hits {
            let at = at.index(section.len());
            section[at] = value;
        }
        section.truncate(cut.index(section.len() + 1));
        if let Ok(programs) = BpfProgInfoSection::new(&section, 0, buf.endian) {
            programs.filter_map(Result::ok).for_each(|program| exercise(&program));
        }
    }

    #[test]
    fn arbitrary_bytes_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..600), big: bool) {
        let endian = if big { Endian::Big } else { Endian::Little };
        if let Ok(programs) = BpfProgInfoSection::new(&bytes, 0, endian) {
            programs.filter_map(Result::ok).for_each(|program| exercise(&program));
        }
    }
}
