//! `manylane top` in a terminal, for tests of it.

use std::io::{Read, Write};
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use portable_pty::{Child, CommandBuilder, PtySize, native_pty_system};

/// A running `manylane top`, and its terminal.
pub struct Top {
    pub child: Box<dyn Child + Send + Sync>,
    terminal: Box<dyn portable_pty::MasterPty + Send>,
    output: Box<dyn Read + Send>,
    input: Box<dyn Write + Send>,
    parser: vt100::Parser,
}

impl Top {
    pub fn start(words: &[&str]) -> Top {
        let size = PtySize { rows: 24, cols: 80, ..PtySize::default() };
        let pair = native_pty_system().openpty(size).unwrap();
        let mut command = CommandBuilder::new(env!("CARGO_BIN_EXE_manylane"));
        command.arg("top");
        command.args(words);
        command.env("TERM", "xterm-256color");
        let child = pair.slave.spawn_command(command).unwrap();
        // So that the end of the output is seen.
        drop(pair.slave);
        Top {
            child,
            output: pair.master.try_clone_reader().unwrap(),
            input: pair.master.take_writer().unwrap(),
            terminal: pair.master,
            parser: vt100::Parser::new(lines(24), lines(80), 0),
        }
    }

    pub fn press(&mut self, keys: &str) {
        self.input.write_all(keys.as_bytes()).unwrap();
        self.input.flush().unwrap();
    }

    pub fn resize(&mut self, rows: u16, cols: u16) {
        self.parser.screen_mut().set_size(lines(rows), lines(cols));
        self.terminal.resize(PtySize { rows, cols, ..PtySize::default() }).unwrap();
    }

    /// Reads until the screen is as wanted.
    pub fn until(&mut self, what: &str, is_wanted: impl Fn(&str) -> bool) -> String {
        let patience = Instant::now() + Duration::from_secs(60);
        let mut bytes = [0; 4096];
        loop {
            let screen = self.parser.screen().contents();
            if is_wanted(&screen) {
                return screen;
            }
            assert!(Instant::now() < patience, "not seen: {what}\n{screen}");
            let len = self.output.read(&mut bytes).unwrap_or(0);
            assert!(len > 0, "it has ended, and not seen was: {what}\n{screen}");
            self.parser.process(&bytes[..len]);
        }
    }

    /// All that it still writes. A terminal whose last process has ended gives an error for an end.
    pub fn rest(&mut self) -> String {
        let mut bytes = [0; 4096];
        while let Ok(len @ 1..) = self.output.read(&mut bytes) {
            self.parser.process(&bytes[..len]);
        }
        self.parser.screen().contents()
    }

    pub fn ends_well(mut self) {
        self.rest();
        let screen = self.parser.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor(), "{}", screen.contents());
        assert_eq!(self.child.wait().unwrap().exit_code(), 0);
    }
}

impl Drop for Top {
    fn drop(&mut self) {
        // Still running only after a failed test.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn lines(number: u16) -> NonZeroU16 {
    NonZeroU16::new(number).unwrap()
}
