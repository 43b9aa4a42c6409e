//! The report: one page that needs nothing else, with a section for each mechanism.

mod content;
pub mod machine;
mod plot;

pub use plot::short;

use std::fmt::{self, Write};

use crate::figure::Row;
use content::{MODEL, Section, sections};
use plot::{Bars, Curve, Of, Role, bars, curves, row};

pub struct Report<'a> {
    pub rows: &'a [Row],
    /// What they were taken on: name and value.
    pub machine: &'a [(String, String)],
    pub failures: &'a [String],
    pub quick: bool,
}

impl Report<'_> {
    pub fn page(&self) -> Result<String, fmt::Error> {
        let mut page = String::from(HEAD);
        page += include_str!("page.css");
        page += "</style>\n</head>\n<body>\n<h1>Five mechanisms, before and after</h1>\n";
        page += "<p class=\"soft\">What manylane's mechanisms cost, beside what they replace. Medians of runs that were \
            interleaved, least and largest beside them.</p>\n";
        if self.quick {
            page += "<p class=\"warn\">A short run, to see that it works: its figures mean little.</p>\n";
        }
        for failure in self.failures {
            writeln!(page, "<p class=\"warn\">Not measured: {}</p>", escaped(failure))?;
        }
        page += "<table class=\"machine\"><tbody>\n";
        for (name, value) in self.machine {
            let (value, is_code) = (escaped(value), name == "Command");
            let value = if is_code { format!("<code>{value}</code>") } else { value };
            writeln!(page, "<tr><th scope=\"row\">{name}</th><td>{value}</td></tr>")?;
        }
        page += "</tbody></table>\n<ul class=\"legend\">\n";
        for (role, said) in LEGEND {
            writeln!(page, "<li><i class=\"{}\"></i>{said}</li>", role.name())?;
        }
        page += "</ul>\n";
        let sections = sections();
        self.summary(&mut page, &sections)?;
        for section in &sections {
            self.section(&mut page, section)?;
        }
        self.model(&mut page)?;
        page += "</body>\n</html>\n";
        Ok(page)
    }

    fn summary(&self, page: &mut String, sections: &[Section]) -> fmt::Result {
        *page += "<table class=\"summary\"><thead><tr><th>Times as good as before, here</th><th class=\"n\">The fix, \
            rebuilt</th><th class=\"n\">manylane</th></tr></thead><tbody>\n";
        for section in sections {
            let Section { id, title, gains, .. } = section;
            write!(page, "<tr><th scope=\"row\"><a href=\"#{id}\">{title}</a></th>")?;
            for (&gain, role) in gains.iter().zip([Role::Fix, Role::Manylane]) {
                write!(page, "<td class=\"n\">{}</td>", self.gain(section, gain, role))?;
            }
            *page += "</tr>\n";
        }
        *page += "</tbody></table>\n";
        Ok(())
    }

    /// How many times `before` it does, in words.
    fn gain(&self, section: &Section, gain: Option<&str>, role: Role) -> String {
        if let Some(gain) = gain {
            let row = row(self.rows, section.benches[0], gain);
            return row.map_or("not measured".into(), |Row { value, min, max, .. }| {
                let [value, min, max] = [*value, *min, *max].map(short);
                format!("{value} <span class=\"soft\">({min} to {max})</span>")
            });
        }
        let first = &section.parts().1[0];
        let median = |role| {
            let bar = first.bars.iter().find(|bar| bar.role == role)?;
            Some(bar.value(first.bench, self.rows)?[0])
        };
        match (median(Role::Before), median(role)) {
            (Some(before), Some(after)) => {
                let gain = if first.less_is_better { before / after } else { after / before };
                format!("{} <span class=\"soft\">(of medians)</span>", short(gain))
            }
            _ => "not measured".into(),
        }
    }

    fn section(&self, page: &mut String, section: &Section) -> fmt::Result {
        let Section { id, title, text, benches, .. } = section;
        let (source, here) = section.parts();
        writeln!(
            page,
            "<section id=\"{id}\">\n<h2>{title}</h2>\n<p>{text}</p>\n<div class=\"plots\">"
        )?;
        self.figure(page, source, "source", "the source's own figures, from its machine")?;
        for plot in here {
            self.figure(page, plot, "here", "measured here")?;
        }
        *page += "</div>\n";
        let bars = || here.iter().flat_map(|plot| &plot.bars);
        let is_shown =
            |row: &&Row| bars().any(|bar| matches!(bar.of, Of::Figure(name) if name == row.figure));
        let of = |row: &&Row| benches.contains(&row.bench.as_str());
        let (plotted, others): (Vec<&Row>, Vec<&Row>) =
            self.rows.iter().filter(of).partition(is_shown);
        rows(page, "What is plotted, in figures", &plotted)?;
        rows(page, "All other figures", &others)?;
        *page += "</section>\n";
        Ok(())
    }

    fn figure(&self, page: &mut String, plot: &Bars, class: &str, whose: &str) -> fmt::Result {
        let better = if plot.less_is_better { "less" } else { "more" };
        let scale = if plot.logarithmic { ", logarithmic" } else { "" };
        writeln!(
            page,
            "<figure class=\"{class}\"><figcaption>{} <small>{whose}: {}{scale}, {better} is better</small></figcaption>",
            plot.title, plot.unit
        )?;
        bars(page, plot, self.rows)?;
        *page += "</figure>\n";
        Ok(())
    }

    fn model(&self, page: &mut String) -> fmt::Result {
        let curve = |(role, label, name): (Role, &'static str, &str)| -> Curve {
            let points = self.rows.iter().filter(|row| row.bench == "scale").filter_map(|row| {
                let workers =
                    row.figure.strip_prefix(name)?.strip_prefix('_')?.strip_suffix('w')?;
                Some((workers.parse().ok()?, row.value))
            });
            (role, label, points.collect())
        };
        let lines = MODEL.map(curve);
        *page += "<section id=\"model\">\n<h2>A model of 128 cores</h2>\n<p><strong>A model, not measured.</strong> How \
            often a count's cache line changes hands is counted exactly, with N virtual workers in lockstep, and \
            multiplied by what a line's change of hands takes here, as if nothing else took time. Read it for how one \
            way to count stands to another, and how it grows.</p>\n<figure class=\"model\"><figcaption>MODEL: take a \
            reference and give it back, by N cores <small>ns for each, of all cores together; both axes \
            logarithmic; what counts nothing takes 0, and lies on the axis</small></figcaption>\n";
        if lines.iter().all(|(_, _, points)| points.is_empty()) {
            *page += "<p>not measured</p>";
        } else {
            curves(page, &lines)?;
        }
        *page += "</figure>\n";
        let modelled = |row: &&Row| row.bench == "scale";
        rows(page, "The model in figures", &self.rows.iter().filter(modelled).collect::<Vec<_>>())?;
        *page += "</section>\n";
        Ok(())
    }
}

