//! Lists of CPUs, in the format of the kernel and perf: `0-3,8`.

use std::str::FromStr;

/// Exclusive limit on CPU numbers, higher than any kernel supports.
const CPUS_MAX: u32 = 1 << 16;

/// A list of CPUs, ascending and without duplicates; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuList(Vec<u32>);

impl CpuList {
    /// Returns true if the CPU is in the list.
    pub fn contains(&self, cpu: u32) -> bool {
        self.0.binary_search(&cpu).is_ok()
    }
}

impl From<CpuList> for Vec<u32> {
    fn from(list: CpuList) -> Vec<u32> {
        list.0
    }
}

impl FromStr for CpuList {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<CpuList, &'static str> {
        parse_cpu_list(text).filter(|cpus| !cpus.is_empty()).map(CpuList).ok_or("expected a list like 0,2-5")
    }
}

/// Parses a list of numbers in the format of the kernel and perf (`0-3,8`), ascending and without duplicates. An empty text gives an empty list;
/// `None` if the text is malformed or a number exceeds 65,535. Lists of NUMA nodes have the same format.
pub fn parse_cpu_list(text: &str) -> Option<Vec<u32>> {
    let mut cpus = Vec::new();
    let text = text.trim();
    if text.is_empty() {
        return Some(cpus);
    }
    for range in text.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last >= CPUS_MAX {
            return None;
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    cpus.dedup();
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_ranges_gaps_and_each_number_once() {
        assert_eq!(parse_cpu_list("0-3"), Some(vec![0, 1, 2, 3]));
        assert_eq!(parse_cpu_list("0-2,5,7-8\n"), Some(vec![0, 1, 2, 5, 7, 8]));
        assert_eq!(parse_cpu_list("3, 0-1,1"), Some(vec![0, 1, 3]));
        assert_eq!(parse_cpu_list("\n"), Some(vec![]));
        for wrong in ["3-0", "a", "0-4294967295", "0,,1", "0,", "-1", "0-65536"] {
            assert_eq!(parse_cpu_list(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_user_gives_at_least_one_cpu() {
        let cpus: CpuList = "0,2-4".parse().unwrap();
        assert_eq!([0, 1, 2, 3, 4, 5].map(|cpu| cpus.contains(cpu)), [true, false, true, true, true, false]);
        assert!(["4-2", "x", ""].iter().all(|wrong| wrong.parse::<CpuList>().is_err()));
    }
}
