//! BPF objects of the user: loads their perf_event programs and finds the maps through which they output data.

mod legacy_maps;

use std::ffi::OsStr;
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use bprec_host::Errno;
use libbpf_rs::{MapCore, MapFlags, MapType, Object, ObjectBuilder, OpenObject, ProgramType};

use crate::error::{Error, Result};
use crate::privilege;
use crate::programs::quiet::quietly;
use crate::sys;
use crate::sys::FdInfo;

/// Limit on the lines of the verifier's log in a message. The last lines are shown, because the verdict is at the end.
const LOG_LINES: usize = 15;

/// A loaded BPF object of the user: its maps are created, its perf_event programs are loaded and not attached. Dropping it removes
/// everything from the kernel; nothing is pinned.
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
    /// Name of the program's function.
    pub name: String,
    /// Id of the program.
    pub id: u32,
    /// Descriptor for attaching the program.
    pub fd: OwnedFd,
}

/// A map through which programs output bytes to perf events (`BPF_MAP_TYPE_PERF_EVENT_ARRAY`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutputMap {
    /// Name of the map.
    pub name: String,
    /// Count of entries, each for one event. A program usually outputs through the entry of the current CPU.
    pub entries: u32,
}

impl UserObject {
    /// Loads the perf_event programs of an object file, or only the program named `program`. Other programs are not loaded.
    ///
    /// # Errors
    /// Fails if the file cannot be read, if it has no suitable program, or if the kernel refuses a program; an error of the verifier includes
    /// the end of its log. Nothing stays in the kernel after an error.
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
            notes.push(
                "the object defines its maps in the old section \"maps\"; bprec converted the definitions".to_owned(),
            );
        }
        // libbpf names the maps of global variables after the object. For a file, it takes the file name up to the first dot.
        let stem = path.file_name().map(OsStr::to_string_lossy).unwrap_or_default();
        let stem = stem.split('.').next().unwrap_or_default();
        let mut open =
            quietly(|| ObjectBuilder::default().name(stem)?.open_memory(converted.as_deref().unwrap_or(&bytes)))
                .map_err(|(source, log)| unusable(not_opened(&source, &log)))?;
        let chosen = choose(&mut open, program, &mut notes).map_err(unusable)?;
        for mut map in open.maps_mut() {
            if sys::forget_pin(&mut map) {
                notes.push(format!(
                    "bprec does not pin map {}, although the object asks for a pin: a recording leaves no BPF objects behind",
                    map.name().display()
                ));
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

    /// Path of the object file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Notes for the author of the object: programs that were left out, maps that are not pinned.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Loaded programs, in the order of the file.
    pub fn programs(&self) -> &[UserProgram] {
        &self.programs
    }

    /// Ids of the maps that hold data: all maps except those for perf events.
    ///
    /// # Errors
    /// Fails if the kernel does not return the ids.
    pub fn map_ids(&self) -> Result<Vec<u32>> {
        let holding = self.object.maps().filter(|map| map.map_type() != MapType::PerfEventArray);
        holding.map(|map| Ok(FdInfo::of_own(map.as_fd())?.map_id.unwrap_or(0))).collect()
    }

    /// Maps through which the programs output bytes.
    pub fn outputs(&self) -> Vec<OutputMap> {
        let maps = self.object.maps().filter(|map| map.map_type() == MapType::PerfEventArray);
        maps.map(|map| OutputMap { name: map.name().to_string_lossy().into_owned(), entries: map.max_entries() })
            .collect()
    }

    /// Sends the output through entry `index` of `map` to `event`, until this value is dropped.
    ///
    /// # Errors
    /// Fails if the map does not exist or the kernel refuses the event: it must be software/bpf-output, of one CPU, and not inherited.
    pub fn set_output(&self, map: &str, index: u32, event: BorrowedFd<'_>) -> Result<()> {
        let unusable = |problem: String| Error::UserObject { path: self.path.clone(), problem };
        let found = self.object.maps().find(|it| it.name() == map).ok_or_else(|| unusable(format!("no map {map}")))?;
        found
            .update(&index.to_ne_bytes(), &event.as_raw_fd().to_ne_bytes(), MapFlags::ANY)
            .map_err(|source| unusable(format!("map {map}: cannot store the output event of CPU {index}: {source}")))
    }
}

/// Selects the programs to load: all perf_event programs, or only the program `asked`. Returns their names.
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
                "program {name} is in section {section:?}, but only programs in SEC(\"perf_event\") run on perf events"
            ));
        }
        program.set_autoload(fits && is_asked);
        if fits && is_asked {
            chosen.push(name);
        } else if asked.is_none() {
            notes.push(format!("program {name} is not run: it is in section {section:?}, not \"perf_event\""));
        }
    }
    match (chosen.is_empty(), asked) {
        (false, _) => Ok(chosen),
        (true, Some(asked)) => Err(format!("the object has no program {asked}; its programs are: {}", listed(&known))),
        (true, None) => {
            Err(format!("the object has no program in SEC(\"perf_event\"); its programs are: {}", listed(&known)))
        }
    }
}

