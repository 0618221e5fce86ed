//! Demangling of function names. A recording's names are untrusted: they are parsed to a limited depth and written to a limited length, both far
//! beyond real names.

use std::borrow::Cow;
use std::fmt::{self, Write};

use crate::Options;
use cpp_demangle::{BorrowedSymbol, DemangleOptions, ParseOptions};

/// Limit on the length of a mangled name; a longer name stays as it is.
const MANGLED_MAX_BYTES: usize = 8 << 10;
/// Limit on the length of a demangled name; beyond it the mangled name stays.
const TEXT_MAX_BYTES: usize = 16 << 10;
/// Limit on the nesting depth of C++ names.
const DEPTH_MAX: u32 = 96;

/// Demangles a function name: Rust without the hash, C++ without parameters. Any other name stays as it is.
pub(crate) fn demangled(name: &[u8]) -> Cow<'_, [u8]> {
    rust(name).or_else(|| cpp(name)).map_or(Cow::Borrowed(name), |text| Cow::Owned(text.into_bytes()))
}

/// Returns the name of a function of a file: as it is with `keep_mangled`, otherwise demangled.
pub(crate) fn function_name(name: &[u8], options: &Options) -> String {
    let name = if options.keep_mangled { name.into() } else { demangled(name) };
    String::from_utf8_lossy(&name).into_owned()
}

fn rust(name: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(name).ok().filter(|name| name.starts_with("_R") || name.starts_with("_ZN"))?;
    let name = Some(name).filter(|name| name.len() <= MANGLED_MAX_BYTES)?;
    let name = rustc_demangle::try_demangle(name).ok()?;
    let mut text = Bounded::default();
    write!(text, "{name:#}").ok()?;
    Some(text.0)
}

fn cpp(name: &[u8]) -> Option<String> {
    if !name.starts_with(b"_Z") || name.len() > MANGLED_MAX_BYTES {
        return None;
    }
    // The compiler appends suffixes: `.cold`, `.constprop.0`.
    let (name, suffix) = name.split_at(name.iter().position(|byte| *byte == b'.').unwrap_or(name.len()));
    let limits = ParseOptions::default().recursion_limit(DEPTH_MAX);
    let (symbol, rest) = BorrowedSymbol::with_tail_and_options(name, &limits).ok()?;
    if !rest.is_empty() {
        return None;
    }
    let options = DemangleOptions::new().no_params().no_return_type().recursion_limit(DEPTH_MAX);
    let mut text = Bounded::default();
    symbol.structured_demangle(&mut text, &options).ok()?;
    text.write_str(std::str::from_utf8(suffix).ok()?).ok()?;
    Some(text.0)
}

/// Text limited to [`TEXT_MAX_BYTES`].
#[derive(Default)]
struct Bounded(String);

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if self.0.len() + text.len() > TEXT_MAX_BYTES {
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(mangled: &str) -> String {
        String::from_utf8_lossy(&demangled(mangled.as_bytes())).into_owned()
    }

    /// Names as `c++filt -p` and `rustfilt` print them.
    #[test]
    fn names_are_those_of_their_language() {
        for (mangled, expected) in [
            ("_ZN5outer6Worker4workEi", "outer::Worker::work"),
            ("_ZNSt6vectorIiSaIiEE9push_backERKi", "std::vector<int, std::allocator<int> >::push_back"),
            ("_Z3addIiET_S0_S0_", "add<int>"),
            ("_ZN5outer6Worker4workEi.constprop.0", "outer::Worker::work.constprop.0"),
            ("_ZN4core3fmt9Formatter3pad17h0123456789abcdefE", "core::fmt::Formatter::pad"),
            ("_RNvCs1234_7mycrate3foo", "mycrate::foo"),
            ("main", "main"),
            ("_Z", "_Z"),
            ("_ZN5oute", "_ZN5oute"),
            ("", ""),
        ] {
            assert_eq!(name(mangled), expected, "{mangled}");
        }
        assert_eq!(demangled(b"_Z\xff\0"), &b"_Z\xff\0"[..]);
    }

    /// Names of extreme depth, length and repetition, on the small stack of a thread.
    #[test]
    fn names_that_are_made_to_hurt_stay_as_they_are_or_short() {
        let deep = |open: &str, inner: &str, close: &str, count: usize| {
            format!("_Z{}{inner}{}", open.repeat(count), close.repeat(count))
        };
        let mut names = vec![
            deep("1fI", "i", "E", 2000),
            format!("_Z1f{}i", "P".repeat(7000)),
            format!("_Z1f{}", "DTcl".repeat(1500)),
            format!("_R{}", "NvC".repeat(2000)),
            format!("_RINv{}", "T".repeat(5000)),
            "_Z".to_owned() + &"N".repeat(100_000),
        ];
        // Each argument contains a substitution twice, so the demangled name may double with each argument.
        let doubling: String = (0..60).map(|at| format!("1aIS{0}_S{0}_E", char::from(b'0' + at % 10))).collect();
        names.push(format!("_Z1fI1aIiiE{doubling}E"));
        let pairs = (0..200).map(|at| format!("St4pairIS{}_S{}_E", at, at)).collect::<String>();
        names.push(format!("_Z1fSt4pairIiiE{pairs}"));
        for mangled in names {
            let text = name(&mangled);
            assert!(text == mangled || text.len() <= TEXT_MAX_BYTES, "{} bytes", text.len());
        }
    }
}
