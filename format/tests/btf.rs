//! The BTF of clang for `data/types.bpf.c`, in both byte orders, compared with this source.
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

/// Bytes of a `struct event` as the compiler lays it out for a machine of this byte order.
fn event(endian: Endian) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut w = Writer::new(&mut bytes, endian);
    w.u32(4242).bytes(b"worker\"1\0\0\0\0\0\0\0\0").u32(-3i32 as u32).bytes(&[0, 1, 2, 3, 0xfe, 0xff]);
    // low = 5, middle = -2 and, 2 bytes later, high = 0xabc: filled from the least significant bit (little-endian) or from the most significant bit.
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
        // The compiler does not set offsets; the loader places `limit` first.
        let variables: Vec<_> = btf.variables(rodata).map(|v| (v.name, v.size_bytes)).collect();
        assert_eq!(variables, [(b"limit".as_slice(), 8), (b"bpf_metadata_version", 6)]);
        assert_eq!(btf.metadata(rodata, b"1.2.3\0\0\0"), [(b"version".as_slice(), "\"1.2.3\"".to_owned())]);
        assert_eq!(btf.metadata(rodata, b"1.2"), []);
    });
}
