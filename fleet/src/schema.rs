//! Tables of a lake. For each table, a Rust type defines the columns, their Parquet types and the order of the rows.
//!
//! No unsigned integers: Spark reads unsigned 64-bit integers as decimals. No floating point: sums must not depend on the order of addition.
//! Times in µs since 1970 UTC, durations in ns, text in UTF-8. An unknown value is null, never zero. Within a version, only nullable columns may
//! be added, at the end of a table.

use datafusion::arrow::array::{
    ArrayRef, BooleanArray, Int32Array, Int64Array, RecordBatch, StringArray, TimestampMicrosecondArray,
};
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::error::ArrowError;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::SystemTime;

/// Version of the directory layout and of all tables.
pub(crate) const SCHEMA_VERSION: i32 = 2;

/// Text that rows share.
pub(crate) type Text = Arc<str>;

/// Time, µs since 1970 UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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

/// Type of the known values of a column.
trait Known: Sized {
    fn data_type() -> DataType;
    /// Returns false for a negative number.
    fn is_in_range(&self) -> bool;
    fn array<'v>(values: impl Iterator<Item = Option<&'v Self>>) -> ArrayRef
    where
        Self: 'v;
}

/// Type of a column: of known values, or of `Option`s of them.
trait ColumnType {
    type Known: Known;
    const NULLABLE: bool;
    fn known(&self) -> Option<&Self::Known>;
}

impl<T: Known> ColumnType for T {
    type Known = T;
    const NULLABLE: bool = false;

    fn known(&self) -> Option<&T> {
        Some(self)
    }
}

impl<T: Known> ColumnType for Option<T> {
    type Known = T;
    const NULLABLE: bool = true;

    fn known(&self) -> Option<&T> {
        self.as_ref()
    }
}

macro_rules! known {
    ($type:ty, $array:ty, $data_type:expr, $least:expr, |$value:ident| $plain:expr $(, $zoned:ident($zone:literal))?) => {
        impl Known for $type {
            fn is_in_range(&self) -> bool {
                let $value = self;
                $plain >= $least
            }

            fn data_type() -> DataType {
                $data_type
            }

            fn array<'v>(values: impl Iterator<Item = Option<&'v $type>>) -> ArrayRef {
                let values: $array = values.map(|value| value.map(|$value| $plain)).collect();
                Arc::new(values$(.$zoned($zone))?)
            }
        }
    };
}

known!(Text, StringArray, DataType::Utf8, "", |text| &**text);
known!(i32, Int32Array, DataType::Int32, 0, |number| *number);
known!(i64, Int64Array, DataType::Int64, 0, |number| *number);
known!(bool, BooleanArray, DataType::Boolean, false, |flag| *flag);
known!(
    UnixMicros,
    TimestampMicrosecondArray,
    DataType::Timestamp(TimeUnit::Microsecond, Some("UTC".into())),
    0,
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
    /// Returns true if no number is negative.
    fn is_valid(&self) -> bool;

    fn batch(rows: &[Self]) -> Result<RecordBatch, ArrowError> {
        RecordBatch::try_new(Self::table().schema, Self::columns(rows))
    }
}

fn field<T: ColumnType>(name: &str) -> Field {
    Field::new(name, T::Known::data_type(), T::NULLABLE)
}

