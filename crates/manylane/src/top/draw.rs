//! A [`View`] in the cells of a terminal, from 80 by 24; a narrower one lacks the last columns, never the names. Its own
//! colours are kept: only what is selected is reversed, and a loss is red and bold.

use ratatui::Frame;
use ratatui::layout::{Alignment, Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Clear, Paragraph, Row, Table, Wrap};

use super::detail::Detail;
use super::panes::{self, Cell, Pane};
use super::view::{Choice, View};

/// Draws all of it.
pub fn draw(frame: &mut Frame<'_>, view: &mut View) {
    let [head, body, foot] =
        Layout::vertical([Constraint::Length(2), Constraint::Min(0), Constraint::Length(1)])
            .areas(frame.area());
    draw_head(frame, head, view);
    if let Some(detail) = &view.detail {
        draw_detail(frame, body, detail);
    } else if view.is_zoomed {
        draw_pane(frame, body, view, view.selected);
    } else {
        let heights = heights(&view.panes, body.height.into());
        let areas = Layout::vertical(heights.iter().map(|rows| Constraint::Length(*rows as u16)));
        for (pane, area) in areas.split(body).iter().enumerate() {
            draw_pane(frame, *area, view, pane);
        }
    }
    let keys = match (view.detail.is_some(), view.has_cursor()) {
        (true, _) => "q quit  ? help  Esc back  Down Up scroll",
        (_, true) => "q quit  ? help  Esc panes  Enter why  s sort  f port  g group  space pause",
        _ => "q quit  ? help  Tab pane  Enter zoom  s sort  r reverse  space pause  +/- pace",
    };
    let foot_line = match &view.trouble {
        Some(trouble) => Line::from(format!("no answer: {trouble}")).style(bad()),
        None => Line::from(keys).dim(),
    };
    frame.render_widget(foot_line, foot);
    if view.is_helping {
        draw_help(frame);
    }
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, view: &View) {
    let mut first =
        vec![Span::from("manylane top").bold(), format!("  {}", view.head.daemon).into()];
    if view.is_paused {
        first.push(Span::from("  paused").bold());
    } else {
        first.push(format!("  each {} s", view.interval.as_secs_f64()).dim());
    }
    if !view.head.alarm.is_empty() {
        first.push(Span::styled(format!("  {}", view.head.alarm), bad()));
    }
    let lines = vec![Line::from(first), Line::from(view.head.totals.as_str())];
    frame.render_widget(Paragraph::new(lines), area);
}

/// Lines for each pane: what it wants if all of them fit; else each a fair part of it, and the first panes what the
/// others leave over.
fn heights(panes: &[Pane], lines: usize) -> Vec<usize> {
    let wanted: Vec<usize> = panes.iter().map(|pane| FRAME + pane.rows.len().max(1)).collect();
    let fair = lines / panes.len().max(1);
    let mut heights: Vec<usize> = wanted.iter().map(|wanted| (*wanted).min(fair)).collect();
    let mut left = lines - heights.iter().sum::<usize>();
    for (height, wanted) in heights.iter_mut().zip(&wanted) {
        let more = (wanted - *height).min(left);
        *height += more;
        left -= more;
    }
    heights
}

fn draw_pane(frame: &mut Frame<'_>, area: Rect, view: &View, number: usize) {
    let (pane, choice) = (&view.panes[number], view.choices[number]);
    let shown = usize::from(area.height).saturating_sub(FRAME);
    let has_cursor = view.has_cursor();
    let skipped = match has_cursor {
        true => (view.cursor + 1).saturating_sub(shown),
        false => choice.skipped.min(pane.rows.len().saturating_sub(shown)),
    };
    let rows = &pane.rows[skipped..pane.rows.len().min(skipped + shown)];
    let mut title = Span::from(format!(" {} {} ", number + 1, pane.title)).bold();
    if number == view.selected {
        title = title.reversed();
    }
    let left_out = match rows.len() < pane.rows.len() {
        true => format!(" {} to {} of {} ", skipped + 1, skipped + rows.len(), pane.rows.len()),
        false => String::new(),
    };
    let note = if pane.note.is_empty() { String::new() } else { format!(" {} ", pane.note) };
    let block = Block::new()
        .borders(Borders::TOP)
        .title(title)
        .title(Span::from(note).dim())
        .title(Line::from(left_out).dim().alignment(Alignment::Right));
    let widths = widths(pane, area.width);
    let count = widths.len();
    let lines = rows.iter().enumerate().map(|(place, row)| {
        let line = line(row, count);
        let is_picked = has_cursor && skipped + place == view.cursor;
        if is_picked { line.style(Style::new().add_modifier(Modifier::REVERSED)) } else { line }
    });
    let table = Table::new(lines, widths)
        .header(header(&pane.columns[..count], choice))
        .column_spacing(1)
        .block(block);
    frame.render_widget(table, area);
}

fn header(columns: &[&str], choice: Choice) -> Row<'static> {
    let titles = columns.iter().enumerate().map(|(column, title)| {
        let is_number = title.starts_with('>');
        let title = title.trim_start_matches('>');
        let style = match column == choice.order {
            true => Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED),
            false => Style::new().add_modifier(Modifier::DIM),
        };
        let alignment = if is_number { Alignment::Right } else { Alignment::Left };
        Line::styled(title.to_owned(), style).alignment(alignment)
    });
    Row::new(titles)
}

