//! Filters of programs, their functions and maps, as users write them: one grammar for all commands.

use std::convert::Infallible;
use std::fmt;
use std::str::FromStr;

use crate::Glob;
use crate::bpf::Tag;

/// Filter of programs: id, tag, or name pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgFilter {
    /// Id of the program.
    Id(u32),
    /// Tag of the program: sixteen hexadecimal digits, with or without `tag:` in front.
    Tag(Tag),
    /// Pattern for the name.
    Name(Glob),
}

impl ProgFilter {
    /// Returns true if a program with these properties matches.
    pub fn matches(&self, id: Option<u32>, tag: Option<Tag>, name: &str) -> bool {
        match self {
            ProgFilter::Id(wanted) => id == Some(*wanted),
            ProgFilter::Tag(wanted) => tag == Some(*wanted),
            ProgFilter::Name(pattern) => pattern.matches(name),
        }
    }
}

impl FromStr for ProgFilter {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<ProgFilter, &'static str> {
        let digits = text.strip_prefix(TAG);
        match (digits.unwrap_or(text), u64::from_str_radix(digits.unwrap_or(text), 16)) {
            (digits, Ok(tag)) if digits.len() == 16 => Ok(ProgFilter::Tag(Tag(tag.to_be_bytes()))),
            _ if digits.is_some() => Err("a tag has 16 hexadecimal digits"),
            ("", _) => Err("expected an id, a tag of 16 hexadecimal digits, or a name"),
            _ => Ok(text.parse().map_or_else(|_| ProgFilter::Name(Glob::new(text)), ProgFilter::Id)),
        }
    }
}

/// Prefix that marks the rest of a filter as a tag.
const TAG: &str = "tag:";

impl fmt::Display for ProgFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ProgFilter::Id(id) => id.fmt(f),
            ProgFilter::Tag(tag) => tag.fmt(f),
            ProgFilter::Name(pattern) => pattern.fmt(f),
        }
    }
}

/// Filter of functions of programs: `PROG[:FUNC]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FunctionFilter {
    /// Filter of the programs.
    pub program: ProgFilter,
    /// Pattern for names of functions. `None` means the entry function or all functions, depending on the command.
    pub function: Option<Glob>,
}

impl FromStr for FunctionFilter {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<FunctionFilter, &'static str> {
        // Names of programs and functions have no colon.
        let after = if text.starts_with(TAG) { TAG.len() } else { 0 };
        let colon = text[after..].find(':').map_or(text.len(), |at| after + at);
        let function = text.get(colon + 1..).filter(|name| !name.is_empty());
        Ok(FunctionFilter { program: text[..colon].parse()?, function: function.map(Glob::new) })
    }
}

impl fmt::Display for FunctionFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.program.fmt(f)?;
        self.function.as_ref().map_or(Ok(()), |function| write!(f, ":{function}"))
    }
}

/// Filter of maps: id or name pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MapFilter {
    /// Id of a map.
    Id(u32),
    /// Pattern for the name.
    Name(Glob),
}

impl MapFilter {
    /// Returns true if a map matches.
    pub fn matches(&self, id: u32, name: &str) -> bool {
        match self {
            MapFilter::Id(wanted) => *wanted == id,
            MapFilter::Name(pattern) => pattern.matches(name),
        }
    }
}

impl FromStr for MapFilter {
    type Err = Infallible;

    fn from_str(text: &str) -> Result<MapFilter, Infallible> {
        Ok(text.parse().map_or_else(|_| MapFilter::Name(Glob::new(text)), MapFilter::Id))
    }
}

impl fmt::Display for MapFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MapFilter::Id(id) => id.fmt(f),
            MapFilter::Name(pattern) => pattern.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A_TAG: Tag = Tag([0x8b, 0x74, 0x81, 0x2d, 0xd2, 0x97, 0x65, 0x5f]);

    #[test]
    fn programs_have_ids_tags_and_names() {
        for (text, filter) in [
            ("12", Ok(ProgFilter::Id(12))),
            ("8b74812dd297655f", Ok(ProgFilter::Tag(A_TAG))),
            ("tag:8b74812dd297655f", Ok(ProgFilter::Tag(A_TAG))),
            ("heavy*", Ok(ProgFilter::Name(Glob::new("heavy*")))),
            ("tag:8b74", Err("a tag has 16 hexadecimal digits")),
            ("", Err("expected an id, a tag of 16 hexadecimal digits, or a name")),
        ] {
            assert_eq!(text.parse::<ProgFilter>(), filter, "{text}");
        }
        let filter: ProgFilter = "tag:8b74812dd297655f".parse().unwrap();
        assert!(filter.matches(None, Some(A_TAG), "") && !filter.matches(Some(12), None, "8b74812dd297655f"));
    }

    #[test]
    fn functions_follow_their_program() {
        for (text, program, function) in [
            ("a*", "a*", None),
            ("a*:", "a*", None),
            ("a*:mix?", "a*", Some("mix?")),
            ("7:f", "7", Some("f")),
            ("tag:8b74812dd297655f", "8b74812dd297655f", None),
            ("tag:8b74812dd297655f:f", "8b74812dd297655f", Some("f")),
        ] {
            let FunctionFilter { program: of, function: named } = text.parse().unwrap();
            assert_eq!((of.to_string().as_str(), named.as_ref().map(Glob::as_str)), (program, function), "{text}");
        }
        assert!(":f".parse::<FunctionFilter>().is_err() && "tag:f".parse::<FunctionFilter>().is_err());
    }
}
