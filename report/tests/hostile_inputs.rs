//! Inputs that are not regular files, that change while they are read, or that unpack to more than the limit. The reader names the
//! reason in an error, or reads the input without the bad part. It does not crash, block, or use up the memory of the machine.
#![cfg(unix)]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs::{self, File};
use std::io::{Cursor, Write, sink};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use bprec_generate::{Container, Shape, generate_bytes};
use bprec_report::{
    Error, ExportFormat, Input, MapsOptions, Options, Result, RewriteOptions, ScriptOptions, Session, Source, by_prog,
    counters, header, maps, rewrite, script,
};

/// Size of the truncated file: whole pages for every page size.
const LEFT_BYTES: u64 = 128 << 10;

fn recording(container: Container) -> Vec<u8> {
    let shape = Shape { record_bytes: 4 << 20, programs: 5, churned_programs: 5, container, ..Shape::default() };
    generate_bytes(&shape).unwrap().0
}

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fixtures/recordings").join(name)
}

fn make_fifo(path: &Path) {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: a path that ends in a NUL.
    assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o600) }, 0);
}

/// Asserts that reading failed because the file was truncated to [`LEFT_BYTES`].
fn is_truncated<T>(what: &str, found: Result<T>) {
    match found.map(drop) {
        Err(Error::Truncated { offset, .. }) => assert_eq!(offset, LEFT_BYTES, "{what}"),
        other => panic!("{what}: {other:?}"),
    }
}

#[test]
fn a_file_that_is_truncated_while_it_is_read_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("perf.data");
    for container in [Container::File, Container::ZstdFile(1), Container::Pipe] {
        let bytes = recording(container);
        assert!(bytes.len() as u64 > 2 * LEFT_BYTES);
        let shorten = || File::options().write(true).open(&path).unwrap().set_len(LEFT_BYTES).unwrap();
        let opened = || {
            fs::write(&path, &bytes).unwrap();
            let input = Input::open(&path).unwrap();
            shorten();
            input
        };
        is_truncated("by_prog", by_prog(&opened(), &Options::default()));
        is_truncated("counters", counters(&opened(), &Options::default()));
        is_truncated("maps", maps(&opened(), &MapsOptions::default(), &mut sink()));
        is_truncated("header", header(&opened()));
        let source = || {
            fs::write(&path, &bytes).unwrap();
            let source = Source::open(&path).unwrap();
            shorten();
            source
        };
        is_truncated("script", script(&mut source(), &ScriptOptions::default(), &mut sink()));
        let mut written = Cursor::new(Vec::new());
        is_truncated("rewrite", rewrite(&mut source(), &RewriteOptions::default(), &mut written));
    }
}

/// A session keeps an index and reads the samples at each query. If the file is truncated in between, the query fails. Other files can be read.
#[test]
fn a_file_that_is_truncated_between_two_queries_is_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("perf.data");
    fs::write(&path, recording(Container::File)).unwrap();
    let (whole, shortened) = (fixture("linux-6.1/ratio.data"), Input::open(&path).unwrap());
    let whole = Input::open(whole).unwrap();
    let session = Session::open(&shortened).unwrap();
    assert!(session.by_prog(&Options::default()).is_ok());
    File::options().write(true).open(&path).unwrap().set_len(LEFT_BYTES).unwrap();
    is_truncated("by_prog", session.by_prog(&Options::default()));
    assert!(by_prog(&whole, &Options::default()).is_ok());
}

#[test]
fn what_is_no_recording_is_not_read_to_its_end() {
    for endless in ["/dev/zero", "/dev/urandom"] {
        let error = Input::open(endless).unwrap_err();
        assert!(matches!(error, Error::NotRecording { .. }), "{error}");
        let mut source = Source::open(endless).unwrap();
        assert!(script(&mut source, &ScriptOptions::default(), &mut sink()).is_err());
        let mut source = Source::open(endless).unwrap();
        assert!(rewrite(&mut source, &RewriteOptions::default(), &mut Cursor::new(Vec::new())).is_err());
    }
}

#[test]
fn a_directory_with_something_else_than_files_is_an_error_and_not_waited_for() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    assert!(matches!(Input::open(directory.path()), Err(Error::NotRecording { .. })), "no data");
    make_fifo(&at("data"));
    let refused = Input::open(directory.path()).unwrap_err().to_string();
    assert!(refused.ends_with("data: not an ordinary file"), "{refused}");
    fs::remove_file(at("data")).unwrap();
    std::os::unix::fs::symlink("/dev/zero", at("data")).unwrap();
    assert!(Input::open(directory.path()).is_err());
    fs::remove_file(at("data")).unwrap();
    std::os::unix::fs::symlink(".", at("data")).unwrap();
    assert!(Input::open(directory.path()).is_err(), "a directory that links to itself");
}

#[test]
fn a_journal_that_is_no_file_is_as_good_as_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cut-off.data");
    fs::copy(fixture("linux-6.1/cut-off.data"), &path).unwrap();
    let without = by_prog(&Input::open(&path).unwrap(), &Options::default()).unwrap();
    make_fifo(&directory.path().join("cut-off.data.journal"));
    let with = by_prog(&Input::open(&path).unwrap(), &Options::default()).unwrap();
    assert_eq!(with.events[0].samples, without.events[0].samples);
}

#[test]
fn a_small_gzip_file_does_not_fill_the_disk() {
    const ZEROS_BYTES: usize = 256 << 20;
    let mut bomb = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    let head = recording(Container::File);
    bomb.write_all(&head[..104]).unwrap();
    let zeros = vec![0; 1 << 20];
    (0..ZEROS_BYTES / zeros.len()).for_each(|_| bomb.write_all(&zeros).unwrap());
    let bomb = bomb.finish().unwrap();
    // gzip compresses zeros to about a thousandth of their size.
    assert!(bomb.len() < ZEROS_BYTES / 200);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&bomb).unwrap();
    let error = Input::open(file.path()).unwrap_err().to_string();
    assert!(error.contains("gunzip") && error.contains("the limit for a gzip file of its size"), "{error}");
    // Real recordings are compressed far less.
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(&head).unwrap();
    let packed = packed.finish().unwrap();
    fs::write(file.path(), &packed).unwrap();
    assert_eq!(Input::open(file.path()).unwrap().bytes(), head);
    // A gzip file with other content, or with another gzip file, also fails.
    let mut nested = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    nested.write_all(&packed).unwrap();
    fs::write(file.path(), nested.finish().unwrap()).unwrap();
    assert!(matches!(Input::open(file.path()), Err(Error::NotRecording { .. })));
}

/// Sums of weights end at the largest number in every export.
#[test]
fn weights_beyond_64_bits_are_exported() {
    const PERIOD_NS: u64 = 250_000;
    let mut bytes = recording(Container::File);
    let (words, _) = bytes.as_chunks_mut::<8>();
    let mut changed = 0;
    for word in words.iter_mut().filter(|word| **word == PERIOD_NS.to_ne_bytes()) {
        *word = (u64::MAX / 3).to_ne_bytes();
        changed += 1;
    }
    assert!(changed > 100, "{changed} periods");
    let input = Input::from_bytes("weights", bytes);
    let session = Session::open(&input).unwrap();
    for format in ExportFormat::ALL {
        session.export(&Options::default(), format, &mut sink()).unwrap();
    }
}