fn line(row: &panes::Row, columns: usize) -> Row<'_> {
    Row::new(row.cells[..columns].iter().map(|cell| match cell {
        Cell::Text(text) => Line::from(text.as_str()),
        Cell::Number { shown, is_bad, .. } => {
            let line = Line::from(shown.as_str()).alignment(Alignment::Right);
            if *is_bad { line.style(bad()) } else { line }
        }
    }))
}

/// What each column needs; the widest of text gets the rest, or what is left for it. Where that is too little, the last
/// columns have none.
fn widths(pane: &Pane, width: u16) -> Vec<Constraint> {
    let shown = |cell: &Cell| match cell {
        Cell::Text(text) => text.chars().count(),
        Cell::Number { shown, .. } => shown.chars().count(),
    };
    let widths: Vec<usize> = pane
        .columns
        .iter()
        .enumerate()
        .map(|(column, title)| {
            let least = title.trim_start_matches('>').len();
            // So that columns do not dance with every digit.
            let least = if title.starts_with('>') { least.max(6) } else { least };
            pane.rows.iter().map(|row| shown(&row.cells[column])).fold(least, usize::max)
        })
        .collect();
    let fitted =
        (1..=widths.len()).rev().find_map(|count| fit(pane, &widths[..count], width.into()));
    let fitted = fitted.unwrap_or_else(|| vec![width.into()]);
    fitted.into_iter().map(|width| Constraint::Length(width as u16)).collect()
}

/// These columns in this width, if the widest of text has enough of it.
fn fit(pane: &Pane, widths: &[usize], width: usize) -> Option<Vec<usize>> {
    let mut widths = widths.to_vec();
    let sum = widths.iter().sum::<usize>() + widths.len() - 1;
    let is_text = |column: &usize| !pane.columns[*column].starts_with('>');
    let Some(widest) = (0..widths.len()).filter(is_text).max_by_key(|column| widths[*column])
    else {
        return (sum <= width).then_some(widths);
    };
    let left = width.checked_sub(sum - widths[widest])?;
    let has_optional = widths.len() > pane.columns.len() - pane.optional;
    let least = if has_optional { widths[widest] } else { widths[widest].min(TEXT_MIN) };
    if left < least {
        return None;
    }
    widths[widest] = left.min(widths[widest].max(TEXT_MIN));
    Some(widths)
}

/// What is said of a flow.
fn draw_detail(frame: &mut Frame<'_>, area: Rect, detail: &Detail) {
    let port = match detail.picked.port.as_str() {
        "" => String::new(),
        port => format!(", received by {port}"),
    };
    let title = Span::from(format!(" {}{port} ", detail.picked.flow)).bold().reversed();
    let lines: Vec<_> = detail.lines().into_iter().map(Line::from).collect();
    let text = Paragraph::new(lines)
        .wrap(Wrap { trim: false })
        .scroll((detail.skipped, 0))
        .block(Block::new().borders(Borders::TOP).title(title));
    frame.render_widget(text, area);
}

fn draw_help(frame: &mut Frame<'_>) {
    let area = frame.area();
    let width = area.width.min(HELP_WIDTH);
    let lines = help(width.saturating_sub(2).into());
    let height = lines.len() as u16 + 2;
    let [area] = Layout::horizontal([Constraint::Length(width)])
        .flex(ratatui::layout::Flex::Center)
        .areas(area);
    let [area] = Layout::vertical([Constraint::Length(height)])
        .flex(ratatui::layout::Flex::Center)
        .areas(area);
    frame.render_widget(Clear, area);
    let lines: Vec<_> = lines.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" Keys ")), area);
}

/// The help in lines of up to `width` characters: in two columns where they fit.
fn help(width: usize) -> Vec<String> {
    if width + 2 >= HELP_WIDTH.into() {
        return HELP.lines().map(str::to_owned).collect();
    }
    let mut lines = Vec::new();
    for text in HELP.lines() {
        let mut line = String::new();
        for word in text.split_whitespace() {
            if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > width {
                lines.push(std::mem::replace(&mut line, " ".into()));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line += word;
        }
        lines.push(line);
    }
    lines
}

fn bad() -> Style {
    Style::new().fg(Color::Red).add_modifier(Modifier::BOLD)
}

const HELP: &str = "\
 q, Ctrl-C        quit
 Tab, 1 to 5      select a pane
 Enter, z; Esc    zoom the selected pane; show all panes
 Enter (zoomed)   explain the flow
 f                flows of the next port
 g                add flows up by port and tier
 s, Right         sort by the next column
 S, Left          sort by the previous column
 r                reverse the order
 Up, Down, j, k   scroll; also PageUp, PageDown
 space, p         pause the queries
 + and -          update more or less often
 ?                show this help; any key closes it

 Rates are between two updates; bits include Ethernet headers.
 Flows are a sample: 32 packets at each update.
 Where connections decide they are a table; Kernel has others.";

/// With its frame.
const HELP_WIDTH: u16 = 64;
/// A pane's own lines: title and header.
const FRAME: usize = 2;
const TEXT_MIN: usize = 12;
