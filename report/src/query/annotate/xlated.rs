//! BPF instructions as text, in the form of the verifier's log and bpftool.

use bprec_format::bpf::Insn;
use std::borrow::Cow;

/// Number in an instruction that may have a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Operand {
    /// Id of a map.
    Map(u32),
    /// Index of a function of the program.
    Function(u32),
    /// Kernel function that the instruction calls.
    Called {
        /// Slot of the instruction.
        at: u32,
        /// Distance from the kernel's `__bpf_call_base`; for a kfunc on architectures with far calls, the kfunc's BTF id.
        imm: i32,
        is_kfunc: bool,
    },
    /// Kernel address.
    Address(u64),
}

const CLASS: u8 = 0x07;
const LD: u8 = 0x00;
const LDX: u8 = 0x01;
const ST: u8 = 0x02;
const STX: u8 = 0x03;
const ALU: u8 = 0x04;
const JMP: u8 = 0x05;
const JMP32: u8 = 0x06;
const ALU64: u8 = 0x07;
/// The second operand is a register, not a number.
const BY_REGISTER: u8 = 0x08;

const MODE: u8 = 0xe0;
const ABS: u8 = 0x20;
const IND: u8 = 0x40;
const MEM: u8 = 0x60;
const MEM_SIGNED: u8 = 0x80;
const ATOMIC: u8 = 0xc0;
/// Opcode of a speculation barrier: class ST with the mode bits of ATOMIC.
const NO_SPECULATION: u8 = 0xc2;

const MOV: u8 = 0xb0;
const NEG: u8 = 0x80;
const DIV: u8 = 0x30;
const MOD: u8 = 0x90;
const END: u8 = 0xd0;

const JA: u8 = 0x00;
const CALL: u8 = 0x80;
const EXIT: u8 = 0x90;
const MAY_GOTO: u8 = 0xe0;

/// Value of the `off` field of a move that computes the address of this CPU's instance of a variable.
const PER_CPU: i16 = -1;
/// Value of the `off` field of a move between address spaces.
const ADDRESS_SPACE: i16 = 1;

/// Returns the text of the instruction in slot `at`. `second` is the next slot; `name` looks up names of numbers.
pub(super) fn text(at: u32, insn: &Insn, second: Option<Insn>, name: &dyn Fn(Operand) -> Option<String>) -> String {
    let known = match insn.code & CLASS {
        LD => load(insn, second, name),
        LDX => load_memory(insn),
        ST | STX => store(insn),
        JMP | JMP32 => jump(at, insn, name),
        _ => arithmetic(insn),
    };
    known.unwrap_or_else(|| unknown(insn))
}

/// Returns true if the kernel's compiler may generate no code for an instruction.
pub(super) fn may_be_left_out(insn: &Insn) -> bool {
    match (insn.code & CLASS, insn.code & 0xf0) {
        (JMP | JMP32, JA) | (JMP, MAY_GOTO) => true,
        (ALU | ALU64, END) => true,
        _ => insn.code == NO_SPECULATION,
    }
}

/// Returns all fields of an unknown instruction as text.
fn unknown(insn: &Insn) -> String {
    let Insn { code, dst, src, off, imm } = insn;
    format!("unknown code {code:#04x} dst {dst} src {src} off {off} imm {imm}")
}

fn size(code: u8) -> &'static str {
    ["u32", "u16", "u8", "u64"][usize::from(code >> 3 & 3)]
}

/// Memory operand: `*(u64 *)(r10 -8)`.
fn memory(size: &str, register: u8, off: i16) -> String {
    format!("*({size} *)(r{register} {off:+})")
}

fn load(insn: &Insn, second: Option<Insn>, name: &dyn Fn(Operand) -> Option<String>) -> Option<String> {
    let (dst, src, imm) = (insn.dst, insn.src, insn.imm);
    match insn.code & MODE {
        _ if insn.is_wide() => {
            let high = second?.imm.cast_unsigned();
            let map = || {
                let id = imm.cast_unsigned();
                name(Operand::Map(id)).map_or_else(|| format!("map[id:{id}]"), |name| format!("map[id:{id} {name}]"))
            };
            let value = match src {
                Insn::PSEUDO_MAP => map(),
                Insn::PSEUDO_MAP_VALUE => format!("{}[0]+{high}", map()),
                Insn::PSEUDO_FUNC => match name(Operand::Function(high)) {
                    Some(name) => format!("subprog[{imm:+}] <{name}>"),
                    None => format!("subprog[{imm:+}]"),
                },
                _ => {
                    let value = u64::from(high) << 32 | u64::from(imm.cast_unsigned());
                    let named = name(Operand::Address(value)).map(|name| format!(" <{name}>"));
                    format!("{value:#x}{}", named.unwrap_or_default())
                }
            };
            Some(format!("r{dst} = {value}"))
        }
        ABS => Some(format!("r0 = *({} *)skb[{imm}]", size(insn.code))),
        IND => Some(format!("r0 = *({} *)skb[r{src} + {imm}]", size(insn.code))),
        _ => None,
    }
}

