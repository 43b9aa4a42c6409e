//! Which fields of two routers' outputs differ.

use std::fmt;

use super::generate::Shot;
use super::plan::{self, Side};
use super::read::{self, Hex, InShort, Ip};
use super::twin::Outputs;

/// A packet and what left either router because of it.
pub struct Case<'a> {
    pub shot: &'a Shot,
    pub kernel: &'a Outputs,
    pub ours: &'a Outputs,
}

impl Case<'_> {
    /// All that differs: what was done, or else how many packets left, or else fields of them.
    pub fn differences(&self) -> Vec<Difference> {
        let (kernel, ours) = (self.kernel_did(), self.ours_did());
        if kernel != ours {
            return vec![Difference::Did { kernel, ours }];
        }
        let mut differences = Vec::new();
        for side in Side::ALL {
            let (kernel, ours) = (&self.kernel[side as usize], &self.ours[side as usize]);
            if kernel.len() != ours.len() {
                differences.push(Difference::Count {
                    side,
                    kernel: kernel.len(),
                    ours: ours.len(),
                });
                continue;
            }
            for (kernel, ours) in kernel.iter().zip(ours) {
                add_fields(side, kernel, ours, &mut differences);
            }
        }
        differences
    }

    /// The packet that was sent.
    pub fn ip(&self) -> Option<Ip> {
        Ip::of(&self.shot.frame)
    }

    /// What the kernel did with it.
    pub fn kernel_did(&self) -> Did {
        Did::with(&self.shot.frame, self.kernel)
    }

    /// What manylane did with it.
    pub fn ours_did(&self) -> Did {
        Did::with(&self.shot.frame, self.ours)
    }
}

/// What a router did with a packet, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Did {
    /// Nothing left it.
    Nothing,
    /// The router forwarded the packet, or its fragments.
    Passed,
    /// The router sent an ICMP message of this type and code.
    Said(u8, u8),
    /// The router sent something else.
    Answered,
}

impl Did {
    fn with(frame: &[u8], outputs: &Outputs) -> Did {
        let Some(first) = outputs.iter().flatten().next() else { return Did::Nothing };
        let ends = |frame| Ip::of(frame).map(|ip| (ip.source(), ip.destination()));
        if ends(frame).is_some() && ends(first) == ends(frame) {
            return Did::Passed;
        }
        match read::icmp(first) {
            Some((kind, code, _))
                if ends(first)
                    .is_some_and(|(from, _)| plan::is_routers(from) || plan::is_anycast(from)) =>
            {
                Did::Said(kind, code)
            }
            _ => Did::Answered,
        }
    }
}

/// Takes redirects out of what left a router; returns their number. The kernel sends them for
/// IPv6 once a second and has no setting for it; manylane sends none unless it is configured to.
pub fn without_redirects(outputs: &mut Outputs) -> usize {
    let count = |outputs: &Outputs| outputs.iter().flatten().count();
    let before = count(outputs);
    for frames in outputs.iter_mut() {
        frames.retain(|frame| {
            !matches!((Ip::of(frame), read::icmp(frame)), (Some(Ip::V6(_)), Some((137, ..))))
        });
    }
    before - count(outputs)
}

fn add_fields(side: Side, kernel: &[u8], ours: &[u8], differences: &mut Vec<Difference>) {
    let (kernel, ours) = (read::fields(kernel), read::fields(ours));
    if !kernel.iter().map(|field| field.0).eq(ours.iter().map(|field| field.0)) {
        let (kernel, ours) = (vec![kernel.len() as u8], vec![ours.len() as u8]);
        differences.push(Difference::Field { side, name: "number of fields", kernel, ours });
        return;
    }
    let pairs = kernel.into_iter().zip(ours).filter(|(kernel, ours)| kernel != ours);
    differences.extend(pairs.map(|((name, kernel), (_, ours))| Difference::Field {
        side,
        name,
        kernel,
        ours,
    }));
}

/// Something that differs.
#[derive(Debug)]
pub enum Difference {
    /// What either did with the packet.
    Did { kernel: Did, ours: Did },
    /// How many packets left by a link.
    Count { side: Side, kernel: usize, ours: usize },
    /// A field of a packet.
    Field { side: Side, name: &'static str, kernel: Vec<u8>, ours: Vec<u8> },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Did { kernel, ours } => {
                write!(f, "{kernel:?} by the kernel, {ours:?} by manylane")
            }
            Difference::Count { side, kernel, ours } => {
                write!(f, "by {} the kernel sends {kernel} packets, manylane {ours}", side.name())
            }
            Difference::Field { side, name, kernel, ours } => write!(
                f,
                "by {} the {name} is {} by the kernel, {} by manylane",
                side.name(),
                Hex(kernel),
                Hex(ours)
            ),
        }
    }
}

impl fmt::Display for Case<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shot { number, side, frame, tags, odd } = self.shot;
        writeln!(f, "  packet {number}, from {}, {odd:?}:", side.name())?;
        writeln!(f, "      {}", InShort(frame))?;
        writeln!(f, "      {} tags {}", Hex(&frame[..frame.len().min(120)]), Hex(tags))?;
        for (who, outputs) in [("kernel", self.kernel), ("manylane", self.ours)] {
            for side in Side::ALL {
                let frames = &outputs[side as usize];
                if !frames.is_empty() {
                    writeln!(f, "    {who}, by {}:{}", side.name(), read::list(frames))?;
                }
            }
        }
        Ok(())
    }
}
