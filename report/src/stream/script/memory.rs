//! A memory access as the hardware described it (`perf_mem_data_src`), in the words that perf has for it.

use std::fmt::Write;

use super::text::Text;

const LEVELS: [&str; 14] = [
    "N/A",
    "HIT",
    "MISS",
    "L1",
    "LFB/MAB",
    "L2",
    "L3",
    "Local RAM",
    "Remote RAM (1 hop)",
    "Remote RAM (2 hops)",
    "Remote Cache (1 hop)",
    "Remote Cache (2 hops)",
    "I/O",
    "Uncached",
];
/// By number, of hardware that tells it so.
const NUMBERED_LEVELS: [&str; 16] =
    ["", "L1", "L2", "L3", "L4", "L5", "L6", "L7", "L8", "CXL", "I/O", "Any cache", "LFB/MAB", "RAM", "PMEM", "N/A"];
const SNOOPS: [&str; 5] = ["N/A", "None", "Hit", "Miss", "HitM"];
const TLBS: [&str; 7] = ["N/A", "HIT", "MISS", "L1", "L2", "Walker", "Fault"];
const OPERATIONS: [&str; 5] = ["N/A", "LOAD", "STORE", "PFETCH", "EXEC"];

/// Bits of the level and of the TLB that say hit and miss.
const HIT: u64 = 1 << 1;
const MISS: u64 = 1 << 2;
/// No level by number.
const LEVEL_UNKNOWN: u64 = 0xf;

/// Appends operation, level, snoop, TLB, lock and what blocked it.
pub(super) fn describe(out: &mut Text, data_src: u64) {
    let field = |at: u32, width: u32| data_src >> at & ((1 << width) - 1);
    out.push_str("|OP ");
    let operation = field(0, 5);
    out.push_str(set(operation, &OPERATIONS).next().unwrap_or("No"));
    out.push_str("|LVL ");
    let (level, number) = (field(5, 14), field(33, 4));
    if field(37, 1) != 0 {
        out.push_str("Remote ");
    }
    if number == 0 || number == LEVEL_UNKNOWN {
        join(out, level, &LEVELS);
    } else {
        out.push_str(NUMBERED_LEVELS[number as usize]);
    }
    hit_or_miss(out, level);
    out.push_str("|SNP ");
    let (snoop, further) = (field(19, 5), field(38, 2));
    match further {
        0 => join(out, snoop, &SNOOPS),
        _ => out.push_str(if further & 1 != 0 { "Fwd" } else { "Peer" }),
    }
    out.push_str("|TLB ");
    let tlb = field(26, 7);
    join(out, tlb, &TLBS);
    hit_or_miss(out, tlb);
    let lock = match field(24, 2) {
        0 => "No",
        lock if lock & 1 != 0 => "N/A",
        _ => "Yes",
    };
    let blocked = match field(40, 3) {
        blocked if blocked & 2 != 0 => "Data",
        blocked if blocked & 4 != 0 => "Addr",
        _ => "N/A",
    };
    // Writing to a string cannot fail.
    let _ = write!(out, "|LCK {lock}|BLK  {blocked}");
}

/// The names of the bits that are set.
fn set<'n>(bits: u64, names: &'n [&'n str]) -> impl Iterator<Item = &'n str> {
    names.iter().enumerate().filter(move |(at, _)| bits >> at & 1 != 0).map(|(_, name)| *name)
}

/// Those names, but for hit and miss, which follow.
fn join(out: &mut Text, bits: u64, names: &[&'static str]) {
    let is_level = names.len() > SNOOPS.len();
    let shown: Vec<&str> = set(if is_level { bits & !(HIT | MISS) } else { bits }, names).collect();
    out.push_str(if shown.is_empty() { "N/A" } else { "" });
    let _ = write!(out, "{}", shown.join(" or "));
}

fn hit_or_miss(out: &mut Text, bits: u64) {
    for (bit, text) in [(HIT, " hit"), (MISS, " miss")] {
        if bits & bit != 0 {
            out.push_str(text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What perf prints for values that processors give.
    #[test]
    fn accesses_are_described_as_by_perf() {
        let text = |data_src| {
            let mut out = Text::default();
            describe(&mut out, data_src);
            String::from_utf8_lossy(out.as_bytes()).into_owned()
        };
        assert_eq!(text(0x508_0021), "|OP N/A|LVL N/A|SNP N/A|TLB N/A|LCK N/A|BLK  N/A");
        assert_eq!(text(0x6810_0142), "|OP LOAD|LVL L1 hit|SNP None|TLB L1 or L2 hit|LCK No|BLK  N/A");
    }
}
