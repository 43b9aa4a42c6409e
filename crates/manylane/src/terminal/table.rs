//! Tables for eyes: at most 100 columns, numbers to the right, three digits to a group.

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

/// Lays out rows. A title that starts with `>` is of a column of numbers.
pub(crate) fn lay_out(titles: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    let line = LineStyle::none().fill('─').junction('─');
    table
        .load_style(TableStyle::new().header_separator(line))
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(WIDTH)
        .set_header(titles.iter().map(|title| title.trim_start_matches('>')))
        .add_rows(rows);
    for (column, title) in table.column_iter_mut().zip(titles) {
        column.set_padding((0, 1));
        if title.starts_with('>') {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.trim_fmt() + "\n"
}

/// `12,345,678`
pub(crate) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `-1,234`
pub(crate) fn signed(number: i64) -> String {
    let sign = if number < 0 { "-" } else { "" };
    format!("{sign}{}", count(number.unsigned_abs()))
}

/// `1.23 M`: three digits, as [`bytes`].
pub(crate) fn short(number: f64) -> String {
    scaled(number.round() as u64, "").trim_end().into()
}

/// `1.23 GB`: three digits are enough to compare by eye; JSON has them all.
pub(crate) fn bytes(number: u64) -> String {
    scaled(number, "B")
}

/// `1.23 Gbit/s`
pub(crate) fn bits_per_second(number: u64) -> String {
    scaled(number, "bit/s")
}

fn scaled(number: u64, unit: &str) -> String {
    if number < 1000 {
        return format!("{number} {unit}");
    }
    let mut value = number as f64;
    let mut thousands = 0;
    // 999.5 would be shown as 1000.
    while value >= 999.5 && thousands + 1 < PREFIXES.len() {
        value /= 1000.0;
        thousands += 1;
    }
    let decimals = if value < 9.995 {
        2
    } else if value < 99.95 {
        1
    } else {
        0
    };
    format!("{value:.decimals$} {}{unit}", PREFIXES[thousands])
}

/// `3 d 4 h`, `5 min 6 s`: the two largest units.
pub(crate) fn duration(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, _, _) => format!("{hours} h {} min", minutes % 60),
        _ => format!("{} d {} h", count(days), hours % 24),
    }
}

/// `1 port`, `2 ports`
pub(crate) fn plural(number: usize, noun: &str) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}

/// What fits a terminal beside something else, and a line of a bug report.
const WIDTH: u16 = 100;
const PREFIXES: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
