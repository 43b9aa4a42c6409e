//! The file that a peer reads its table from; `bench/peers/table.h` reads what [`write()`] writes.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;

use crate::prelude::*;
use crate::router::NEXT_HOPS;

/// Lets `load` read a file with the routes and what `rest` writes behind them. The file is removed again.
pub fn with_file<T>(
    prefixes: &Prefixes,
    targets: usize,
    rest: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
    load: impl FnOnce(&Path) -> Result<T>,
) -> Result<T> {
    let path = std::env::temp_dir().join(format!("manylane-bench-{}.table", std::process::id()));
    let written = File::create(&path).and_then(|file| {
        let mut to = BufWriter::new(file);
        write(&mut to, prefixes, targets)?;
        rest(&mut to)?;
        to.flush()
    });
    let loaded = match written {
        Ok(()) => load(&path),
        Err(error) => Err(format!("{}: {error}", path.display()).into()),
    };
    let _ = fs::remove_file(&path); // Whether it was written or not, nothing reads it now.
    loaded
}

/// Writes the routes, with the next hops that [`Ground::with_table`](crate::router::Ground::with_table) and `fib` draw.
fn write(to: &mut impl Write, prefixes: &Prefixes, targets: usize) -> io::Result<()> {
    to.write_all(b"MLPEER02")?;
    for count in [prefixes.ipv4.len(), prefixes.ipv6.len(), targets] {
        to.write_all(&(count as u32).to_ne_bytes())?;
    }
    let (mut one, mut other) = (Random(7), Random(7));
    for prefix in &prefixes.ipv4 {
        to.write_all(&prefix.addr().to_bits().to_ne_bytes())?;
        route_end(to, prefix.len(), &mut one)?;
    }
    for prefix in &prefixes.ipv6 {
        to.write_all(&prefix.addr().octets())?;
        route_end(to, prefix.len(), &mut other)?;
    }
    Ok(())
}

/// The length of a prefix, and its next hop.
fn route_end(to: &mut impl Write, len: u8, random: &mut Random) -> io::Result<()> {
    to.write_all(&u32::from(len).to_ne_bytes())?;
    let hop = 1 + random.below(NEXT_HOPS as usize) as u32;
    to.write_all(&hop.to_ne_bytes())
}
