//! That modules of a crate import each other in one direction: no file reaches itself again by what it imports, or, where a crate is
//! large, no folder.
//!
//! An import is a path that starts with `crate::`, `self::` or `super::`, in a `use` or in the code, or with the name of a module of the
//! file's own. A name that a module re-exports counts as an import of where it comes from. Tests are left out.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::tree::files_under;

/// A crate that is checked.
struct Checked {
    root: &'static str,
    /// Its folders in their order: each may import those before it.
    folders: &'static [&'static str],
    /// Whether files of one folder may import each other in both directions.
    folders_only: bool,
}

const CRATES: [Checked; 3] = [
    Checked { root: "host/src", folders: &[], folders_only: false },
    Checked { root: "bpf/src", folders: &["sys", "inspect", "programs"], folders_only: false },
    Checked {
        root: "report/src",
        folders: &["options", "model", "input", "index", "pass", "query", "view", "export", "stream"],
        folders_only: true,
    },
];

/// Checks all crates.
pub(crate) fn check() -> Result<()> {
    let (mut wrong, mut checked) = (Vec::new(), 0);
    for Checked { root, folders, folders_only } in CRATES {
        let mut sources = BTreeMap::new();
        for path in files_under(Path::new(root))? {
            let relative = path.strip_prefix(root)?.display().to_string();
            if relative.ends_with(".rs") && !relative.ends_with("tests.rs") {
                sources.insert(relative, fs::read_to_string(&path).with_context(|| path.display().to_string())?);
            }
        }
        checked += sources.len();
        wrong.extend(faults(&sources, folders, folders_only).into_iter().map(|fault| format!("{root}: {fault}")));
    }
    if !wrong.is_empty() {
        bail!("\n  {}", wrong.join("\n  "));
    }
    println!("{checked} source files import in one direction");
    Ok(())
}

/// Imports of a folder that comes later, and circles of imports unless only folders count.
fn faults(sources: &BTreeMap<String, String>, folders: &[&str], folders_only: bool) -> Vec<String> {
    let crate_of = Crate::of(sources);
    let mut faults = Vec::new();
    for (from, targets) in &crate_of.imports {
        let rank = |file: &str| {
            let folder = crate_of.files.get(file)?.split_once('/')?.0;
            folders.iter().position(|it| *it == folder)
        };
        for to in targets.keys() {
            if rank(from).zip(rank(to)).is_some_and(|(from, to)| from < to) {
                faults.push(format!("{} imports {}", crate_of.files[from], crate_of.files[to]));
            }
        }
    }
    if folders_only {
        return faults;
    }
    let mut done = BTreeSet::new();
    for start in crate_of.imports.keys() {
        let mut path = Vec::new();
        if let Some(circle) = circle(&crate_of.imports, start, &mut path, &mut done) {
            let steps = circle.windows(2).map(|step| {
                let name = &crate_of.imports[&step[0]][&step[1]];
                format!("{} → {} ({name})", crate_of.files[&step[0]], crate_of.files[&step[1]])
            });
            faults.push(format!("imports run in a circle: {}", steps.collect::<Vec<_>>().join(", ")));
        }
    }
    faults
}

/// Imports by module: what is imported, with a path that does it.
type Imports = BTreeMap<String, BTreeMap<String, String>>;

/// The first circle that is met from `at`; modules in `done` are in none.
fn circle(imports: &Imports, at: &str, path: &mut Vec<String>, done: &mut BTreeSet<String>) -> Option<Vec<String>> {
    if let Some(start) = path.iter().position(|it| it == at) {
        return Some(path[start..].iter().cloned().chain([at.to_owned()]).collect());
    }
    if done.contains(at) {
        return None;
    }
    path.push(at.to_owned());
    let found = imports.get(at).into_iter().flatten().find_map(|(to, _)| circle(imports, to, path, done));
    path.pop();
    done.insert(at.to_owned());
    found
}

/// The modules of a crate, each a file, by their paths (`""` is the root, `a::b`).
struct Crate {
    files: BTreeMap<String, String>,
    imports: Imports,
}

/// A path as it is written: its parts, and the name it gets.
struct Written {
    parts: Vec<String>,
    name: String,
}

impl Crate {
    fn of(sources: &BTreeMap<String, String>) -> Crate {
        let mut files = BTreeMap::new();
        for file in sources.keys() {
            let module = file.trim_end_matches(".rs").trim_end_matches("/mod").replace('/', "::");
            files.insert(if module == "lib" || module == "main" { String::new() } else { module }, file.clone());
        }
        let texts: BTreeMap<&String, String> =
            files.iter().map(|(module, file)| (module, code_of(&sources[file]))).collect();
        // Where names come from that a module only passes on.
        let mut exports: BTreeMap<(String, String), Vec<String>> = BTreeMap::new();
        for (module, text) in &texts {
            for statement in statements(text).filter(|it| is_export(it)) {
                for written in tree_of(statement) {
                    if let Some(parts) = absolute(&files, module, &written.parts) {
                        exports.insert(((*module).clone(), written.name), parts);
                    }
                }
            }
        }
        let mut imports = Imports::new();
        for (module, text) in &texts {
            let mut paths: Vec<Vec<String>> = Vec::new();
            let mut rest = text.clone();
            for statement in statements(text) {
                rest = rest.replacen(statement, "", 1);
                if !is_export(statement) {
                    paths.extend(tree_of(statement).into_iter().map(|it| it.parts));
                }
            }
            paths.extend(inline_paths(&rest));
            for parts in paths {
                let Some(parts) = absolute(&files, module, &parts) else { continue };
                let target = resolve(&files, &exports, parts.clone(), 0);
                if target != **module {
                    imports.entry((*module).clone()).or_default().insert(target, parts.join("::"));
                }
            }
        }
        Crate { files, imports }
    }
}

