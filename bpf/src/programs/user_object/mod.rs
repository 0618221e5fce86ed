//! Objects of the user's: their perf_event programs loaded, and the maps that they put out through.

mod legacy_maps;

use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use libbpf_rs::{MapCore, MapFlags, MapType, Object, ObjectBuilder, OpenObject, ProgramType};

use crate::error::{Errno, Error, Result};
use crate::privilege;
use crate::programs::quiet::quietly;
use crate::sys;
use crate::sys::FdInfo;

/// Lines of a verifier's log that a message ends with: its verdict is at the end.
const LOG_LINES: usize = 15;

/// An object of the user's in the kernel: its maps made, its perf_event programs loaded and attached to nothing. All of it
/// goes when this is dropped; nothing is pinned.
#[derive(Debug)]
pub struct UserObject {
    object: Object,
    path: PathBuf,
    programs: Vec<UserProgram>,
    notes: Vec<String>,
}

/// A program of a loaded object.
#[derive(Debug)]
pub struct UserProgram {
    /// Its function.
    pub name: String,
    /// The kernel's number.
    pub id: u32,
    /// To attach it by.
    pub fd: OwnedFd,
}

/// A map through which programs put out bytes into perf events (`BPF_MAP_TYPE_PERF_EVENT_ARRAY`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputMap {
    /// Its name.
    pub name: String,
    /// Places for events; a program puts out through that of its CPU as a rule.
    pub entries: u32,
}

impl UserObject {
    /// Loads the perf_event programs of an object file, or only the one called `program`. The others are not loaded.
    ///
    /// # Errors
    /// Fails if the file cannot be read or has no such program, or the kernel does not take one: with the verifier's last words
    /// where it was the verifier. Nothing stays in the kernel then.
    pub fn load(path: &Path, program: Option<&str>) -> Result<UserObject> {
        let unusable = |problem: String| Error::UserObject { path: path.to_owned(), problem };
        let is_file = fs::metadata(path).map_err(|source| Error::file(path, source))?.is_file();
        if !is_file {
            return Err(unusable("not a file".to_owned()));
        }
        let bytes = fs::read(path).map_err(|source| Error::file(path, source))?;
        let converted = legacy_maps::convert_legacy_maps(&bytes).map_err(unusable)?;
        let mut notes = Vec::new();
        if converted.is_some() {
            notes.push("its maps are defined the old way (section maps) and were converted".to_owned());
        }
        // libbpf names maps of global variables after the object, of a file by what comes before the first dot.
        let stem = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
        let stem = stem.split('.').next().unwrap_or_default();
        let mut open =
            quietly(|| ObjectBuilder::default().name(stem)?.open_memory(converted.as_deref().unwrap_or(&bytes)))
                .map_err(|(source, log)| unusable(not_opened(&source, &log)))?;
        let chosen = choose(&mut open, program, &mut notes).map_err(unusable)?;
        for mut map in open.maps_mut() {
            if sys::forget_pin(&mut map) {
                notes
                    .push(format!("its map {} is not pinned: a recording leaves nothing behind", map.name().display()));
            }
        }
        let object = quietly(|| open.load()).map_err(|(source, log)| unusable(not_loaded(&source, &log)))?;
        let mut programs = Vec::with_capacity(chosen.len());
        for program in object.progs() {
            let Some(name) = chosen.iter().find(|name| program.name() == name.as_str()) else { continue };
            let fd = program.as_fd().try_clone_to_owned().map_err(|source| Error::file(path, source))?;
            let id = FdInfo::of_own(fd.as_fd())?.prog_id.unwrap_or(0);
            programs.push(UserProgram { name: name.clone(), id, fd });
        }
        Ok(UserObject { object, path: path.to_owned(), programs, notes })
    }

    /// The file it came from.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Remarks for its author: programs that were left out, maps that are not pinned.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The programs that are loaded, in the order of the file.
    pub fn programs(&self) -> &[UserProgram] {
        &self.programs
    }

    /// The ids of its maps that hold something: all but those for events.
    ///
    /// # Errors
    /// Fails if the kernel does not tell them.
    pub fn map_ids(&self) -> Result<Vec<u32>> {
        let holding = self.object.maps().filter(|map| map.map_type() != MapType::PerfEventArray);
        holding.map(|map| Ok(FdInfo::of_own(map.as_fd())?.map_id.unwrap_or(0))).collect()
    }

    /// The maps that its programs put bytes out through.
    pub fn outputs(&self) -> Vec<OutputMap> {
        let maps = self.object.maps().filter(|map| map.map_type() == MapType::PerfEventArray);
        maps.map(|map| OutputMap { name: map.name().to_string_lossy().into_owned(), entries: map.max_entries() })
            .collect()
    }

