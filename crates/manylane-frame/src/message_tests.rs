//! All messages of this crate.

use std::io;

use crate::region::RegionError;

#[test]
fn regions() {
    messages!(RegionError {
        FrameSize: [(FrameSize(1000), ["frame size 1000"], "take 2048 or 4096")],
        Frames: [(Frames(0), ["0 frames"], "take 1 to 16777216")],
        TooManyRegions: [(TooManyRegions, ["127 frame regions"], "drop one")],
        Memory: [(
            Memory { bytes: 64 << 20, source: io::ErrorKind::OutOfMemory.into() },
            ["64 MiB", "out of memory"],
            "take fewer frames"
        )],
    });
}
