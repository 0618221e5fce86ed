//! Lakes in other engines, without bprec.

use crate::support::{Lake, readers, text, whole_recordings};
use serde_json::Value;
use std::collections::BTreeMap;
use std::process::Command;

/// Script that prints sums by DuckDB and by pandas, each with its own Parquet reader.
const SCRIPT: &str = r#"
import json, sys
import duckdb, pandas
lake = sys.argv[1]
found = {}
for table, column in [("run_stats", "run_cnt"), ("run_stats", "run_time_ns"), ("event", "weight"), ("sample", "weight"), ("counter", "value")]:
    files = f"{lake}/v2/current/{table}/*/*.parquet"
    duck = duckdb.sql(f"SELECT CAST(date AS VARCHAR), CAST(SUM({column}) AS BIGINT) FROM read_parquet('{files}', hive_partitioning = true, hive_types_autocast = false) GROUP BY 1")
    frame = pandas.read_parquet(f"{lake}/v2/current/{table}")
    sums = frame.groupby("date", observed=True)[column].sum()
    found[f"{table}.{column}"] = [dict(sorted(duck.fetchall())), {str(date): int(sum) for date, sum in sorted(sums.items())}]
times = duckdb.sql(f"SELECT DISTINCT strftime(start_time AT TIME ZONE 'UTC', '%Y-%m-%d') = CAST(date AS VARCHAR) FROM read_parquet('{lake}/v2/current/recording/*/*.parquet', hive_partitioning = true)")
assert times.fetchall() == [(True,)], times.fetchall()
print(json.dumps(found))
"#;

#[test]
fn duckdb_and_pandas_add_up_to_the_same() {
    let Some(packages) = readers() else {
        println!("SKIP duckdb_and_pandas_add_up_to_the_same: setup/fleet-readers installs them");
        return;
    };
    let lake = Lake::with(&whole_recordings(), &["--batch", "4"]);
    let output =
        Command::new("python3").env("PYTHONPATH", packages).args(["-c", SCRIPT]).arg(lake.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let found: BTreeMap<String, [BTreeMap<String, u64>; 2]> = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found.len(), 5);
    for (column, [duckdb, pandas]) in found {
        let (table, name) = column.split_once('.').unwrap();
        let rows =
            lake.sql(&format!("SELECT date, SUM(CAST({name} AS DECIMAL(20,0))) AS sum FROM {table} GROUP BY date"));
        let sum = |row: &Value| (row["date"].as_str().unwrap().to_owned(), row["sum"].as_u64().unwrap());
        let ours: BTreeMap<String, u64> = rows.iter().map(sum).collect();
        assert!(ours.values().sum::<u64>() > 0, "{column}");
        assert_eq!(duckdb, ours, "{column}");
        assert_eq!(pandas, ours, "{column}");
    }
}
