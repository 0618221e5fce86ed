//! Query engines over the committed files of a lake: DataFusion in this process, or a Spark cluster. Both run the same SQL.

mod datafusion;
mod spark;

pub(crate) use datafusion::DataFusionEngine;

use crate::answer::Answer;
use crate::lake::Lake;
use anyhow::Result;
use spark::SparkEngine;
use std::time::Duration;

/// Tables of a lake, ready for queries.
pub(crate) trait Engine {
    /// Restricts a table to the rows that meet a condition, an SQL expression over its columns.
    ///
    /// # Errors
    /// Fails if the condition is not valid; with Spark, [`Engine::ask`] fails instead.
    fn narrow(&mut self, table: &str, condition: &str) -> Result<()>;

    /// Runs a query. Statements other than queries are refused.
    ///
    /// # Errors
    /// Fails if the query is not valid, or if a file of its tables is damaged.
    fn ask(&self, sql: &str) -> Result<Answer>;

    /// Returns the number of parts in which window functions over all rows of a table stay within the limit on memory.
    ///
    /// # Errors
    /// Fails if the rows cannot be counted.
    fn parts(&self, _table: &str) -> Result<usize> {
        Ok(1)
    }
}

/// Choice of the engine: by default, DataFusion.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct EngineChoice {
    /// Run queries on a Spark cluster: its URL, such as `spark://HOST:7077`, `yarn` or `local[4]`. Needs `SPARK_HOME`, or `spark-submit` on `PATH`.
    #[arg(long, value_name = "URL")]
    spark: Option<String>,
    /// `--spark`: limit on the time until the cluster runs a task.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, requires = "spark")]
    start_timeout: u64,
}

impl EngineChoice {
    /// Returns the chosen engine with the committed files of a lake.
    ///
    /// # Errors
    /// Fails if a file is missing or has another size than was committed.
    pub(crate) fn open(&self, lake: &Lake) -> Result<Box<dyn Engine>> {
        Ok(match &self.spark {
            None => Box::new(DataFusionEngine::open(lake)?),
            Some(master) => Box::new(SparkEngine::open(master, Duration::from_secs(self.start_timeout), lake)?),
        })
    }
}

/// Returns a text as a literal in SQL.
pub(crate) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Returns true if a word of the query is the name.
fn names(sql: &str, name: &str) -> bool {
    sql.split(|c: char| !c.is_alphanumeric() && c != '_').any(|word| word.eq_ignore_ascii_case(name))
}
