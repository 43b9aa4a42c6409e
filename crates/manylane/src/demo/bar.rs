//! A bar: blocks of eighths, a spinner, and what they are drawn for, which takes longer than a moment.

use std::convert::Infallible;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use super::screen::Screen;

/// A bar of `part` of `width` columns, to an eighth of a column.
pub(super) fn bar(part: f64, width: usize) -> String {
    let eighths = (part.clamp(0.0, 1.0) * width as f64 * 8.0).round() as usize;
    let mut bar = "█".repeat(eighths / 8);
    if !eighths.is_multiple_of(8) {
        bar.push(EIGHTHS[eighths % 8 - 1]);
    }
    bar
}

/// Such a bar, filled up to its width.
pub(super) fn padded(part: f64, width: usize) -> String {
    format!("{:<width$}", bar(part, width))
}

/// A spinner's letter at this time.
pub(super) fn spinner(since: Instant) -> char {
    let turn = since.elapsed().as_millis() / 100;
    SPINNER[(turn % SPINNER.len() as u128) as usize]
}

/// Does some work on another thread, and shows a spinner meanwhile, if it takes long.
pub(super) fn spin<T: Send>(
    doing: &str,
    screen: &mut Screen,
    work: impl FnOnce() -> T + Send,
) -> T {
    let begun = Instant::now();
    let (working, done) = mpsc::channel::<Infallible>();
    thread::scope(|scope| {
        let work = scope.spawn(move || {
            let _working = working;
            work()
        });
        // Nothing is sent: the channel closes when the work is done.
        while done.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout) {
            if begun.elapsed() >= PATIENCE {
                screen.show(&format!("{} {doing}", spinner(begun)), "");
            }
        }
        work.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

const EIGHTHS: [char; 7] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉'];
const SPINNER: [char; 4] = ['-', '\\', '|', '/'];
const LOOK: Duration = Duration::from_millis(100);
/// What takes less needs no spinner.
const PATIENCE: Duration = Duration::from_millis(200);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_eighths_and_never_more_than_its_width() {
        assert_eq!(bar(0.0, 10), "");
        assert_eq!(bar(0.5, 3), "█▌");
        assert_eq!(bar(1.0 / 80.0, 10), "▏");
        assert_eq!(bar(7.0, 2), "██");
        assert_eq!(padded(0.5, 4), "██  ");
    }
}
