//! How many connections a second the lane takes in: by the clock, which is the kernel's speed, since it forwards the first packets
//! of each, and by the time for which the lane's thread runs.
//!
//! | figure               | what it is                                                                 |
//! |----------------------|----------------------------------------------------------------------------|
//! | `admitted_per_s`     | 65,536 flows by the time from their first frame until the lane has them    |
//! | `admitted_per_cpu_s` | those flows by the time for which the lane's thread ran until then         |
//!
//! Ends of names: `_nat` for masquerade, `_v6`. Each round settles its connections anew.

use super::*;

/// All rows.
pub fn measure(plan: &Plan, cores: [usize; 2], rounds: &mut Rounds) -> Result {
    needs(&["nft", "conntrack"])?;
    let mut place = Place::new(Network::accelerated(1, &[], Options::new(PORTS))?)?;
    for _ in progress::rounds("admits flows", plan.flow_rounds()) {
        for (family, source, flows) in families(plan, &[]) {
            for rules in [Rules::Firewall, Rules::Masquerade] {
                let end = if rules == Rules::Masquerade { "_nat" } else { "" };
                let ends = Ends { rules: end.into(), count: "", rest: family.into() };
                let connections = Connections::new(source, rules, flows.clone(), ends);
                let times = admit(&mut place, &connections, cores[0])?;
                let times = times.map(|times| [times.took, times.ran]);
                for (at, name) in ["admitted_per_s", "admitted_per_cpu_s"].into_iter().enumerate() {
                    let per_s =
                        times.map(|times| connections.count() as f64 / times[at].as_secs_f64());
                    let per_s = per_s.ok_or("the lane does not take all flows".to_owned());
                    let per_s = per_s.map_err(|cause| rounds.blame(cause)).ok();
                    rounds.push(&connections.name(name), "1/s", per_s);
                }
            }
        }
    }
    place.network.close()
}

/// Settles these connections, has the lane take them in, and takes them away.
fn admit(place: &mut Place, connections: &Connections, core: usize) -> Result<Option<Admitted>> {
    progress::tick();
    place.end_in(PLAIN)?;
    place.choose("kernel")??;
    let Lab { client, router, server } = &place.network.lab;
    connections.rules.load(router, PORTS)?;
    connections.datagrams.establish(client, (router, PORTS), server)?;
    place.end_in(XDP)?;
    place.choose("driver")??;
    let generator = place.network.lab.generate(&connections.flows, 1, core)?;
    let admitted = admitted(place, "driver", connections.count())?;
    generator.stop()?;
    place.choose("kernel")??;
    stateful::unload(&place.network.lab.router)?;
    Ok(admitted)
}