fn load_memory(insn: &Insn) -> Option<String> {
    let size: Cow<'static, str> = match insn.code & MODE {
        MEM => size(insn.code).into(),
        MEM_SIGNED => size(insn.code).replace('u', "s").into(),
        _ => return None,
    };
    Some(format!("r{} = {}", insn.dst, memory(&size, insn.src, insn.off)))
}

fn store(insn: &Insn) -> Option<String> {
    let to = || memory(size(insn.code), insn.dst, insn.off);
    match (insn.code & CLASS, insn.code & MODE) {
        (STX, MEM) => Some(format!("{} = r{}", to(), insn.src)),
        (ST, MEM) => Some(format!("{} = {}", to(), insn.imm)),
        (STX, ATOMIC) => atomic(insn),
        _ if insn.code == NO_SPECULATION => Some("nospec".to_owned()),
        _ => None,
    }
}

fn atomic(insn: &Insn) -> Option<String> {
    /// Flag of an atomic instruction. With it, the instruction stores the old value of the memory in the source register.
    const FETCH: i32 = 1;
    let Insn { code, dst, src, off, imm } = *insn;
    let place = format!("({} *)(r{dst} {off:+})", size(code));
    let wide = if size(code) == "u64" { "64" } else { "" };
    Some(match imm {
        0x00 => format!("lock *{place} += r{src}"),
        0x40 => format!("lock *{place} |= r{src}"),
        0x50 => format!("lock *{place} &= r{src}"),
        0xa0 => format!("lock *{place} ^= r{src}"),
        0xe1 => format!("r{src} = atomic{wide}_xchg({place}, r{src})"),
        0xf1 => format!("r0 = atomic{wide}_cmpxchg({place}, r0, r{src})"),
        0x100 => format!("r{dst} = load_acquire(({} *)(r{src} {off:+}))", size(code)),
        0x110 => format!("store_release({place}, r{src})"),
        _ if imm & FETCH != 0 => {
            let operation = match imm & !FETCH {
                0x00 => "add",
                0x40 => "or",
                0x50 => "and",
                0xa0 => "xor",
                _ => return None,
            };
            format!("r{src} = atomic{wide}_fetch_{operation}({place}, r{src})")
        }
        _ => return None,
    })
}

fn arithmetic(insn: &Insn) -> Option<String> {
    let Insn { code, dst, src, off, imm } = *insn;
    let is_narrow = code & CLASS == ALU;
    let register = if is_narrow { 'w' } else { 'r' };
    let second = || if code & BY_REGISTER != 0 { format!("{register}{src}") } else { imm.to_string() };
    let operation = code & 0xf0;
    let sign = if off == 1 && matches!(operation, DIV | MOD) { "s" } else { "" };
    let operator = match operation {
        NEG => return Some(format!("{register}{dst} = -{register}{dst}")),
        END => {
            let kind = match (is_narrow, code & BY_REGISTER) {
                (false, _) => "bswap",
                (true, 0) => "le",
                (true, _) => "be",
            };
            return Some(format!("r{dst} = {kind}{imm} r{dst}"));
        }
        MOV if code & BY_REGISTER != 0 && off != 0 => {
            return Some(match off {
                PER_CPU if !is_narrow => format!("r{dst} = &(void __percpu *)(r{src})"),
                ADDRESS_SPACE if !is_narrow => {
                    let (to, from) = (imm.cast_unsigned() >> 16, imm & 0xffff);
                    format!("r{dst} = addr_space_cast(r{src}, {to}, {from})")
                }
                bits => format!("{register}{dst} = (s{bits}){register}{src}"),
            });
        }
        0x00 => "+=",
        0x10 => "-=",
        0x20 => "*=",
        DIV => "/=",
        0x40 => "|=",
        0x50 => "&=",
        0x60 => "<<=",
        0x70 => ">>=",
        MOD => "%=",
        0xa0 => "^=",
        MOV => "=",
        0xc0 => "s>>=",
        _ => return None,
    };
    Some(format!("{register}{dst} {sign}{operator} {}", second()))
}

