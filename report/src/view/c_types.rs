//! BTF types as C declarations.

use bprec_format::bpf::btf::{Btf, Kind, Type};
use std::cell::Cell;
use std::collections::{BTreeSet, VecDeque};

/// Limit on the types in one declaration, and on the types that [`definitions`] visits: references may be endless. `...` replaces the rest.
const MAX_TYPES: usize = 400;

/// Limit on the definitions that follow a type; `...` replaces the rest.
const MAX_DEFINITIONS: usize = 64;

/// Limit on the nesting depth of structs and parameter lists; a deeper struct or list becomes `...`.
const MAX_NESTING: usize = 16;

/// Limit on the printed bytes of one declaration; `...` replaces the rest.
const MAX_TEXT_BYTES: usize = 8192;

/// Limit on the printed bytes of a name: the kernel's own limit on symbol names.
const MAX_NAME_BYTES: usize = 512;

/// Limit on the references followed from one type, because references may be cyclic.
const MAX_HOPS: usize = 32;

/// Name of a type as in a C cast: `struct event *`, `u32`, `char[16]`, `int (*)(void *)`. A struct without a name is printed with its members. Bytes
/// that are not UTF-8 are replaced.
pub(super) fn type_name(btf: &Btf<'_>, id: u32) -> String {
    DeclarationPrinter::new(btf).declare(id, String::new())
}

/// Definition of a type, followed by the definitions of the types that it contains by value, each once. Only named structs, unions and enums have a
/// definition, and typedefs of structs, unions and enums.
pub(super) fn definitions(btf: &Btf<'_>, id: u32) -> Vec<String> {
    let mut defined = vec![definition(btf, id)];
    // `seen`: visited types. `inside`: types still to visit. An unnamed type is already printed in the definition around it.
    let (mut seen, mut inside) = (BTreeSet::from([id]), VecDeque::from([id]));
    while let Some(at) = inside.pop_front() {
        if seen.len() > MAX_TYPES || defined.len() > MAX_DEFINITIONS {
            defined.push("...".to_owned());
            break;
        }
        for part in parts(btf, at) {
            let Some(held) = btf.type_by_id(part).filter(|_| seen.insert(part)) else { continue };
            let is_defined = match held.kind() {
                Kind::STRUCT | Kind::UNION | Kind::ENUM | Kind::ENUM64 => held.name().is_some(),
                Kind::TYPEDEF => is_compound(btf, part),
                _ => false,
            };
            if is_defined {
                defined.push(definition(btf, part));
            }
            if is_defined || held.kind() != Kind::TYPEDEF {
                inside.push_back(part);
            }
        }
    }
    defined
}

/// Ids of the types that a type directly contains by value; for a typedef or qualifier, the id of its target.
fn parts(btf: &Btf<'_>, id: u32) -> Vec<u32> {
    let Some(found) = btf.type_by_id(id) else { return Vec::new() };
    match found.kind() {
        Kind::STRUCT | Kind::UNION => found.members().take(MAX_TYPES).map(|member| member.type_id).collect(),
        Kind::DATASEC => btf.variables(id).take(MAX_TYPES).map(|variable| variable.type_id).collect(),
        Kind::ARRAY => found.array().map(|array| array.element).into_iter().collect(),
        kind if kind.is_modifier() => found.target().into_iter().collect(),
        _ => Vec::new(),
    }
}

/// Returns true if the type behind typedefs, qualifiers and arrays is a struct, union or enum.
fn is_compound(btf: &Btf<'_>, id: u32) -> bool {
    let mut found = btf.resolve(id);
    for _ in 0..MAX_HOPS {
        match found {
            Some(t) if t.kind() == Kind::ARRAY => found = t.array().and_then(|array| btf.resolve(array.element)),
            Some(t) => return matches!(t.kind(), Kind::STRUCT | Kind::UNION | Kind::ENUM | Kind::ENUM64),
            None => return false,
        }
    }
    false
}

