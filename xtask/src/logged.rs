//! Commands whose output is read while they run.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use anyhow::{Context, Result};

/// Starts a command; returns the lines of its output and errors, which are also written to `log`. The channel closes after the last process that
/// holds the output has ended.
pub(crate) fn spawn(mut command: Command, log: &Path) -> Result<(Child, Receiver<io::Result<String>>)> {
    let mut kept = File::create(log).with_context(|| format!("create {}", log.display()))?;
    // One pipe for standard output and standard error keeps the lines in order.
    let (reader, writer) = io::pipe()?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let child = command.spawn().with_context(|| format!("run {}", command.get_program().display()))?;
    let (sender, lines) = mpsc::channel();
    thread::spawn(move || {
        BufReader::new(reader).split(b'\n').try_for_each(|line| {
            let keep = |line: Vec<u8>| kept.write_all(&[&line, &b"\n"[..]].concat()).map(|()| line);
            sender.send(line.and_then(keep).map(|line| String::from_utf8_lossy(&line).into_owned()))
        })
    });
    Ok((child, lines))
}
