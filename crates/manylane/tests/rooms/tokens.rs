//! Text taken apart into words and signs.

/// A word, `::`, or one other character of code.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    pub text: String,
    pub line: usize,
}

impl Token {
    pub fn is(&self, text: &str) -> bool {
        self.text == text
    }

    pub fn is_word(&self) -> bool {
        self.text.starts_with(|first: char| first.is_alphanumeric() || first == '_')
    }
}

/// The code of `text`: no comment, no literal of text, no lifetime.
pub fn tokens(text: &str) -> Vec<Token> {
    let chars: Vec<char> = text.chars().collect();
    let (mut found, mut at, mut line) = (Vec::new(), 0, 1);
    while at < chars.len() {
        let from = at;
        let rest = &chars[at..];
        let first = rest[0];
        at += match first {
            '/' if rest.starts_with(&['/', '/']) => rest.iter().take_while(|c| **c != '\n').count(),
            '/' if rest.starts_with(&['/', '*']) => block_comment(rest),
            '"' => string(rest),
            '\'' => quote(rest),
            'r' | 'b' | 'c' if literal(rest).is_some() => literal(rest).expect("just asked"),
            _ if first.is_alphanumeric() || first == '_' => {
                let len = rest.iter().take_while(|c| c.is_alphanumeric() || **c == '_').count();
                found.push(Token { text: rest[..len].iter().collect(), line });
                len
            }
            ':' if rest.starts_with(&[':', ':']) => {
                found.push(Token { text: "::".to_owned(), line });
                2
            }
            _ => {
                if !first.is_whitespace() {
                    found.push(Token { text: first.to_string(), line });
                }
                1
            }
        };
        line += chars[from..at.min(chars.len())].iter().filter(|c| **c == '\n').count();
    }
    found
}

/// Length of a block comment; they nest.
fn block_comment(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        if rest[at..].starts_with(&['/', '*']) {
            depth += 1;
            at += 2;
        } else if rest[at..].starts_with(&['*', '/']) {
            depth -= 1;
            at += 2;
            if depth == 0 {
                break;
            }
        } else {
            at += 1;
        }
    }
    at
}

/// Length of a string that begins here, with its quotes.
fn string(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != '"' {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// Length of a character literal, or 1 for the quote of a lifetime.
fn quote(rest: &[char]) -> usize {
    match rest {
        ['\'', '\\', ..] => 3 + rest[3..].iter().take_while(|c| **c != '\'').count(),
        ['\'', _, '\'', ..] => 3,
        _ => 1 + rest[1..].iter().take_while(|c| c.is_alphanumeric() || **c == '_').count(),
    }
}

/// Length of a literal with a prefix (`b""`, `r#""#`, `b''`), if this is one.
fn literal(rest: &[char]) -> Option<usize> {
    let letters = rest.iter().take_while(|c| matches!(c, 'r' | 'b' | 'c')).count();
    let is_raw = rest[..letters].contains(&'r');
    let hashes = if is_raw { rest[letters..].iter().take_while(|c| **c == '#').count() } else { 0 };
    let open = letters + hashes;
    match rest.get(open)? {
        '"' if is_raw => {
            let end: Vec<char> =
                std::iter::once('"').chain(std::iter::repeat_n('#', hashes)).collect();
            let body = rest[open + 1..].windows(end.len()).position(|found| found == end);
            Some(body.map_or(rest.len(), |body| open + 1 + body + end.len()))
        }
        '"' => Some(open + string(&rest[open..])),
        '\'' if letters == 1 && rest[0] == 'b' => Some(1 + quote(&rest[1..])),
        _ => None,
    }
}
