//! Loads programs without output of libbpf on the terminal.

use std::sync::{Mutex, PoisonError};

use libbpf_rs::PrintLevel;

/// Output of libbpf during the current call of [`quietly`].
static LOG: Mutex<String> = Mutex::new(String::new());
/// Lock that is held while libbpf's output is redirected, because the redirection applies to the whole process.
static QUIET: Mutex<()> = Mutex::new(());

/// libbpf's error for a program or map that is missing in one of our objects.
pub(crate) fn missing() -> libbpf_rs::Error {
    std::io::Error::from_raw_os_error(libc::ENOENT).into()
}

/// Runs `load` and keeps libbpf's output off the terminal. An error includes this output.
pub(crate) fn quietly<T>(load: impl FnOnce() -> libbpf_rs::Result<T>) -> Result<T, (libbpf_rs::Error, String)> {
    fn keep(_: PrintLevel, text: String) {
        LOG.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
    }
    let _quiet = QUIET.lock().unwrap_or_else(PoisonError::into_inner);
    LOG.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let before = libbpf_rs::set_print(Some((PrintLevel::Info, keep)));
    let loaded = load();
    libbpf_rs::set_print(before);
    loaded.map_err(|source| (source, std::mem::take(&mut *LOG.lock().unwrap_or_else(PoisonError::into_inner))))
}
