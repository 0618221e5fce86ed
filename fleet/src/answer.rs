//! Answers of queries: rows of values, the same for every engine.

/// Value of a column in a row.
#[derive(Debug, Clone, PartialEq, Default)]
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

impl Value {
    /// Formats a value for other programs: `null` for null, and text as `text` returns it.
    pub(crate) fn plain(&self, null: &str, text: impl Fn(&str) -> String) -> String {
        match self {
            Value::Null => null.to_owned(),
            Value::Integer(number) => number.to_string(),
            Value::Real(number) => format!("{number:?}"),
            Value::Bool(flag) => flag.to_string(),
            Value::Text(value) => text(value),
        }
    }

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