fn jump(at: u32, insn: &Insn, name: &dyn Fn(Operand) -> Option<String>) -> Option<String> {
    let Insn { code, dst, src, off, imm } = *insn;
    let is_narrow = code & CLASS == JMP32;
    match code & 0xf0 {
        CALL if insn.is_call() => return Some(call(at, insn, name)),
        JA if code & BY_REGISTER != 0 => return Some(format!("gotox r{dst}")),
        JA if is_narrow => return Some(format!("gotol pc{imm:+}")),
        JA => return Some(format!("goto pc{off:+}")),
        EXIT => return Some("exit".to_owned()),
        MAY_GOTO => return Some(format!("may_goto pc{off:+}")),
        _ => {}
    }
    let register = if is_narrow { 'w' } else { 'r' };
    let operator = match code & 0xf0 {
        0x10 => "==",
        0x20 => ">",
        0x30 => ">=",
        0x40 => "&",
        0x50 => "!=",
        0x60 => "s>",
        0x70 => "s>=",
        0xa0 => "<",
        0xb0 => "<=",
        0xc0 => "s<",
        0xd0 => "s<=",
        _ => return None,
    };
    let second = if code & BY_REGISTER != 0 { format!("{register}{src}") } else { format!("{imm:#x}") };
    Some(format!("if {register}{dst} {operator} {second} goto pc{off:+}"))
}

