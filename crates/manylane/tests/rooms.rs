//! No circle between the rooms of a crate: a reader can learn the rooms one after the other.
//!
//! A room is a module right below the crate's root. The test reads the sources of every crate under `crates/`, draws
//! an arrow from a room to each room that its code names (`use` lines and paths inside code), and fails on a circle.
//! Test code, comments and strings do not count. A name that the root re-exports leads to the room that defines it;
//! an item that the root defines itself belongs to a room called [`ROOT`].
//!
//! ```text
//! cargo test -p manylane --test rooms                                             every crate
//! ROOMS_OF=manylane-net cargo test -p manylane --test rooms circle -- --nocapture one crate, its arrows printed
//! ```
//!
//! The test needs the standard library only, so `rustc --edition 2024 --test crates/manylane/tests/rooms.rs`, run at
//! the repository's top, answers within a second while the crates do not compile.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::{Path, PathBuf};

/// The room of what a crate's `lib.rs` defines itself.
const ROOT: &str = "lib.rs";

#[test]
fn no_crate_has_a_circle_between_its_rooms() {
    let only = std::env::var("ROOMS_OF").ok();
    let mut read = 0;
    let mut complaints = String::new();
    for (name, sources) in crates() {
        if only.as_ref().is_some_and(|only| *only != name) {
            continue;
        }
        read += 1;
        let graph = Graph::of(&sources);
        if only.is_some() {
            print!("{}", graph.arrows());
        }
        if let Some(complaint) = graph.complaint() {
            complaints += &format!("{name}: {complaint}");
        }
    }
    assert!(read > 0, "no crate under crates/ has the name that ROOMS_OF gives: {only:?}");
    assert!(complaints.is_empty(), "rooms that depend on each other:\n{complaints}");
}

#[test]
fn every_crate_with_rooms_is_read() {
    let crates = crates();
    let sync = &crates["manylane-sync"];
    let graph = Graph::of(sync);
    assert!(graph.uses("ring", "primitive"), "{}", graph.arrows());
    assert!(crates.len() >= 5, "{:?}", crates.keys());
}

#[test]
fn a_circle_is_found_and_named_with_its_lines() {
    let graph = made_up(&[
        ("lib.rs", "mod a;\nmod b;\nmod c;"),
        ("a.rs", "\nuse crate::b::B;"),
        ("b/mod.rs", "mod deep;"),
        ("b/deep.rs", "fn f() {\n    crate::c::g()\n}"),
        ("c.rs", "use super::a;"),
    ]);
    let complaint = graph.complaint().expect("a, b and c form a circle");
    assert!(complaint.contains("a, b, c"), "{complaint}");
    assert!(complaint.contains("a -> b -> c -> a (a.rs:2, b/deep.rs:2, c.rs:1)"), "{complaint}");
}

#[test]
fn nested_use_trees_name_every_room_in_them() {
    let graph = made_up(&[
        ("lib.rs", "mod a; mod b; mod c; mod d; mod e;"),
        ("a/mod.rs", "pub(crate) use crate::{b::{self, X}, c, d as other};"),
        ("a/inner.rs", "use super::super::e::*;"),
    ]);
    for room in ["b", "c", "d", "e"] {
        assert!(graph.uses("a", room), "{room}");
    }
    assert_eq!(graph.complaint(), None);
}

#[test]
fn test_code_comments_and_strings_draw_no_arrow() {
    let graph = made_up(&[
        ("lib.rs", "mod a; mod b;\n#[cfg(test)] mod helpers;"),
        (
            "a.rs",
            r##"
                // use crate::b;
                /* crate::b /* crate::b */ crate::b */
                /// [`crate::b`]
                const S: &str = "crate::b \" crate::b";
                const R: &str = r#"crate::b " crate::b"#;
                const C: char = '"';
                fn f<'a>(x: &'a str) {}
                #[cfg(test)]
                #[allow(dead_code)]
                fn g<A, B>(a: A) { crate::b::f() }
                struct T { #[cfg(test)] pub field: crate::b::B, other: u8 }
                #[cfg(all(test, unix))]
                use crate::{b, b::c};
                #[cfg(test)]
                mod tests { use crate::b; }
            "##,
        ),
        ("a/tests.rs", "use crate::b;"),
        ("a/tests/more.rs", "use crate::b;"),
        ("helpers.rs", "use crate::b;"),
        ("b.rs", "#[cfg(not(test))]\nuse crate::a;"),
    ]);
    assert!(!graph.uses("a", "b"), "{}", graph.arrows());
    assert!(graph.uses("b", "a"), "{}", graph.arrows());
}

#[test]
fn a_file_that_only_tests_have_is_left_out_with_its_folder() {
    let graph = made_up(&[
        ("lib.rs", "mod a; mod b;"),
        ("a/mod.rs", "#[cfg(test)]\nmod bed;"),
        ("a/bed.rs", "mod deep; use crate::b;"),
        ("a/bed/deep.rs", "use crate::b;"),
        ("b.rs", "#![cfg(test)]\nuse crate::a;"),
    ]);
    assert_eq!(graph.arrows(), "");
}

