//! Lines of real kernels, and lines that nobody should trust.
#![allow(clippy::unwrap_used)]

use super::*;

/// Fields of `sched:sched_switch` of Linux 6.1, and its line as tracefs has it.
const SCHED_SWITCH: &str = "name: sched_switch\nID: 316\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:char prev_comm[16];\toffset:8;\tsize:16;\tsigned:0;\n\
    \tfield:pid_t prev_pid;\toffset:24;\tsize:4;\tsigned:1;\n\
    \tfield:int prev_prio;\toffset:28;\tsize:4;\tsigned:1;\n\
    \tfield:long prev_state;\toffset:32;\tsize:8;\tsigned:1;\n\
    \tfield:char next_comm[16];\toffset:40;\tsize:16;\tsigned:0;\n\
    \tfield:pid_t next_pid;\toffset:56;\tsize:4;\tsigned:1;\n\
    \tfield:int next_prio;\toffset:60;\tsize:4;\tsigned:1;\n\n\
    print fmt: \"prev_comm=%s prev_pid=%d prev_prio=%d prev_state=%s%s ==> next_comm=%s next_pid=%d next_prio=%d\", \
    REC->prev_comm, REC->prev_pid, REC->prev_prio, (REC->prev_state & ((((0x00000000 | 0x00000001 | 0x00000002 | \
    0x00000004 | 0x00000008 | 0x00000010 | 0x00000020 | 0x00000040) + 1) << 1) - 1)) ? __print_flags(REC->prev_state & \
    ((((0x00000000 | 0x00000001 | 0x00000002 | 0x00000004 | 0x00000008 | 0x00000010 | 0x00000020 | 0x00000040) + 1) << 1) \
    - 1), \"|\", { 0x00000001, \"S\" }, { 0x00000002, \"D\" }, { 0x00000004, \"T\" }, { 0x00000008, \"t\" }, \
    { 0x00000010, \"X\" }, { 0x00000020, \"Z\" }, { 0x00000040, \"P\" }, { 0x00000080, \"I\" }) : \"R\", \
    REC->prev_state & (((0x00000000 | 0x00000001 | 0x00000002 | 0x00000004 | 0x00000008 | 0x00000010 | 0x00000020 | \
    0x00000040) + 1) << 1) ? \"+\" : \"\", REC->next_comm, REC->next_pid, REC->next_prio\n";

fn sched_switch(state: i64) -> Vec<u8> {
    let mut raw = vec![0; 64];
    raw[8..12].copy_from_slice(b"bash");
    raw[24..28].copy_from_slice(&12i32.to_le_bytes());
    raw[28..32].copy_from_slice(&120i32.to_le_bytes());
    raw[32..40].copy_from_slice(&state.to_le_bytes());
    raw[40..49].copy_from_slice(b"swapper/1");
    raw[60..64].copy_from_slice(&(-1i32).to_le_bytes());
    raw
}

fn shown(format: &str, raw: &[u8]) -> Option<String> {
    let format = EventFormat::parse(format.as_bytes()).unwrap();
    Some(PrintFormat::parse(&format)?.text(raw, Endian::Little))
}

/// A line over the fields `a` (int), `b` (u64), `s` (a string elsewhere) and `mac` (six bytes).
fn line(print_fmt: &str) -> Option<String> {
    let format = format!(
        "name: n\nID: 1\nformat:\n\tfield:int a;\toffset:0;\tsize:4;\tsigned:1;\n\
         \tfield:u64 b;\toffset:8;\tsize:8;\tsigned:0;\n\tfield:__data_loc char[] s;\toffset:16;\tsize:4;\tsigned:0;\n\
         \tfield:u8 mac[6];\toffset:20;\tsize:6;\tsigned:0;\n\nprint fmt: {print_fmt}\n"
    );
    let mut raw = vec![0; 32];
    raw[0..4].copy_from_slice(&(-5i32).to_le_bytes());
    raw[8..16].copy_from_slice(&0x1_0000_0042u64.to_le_bytes());
    raw[16..20].copy_from_slice(&(4u32 << 16 | 28).to_le_bytes());
    raw[20..26].copy_from_slice(&[0, 1, 2, 0xa, 0xb, 0xc]);
    raw[28..32].copy_from_slice(b"abc\0");
    shown(&format, &raw)
}

