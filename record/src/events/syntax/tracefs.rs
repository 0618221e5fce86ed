//! Tracepoints as tracefs describes them (`Documentation/trace/events.rst`).

use std::fs::{self, File};
use std::io::Read;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;

use bprec_format::feature::SectionContent;
use bprec_format::feature::tracing::{TracingData, TracingSystem};
use bprec_format::{Endian, Glob};

use super::{Tracepoint, names};
use crate::{Error, Result, sys};

/// The tracing file system: the system's mount, or a private mount.
#[derive(Debug)]
pub(super) struct Tracefs {
    root: PathBuf,
    /// Keeps the private mount alive.
    _mount: Option<OwnedFd>,
}

impl Tracefs {
    /// Opens the system's tracefs, or mounts a private one.
    ///
    /// # Errors
    /// Returns a message with the remedy if tracefs is not readable and cannot be mounted.
    pub(super) fn open() -> Result<Tracefs, String> {
        let mounted = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].map(PathBuf::from);
        if let Some(root) = mounted.into_iter().find(|root| fs::read_dir(root.join("events")).is_ok()) {
            return Ok(Tracefs { root, _mount: None });
        }
        match sys::private_mount(c"tracefs") {
            Ok(mount) => {
                let root = PathBuf::from(format!("/proc/self/fd/{}", mount.as_raw_fd()));
                Ok(Tracefs { root, _mount: Some(mount) })
            }
            Err(error) => Err(format!(
                "bprec cannot read tracefs, which describes tracepoints: this user cannot read a mounted tracefs, and bprec \
                 cannot mount tracefs for itself ({error}). Run bprec as root, or make tracefs readable as root: mount -t \
                 tracefs -o mode=755 nodev /sys/kernel/tracing"
            )),
        }
    }

    /// Reads a file below the root of tracefs.
    pub(super) fn read(&self, file: &str) -> Result<Vec<u8>> {
        let path = self.root.join(file);
        // The header files return their whole contents in one read and nothing in the next, so the buffer must be large
        // enough for the first read.
        let mut text = Vec::with_capacity(1 << 16);
        match File::open(&path).and_then(|mut file| file.read_to_end(&mut text)) {
            Ok(_) => Ok(text),
            Err(source) => Err(Error::file(path, source)),
        }
    }

    /// The TRACING_DATA section that describes the tracepoints.
    ///
    /// # Errors
    /// Fails if a description cannot be read.
    pub(super) fn section(&self, tracepoints: &[&Tracepoint]) -> Result<Vec<u8>> {
        let mut sorted = tracepoints.to_vec();
        sorted.sort();
        sorted.dedup();
        let mut formats: Vec<(&str, Vec<Vec<u8>>)> = Vec::new();
        for Tracepoint { system, name } in sorted {
            let format = self.read(&format!("events/{system}/{name}/format"))?;
            match formats.last_mut() {
                Some((last, of_system)) if last == system => of_system.push(format),
                _ => formats.push((system, vec![format])),
            }
        }
        let systems = formats.iter().map(|(system, formats)| TracingSystem {
            name: system.as_bytes(),
            formats: formats.iter().map(Vec::as_slice).collect(),
        });
        let (header_page, header_event) = (self.read("events/header_page")?, self.read("events/header_event")?);
        // Fixed strings that formats refer to by address. Some kernels have no such file.
        let printk_formats = self.read("printk_formats").unwrap_or_default();
        let data = TracingData {
            endian: Endian::NATIVE,
            long_bytes: size_of::<libc::c_long>() as u8,
            page_size_bytes: sys::page_bytes() as u32,
            header_page: &header_page,
            header_event: &header_event,
            ftrace: Vec::new(),
            systems: systems.collect(),
            kallsyms: &[],
            printk_formats: &printk_formats,
            saved_cmdlines: &[],
        };
        Ok(data.to_bytes(Endian::NATIVE))
    }

    /// Id of a tracepoint; `None` if the directory has no id, because the event cannot be opened (some of ftrace's own
    /// events).
    pub(super) fn id(&self, system: &str, name: &str) -> Option<u64> {
        fs::read_to_string(self.root.join("events").join(system).join(name).join("id")).ok()?.trim().parse().ok()
    }

    /// Error text for a tracepoint that does not exist, with similar names.
    pub(super) fn missing(&self, system: &str, name: &str) -> String {
        let names = self.names(system);
        if names.is_empty() {
            let near = names::closest(system, self.systems().into_iter());
            return format!("tracefs has no tracepoints of the system `{system}`{near}");
        }
        format!("the system `{system}` has no tracepoint `{name}`{}", names::closest(name, names.into_iter()))
    }

    /// Tracepoints that match the patterns for system and name, sorted by system and name.
    pub(super) fn matching(&self, system: &str, name: &str) -> Vec<(String, String)> {
        let (system, name) = (Glob::new(system), Glob::new(name));
        let systems = self.systems().into_iter().filter(|found| system.matches(found));
        let all = systems.flat_map(|system| {
            let names = self.names(&system);
            names.into_iter().map(move |name| (system.clone(), name))
        });
        all.filter(|(_, found)| name.matches(found)).collect()
    }

    fn systems(&self) -> Vec<String> {
        directories(self.root.join("events"))
    }

    fn names(&self, system: &str) -> Vec<String> {
        directories(self.root.join("events").join(system))
    }
}

/// Names of the subdirectories of `path`, sorted.
fn directories(path: PathBuf) -> Vec<String> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let dirs = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    let mut names: Vec<String> = dirs.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}
