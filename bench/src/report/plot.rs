//! Plots as SVG, to be put into the page.
//!
//! Colours are the page's to choose, by whether it is light or dark: what is drawn here has classes.

use std::fmt::{self, Write};

use crate::figure::Row;

/// The contestant that a figure belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Before,
    Fix,
    Manylane,
    Other,
}

impl Role {
    pub const ALL: [Role; 4] = [Role::Before, Role::Fix, Role::Manylane, Role::Other];

    /// Its class, and its variable in the style sheet.
    pub fn name(self) -> &'static str {
        match self {
            Role::Before => "before",
            Role::Fix => "fix",
            Role::Manylane => "manylane",
            Role::Other => "other",
        }
    }
}

pub struct Bars {
    pub bench: &'static str,
    pub title: &'static str,
    pub unit: &'static str,
    pub less_is_better: bool,
    pub logarithmic: bool,
    pub bars: Vec<Bar>,
}

pub struct Bar {
    pub role: Role,
    pub label: &'static str,
    pub of: Of,
}

/// Where a bar's value is from.
pub enum Of {
    /// A figure of the bench.
    Figure(&'static str),
    /// What others published: value, least, most.
    Stated([f64; 3]),
}

impl Bar {
    /// Its median, least and largest value, if it was measured.
    pub fn value(&self, bench: &str, rows: &[Row]) -> Option<[f64; 3]> {
        match self.of {
            Of::Stated(values) => Some(values),
            Of::Figure(name) => row(rows, bench, name).map(|row| [row.value, row.min, row.max]),
        }
    }
}

pub fn row<'a>(rows: &'a [Row], bench: &str, figure: &str) -> Option<&'a Row> {
    rows.iter().find(|row| row.bench == bench && row.figure == figure)
}

const WIDTH: i32 = 560;
const LEFT: i32 = 196;
const RIGHT: i32 = WIDTH - 66;
const BAR: i32 = 30;

/// Draws the bars: to the median, with a line from the least to the largest.
pub fn bars(page: &mut String, plot: &Bars, rows: &[Row]) -> fmt::Result {
    let values: Vec<_> = plot.bars.iter().map(|bar| bar.value(plot.bench, rows)).collect();
    let known = || values.iter().flatten();
    let scale = Scale::new(
        plot.logarithmic,
        known().map(|[median, min, _]| min.min(*median)),
        known().map(|[median, _, max]| max.max(*median)),
        (LEFT, RIGHT),
    );
    let foot = BAR * plot.bars.len() as i32 + 6;
    begin(page, (WIDTH, foot + 24))?;
    for tick in scale.ticks() {
        let x = scale.at(tick);
        line(page, &[(x, 0), (x, foot)], "line", 1)?;
        text(page, &short(tick), (x, foot + 13), "middle")?;
    }
    for (number, (bar, value)) in plot.bars.iter().zip(&values).enumerate() {
        let middle = BAR * number as i32 + BAR / 2 + 2;
        text(page, bar.label, (LEFT - 10, middle), "end")?;
        let Some(value) = value else {
            text(page, "not measured", (LEFT + 8, middle), "start")?;
            continue;
        };
        let [end, min, max] = value.map(|value| scale.at(value));
        let (role, top, width) = (bar.role.name(), middle - 9, (end - LEFT).max(1));
        writeln!(
            page,
            "<rect class=\"{role}\" x=\"{LEFT}\" y=\"{top}\" width=\"{width}\" height=\"18\"/>"
        )?;
        if max - min > 1 {
            line(page, &[(min, middle), (max, middle)], "ink", 2)?;
            for x in [min, max] {
                line(page, &[(x, middle - 4), (x, middle + 4)], "ink", 2)?;
            }
        }
        let said = match bar.of {
            Of::Stated([value, least, _]) if least < value => {
                format!("{} to {}", short(least), short(value))
            }
            _ => short(value[0]),
        };
        text(page, &said, (end.max(max) + 7, middle), "start")?;
    }
    line(page, &[(LEFT, 0), (LEFT, foot)], "ink", 1)?;
    page.write_str("</svg>\n")
}

