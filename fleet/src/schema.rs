//! Tables of a lake. A Rust type per table defines columns, Parquet types and order of the rows.
//!
//! No unsigned integers: Spark reads unsigned 64-bit integers as decimals. No floating point: sums must not depend on the order of addition.
//! Times in µs since 1970 UTC, durations in ns, text in UTF-8. An unknown value is null, never zero. Within version 1, only nullable columns may
//! be added, at the end of a table.

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::error::ArrowError;
use std::sync::Arc;
use std::time::SystemTime;

/// Version of the directory layout and of all tables.
pub(crate) const SCHEMA_VERSION: i32 = 1;

/// Text that rows share.
pub(crate) type Text = Arc<str>;

/// Time, µs since 1970 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnixMicros(pub(crate) i64);

impl UnixMicros {
    /// Time by this machine's clock.
    pub(crate) fn now() -> UnixMicros {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        UnixMicros(i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX))
    }

    /// Hours since Monday 00:00 UTC, 0 to 167.
    pub(crate) fn hour_of_week(self) -> i32 {
        const US_PER_HOUR: i64 = 3_600_000_000;
        // 1970-01-01 was a Thursday.
        (self.0.div_euclid(US_PER_HOUR) + 3 * 24).rem_euclid(7 * 24) as i32
    }
}

/// Type of a column.
trait ColumnType: Sized {
    const NULLABLE: bool = false;
    fn data_type() -> DataType;
    fn array<'v>(values: impl Iterator<Item = &'v Self>) -> ArrayRef
    where
        Self: 'v;
}

macro_rules! column {
    ($type:ty, $array:ty, $data_type:expr, |$value:ident| $plain:expr $(, $zoned:ident($zone:literal))?) => {
        impl ColumnType for $type {
            fn data_type() -> DataType {
                $data_type
            }

            fn array<'v>(values: impl Iterator<Item = &'v $type>) -> ArrayRef {
                let values: $array = values.map(|$value| Some($plain)).collect();
                Arc::new(values$(.$zoned($zone))?)
            }
        }

        impl ColumnType for Option<$type> {
            const NULLABLE: bool = true;

            fn data_type() -> DataType {
                $data_type
            }

            fn array<'v>(values: impl Iterator<Item = &'v Option<$type>>) -> ArrayRef {
                let values: $array = values.map(|value| value.as_ref().map(|$value| $plain)).collect();
                Arc::new(values$(.$zoned($zone))?)
            }
        }
    };
}

column!(Text, StringArray, DataType::Utf8, |text| &**text);
column!(i32, Int32Array, DataType::Int32, |number| *number);
column!(i64, Int64Array, DataType::Int64, |number| *number);
column!(bool, BooleanArray, DataType::Boolean, |flag| *flag);
column!(
    UnixMicros,
    TimestampMicrosecondArray,
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
    |time| time.0,
    with_timezone("UTC")
);

/// Name, columns and order of the rows of a table.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) schema: SchemaRef,
    /// Columns by which the rows of each file are sorted.
    pub(crate) sorted_by: &'static [&'static str],
}

/// Row of a table.
pub(crate) trait Row: Sized {
    fn table() -> Table;
    fn sort(rows: &mut [Self]);
    fn columns(rows: &[Self]) -> Vec<ArrayRef>;

    fn batch(rows: &[Self]) -> Result<RecordBatch, ArrowError> {
        RecordBatch::try_new(Self::table().schema, Self::columns(rows))
    }
}

