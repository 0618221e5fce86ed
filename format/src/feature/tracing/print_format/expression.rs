//! The arguments of a `print fmt:` line: expressions of C over the fields of a tracepoint.

use super::super::EventFormat;
use super::super::event_format::{Place, integer};
use crate::Endian;

/// Expressions do not nest deeper than this in any kernel.
const DEPTH_MAX: u32 = 64;

/// An expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expression {
    Number(i64),
    Text(String),
    /// `REC->name`, or `__get_str(name)` and its like.
    Field(Place),
    /// `REC->name[index]`.
    Element(Place, Box<Expression>),
    /// `__get_dynamic_array_len(name)`.
    Length(Place),
    Unary(Unary, Box<Expression>),
    Binary(Binary, Box<Expression>, Box<Expression>),
    Choice(Box<[Expression; 3]>),
    Cast {
        bytes: usize,
        is_signed: bool,
        value: Box<Expression>,
    },
    /// `__print_flags`.
    Flags {
        value: Box<Expression>,
        separator: String,
        names: Vec<(i64, String)>,
    },
    /// `__print_symbolic`.
    Symbol {
        value: Box<Expression>,
        names: Vec<(i64, String)>,
    },
    /// `__print_hex`, `__print_hex_str`: bytes, how many, and what stands between them.
    Hex {
        bytes: Box<Expression>,
        len: Box<Expression>,
        separator: &'static str,
    },
    /// `__print_array`: elements, how many, and the size of one.
    Array(Box<[Expression; 3]>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unary {
    Minus,
    Not,
    Complement,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Binary {
    Or,
    And,
    BitOr,
    BitXor,
    BitAnd,
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    ShiftLeft,
    ShiftRight,
    Plus,
    Minus,
    Times,
    Divide,
    Remainder,
}

/// Operators with how tightly they bind, longer ones before those that they begin with.
const OPERATORS: [(&str, Binary, u8); 18] = [
    ("||", Binary::Or, 1),
    ("&&", Binary::And, 2),
    ("<<", Binary::ShiftLeft, 8),
    (">>", Binary::ShiftRight, 8),
    ("==", Binary::Equal, 6),
    ("!=", Binary::NotEqual, 6),
    ("<=", Binary::LessEqual, 7),
    (">=", Binary::GreaterEqual, 7),
    ("|", Binary::BitOr, 3),
    ("^", Binary::BitXor, 4),
    ("&", Binary::BitAnd, 5),
    ("<", Binary::Less, 7),
    (">", Binary::Greater, 7),
    ("+", Binary::Plus, 9),
    ("-", Binary::Minus, 9),
    ("*", Binary::Times, 10),
    ("/", Binary::Divide, 10),
    ("%", Binary::Remainder, 10),
];

/// What an expression is for one sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value<'r> {
    Number(i64),
    Bytes(&'r [u8]),
    Text(String),
}

impl Value<'_> {
    /// As a number; of bytes there is none.
    pub(super) fn number(&self) -> Option<i64> {
        match self {
            Value::Number(number) => Some(*number),
            _ => None,
        }
    }
}

impl Expression {
    /// Its value for a sample; `None` when the raw data is too short, or the types do not fit.
    pub(super) fn value<'r>(&self, raw: &'r [u8], endian: Endian) -> Option<Value<'r>> {
        let number = |expression: &Expression| expression.value(raw, endian)?.number();
        Some(match self {
            Expression::Number(number) => Value::Number(*number),
            Expression::Text(text) => Value::Text(text.clone()),
            Expression::Field(place) => match place.number(raw, endian) {
                Some(value) => Value::Number(value as i64),
                None => Value::Bytes(place.bytes(raw, endian)?),
            },
            Expression::Element(place, index) => {
                let (bytes, size) = (place.bytes(raw, endian)?, place.element_bytes()?);
                let at = usize::try_from(number(index)?).ok()?.checked_mul(size)?;
                let element = bytes.get(at..at.checked_add(size)?)?;
                Value::Number(integer(element, endian, place.is_signed())? as i64)
            }
            Expression::Length(place) => Value::Number(place.bytes(raw, endian)?.len() as i64),
            Expression::Unary(operator, operand) => {
                let operand = number(operand)?;
                Value::Number(match operator {
                    Unary::Minus => operand.wrapping_neg(),
                    Unary::Not => i64::from(operand == 0),
                    Unary::Complement => !operand,
                })
            }
            Expression::Binary(operator, left, right) => {
                Value::Number(binary(*operator, number(left)?, || number(right))?)
            }
            Expression::Choice(parts) => {
                let [condition, yes, no] = &**parts;
                let chosen = if number(condition)? != 0 { yes } else { no };
                return chosen.value(raw, endian);
            }
            Expression::Cast { bytes, is_signed, value } => {
                let low = number(value)?.to_le_bytes();
                Value::Number(integer(low.get(..*bytes)?, Endian::Little, *is_signed)? as i64)
            }
            Expression::Flags { value, separator, names } => Value::Text(flags(number(value)?, separator, names)),
            Expression::Symbol { value, names } => {
                let value = number(value)?;
                let name = names.iter().find(|(number, _)| *number == value);
                Value::Text(name.map_or_else(|| format!("{value:#x}"), |(_, name)| name.clone()))
            }
            Expression::Hex { bytes, len, separator } => {
                let Value::Bytes(bytes) = bytes.value(raw, endian)? else { return None };
                let len = usize::try_from(number(len)?).ok()?;
                let shown: Vec<String> = bytes.iter().take(len).map(|byte| format!("{byte:02x}")).collect();
                Value::Text(shown.join(separator))
            }
            Expression::Array(parts) => {
                let [bytes, count, size] = &**parts;
                let Value::Bytes(bytes) = bytes.value(raw, endian)? else { return None };
                let (count, size) = (usize::try_from(number(count)?).ok()?, usize::try_from(number(size)?).ok()?);
                if !(1..=8).contains(&size) {
                    return None;
                }
                let elements = bytes.chunks_exact(size).take(count);
                let shown: Vec<String> = elements
                    .filter_map(|element| integer(element, endian, false))
                    .map(|element| format!("{element:#x}"))
                    .collect();
                Value::Text(format!("{{{}}}", shown.join(",")))
            }
        })
    }
}