#[test]
fn a_switch_says_what_the_kernel_says() {
    let text = |state| shown(SCHED_SWITCH, &sched_switch(state)).unwrap();
    let around = |state: &str| {
        format!(
            "prev_comm=bash prev_pid=12 prev_prio=120 prev_state={state} ==> next_comm=swapper/1 next_pid=0 next_prio=-1"
        )
    };
    assert_eq!(text(0), around("R"));
    assert_eq!(text(2), around("D"));
    assert_eq!(text(0x100), around("R+"));
    assert_eq!(text(0x82), around("D|I"));
}

#[test]
fn conversions_are_those_of_printf() {
    let cases = [
        (
            "\"%d|%5d|%-5d|%05d|%+d|%u\", REC->a, REC->a, REC->a, REC->a, 7, REC->a",
            "-5|   -5|-5   |-0005|+7|4294967291",
        ),
        (
            "\"%x|%#x|%llx|%#llx|%hhx|%08x\", REC->b, 0, REC->b, REC->b, REC->b, 0x2a",
            "42|0|100000042|0x100000042|42|0000002a",
        ),
        ("\"%s|%.2s|%5s|%c|%o|100%%\", __get_str(s), __get_str(s), __get_str(s), 0x41, 8", "abc|ab|  abc|A|10|100%"),
        ("\"%*d|%.*s|%.3d\", 4, 7, 1, __get_str(s), 7", "   7|a|007"),
        ("\"%pM %pS\", REC->mac, REC->b", "00:01:02:0a:0b:0c 0x100000042"),
        ("\"one \" \"text\\n\"", "one text\n"),
    ];
    for (format, expected) in cases {
        assert_eq!(line(format).as_deref(), Some(expected), "{format}");
    }
}

#[test]
fn expressions_are_those_of_c() {
    let cases = [
        ("1 + 2 * 3 - 8 / 4 % 3", "5"),
        ("(1 | 6) & ~2 ^ 1 << 4", "21"),
        ("REC->a < 0 ? REC->a + 10 : 0", "5"),
        ("!REC->a || REC->b && 1", "1"),
        ("1 == 1 ? 2 == 3 ? 4 : 5 : 6", "5"),
        ("(u8)REC->a", "251"),
        ("(unsigned int)REC->b", "66"),
        ("-(int)REC->a", "5"),
        ("REC->mac[3]", "10"),
        ("__get_dynamic_array_len(s)", "4"),
        ("sizeof(u32)", "4"),
        ("010 + 0x10UL", "24"),
        // What C leaves open has no value.
        ("1 / 0", "?"),
        ("1 << 64", "?"),
        ("REC->mac[6]", "?"),
    ];
    for (expression, expected) in cases {
        assert_eq!(line(&format!("\"%d\", {expression}")).as_deref(), Some(expected), "{expression}");
    }
    let texts = [
        ("__print_symbolic(REC->b, { 1, \"one\" }, { 0x100000042, \"it\" })", "it"),
        ("__print_symbolic(7, { 1, \"one\" })", "0x7"),
        ("__print_flags(0x15, \"|\", { 1, \"A\" }, { 4, \"C\" })", "A|C|0x10"),
        ("__print_flags(0, \"|\", { 0, \"none\" }, { 4, \"C\" })", "none"),
        ("__print_hex(REC->mac, 3)", "00 01 02"),
        ("__print_array(REC->mac, 2, 1)", "{0x0,0x1}"),
    ];
    for (expression, expected) in texts {
        assert_eq!(line(&format!("\"%s\", {expression}")).as_deref(), Some(expected), "{expression}");
    }
}

#[test]
fn what_is_not_understood_is_left_alone() {
    for format in [
        "",
        "no text",
        "\"%d\"",
        "\"%d\", REC->nothing",
        "\"%d\", some_function(1)",
        "\"%f\", 1",
        "\"%d\", 1 +",
        "\"a",
        "\"\", 1",
    ] {
        assert_eq!(line(format), None, "{format}");
    }
    let deep = format!("\"%d\", {}1{}", "(".repeat(10_000), ")".repeat(10_000));
    assert_eq!(line(&deep), None, "an expression that nests too deep");
    let operators = format!("\"%d\", {}1", "-".repeat(10_000));
    assert_eq!(line(&operators), None);
}
