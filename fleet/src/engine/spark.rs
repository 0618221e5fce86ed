//! Spark cluster: `spark-submit` runs a driver script of this program over the committed files of the lake.
//!
//! Request, answer and script are files in a temporary directory, which is removed after the query. Spark reads the configuration of the cluster and
//! its secret from `SPARK_CONF_DIR`; this program handles neither.

use super::{Engine, names};
use crate::answer::{Answer, Value};
use crate::lake::Lake;
use crate::schema::{Table, tables};
use anyhow::{Context, Error, Result, anyhow, bail, ensure};
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use fs_err::{self as fs, File};
use rustix::fs::{FlockOperation, flock};
use serde_json::json;
use serde_json::value::RawValue;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

const DRIVER: &str = include_str!("spark_driver.py");
const SUBMIT: &str = "spark-submit";
/// Interval between two checks of the driver.
const POLL: Duration = Duration::from_millis(50);
/// Limit on the lines of Spark's log in an error.
const QUOTED_LINES: usize = 3;

/// A cluster, the command to reach it, and a lake.
pub(super) struct SparkEngine {
    submit: PathBuf,
    master: String,
    /// Limit on the time until the cluster runs a task.
    start_timeout: Duration,
    lake: Lake,
    /// Conditions on the rows of each table.
    conditions: BTreeMap<String, Vec<String>>,
}

impl SparkEngine {
    /// Returns the cluster `master`, reached by the `spark-submit` in `SPARK_HOME`, or else on `PATH`, with the committed files of a lake.
    ///
    /// # Errors
    /// Fails if the lake is in an object store.
    pub(super) fn open(master: &str, start_timeout: Duration, lake: &Lake) -> Result<SparkEngine> {
        ensure!(lake.store.objects().is_none(), "--spark: the lake must be in a directory, not in an object store");
        let home = std::env::var_os("SPARK_HOME").filter(|home| !home.is_empty());
        let submit = home.map_or(SUBMIT.into(), |home| Path::new(&home).join("bin").join(SUBMIT));
        let (master, lake, conditions) = (master.to_owned(), lake.clone(), BTreeMap::new());
        Ok(SparkEngine { submit, master, start_timeout, lake, conditions })
    }

    fn start(&self, directory: &Path) -> Result<Child> {
        let driver = directory.join("driver.py");
        fs::write(&driver, DRIVER)?;
        let log = File::create(directory.join("log"))?.into_file();
        let mut command = Command::new(&self.submit);
        command.args(["--master", &self.master, "--deploy-mode", "client", "--name", "bprec-fleet"]);
        // The web interface would listen on all addresses.
        command.args(["--conf", "spark.ui.enabled=false"]);
        command.arg(driver).arg(directory);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        command.spawn().with_context(|| {
            format!(
                "--spark: start {}: install Spark and Java on this machine (`pip install pyspark` has all of Spark), and set \
                 SPARK_HOME to the directory of Spark",
                self.submit.display()
            )
        })
    }

    /// Request for the table: its columns in the syntax of Spark, and the directory with a subdirectory for each day.
    fn request(&self, table: &Table) -> Result<serde_json::Value> {
        // Workers open the files by the same paths, so symbolic links in them are not resolved.
        let committed = self.lake.committed(table.name)?;
        let files = committed.iter().map(|file| Ok(std::path::absolute(&file.path)?)).collect::<Result<Vec<_>>>()?;
        let directory = files.first().and_then(|path| path.parent()?.parent()).map(Path::to_owned).unwrap_or_default();
        let columns = table.schema.fields().iter();
        let columns = columns.map(|field| Ok(format!("`{}` {}", field.name(), spark_type(field.data_type())?)));
        let mut columns: Vec<String> = columns.collect::<Result<_>>()?;
        columns.push("`date` STRING".to_owned());
        Ok(json!({
            "name": table.name,
            "schema": columns.join(", "),
            "directory": directory,
            "files": files,
            "conditions": self.conditions.get(table.name).map_or(&[][..], Vec::as_slice),
        }))
    }

    /// Waits until the driver ends, and returns its exit status. Fails if the cluster runs no task within `start_timeout`.
    fn wait(&self, driver: &mut Child, directory: &Path) -> Result<ExitStatus> {
        let (began, started) = (Instant::now(), directory.join("started"));
        loop {
            if let Some(status) = driver.try_wait()? {
                return Ok(status);
            }
            if began.elapsed() >= self.start_timeout && !started.exists() {
                let (master, timeout_s, log) = (&self.master, self.start_timeout.as_secs(), quoted(directory));
                bail!(
                    "--spark {master}: ran no task within {timeout_s} s: it has no free core or too little free memory, cannot be reached, \
                     cannot reach this machine (SPARK_LOCAL_IP), or has another spark.authenticate.secret{log}"
                );
            }
            std::thread::sleep(POLL);
        }
    }
}

