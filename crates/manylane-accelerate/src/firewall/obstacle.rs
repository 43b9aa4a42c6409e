//! What keeps packets in the kernel, and what would free them.

use std::fmt;

use serde::Serialize;

/// What a rule does, or may do, that has to be done by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The rule drops the packet.
    Drop,
    /// The chain's policy drops what no rule accepts.
    Policy,
    /// The rule answers with an error.
    Reject,
    /// A program in user space decides.
    Queue,
    /// The rule logs.
    Log,
    /// The rule limits the rate.
    Limit,
    /// The rule counts down a quota.
    Quota,
    /// The rule counts connections.
    ConnectionLimit,
    /// The rule reads the packets and bytes of the connection, which conntrack counts only in the kernel.
    ConnectionBytes,
    /// The rule sends a copy.
    Duplicate,
    /// The rule sends the packet elsewhere.
    Redirect,
    /// The rule hands the packet to a local socket.
    Proxy,
    /// The rule keeps connection tracking away.
    Notrack,
    /// The rule draws numbers in turn.
    NumberGenerator,
    /// The rule changes a set.
    SetUpdate,
    /// The rule sets the mark, zone or another property of the connection.
    ConnectionChange,
    /// The rule sets the mark, priority or another property of the packet.
    PacketChange,
    /// The rule writes the packet.
    Rewrite,
    /// The rule writes the maximum segment size of TCP.
    SegmentSize,
    /// The rule offloads the connection to a flow table.
    FlowOffload,
    /// The rule counts packets, and counters have to be exact.
    Counter,
    /// The rule traces.
    Trace,
    /// The rule has an expression, match or target that manylane does not know.
    Unknown,
    /// The rules are too many or too deep to be judged.
    TooMany,
}

impl Cause {
    /// What the rule does, as the end of "this rule ...".
    pub fn what(&self) -> &'static str {
        match self {
            Cause::Drop => "drops such packets",
            Cause::Policy => "drops what no rule accepts (policy)",
            Cause::Reject => "rejects such packets",
            Cause::Queue => "asks a program in user space",
            Cause::Log => "logs such packets",
            Cause::Limit => "limits their rate",
            Cause::Quota => "counts down a quota",
            Cause::ConnectionLimit => "counts connections",
            Cause::ConnectionBytes => "reads counters that only the kernel's own packets move",
            Cause::Duplicate => "sends a copy of them",
            Cause::Redirect => "sends them elsewhere",
            Cause::Proxy => "hands them to a local socket",
            Cause::Notrack => "keeps connection tracking away from them",
            Cause::NumberGenerator => "draws numbers in turn",
            Cause::SetUpdate => "changes a set",
            Cause::ConnectionChange => "changes the connection (mark, zone, labels)",
            Cause::PacketChange => "changes the packet's mark, priority or another property",
            Cause::Rewrite => "writes the packet's bytes",
            Cause::SegmentSize => "writes the maximum segment size of TCP",
            Cause::FlowOffload => "hands the connection to the kernel's flow table",
            Cause::Counter => "counts them, and counters have to be exact",
            Cause::Trace => "traces them",
            Cause::Unknown => "has a part that manylane does not know",
            Cause::TooMany => "is one of too many, or too deep, to be judged",
        }
    }

    /// The smallest change that frees established connections and takes no protection away; `None` if no change does.
    pub(super) fn cure(&self) -> Option<&'static str> {
        match self {
            Cause::Log => Some(
                "to log first packets only, put `ct state new` in front of `log`; the rule's verdict, if it has one, \
                 stays in a rule of its own without that condition",
            ),
            Cause::SegmentSize => Some(
                "put `tcp flags & (syn|rst) == syn` in front: the maximum segment size is negotiated in SYN only",
            ),
            Cause::FlowOffload => Some("take `flow add` out of the rule: it filters nothing"),
            Cause::Counter => {
                Some("leave exact counters off: then counters stand still for these packets")
            }
            _ => None,
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.what())
    }
}

/// Where a rule stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Place {
    /// Whether the table is one of legacy iptables.
    pub is_legacy: bool,
    /// The family of the table: `inet`, `ip`, `ip6`, `netdev`.
    pub family: String,
    /// The table.
    pub table: String,
    /// The chain.
    pub chain: String,
    /// The rule's handle, by which `nft` names it, or its number in a legacy table; `None` for a policy.
    pub handle: Option<u64>,
    /// The rule's text, near to what `nft -a list ruleset` writes; empty for a policy.
    pub rule: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Place { family, table, chain, .. } = self;
        match self.is_legacy {
            true => write!(f, "legacy iptables, {family}, table {table}, chain {chain}")?,
            false => write!(f, "table {family} {table}, chain {chain}")?,
        }
        match self.handle {
            Some(handle) if self.is_legacy => write!(f, ", rule {handle}: `{}`", self.rule),
            Some(handle) => write!(f, ", handle {handle}: `{}`", self.rule),
            None => Ok(()),
        }
    }
}

/// A rule, or a policy, that keeps packets in the kernel.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Obstacle {
    /// Where it stands.
    #[serde(flatten)]
    pub place: Place,
    /// What it does.
    pub cause: Cause,
    /// The part of the rule that manylane does not know, where that is the cause, or where the rule depends on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unknown: Option<String>,
    /// The smallest change that frees established connections and takes no protection away.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cure: Option<String>,
}

impl fmt::Display for Obstacle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.place, self.cause)?;
        self.unknown.as_ref().map_or(Ok(()), |unknown| write!(f, " ({unknown})"))
    }
}

/// What has to be known of a yes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Provisos {
    /// Rules with counters that these packets may pass: the counters stand still for packets that another forwards.
    pub counters: Vec<Place>,
    /// Rules that drop what comes from the wrong port (strict reverse path): a forwarder has to check that.
    pub reverse_path: Vec<Place>,
}
