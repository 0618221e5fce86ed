//! Tests on the BTF that clang makes from `format/tests/data/types.bpf.c`, in both byte orders: the printed types must equal this source.

#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;
use bprec_format::{Endian, Writer};

const BLOBS: [&[u8]; 2] = [
    include_bytes!("../../../../format/tests/data/types.le.btf"),
    include_bytes!("../../../../format/tests/data/types.be.btf"),
];

fn each(check: impl Fn(&Btf<'_>)) {
    for bytes in BLOBS {
        check(&Btf::parse(bytes).unwrap());
    }
}

fn id_of(btf: &Btf<'_>, kind: Kind, name: &str) -> u32 {
    btf.find(kind, name.as_bytes()).unwrap().id()
}

fn declaration(btf: &Btf<'_>, id: u32, name: &str) -> String {
    DeclarationPrinter::new(btf).declare(id, name.to_owned())
}

#[test]
fn members_are_declared_as_in_the_source() {
    each(|btf| {
        let event = id_of(btf, Kind::STRUCT, "event");
        assert_eq!(
            definition(btf, event),
            "struct event { u32 pid; char comm[16]; enum state state; unsigned char mac[6]; u32 low:3; int middle:5; \
             u32 high:12; _Bool on; union { u64 whole; struct { u32 a; u32 b; }; }; double load; const char *const path; \
             volatile struct event *next; handler_t handler; int matrix[2][3]; int (*rows)[3]; struct opaque *opaque; \
             void *any; }"
        );
        let handler = id_of(btf, Kind::TYPEDEF, "handler_t");
        assert_eq!(definition(btf, handler), "typedef int (*handler_t)(struct event *, const char *, ...)");
        assert_eq!(definition(btf, id_of(btf, Kind::FUNC, "use")), "int use(struct event *e, void *ctx)");
        // The source has -3. The number is unsigned, as in bpftool: clang before 15 does not mark the enum as signed.
        assert_eq!(
            definition(btf, id_of(btf, Kind::ENUM, "state")),
            "enum state { IDLE = 0, RUNNING = 7, BROKEN = 4294967293 }"
        );
        let limit = btf.find(Kind::VAR, b"limit").unwrap().target().unwrap();
        assert_eq!(declaration(btf, limit, "limit"), "const volatile u64 limit");
        assert_eq!(declaration(btf, handler, "h"), "handler_t h");
    });
}

#[test]
fn definitions_come_with_those_of_what_they_hold() {
    each(|btf| {
        let event = id_of(btf, Kind::STRUCT, "event");
        let found = definitions(btf, event);
        assert_eq!(found[0], definition(btf, event));
        // The list has no definitions of types that are reached through a pointer, nor of typedefs of numbers.
        assert_eq!(found[1..], ["enum state { IDLE = 0, RUNNING = 7, BROKEN = 4294967293 }"]);
        let rodata = definitions(btf, id_of(btf, Kind::DATASEC, ".rodata"));
        assert_eq!(rodata, [".rodata { const volatile u64 limit; const char bpf_metadata_version[6]; }"]);
        assert_eq!(definitions(btf, 0), ["void"]);
    });
}

#[test]
fn types_are_named_as_in_a_cast() {
    each(|btf| {
        let event = btf.find(Kind::STRUCT, b"event").unwrap();
        let name_of =
            |member: &str| type_name(btf, event.members().find(|m| m.name == Some(member.as_bytes())).unwrap().type_id);
        assert_eq!(type_name(btf, event.id()), "struct event");
        assert_eq!(name_of("comm"), "char[16]");
        assert_eq!(name_of("matrix"), "int[2][3]");
        assert_eq!(name_of("rows"), "int (*)[3]");
        assert_eq!(name_of("path"), "const char *const");
        assert_eq!(name_of("any"), "void *");
        assert_eq!(type_name(btf, 0), "void");
        assert_eq!(type_name(btf, 4711), "<type 4711>");
    });
}

/// Builds little-endian BTF from type records. The string at offset 1 is `event`, at offset 7 `char`.
fn written(types: &[&[u32]]) -> Vec<u8> {
    let (mut bytes, len) = (Vec::new(), types.iter().map(|words| words.len() as u32 * 4).sum());
    let strings = b"\0event\0char\0";
    let mut w = Writer::new(&mut bytes, Endian::Little);
    w.u16(0xeb9f).u8(1).u8(0).u32(24).u32(0).u32(len).u32(len).u32(strings.len() as u32);
    for word in types.iter().copied().flatten() {
        w.u32(*word);
    }
    w.bytes(strings);
    bytes
}

/// Second word of a type record: kind and count of elements.
fn info(kind: Kind, elements: u32) -> u32 {
    u32::from(kind.0) << 24 | elements
}

#[test]
fn qualifiers_are_said_once_and_empty_structs_are_short() {
    // Types 1 to 4 are `const char x[3]` as some compilers write it: both the array and its elements are `const`. Type 5 is `struct event {}`.
    let bytes = written(&[
        &[0, info(Kind::CONST, 0), 2],
        &[0, info(Kind::ARRAY, 0), 0, 3, 4, 3],
        &[0, info(Kind::CONST, 0), 4],
        &[7, info(Kind::INT, 0), 1, 8],
        &[1, info(Kind::STRUCT, 0), 0],
    ]);
    let btf = Btf::parse(&bytes).unwrap();
    assert_eq!(
        (declaration(&btf, 1, "x").as_str(), definition(&btf, 5).as_str()),
        ("const char x[3]", "struct event {}")
    );
}

/// Prints every type; the text must stay short even if types are cyclic.
fn exercise(btf: &Btf<'_>) {
    for id in 0..=btf.len() as u32 {
        assert!(type_name(btf, id).len() < 200_000);
        assert!(definition(btf, id).len() < 200_000);
        assert!(definitions(btf, id).len() < 1000);
    }
}

#[test]
fn cycles_end() {
    for kind in [Kind::TYPEDEF, Kind::CONST, Kind::VOLATILE, Kind::PTR, Kind::TYPE_TAG, Kind::FUNC] {
        exercise(&Btf::parse(&written(&[&[1, info(kind, 0), 1]])).unwrap());
    }
    exercise(&Btf::parse(&written(&[&[0, info(Kind::ARRAY, 0), 0, 1, 1, u32::MAX]])).unwrap());
    // A struct with many members of its own type, and a function with parameters of its own type.
    let of_itself = [&[1, info(Kind::STRUCT, 60), 8][..], &[1, 1, 0].repeat(60)].concat();
    exercise(&Btf::parse(&written(&[&of_itself])).unwrap());
    let proto = [&[0, info(Kind::FUNC_PROTO, 60), 1][..], &[1, 1].repeat(60)].concat();
    exercise(&Btf::parse(&written(&[&proto])).unwrap());
}

#[test]
fn damaged_types_are_printed() {
    // `lowest` is the offset of the least significant byte in a word: 0 in little-endian data, 3 in big-endian data.
    for (blob, lowest) in BLOBS.into_iter().zip([0, 3]) {
        for at in (24 + lowest..blob.len()).step_by(4) {
            for value in [0, 1, 4, 0xff] {
                let mut bytes = blob.to_vec();
                bytes[at] = value;
                Btf::parse(&bytes).iter().for_each(exercise);
            }
        }
    }
}
