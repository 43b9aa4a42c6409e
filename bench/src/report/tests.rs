//! The page from rows that are made up.

use super::*;

/// A row for each bar, and the model's.
fn rows() -> Vec<Row> {
    let row = |bench: &str, figure: &str, value| Row {
        bench: bench.into(),
        figure: figure.into(),
        value,
        min: value * 0.9,
        max: value * 1.2,
        runs: 9,
        unit: "ns".into(),
    };
    let mut rows = Vec::new();
    let sections = sections();
    for plot in sections.iter().flat_map(|section| section.parts().1) {
        for (number, bar) in (1..).zip(&plot.bars) {
            if let Of::Figure(name) = bar.of {
                rows.push(row(plot.bench, name, 12.5 * f64::from(number)));
            }
        }
    }
    for section in &sections {
        let gains = section.gains.iter().flatten();
        rows.extend(gains.map(|gain| row(section.benches[0], gain, 2.0)));
    }
    for workers in [2.0, 16.0, 128.0] {
        for (_, _, name) in MODEL {
            rows.push(row("scale", &format!("{name}_{workers}w"), 30.0 * workers));
        }
    }
    rows
}

fn page(rows: &[Row]) -> String {
    let machine = [("Processor", "<fast> & \"new\""), ("Command", "compare all")];
    let machine = machine.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let failures = ["compare/x: 1 < 2".into()];
    let report = Report { rows, machine: &machine, failures: &failures, quick: true };
    report.page().expect("it is drawn")
}

#[test]
fn every_mechanism_has_its_section_with_all_its_plots() {
    let page = page(&rows());
    assert!(!page.contains("not measured<"), "each bar has a row");
    for section in &sections() {
        let (Section { id, title, .. }, (source, here)) = (section, section.parts());
        let section = page.split(&format!("<section id=\"{id}\">")).nth(1).expect("there is one");
        let section = section.split("</section>").next().unwrap_or_default();
        assert!(section.contains(title));
        assert_eq!(section.matches("<svg").count(), here.len() + 1, "{id}");
        for role in [Role::Before, Role::Fix, Role::Manylane] {
            let is_there = section.contains(&format!("<rect class=\"{}\"", role.name()));
            assert!(is_there, "{id} {role:?}");
        }
        for bar in here.iter().flat_map(|plot| &plot.bars).chain(&source.bars) {
            assert!(section.contains(bar.label), "{}", bar.label);
            if let Of::Figure(name) = bar.of {
                assert!(section.contains(&format!("{name}</code>")), "{name}");
            }
        }
    }
    assert!(page.contains("A model, not measured.") && page.contains("MODEL"));
    assert!(page.contains("&lt;fast&gt; &amp; &quot;new&quot;") && page.contains("1 &lt; 2"));
    assert!(page.contains("A short run"));
}

#[test]
fn a_page_without_figures_says_what_is_missing() {
    let page = page(&[]);
    let sections = sections();
    assert_eq!(page.matches("<section").count(), sections.len() + 1);
    let plots = sections.iter().flat_map(|section| section.parts().1);
    let bars = plots.map(|plot| plot.bars.len()).sum();
    assert!(page.matches("not measured").count() > bars);
    well_formed(&page);
}

#[test]
fn the_page_is_well_formed_and_needs_nothing_else() {
    let page = page(&rows());
    well_formed(&page);
    for other in ["<script", "<link", "<img", "src=", "@import", "url("] {
        assert!(!page.contains(other), "{other}");
    }
    let addresses: Vec<_> = page.match_indices("://").collect();
    let names = page.matches("http://www.w3.org/2000/svg").count();
    assert_eq!(addresses.len(), names, "namespaces alone, which no browser fetches");
    let links = page.matches("href=\"").count();
    assert_eq!(links, page.matches("href=\"#").count());
}

/// Every element is ended where it has to be.
fn well_formed(page: &str) {
    let body = page.strip_prefix("<!doctype html>\n").expect("it begins so");
    let mut open = Vec::new();
    for part in body.split('<').skip(1) {
        let (tag, text) = part.split_once('>').expect("a tag ends");
        assert!(!text.contains('>') || open.last() == Some(&"style"), "{part}");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None if tag.ends_with('/') => {}
            None => open.push(tag.split_whitespace().next().expect("it has a name")),
        }
    }
    assert!(open.is_empty(), "{open:?}");
}
