//! Shell patterns for names: `*`, `?`, `[a-z]`, `[!a-z]`.

/// Whether `text` as a whole matches `pattern`.
pub(crate) fn glob(pattern: &str, text: &str) -> bool {
    let (pattern, text): (Vec<char>, Vec<char>) = (pattern.chars().collect(), text.chars().collect());
    // Where to go on after a mismatch: behind the last star, with one more character given to it.
    let (mut p, mut t, mut retry) = (0, 0, None);
    while t < text.len() {
        let step = match pattern.get(p) {
            Some('*') => {
                retry = Some((p, t));
                p += 1;
                continue;
            }
            Some('?') => Some(p + 1),
            Some('[') => class(&pattern[p..], text[t]).map(|len| p + len),
            Some(c) if *c == text[t] => Some(p + 1),
            _ => None,
        };
        match (step, retry) {
            (Some(next), _) => (p, t) = (next, t + 1),
            (None, Some((star, from))) => {
                (p, t) = (star + 1, from + 1);
                retry = Some((star, from + 1));
            }
            (None, None) => return false,
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// The length of the class at the start of `pattern` if `c` is in it.
fn class(pattern: &[char], c: char) -> Option<usize> {
    let end = pattern.iter().skip(2).position(|c| *c == ']')? + 2;
    let (members, negated) = match &pattern[1..end] {
        ['!' | '^', rest @ ..] => (rest, true),
        all => (all, false),
    };
    let mut found = false;
    let mut rest = members;
    while let [first, after @ ..] = rest {
        rest = match after {
            ['-', last, after @ ..] => {
                found |= (*first..=*last).contains(&c);
                after
            }
            _ => {
                found |= *first == c;
                after
            }
        };
    }
    (found != negated).then_some(end + 1)
}
