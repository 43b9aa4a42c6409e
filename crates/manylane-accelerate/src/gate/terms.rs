//! On which terms the gate judges, and what it says of the namespace as a whole.

use manylane_io::netlink::kernel::Family;
use serde::Serialize;

use super::reason::{Bypass, Standing};

/// On which terms the gate judges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Terms {
    /// What is overridden.
    pub bypass: Bypass,
    /// Rules that all packets of a family meet keep no port in the kernel: they make the family [`Stateful`].
    pub stateful: bool,
}

impl From<Bypass> for Terms {
    /// Without a forwarder of connections.
    fn from(bypass: Bypass) -> Terms {
        Terms { bypass, stateful: false }
    }
}

/// The families whose packets meet rules, a translation or connection tracking, whatever the port: such a packet may
/// be forwarded only as part of a connection that conntrack knows and that the rules accept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Stateful {
    /// IPv4.
    pub v4: bool,
    /// IPv6.
    pub v6: bool,
}

impl Stateful {
    /// Both.
    pub(super) const BOTH: Stateful = Stateful { v4: true, v6: true };

    /// One.
    pub(super) fn only(is_v6: bool) -> Stateful {
        Stateful { v4: !is_v6, v6: is_v6 }
    }

    /// Whether packets of this family are meant.
    pub fn has(self, family: Family) -> bool {
        match family {
            Family::V4 => self.v4,
            Family::V6 => self.v6,
        }
    }

    /// Whether those of any family are.
    pub fn any(self) -> bool {
        self.v4 || self.v6
    }

    pub(super) fn or(self, other: Stateful) -> Stateful {
        Stateful { v4: self.v4 || other.v4, v6: self.v6 || other.v6 }
    }

    /// Those of `self` that `other` does not have.
    pub(super) fn without(self, other: Stateful) -> Stateful {
        Stateful { v4: self.v4 && !other.v4, v6: self.v6 && !other.v6 }
    }
}

/// What the gate says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    /// Of each interface that is there, in the order of the question.
    pub standings: Vec<Standing>,
    /// Of the namespace. None, unless [`Terms::stateful`] allows it: rules are reasons of each interface then.
    pub stateful: Stateful,
}