impl Engine for SparkEngine {
    fn narrow(&mut self, table: &str, condition: &str) -> Result<()> {
        self.conditions.entry(table.to_owned()).or_default().push(condition.to_owned());
        Ok(())
    }

    fn ask(&self, sql: &str) -> Result<Answer> {
        // A query reads only tables that its text names.
        // Spark stops at the expected size of a page, and so before the checksum of some damaged pages.
        self.lake.check(|table| names(sql, table))?;
        let named = tables().into_iter().filter(|table| names(sql, table.name));
        let tables = named.map(|table| self.request(&table)).collect::<Result<Vec<_>>>()?;
        let directory = tempfile::Builder::new().prefix("bprec-fleet-").tempdir().context("create a directory")?;
        let directory = directory.path();
        let request = directory.join("request.json");
        fs::write(&request, json!({"sql": sql, "tables": tables}).to_string())?;
        // The driver waits for this lock. If this process ends, even by a kill, the kernel releases the lock, and the
        // driver ends, too.
        let lock = File::open(&request)?;
        flock(&lock, FlockOperation::LockExclusive)?;
        let mut driver = self.start(directory)?;
        let status = self.wait(&mut driver, directory);
        // A driver that has ended cannot be killed, and has an exit status.
        driver.kill().and_then(|()| driver.wait())?;
        let status = status?;
        let answer = File::open(directory.join("answer.jsonl"));
        let answer = answer
            .map_err(|_| anyhow!("--spark {}: {SUBMIT} gave no answer, {status}{}", self.master, quoted(directory)))?;
        read(BufReader::new(answer))
    }
}

/// Name of a column type in Spark.
fn spark_type(data_type: &DataType) -> Result<&'static str> {
    Ok(match data_type {
        DataType::Boolean => "BOOLEAN",
        DataType::Int32 => "INT",
        DataType::Int64 => "BIGINT",
        DataType::Timestamp(TimeUnit::Microsecond, Some(_)) => "TIMESTAMP",
        DataType::Utf8 => "STRING",
        other => bail!("no Spark type is known for {other}"),
    })
}

fn read(answer: impl BufRead) -> Result<Answer> {
    let at = "read the answer of Spark";
    let mut lines = answer.lines();
    let heading = lines.next().context(at)?.context(at)?;
    let columns: std::result::Result<Vec<String>, String> = serde_json::from_str(&heading).context(at)?;
    let columns = columns.map_err(Error::msg)?;
    let row = |line: std::io::Result<String>| {
        let values: Vec<Box<RawValue>> = serde_json::from_str(&line.context(at)?).context(at)?;
        values.iter().map(|value| value_of(value.get()).context(at)).collect()
    };
    Ok(Answer { columns, rows: lines.map(row).collect::<Result<_>>()? })
}

/// Value of a JSON text. Integers may have more digits than the number types of `serde_json` hold; only reals have a point or an exponent.
fn value_of(json: &str) -> Result<Value> {
    Ok(match json {
        "null" => Value::Null,
        "true" | "false" => Value::Bool(json == "true"),
        text if text.starts_with('"') => Value::Text(serde_json::from_str(text)?),
        real if real.contains(['.', 'e']) => Value::from(Some(real.parse::<f64>()?)),
        integer => Value::Integer(integer.parse()?),
    })
}

/// Lines of Spark's log about a failure: the first errors, or else the last lines.
fn quoted(directory: &Path) -> String {
    let log = fs::read(directory.join("log")).unwrap_or_default();
    let log = String::from_utf8_lossy(&log);
    let lines: Vec<&str> = log.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let is_error = |line: &&&str| line.contains(" ERROR ") || line.contains("Error:") || line.contains("Exception:");
    let mut quoted: Vec<&str> = lines.iter().filter(is_error).take(QUOTED_LINES).copied().collect();
    if quoted.is_empty() {
        quoted = lines[lines.len().saturating_sub(QUOTED_LINES)..].to_vec();
    }
    if quoted.is_empty() { String::new() } else { format!("; Spark says: {}", quoted.join("; ")) }
}