/// The module that a path leads to.
fn resolve(
    files: &BTreeMap<String, String>,
    exports: &BTreeMap<(String, String), Vec<String>>,
    parts: Vec<String>,
    depth: usize,
) -> String {
    const DEPTH_MAX: usize = 8;
    let mut module = String::new();
    for (at, part) in parts.iter().enumerate() {
        let below = if module.is_empty() { part.clone() } else { format!("{module}::{part}") };
        if files.contains_key(&below) {
            module = below;
            continue;
        }
        return match exports.get(&(module.clone(), part.clone())) {
            Some(origin) if depth < DEPTH_MAX => {
                resolve(files, exports, [origin, &parts[at + 1..]].concat(), depth + 1)
            }
            _ => module,
        };
    }
    module
}

/// The path from the root of the crate; `None` for what is of another crate.
fn absolute(files: &BTreeMap<String, String>, module: &str, parts: &[String]) -> Option<Vec<String>> {
    let mut base: Vec<String> = module.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
    let mut rest = parts;
    match parts.first().map(String::as_str)? {
        "crate" => {
            base.clear();
            rest = &rest[1..];
        }
        "self" => rest = &rest[1..],
        "super" => {
            while rest.first().is_some_and(|part| part == "super") {
                base.pop()?;
                rest = &rest[1..];
            }
        }
        child => {
            let below = if module.is_empty() { child.to_owned() } else { format!("{module}::{child}") };
            files.contains_key(&below).then_some(())?;
        }
    }
    Some([&base, rest].concat())
}

/// The text without comments, literals and tests.
fn code_of(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(text);
    let mut code = String::new();
    for line in text.lines() {
        let line = line.split("//").next().unwrap_or(line);
        // Every second part between quotation marks is a literal; one that goes on in the next line has no paths that matter.
        code.extend(line.split('"').step_by(2));
        code.push('\n');
    }
    code
}

fn is_export(statement: &str) -> bool {
    statement.trim_start().starts_with("pub")
}

/// The `use` statements, with what stands before them in their line, without their semicolons.
fn statements(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("use ").filter_map(|(at, _)| {
        let start = text[..at].rfind('\n').map_or(0, |end| end + 1);
        let before = text[start..at].trim();
        let is_statement = before.is_empty() || before.starts_with("pub");
        is_statement.then(|| &text[start..at + text[at..].find(';').unwrap_or(0)])
    })
}

/// The paths of a `use` statement.
fn tree_of(statement: &str) -> Vec<Written> {
    let tree = statement.split_once("use ").map_or("", |(_, tree)| tree);
    let mut found = Vec::new();
    expand(&tree.split_whitespace().collect::<Vec<_>>().join(" "), &[], &mut found);
    found
}

fn expand(tree: &str, before: &[String], found: &mut Vec<Written>) {
    let (path, group) = match tree.split_once('{') {
        Some((path, group)) => (path, Some(group.trim_end().trim_end_matches('}'))),
        None => (tree, None),
    };
    let (path, alias) = path.split_once(" as ").map_or((path, None), |(path, alias)| (path, Some(alias)));
    let parts = path.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned);
    let mut parts: Vec<String> = before.iter().cloned().chain(parts).collect();
    if let Some(group) = group {
        let mut depth = 0;
        for tree in group.split(|c: char| {
            depth += i32::from(c == '{') - i32::from(c == '}');
            c == ',' && depth == 0
        }) {
            if !tree.trim().is_empty() {
                expand(tree.trim(), &parts, found);
            }
        }
        return;
    }
    parts.pop_if(|last| last == "self" || last == "*");
    if let Some(name) = alias.map(str::trim).or(parts.last().map(String::as_str)).map(str::to_owned) {
        found.push(Written { parts, name });
    }
}

/// Paths in code: at least two parts.
fn inline_paths(code: &str) -> Vec<Vec<String>> {
    let is_path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = code.split(|c: char| !is_path(c)).filter(|word| word.contains("::"));
    words.map(|word| word.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> BTreeMap<String, String> {
        files.iter().map(|(file, text)| ((*file).to_owned(), (*text).to_owned())).collect()
    }

    #[test]
    fn imports_that_run_in_a_circle_are_seen() {
        let straight = [
            ("lib.rs", "mod a;\nmod b;\npub use b::{B, C};\n"),
            ("a.rs", "struct A;\n#[cfg(test)]\nmod tests { use crate::b::B; }"),
            ("b/mod.rs", "mod c;\npub use c::C;\nuse crate::a::A;\n// crate::b::c::x\n"),
            ("b/c.rs", "use crate::{a::{self, A}, std};\nlet x = \"crate::b::B\";\n"),
        ];
        assert_eq!(faults(&sources(&straight), &["a", "b"], false), Vec::<String>::new());
        for back in ["use crate::B;", "fn f() { crate::b::B }", "use super::{b::B as Other};", "use crate::b::C;"] {
            let mut circle = straight;
            circle[1].1 = back;
            assert_eq!(faults(&sources(&circle), &[], false).len(), 1, "{back}");
        }
    }

    #[test]
    fn folders_are_in_order() {
        let files = [("lib.rs", ""), ("low/mod.rs", ""), ("low/x.rs", "use crate::high::Y;"), ("high/mod.rs", "")];
        for folders_only in [false, true] {
            let faults = |folders: &[&str]| faults(&sources(&files), folders, folders_only);
            assert_eq!(faults(&["low", "high"]), ["low/x.rs imports high/mod.rs"]);
            assert_eq!(faults(&["high", "low"]), Vec::<String>::new());
        }
    }
}
