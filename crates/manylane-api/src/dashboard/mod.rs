//! The dashboard: one page, put together here from its parts, that needs nothing but the API it comes from.
//!
//! | File             | Holds                                                             |
//! |------------------|-------------------------------------------------------------------|
//! | `index.html`     | the parts of the page, each with a name                           |
//! | `style.css`      | light and dark, narrow and wide                                   |
//! | `format.js`      | numbers for people                                                |
//! | `dom.js`         | tables, changed in place                                          |
//! | `chart.js`       | lines over time, in SVG                                           |
//! | `ask.js`         | the API: the token, silence, rates between two answers            |
//! | `forwarder.js`   | what `manylane run` shows                                         |
//! | `connections.js` | flows of `manylane accelerate`, the forwarder of each, and why   |
//! | `accelerator.js` | what `manylane accelerate` shows                                  |
//! | `steering.js`    | queues and buckets by worker, and rings between workers           |
//! | `page.js`        | once a second: ask, and show                                      |

/// The page. Scripts and styles with another `nonce` are not of it.
pub fn page(nonce: &str) -> String {
    // Its parts have no such words, but where something is to be put.
    let page = include_str!("index.html").replace("NONCE", nonce);
    page.replace("/*STYLE*/", include_str!("style.css")).replace("/*SCRIPT*/", &SCRIPT.join("\n"))
}

/// In order: each may use what is above it.
const SCRIPT: &[&str] = &[
    include_str!("format.js"),
    include_str!("dom.js"),
    include_str!("chart.js"),
    include_str!("ask.js"),
    include_str!("steering.js"),
    include_str!("forwarder.js"),
    include_str!("connections.js"),
    include_str!("accelerator.js"),
    include_str!("page.js"),
];

#[cfg(test)]
mod tests;
