//! Makes the pictures of README from recordings of the fixtures: a page in a browser, and a tree and screens with their terminal colours.

use std::path::{Path, absolute};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use xshell::{Shell, cmd};

use crate::builds::{named, workspace};
use crate::target_directory;

const RECORDING: &str = "fixtures/recordings/linux-7.2/ratio.data";
/// Recording of the page and of the screens.
const PAGE_OF: &str = "fixtures/recordings/linux-7.2/everything.data";
const PAGE: &str = "page.webp";
const TREE: &str = "tree.svg";
/// Screens of `report --tui`, with their columns and rows.
const SCREENS: [(&str, usize, usize); 2] = [("screen.svg", 120, 40), ("screen-small.svg", 80, 24)];
const PICTURES: [&str; 4] = [PAGE, TREE, SCREENS[0].0, SCREENS[1].0];
/// Directory of the pictures.
const DOCS: &str = "docs";
/// Limit on the time until a screen shows programs, and the time between two looks at it.
const SCREEN_LIMIT: Duration = Duration::from_secs(10);
const SCREEN_PAUSE: Duration = Duration::from_millis(100);
/// Arguments of `bprec` that print the tree.
const COMMAND: [&str; 4] = ["report", "--tree", "--prog", "17"];
/// Width of the terminal, in columns.
const COLUMNS: usize = 96;
/// Limit on the size of a picture: every visitor of the README on GitHub loads the pictures.
const MOST_BYTES: usize = 150_000;
/// Size of the browser window, in pixels: the first screen of the page.
const PAGE_SIZE: (u32, u32) = (1400, 800);
/// Limit on the share of pixels, per cent, that may differ in the picture of the page: releases of the browser smooth letters differently.
const MOST_DIFFERENT: f64 = 0.5;
/// Makes all pictures. With `check`, makes them elsewhere and compares the committed pictures with them.
pub(crate) fn run(sh: &Shell, check: bool) -> Result<()> {
    let docs = Path::new(DOCS);
    let made = if check { absolute(target_directory().join("pictures"))? } else { docs.to_owned() };
    sh.create_dir(&made)?;
    draw_all(sh, &made)?;
    let mut stale = Vec::new();
    for name in PICTURES {
        let (new, committed) = (made.join(name), docs.join(name));
        let different = match name {
            PAGE => different_percent(sh, &new, &committed)?,
            _ if sh.read_binary_file(new)? == sh.read_binary_file(committed)? => 0.0,
            _ => 100.0,
        };
        if different > MOST_DIFFERENT {
            stale.push(format!("{name} ({different:.1} %)"));
        }
    }
    ensure!(stale.is_empty(), "pictures have changed; run `make pictures` and look at them: {}", stale.join(", "));
    println!("the committed pictures are current");
    Ok(())
}

/// Returns the share of pixels, per cent, in which two pictures of the page differ visibly.
fn different_percent(sh: &Shell, one: &Path, other: &Path) -> Result<f64> {
    // `compare` prints the count of different pixels, and then fails if there are any.
    let output = cmd!(sh, "compare -metric AE -fuzz 19% {one} {other} null:").quiet().ignore_status().output()?;
    let said = String::from_utf8(output.stderr)?;
    let different: f64 = said.trim().parse().with_context(|| format!("compare the pictures of the page: {said}"))?;
    Ok(100.0 * different / (PAGE_SIZE.0 * PAGE_SIZE.1) as f64)
}

/// Draws all pictures into a directory.
fn draw_all(sh: &Shell, into: &Path) -> Result<()> {
    let built = workspace(sh)?;
    let bprec = &named(&built, "bprec", false)?.path;
    let (page, picture) = (absolute(target_directory().join("picture.html"))?, into.join(PAGE));
    cmd!(sh, "{bprec} export --to html -i {PAGE_OF} -o {page}").quiet().run()?;
    let size = format!("--window-size={},{}", PAGE_SIZE.0, PAGE_SIZE.1);
    // chromium does not start as root with its sandbox. Without the sandbox, it opens only the page made here. Without the option of compositor
    // stages, a picture may lack parts that were not drawn in time.
    let chromium = cmd!(
        sh,
        "chromium --headless --no-sandbox --disable-gpu --hide-scrollbars --virtual-time-budget=3000
         --run-all-compositor-stages-before-draw {size} --screenshot={picture} file://{page}"
    );
    chromium.quiet().ignore_stderr().run()?;
    let report = cmd!(sh, "{bprec} {COMMAND...} --color always -i {RECORDING}").env("COLUMNS", COLUMNS.to_string());
    let tree = format!("$ bprec {}\n{}", COMMAND.join(" "), report.quiet().read()?);
    sh.write_file(into.join(TREE), svg(&tree, COLUMNS, "What a program cost, as a tree"))?;
    for (picture, columns, rows) in SCREENS {
        let screen = captured(sh, bprec, columns, rows)?;
        sh.write_file(into.join(picture), svg(&screen, columns, "What BPF programs cost, on a terminal"))?;
    }
    for picture in PICTURES {
        let bytes = sh.read_binary_file(into.join(picture))?.len();
        ensure!(bytes <= MOST_BYTES, "{picture} has {bytes} bytes, more than {MOST_BYTES}");
        println!("{picture}: {bytes} bytes");
    }
    Ok(())
}

