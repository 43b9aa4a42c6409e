//! There is a door
//! for whoever
//! comes in.
//!
//! ```
//! // nobody looks here
//! ```

/// What opens a comment of a type is none here.
pub struct Nobody;

fn f() -> (&'static str, &'static str) {
    // The port does the
    // same, and is
    // told.
    let _ = ('"', b'"', '\'', "who is", "nobody"); // Two words are a name. It is on the way out.
    let _ = Some(1).expect("there is one here");
    let _ = r#"the "port" says that there is none"#;
    let _ = "at first \" nothing, then \
        as it comes in, so many";
    ("`there is` is code here", "no finding is in this string")
}

#[cfg(test)]
mod tests {
    const TEXT: &str = "nobody reads strings of tests";
}
