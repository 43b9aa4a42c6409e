//! [`View`]: what the keys have made of the panes.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Duration;

use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::flows::Flows;
use super::panes::{Between, Cell, Head, Pane};
use super::sample::{Of, Pace, Sample};

/// What is seen, and of what.
pub struct View {
    former: Option<Sample>,
    now: Sample,
    /// The last samples' flows.
    flows: VecDeque<Flows>,
    pub head: Head,
    pub panes: Vec<Pane>,
    /// What the user made of each pane.
    pub choices: Vec<Choice>,
    pub selected: usize,
    /// Only the selected pane is shown.
    pub is_zoomed: bool,
    pub is_paused: bool,
    /// The keys are explained.
    pub is_helping: bool,
    pub interval: Duration,
    /// The error of the last query, if it failed.
    pub trouble: Option<String>,
}

/// How a pane is shown.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Choice {
    pub order: usize,
    /// Otherwise than usual: the largest numbers, the first names.
    pub is_reversed: bool,
    /// Rows that lie above the first that is shown.
    pub skipped: usize,
}

/// A request of a key to another thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Wish {
    Quit,
    Pace(Pace),
}

impl View {
    /// Of a first sample.
    pub fn new(first: Sample, interval: Duration) -> View {
        let mut view = View {
            former: None,
            now: first,
            flows: VecDeque::new(),
            head: Head::default(),
            panes: Vec::new(),
            choices: Vec::new(),
            selected: 0,
            is_zoomed: false,
            is_paused: false,
            is_helping: false,
            interval,
            trouble: None,
        };
        view.arrange();
        view
    }

    /// Adds a later sample.
    pub fn add(&mut self, sample: Sample) {
        self.flows.push_back(match &sample.of {
            Of::Forwarder(daemon) => daemon.flows.clone(),
            Of::Accelerator(daemon) => daemon.flows.clone(),
        });
        self.flows.drain(..self.flows.len().saturating_sub(FLOW_SAMPLES));
        self.former = Some(std::mem::replace(&mut self.now, sample));
        self.trouble = None;
        self.arrange();
    }

    fn arrange(&mut self) {
        let mut flows = Flows::default();
        self.flows.iter().for_each(|sample| flows.merge(sample));
        (self.head, self.panes) = Between::new(self.former.as_ref(), &self.now).shown(&flows);
        // Another kind of daemon has other panes.
        if self.choices.len() != self.panes.len() {
            self.selected = 0;
            let usual = |pane: &Pane| Choice { order: pane.order, ..Choice::default() };
            self.choices = self.panes.iter().map(usual).collect();
        }
        self.sort();
    }

    fn sort(&mut self) {
        for (pane, choice) in self.panes.iter_mut().zip(&mut self.choices) {
            let order = |one: &Vec<Cell>, other: &Vec<Cell>| {
                let order = compare(&one[choice.order], &other[choice.order]);
                if choice.is_reversed { order.reverse() } else { order }
            };
            // Stable: rows that are alike stay where the daemon has them.
            pane.rows.sort_by(order);
            choice.skipped = choice.skipped.min(pane.rows.len().saturating_sub(1));
        }
    }

    /// Does what a key says.
    pub fn input(&mut self, event: &Event) -> Option<Wish> {
        let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event else {
            return None; // A new size is seen when it is drawn.
        };
        let is_control = modifiers.contains(KeyModifiers::CONTROL);
        let panes = self.panes.len();
        match code {
            KeyCode::Char('c') if is_control => return Some(Wish::Quit),
            KeyCode::Char('q') => return Some(Wish::Quit),
            KeyCode::Char('?' | 'h') => self.is_helping ^= true,
            _ if self.is_helping => self.is_helping = false,
            KeyCode::Esc => self.is_zoomed = false,
            KeyCode::Enter | KeyCode::Char('z') => self.is_zoomed ^= true,
            KeyCode::Tab => self.selected = (self.selected + 1) % panes,
            KeyCode::BackTab => self.selected = (self.selected + panes - 1) % panes,
            KeyCode::Char(digit @ '1'..='9') => {
                let pane = *digit as usize - '1' as usize;
                self.selected = if pane < panes { pane } else { self.selected };
            }
            KeyCode::Right | KeyCode::Char('s') => self.order_by(1),
            KeyCode::Left | KeyCode::Char('S') => self.order_by(-1),
            KeyCode::Char('r') => self.choices[self.selected].is_reversed ^= true,
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1),
            KeyCode::PageDown => self.scroll(PAGE),
            KeyCode::PageUp => self.scroll(-PAGE),
            KeyCode::Char(' ' | 'p') => {
                self.is_paused ^= true;
                return Some(Wish::Pace(self.pace()));
            }
            KeyCode::Char('+') => return Some(self.set_interval(self.interval / 2)),
            KeyCode::Char('-') => return Some(self.set_interval(self.interval * 2)),
            _ => {}
        }
        self.sort();
        None
    }

    fn set_interval(&mut self, interval: Duration) -> Wish {
        self.interval = interval.clamp(FASTEST, SLOWEST);
        Wish::Pace(self.pace())
    }

    fn pace(&self) -> Pace {
        if self.is_paused { Pace::Paused } else { Pace::Every(self.interval) }
    }

    fn order_by(&mut self, step: isize) {
        let columns = self.panes[self.selected].columns.len();
        let choice = &mut self.choices[self.selected];
        choice.order = (choice.order + columns).wrapping_add_signed(step) % columns;
    }

    fn scroll(&mut self, rows: isize) {
        let choice = &mut self.choices[self.selected];
        choice.skipped = choice.skipped.saturating_add_signed(rows);
    }
}

/// Large numbers first, and names in their order.
fn compare(one: &Cell, other: &Cell) -> Ordering {
    match (one, other) {
        (Cell::Number { value: one, .. }, Cell::Number { value: other, .. }) => {
            other.total_cmp(one)
        }
        (Cell::Text(one), Cell::Text(other)) => one.cmp(other),
        _ => Ordering::Equal,
    }
}

/// The shortest interval of queries.
pub const FASTEST: Duration = Duration::from_millis(100);
/// The longest interval of queries.
pub const SLOWEST: Duration = Duration::from_secs(3600);
/// As many as make some hundred packets.
const FLOW_SAMPLES: usize = 10;
const PAGE: isize = 10;
