//! The BTF that clang makes of `data/types.bpf.c`, in both byte orders, against that source.
#![allow(clippy::unwrap_used)]

use bprec_format::bpf::btf::{Btf, Kind, Limits};
use bprec_format::{Endian, Writer};

const BLOBS: [(&[u8], Endian); 2] =
    [(include_bytes!("data/types.le.btf"), Endian::Little), (include_bytes!("data/types.be.btf"), Endian::Big)];

fn each(check: impl Fn(&Btf<'_>)) {
    for (bytes, endian) in BLOBS {
        let btf = Btf::parse(bytes).unwrap();
        assert_eq!((btf.endian(), btf.problem(), btf.len()), (endian, None, 42));
        check(&btf);
    }
}

fn id_of(btf: &Btf<'_>, kind: Kind, name: &str) -> u32 {
    btf.find(kind, name.as_bytes()).unwrap().id()
}

#[test]
fn members_are_declared_as_in_the_source() {
    each(|btf| {
        let event = id_of(btf, Kind::STRUCT, "event");
        assert_eq!(
            btf.definition(event),
            "struct event { u32 pid; char comm[16]; enum state state; unsigned char mac[6]; u32 low:3; int middle:5; \
             u32 high:12; _Bool on; union { u64 whole; struct { u32 a; u32 b; }; }; double load; const char *const path; \
             volatile struct event *next; handler_t handler; int matrix[2][3]; int (*rows)[3]; struct opaque *opaque; \
             void *any; }"
        );
        let handler = id_of(btf, Kind::TYPEDEF, "handler_t");
        assert_eq!(btf.definition(handler), "typedef int (*handler_t)(struct event *, const char *, ...)");
        assert_eq!(btf.definition(id_of(btf, Kind::FUNC, "use")), "int use(struct event *e, void *ctx)");
        // bpftool's text: compilers before 15 do not say that the enum is signed.
        assert_eq!(
            btf.definition(id_of(btf, Kind::ENUM, "state")),
            "enum state { IDLE = 0, RUNNING = 7, BROKEN = 4294967293 }"
        );
        let limit = btf.find(Kind::VAR, b"limit").unwrap().target().unwrap();
        assert_eq!(btf.declaration(limit, "limit"), "const volatile u64 limit");
        assert_eq!(btf.declaration(handler, "h"), "handler_t h");
    });
}

#[test]
fn definitions_come_with_those_of_what_they_hold() {
    each(|btf| {
        let event = id_of(btf, Kind::STRUCT, "event");
        let definitions = btf.definitions(event);
        assert_eq!(definitions[0], btf.definition(event));
        // Not of what is pointed to, and not of names for numbers.
        assert_eq!(definitions[1..], ["enum state { IDLE = 0, RUNNING = 7, BROKEN = 4294967293 }"]);
        let rodata = btf.definitions(id_of(btf, Kind::DATASEC, ".rodata"));
        assert_eq!(rodata, [".rodata { const volatile u64 limit; const char bpf_metadata_version[6]; }"]);
        assert_eq!(btf.definitions(0), ["void"]);
    });
}

#[test]
fn types_are_named_as_in_a_cast() {
    each(|btf| {
        let event = btf.find(Kind::STRUCT, b"event").unwrap();
        let name_of =
            |member: &str| btf.type_name(event.members().find(|m| m.name == Some(member.as_bytes())).unwrap().type_id);
        assert_eq!(btf.type_name(event.id()), "struct event");
        assert_eq!(name_of("comm"), "char[16]");
        assert_eq!(name_of("matrix"), "int[2][3]");
        assert_eq!(name_of("rows"), "int (*)[3]");
        assert_eq!(name_of("path"), "const char *const");
        assert_eq!(name_of("any"), "void *");
        assert_eq!(btf.type_name(0), "void");
        assert_eq!(btf.type_name(4711), "<type 4711>");
    });
}

#[test]
fn sizes_are_those_of_the_compiler() {
    each(|btf| {
        let event = btf.find(Kind::STRUCT, b"event").unwrap();
        assert_eq!(btf.size_of(event.id()), Some(128));
        let sizes: Vec<_> = event.members().map(|m| btf.size_of(m.type_id).unwrap()).collect();
        assert_eq!(sizes, [4, 16, 4, 6, 4, 4, 4, 1, 8, 8, 8, 8, 8, 24, 8, 8, 8]);
        assert_eq!(btf.size_of(id_of(btf, Kind::FWD, "opaque")), None);
        assert_eq!(btf.size_of(0), None);
    });
}

/// An `event` as the compiler lays it out for the machine.
fn event(endian: Endian) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes, endian);
    w.u32(4242).bytes(b"worker\"1\0\0\0\0\0\0\0\0").u32(-3i32 as u32).bytes(&[0, 1, 2, 3, 0xfe, 0xff]);
    // low = 5, middle = -2 and, 2 bytes later, high = 0xabc: filled from the least significant bit, or from the most.
    match endian {
        Endian::Little => w.bytes(&[5 | 0b11110 << 3, 0, 0xbc, 0x0a, 1]),
        Endian::Big => w.bytes(&[5 << 5 | 0b11110, 0, 0xab, 0xc0, 1]),
    };
    w.zeros(5).u64(0x0000_0002_0000_0001).u64(0.25f64.to_bits());
    for pointer in [0xffff_8000_0000_1000, 0, 1] {
        w.u64(pointer);
    }
    for number in [1, -2, 3, -4, 5, -6i32] {
        w.u32(number as u32);
    }
    w.u64(0).u64(0).u64(0xdead_beef);
    bytes
}