fn binary(operator: Binary, left: i64, right: impl FnOnce() -> Option<i64>) -> Option<i64> {
    // As in C, the second operand of these is not looked at when the first one decides.
    match operator {
        Binary::Or if left != 0 => return Some(1),
        Binary::And if left == 0 => return Some(0),
        _ => {}
    }
    let right = right()?;
    let shift = || u32::try_from(right).ok().filter(|bits| *bits < 64);
    Some(match operator {
        Binary::Or | Binary::And => i64::from(right != 0),
        Binary::BitOr => left | right,
        Binary::BitXor => left ^ right,
        Binary::BitAnd => left & right,
        Binary::Equal => i64::from(left == right),
        Binary::NotEqual => i64::from(left != right),
        Binary::Less => i64::from(left < right),
        Binary::LessEqual => i64::from(left <= right),
        Binary::Greater => i64::from(left > right),
        Binary::GreaterEqual => i64::from(left >= right),
        Binary::ShiftLeft => left << shift()?,
        Binary::ShiftRight => left >> shift()?,
        Binary::Plus => left.wrapping_add(right),
        Binary::Minus => left.wrapping_sub(right),
        Binary::Times => left.wrapping_mul(right),
        Binary::Divide => left.checked_div(right)?,
        Binary::Remainder => left.checked_rem(right)?,
    })
}