/// Returns the text of a call: with the distance to a function of the program, or with the name of a kernel function. `imm` is 0 if the kernel hides
/// it.
fn call(at: u32, insn: &Insn, name: &dyn Fn(Operand) -> Option<String>) -> String {
    let imm = insn.imm;
    if insn.is_tail_call() {
        return format!("call bpf_tail_call#{imm}");
    }
    if insn.src == Insn::PSEUDO_CALL {
        let number = imm.cast_unsigned();
        let named = name(Operand::Function(number)).map(|name| format!(" <{name}>"));
        return format!("call pc{:+}{}", insn.off, named.unwrap_or_default());
    }
    let called = name(Operand::Called { at, imm, is_kfunc: insn.src == Insn::PSEUDO_KFUNC_CALL });
    match (called, imm) {
        (Some(name), 0) => format!("call {name}"),
        (Some(name), _) => format!("call {name}#{imm}"),
        (None, 0) => "call ?".to_owned(),
        (None, _) => format!("call #{imm}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insn(code: u8, dst: u8, src: u8, off: i16, imm: i32) -> Insn {
        Insn { code, dst, src, off, imm }
    }

    fn shown(insn: Insn) -> String {
        text(0, &insn, Some(self::insn(0, 0, 0, 0, 1)), &|_| None)
    }

    /// Forms of instructions that no recorded listing of bpftool has; the expected text follows the kernel's `Documentation/bpf` and its
    /// disassembler.
    #[test]
    fn every_form_has_its_text() {
        for (insn, expected) in [
            (insn(0xbc, 1, 2, 0, 0), "w1 = w2"),
            (insn(0xbf, 1, 2, 16, 0), "r1 = (s16)r2"),
            (insn(0xbc, 1, 2, 8, 0), "w1 = (s8)w2"),
            (insn(0xbf, 1, 2, -1, 0), "r1 = &(void __percpu *)(r2)"),
            (insn(0xbf, 1, 2, 1, 1 << 16), "r1 = addr_space_cast(r2, 1, 0)"),
            (insn(0x3f, 1, 2, 1, 0), "r1 s/= r2"),
            (insn(0x94, 1, 0, 1, 7), "w1 s%= 7"),
            (insn(0x97, 1, 0, 0, 7), "r1 %= 7"),
            (insn(0x87, 3, 0, 0, 0), "r3 = -r3"),
            (insn(0xd4, 3, 0, 0, 16), "r3 = le16 r3"),
            (insn(0xdc, 3, 0, 0, 64), "r3 = be64 r3"),
            (insn(0xd7, 3, 0, 0, 32), "r3 = bswap32 r3"),
            (insn(0xc7, 3, 0, 0, 3), "r3 s>>= 3"),
            (insn(0x91, 3, 4, 8, 0), "r3 = *(s8 *)(r4 +8)"),
            (insn(0x30, 0, 0, 0, 23), "r0 = *(u8 *)skb[23]"),
            (insn(0x48, 0, 7, 0, 4), "r0 = *(u16 *)skb[r7 + 4]"),
            (insn(0x62, 10, 0, -4, -1), "*(u32 *)(r10 -4) = -1"),
            (insn(0xc2, 0, 0, 0, 0), "nospec"),
            (insn(0xdb, 1, 2, 0, 0x41), "r2 = atomic64_fetch_or((u64 *)(r1 +0), r2)"),
            (insn(0xc3, 1, 2, 4, 0xe1), "r2 = atomic_xchg((u32 *)(r1 +4), r2)"),
            (insn(0xdb, 1, 2, 0, 0xf1), "r0 = atomic64_cmpxchg((u64 *)(r1 +0), r0, r2)"),
            (insn(0xdb, 1, 2, 8, 0x100), "r1 = load_acquire((u64 *)(r2 +8))"),
            (insn(0xd3, 1, 2, 8, 0x110), "store_release((u8 *)(r1 +8), r2)"),
            (insn(0xc3, 1, 2, 8, 0xa0), "lock *(u32 *)(r1 +8) ^= r2"),
            (insn(0x05, 0, 0, -5, 0), "goto pc-5"),
            (insn(0x06, 0, 0, 0, 70_000), "gotol pc+70000"),
            (insn(0x0d, 4, 0, 0, 0), "gotox r4"),
            (insn(0xe5, 0, 0, 3, 0), "may_goto pc+3"),
            (insn(0xc6, 4, 0, 3, -1), "if w4 s< 0xffffffff goto pc+3"),
            (insn(0x4d, 4, 5, 3, 0), "if r4 & r5 goto pc+3"),
            (insn(0x85, 0, 1, 8, 1), "call pc+8"),
            (insn(0x85, 0, 0, 0, 0), "call ?"),
            (insn(0x85, 0, 2, 0, 77), "call #77"),
            (insn(0x85, 0, 0, 0, 12), "call bpf_tail_call#12"),
            (insn(0x18, 2, 4, 0, 24), "r2 = subprog[+24]"),
            (insn(0x18, 2, 2, 0, 9), "r2 = map[id:9][0]+1"),
            (insn(0x18, 2, 0, 0, -1), "r2 = 0x1ffffffff"),
            (insn(0xff, 1, 2, 3, 4), "unknown code 0xff dst 1 src 2 off 3 imm 4"),
        ] {
            assert_eq!(shown(insn), expected);
        }
    }

    #[test]
    fn numbers_have_names_where_they_are_known() {
        let name = |operand: Operand| {
            Some(match operand {
                Operand::Map(id) => format!("map {id}"),
                Operand::Function(number) => format!("function {number}"),
                Operand::Called { at, imm, is_kfunc } => format!("{at}_{imm}_{is_kfunc}"),
                Operand::Address(_) => return None,
            })
        };
        let text = |insn: Insn| text(7, &insn, Some(self::insn(0, 0, 0, 0, 3)), &name);
        assert_eq!(text(insn(0x18, 1, 1, 0, 4)), "r1 = map[id:4 map 4]");
        assert_eq!(text(insn(0x18, 2, 4, 0, 24)), "r2 = subprog[+24] <function 3>");
        assert_eq!(text(insn(0x85, 0, 1, -8, 1)), "call pc-8 <function 1>");
        assert_eq!(text(insn(0x85, 0, 2, 0, 5)), "call 7_5_true#5");
    }

    /// Every instruction has a text.
    #[test]
    fn no_instruction_is_a_surprise() {
        for code in 0..=u8::MAX {
            for imm in [0, 1, 0x41, 0xe1, 0x100, i32::MIN] {
                for off in [0, 1, -1, i16::MIN] {
                    let insn = insn(code, 15, 15, off, imm);
                    assert!(!text(0, &insn, None, &|_| None).is_empty());
                    may_be_left_out(&insn);
                }
            }
        }
    }

    #[test]
    fn jumps_swaps_and_barriers_may_be_left_out() {
        let left_out: Vec<u8> = (0..=u8::MAX).filter(|code| may_be_left_out(&insn(*code, 0, 0, 0, 0))).collect();
        assert_eq!(left_out, [0x05, 0x06, 0x0d, 0x0e, 0xc2, 0xd4, 0xd7, 0xdc, 0xdf, 0xe5, 0xed]);
    }
}
