//! `[port.fault]`: faults on purpose, each direction by itself.

use manylane_io::port::fault::FaultConfig;
use serde_spanned::Spanned;

use super::error::Problem;
use super::section::Section;

/// The faults of a port.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Faults {
    /// Of what is received.
    pub receive: Option<FaultConfig>,
    /// Of what is transmitted.
    pub transmit: Option<FaultConfig>,
}

/// Reads `[port.fault]`, if it is there.
pub(super) fn faults(section: &Section<'_>) -> Result<Faults, Problem> {
    let section = section.table("fault", "[port.fault]")?;
    if section.is_present()
        && ["receive", "transmit"].iter().all(|key| section.key_span(key).is_none())
    {
        let help =
            "add [port.fault.receive] or [port.fault.transmit], with `drop = 0.01` for example";
        return Err(section.missing("receive", help));
    }
    Ok(Faults {
        receive: direction(section.table("receive", "[port.fault.receive]")?)?,
        transmit: direction(section.table("transmit", "[port.fault.transmit]")?)?,
    })
}

fn direction(section: Section<'_>) -> Result<Option<FaultConfig>, Problem> {
    if !section.is_present() {
        return Ok(None);
    }
    let FaultConfig { seed, delay_ns, reorder_packets, reorder_ns, frames_max, .. } =
        FaultConfig::default();
    let probability = |key| {
        let found = section.fraction(key, 0.0..=1.0)?;
        Ok(found.map_or(0.0, Spanned::into_inner))
    };
    let [drop, duplicate, corrupt] =
        [probability("drop")?, probability("duplicate")?, probability("corrupt")?];
    let [delay, reorder] = [probability("delay")?, probability("reorder")?];
    let late = section.numbers::<u64>("delay_us", 1..=LATE_MAX_US)?;
    let delay_ns = match &late {
        None => delay_ns,
        Some(late) => {
            let us: Vec<u64> = late.get_ref().iter().map(|us| *us.get_ref()).collect();
            match us[..] {
                [us] => us * 1000..=us * 1000,
                [shortest, longest] if shortest <= longest => shortest * 1000..=longest * 1000,
                _ => {
                    return Err(Problem::new(
                        late.span(),
                        format!("`delay_us` in {} is no range", section.name()),
                        "one delay, or the shortest and the longest",
                        "write for example `delay_us = [1000, 5000]`",
                    ));
                }
            }
        }
    };
    let passed_by = section.number("reorder_packets", 1..=65_536)?;
    let at_latest = section.number::<u64>("reorder_us", 1..=LATE_MAX_US)?;
    let held = section.number("frames_max", 64..=65_536)?;
    let config = FaultConfig {
        seed: section.number("seed", 0..=u64::MAX)?.map_or(seed, Spanned::into_inner),
        drop,
        duplicate,
        corrupt,
        delay,
        delay_ns,
        reorder,
        reorder_packets: passed_by.map_or(reorder_packets, Spanned::into_inner),
        reorder_ns: at_latest.map_or(reorder_ns, |us| us.into_inner() * 1000),
        frames_max: held.map_or(frames_max, Spanned::into_inner),
    };
    debug_assert_eq!(config.check(), Ok(()), "each key was checked");
    Ok(Some(config))
}

/// A minute: later than any transport waits.
const LATE_MAX_US: u64 = 60_000_000;