/// The names of the bits that are set, then the rest as a number.
fn flags(mut value: i64, separator: &str, names: &[(i64, String)]) -> String {
    if value == 0 {
        return names.iter().find(|(bits, _)| *bits == 0).map(|(_, name)| name.clone()).unwrap_or_default();
    }
    let mut shown = Vec::new();
    for (bits, name) in names {
        if *bits != 0 && value & bits == *bits {
            shown.push(name.clone());
            value &= !bits;
        }
    }
    if value != 0 {
        shown.push(format!("{value:#x}"));
    }
    shown.join(separator)
}

/// Reads C expressions.
pub(super) struct Parser<'t, 'f> {
    rest: &'t str,
    format: &'f EventFormat<'f>,
    depth: u32,
}

impl<'t, 'f> Parser<'t, 'f> {
    pub(super) fn new(text: &'t str, format: &'f EventFormat<'f>) -> Parser<'t, 'f> {
        Parser { rest: text.trim_start(), format, depth: 0 }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Passes over a token.
    pub(super) fn take(&mut self, token: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(token)?.trim_start();
        Some(())
    }

    fn word(&mut self) -> Option<&'t str> {
        let end = self.rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest.trim_start();
        (!word.is_empty()).then_some(word)
    }

    /// One string or several behind each other.
    pub(super) fn string(&mut self) -> Option<String> {
        let mut text = String::new();
        self.rest.starts_with('"').then_some(())?;
        while let Some(rest) = self.rest.strip_prefix('"') {
            let mut chars = rest.char_indices();
            loop {
                match chars.next()? {
                    (at, '"') => {
                        self.rest = rest.get(at + 1..)?.trim_start();
                        break;
                    }
                    (_, '\\') => text.push(match chars.next()?.1 {
                        'n' => '\n',
                        't' => '\t',
                        other => other,
                    }),
                    (_, c) => text.push(c),
                }
            }
        }
        Some(text)
    }

