//! Standard output: on a terminal a block is drawn over the block before; a pipe or a file receives one line at a time.

use std::env;
use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

/// Standard output.
pub(super) struct Screen {
    is_terminal: bool,
    has_colours: bool,
    begun: Instant,
    /// Lines of the last block, if nothing was said since.
    drawn: usize,
    /// The reader has gone: nothing more is written.
    is_gone: bool,
}

impl Screen {
    pub(super) fn new() -> Screen {
        let is_terminal = io::stdout().is_terminal();
        // <https://no-color.org>
        let has_colours = is_terminal && env::var_os("NO_COLOR").is_none_or(|no| no.is_empty());
        Screen { is_terminal, has_colours, begun: Instant::now(), drawn: 0, is_gone: false }
    }

    /// Whether the reader has closed standard output.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Whether bars may have colours.
    pub(super) fn has_colours(&self) -> bool {
        self.has_colours
    }

    /// How often to show what changes: a terminal moves, a transcript has a line a second.
    pub(super) fn interval(&self) -> Duration {
        if self.is_terminal { FRAME } else { LINE }
    }

    /// How often to show something that lasts so long: a transcript has one line of it where two would say one thing.
    pub(super) fn interval_of(&self, lasts: Duration) -> Duration {
        if !self.is_terminal && lasts < 2 * LINE { lasts } else { self.interval() }
    }

    /// Writes text that stays.
    pub(super) fn say(&mut self, text: &str) {
        self.drawn = 0;
        self.write(&format!("{}\n", text.trim_end_matches('\n')));
    }

    /// Writes text that stays, in the place of the last block if this is a terminal.
    pub(super) fn conclude(&mut self, text: &str) {
        self.clear();
        self.say(text);
    }

    /// Concludes with one line and the time.
    pub(super) fn event(&mut self, line: &str) {
        let line = self.timed(line);
        self.conclude(&line);
    }

    /// Shows a moment: on a terminal a block, in the place of the block before; elsewhere a line with the time, unless it
    /// is empty.
    pub(super) fn show(&mut self, block: &str, line: &str) {
        if self.is_terminal {
            let block = block.trim_end_matches('\n');
            let text = over(self.drawn) + &unwrapped(block);
            self.drawn = block.lines().count();
            self.write(&text);
        } else if !line.is_empty() {
            let line = self.timed(line);
            self.say(&line);
        }
    }

    /// Takes the last block away.
    pub(super) fn clear(&mut self) {
        if self.drawn > 0 {
            let text = over(self.drawn);
            self.drawn = 0;
            self.write(&text);
        }
    }

    fn timed(&self, line: &str) -> String {
        format!("{:>4.0} s  {line}", self.begun.elapsed().as_secs_f64())
    }

    fn write(&mut self, text: &str) {
        if self.is_gone {
            return;
        }
        let mut output = io::stdout().lock();
        let written = output.write_all(text.as_bytes()).and_then(|()| output.flush());
        self.is_gone = written.is_err();
    }
}

const FRAME: Duration = Duration::from_millis(200);
const LINE: Duration = Duration::from_secs(1);

/// Moves up to the first of `drawn` lines and clears the screen from there (ECMA-48: CUU, ED).
fn over(drawn: usize) -> String {
    let up = if drawn == 0 { String::new() } else { format!("\x1b[{drawn}A") };
    format!("{up}\r\x1b[J")
}

/// The terminal cuts lines that are wider than itself (DECAWM off): wrapped lines would be counted wrong.
fn unwrapped(block: &str) -> String {
    format!("\x1b[?7l{block}\x1b[?7h\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn screen(is_terminal: bool) -> Screen {
        // Nothing is written: the reader has gone.
        Screen { is_terminal, has_colours: false, begun: Instant::now(), drawn: 0, is_gone: true }
    }

    #[test]
    fn a_block_replaces_as_many_lines_as_the_last_one_had() {
        assert_eq!(over(0), "\r\x1b[J");
        assert_eq!(over(2), "\x1b[2A\r\x1b[J");
        assert_eq!(unwrapped("one\ntwo"), "\x1b[?7lone\ntwo\x1b[?7h\n");

        let mut terminal = screen(true);
        terminal.show("one\ntwo\n", "");
        assert_eq!(terminal.drawn, 2);
        terminal.event("three");
        assert_eq!(terminal.drawn, 0, "it stays");
    }

    #[test]
    fn a_transcript_has_no_blocks() {
        let mut transcript = screen(false);
        transcript.show("one\ntwo\n", "a line");
        assert_eq!(transcript.drawn, 0);
        assert!(transcript.interval() > screen(true).interval());
    }
}