/// Definition of a type on one line: `struct event { u32 pid; char comm[16]; }`. A member with a named type has only the type's name. A typedef,
/// function or variable is printed as its declaration, a section as its variables, and any other type as by [`type_name`].
fn definition(btf: &Btf<'_>, id: u32) -> String {
    let printer = DeclarationPrinter::new(btf);
    let Some(found) = btf.type_by_id(id) else { return type_name(btf, id) };
    match found.kind() {
        Kind::STRUCT | Kind::UNION | Kind::ENUM | Kind::ENUM64 => {
            let head = printer.tagged(&found);
            if found.name().is_none() { head } else { format!("{head} {}", printer.body(&found)) }
        }
        Kind::TYPEDEF => {
            format!("typedef {}", printer.declare(found.target().unwrap_or(0), text(found.name())))
        }
        Kind::FUNC | Kind::VAR => printer.declare(id, text(found.name())),
        Kind::DATASEC => printer.section(&found),
        _ => type_name(btf, id),
    }
}

/// Name for display, cut to [`MAX_NAME_BYTES`].
fn text(name: Option<&[u8]>) -> String {
    let name = name.unwrap_or_default();
    String::from_utf8_lossy(name.get(..MAX_NAME_BYTES).unwrap_or(name)).into_owned()
}

struct DeclarationPrinter<'b, 'a> {
    btf: &'b Btf<'a>,
    types_left: Cell<usize>,
    bytes_left: Cell<usize>,
    nesting_left: Cell<usize>,
}

impl<'b, 'a> DeclarationPrinter<'b, 'a> {
    fn new(btf: &'b Btf<'a>) -> DeclarationPrinter<'b, 'a> {
        DeclarationPrinter {
            btf,
            types_left: Cell::new(MAX_TYPES),
            bytes_left: Cell::new(MAX_TEXT_BYTES),
            nesting_left: Cell::new(MAX_NESTING),
        }
    }

    /// Prints `inner`, or `...` if it is nested too deeply.
    fn nested(&self, inner: impl FnOnce() -> String) -> String {
        let Some(left) = self.nesting_left.get().checked_sub(1) else { return "...".to_owned() };
        self.nesting_left.set(left);
        let out = inner();
        self.nesting_left.set(left + 1);
        out
    }

    /// Counts one type and `text_bytes` against the limits. Returns false if a limit is exceeded.
    fn spend(&self, text_bytes: usize) -> bool {
        let types = self.types_left.get().checked_sub(1);
        let bytes = self.bytes_left.get().checked_sub(text_bytes);
        self.types_left.set(types.unwrap_or(0));
        self.bytes_left.set(bytes.unwrap_or(0));
        types.is_some() && bytes.is_some()
    }

    /// Declaration of a name `inner` with the type `id`, built from the inside out as in C. If `inner` is empty, the bare type.
    fn declare(&self, mut id: u32, mut inner: String) -> String {
        let mut qualifiers = String::new();
        let base = loop {
            if !self.spend(0) {
                break "...".to_owned();
            }
            let Some(found) = self.btf.type_by_id(id) else {
                break if id == 0 { "void".to_owned() } else { format!("<type {id}>") };
            };
            let target = found.target().unwrap_or(0);
            match found.kind() {
                Kind::CONST | Kind::VOLATILE | Kind::RESTRICT => {
                    let word = match found.kind() {
                        Kind::CONST => "const",
                        Kind::VOLATILE => "volatile",
                        _ => "restrict",
                    };
                    if self.unqualified_kind(target) == Some(Kind::PTR) {
                        inner = join(word, &inner);
                    } else if !qualifiers.split(' ').any(|q| q == word) {
                        // An array and its elements may both be const; the qualifier is printed once.
                        qualifiers.push_str(word);
                        qualifiers.push(' ');
                    }
                    id = target;
                }
                Kind::TYPE_TAG | Kind::FUNC | Kind::VAR => id = target,
                Kind::PTR => {
                    inner.insert(0, '*');
                    if matches!(self.unqualified_kind(target), Some(Kind::ARRAY | Kind::FUNC_PROTO)) {
                        inner = format!("({inner})");
                    }
                    id = target;
                }
                Kind::ARRAY => {
                    let Some(array) = found.array() else { break "...".to_owned() };
                    inner.push_str(&format!("[{}]", array.len));
                    id = array.element;
                }
                Kind::FUNC_PROTO => {
                    inner.push_str(&self.nested(|| self.params(&found)));
                    id = target;
                }
                _ => break self.base(&found),
            }
        };
        if !self.spend(base.len() + inner.len()) {
            return "...".to_owned();
        }
        qualifiers + &join(&base, &inner)
    }