    pub(super) fn expression(&mut self) -> Option<Expression> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        let condition = self.operation(1)?;
        let expression = if self.take("?").is_some() {
            let yes = self.expression()?;
            self.take(":")?;
            let no = self.expression()?;
            Expression::Choice(Box::new([condition, yes, no]))
        } else {
            condition
        };
        self.depth -= 1;
        Some(expression)
    }

    /// Operands and the operators between them that bind at least so tightly.
    fn operation(&mut self, least: u8) -> Option<Expression> {
        let mut left = self.unary()?;
        while let Some((token, operator, binds)) = OPERATORS.iter().find(|(token, ..)| self.rest.starts_with(token)) {
            if *binds < least {
                break;
            }
            self.take(token)?;
            let right = self.operation(binds + 1)?;
            left = Expression::Binary(*operator, Box::new(left), Box::new(right));
        }
        Some(left)
    }

    fn unary(&mut self) -> Option<Expression> {
        self.depth += 1;
        if self.depth > DEPTH_MAX {
            return None;
        }
        let operators = [("-", Unary::Minus), ("!", Unary::Not), ("~", Unary::Complement)];
        let operator = operators.into_iter().find(|(token, _)| self.rest.starts_with(token));
        let expression = match operator {
            Some((token, operator)) => {
                self.take(token)?;
                Expression::Unary(operator, Box::new(self.unary()?))
            }
            None if self.rest.starts_with('(') => self.parenthesis()?,
            None if self.rest.starts_with('"') => Expression::Text(self.string()?),
            None if self.rest.starts_with(|c: char| c.is_ascii_digit()) => Expression::Number(self.number()?),
            None => self.named()?,
        };
        self.depth -= 1;
        Some(expression)
    }

    /// A cast, or an expression in parentheses.
    fn parenthesis(&mut self) -> Option<Expression> {
        self.take("(")?;
        let before = self.rest;
        if let Some(cast) = self.type_name()
            && self.take(")").is_some()
        {
            let value = Box::new(self.unary()?);
            return Some(match cast {
                Some((bytes, is_signed)) => Expression::Cast { bytes, is_signed, value },
                None => *value,
            });
        }
        self.rest = before;
        let inner = self.expression()?;
        self.take(")")?;
        Some(inner)
    }

    /// A type, with its size and sign if values have to be cut to it; `None` when it is no type.
    fn type_name(&mut self) -> Option<Option<(usize, bool)>> {
        let mut words = Vec::new();
        while self.rest.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_') {
            words.push(self.word()?);
        }
        let is_pointer = self.rest.starts_with('*');
        while self.take("*").is_some() {}
        let last = *words.last()?;
        if words.contains(&"REC") || !self.rest.starts_with(')') {
            return None;
        }
        let is_unsigned = words.contains(&"unsigned") || last.trim_start_matches('_').starts_with('u');
        Some(match last.trim_start_matches('_') {
            _ if is_pointer => None,
            "char" | "u8" | "s8" | "bool" => Some((1, !is_unsigned)),
            "short" | "u16" | "s16" => Some((2, !is_unsigned)),
            "int" | "unsigned" | "u32" | "s32" if !words.contains(&"long") => Some((4, !is_unsigned)),
            // Wider ones, and those that only a kernel knows, hold what there is.
            _ => None,
        })
    }

    fn number(&mut self) -> Option<i64> {
        let word = self.word()?.trim_end_matches(['u', 'U', 'l', 'L']);
        let value = match word.strip_prefix("0x").or_else(|| word.strip_prefix("0X")) {
            Some(digits) => u64::from_str_radix(digits, 16),
            None if word.len() > 1 && word.starts_with('0') => u64::from_str_radix(word, 8),
            None => word.parse(),
        };
        Some(value.ok()? as i64)
    }

    /// `REC->field`, or one of the functions that formats have.
    fn named(&mut self) -> Option<Expression> {
        let name = self.word()?;
        if name == "REC" {
            self.take("->")?;
            let place = self.place()?;
            if self.take("[").is_none() {
                return Some(Expression::Field(place));
            }
            let index = Box::new(self.expression()?);
            self.take("]")?;
            return Some(Expression::Element(place, index));
        }
        self.take("(")?;
        let expression = match name {
            "__get_str" | "__get_rel_str" | "__get_dynamic_array" | "__get_rel_dynamic_array" => {
                Expression::Field(self.place()?)
            }
            "__get_dynamic_array_len" | "__get_rel_dynamic_array_len" => Expression::Length(self.place()?),
            "__print_flags" | "__print_flags_u64" => {
                let value = Box::new(self.argument()?);
                let separator = self.string()?;
                self.take(",")?;
                Expression::Flags { value, separator, names: self.names()? }
            }
            "__print_symbolic" | "__print_symbolic_u64" => {
                let value = Box::new(self.argument()?);
                Expression::Symbol { value, names: self.names()? }
            }
            "__print_hex" | "__print_hex_str" => {
                let separator = if name == "__print_hex" { " " } else { "" };
                let bytes = Box::new(self.argument()?);
                Expression::Hex { bytes, len: Box::new(self.expression()?), separator }
            }
            "__print_array" => Expression::Array(Box::new([self.argument()?, self.argument()?, self.expression()?])),
            "sizeof" => match self.type_name()? {
                Some((bytes, _)) => Expression::Number(bytes as i64),
                None => Expression::Number(8),
            },
            _ => return None,
        };
        self.take(")")?;
        Some(expression)
    }

    /// An expression and the comma behind it.
    fn argument(&mut self) -> Option<Expression> {
        let argument = self.expression()?;
        self.take(",")?;
        Some(argument)
    }

    fn place(&mut self) -> Option<Place> {
        let name = self.word()?;
        self.format.field(name).map(|field| field.place())
    }

    /// `{ 1, "A" }, { 2, "B" }`. A last comma does no harm.
    fn names(&mut self) -> Option<Vec<(i64, String)>> {
        let mut names = Vec::new();
        while self.take("{").is_some() {
            let number = self.expression()?.value(&[], Endian::Little)?.number()?;
            self.take(",")?;
            names.push((number, self.string()?));
            self.take("}")?;
            if self.take(",").is_none() {
                break;
            }
        }
        Some(names)
    }
}