#[test]
fn names_of_the_root_lead_to_the_room_that_defines_them() {
    let graph = made_up(&[
        (
            "lib.rs",
            "mod a; mod b; mod c;\npub use b::{B, inner::Deep as Shallow};\npub struct Mine;",
        ),
        ("a.rs", "use crate::Shallow; fn f(_: super::Mine) { $crate::shout!() }"),
        ("b.rs", "use crate::Mine;"),
        ("c.rs", "#[macro_export] macro_rules! shout { () => {} }"),
    ]);
    assert!(
        graph.uses("a", "b") && graph.uses("a", ROOT) && graph.uses("a", "c"),
        "{}",
        graph.arrows()
    );
    assert!(graph.uses("b", ROOT) && !graph.uses(ROOT, "b"), "{}", graph.arrows());
}

#[test]
fn super_inside_an_inline_module_stays_in_its_room() {
    let graph = made_up(&[
        ("lib.rs", "mod a; mod b;"),
        (
            "a.rs",
            "mod inline { use super::b; fn f() { if x { super::b::g() } } } mod b { pub fn g() {} }",
        ),
    ]);
    assert!(!graph.uses("a", "b"), "{}", graph.arrows());
    let graph = made_up(&[
        ("lib.rs", "mod a; mod b;"),
        ("a.rs", "mod inline { fn f() { if x {} super::super::b::g() } }"),
    ]);
    assert!(graph.uses("a", "b"), "{}", graph.arrows());
}

#[test]
fn captured_lifetimes_are_no_import() {
    let text = "fn f<'a>(x: &'a u8) -> impl Fn() + use<'a> { move || crate::b::g(x); }";
    let graph = made_up(&[("lib.rs", "mod a; mod b;"), ("a.rs", text)]);
    assert_eq!(
        graph.arrows(),
        made_up(&[("lib.rs", "mod a; mod b;"), ("a.rs", "use crate::b;")]).arrows()
    );
}

/// The sources of one crate: path below `src`, text.
type Sources = Vec<(String, String)>;

/// Every crate under `crates/`, by its folder's name.
fn crates() -> BTreeMap<String, Sources> {
    let top = option_env!("CARGO_MANIFEST_DIR")
        .map_or(PathBuf::from("crates"), |own| Path::new(own).join(".."));
    let mut crates = BTreeMap::new();
    for entry in fs::read_dir(&top).expect("the crates' folder can be read") {
        let folder = entry.expect("the crates' folder can be read").path();
        let src = folder.join("src");
        if src.join("lib.rs").is_file() {
            let mut sources = Vec::new();
            read_folder(&src, &src, &mut sources);
            sources.sort();
            let name = folder.file_name().expect("an entry has a name").to_string_lossy();
            crates.insert(name.into_owned(), sources);
        }
    }
    crates
}

fn read_folder(folder: &Path, src: &Path, sources: &mut Sources) {
    for entry in fs::read_dir(folder).expect("a source folder can be read") {
        let path = entry.expect("a source folder can be read").path();
        if path.is_dir() {
            read_folder(&path, src, sources);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let name = path.strip_prefix(src).expect("the file lies in it").to_string_lossy();
            sources.push((
                name.into_owned(),
                fs::read_to_string(&path).expect("a source can be read"),
            ));
        }
    }
}

fn made_up(sources: &[(&str, &str)]) -> Graph {
    let sources: Sources =
        sources.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect();
    Graph::of(&sources)
}

/// Which room names which, and the first place where it does.
struct Graph {
    arrows: BTreeMap<String, BTreeMap<String, String>>,
}

impl Graph {
    fn of(sources: &Sources) -> Graph {
        let mut files = Vec::new();
        let mut test_only = BTreeSet::new();
        for (path, text) in sources {
            let Some(module) = module_path(path) else { continue };
            let (code, test_modules) = without_tests(tokens(text));
            let names = test_modules
                .iter()
                .map(|name| [module.as_slice(), std::slice::from_ref(name)].concat());
            test_only.extend(names);
            files.push((path, module, code));
        }
        files.retain(|(_, module, _)| {
            !(1..=module.len()).any(|len| test_only.contains(&module[..len]))
        });

        let roots = files.iter().filter(|(_, module, _)| module.is_empty());
        let declared =
            roots.flat_map(|(_, _, code)| code.windows(2)).filter(|words| words[0].is("mod"));
        let rooms = declared.map(|words| words[1].text.clone()).collect();
        let mut root = Root { rooms, names: BTreeMap::new() };
        for (_, module, code) in &files {
            root.learn(module, code);
        }

        let mut graph = Graph { arrows: BTreeMap::new() };
        for (path, module, code) in &files {
            for Mention { from, path: named, line, is_exported } in
                mentions(module, code, &root.rooms)
            {
                let to = root.room_of(&named);
                let is_contents = from == ROOT && is_exported && root.names.contains_key(&named);
                if from != to && !is_contents {
                    let place = format!("{path}:{line}");
                    graph.arrows.entry(from).or_default().entry(to.to_owned()).or_insert(place);
                }
            }
        }
        graph
    }

