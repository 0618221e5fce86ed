//! Errors keep their causes: users of the crate find kind and offset, not only a message.
#![allow(clippy::unwrap_used, reason = "a test")]

use bprec_format::Problem;
use bprec_report::{
    Document, Input, Options, RewriteOptions, ScriptOptions, Session, Source, by_prog, rewrite, script,
};
use std::error::Error;
use std::io::{self, Cursor, ErrorKind, Read, Write};
use std::path::Path;

/// Finds the cause of this type, at any depth.
fn cause<'e, T: Error + 'static>(error: &'e (dyn Error + 'static)) -> Option<&'e T> {
    let source = error.source()?;
    source.downcast_ref().or_else(|| cause(source))
}

fn kind(error: &(dyn Error + 'static)) -> Option<ErrorKind> {
    cause::<io::Error>(error).map(io::Error::kind)
}

/// A reader that fails after a number of bytes.
struct Broken(Cursor<Vec<u8>>);

impl Read for Broken {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buffer)? {
            0 => Err(ErrorKind::ConnectionReset.into()),
            len => Ok(len),
        }
    }
}

/// A disk without space.
struct Full;

impl Write for Full {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn fixture() -> Vec<u8> {
    std::fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings/linux-7.2/piped.data")).unwrap()
}

#[test]
fn what_the_system_said_can_be_asked_for() {
    let missing = tempfile::tempdir().unwrap().path().join("missing.data");
    assert_eq!(kind(&Input::open(&missing).unwrap_err()), Some(ErrorKind::NotFound));
    assert_eq!(kind(&Source::open(&missing).err().unwrap()), Some(ErrorKind::NotFound));
    // The reading fails in the header, and after the header.
    for len in [7, 4096] {
        let broken = || Source::from_reader("pipe", Broken(Cursor::new(fixture()[..len].to_vec())));
        let error = script(&mut broken(), &ScriptOptions::default(), &mut io::sink()).unwrap_err();
        assert_eq!(kind(&error), Some(ErrorKind::ConnectionReset), "{len}: {error}");
        let error = rewrite(&mut broken(), &RewriteOptions::default(), &mut Cursor::new(Vec::new())).unwrap_err();
        assert_eq!(kind(&error), Some(ErrorKind::ConnectionReset), "{len}: {error}");
    }
}

#[test]
fn what_could_not_be_written_says_why() {
    let report = by_prog(&Input::from_bytes("piped", fixture()), &Options::default()).unwrap();
    for error in [report.write_table(&mut Full, 80), report.write_json(&mut Full), report.write_csv(&mut Full)] {
        assert_eq!(kind(&error.unwrap_err()), Some(ErrorKind::StorageFull));
    }
    let mut source = Source::from_bytes("piped", fixture());
    let error = script(&mut source, &ScriptOptions::default(), &mut Full).unwrap_err();
    assert_eq!(kind(&error), Some(ErrorKind::StorageFull));
}

/// The header should have 104 bytes, but ends in its third field, the size of an attr, at offset 16.
#[test]
fn where_a_file_is_damaged_can_be_asked_for() {
    let bytes = [&b"PERFILE2"[..], &104u64.to_le_bytes(), &[0; 4]].concat();
    let input = Input::from_bytes("short", bytes.clone());
    let reported = Session::open(&input).unwrap_err();
    let printed = script(&mut Source::from_bytes("short", bytes), &ScriptOptions::default(), &mut io::sink());
    for error in [reported, printed.unwrap_err()] {
        let found: &bprec_format::Error = cause(&error).unwrap();
        assert_eq!((found.offset, &found.problem), (16, &Problem::Truncated { needed: 8, available: 4 }), "{error}");
    }
}