/// A table that can be opened.
fn rows(page: &mut String, title: &str, rows: &[&Row]) -> fmt::Result {
    if rows.is_empty() {
        return Ok(());
    }
    writeln!(
        page,
        "<details><summary>{title} ({})</summary><table><thead><tr><th>Figure</th><th class=\"n\">Median</th>\
         <th class=\"n\">Least</th><th class=\"n\">Largest</th><th>Unit</th><th class=\"n\">Runs</th></tr></thead><tbody>",
        rows.len()
    )?;
    for Row { bench, figure, value, min, max, runs, unit } in rows {
        let [value, min, max] = [value, min, max].map(|value| short(*value));
        writeln!(
            page,
            "<tr><td><code>{bench} {}</code></td><td class=\"n\">{value}</td><td class=\"n\">{min}</td>\
             <td class=\"n\">{max}</td><td>{}</td><td class=\"n\">{runs}</td></tr>",
            escaped(figure),
            escaped(unit)
        )?;
    }
    *page += "</tbody></table></details>\n";
    Ok(())
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

const HEAD: &str = "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
    <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
    <title>manylane: five mechanisms</title>\n<style>\n";

const LEGEND: [(Role, &str); 4] = [
    (Role::Before, "before: the problem"),
    (Role::Fix, "the source's fix"),
    (Role::Manylane, "manylane"),
    (Role::Other, "for comparison"),
];

#[cfg(test)]
mod tests;
