//! A terminal for tests to type into and read from: tmux, with its own server.
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::path::PathBuf;
use std::process::{Command, Output};

use crate::support::{Scratch, skip, wait_for};

/// True if tmux is installed; prints a skip message if not.
pub(crate) fn tmux_installed(test: &str) -> bool {
    let is_there = Command::new("tmux").arg("-V").output().is_ok_and(|output| output.status.success());
    if !is_there {
        skip(test, "needs tmux");
    }
    is_there
}

/// A terminal in which `bprec` runs. Files keep the terminal's settings before and after.
pub(crate) struct Terminal {
    scratch: Scratch,
}

impl Terminal {
    /// Runs `bprec` with these arguments, on a terminal with this number of columns and rows.
    pub(crate) fn start(size: (u16, u16), arguments: &[&str]) -> Terminal {
        Terminal::run(size, env!("CARGO_BIN_EXE_bprec"), arguments, &[])
    }

    /// Runs a program with these arguments and variables of its environment.
    pub(crate) fn run(size: (u16, u16), program: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Terminal {
        let terminal = Terminal { scratch: Scratch::new() };
        let script = terminal.scratch.path("run.sh");
        let words = arguments.iter().map(|argument| format!(" '{argument}'")).collect::<String>();
        let set = variables.iter().map(|(name, value)| format!("{name}='{value}' ")).collect::<String>();
        let directory = terminal.scratch.path("");
        // The command line prints the exit status last; then the screen stays.
        let lines = format!(
            "cd '{}'; stty -a > before\n{set}sh -c 'echo $$ > pid; exec \"$0\" \"$@\"' '{program}'{words}\nstatus=$?; stty -a > after\necho \"ended: $status\"; exec sleep 1000\n",
            directory.display()
        );
        std::fs::write(&script, lines).unwrap();
        let (columns, rows) = (size.0.to_string(), size.1.to_string());
        let shell = format!("sh '{}'", script.display());
        let output = terminal.tmux(&["new-session", "-d", "-x", &columns, "-y", &rows, &shell]);
        assert!(output.status.success(), "{output:?}");
        terminal
    }

    fn tmux(&self, arguments: &[&str]) -> Output {
        let mut tmux = Command::new("tmux");
        tmux.args(["-f", "/dev/null", "-S"]).arg(self.scratch.path("socket")).args(arguments);
        tmux.env("LC_ALL", "C.UTF-8").env_remove("TMUX").env("SHELL", "/bin/sh").output().unwrap()
    }

    /// A file in the directory of the terminal.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.scratch.path(name)
    }

    /// Types keys, as tmux names them.
    pub(crate) fn keys(&self, keys: &[&str]) {
        let output = self.tmux(&[&["send-keys"], keys].concat());
        assert!(output.status.success(), "{output:?}");
    }

    pub(crate) fn resize(&self, (columns, rows): (u16, u16)) {
        let output = self.tmux(&["resize-window", "-x", &columns.to_string(), "-y", &rows.to_string()]);
        assert!(output.status.success(), "{output:?}");
    }

    /// Lines on the screen.
    pub(crate) fn screen(&self) -> Vec<String> {
        let text = String::from_utf8(self.tmux(&["capture-pane", "-p"]).stdout).unwrap();
        text.lines().map(str::to_owned).collect()
    }

    /// The screen as one text, with the escape sequences of colours.
    pub(crate) fn screen_with_colors(&self) -> String {
        String::from_utf8(self.tmux(&["capture-pane", "-p", "-e"]).stdout).unwrap()
    }

    /// Waits until the screen meets a condition.
    pub(crate) fn wait(&self, what: &str, is_it: impl Fn(&[String]) -> bool) -> Vec<String> {
        let described = || format!("{what}; there is:\n{}", self.screen().join("\n"));
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            wait_for(what, || Some(self.screen()).filter(|screen| is_it(screen)))
        }));
        found.unwrap_or_else(|_| panic!("{}", described()))
    }

    /// Waits for a line that contains all of these parts.
    pub(crate) fn wait_for(&self, parts: &[&str]) -> Vec<String> {
        let has_all = |line: &String| parts.iter().all(|part| line.contains(part));
        self.wait(&format!("a line with {parts:?}"), |screen| screen.iter().any(has_all))
    }

    /// The process of `bprec`.
    pub(crate) fn pid(&self) -> u32 {
        wait_for("the process id", || std::fs::read_to_string(self.path("pid")).ok()?.trim().parse().ok())
    }

    /// Sends a signal to `bprec`.
    pub(crate) fn signal(&self, number: &str) {
        assert!(Command::new("kill").args([number, &self.pid().to_string()]).status().unwrap().success());
    }

    /// Waits for the end, and returns the exit code. Asserts that the terminal's settings are restored.
    pub(crate) fn end(&self) -> i32 {
        let screen = self.wait_for(&["ended: "]);
        let read = |name: &str| std::fs::read_to_string(self.scratch.path(name)).unwrap();
        assert_eq!(read("before"), read("after"), "the terminal's settings were changed");
        let flags = self.tmux(&["display-message", "-p", "#{alternate_on} #{cursor_flag}"]).stdout;
        assert_eq!(String::from_utf8(flags).unwrap().trim(), "0 1", "alternate screen, cursor: {screen:?}");
        let code = screen.iter().find_map(|line| line.strip_prefix("ended: ")).unwrap();
        code.trim().parse().unwrap()
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.tmux(&["kill-server"]);
    }
}

/// Returns the cell of a row below a column name of the header; columns are flush right.
pub(crate) fn cell<'r>(header: &str, row: &'r str, name: &str) -> &'r str {
    let at = header.find(&format!(" {name}")).unwrap_or_else(|| panic!("no {name} in {header}"));
    let end = header[..at].chars().count() + 1 + name.chars().count();
    let end = row.char_indices().nth(end).map_or(row.len(), |(at, _)| at);
    row[..end].rsplit(' ').next().unwrap()
}