/// Defines a table. Rows `of a host` begin with the columns of the host, rows `of a recording` with these and the columns of the recording. Then
/// follow, `of a program`, the columns of the program.
macro_rules! table {
    ($(#[$about:meta])* $row:ident, $name:literal, sorted by [$($key:ident),*], of a program of a $of:ident { $($columns:tt)* }) => {
        table! { $(#[$about])* $row, $name, sorted by [$($key),*], of a $of {
            prog_id: Option<i32>,
            load_time_ns: Option<i64>,
            prog_key: Text,
            tag: Option<Text>,
            name: Text,
            prog_type: Option<Text>,
            version_label: Option<Text>,
            counts_others: bool,
            $($columns)*
        } }
    };
    ($(#[$about:meta])* $row:ident, $name:literal, sorted by [$($key:ident),*], of a recording { $($columns:tt)* }) => {
        table! { $(#[$about])* $row, $name, sorted by [$($key),*], of a host {
            window_start: Option<UnixMicros>,
            labels: Option<Text>,
            $($columns)*
        } }
    };
    ($(#[$about:meta])* $row:ident, $name:literal, sorted by [$($key:ident),*], of a host { $($columns:tt)* }) => {
        table! { $(#[$about])* $row, $name, sorted by [$($key),*], {
            host_id: Option<Text>,
            host_name: Option<Text>,
            boot_id: Option<Text>,
            kernel_release: Option<Text>,
            $($columns)*
        } }
    };
    ($(#[$about:meta])* $row:ident, $name:literal, sorted by [$($key:ident),*], { $($column:ident: $type:ty,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct $row {
            $(pub(crate) $column: $type,)*
        }

        impl Row for $row {
            fn table() -> Table {
                let fields = vec![$(field::<$type>(stringify!($column))),*];
                Table { name: $name, schema: Arc::new(Schema::new(fields)), sorted_by: &[$(stringify!($key)),*] }
            }

            fn sort(rows: &mut [$row]) {
                rows.sort_by(|a, b| ($(&a.$key,)*).cmp(&($(&b.$key,)*)));
            }

            fn columns(rows: &[$row]) -> Vec<ArrayRef> {
                vec![$(Known::array(rows.iter().map(|row| row.$column.known()))),*]
            }

            fn is_valid(&self) -> bool {
                $(self.$column.known().is_none_or(Known::is_in_range))&&*
            }
        }
    };
}

table! {
    /// A recording and its host.
    RecordingRow, "recording", sorted by [host_id, start_time, recording_id], of a host {
        schema_version: i32,
        recording_id: Text,
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
    }
}

table! {
    /// A program on a host, once per batch.
    ProgRow, "prog", sorted by [prog_key, host_id, prog_id, load_time_ns], of a program of a host {
        tag_algo: Option<Text>,
        source_file: Option<Text>,
        owner_comm: Option<Text>,
        owner_uid: Option<i32>,
    }
}

table! {
    /// Attach points of a program with the same kind and hook, in a recording.
    AttachmentRow, "attachment", sorted by [prog_key, host_id, window_start, kind, hook], of a program of a recording {
        kind: Text,
        hook: Option<Text>,
        attach_points: i64,
    }
}

table! {
    /// Runs of a program in a recording, by the kernel's run statistics.
    RunStatsRow, "run_stats", sorted by [prog_key, host_id, window_start], of a program of a recording {
        cpu_count: Option<i32>,
        observed_ns: Option<i64>,
        run_cnt: i64,
        run_time_ns: i64,
        recursion_misses: Option<i64>,
        is_estimate: bool,
        is_partial: bool,
        time_margin_ns: Option<i64>,
        hour_of_week: Option<i32>,
    }
}

table! {
    /// All samples of an event in a recording.
    EventRow, "event", sorted by [event, host_id, window_start], of a recording {
        cpu_count: Option<i32>,
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
    /// Samples of an event that are charged to a function of a program, or to BPF code of no known program.
    SampleRow, "sample", sorted by [prog_key, host_id, window_start, event, func], of a recording {
        prog_id: Option<i32>,
        load_time_ns: Option<i64>,
        prog_key: Option<Text>,
        tag: Option<Text>,
        name: Option<Text>,
        prog_type: Option<Text>,
        version_label: Option<Text>,
        counts_others: bool,
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
    /// Reading of a counter over the whole recording.
    CounterRow, "counter", sorted by [scope, event, prog_key, host_id, window_start], of a recording {
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

/// Defines `Rows` with a field for each table. The files of `recording` have the commits.
macro_rules! rows {
    ($recordings:ident: $recording:ident, $($facts:ident: $fact:ident,)*) => {
        /// Rows of recordings of one day, by table.
        #[derive(Debug, Default, Serialize, Deserialize)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct Rows {
            pub(crate) $recordings: Vec<$recording>,
            $(pub(crate) $facts: Vec<$fact>,)*
        }

        impl Rows {
            pub(crate) fn append(&mut self, mut other: Rows) {
                self.$recordings.append(&mut other.$recordings);
                $(self.$facts.append(&mut other.$facts);)*
            }

            /// Returns true if no number is negative.
            pub(crate) fn is_valid(&self) -> bool {
                self.$recordings.iter().all(Row::is_valid) $(&& self.$facts.iter().all(Row::is_valid))*
            }

            /// Sorts the rows. Returns them by table, those of `recording` last.
            pub(crate) fn sorted(&mut self) -> Result<Vec<(Table, Vec<RecordBatch>)>, ArrowError> {
                $($fact::sort(&mut self.$facts);)*
                $recording::sort(&mut self.$recordings);
                Ok(vec![
                    $(($fact::table(), vec![$fact::batch(&self.$facts)?]),)*
                    ($recording::table(), vec![$recording::batch(&self.$recordings)?]),
                ])
            }
        }

        /// All tables, `recording` last.
        pub(crate) fn tables() -> Vec<Table> {
            vec![$($fact::table(),)* $recording::table()]
        }
    };
}

rows! {
    recordings: RecordingRow,
    progs: ProgRow,
    attachments: AttachmentRow,
    run_stats: RunStatsRow,
    events: EventRow,
    samples: SampleRow,
    counters: CounterRow,
}
