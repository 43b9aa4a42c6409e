//! What the tests of both families share.

use std::str::FromStr;

/// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): the same numbers for the same seed.
pub(super) struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

/// The prefixes of one family in a real table: that of `testdata`, or the file that `MANYLANE_PREFIXES`
/// names; one a line, `.gz` or plain.
pub(super) fn real_prefixes<P: FromStr>() -> Vec<P> {
    let own = concat!(env!("CARGO_MANIFEST_DIR"), "/../../testdata/prefixes.txt.gz");
    let path = std::env::var_os("MANYLANE_PREFIXES").unwrap_or_else(|| own.into());
    let path = std::path::PathBuf::from(path);
    let text = if path.to_string_lossy().ends_with(".gz") {
        let unpacked = std::process::Command::new("gzip").arg("-dc").arg(&path).output();
        String::from_utf8(unpacked.expect("gzip runs").stdout).expect("prefixes are ASCII")
    } else {
        std::fs::read_to_string(&path).expect("the file can be read")
    };
    let prefixes: Vec<P> = text.lines().filter_map(|line| line.trim().parse().ok()).collect();
    assert!(prefixes.len() > 1000, "few prefixes in {}", path.display());
    prefixes
}