    fn uses(&self, from: &str, to: &str) -> bool {
        self.arrows.get(from).is_some_and(|rooms| rooms.contains_key(to))
    }

    /// All arrows, a line each.
    fn arrows(&self) -> String {
        let mut text = String::new();
        for (from, rooms) in &self.arrows {
            for (to, place) in rooms {
                text += &format!("{from} -> {to} ({place})\n");
            }
        }
        text
    }

    /// The knots, and through each arrow in one its shortest circle. `None` when the rooms have an order.
    fn complaint(&self) -> Option<String> {
        let mut knots = BTreeSet::new();
        let mut circles = BTreeSet::new();
        for (from, rooms) in &self.arrows {
            for to in rooms.keys() {
                if let Some(back) = self.shortest(to, from) {
                    let least = back.iter().min().expect("a way has a room");
                    let at = back.iter().position(|room| room == least).expect("just found");
                    circles.insert((back.len(), [&back[at..], &back[..at]].concat()));
                    knots.insert(self.knot(from));
                }
            }
        }
        if circles.is_empty() {
            return None;
        }
        let mut text = String::new();
        for knot in knots {
            let names = knot.iter().copied().collect::<Vec<_>>().join(", ");
            text += &format!("{} rooms in one knot: {names}\n", knot.len());
        }
        for (_, circle) in circles {
            let next = |i: usize| circle[(i + 1) % circle.len()];
            let places = (0..circle.len()).map(|i| self.arrows[circle[i]][next(i)].as_str());
            let places = places.collect::<Vec<_>>().join(", ");
            text += &format!("  {} -> {} ({places})\n", circle.join(" -> "), circle[0]);
        }
        Some(text)
    }

    /// The rooms on a shortest way, both ends included.
    fn shortest<'a>(&'a self, from: &'a str, to: &str) -> Option<Vec<&'a str>> {
        let mut before = BTreeMap::from([(from, from)]);
        let mut queue = VecDeque::from([from]);
        while let Some(room) = queue.pop_front() {
            if room == to {
                let mut way = vec![room];
                while way[way.len() - 1] != from {
                    way.push(before[way[way.len() - 1]]);
                }
                way.reverse();
                return Some(way);
            }
            for next in self.arrows.get(room).into_iter().flat_map(BTreeMap::keys) {
                before.entry(next).or_insert_with(|| {
                    queue.push_back(next);
                    room
                });
            }
        }
        None
    }

    /// The rooms that `room` reaches and that reach it.
    fn knot<'a>(&'a self, room: &str) -> BTreeSet<&'a str> {
        let there_and_back = |other: &str| {
            self.shortest(room, other).is_some() && self.shortest(other, room).is_some()
        };
        self.arrows.keys().map(String::as_str).filter(|other| there_and_back(other)).collect()
    }
}

/// What the crate's root holds: rooms, and names that lead into them.
struct Root {
    rooms: BTreeSet<String>,
    /// Re-exports of `lib.rs`, and macros, which `#[macro_export]` puts at the root.
    names: BTreeMap<String, String>,
}

impl Root {
    fn learn(&mut self, module: &[String], code: &[Token]) {
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

    fn room_of(&self, name: &str) -> &str {
        if let Some(room) = self.rooms.get(name) {
            return room;
        }
        self.names.get(name).map_or(ROOT, String::as_str)
    }
}

/// The module a file holds, or `None` for a file of tests or of the program beside the library.
fn module_path(file: &str) -> Option<Vec<String>> {
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
struct Mention {
    /// The room with the code.
    from: String,
    path: String,
    line: usize,
    /// In a `pub use`.
    is_exported: bool,
}

/// Every name right below the crate's root that `code`, the file of `module`, reaches.
fn mentions(module: &[String], code: &[Token], rooms: &BTreeSet<String>) -> Vec<Mention> {
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

/// A word, `::`, or one other character of code.
#[derive(Clone, Debug, PartialEq)]
struct Token {
    text: String,
    line: usize,
}

impl Token {
    fn is(&self, text: &str) -> bool {
        self.text == text
    }

    fn is_word(&self) -> bool {
        self.text.starts_with(|first: char| first.is_alphanumeric() || first == '_')
    }
}

/// The code of `text`: no comment, no literal of text, no lifetime.
fn tokens(text: &str) -> Vec<Token> {
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

/// The code without what only tests are built with, and the names of files that only tests have.
fn without_tests(code: Vec<Token>) -> (Vec<Token>, Vec<String>) {
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
