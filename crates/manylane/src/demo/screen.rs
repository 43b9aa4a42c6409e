//! Standard output: a terminal, where a block is drawn over the one before, or anything else.

use std::io::{self, IsTerminal, Write};

/// Standard output.
pub(super) struct Screen {
    is_terminal: bool,
    /// Lines of the last block, if nothing was said since.
    drawn: usize,
    /// The reader has gone: nothing more is written.
    is_gone: bool,
}

impl Screen {
    pub(super) fn new() -> Screen {
        Screen { is_terminal: io::stdout().is_terminal(), drawn: 0, is_gone: false }
    }

    /// Whether nobody reads any more.
    pub(super) fn is_gone(&self) -> bool {
        self.is_gone
    }

    /// Writes text that stays.
    pub(super) fn say(&mut self, text: &str) {
        self.drawn = 0;
        self.write(&format!("{}\n", text.trim_end_matches('\n')));
    }

    /// Writes a block; on a terminal, over the block before.
    pub(super) fn draw(&mut self, block: &str) {
        if !self.is_terminal {
            self.say(block);
            return;
        }
        let text = over(self.drawn, block);
        self.drawn = block.lines().count();
        self.write(&text);
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

/// Moves up to the first of `drawn` lines and replaces them (ECMA-48: CUU, ED). Lines wider than the
/// terminal are cut (DECAWM off): wrapped ones would be counted wrong.
fn over(drawn: usize, block: &str) -> String {
    let up = if drawn == 0 { String::new() } else { format!("\x1b[{drawn}A") };
    let block = block.trim_end_matches('\n');
    format!("{up}\r\x1b[J\x1b[?7l{block}\x1b[?7h\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_replaces_as_many_lines_as_the_last_one_had() {
        assert_eq!(over(0, "one\ntwo\n"), "\r\x1b[J\x1b[?7lone\ntwo\x1b[?7h\n");
        assert_eq!(over(2, "three\n"), "\x1b[2A\r\x1b[J\x1b[?7lthree\x1b[?7h\n");
    }
}
