//! Writes the manual pages, the completions of bash, zsh and fish, and the schemas of all JSON documents below a directory. Their sources are the
//! definitions of the commands and of the documents.
//!
//! `cargo run --example manual -- DIR` makes DIR/man1, DIR/{bash,zsh,fish} and DIR/schemas. This is an example, so bprec itself does not contain it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result};
use bprec_report::model;
use clap::Command;
use clap_complete::Shell;
use clap_mangen::Man;
use clap_mangen::roff::{Roff, bold, roman};

fn main() -> Result<()> {
    let directory = std::env::args_os().nth(1).context("usage: cargo run --example manual -- DIR")?;
    let directory = Path::new(&directory);
    let folder = |name: &str| -> Result<_> {
        let path = directory.join(name);
        fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(path)
    };
    let pages = folder("man1")?;
    let mut command = bprec::command().disable_help_subcommand(true);
    command.build();
    let names: Vec<String> = shown(&command).map(page_name).collect();
    for command in shown(&command).chain([&command]) {
        let mut file = File::create(pages.join(format!("{}.1", page_name(command))))?;
        page(command, &names, &mut file)?;
    }
    for (shell, name) in [(Shell::Bash, "bash"), (Shell::Zsh, "zsh"), (Shell::Fish, "fish")] {
        clap_complete::generate_to(shell, &mut bprec::command(), "bprec", folder(name)?)?;
    }
    let schemas = folder("schemas")?;
    for (name, schema) in [
        ("json", model::schema_of::<model::Report>()),
        ("annotate", model::schema_of::<model::Annotation>()),
        ("lines", model::schema_of::<model::LinesReport>()),
        ("bill", model::schema_of::<model::Bill>()),
        ("without", model::schema_of::<model::Without>()),
        ("diff", model::schema_of::<model::Diff>()),
    ] {
        let path = schemas.join(format!("{name}.schema.json"));
        fs::write(&path, serde_json::to_string_pretty(&schema)? + "\n")
            .with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

fn shown(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|command| !command.is_hide_set())
}

fn page_name(command: &Command) -> String {
    command.get_display_name().unwrap_or_else(|| command.get_name()).to_owned()
}

/// Writes the page of a command. SEE ALSO lists `others`, the pages of the other commands.
fn page(command: &Command, others: &[String], out: &mut impl Write) -> io::Result<()> {
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim().to_owned();
    let man = Man::new(command.clone().override_usage(usage));
    let man = man.source(format!("bprec {}", env!("CARGO_PKG_VERSION"))).manual("bprec");
    man.render_title(out)?;
    // Users copy commands from the page: words are not hyphenated, and lines are not stretched.
    Roff::new().control("nh", []).control("ad", ["l"]).to_writer(out)?;
    man.render_name_section(out)?;
    man.render_synopsis_section(out)?;
    man.render_description_section(out)?;
    man.render_options_section(out)?;
    if command.has_subcommands() {
        man.render_subcommands_section(out)?;
    }
    let mut end = Roff::new();
    end.control("SH", ["EXIT STATUS"]);
    for (code, meaning) in [
        ("0", "Success, also if the reader of the output closes a pipe early."),
        ("1", "Nothing matched the request, or a gate failed."),
        ("2", "An error; standard error has the message."),
    ] {
        end.control("TP", []).text([bold(code)]).text([roman(meaning)]);
    }
    end.control("PP", []).text([roman("With a command, bprec record and bprec stat exit with its status.")]);
    end.control("SH", ["SEE ALSO"]);
    let own = page_name(command);
    let mut others: Vec<&str> = others.iter().map(String::as_str).filter(|name| *name != own).collect();
    if own != "bprec" {
        others.insert(0, "bprec");
    }
    let mut references = Vec::new();
    for name in others {
        references.extend([bold(name), roman("(1), ")]);
    }
    references.extend([bold("perf"), roman("(1), "), bold("bpftool"), roman("(8)")]);
    end.text(references);
    end.to_writer(out)
}
