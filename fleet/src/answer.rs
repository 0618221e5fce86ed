//! Answers of queries: rows of values, the same for every engine.

use serde::Serialize;

/// Value of a column in a row.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
#[serde(untagged)]
pub(crate) enum Value {
    /// Unknown.
    #[default]
    Null,
    /// Integer of up to 38 digits.
    Integer(i128),
    Real(f64),
    Bool(bool),
    Text(String),
}

/// Column names, and rows with a value for each column.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Answer {
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<Value>>,
}

impl Answer {
    /// Returns true if a column has numbers.
    pub(crate) fn is_numeric(&self, column: usize) -> bool {
        self.rows.iter().any(|row| matches!(row[column], Value::Integer(_) | Value::Real(_)))
    }
}

impl Value {
    pub(crate) fn integer(&self) -> Option<i128> {
        let Value::Integer(number) = self else { return None };
        Some(*number)
    }

    pub(crate) fn real(&self) -> Option<f64> {
        let Value::Real(number) = self else { return None };
        Some(*number)
    }

    pub(crate) fn text(&self) -> Option<&str> {
        let Value::Text(text) = self else { return None };
        Some(text)
    }
}

impl From<Option<f64>> for Value {
    fn from(number: Option<f64>) -> Value {
        number.filter(|number| number.is_finite()).map_or(Value::Null, Value::Real)
    }
}
