//! [`Scores`]: what was measured in each phase, drawn as bars, and what it comes to in words.

use std::time::Duration;

use super::bar::bar;
use super::beside::Arrived;
use crate::terminal::table::{bits_per_second, count};

/// Which forwarder the small packets meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    Kernel,
    Ingress,
    Driver,
    After,
}

impl Phase {
    pub(super) const ALL: [Phase; 4] = [Phase::Kernel, Phase::Ingress, Phase::Driver, Phase::After];

    /// In at most 17 columns.
    pub(super) fn name(self) -> &'static str {
        match self {
            Phase::Kernel => "the kernel",
            Phase::Ingress => "manylane, ingress",
            Phase::Driver => "manylane, driver",
            Phase::After => "the kernel again",
        }
    }

    fn is_ours(self) -> bool {
        matches!(self, Phase::Ingress | Phase::Driver)
    }
}

/// Which IP version the small packets have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Version {
    V4,
    V6,
}

impl Version {
    pub(super) fn name(self) -> &'static str {
        ["IPv4", "IPv6"][self as usize]
    }
}

/// What was measured until now.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Scores {
    phases: [Option<Score>; Phase::ALL.len()],
}

/// One phase.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Score {
    /// Small packets a second, of IPv4 and of IPv6.
    packets: [Option<f64>; 2],
    /// What passed beside them: the mean of the parts of this phase.
    beside: Option<Arrived>,
    parts: u32,
}

impl Scores {
    /// What is measured in a phase, as it is now.
    pub(super) fn set(&mut self, phase: Phase, version: Version, packets: f64) {
        let score = self.phases[phase as usize].get_or_insert_default();
        score.packets[version as usize] = Some(packets);
    }

    /// A part of a phase is over, and this has passed beside the small packets.
    pub(super) fn beside(&mut self, phase: Phase, arrived: Arrived) {
        let score = self.phases[phase as usize].get_or_insert_default();
        let parts = f64::from(score.parts);
        let mean = |old: f64, new: f64| (old * parts + new) / (parts + 1.0);
        let before = score.beside.unwrap_or(arrived);
        let tcp = [0, 1].map(|at| mean(before.tcp[at], arrived.tcp[at]));
        let ping = [0, 1].map(|at| match (before.ping[at], arrived.ping[at]) {
            (Some(old), Some(new)) => {
                Some(Duration::from_secs_f64(mean(old.as_secs_f64(), new.as_secs_f64())))
            }
            (old, new) => new.or(old),
        });
        score.beside = Some(Arrived { tcp, ping });
        score.parts += 1;
    }

    /// How many times as many packets as the kernel, if both were measured.
    pub(super) fn gain(&self, phase: Phase, version: Version) -> Option<f64> {
        let packets = |phase: Phase| self.phases[phase as usize]?.packets[version as usize];
        let kernel = packets(Phase::Kernel).filter(|kernel| *kernel > 0.0)?;
        Some(packets(phase)? / kernel)
    }

    /// How many times as many bits by TCP as in the kernel's phase, both versions together.
    fn tcp_gain(&self, phase: Phase) -> Option<f64> {
        let tcp = |phase: Phase| Some(self.phases[phase as usize]?.beside?.tcp.iter().sum::<f64>());
        let kernel = tcp(Phase::Kernel).filter(|kernel| *kernel > 0.0)?;
        Some(tcp(phase)? / kernel)
    }

    /// Bars for all phases.
    pub(super) fn draw(&self, has_colours: bool) -> String {
        let mut text = format!("{:<24}{:<36}{:>12}  {}\n", "Small packets", "", "a second", "gain");
        let full = self.full();
        for phase in Phase::ALL {
            let score = self.phases[phase as usize].unwrap_or_default();
            for (version, name) in [(Version::V4, phase.name()), (Version::V6, "")] {
                let packets = score.packets[version as usize];
                let part = packets.unwrap_or(0.0) / full;
                let bar = bar(part, BAR_WIDTH);
                let space = " ".repeat(BAR_WIDTH - bar.chars().count());
                let bar = if has_colours { painted(phase, &bar) } else { bar } + &space;
                let shown = packets.map_or(String::new(), |packets| count(packets as u64));
                let gain = self.gain(phase, version).filter(|_| phase != Phase::Kernel);
                // In 80 columns, whatever the kernel did on a busy machine.
                let digits = |gain: f64| if gain < 99.95 { 1 } else { 0 };
                let gain = gain.map_or(String::new(), |gain| format!("x {gain:.*}", digits(gain)));
                let line = format!("{name:<18}{}  {bar}{shown:>12}  {gain}", version.name());
                text += line.trim_end();
                text.push('\n');
            }
        }
        text + "\n" + &self.draw_beside()
    }

    fn draw_beside(&self) -> String {
        let mut text = format!(
            "{:<24}{:>12}{:>14}{:>15}{:>11}\n",
            "On two other ports", "TCP, IPv4", "IPv6", "ping, IPv4", "IPv6"
        );
        for phase in Phase::ALL {
            let Some(Arrived { tcp, ping }) = self.phases[phase as usize].and_then(|it| it.beside)
            else {
                continue;
            };
            let [tcp_v4, tcp_v6] = tcp.map(|bits| bits_per_second(bits as u64));
            let [v4, v6] = ping.map(|time| time.map_or("-".into(), microseconds));
            text += &format!("{:<22}{tcp_v4:>14}{tcp_v6:>14}{v4:>15}{v6:>11}\n", phase.name());
        }
        text
    }

