//! Interfaces that the operator adds while the accelerator runs.

use manylane_api::ApiError;
use manylane_net::transit::layout::PORTS;

use super::Thread;

impl Thread {
    /// Accelerates one more interface, as if it had been named at the start. The error is for the operator.
    pub fn add_port(&mut self, name: &str) -> Result<(), ApiError> {
        let refused = |error: String, help: &str| ApiError { error, help: help.into() };
        // The kernel may have notified us of the interface, and the message may not have been read.
        self.step().map_err(|error| refused(error.to_string(), "try again"))?;
        if self.ports.list.iter().any(|port| port.name == name) {
            let error = format!("{name} is one of the accelerator's interfaces already");
            return Err(refused(error, "`manylane show ports` lists them"));
        }
        let len = self.ports.list.len();
        if len + 1 >= PORTS {
            let error = format!("the tables hold {len} interfaces, and all places are in use");
            return Err(refused(
                error,
                "restart `manylane accelerate` with the interfaces that matter",
            ));
        }
        let Some(link) = self.mirror.kernel().link_named(name) else {
            let names: Vec<_> =
                self.mirror.kernel().links().map(|link| link.name.as_str()).collect();
            let help = format!("existing interfaces: {}", names.join(", "));
            return Err(refused(format!("interface {name} does not exist"), &help));
        };
        if link.flags & libc::IFF_LOOPBACK as u32 != 0 {
            let error =
                format!("{name} is the loopback: what this host sends to itself is not routed");
            return Err(refused(error, "name an interface that packets are routed by"));
        }
        let index = link.index;
        let options = &self.published.options;
        let added = self.ports.add(name, options.tier_of(name), index);
        added.map_err(|error| {
            refused(error.to_string(), "`manylane show ports` lists the interfaces of each daemon")
        })?;
        self.published.count_from_now(index);
        self.tiers.add_interface(name);
        self.write_ports();
        // Before the API shows the port.
        self.judge();
        self.attach_all();
        self.update_tiers();
        self.publish();
        Ok(())
    }
}
