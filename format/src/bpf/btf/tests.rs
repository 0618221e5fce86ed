use super::*;
use proptest::prelude::*;

/// Type record to be written.
#[derive(Debug, Clone, PartialEq)]
struct Spec {
    name: Option<u8>,
    kind: u8,
    flag: bool,
    size_or_type: u32,
    /// Words of the record between its first three words and its elements.
    once: Vec<u32>,
    /// Words of each element.
    each: Vec<Vec<u32>>,
}

const NAMES: [&[u8]; 6] = [b"a", b"event", b"x\xff", b"u32", b"some_longer_name", b"char"];

/// Returns a string section (an empty string, then [`NAMES`] in order), and the offset of each name.
fn strings() -> (Vec<u8>, Vec<u32>) {
    let mut bytes = vec![0];
    let mut offsets = Vec::new();
    for name in NAMES {
        offsets.push(bytes.len() as u32);
        bytes.extend_from_slice(name);
        bytes.push(0);
    }
    (bytes, offsets)
}

/// Writes a blob; with `layout`, a blob of Linux 7.3 with a table of record sizes.
fn write(endian: Endian, specs: &[Spec], layout: Option<&[[u8; 4]]>) -> Vec<u8> {
    let (strings, offsets) = strings();
    let mut types = Vec::new();
    let mut w = crate::Writer::new(&mut types, endian);
    for spec in specs {
        let vlen = if spec.kind == 12 { 1 } else { spec.each.len() as u32 };
        w.u32(spec.name.map_or(0, |n| offsets[usize::from(n)]));
        w.u32(u32::from(spec.flag) << 31 | u32::from(spec.kind) << 24 | vlen).u32(spec.size_or_type);
        for word in spec.once.iter().chain(spec.each.iter().flatten()) {
            w.u32(*word);
        }
    }
    let hdr_len = if layout.is_some() { 32 } else { 24 };
    let layout: Vec<u8> = layout.unwrap_or_default().concat();
    let mut out = Vec::new();
    let mut w = crate::Writer::new(&mut out, endian);
    w.u16(MAGIC).u8(1).u8(0).u32(hdr_len);
    w.u32(0).u32(types.len() as u32).u32(types.len() as u32).u32(strings.len() as u32);
    if hdr_len == 32 {
        w.u32((types.len() + strings.len()) as u32).u32(layout.len() as u32);
    }
    w.bytes(&types).bytes(&strings).bytes(&layout);
    out
}

/// Words after the first three of a record, as (once, per element), by kind; written by hand from the header file.
const EXTRA_WORDS: [(usize, usize); 20] = [
    (0, 0),
    (1, 0),
    (0, 0),
    (3, 0),
    (0, 3),
    (0, 3),
    (0, 2),
    (0, 0),
    (0, 0),
    (0, 0),
    (0, 0),
    (0, 0),
    (0, 0),
    (0, 2),
    (1, 0),
    (0, 3),
    (0, 0),
    (1, 0),
    (0, 0),
    (0, 3),
];

fn any_type() -> impl Strategy<Value = Spec> {
    // Small numbers make most references valid, also references to earlier types.
    let word = prop_oneof![4 => 0u32..24, 1 => any::<u32>()];
    let words = proptest::collection::vec(word.clone(), 3);
    let each = proptest::collection::vec(proptest::collection::vec(word.clone(), 3), 0..5);
    (1u8..20, proptest::option::of(0u8..NAMES.len() as u8), any::<bool>(), word, words, each).prop_map(
        |(kind, name, flag, size_or_type, mut once, mut each)| {
            let (once_words, each_words) = EXTRA_WORDS[usize::from(kind)];
            once.truncate(once_words);
            each.iter_mut().for_each(|element| element.truncate(each_words));
            if each_words == 0 {
                each.clear();
            }
            Spec { name, kind, flag, size_or_type, once, each }
        },
    )
}

/// Converts a record from the reader back into words.
fn read_back(btf: &Btf<'_>, found: &Type<'_>) -> Spec {
    let (size_or_type, extra) = found.raw();
    let words: Vec<u32> = extra.chunks(4).map(|w| btf.endian().u32_at(w, 0).unwrap()).collect();
    let (once, each) = EXTRA_WORDS[usize::from(found.kind().0)];
    Spec {
        name: found.name().map(|name| NAMES.iter().position(|n| *n == name).unwrap() as u8),
        kind: found.kind().0,
        flag: found.kind_flag(),
        size_or_type,
        once: words[..once].to_vec(),
        each: words[once..].chunks(each.max(1)).map(<[u32]>::to_vec).collect(),
    }
}

