//! What only tests are built with, left out.

use crate::tokens::Token;

/// The code without what only tests are built with, and the names of files that only tests have.
pub fn without_tests(code: Vec<Token>) -> (Vec<Token>, Vec<String>) {
    let (mut kept, mut modules, mut at) = (Vec::new(), Vec::new(), 0);
    while at < code.len() {
        if !code[at].is("#") {
            kept.push(code[at].clone());
            at += 1;
            continue;
        }
        let is_inner = code.get(at + 1).is_some_and(|token| token.is("!"));
        let open = at + 1 + usize::from(is_inner);
        let close = closing(&code, open);
        let is_test = is_for_tests(&code[open.min(code.len())..close.min(code.len())]);
        if is_test && is_inner {
            return (Vec::new(), modules);
        }
        at = close + 1;
        if is_test {
            while code.get(at).is_some_and(|token| token.is("#")) {
                at = closing(&code, at + 1) + 1;
            }
            let end = item_end(&code, at);
            let item = &code[at.min(code.len())..end.min(code.len())];
            if let Some(name) = item.iter().position(|token| token.is("mod"))
                && item.last().is_some_and(|last| last.is(";"))
            {
                modules.push(item[name + 1].text.clone());
            }
            at = end;
        }
    }
    (kept, modules)
}

/// `[cfg(test)]`, `[cfg(all(test, ...))]` or `[test]`, without the closing bracket.
fn is_for_tests(attribute: &[Token]) -> bool {
    let words: Vec<&str> = attribute.iter().map(|token| token.text.as_str()).collect();
    match words.as_slice() {
        ["[", "test"] | ["[", "cfg", "(", "test", ")"] => true,
        ["[", "cfg", "(", "all", "(", conditions @ ..] => {
            let mut depth = 0;
            conditions.iter().any(|word| {
                depth += match *word {
                    "(" => 1,
                    ")" => -1,
                    _ => 0,
                };
                depth == 0 && *word == "test"
            })
        }
        _ => false,
    }
}

/// Where the bracket that opens at `open` closes.
fn closing(code: &[Token], open: usize) -> usize {
    let mut depth = 0;
    for (at, token) in code.iter().enumerate().skip(open) {
        match token.text.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    code.len()
}

/// Where the item, field, arm or statement at `at` ends: the place behind its last token.
fn item_end(code: &[Token], at: usize) -> usize {
    let mut first = at;
    while code.get(first).is_some_and(|token| token.is("pub")) {
        first += 1;
        if code.get(first).is_some_and(|token| token.is("(")) {
            first = closing(code, first) + 1;
        }
    }
    let word = code.get(first).map_or("", |token| token.text.as_str());
    let is_function = code[first.min(code.len())..].iter().take(4).any(|token| token.is("fn"));
    let ends_in_semicolon =
        matches!(word, "use" | "static" | "type" | "let") || word == "const" && !is_function;
    let is_item = is_function
        || matches!(
            word,
            "mod"
                | "impl"
                | "struct"
                | "enum"
                | "union"
                | "trait"
                | "unsafe"
                | "extern"
                | "macro_rules"
        );
    let mut at = first;
    while let Some(token) = code.get(at) {
        match token.text.as_str() {
            ";" => return at + 1,
            "," if !is_item && !ends_in_semicolon => return at + 1,
            ")" | "]" | "}" => return at,
            "{" if !ends_in_semicolon => return closing(code, at) + 1,
            "(" | "[" | "{" => at = closing(code, at) + 1,
            _ => at += 1,
        }
    }
    at
}
