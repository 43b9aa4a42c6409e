//! Why a connection stays in the kernel, and what the lane has counted.

/// Why a connection, or a direction of it, stays in the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Refusal {
    /// Conntrack has no such connection: it follows none of these packets, or the connection has ended.
    Unknown,
    /// Conntrack has not seen both directions long enough: a TCP connection that is not established, a UDP flow that is not
    /// assured.
    Unsettled,
    /// A helper reads its packets, or a sequence adjustment or a SYN proxy rewrites them.
    Helped,
    /// The kernel's own flow table forwards it, or a device does.
    Offloaded,
    /// The connection is in a zone of conntrack.
    Zone,
    /// Its translation is none that the lane does.
    Translation,
    /// Its packets leave by no port that manylane forwards to, or by the one that received them.
    Route,
    /// A rule does more to its packets than to accept them.
    Rules,
    /// Its translated source is not an address of the interface that it leaves by.
    Masquerade,
    /// The kernel does not announce its end, and as many such connections are watched as can be.
    Unannounced,
    /// The table is full.
    Full,
    /// Its packets arrive by a port to which the route of their source does not lead, and that port checks the way back.
    ReversePath,
}

impl Refusal {
    /// All of them.
    pub const ALL: [Refusal; 12] = [
        Refusal::Unknown,
        Refusal::Unsettled,
        Refusal::Helped,
        Refusal::Offloaded,
        Refusal::Zone,
        Refusal::Translation,
        Refusal::Route,
        Refusal::Rules,
        Refusal::Masquerade,
        Refusal::Unannounced,
        Refusal::Full,
        Refusal::ReversePath,
    ];

    /// As the API spells it.
    pub fn name(self) -> &'static str {
        match self {
            Refusal::Unknown => "unknown",
            Refusal::Unsettled => "unsettled",
            Refusal::Helped => "helped",
            Refusal::Offloaded => "offloaded",
            Refusal::Zone => "zone",
            Refusal::Translation => "translation",
            Refusal::Route => "route",
            Refusal::Rules => "rules",
            Refusal::Masquerade => "masquerade",
            Refusal::Unannounced => "unannounced",
            Refusal::Full => "full",
            Refusal::ReversePath => "reverse_path",
        }
    }

    /// For the operator.
    pub fn meaning(self) -> &'static str {
        match self {
            Refusal::Unknown => "conntrack has no such connection",
            Refusal::Unsettled => {
                "conntrack has not seen enough of it: TCP has to be established, UDP answered for some seconds"
            }
            Refusal::Helped => {
                "a helper, a sequence adjustment or a SYN proxy of the kernel looks at its packets"
            }
            Refusal::Offloaded => "a flow table of the kernel forwards it",
            Refusal::Zone => "it is in a zone of conntrack",
            Refusal::Translation => "its translation is none that manylane does",
            Refusal::Route => {
                "its packets leave by no interface that manylane forwards to, or by the one that received them"
            }
            Refusal::Rules => "a rule does more to its packets than to accept them",
            Refusal::Masquerade => {
                "its packets leave by an interface that does not have the address they are translated to"
            }
            Refusal::Unannounced => {
                "it began before manylane listened, so the kernel does not announce its end, and many such connections are \
                 watched already"
            }
            Refusal::Full => "the flow table is full; `--flows` gives it more room",
            Refusal::ReversePath => {
                "its packets arrive by an interface to which the route of their source does not lead, and that interface, or a \
                 rule, checks this"
            }
        }
    }
}

/// What the lane has counted since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Candidates that programs have found.
    pub candidates: u64,
    /// Connections that have been entered.
    pub admitted: u64,
    /// Candidates that were refused, by the place in [`Refusal::ALL`].
    pub refused: [u64; Refusal::ALL.len()],
    /// Entries that were taken out, by the place in [`Removal::ALL`].
    pub removed: [u64; Removal::ALL.len()],
    /// Timeouts of conntrack that were set anew.
    pub renewed: u64,
    /// Connections that were made liberal again, since the kernel had seen packets of them.
    pub relaxed: u64,
    /// Times that all entries were compared with conntrack, since notifications were lost.
    pub resyncs: u64,
    /// Times that all entries were reviewed.
    pub reviews: u64,
    /// Directions that were approved for another port, since their packets arrive by that one.
    pub moved: u64,
}

impl Counts {
    /// A candidate stays in the kernel.
    pub fn refuse(&mut self, why: Refusal) {
        self.refused[why as usize] += 1;
    }
}

/// Why an entry was taken out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Removal {
    /// Conntrack's connection has ended, or is another one.
    Ended,
    /// A packet opened, closed or reset the connection.
    Closing,
    /// The connection was not used for as long as it lives.
    Idle,
    /// Neither direction may be forwarded any longer.
    Refused,
    /// No packet is forwarded by connection any longer.
    Unneeded,
}

impl Removal {
    /// All of them.
    pub const ALL: [Removal; 5] =
        [Removal::Ended, Removal::Closing, Removal::Idle, Removal::Refused, Removal::Unneeded];

    /// As the API spells it.
    pub fn name(self) -> &'static str {
        match self {
            Removal::Ended => "ended",
            Removal::Closing => "closing",
            Removal::Idle => "idle",
            Removal::Refused => "refused",
            Removal::Unneeded => "unneeded",
        }
    }

    /// For the operator.
    pub fn meaning(self) -> &'static str {
        match self {
            Removal::Ended => "conntrack's connection has ended, or is another one",
            Removal::Closing => "a packet opens, closes or resets the connection",
            Removal::Idle => "the connection was not used for as long as it lives",
            Removal::Refused => "rules, routes or interfaces let neither direction be forwarded",
            Removal::Unneeded => "no rule filters by connection or translates any longer",
        }
    }
}