/// Calls every function that follows references; each call must end soon.
fn exercise(btf: &Btf<'_>, value: &[u8]) {
    for found in btf.types() {
        let id = found.id();
        let _ = (btf.resolve(id), btf.size_of(id), btf.func_name(id), found.int(), found.array());
        assert!(btf.value_text(id, value, &Limits::default()).len() < 20_000);
        let _ = (found.members().count(), found.enumerators().count(), btf.metadata(id, value));
    }
    let _ = (btf.annotated_map_types(b"m"), btf.declared_maps().count());
}

fn spec(kind: Kind, name: Option<u8>, size_or_type: u32) -> Spec {
    Spec { name, kind: kind.0, flag: false, size_or_type, once: vec![], each: vec![] }
}

#[test]
fn cycles_end() {
    for endian in [Endian::Little, Endian::Big] {
        let through = |kind| spec(kind, Some(0), 1);
        for kind in [Kind::TYPEDEF, Kind::CONST, Kind::VOLATILE, Kind::PTR, Kind::TYPE_TAG, Kind::FUNC, Kind::VAR] {
            exercise(&Btf::parse(&write(endian, &[through(kind)], None)).unwrap(), &[1; 64]);
        }
        let array = Spec { once: vec![1, 1, u32::MAX], ..spec(Kind::ARRAY, None, 0) };
        exercise(&Btf::parse(&write(endian, &[array], None)).unwrap(), &[1; 64]);
        // A struct with many members of its own type, and a function with parameters of its own type.
        let members = vec![vec![1, 1, 0]; 60];
        let of_itself = Spec { each: members, ..spec(Kind::STRUCT, None, 8) };
        exercise(&Btf::parse(&write(endian, &[of_itself], None)).unwrap(), &[1; 64]);
        let proto = Spec { each: vec![vec![1, 1]; 60], ..spec(Kind::FUNC_PROTO, None, 1) };
        exercise(&Btf::parse(&write(endian, &[proto], None)).unwrap(), &[1; 64]);
    }
}

#[test]
fn an_unknown_kind_is_skipped_when_the_layout_says_how() {
    for endian in [Endian::Little, Endian::Big] {
        let unknown = Spec { kind: 23, once: vec![7], each: vec![vec![8, 9]; 3], ..spec(Kind::INT, Some(1), 4) };
        let after = Spec { once: vec![32], ..spec(Kind::INT, Some(3), 4) };
        let specs = [unknown, after];
        let mut layout = [[0; 4]; 24];
        layout[23] = [4, 8, 0, 0];
        let blob = write(endian, &specs, Some(&layout));
        let btf = Btf::parse(&blob).unwrap();
        assert_eq!((btf.len(), btf.problem()), (2, None));
        assert_eq!(btf.type_by_id(2).unwrap().name(), Some(b"u32".as_slice()));
        assert_eq!(btf.type_by_id(1).unwrap().raw().1.len(), 28);

        let blob = write(endian, &specs, None);
        let btf = Btf::parse(&blob).unwrap();
        assert_eq!(btf.len(), 0);
        assert_eq!(btf.problem().unwrap().offset, 24 + 4);
    }
}

#[test]
fn a_bit_field_of_old_compilers_is_as_wide_as_its_integer() {
    for endian in [Endian::Little, Endian::Big] {
        // struct event { u32 a:3; u32 x:5; } as in old BTF, without the flag: the member types are integers of 3 and 5
        // bits.
        let specs = [
            Spec { each: vec![vec![1, 2, 0], vec![12, 3, 3]], ..spec(Kind::STRUCT, Some(1), 4) },
            Spec { once: vec![3], ..spec(Kind::INT, Some(3), 4) },
            Spec { once: vec![5], ..spec(Kind::INT, Some(3), 4) },
        ];
        let blob = write(endian, &specs, None);
        let btf = Btf::parse(&blob).unwrap();
        let value = if endian == Endian::Little { [6 | 19 << 3, 0, 0, 0] } else { [6 << 5 | 19, 0, 0, 0] };
        let text = btf.value_text(1, &value, &Limits::default());
        assert_eq!(text, "{ .a = 6, .u32 = 19 }");
    }
}

