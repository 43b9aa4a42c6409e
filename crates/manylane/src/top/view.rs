//! [`View`]: what the keys have made of the panes.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::time::Duration;

use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::detail::{Detail, Picked};
use super::flow_panes::{FlowChoice, KERNEL};
use super::flows::Flows;
use super::panes::{Between, Cell, Head, Pane, Row};
use super::sample::{Of, Order, Pace, Sample, Watched};
use manylane_api::accelerate::Why;

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
    /// Which flows are shown, and how.
    pub flow_choice: FlowChoice,
    /// The row of the selected pane that Enter opens, where the pane is zoomed.
    pub cursor: usize,
    /// The flow of that row, once the operator has moved there: it stays picked wherever its row moves.
    picked: Option<Picked>,
    /// The flow that is explained.
    pub detail: Option<Detail>,
    /// What the sampler queries.
    watched: Watched,
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
#[derive(Clone, Debug, PartialEq)]
pub enum Wish {
    Quit,
    Order(Order),
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
            flow_choice: FlowChoice::default(),
            cursor: 0,
            picked: None,
            detail: None,
            watched: Watched::default(),
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
        (self.head, self.panes) =
            Between::new(self.former.as_ref(), &self.now).shown(&flows, &self.flow_choice);
        // Another kind of daemon has other panes.
        if self.choices.len() != self.panes.len() {
            self.selected = 0;
            self.choices = self.panes.iter().map(usual).collect();
        }
        for (pane, choice) in self.panes.iter().zip(&mut self.choices) {
            // Grouped flows have fewer columns.
            if choice.order >= pane.columns.len() {
                *choice = usual(pane);
            }
        }
        self.sort();
    }

    fn sort(&mut self) {
        for (pane, choice) in self.panes.iter_mut().zip(&mut self.choices) {
            let order = |one: &Row, other: &Row| {
                let order = compare(&one.cells[choice.order], &other.cells[choice.order]);
                if choice.is_reversed { order.reverse() } else { order }
            };
            // Stable: rows that are alike stay where the daemon has them.
            pane.rows.sort_by(order);
            choice.skipped = choice.skipped.min(pane.rows.len().saturating_sub(1));
        }
        let rows = &self.panes[self.selected].rows;
        let is_it = |row: &Row| {
            row.picked.as_ref().zip(self.picked.as_ref()).is_some_and(|(one, it)| one.is_same(it))
        };
        let place = rows.iter().position(is_it).unwrap_or(self.cursor);
        self.cursor = place.min(rows.len().saturating_sub(1));
    }

    /// Whether the selected pane has a cursor.
    pub fn has_cursor(&self) -> bool {
        self.is_zoomed && self.panes[self.selected].rows.iter().any(|row| row.picked.is_some())
    }

    /// The daemon's answer about a flow.
    pub fn explain(&mut self, picked: &Picked, why: Result<Why, String>) {
        if let Some(detail) = self.detail.as_mut().filter(|detail| detail.picked.is_same(picked)) {
            detail.answer = Some(why);
        }
    }

    /// Does what a key says.
    pub fn input(&mut self, event: &Event) -> Option<Wish> {
        let Event::Key(KeyEvent { code, modifiers, kind: KeyEventKind::Press, .. }) = event else {
            return None; // A new size is seen when it is drawn.
        };
        let is_control = modifiers.contains(KeyModifiers::CONTROL);
        let before = (self.selected, self.is_zoomed, self.flow_choice.clone());
        let wish = match code {
            KeyCode::Char('c') if is_control => Some(Wish::Quit),
            KeyCode::Char('q') => Some(Wish::Quit),
            KeyCode::Char('?' | 'h') => {
                self.is_helping ^= true;
                None
            }
            _ if self.is_helping => {
                self.is_helping = false;
                None
            }
            KeyCode::Char(' ' | 'p') => {
                self.is_paused ^= true;
                Some(self.order_pace())
            }
            KeyCode::Char('+') => Some(self.set_interval(self.interval / 2)),
            KeyCode::Char('-') => Some(self.set_interval(self.interval * 2)),
            code if self.detail.is_some() => {
                self.read_detail(*code);
                None
            }
            code => self.choose(*code),
        };
        if (before.0, before.1) != (self.selected, self.is_zoomed) {
            (self.cursor, self.picked) = (0, None);
        }
        if before.2 != self.flow_choice {
            self.arrange();
        }
        self.sort();
        wish.or_else(|| self.order_watch())
    }

    /// Keys for what is said of a flow.
    fn read_detail(&mut self, code: KeyCode) {
        let Some(detail) = &mut self.detail else { return };
        let lines = u16::try_from(detail.lines().len()).unwrap_or(u16::MAX);
        let scrolled = |by: i16| detail.skipped.saturating_add_signed(by).min(lines);
        match code {
            KeyCode::Down | KeyCode::Char('j') => detail.skipped = scrolled(1),
            KeyCode::Up | KeyCode::Char('k') => detail.skipped = scrolled(-1),
            KeyCode::PageDown => detail.skipped = scrolled(PAGE as i16),
            KeyCode::PageUp => detail.skipped = scrolled(-PAGE as i16),
            KeyCode::Esc | KeyCode::Enter | KeyCode::Backspace => self.detail = None,
            _ => {}
        }
    }

    /// Keys for panes, their rows and columns.
    fn choose(&mut self, code: KeyCode) -> Option<Wish> {
        let panes = self.panes.len();
        match code {
            KeyCode::Esc => self.is_zoomed = false,
            KeyCode::Enter if self.has_cursor() => return self.open(),
            KeyCode::Enter | KeyCode::Char('z') => self.is_zoomed ^= true,
            KeyCode::Tab => self.selected = (self.selected + 1) % panes,
            KeyCode::BackTab => self.selected = (self.selected + panes - 1) % panes,
            KeyCode::Char(digit @ '1'..='9') => {
                let pane = digit as usize - '1' as usize;
                self.selected = if pane < panes { pane } else { self.selected };
            }
            KeyCode::Right | KeyCode::Char('s') => self.order_by(1),
            KeyCode::Left | KeyCode::Char('S') => self.order_by(-1),
            KeyCode::Char('r') => self.choices[self.selected].is_reversed ^= true,
            KeyCode::Char('f') => self.flow_choice.port = self.next_port(),
            KeyCode::Char('g') => self.flow_choice.is_grouped ^= true,
            KeyCode::Down | KeyCode::Char('j') => self.scroll(1),
            KeyCode::Up | KeyCode::Char('k') => self.scroll(-1),
            KeyCode::PageDown => self.scroll(PAGE),
            KeyCode::PageUp => self.scroll(-PAGE),
            _ => {}
        }
        None
    }

    /// Explains the flow below the cursor.
    fn open(&mut self) -> Option<Wish> {
        let picked = self.panes[self.selected].rows.get(self.cursor)?.picked.clone()?;
        self.picked = Some(picked.clone());
        self.detail = Some(Detail::of(picked.clone()));
        picked.question().map(|_| Wish::Order(Order::Ask(picked)))
    }

    /// The port behind the chosen one; none behind the last.
    fn next_port(&self) -> Option<String> {
        let ports: Vec<&String> = match &self.now.of {
            Of::Forwarder(daemon) => daemon.ports.iter().map(|port| &port.name).collect(),
            Of::Accelerator(daemon) => daemon.ports.iter().map(|port| &port.name).collect(),
        };
        let chosen = self.flow_choice.port.as_ref();
        let place = chosen.and_then(|chosen| ports.iter().position(|port| *port == chosen));
        ports.get(place.map_or(0, |place| place + 1)).map(|port| (*port).clone())
    }

    /// What the sampler has to query from now on, if that has changed.
    fn order_watch(&mut self) -> Option<Wish> {
        let kernel = self.panes[self.selected].title == KERNEL;
        let watched = Watched { port: self.flow_choice.port.clone(), kernel };
        (watched != self.watched).then(|| {
            self.watched = watched.clone();
            Wish::Order(Order::Watch(watched))
        })
    }

    fn set_interval(&mut self, interval: Duration) -> Wish {
        self.interval = interval.clamp(FASTEST, SLOWEST);
        self.order_pace()
    }

    fn order_pace(&self) -> Wish {
        Wish::Order(Order::Pace(match self.is_paused {
            true => Pace::Paused,
            false => Pace::Every(self.interval),
        }))
    }

    fn order_by(&mut self, step: isize) {
        let columns = self.panes[self.selected].columns.len();
        let choice = &mut self.choices[self.selected];
        choice.order = (choice.order + columns).wrapping_add_signed(step) % columns;
    }

    fn scroll(&mut self, rows: isize) {
        if self.has_cursor() {
            let all = &self.panes[self.selected].rows;
            self.cursor = self.cursor.saturating_add_signed(rows).min(all.len() - 1);
            self.picked = all[self.cursor].picked.clone();
            return;
        }
        let choice = &mut self.choices[self.selected];
        choice.skipped = choice.skipped.saturating_add_signed(rows);
    }
}

/// As a pane is shown until the operator says otherwise.
fn usual(pane: &Pane) -> Choice {
    Choice { order: pane.order, ..Choice::default() }
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
