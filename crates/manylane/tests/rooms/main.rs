//! No circle between the rooms of a crate: a reader can learn the rooms one after the other.
//!
//! A room is a module right below the crate's root. The test reads the sources of every crate under `crates/`, draws
//! an arrow from a room to each room that its code names (`use` lines and paths inside code), and fails on a circle.
//! Test code, comments and strings do not count. A name that the root re-exports leads to the room that defines it;
//! an item that the root defines itself belongs to a room called [`ROOT`](graph::ROOT).
//!
//! ```text
//! cargo test -p manylane --test rooms                                             every crate
//! ROOMS_OF=manylane-net cargo test -p manylane --test rooms circle -- --nocapture one crate, its arrows printed
//! ```
//!
//! The test needs the standard library only, so `rustc --edition 2024 --test crates/manylane/tests/rooms/main.rs`, run
//! at the repository's top, answers within a second while the crates do not compile.
//!
//! `sources` reads the files, `tokens` takes their text apart, `test_code` leaves out what only tests have, `names`
//! finds the names that lead to another room, and `graph` finds the circles.

mod graph;
mod names;
mod sources;
mod test_code;
mod tokens;

use graph::{Graph, ROOT};
use sources::{Sources, crates};

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

fn made_up(sources: &[(&str, &str)]) -> Graph {
    let sources: Sources =
        sources.iter().map(|(path, text)| (path.to_string(), text.to_string())).collect();
    Graph::of(&sources)
}