#[test]
fn empty_structs_are_short() {
    let blob = write(Endian::Big, &[spec(Kind::STRUCT, Some(1), 0)], None);
    assert_eq!(Btf::parse(&blob).unwrap().value_text(1, &[], &Limits::default()), "{}");
}

#[test]
fn wide_enums_have_signed_and_unsigned_values() {
    let big = Spec { each: vec![vec![1, 0, 0x8000_0000]], ..spec(Kind::ENUM64, Some(1), 8) };
    let negative = Spec { flag: true, ..big.clone() };
    let narrow = Spec { flag: true, each: vec![vec![1, -3i32 as u32]], ..spec(Kind::ENUM, Some(1), 2) };
    let blob = write(Endian::Little, &[big, negative, narrow], None);
    let btf = Btf::parse(&blob).unwrap();
    let value = |id| btf.type_by_id(id).unwrap().enumerators().next().unwrap().value;
    assert_eq!((value(1), value(2), value(3)), (1 << 63, -(1 << 63), -3));
    assert_eq!(btf.value_text(2, &(1u64 << 63).to_le_bytes(), &Limits::default()), "a");
    assert_eq!(btf.value_text(3, &(-3i16).to_le_bytes(), &Limits::default()), "a");
    assert_eq!(btf.value_text(3, &(-4i16).to_le_bytes(), &Limits::default()), "-4");
}

