//! The two formats of a page, and which one a client wants.
//!
//! OpenMetrics 1.0 names a counter's family without `_total` and has types that the older text format of Prometheus
//! (version 0.0.4) lacks; its readers (`promtool check metrics`, telegraf, vmagent in some versions) take the older one
//! only. Prometheus itself accepts OpenMetrics.

use std::fmt::Write;

use axum::http::{HeaderMap, header};

/// How a page is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Format {
    /// OpenMetrics 1.0.
    Open,
    /// The text format of Prometheus, version 0.0.4.
    Text,
}

impl Format {
    /// What a body of it is.
    pub(in crate::server) const fn content_type(self) -> &'static str {
        match self {
            Format::Open => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// What a client wants by its `Accept` (RFC 9110, section 12.5.1): OpenMetrics only where that is named, and not less
    /// welcome than the other.
    pub(super) fn wanted(headers: &HeaderMap) -> Format {
        let lines = headers.get_all(header::ACCEPT).iter().filter_map(|line| line.to_str().ok());
        let ranges: Vec<Range<'_>> =
            lines.flat_map(|line| line.split(',')).map(Range::of).collect();
        let weight = |kind: &str| {
            let weights = ranges.iter().filter(|range| range.kind.eq_ignore_ascii_case(kind));
            weights.map(|range| range.weight).reduce(f32::max)
        };
        let open = weight("application/openmetrics-text").unwrap_or(0.0);
        // The most specific range counts.
        let text = ["text/plain", "text/*", "*/*"].into_iter().find_map(weight).unwrap_or(0.0);
        if open > 0.0 && open >= text { Format::Open } else { Format::Text }
    }
}

/// One element of `Accept`.
struct Range<'a> {
    kind: &'a str,
    /// From 0, for "not this", to 1.
    weight: f32,
}

impl Range<'_> {
    fn of(text: &str) -> Range<'_> {
        let mut parts = text.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        let mut weight = 1.0;
        for (name, value) in parts.filter_map(|parameter| parameter.split_once('=')) {
            let value = value.trim_matches('"');
            match name.trim().to_ascii_lowercase().as_str() {
                "q" => weight = value.parse().unwrap_or(0.0),
                // Another version is another format. Text has one that is in use, and clients that name a later one
                // (of the same text, with more letters in names) take any.
                "version"
                    if kind.eq_ignore_ascii_case("application/openmetrics-text")
                        && value != "1.0.0" =>
                {
                    return Range { kind: "", weight: 0.0 };
                }
                _ => {}
            }
        }
        Range { kind, weight }
    }
}

/// A page of OpenMetrics in the older format: names of families with their suffixes, infos as gauges, no units, no end.
pub(super) fn to_text(open: &str) -> String {
    let mut text = String::with_capacity(open.len() + open.len() / 8);
    let mut help = "";
    for line in open.lines() {
        let Some(metadata) = line.strip_prefix("# ") else {
            text += line;
            text.push('\n');
            continue;
        };
        match metadata.split_once(' ') {
            // Written when the type, and so the name, is known.
            Some(("HELP", of)) => help = of.split_once(' ').map_or("", |(_, help)| help),
            Some(("TYPE", of)) => {
                let (name, kind) = of.split_once(' ').unwrap_or((of, "untyped"));
                let (suffix, kind) = match kind {
                    "counter" => ("_total", "counter"),
                    "info" => ("_info", "gauge"),
                    kind => ("", kind),
                };
                let name = format!("{name}{suffix}");
                let _ = write!(text, "# HELP {name} {help}\n# TYPE {name} {kind}\n");
            }
            _ => {}
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_format_is_what_the_client_accepts() {
        const OPEN: &str = "application/openmetrics-text";
        for (accept, wanted) in [
            (None, Format::Text),
            (Some("*/*"), Format::Text),
            (Some("text/html,application/xhtml+xml,*/*;q=0.8"), Format::Text),
            (Some("application/openmetrics-text"), Format::Open),
            (Some("Application/OpenMetrics-Text; Version=1.0.0; charset=utf-8"), Format::Open),
            (Some("application/openmetrics-text;version=2.0.0"), Format::Text),
            (Some("application/openmetrics-text;q=0, */*"), Format::Text),
            (Some("application/openmetrics-text;q=0.4, text/plain;q=0.5"), Format::Text),
            (Some("application/openmetrics-text;q=0.5, text/*;q=0.5"), Format::Open),
            // A specific range counts before a general one.
            (Some("application/openmetrics-text;q=0.5, text/plain;q=0.1, */*"), Format::Open),
            // Prometheus 2.42, 3.0, and 2.20.
            (
                Some(
                    "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                     text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                ),
                Format::Open,
            ),
            (
                Some(
                    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,\
                     application/openmetrics-text;version=0.0.1;q=0.4,\
                     text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
                ),
                Format::Open,
            ),
            (
                Some(
                    "application/openmetrics-text; version=0.0.1,text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
                ),
                Format::Text,
            ),
        ] {
            let mut headers = HeaderMap::new();
            if let Some(accept) = accept {
                headers.insert(header::ACCEPT, accept.parse().unwrap());
            }
            assert_eq!(Format::wanted(&headers), wanted, "{accept:?}");
        }
        let mut headers = HeaderMap::new();
        headers.append(header::ACCEPT, "text/plain;q=0.5".parse().unwrap());
        headers.append(header::ACCEPT, OPEN.parse().unwrap());
        assert_eq!(Format::wanted(&headers), Format::Open, "in two lines");
    }

    #[test]
    fn suffixes_move_into_names_and_units_go() {
        let open = "# HELP a_bytes Of a.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\na_bytes_total{b=\"# c\"} 1\n\
                    # HELP d Of d.\n# TYPE d info\nd_info{e=\"f\"} 1\n# HELP g Of g.\n# TYPE g gauge\ng 0.5\n# EOF\n";
        let text = "# HELP a_bytes_total Of a.\n# TYPE a_bytes_total counter\na_bytes_total{b=\"# c\"} 1\n\
                    # HELP d_info Of d.\n# TYPE d_info gauge\nd_info{e=\"f\"} 1\n# HELP g Of g.\n# TYPE g gauge\ng 0.5\n";
        assert_eq!(to_text(open), text);
    }
}