    /// Kind behind qualifiers and tags; a typedef is [`Kind::TYPEDEF`]. `None` if a type is missing or after [`MAX_HOPS`] references.
    fn unqualified_kind(&self, mut id: u32) -> Option<Kind> {
        for _ in 0..MAX_HOPS {
            let found = self.btf.type_by_id(id)?;
            match found.kind() {
                Kind::TYPEDEF => return Some(Kind::TYPEDEF),
                kind if kind.is_modifier() => id = found.target()?,
                kind => return Some(kind),
            }
        }
        None
    }

    fn params(&self, proto: &Type<'_>) -> String {
        let mut out = String::from("(");
        for (n, param) in proto.params().enumerate() {
            if n > 0 {
                out.push_str(", ");
            }
            if param.type_id == 0 && param.name.is_none() {
                out.push_str("...");
            } else {
                out.push_str(&self.declare(param.type_id, text(param.name)));
            }
            if self.types_left.get() == 0 {
                break;
            }
        }
        if out.len() == 1 {
            out.push_str("void");
        }
        out + ")"
    }

    /// Prints the type at the start of a declaration, such as `struct event` or `u32`.
    fn base(&self, found: &Type<'_>) -> String {
        match found.kind() {
            Kind::STRUCT | Kind::UNION | Kind::ENUM | Kind::ENUM64 => self.tagged(found),
            Kind::FWD => format!("{} {}", if found.kind_flag() { "union" } else { "struct" }, text(found.name())),
            kind => match found.name() {
                Some(_) => text(found.name()),
                None => format!("<kind {}>", kind.0),
            },
        }
    }

    /// `struct name`, or a struct without a name with its members; the same for unions and enums.
    fn tagged(&self, found: &Type<'_>) -> String {
        let word = match found.kind() {
            Kind::STRUCT => "struct",
            Kind::UNION => "union",
            _ => "enum",
        };
        let name = if found.name().is_some() { text(found.name()) } else { self.nested(|| self.body(found)) };
        format!("{word} {name}")
    }

    /// Prints a section with its variables.
    fn section(&self, found: &Type<'_>) -> String {
        let mut out = format!("{} {{ ", text(found.name()));
        for variable in self.btf.variables(found.id()) {
            if self.types_left.get() == 0 || self.bytes_left.get() == 0 {
                out.push_str("... ");
                break;
            }
            out.push_str(&self.declare(variable.type_id, text(Some(variable.name))));
            out.push_str("; ");
        }
        out + "}"
    }

    fn body(&self, found: &Type<'_>) -> String {
        if found.vlen() == 0 {
            return "{}".to_owned();
        }
        let mut out = String::from("{ ");
        for member in found.members() {
            if self.types_left.get() == 0 || self.bytes_left.get() == 0 {
                out.push_str("... ");
                break;
            }
            out.push_str(&self.declare(member.type_id, text(member.name)));
            if member.bits > 0 {
                out.push_str(&format!(":{}", member.bits));
            }
            out.push_str("; ");
        }
        for (n, enumerator) in found.enumerators().enumerate() {
            let item = format!("{}{} = {}", if n > 0 { ", " } else { "" }, text(enumerator.name), enumerator.value);
            if !self.spend(item.len()) {
                out.push_str(", ...");
                break;
            }
            out.push_str(&item);
        }
        if !out.ends_with(' ') {
            out.push(' ');
        }
        out + "}"
    }
}

/// Joins a type and a declarator. No blank stands between a type and an array without a name: `char[16]`.
fn join(base: &str, inner: &str) -> String {
    if inner.is_empty() || inner.starts_with('[') { format!("{base}{inner}") } else { format!("{base} {inner}") }
}

#[cfg(test)]
mod tests;