/// A line: whose, what it is called, and points.
pub type Curve = (Role, &'static str, Vec<(f64, f64)>);

/// Draws curves over the number of workers, both axes logarithmic. What is 0 lies on the axis.
pub fn curves(page: &mut String, curves: &[Curve]) -> fmt::Result {
    const FOOT: i32 = 230;
    let points = || curves.iter().flat_map(|(_, _, points)| points);
    let positive = || points().map(|&(_, y)| y).filter(|y| *y > 0.0);
    let across = Scale::new(true, points().map(|&(x, _)| x), points().map(|&(x, _)| x), (60, 500));
    let up = Scale::new(true, positive(), positive(), (FOOT, 12));
    begin(page, (760, FOOT + 26))?;
    for tick in up.ticks() {
        line(page, &[(60, up.at(tick)), (488, up.at(tick))], "line", 1)?;
        text(page, &short(tick), (52, up.at(tick)), "end")?;
    }
    let mut workers: Vec<f64> = points().map(|&(x, _)| x).collect();
    workers.sort_by(f64::total_cmp);
    workers.dedup();
    for x in workers {
        text(page, &short(x), (across.at(x), FOOT + 14), "middle")?;
    }
    line(page, &[(60, FOOT), (488, FOOT)], "ink", 1)?;
    for (role, label, points) in curves {
        let way: Vec<_> = points.iter().map(|&(x, y)| (across.at(x), up.at(y))).collect();
        line(page, &way, role.name(), 3)?;
        for (x, y) in &way {
            writeln!(page, "<circle class=\"{}\" cx=\"{x}\" cy=\"{y}\" r=\"4\"/>", role.name())?;
        }
        if let Some(&(x, y)) = way.last() {
            text(page, label, (x + 12, y), "start")?;
        }
    }
    page.write_str("</svg>\n")
}

fn begin(page: &mut String, (width, height): (i32, i32)) -> fmt::Result {
    writeln!(page, "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\">")
}

fn line(page: &mut String, points: &[(i32, i32)], class: &str, width: u32) -> fmt::Result {
    let points: Vec<_> = points.iter().map(|(x, y)| format!("{x},{y}")).collect();
    let points = points.join(" ");
    writeln!(page, "<polyline class=\"{class}\" stroke-width=\"{width}\" points=\"{points}\"/>")
}

/// `side` of the text is at this place.
fn text(page: &mut String, text: &str, (x, y): (i32, i32), side: &str) -> fmt::Result {
    writeln!(page, "<text x=\"{x}\" y=\"{y}\" text-anchor=\"{side}\">{text}</text>")
}

struct Scale {
    logarithmic: bool,
    from: f64,
    to: f64,
    pixels: (i32, i32),
}

impl Scale {
    fn new(
        logarithmic: bool,
        least: impl Iterator<Item = f64>,
        most: impl Iterator<Item = f64>,
        pixels: (i32, i32),
    ) -> Scale {
        let most = most.filter(|value| value.is_finite()).fold(0.0, f64::max);
        let most = if most > 0.0 { most } else { 1.0 };
        if !logarithmic {
            return Scale { logarithmic, from: 0.0, to: most * 1.02, pixels };
        }
        let least = least.filter(|value| *value > 0.0).fold(most, f64::min);
        // From the power of ten below, so that the least has a bar, too.
        Scale { logarithmic, from: (least.log10() - 0.05).floor(), to: most.log10() + 0.05, pixels }
    }

    fn at(&self, value: f64) -> i32 {
        let value = match self.logarithmic {
            true if value > 0.0 => value.log10(),
            true => self.from,
            false => value,
        };
        let part = ((value - self.from) / (self.to - self.from)).clamp(0.0, 1.0);
        let (first, last) = self.pixels;
        first + (part * f64::from(last - first)).round() as i32
    }

    fn ticks(&self) -> Vec<f64> {
        if self.logarithmic {
            let (from, to) = (self.from.ceil() as i32, self.to.floor() as i32);
            let every = ((to - from) / 6 + 1) as usize;
            return (from..=to).step_by(every).map(|power| 10f64.powi(power)).collect();
        }
        let rough = self.to / 4.0;
        let power = 10f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0].map(|times| times * power);
        let step = step.into_iter().find(|step| *step >= rough).unwrap_or(rough);
        (0..).map(|number| f64::from(number) * step).take_while(|tick| *tick <= self.to).collect()
    }
}

/// Three digits or four, or all before the point.
pub fn short(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        size if size >= 999.95 => 0,
        size if size >= 9.995 => 1,
        size if size >= 0.9995 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
    let (sign, whole) = whole.strip_prefix('-').map_or(("", whole), |whole| ("-", whole));
    let mut grouped = String::new();
    for (at, digit) in whole.chars().enumerate() {
        if at > 0 && (whole.len() - at) % 3 == 0 {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    let rest = rest.trim_end_matches('0');
    if rest.is_empty() { format!("{sign}{grouped}") } else { format!("{sign}{grouped}.{rest}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_has_few_digits_but_all_before_the_point() {
        let said = [0.0, 0.0731, 1.0, 4.7, 148.4, 999.96, 15_900.4, -3.25].map(short);
        assert_eq!(said, ["0", "0.073", "1", "4.7", "148.4", "1,000", "15,900", "-3.25"]);
    }

    #[test]
    fn a_logarithmic_scale_has_room_for_the_least_and_takes_nothing() {
        let scale = Scale::new(true, [0.1, 5.0].into_iter(), [16_000.0].into_iter(), (100, 500));
        assert!(scale.at(0.1) > 100 && scale.at(16_000.0) < 500);
        assert_eq!(scale.at(0.0), 100);
        let nothing = Scale::new(true, [].into_iter(), [].into_iter(), (100, 500));
        assert!(!nothing.ticks().is_empty());
    }
}