fn listed(names: &[String]) -> String {
    if names.is_empty() { "none at all".to_owned() } else { names.join(", ") }
}

/// Describes why libbpf refuses a file.
fn not_opened(source: &libbpf_rs::Error, log: &str) -> String {
    let words: Vec<&str> = log.lines().map(|line| line.trim_start_matches("libbpf: ").trim()).collect();
    let last = words.iter().rev().find(|line| !line.is_empty() && !line.starts_with("failed to open object"));
    let why = last.map_or_else(|| source.to_string(), |last| (*last).to_owned());
    format!("cannot open the file as a BPF object: {why}; `clang -target bpf -O2 -g -c` compiles an object from C")
}

/// Describes why the kernel refuses an object. For a program that the verifier rejects: its name and the end of the log; otherwise
/// libbpf's messages.
fn not_loaded(source: &libbpf_rs::Error, log: &str) -> String {
    const BEGIN: &str = "-- BEGIN PROG LOAD LOG --";
    const END: &str = "-- END PROG LOAD LOG --";
    let lines: Vec<&str> = log.lines().map(|line| line.trim_end()).filter(|line| !line.is_empty()).collect();
    let begin = lines.iter().position(|line| line.ends_with(BEGIN));
    if let Some(begin) = begin {
        let program = lines.get(begin).and_then(|line| line.split('\'').nth(1)).unwrap_or("?");
        let body: Vec<&str> = lines.iter().skip(begin + 1).take_while(|line| **line != END).copied().collect();
        // libbpf prints the errno on an earlier line.
        let answer = lines.iter().take(begin).rev().find_map(|line| line.split_once("program load failed: "));
        let answer = answer.map(|(_, answer)| format!(" ({})", answer.trim_start_matches('-'))).unwrap_or_default();
        let shown = body.iter().skip(body.len().saturating_sub(LOG_LINES));
        let left_out = body.len().saturating_sub(LOG_LINES);
        let before = if left_out > 0 { format!("\n  … {left_out} earlier lines") } else { String::new() };
        let shown: String = shown.map(|line| format!("\n  {line}")).collect();
        return format!("the kernel's verifier rejects program {program}{answer}{before}{shown}");
    }
    if source.kind() == libbpf_rs::ErrorKind::PermissionDenied {
        return format!(
            "the kernel refuses to load the object ({}); {}",
            Errno(libc::EPERM),
            privilege::permission_remedy()
        );
    }
    let words: Vec<&str> = lines.iter().map(|line| line.trim_start_matches("libbpf: ")).collect();
    let shown: String =
        words.iter().skip(words.len().saturating_sub(LOG_LINES)).map(|line| format!("\n  {line}")).collect();
    format!("the object cannot be loaded: {source}{shown}")
}
