//! The least that a table with an entry for each flow costs: a program that redirects frames, and one that also adds one to
//! a word in the destination's own line of memory. Both run in the driver of the router without rules, in short turns.

use manylane_io::interface::Interface;
use manylane_lab::generator::Yardstick;
use manylane_lab::load::NOBODYS_MAC;

use super::{Bed, Connections};
use crate::network::PORTS;
use crate::prelude::*;
use crate::progress;
use crate::veth::Plan;
use crate::veth::pairs::{Pace, Pairs};
use crate::veth::place::FrameLap;

/// As many lines as the lane's table has entries by default: two for each connection.
const LINES: usize = 2 * 131_072;

impl Bed {
    /// What a frame costs more with the line of memory, round by round.
    pub(super) fn touches(
        &self,
        plan: &Plan,
        connections: &Connections,
        rounds: &mut Rounds,
    ) -> Result {
        self.plain.choose("kernel")??;
        let pace = Pace::of(plan, connections.count());
        let programs = [Yardstick::Touch(LINES), Yardstick::Floor];
        let name = connections.cost("flow_floor");
        for _ in progress::rounds("redirects", plan.flow_rounds()) {
            progress::tick();
            let pairs =
                Pairs::take(pace, |which| self.redirected(programs[which], connections, pace))?;
            let pairs = pairs.map_err(|cause| rounds.blame(cause)).ok();
            rounds.push(&name, "ns", pairs.map(|pairs| pairs.ns_more()));
        }
        self.plain.choose("driver")??;
        Ok(())
    }

    fn redirected(
        &self,
        program: Yardstick,
        connections: &Connections,
        pace: Pace,
    ) -> Result<Result<FrameLap, String>> {
        let Bed { plain, core, .. } = self;
        let link = plain.network.lab.router.run(move || {
            let [lan, wan] = PORTS.map(Interface::read);
            let (lan, wan) = (lan?, wan?);
            Ok::<_, Error>(program.attach(&lan, &wan, [NOBODYS_MAC, wan.mac])?)
        });
        let _link = link?;
        let generator = plain.network.lab.generate(&connections.flows, 1, *core)?;
        let lap = plain.lap(pace.slice, None, || plain.sunk())?;
        generator.stop()?;
        Ok(Ok(lap))
    }
}