macro_rules! table {
    ($(#[$about:meta])* $row:ident, $name:literal, sorted by [$($key:ident),*], { $($column:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq)]
        pub(crate) struct $row {
            $(pub(crate) $column: $type,)*
        }

        impl Row for $row {
            fn table() -> Table {
                let fields = vec![$(Field::new(stringify!($column), <$type>::data_type(), <$type>::NULLABLE)),*];
                Table { name: $name, schema: Arc::new(Schema::new(fields)), sorted_by: &[$(stringify!($key)),*] }
            }

            fn sort(rows: &mut [$row]) {
                rows.sort_by(|a, b| ($(&a.$key,)*).cmp(&($(&b.$key,)*)));
            }

            fn columns(rows: &[$row]) -> Vec<ArrayRef> {
                vec![$(<$type>::array(rows.iter().map(|row| &row.$column))),*]
            }
        }
    };
}

table! {
    /// A recording and its host.
    RecordingRow, "recording", sorted by [host_id, start_time, recording_id], {
        schema_version: i32,
        recording_id: Text,
        host_id: Option<Text>,
        host_name: Option<Text>,
        kernel_release: Option<Text>,
        arch: Option<Text>,
        cpu_model: Option<Text>,
        cpu_count: Option<i32>,
        labels: Option<Text>,
        start_time: Option<UnixMicros>,
        duration_ns: Option<i64>,
        cpu_time_ns: Option<i64>,
        target: Option<Text>,
        run_stats_source: Option<Text>,
        lost_records: i64,
        problems: Option<Text>,
        source_uri: Text,
        source_bytes: i64,
        writer: Text,
        ingested_at: Option<UnixMicros>,
        boot_id: Option<Text>,
    }
}

table! {
    /// A program on a host, once per batch.
    ProgRow, "prog", sorted by [prog_key, host_id, prog_id, load_time_ns], {
        host_id: Option<Text>,
        kernel_release: Option<Text>,
        prog_id: Option<i32>,
        load_time_ns: Option<i64>,
        prog_key: Text,
        tag: Option<Text>,
        tag_algo: Option<Text>,
        name: Text,
        prog_type: Option<Text>,
        attached: Text,
        version_label: Option<Text>,
        owner_comm: Option<Text>,
        owner_uid: Option<i32>,
        counts_others: bool,
        host_name: Option<Text>,
        boot_id: Option<Text>,
    }
}

table! {
    /// Runs of a program in a recording, by the kernel's run statistics.
    RunStatsRow, "run_stats", sorted by [prog_key, host_id, window_start], {
        host_id: Option<Text>,
        kernel_release: Option<Text>,
        cpu_count: Option<i32>,
        prog_id: Option<i32>,
        load_time_ns: Option<i64>,
        prog_key: Text,
        tag: Option<Text>,
        name: Text,
        prog_type: Option<Text>,
        version_label: Option<Text>,
        counts_others: bool,
        window_start: Option<UnixMicros>,
        observed_ns: Option<i64>,
        run_cnt: i64,
        run_time_ns: i64,
        recursion_misses: Option<i64>,
        is_estimate: bool,
        is_partial: bool,
        time_margin_ns: Option<i64>,
        hour_of_week: Option<i32>,
        labels: Option<Text>,
        host_name: Option<Text>,
        boot_id: Option<Text>,
    }
}

table! {
    /// All samples of an event in a recording.
    EventRow, "event", sorted by [event, host_id, window_start], {
        host_id: Option<Text>,
        kernel_release: Option<Text>,
        cpu_count: Option<i32>,
        window_start: Option<UnixMicros>,
        event: Text,
        unit: Text,
        samples: i64,
        weight: i64,
        bpf_samples: i64,
        bpf_weight: i64,
        idle_weight: Option<i64>,
        machine_weight: Option<i64>,
        lost: Option<i64>,
        labels: Option<Text>,
        host_name: Option<Text>,
        boot_id: Option<Text>,
    }
}

table! {
    /// Samples of an event that are charged to a function of a program, or to BPF code of no known program.
    SampleRow, "sample", sorted by [prog_key, host_id, window_start, event, func], {
        host_id: Option<Text>,
        kernel_release: Option<Text>,
        prog_id: Option<i32>,
        load_time_ns: Option<i64>,
        prog_key: Option<Text>,
        tag: Option<Text>,
        name: Option<Text>,
        prog_type: Option<Text>,
        version_label: Option<Text>,
        counts_others: bool,
        window_start: Option<UnixMicros>,
        event: Text,
        unit: Text,
        scope: Text,
        func: Option<Text>,
        samples: i64,
        weight: i64,
        self_weight: Option<i64>,
        helper_weight: Option<i64>,
        entry_weight: Option<i64>,
        labels: Option<Text>,
        host_name: Option<Text>,
        boot_id: Option<Text>,
    }
}

table! {
    /// Reading of a counter over the whole recording.
    CounterRow, "counter", sorted by [scope, event, prog_key, host_id, window_start], {
        host_id: Option<Text>,
        kernel_release: Option<Text>,
        window_start: Option<UnixMicros>,
        source: Text,
        scope: Text,
        target_id: Option<i64>,
        prog_key: Option<Text>,
        tag: Option<Text>,
        name: Option<Text>,
        func: Option<Text>,
        cpu: Option<i32>,
        event: Text,
        value: i64,
        time_enabled_ns: i64,
        time_running_ns: i64,
        runs: Option<i64>,
        measured_runs: Option<i64>,
        labels: Option<Text>,
        host_name: Option<Text>,
        boot_id: Option<Text>,
    }
}

/// All tables but `recording`. The files of `recording` are the commits.
pub(crate) fn fact_tables() -> [Table; 5] {
    [ProgRow::table(), RunStatsRow::table(), EventRow::table(), SampleRow::table(), CounterRow::table()]
}

/// All tables.
pub(crate) fn tables() -> [Table; 6] {
    let [prog, run_stats, event, sample, counter] = fact_tables();
    [RecordingRow::table(), prog, run_stats, event, sample, counter]
}
