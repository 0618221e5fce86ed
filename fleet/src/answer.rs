//! Answers: rows of values, whatever engine they come from.

/// A value of a row.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    /// Not known.
    Null,
    /// Sums are of any size that 38 digits have.
    Integer(i128),
    Real(f64),
    Bool(bool),
    Text(String),
}

/// Rows by column.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct Answer {
    pub(crate) columns: Vec<String>,
    pub(crate) rows: Vec<Vec<Value>>,
}

impl Value {
    pub(crate) fn integer(&self) -> Option<i128> {
        match self {
            Value::Integer(number) => Some(*number),
            Value::Null | Value::Real(_) | Value::Bool(_) | Value::Text(_) => None,
        }
    }
}

impl From<Option<f64>> for Value {
    fn from(number: Option<f64>) -> Value {
        number.filter(|number| number.is_finite()).map_or(Value::Null, Value::Real)
    }
}