    /// Lets what is put out through `map` at place `index` go to `event`, for as long as this lives.
    ///
    /// # Errors
    /// Fails if the kernel refuses: the event must be software/bpf-output, of one CPU, and not inherited.
    pub fn set_output(&self, map: &str, index: u32, event: BorrowedFd<'_>) -> Result<()> {
        let unusable = |problem: String| Error::UserObject { path: self.path.clone(), problem };
        let found = self.object.maps().find(|it| it.name() == map).ok_or_else(|| unusable(format!("no map {map}")))?;
        found
            .update(&index.to_ne_bytes(), &event.as_raw_fd().to_ne_bytes(), MapFlags::ANY)
            .map_err(|source| unusable(format!("map {map}: an event for cpu {index}: {source}")))
    }
}

/// Chooses what is loaded: perf_event programs, or the one that is asked for. Their names.
fn choose(open: &mut OpenObject, asked: Option<&str>, notes: &mut Vec<String>) -> Result<Vec<String>, String> {
    let mut chosen = Vec::new();
    let mut known = Vec::new();
    for mut program in open.progs_mut() {
        let name = program.name().to_string_lossy().into_owned();
        let fits = program.prog_type() == ProgramType::PerfEvent;
        let section = program.section().to_string_lossy().into_owned();
        known.push(format!("{name} ({section})"));
        let is_asked = asked.is_none_or(|asked| asked == name);
        if !fits && asked == Some(name.as_str()) {
            return Err(format!(
                "program {name} is in section {section:?}: only those of SEC(\"perf_event\") run on perf events"
            ));
        }
        program.set_autoload(fits && is_asked);
        if fits && is_asked {
            chosen.push(name);
        } else if asked.is_none() {
            notes.push(format!("its program {name} is left out: section {section:?}, not \"perf_event\""));
        }
    }
    match (chosen.is_empty(), asked) {
        (false, _) => Ok(chosen),
        (true, Some(asked)) => Err(format!("no program {asked}; there are: {}", listed(&known))),
        (true, None) => Err(format!("no program of SEC(\"perf_event\"); there are: {}", listed(&known))),
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none at all".to_owned() } else { names.join(", ") }
}

/// Why libbpf does not take a file as an object.
fn not_opened(source: &libbpf_rs::Error, log: &str) -> String {
    let words: Vec<&str> = log.lines().map(|line| line.trim_start_matches("libbpf: ").trim()).collect();
    let last = words.iter().rev().find(|line| !line.is_empty() && !line.starts_with("failed to open object"));
    let why = last.map_or_else(|| source.to_string(), |last| (*last).to_owned());
    format!("not a BPF object that can be loaded: {why}; `clang -target bpf -O2 -g -c` compiles one from C")
}

/// Why the kernel does not take an object: of a program that the verifier rejects its name and the end of the log, else
/// what libbpf says.
fn not_loaded(source: &libbpf_rs::Error, log: &str) -> String {
    const BEGIN: &str = "-- BEGIN PROG LOAD LOG --";
    const END: &str = "-- END PROG LOAD LOG --";
    let lines: Vec<&str> = log.lines().map(|line| line.trim_end()).filter(|line| !line.is_empty()).collect();
    let begin = lines.iter().position(|line| line.ends_with(BEGIN));
    if let Some(begin) = begin {
        let program = lines.get(begin).and_then(|line| line.split('\'').nth(1)).unwrap_or("?");
        let body: Vec<&str> = lines.iter().skip(begin + 1).take_while(|line| **line != END).copied().collect();
        // libbpf says the kernel's number in a line before.
        let answer = lines.iter().take(begin).rev().find_map(|line| line.split_once("program load failed: "));
        let answer = answer.map(|(_, answer)| format!(" ({})", answer.trim_start_matches('-'))).unwrap_or_default();
        let shown = body.iter().skip(body.len().saturating_sub(LOG_LINES));
        let left_out = body.len().saturating_sub(LOG_LINES);
        let before = if left_out > 0 { format!("\n  … {left_out} lines") } else { String::new() };
        let shown: String = shown.map(|line| format!("\n  {line}")).collect();
        return format!("program {program}: the verifier rejects it{answer}{before}{shown}");
    }
    if source.kind() == libbpf_rs::ErrorKind::PermissionDenied {
        return format!(
            "the kernel does not let it be loaded ({}); {}",
            Errno(libc::EPERM),
            privilege::permission_remedy()
        );
    }
    let words: Vec<&str> = lines.iter().map(|line| line.trim_start_matches("libbpf: ")).collect();
    let shown: String =
        words.iter().skip(words.len().saturating_sub(LOG_LINES)).map(|line| format!("\n  {line}")).collect();
    format!("cannot be loaded: {source}{shown}")
}
