//! Shell patterns for names: `*`, `?`, `[a-z]`, `[!a-z]`.

/// Whether `text` as a whole matches `pattern`.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let pattern: Vec<char> = pattern.chars().collect();
    let text: Vec<char> = text.chars().collect();
    let (mut p, mut t) = (0, 0);
    // After a `*` that matched too little, go back to it and let it take one character more.
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        if pattern.get(p) == Some(&'*') {
            retry = Some((p + 1, t));
            p += 1;
            continue;
        }
        match one(&pattern[p..], text[t]) {
            Some(len) => {
                p += len;
                t += 1;
            }
            None => {
                let Some((after_star, from)) = retry else { return false };
                retry = Some((after_star, from + 1));
                (p, t) = (after_star, from + 1);
            }
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

/// Length of the pattern element that matches `c`, `None` when it does not.
fn one(pattern: &[char], c: char) -> Option<usize> {
    match pattern.first()? {
        '?' => Some(1),
        '[' => {
            let Some(close) = pattern.iter().skip(2).position(|p| *p == ']').map(|at| at + 2) else {
                return (c == '[').then_some(1);
            };
            let set = &pattern[1..close];
            let (negated, set) = match set.first() {
                Some('!' | '^') => (true, &set[1..]),
                _ => (false, set),
            };
            (in_set(set, c) != negated).then_some(close + 1)
        }
        p => (*p == c).then_some(1),
    }
}

fn in_set(mut set: &[char], c: char) -> bool {
    while let Some(first) = set.first() {
        if let [low, '-', high, rest @ ..] = set {
            if (*low..=*high).contains(&c) {
                return true;
            }
            set = rest;
        } else {
            if *first == c {
                return true;
            }
            set = &set[1..];
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::matches;

    #[test]
    fn patterns_match_whole_names() {
        for (pattern, text) in [
            ("*", ""),
            ("tp_*", "tp_heavy"),
            ("*heavy*", "tp_heavy_enter"),
            ("a*b*c", "axxbyybzc"),
            ("cb?", "cb1"),
            ("x[0-9]*", "x7y"),
            ("x[!0-9]", "xa"),
            ("[a]", "a"),
            ("[", "["),
            ("*[b", "a[b"),
        ] {
            assert!(matches(pattern, text), "{pattern} {text}");
        }
        for (pattern, text) in
            [("tp_", "tp_heavy"), ("?", ""), ("x[!0-9]", "x7"), ("*a", "ab"), ("", "a"), ("a*b*c", "acb")]
        {
            assert!(!matches(pattern, text), "{pattern} {text}");
        }
    }
}