#[test]
fn a_value_is_printed_field_by_field() {
    each(|btf| {
        let bytes = event(btf.endian());
        assert_eq!(bytes.len(), 128);
        let (a, b) = if btf.endian() == Endian::Little { (1, 2) } else { (2, 1) };
        assert_eq!(
            btf.value_text(id_of(btf, Kind::STRUCT, "event"), &bytes, &Limits::default()),
            [
                r#"{ .pid = 4242, .comm = "worker\"1", .state = BROKEN, .mac = { 0, 1, 2, 3, 254, 255 }, .low = 5, "#,
                ".middle = -2, .high = 2748, .on = true, ",
                &format!("{{ .whole = 8589934593, {{ .a = {a}, .b = {b} }} }}, .load = 0.25, "),
                ".path = 0xffff800000001000, .next = 0x0, .handler = 0x1, .matrix = { { 1, -2, 3 }, { -4, 5, -6 } }, ",
                ".rows = 0x0, .opaque = 0x0, .any = 0xdeadbeef }",
            ]
            .concat()
        );
    });
}

#[test]
fn a_short_value_shows_what_is_there() {
    each(|btf| {
        let event = event(btf.endian());
        let text = btf.value_text(id_of(btf, Kind::STRUCT, "event"), &event[..23], &Limits::default());
        assert!(text.starts_with(r#"{ .pid = 4242, .comm = "worker\"1", .state = ?, .mac = { ?, ?"#), "{text}");
        let few = Limits { elements: 2, depth: 1, chars: 1024 };
        let matrix = btf.find(Kind::STRUCT, b"event").unwrap().members().nth(13).unwrap().type_id;
        assert_eq!(btf.value_text(matrix, &event[80..104], &few), "{ ..., ... }");
        assert_eq!(
            btf.value_text(matrix, &event[80..104], &Limits { depth: 2, ..few }),
            "{ { 1, -2, ... }, { -4, 5, ... } }"
        );
        let brief = Limits { chars: 20, ..Limits::default() };
        let text = btf.value_text(id_of(btf, Kind::STRUCT, "event"), &event, &brief);
        assert!(text.ends_with(", ... }") && text.len() < 60, "{text}");
    });
}

#[test]
fn metadata_comes_out_of_rodata() {
    each(|btf| {
        let rodata = id_of(btf, Kind::DATASEC, ".rodata");
        // The compiler leaves offsets to the loader, which puts `limit` first.
        let variables: Vec<_> = btf.variables(rodata).map(|v| (v.name, v.size_bytes)).collect();
        assert_eq!(variables, [(b"limit".as_slice(), 8), (b"bpf_metadata_version", 6)]);
        assert_eq!(btf.metadata(rodata, b"1.2.3\0\0\0"), [(b"version".as_slice(), "\"1.2.3\"".to_owned())]);
        assert_eq!(btf.metadata(rodata, b"1.2"), []);
    });
}