/// Runs `bprec report --tui` in tmux; returns the screen with its escape sequences.
fn captured(sh: &Shell, bprec: &Path, columns: usize, rows: usize) -> Result<String> {
    // Each screen has its own server. The previous server may still be ending, and would end the new session too.
    let socket = absolute(target_directory().join(format!("picture-{columns}.tmux")))?;
    let tmux = |arguments: &[&str]| {
        let tmux = cmd!(sh, "tmux -f /dev/null -S {socket} {arguments...}").env_remove("TMUX").env("LC_ALL", "C.UTF-8");
        tmux.quiet().read()
    };
    let command = format!("COLORTERM=truecolor '{}' report --tui -i {PAGE_OF}", bprec.display());
    tmux(&["new-session", "-d", "-x", &columns.to_string(), "-y", &rows.to_string(), &command])?;
    let (started, mut screen) = (Instant::now(), String::new());
    // The first screen says only that the recording is being read.
    while !screen.contains("PROGRAM") && started.elapsed() < SCREEN_LIMIT {
        thread::sleep(SCREEN_PAUSE);
        screen = tmux(&["capture-pane", "-p", "-e", "-N"])?;
    }
    tmux(&["kill-server"])?;
    ensure!(screen.contains("PROGRAM"), "no programs on the screen after {SCREEN_LIMIT:?}:\n{screen}");
    Ok(screen)
}

/// Width of a character and height of a line, in pixels.
const CELL: (f64, f64) = (8.4, 19.0);
const MARGIN: f64 = 16.0;
const TEXT_COLOR: &str = "#d6deeb";
const DIM_COLOR: &str = "#8593a5";
/// Colours of text, with their codes in escape sequences.
const COLORS: [(&str, &str); 3] = [("31", "#ff7b72"), ("32", "#7ee787"), ("33", "#e3b341")];

/// Draws terminal text as SVG. Each stretch of text in one style has the width of its cells, so the font does not change the layout.
fn svg(text: &str, columns: usize, title: &str) -> String {
    let lines = text.lines().count();
    let (width, height) = (columns as f64 * CELL.0 + 2.0 * MARGIN, lines as f64 * CELL.1 + 2.0 * MARGIN);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" viewBox=\"0 0 {width:.0} {height:.0}\" \
         font-family=\"ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace\" font-size=\"14\" fill=\"{TEXT_COLOR}\">\n\
         <title>{title}</title>\n<rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#10151c\"/>\n"
    );
    for (row, line) in text.lines().enumerate() {
        let (top, mut column, mut style) = (MARGIN + row as f64 * CELL.1, 0, TextStyle::default());
        // Each line starts in the default style.
        for part in format!("\u{1b}[m{line}").split("\u{1b}[").skip(1) {
            let (codes, words) = part.split_once('m').unwrap_or(("", part));
            style.apply(codes);
            svg += &stretch(words, MARGIN + column as f64 * CELL.0, top, &style);
            column += words.chars().count();
        }
    }
    svg + "</svg>\n"
}

/// Draws a stretch of text in one style: its background, bars as rectangles, and text.
fn stretch(words: &str, x: f64, top: f64, style: &TextStyle) -> String {
    let rectangle = |x: f64, cells: usize, height: f64, color: &str| {
        let (y, width) = (top + CELL.1 - height, cells as f64 * CELL.0);
        format!("<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{height:.1}\" fill=\"{color}\"/>\n")
    };
    let words: Vec<char> = words.chars().collect();
    let mut svg: String = style.background.iter().map(|color| rectangle(x, words.len(), CELL.1, color)).collect();
    let mut x = x;
    for run in words.chunk_by(|a, b| eighths(*a) == eighths(*b)) {
        let text = run.iter().collect::<String>().replace('&', "&amp;").replace('<', "&lt;");
        let (y, width) = (top + 0.75 * CELL.1, run.len() as f64 * CELL.0);
        if let Some(eighths) = eighths(run[0]) {
            let color = style.color.as_deref().unwrap_or(TEXT_COLOR);
            svg += &rectangle(x, run.len(), CELL.1 * f64::from(eighths) / 8.0, color);
        } else if !text.trim().is_empty() {
            let place = format!("x=\"{x:.1}\" y=\"{y:.1}\" textLength=\"{width:.1}\" xml:space=\"preserve\"");
            svg += &format!("<text {place}{}>{text}</text>\n", style.attributes());
        }
        x += width;
    }
    svg
}

/// Returns the height of a bar character in eighths of a line; `None` for any other character. Bars are drawn as rectangles, as fonts differ in these
/// characters.
fn eighths(c: char) -> Option<u32> {
    ('▁'..='█').contains(&c).then(|| c as u32 - '▁' as u32 + 1)
}

/// Style that escape sequences set.
#[derive(Default)]
struct TextStyle {
    color: Option<String>,
    background: Option<String>,
    is_bold: bool,
    is_dim: bool,
}

impl TextStyle {
    /// Applies the codes of an escape sequence.
    fn apply(&mut self, codes: &str) {
        let mut codes = codes.split(';');
        while let Some(code) = codes.next() {
            // In 38 and 48, four numbers follow: 2, red, green, blue.
            let mut rgb = || Some(format!("rgb({})", codes.by_ref().take(4).skip(1).collect::<Vec<_>>().join(",")));
            match code {
                "" | "0" => *self = TextStyle::default(),
                "1" => self.is_bold = true,
                "2" => self.is_dim = true,
                "38" => self.color = rgb(),
                "48" => self.background = rgb(),
                "49" => self.background = None,
                "31" | "32" | "33" | "39" => {
                    self.color = COLORS.iter().find(|(of, _)| *of == code).map(|(_, color)| (*color).to_owned())
                }
                _ => {}
            }
        }
    }

    /// SVG attributes of text.
    fn attributes(&self) -> String {
        let bold = if self.is_bold { " font-weight=\"bold\"" } else { "" };
        let color = self.color.as_deref().or(self.is_dim.then_some(DIM_COLOR));
        color.map_or(bold.to_owned(), |color| format!("{bold} fill=\"{color}\""))
    }
}