    /// What a whole bar stands for: five times what the kernel does, for room to grow, or more.
    fn full(&self) -> f64 {
        let all = self.phases.iter().flatten().flat_map(|score| score.packets).flatten();
        let kernel = self.phases[Phase::Kernel as usize];
        let kernel = kernel.into_iter().flat_map(|score| score.packets).flatten();
        let largest = all.fold(1.0, f64::max);
        largest.max(5.0 * kernel.fold(0.0, f64::max))
    }

    /// The result in words. `place` says what else each figure includes.
    pub(super) fn verdict(&self, place: &str) -> String {
        let mut text = String::new();
        for (phase, at) in [(Phase::Driver, "In the driver,"), (Phase::Ingress, "At ingress,")] {
            let gains = [Version::V4, Version::V6].map(|version| self.gain(phase, version));
            let [Some(v4), Some(v6)] = gains else { continue };
            let times = format!("{v4:.1} (IPv4) and {v6:.1} (IPv6) times");
            text += &match v4.min(v6) >= GAIN {
                true => format!(
                    "{at} manylane forwards {times} as many\nsmall packets as the kernel.\n"
                ),
                false => format!(
                    "{at} this machine gains little or nothing: {times}\nthe kernel's small packets.\n"
                ),
            };
        }
        text += place;
        if let Some(gain) = self.tcp_gain(Phase::Ingress) {
            text += &match gain >= SAME {
                true => format!(
                    "TCP over the other ports, at ingress: {gain:.2} times the kernel's rate.\n"
                ),
                false => format!(
                    "TCP over the other ports, at ingress, was slower: {gain:.2} times the kernel's\nrate. An idle \
                     machine shows whether that was chance.\n"
                ),
            };
        }
        text
    }
}

fn painted(phase: Phase, bar: &str) -> String {
    if bar.is_empty() {
        return String::new();
    }
    let colour = if phase.is_ours() { 32 } else { 34 };
    format!("\x1b[{colour}m{bar}\x1b[0m")
}

/// `85 µs`
pub(super) fn microseconds(time: Duration) -> String {
    format!("{} µs", count(time.as_micros() as u64))
}

const BAR_WIDTH: usize = 36;
/// Less is noise.
const GAIN: f64 = 1.05;
const SAME: f64 = 0.95;

#[cfg(test)]
mod tests {
    use super::*;

    fn scores() -> Scores {
        let mut scores = Scores::default();
        scores.set(Phase::Kernel, Version::V4, 500_000.0);
        scores.set(Phase::Kernel, Version::V6, 400_000.0);
        scores.set(Phase::Driver, Version::V4, 2_250_000.0);
        let arrived =
            |tcp| Arrived { tcp: [tcp; 2], ping: [Some(Duration::from_micros(90)), None] };
        scores.beside(Phase::Kernel, arrived(3e9));
        scores.beside(Phase::Kernel, arrived(5e9));
        scores.beside(Phase::Ingress, arrived(2e9));
        scores
    }

    #[test]
    fn bars_have_room_to_grow_and_fit_a_terminal() {
        let shown = scores().draw(false);
        let line = |number: usize| shown.lines().nth(number).expect("it is a line");
        assert!(line(1).starts_with("the kernel        IPv4  ███████▎   "), "{shown}");
        assert!(line(1).ends_with(" 500,000"), "{shown}");
        assert!(line(5).ends_with("2,250,000  x 4.5"), "{shown}");
        assert_eq!(line(6), "                  IPv6", "{shown}");
        assert!(shown.contains("4.00 Gbit/s"), "the mean of both parts: {shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
        assert!(shown.lines().count() <= 20, "{shown}");
        // A kernel that had hardly a slice of the processor.
        let mut starved = scores();
        starved.set(Phase::Kernel, Version::V6, 1_390.0);
        starved.set(Phase::Driver, Version::V6, 2_559_144.0);
        let shown = starved.draw(false);
        assert!(shown.contains("2,559,144  x 1841"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() <= 80), "{shown}");
    }

    #[test]
    fn no_gain_is_said_plainly() {
        let mut scores = scores();
        scores.set(Phase::Driver, Version::V6, 1_600_000.0);
        scores.set(Phase::Ingress, Version::V4, 500_000.0);
        scores.set(Phase::Ingress, Version::V6, 700_000.0);
        let said = scores.verdict("Because.\n");
        assert!(
            said.contains("In the driver, manylane forwards 4.5 (IPv4) and 4.0 (IPv6) times"),
            "{said}"
        );
        assert!(
            said.contains("At ingress, this machine gains little or nothing: 1.0 (IPv4)"),
            "{said}"
        );
        assert!(
            said.contains("Because.\nTCP over the other ports, at ingress, was slower: 0.50"),
            "{said}"
        );
    }

    #[test]
    fn colours_are_around_bars_only() {
        assert_eq!(painted(Phase::Driver, "█"), "\x1b[32m█\x1b[0m");
        assert!(!scores().draw(false).contains('\x1b'));
    }
}
