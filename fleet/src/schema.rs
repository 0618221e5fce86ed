//! The tables of a lake: each row type is a Rust type, and its columns, their Parquet types and the order of the rows follow from it.
//!
//! Rules: no unsigned integers (Spark reads those of 64 bits as decimals), no floating point (sums must not depend on the order of
//! addition), times in µs since 1970 UTC, durations in ns, plain UTF-8 text. What is not known is null, never zero. Within version 1 only
//! nullable columns may be added, at the end of a table.

use datafusion::arrow::array::{
    Array, ArrayRef, BooleanArray, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::error::ArrowError;
use std::sync::Arc;

/// Version of the layout and of all tables.
pub(crate) const SCHEMA_VERSION: i32 = 1;

/// Text that many rows share.
pub(crate) type Text = Arc<str>;

/// A moment, µs since 1970 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct UnixMicros(pub(crate) i64);

/// Types of columns.
trait Value: Sized {
    const NULLABLE: bool = false;
    fn data_type() -> DataType;
    fn array<'v>(values: impl Iterator<Item = &'v Self>) -> ArrayRef
    where
        Self: 'v;
}

macro_rules! value {
    ($type:ty, $array:ty, $data_type:expr, |$value:ident| $plain:expr) => {
        impl Value for $type {
            fn data_type() -> DataType {
                $data_type
            }

            fn array<'v>(values: impl Iterator<Item = &'v $type>) -> ArrayRef {
                let values: $array = values.map(|$value| Some($plain)).collect();
                Arc::new(at_utc(values))
            }
        }

        impl Value for Option<$type> {
            const NULLABLE: bool = true;

            fn data_type() -> DataType {
                $data_type
            }

            fn array<'v>(values: impl Iterator<Item = &'v Option<$type>>) -> ArrayRef {
                let values: $array = values.map(|value| value.as_ref().map(|$value| $plain)).collect();
                Arc::new(at_utc(values))
            }
        }
    };
}

/// Times get their zone; everything else stays as it is.
trait AtUtc: Array {
    fn at_utc(self) -> Self;
}

macro_rules! as_it_is {
    ($($array:ty),*) => { $(impl AtUtc for $array { fn at_utc(self) -> Self { self } })* };
}

as_it_is!(StringArray, Int32Array, Int64Array, BooleanArray);

impl AtUtc for TimestampMicrosecondArray {
    fn at_utc(self) -> Self {
        self.with_timezone("UTC")
    }
}

fn at_utc<A: AtUtc>(values: A) -> A {
    values.at_utc()
}

value!(Text, StringArray, DataType::Utf8, |text| &**text);
value!(i32, Int32Array, DataType::Int32, |number| *number);
value!(i64, Int64Array, DataType::Int64, |number| *number);
value!(bool, BooleanArray, DataType::Boolean, |flag| *flag);
value!(UnixMicros, TimestampMicrosecondArray, DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())), |time| {
    time.0
});

/// A table by its name, and what its files are made of.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) schema: SchemaRef,
    /// Columns that order the rows of each file.
    pub(crate) sorted_by: &'static [&'static str],
}

/// Rows of one table.
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
    /// A recording, and the host that it is of.
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
    }
}

table! {
    /// A program on a host, as one recording or several of a batch knew it.
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
    }
}

table! {
    /// Runs of a program in a recording, by the kernel's statistics.
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
    }
}

table! {
    /// Samples of an event in a recording, whatever they were taken in.
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
    }
}

table! {
    /// Samples of an event that are charged to a function of a program, or to BPF without a program.
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
    }
}

table! {
    /// A counter of a recording over all of its time, as it was read.
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
    }
}

/// Every table but `recording`, whose files are the marks of what was committed.
pub(crate) fn fact_tables() -> [Table; 5] {
    [ProgRow::table(), RunStatsRow::table(), EventRow::table(), SampleRow::table(), CounterRow::table()]
}

/// Every table.
pub(crate) fn tables() -> [Table; 6] {
    let [prog, run_stats, event, sample, counter] = fact_tables();
    [RecordingRow::table(), prog, run_stats, event, sample, counter]
}
