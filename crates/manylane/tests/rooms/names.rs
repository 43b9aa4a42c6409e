//! The names that code mentions, and the rooms that they lead to.

use std::collections::{BTreeMap, BTreeSet};

use crate::graph::ROOT;
use crate::tokens::Token;

/// What the crate's root holds: rooms, and names that lead into them.
pub struct Root {
    pub rooms: BTreeSet<String>,
    /// Re-exports of `lib.rs`, and macros, which `#[macro_export]` puts at the root.
    pub names: BTreeMap<String, String>,
}

impl Root {
    pub fn learn(&mut self, module: &[String], code: &[Token]) {
        if let Some(room) = module.first() {
            for definition in code.windows(3) {
                if definition[0].is("macro_rules") && definition[1].is("!") {
                    self.names.insert(definition[2].text.clone(), room.clone());
                }
            }
            return;
        }
        for (at, token) in code.iter().enumerate() {
            if token.is("use") {
                let mut leaves = Vec::new();
                use_tree(code, at + 1, &[], &mut leaves);
                for leaf in leaves {
                    let path: Vec<_> = leaf
                        .path
                        .into_iter()
                        .skip_while(|part| part == "crate" || part == "self")
                        .collect();
                    if path.len() > 1 && self.rooms.contains(&path[0]) && leaf.name != "*" {
                        self.names.entry(leaf.name).or_insert(path[0].clone());
                    }
                }
            }
        }
    }

    pub fn room_of(&self, name: &str) -> &str {
        if let Some(room) = self.rooms.get(name) {
            return room;
        }
        self.names.get(name).map_or(ROOT, String::as_str)
    }
}

/// The module a file holds, or `None` for a file of tests or of the program beside the library.
pub fn module_path(file: &str) -> Option<Vec<String>> {
    let mut parts: Vec<String> = file.strip_suffix(".rs")?.split('/').map(str::to_owned).collect();
    if file == "main.rs" || parts[0] == "bin" || parts.iter().any(|part| part == "tests") {
        return None;
    }
    if file == "lib.rs" || parts.last().is_some_and(|last| last == "mod") {
        parts.pop();
    }
    Some(parts)
}

/// One name below the crate's root that code mentions.
pub struct Mention {
    /// The room with the code.
    pub from: String,
    pub path: String,
    pub line: usize,
    /// In a `pub use`.
    pub is_exported: bool,
}

/// Every name right below the crate's root that `code`, the file of `module`, reaches.
pub fn mentions(module: &[String], code: &[Token], rooms: &BTreeSet<String>) -> Vec<Mention> {
    let mut found = Vec::new();
    // The inline modules around the present token, each with the depth of its brace.
    let mut inline: Vec<(String, usize)> = Vec::new();
    let mut depth = 0;
    let mut at = 0;
    while at < code.len() {
        let token = &code[at];
        let here =
            [module, &inline.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>()].concat();
        let from = here.first().map_or(ROOT.to_owned(), String::clone);
        match token.text.as_str() {
            "mod" if code.get(at + 2).is_some_and(|brace| brace.is("{")) => {
                inline.push((code[at + 1].text.clone(), depth));
                depth += 1;
                at += 2;
            }
            "{" => depth += 1,
            "}" => {
                depth -= 1;
                inline.pop_if(|(_, open)| *open == depth);
            }
            // `use<>` in a bound says what is captured.
            "use" if !code.get(at + 1).is_some_and(|next| next.is("<")) => {
                let is_exported = at > 0 && (code[at - 1].is("pub") || code[at - 1].is(")"));
                let mut leaves = Vec::new();
                let end = use_tree(code, at + 1, &[], &mut leaves);
                for leaf in leaves {
                    if let Some(below) = below_root(&here, &leaf.path, rooms) {
                        // A re-export is known by the name it has at the root.
                        let path = if is_exported && module.is_empty() { leaf.name } else { below };
                        found.push(Mention {
                            from: from.clone(),
                            path,
                            line: leaf.line,
                            is_exported,
                        });
                    }
                }
                at = end;
            }
            _ if token.is_word() && !follows_path(code, at) => {
                let mut path = vec![token.text.clone()];
                while code.get(at + 1).is_some_and(|next| next.is("::"))
                    && code.get(at + 2).is_some_and(Token::is_word)
                {
                    path.push(code[at + 2].text.clone());
                    at += 2;
                }
                if path.len() > 1
                    && let Some(path) = below_root(&here, &path, rooms)
                {
                    found.push(Mention { from, path, line: token.line, is_exported: false });
                }
            }
            _ => {}
        }
        at += 1;
    }
    found
}

/// Whether the word at `at` continues a path that began before it.
fn follows_path(code: &[Token], at: usize) -> bool {
    at > 0 && code[at - 1].is("::")
}

/// The name below the root that `path` reaches from `module`, if it leaves its room.
fn below_root(module: &[String], path: &[String], rooms: &BTreeSet<String>) -> Option<String> {
    let mut module = module.to_vec();
    let mut rest = path.iter();
    match rest.as_slice().first()?.as_str() {
        "crate" => {
            module.clear();
            rest.next();
        }
        "self" | "super" => {}
        // In edition 2024 a bare path begins in its module, or names another crate.
        room if module.is_empty() && rooms.contains(room) => return Some(room.to_owned()),
        _ => return None,
    }
    while let Some(word) = rest.as_slice().first().map(String::as_str) {
        match word {
            "self" => {}
            "super" => drop(module.pop()),
            _ => break,
        }
        rest.next();
    }
    if !module.is_empty() {
        return None;
    }
    Some(rest.next().map_or(ROOT.to_owned(), String::clone))
}

/// One path of a `use`, and the name it gets.
struct Leaf {
    path: Vec<String>,
    name: String,
    line: usize,
}

/// Reads the tree at `at`. Returns where its last token is.
fn use_tree(code: &[Token], mut at: usize, prefix: &[String], leaves: &mut Vec<Leaf>) -> usize {
    let mut path = prefix.to_vec();
    let mut line = code.get(at).map_or(0, |token| token.line);
    while let Some(token) = code.get(at) {
        match token.text.as_str() {
            "::" => {}
            "{" => {
                at += 1;
                while code.get(at).is_some_and(|token| !token.is("}")) {
                    at = use_tree(code, at, &path, leaves) + 1;
                    if code.get(at).is_some_and(|token| token.is(",")) {
                        at += 1;
                    }
                }
                return at;
            }
            "as" => {
                at += 1;
                let name = code.get(at).map(|token| token.text.clone()).unwrap_or_default();
                leaves.push(Leaf { path, name, line });
                return at;
            }
            "," | ";" | "}" => break,
            // `a::{self}` is `a`.
            "self" if path.len() > prefix.len() || !prefix.is_empty() => {}
            _ => {
                line = token.line;
                path.push(token.text.clone());
            }
        }
        at += 1;
    }
    let name = path.last().cloned().unwrap_or_default();
    leaves.push(Leaf { path, name, line });
    at - 1
}