#[test]
fn text_is_text_as_far_as_it_goes() {
    // char[5]; types without a size are shown as bytes.
    let specs = [
        Spec { once: vec![2, 2, 5], ..spec(Kind::ARRAY, None, 0) },
        Spec { once: vec![8], ..spec(Kind::INT, Some(5), 1) },
        spec(Kind::FWD, Some(0), 0),
    ];
    let blob = write(Endian::Big, &specs, None);
    let btf = Btf::parse(&blob).unwrap();
    let text = |bytes: &[u8]| btf.value_text(1, bytes, &Limits::default());
    // Old bytes after the first NUL are not part of the text.
    assert_eq!(text(b"ab\0\xfe\xff"), r#""ab""#);
    assert_eq!(text(b"a\x1b\xff\0\x01"), r#""a\u{1b}\xff\0\u{1}""#);
    assert_eq!(text(b"\0\0\0\0\x07"), r#""\0\0\0\0\u{7}""#);
    assert_eq!(text(b"\0\0\0\0\0"), "\"\"");
    assert_eq!(text(b"abcde"), r#""abcde""#);
    assert_eq!(text(b"abc"), "{ 97, 98, 99, ?, ? }");
    assert_eq!(btf.value_text(3, &[1, 0xab], &Limits::default()), "[01 ab]");
    let cut = btf.value(1, b"abcde", &Limits { chars: 6, ..Limits::default() });
    assert_eq!((cut.to_string().as_str(), cut.is_whole()), (r#"{ "abc", ... }"#, false));
}

#[test]
fn a_map_whose_name_was_cut_has_the_types_of_the_only_one_that_fits() {
    // struct ____btf_map_<name> { int key; int value; } for each of the names.
    let of = |names: &[&str], map: &[u8]| {
        let mut strings = vec![0];
        let mut at = |name: &str| {
            let offset = strings.len() as u32;
            strings.extend_from_slice(name.as_bytes());
            strings.push(0);
            offset
        };
        let (key, value) = (at("key"), at("value"));
        let mut types = Vec::new();
        let mut w = crate::Writer::new(&mut types, Endian::Little);
        w.u32(0).u32(1 << 24).u32(4).u32(32);
        for name in names {
            w.u32(at(&format!("____btf_map_{name}"))).u32(4 << 24 | 2).u32(8);
            w.u32(key).u32(1).u32(0).u32(value).u32(1).u32(32);
        }
        let mut blob = Vec::new();
        let mut w = crate::Writer::new(&mut blob, Endian::Little);
        w.u16(MAGIC).u8(1).u8(0).u32(24);
        w.u32(0).u32(types.len() as u32).u32(types.len() as u32).u32(strings.len() as u32);
        w.bytes(&types).bytes(&strings);
        Btf::parse(&blob).unwrap().annotated_map_types(map)
    };
    let found = Some((1, 1));
    assert_eq!(of(&["requests_by_process"], b"requests_by_pro"), found);
    assert_eq!(of(&["requests_by_process"], b"requests_by"), None, "a name below the length limit is complete");
    assert_eq!(of(&["requests_by_process", "requests_by_program"], b"requests_by_pro"), None);
    assert_eq!(of(&["requests_by_process", "requests_by_pro"], b"requests_by_pro"), found);
}

#[test]
fn headers_that_lead_out_of_the_blob_are_errors() {
    let blob = write(Endian::Little, &[spec(Kind::PTR, None, 0)], None);
    for (at, value) in [(4, 23u32), (4, 5000), (8, u32::MAX), (12, 5000), (16, u32::MAX), (20, u32::MAX)] {
        let mut bad = blob.clone();
        bad[at..at + 4].copy_from_slice(&value.to_le_bytes());
        assert!(Btf::parse(&bad).is_err(), "{value} at {at}");
    }
    assert!(Btf::parse(b"\x9f").is_err());
    assert!(Btf::parse(b"BTF!").is_err());
}

#[test]
fn a_section_is_ordered_and_its_damage_has_an_offset() {
    for endian in [Endian::Little, Endian::Big] {
        let mut out = Vec::new();
        write_section(&mut out, endian, &[(9, b"nine"), (3, b"three")]);
        let read: Vec<_> = BpfBtfSection::new(&out, 0, endian).unwrap().map(Result::unwrap).collect();
        assert_eq!(read, [(3, b"three".as_slice()), (9, b"nine")]);
        let cut: Vec<_> = BpfBtfSection::new(&out[..out.len() - 1], 100, endian).unwrap().collect();
        assert_eq!(cut[0], Ok((3, b"three".as_slice())));
        assert_eq!(cut[1].as_ref().unwrap_err().offset, 100 + 4 + 8 + 5 + 8);
        assert_eq!(cut.len(), 2);
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(specs in proptest::collection::vec(any_type(), 0..24), big: bool, new: bool) {
        let endian = if big { Endian::Big } else { Endian::Little };
        let blob = write(endian, &specs, new.then_some(&[[0; 4]; 20]));
        let btf = Btf::parse(&blob).unwrap();
        prop_assert_eq!(btf.problem(), None);
        let read: Vec<_> = btf.types().map(|t| read_back(&btf, &t)).collect();
        prop_assert_eq!(read, specs);
        exercise(&btf, &blob);
    }

    #[test]
    fn damaged_blobs_are_read_or_refused(
        specs in proptest::collection::vec(any_type(), 0..24),
        big: bool,
        hits in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut blob = write(if big { Endian::Big } else { Endian::Little }, &specs, Some(&[[8; 4]; 128]));
        for (at, value) in hits {
            let at = at.index(blob.len());
            blob[at] = value;
        }
        blob.truncate(cut.index(blob.len() + 1));
        if let Ok(btf) = Btf::parse(&blob) {
            exercise(&btf, &blob);
        }
    }

    #[test]
    fn arbitrary_bytes_are_read_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..400), big: bool) {
        let endian = if big { Endian::Big } else { Endian::Little };
        if let Some(magic) = bytes.first_chunk_mut::<2>() {
            *magic = endian.bytes_u16(MAGIC);
        }
        if let Some(hdr_len) = bytes.get_mut(4..8) {
            hdr_len.copy_from_slice(&endian.bytes_u32(24));
        }
        if let Ok(btf) = Btf::parse(&bytes) {
            exercise(&btf, &bytes);
        }
        if let Ok(blobs) = BpfBtfSection::new(&bytes, 0, endian) {
            blobs.for_each(drop);
        }
    }
}

#[test]
fn what_has_no_size_is_shown_once() {
    // struct {}[1 << 31] in a struct, and the same as elements of another array: neither takes a byte.
    let specs = [
        Spec { once: vec![2, 3, 1 << 31], ..spec(Kind::ARRAY, None, 0) },
        spec(Kind::STRUCT, None, 0),
        Spec { once: vec![4], ..spec(Kind::INT, Some(3), 4) },
        Spec { once: vec![1, 3, 1 << 31], ..spec(Kind::ARRAY, None, 0) },
    ];
    let blob = write(Endian::Little, &specs, None);
    let btf = Btf::parse(&blob).unwrap();
    let limits = Limits { depth: 32, elements: 1 << 16, chars: 1 << 20 };
    assert_eq!(btf.value_text(1, &[], &limits), "{ {}, ... }");
    assert_eq!(btf.value_text(4, &[], &limits), "{ { {}, ... }, ... }");
}
