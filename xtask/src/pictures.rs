//! Makes the pictures of README from recordings of the fixtures: a page in a browser, and a tree and screens with their terminal colours.

use std::path::{Path, absolute};
use std::thread;
use std::time::Duration;

use anstyle::RgbColor;
use anstyle_svg::{Term, WIN10_CONSOLE};
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
/// Directory of the pictures.
const DOCS: &str = "docs";
/// Count of attempts to capture a screen, and the time between them.
const CAPTURES: (u32, Duration) = (100, Duration::from_millis(100));
/// Arguments of `bprec` that print the tree.
const COMMAND: [&str; 4] = ["report", "--tree", "--prog", "17"];
/// Width of the terminal, in columns.
const COLUMNS: usize = 96;
/// Limit on the size of a picture: every visitor of the README on GitHub loads the pictures.
const MOST_BYTES: usize = 150_000;
/// Size of the browser window, in pixels: the first screen of the page.
const PAGE_SIZE: (u32, u32) = (1400, 800);
/// Font size in anstyle-svg, whose lines have 18 pixels, and a font size at which the blocks of bars touch each other in lines of that height.
const FONT_SIZES: (&str, &str) = ("14px", "15.5px");
/// Width of a character of that size, in hundredths of a pixel.
const COLUMN_WIDTH: usize = 934;
/// Colour of the terminal's background.
const BACKGROUND: RgbColor = RgbColor(0x10, 0x15, 0x1c);
/// Colour of text in the default style.
const TEXT: RgbColor = RgbColor(0xd6, 0xde, 0xeb);
/// Colours of the terminal's palette with their numbers.
const PALETTE: [(usize, RgbColor); 3] =
    [(1, RgbColor(0xff, 0x7b, 0x72)), (2, RgbColor(0x7e, 0xe7, 0x87)), (3, RgbColor(0xe3, 0xb3, 0x41))];
/// Limit on the share of pixels, per cent, that may differ in the picture of the page: releases of the browser smooth letters differently.
const MOST_DIFFERENT: f64 = 0.5;

/// Makes all pictures.
pub(crate) fn make(sh: &Shell) -> Result<()> {
    draw_all(sh, Path::new(DOCS))
}

/// Compares the committed pictures with pictures of today's page and screens.
pub(crate) fn check(sh: &Shell) -> Result<()> {
    let made = absolute(target_directory().join("pictures"))?;
    sh.create_dir(&made)?;
    draw_all(sh, &made)?;
    let mut stale = Vec::new();
    for name in [TREE].into_iter().chain(SCREENS.map(|(name, ..)| name)) {
        if sh.read_binary_file(made.join(name))? != sh.read_binary_file(Path::new(DOCS).join(name))? {
            stale.push(name.to_owned());
        }
    }
    let different = different_percent(sh, &made.join(PAGE), &Path::new(DOCS).join(PAGE))?;
    if different > MOST_DIFFERENT {
        stale.push(format!("{PAGE} ({different:.1} % of its pixels)"));
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

/// Takes a picture of a page in the browser.
fn capture_page(sh: &Shell, page: &Path, picture: &Path) -> Result<()> {
    // chromium does not start as root with its sandbox. Without the sandbox, it opens only the page made here.
    let always = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=3000"];
    // Without this option, a picture may lack parts that were not drawn in time.
    let whole = "--run-all-compositor-stages-before-draw";
    let size = format!("--window-size={},{}", PAGE_SIZE.0, PAGE_SIZE.1);
    let chromium = cmd!(sh, "chromium {always...} {whole} {size} --screenshot={picture} file://{page}");
    Ok(chromium.quiet().ignore_stderr().run()?)
}

/// Draws all pictures into a directory.
fn draw_all(sh: &Shell, into: &Path) -> Result<()> {
    let built = workspace(sh)?;
    let bprec = &named(&built, "bprec", false)?.path;
    let page = absolute(target_directory().join("picture.html"))?;
    cmd!(sh, "{bprec} export --to html -i {PAGE_OF} -o {page}").quiet().run()?;
    capture_page(sh, &page, &into.join(PAGE))?;
    let report = cmd!(sh, "{bprec} {COMMAND...} --color always -i {RECORDING}").env("COLUMNS", COLUMNS.to_string());
    let tree = format!("$ bprec {}\n{}", COMMAND.join(" "), report.quiet().read()?);
    sh.write_file(into.join(TREE), svg(&tree, COLUMNS))?;
    for (picture, columns, rows) in SCREENS {
        sh.write_file(into.join(picture), svg(&captured(sh, bprec, columns, rows)?, columns))?;
    }
    for picture in [PAGE, TREE].into_iter().chain(SCREENS.map(|(picture, ..)| picture)) {
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
    let mut screen = String::new();
    // The first screen says only that the recording is being read.
    for _ in 0..CAPTURES.0 {
        thread::sleep(CAPTURES.1);
        screen = tmux(&["capture-pane", "-p", "-e", "-N"])?;
        if screen.contains("PROGRAM") {
            break;
        }
    }
    tmux(&["kill-server"])?;
    ensure!(screen.contains("PROGRAM"), "no programs on the screen after {:?}:\n{screen}", CAPTURES.1 * CAPTURES.0);
    Ok(screen)
}

/// Draws terminal text as SVG.
fn svg(text: &str, columns: usize) -> String {
    let mut palette = WIN10_CONSOLE;
    PALETTE.into_iter().for_each(|(number, color)| palette.0[number] = color);
    let terminal = Term::new().palette(palette).bg_color(BACKGROUND.into()).fg_color(TEXT.into());
    terminal.min_width_px(columns * COLUMN_WIDTH / 100).render_svg(text).replace(FONT_SIZES.0, FONT_SIZES.1)
}
