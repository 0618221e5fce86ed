//! Generates recordings of any size and shape, for benches and experiments.

use std::fs::File;
use std::io::BufWriter;

use anyhow::{Context, Result, bail};
use bprec_generate::{Container, LEVEL_MAX, Shape, generate};

/// Keys that describe a recording, with their default values.
const KEYS: &str = "size=135M programs=10 churned=0 frames=7 user-frames=2 bpf=66 tasks=2 cpus=2 zstd=3 pipe seed=1";

/// Writes a recording into `path`.
pub(crate) fn write(path: &str, settings: &[&str]) -> Result<()> {
    let mut shape = Shape { record_bytes: 135_000_000, ..Shape::default() };
    for setting in settings {
        apply(setting, &mut shape).with_context(|| format!("{setting}: not one of {KEYS}"))?;
    }
    let file = File::create(path).with_context(|| format!("create {path}"))?;
    let made = generate(&shape, BufWriter::new(file)).with_context(|| format!("write {path}"))?;
    println!("{path}: {} samples, {} of them in BPF programs, weight {}", made.samples, made.bpf_samples, made.weight);
    Ok(())
}

fn apply(setting: &str, shape: &mut Shape) -> Result<()> {
    let (key, value) = setting.split_once('=').unwrap_or((setting, ""));
    let number = || value.parse::<u32>().context("expected a number");
    match key {
        "size" => shape.record_bytes = bytes(value)?,
        "programs" => shape.programs = number()?,
        "churned" => shape.churned_programs = number()?,
        "frames" => shape.kernel_frames = number()?,
        "user-frames" => shape.user_frames = number()?,
        "bpf" => shape.bpf_percent = number()?,
        "tasks" => shape.tasks_per_1000_samples = number()?,
        "cpus" => shape.cpus = number()?,
        "seed" => shape.seed = number()?.into(),
        "pipe" => shape.container = Container::Pipe,
        "zstd" => shape.container = Container::ZstdFile(number()?.min(LEVEL_MAX.unsigned_abs()).cast_signed()),
        _ => bail!("no such setting"),
    }
    Ok(())
}

/// Parses a size: `135M`, `64k`, `1G`, or a number of bytes.
fn bytes(text: &str) -> Result<u64> {
    let (digits, factor) = match text.char_indices().last() {
        Some((at, 'k')) => (&text[..at], 1000),
        Some((at, 'M')) => (&text[..at], 1_000_000),
        Some((at, 'G')) => (&text[..at], 1_000_000_000),
        _ => (text, 1),
    };
    let number: u64 = digits.parse().context("expected a size")?;
    number.checked_mul(factor).context("too large")
}
