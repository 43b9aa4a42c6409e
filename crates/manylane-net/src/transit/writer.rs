//! The one writer of the tables: the mirror thread.

use std::net::IpAddr;

use manylane_sync::rcu::{Domain, Slots};
use manylane_sync::words::{Words, WordsMut};

use super::flows::{FlowsMut, FlowsReader, Required};
use super::layout::{
    self, BUCKETS, CONTROL, FURTHER, INTERFACES, NEXT_HOPS, PORT_WORDS, PORTS, RECORD_WORDS,
    RECORDS, RULE_LISTS, RULE_WORDS, RULES, SLOTS, TABLES, UNKNOWN, VLAN_PORTS, VLANS, control,
    port, record,
};
use super::lease::LeaseMut;
use super::own::{OwnMut, is_own};
use super::policy::PolicyMut;
use super::{Memory, Rule, TableNumber, Transit};
use crate::fib::{
    EditError, IpPrefix, Ipv4Prefix, Ipv4Tables, Ipv4Writer, Ipv6Prefix, Ipv6Tables, Ipv6Writer,
    Limits, NextHopId, PackedMut,
};
use crate::nexthop::{GroupId, GroupsFull, Member, NextHop, NextHopsMut};
use crate::wire::ethernet::Mac;

/// How to send to a neighbour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Adjacency {
    /// The index of the interface that packets leave by.
    pub egress_ifindex: u32,
    /// The port that this is.
    pub egress_port: u16,
    /// The largest IP packet, in bytes: the smaller of the interface's and the route's MTU.
    pub mtu: u32,
    /// The neighbour's MAC address.
    pub destination: Mac,
    /// Ours there.
    pub source: Mac,
}

impl Adjacency {
    /// What the words of a record say.
    pub(super) fn of(words: &[u32; RECORD_WORDS]) -> Adjacency {
        let [destination, source] = macs(std::array::from_fn(|at| words[record::ADDRESSES + at]));
        Adjacency {
            egress_ifindex: words[record::EGRESS_INTERFACE],
            egress_port: words[record::EGRESS_PORT] as u16,
            mtu: words[record::MTU],
            destination,
            source,
        }
    }
}

/// What a port is, and what may be done there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PortRecord {
    /// [`layout::flags`].
    pub flags: u32,
    /// The index of its interface.
    pub ifindex: u32,
    /// Our MAC address there.
    pub mac: Mac,
}

/// What may be done about groups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Multipath {
    /// IPv4 groups may be decided by the program.
    pub ipv4: bool,
    /// IPv6 groups may be decided by the program.
    pub ipv6: bool,
    /// IPv4's flows are distinguished by ports too, not by addresses only.
    pub ipv4_ports: bool,
    /// IPv6's flows are distinguished by ports too.
    pub ipv6_ports: bool,
}

impl Multipath {
    fn bits(self) -> u64 {
        let bit = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
        bit(self.ipv4, control::MULTIPATH_V4)
            | bit(self.ipv6, control::MULTIPATH_V6)
            | bit(self.ipv4_ports, control::PORTS_V4)
            | bit(self.ipv6_ports, control::PORTS_V6)
    }
}

/// Writes the tables while programs and workers read them.
///
/// Nothing waits. What a reader may still look at, memory of the FIB, a group, a next-hop id, a slot, a
/// record, is used again after a grace period of the domain. Until then a call that is short of it says
/// [`EditError::Busy`], or `None`, and has changed nothing: after [`TransitMut::reclaim`] it can be
/// repeated.
///
/// | what goes     | first make sure that                                                               |
/// |---------------|------------------------------------------------------------------------------------|
/// | next-hop id   | no route has it                                                                    |
/// | group         | no next hop leads to it                                                            |
/// | slot          | no next hop leads to it, and no group has it as a member                           |
/// | further table | no rule leads to it                                                                |
///
/// # Invariants
///
/// 1. A record's number is in use exactly while `record_of` names it for one slot.
/// 2. A record is written while its number is in use and `record_of` does not name it yet, and never else.
pub struct TransitMut {
    ipv4: Ipv4Writer<PackedMut>,
    ipv6: Ipv6Writer,
    own: OwnMut,
    next_hops: NextHopsMut,
    record_of: WordsMut<u32>,
    records: WordsMut<u32>,
    ports: WordsMut<u32>,
    port_of: WordsMut<u16>,
    vlan_port: WordsMut<u16>,
    control: WordsMut<u64>,
    /// All of `control`, with the lease's words.
    control_reader: Words<u64>,
    /// Until a caller takes it.
    lease: Option<LeaseMut>,
    /// What the writer of flows is made of, until a caller takes it.
    flows: Option<[WordsMut<u64>; 3]>,
    flows_reader: FlowsReader,
    domain: Domain,
    policy: PolicyMut,
    ids: Slots,
    slots: Slots,
    record_numbers: Slots,
    /// The stamp of the record written last.
    stamp: u32,
}

/// The record of a slot that has none.
const NO_RECORD: u32 = 0;

impl TransitMut {
    /// The writer of `memory`, whose readers all are members of `domain`, or stood for by one.
    ///
    /// # Panics
    ///
    /// When a table has not the size that [`layout`] gives it, or `limits` leave no room for an edit.
    pub fn new(memory: Memory, domain: Domain, limits: &Limits) -> TransitMut {
        let Memory { direct4, chunks4, blocks4, groups4, ranges4, .. } = memory;
        let direct = PackedMut::new(direct4, chunks4, &domain, limits.waiting_max);
        let ipv4 = Ipv4Tables { direct, blocks: blocks4, groups: groups4, ranges: ranges4 };
        let Memory { direct6, index6, leaves6, .. } = memory;
        let ipv6 = Ipv6Tables { direct: direct6, index: index6, leaves: leaves6 };
        let Memory { own4, next_hops, buckets, record_of, records, .. } = memory;
        let Memory { ports, port_of, vlan_port, mut control, rules, roots, further, .. } = memory;
        let Memory { flow_index, flow_entries, flow_addresses, .. } = memory;
        let flows = [flow_index, flow_entries, flow_addresses];
        for (table, words, wanted) in [
            ("next_hops", next_hops.len(), NEXT_HOPS),
            ("buckets", buckets.len(), BUCKETS),
            ("record_of", record_of.len(), SLOTS),
            ("records", records.len(), RECORDS * RECORD_WORDS),
            ("ports", ports.len(), PORTS * PORT_WORDS),
            ("port_of", port_of.len(), INTERFACES),
            ("vlan_port", vlan_port.len(), VLAN_PORTS),
            ("control", control.len(), CONTROL),
            ("rules", rules.len(), RULE_LISTS * RULES * RULE_WORDS),
            ("roots", roots.len(), TABLES),
            ("further", further.len(), FURTHER),
        ] {
            assert_eq!(words, wanted, "words of `{table}`");
        }
        // Number 0 has no owner, of ids and of records; nor has the last id, which is the kernel's.
        let numbers = |count: usize| Slots::new(count as u32, domain.clone(), None);
        let (mut ids, mut record_numbers) = (numbers(UNKNOWN.into()), numbers(RECORDS));
        assert_eq!([ids.take(), record_numbers.take()], [Some(0); 2]);
        let mut next_hops = NextHopsMut::with_groups(next_hops, buckets, domain.clone(), 0);
        next_hops.set(NextHopId::new(UNKNOWN).expect("not 0"), NextHop::Kernel);
        TransitMut {
            ipv4: Ipv4Writer::new(ipv4, &domain, *limits),
            ipv6: Ipv6Writer::new(ipv6, &domain, *limits),
            own: OwnMut::new(own4, NEXT_HOPS),
            next_hops,
            record_of,
            records,
            ports,
            port_of,
            vlan_port,
            control_reader: control.reader(),
            lease: Some(LeaseMut::split_off(&mut control)),
            control,
            flows_reader: FlowsReader::of(&flows),
            flows: Some(flows),
            domain: domain.clone(),
            policy: PolicyMut::new(rules, roots, further, &domain),
            ids,
            slots: numbers(SLOTS),
            record_numbers,
            stamp: 0,
        }
    }

    /// Adds a route, or gives it another next hop. Returns the one it had.
    pub fn insert(
        &mut self,
        prefix: IpPrefix,
        id: NextHopId,
    ) -> Result<Option<NextHopId>, EditError> {
        match prefix {
            IpPrefix::V4(prefix) => self.insert4(prefix, id),
            IpPrefix::V6(prefix) => self.ipv6.insert(prefix, id),
        }
    }

    /// Takes a route away. Returns the next hop it had, `None` without such a route.
    pub fn remove(&mut self, prefix: IpPrefix) -> Result<Option<NextHopId>, EditError> {
        match prefix {
            IpPrefix::V4(prefix) => self.remove4(prefix),
            IpPrefix::V6(prefix) => self.ipv6.remove(prefix),
        }
    }

    fn insert4(
        &mut self,
        prefix: Ipv4Prefix,
        id: NextHopId,
    ) -> Result<Option<NextHopId>, EditError> {
        let is = is_own(self.next_hop(id));
        if is {
            self.own.add(prefix);
        }
        let outcome = self.ipv4.insert(prefix, id);
        match outcome {
            Ok(before) => {
                self.own.routed(id);
                self.lost(prefix, before);
            }
            Err(_) if is => self.own.remove(prefix),
            Err(_) => {}
        }
        outcome
    }

    fn remove4(&mut self, prefix: Ipv4Prefix) -> Result<Option<NextHopId>, EditError> {
        let before = self.ipv4.remove(prefix)?;
        self.lost(prefix, before);
        Ok(before)
    }

    /// A route has this id no more.
    fn lost(&mut self, prefix: Ipv4Prefix, id: Option<NextHopId>) {
        let Some(id) = id else { return };
        self.own.unrouted(id);
        if is_own(self.next_hop(id)) {
            self.own.remove(prefix);
        }
    }

    /// Fills the IPv4 table, which is empty. Returns the number of routes.
    pub fn load4(
        &mut self,
        routes: impl IntoIterator<Item = (Ipv4Prefix, NextHopId)>,
    ) -> Result<usize, EditError> {
        let TransitMut { ipv4, own, next_hops, .. } = self;
        // If it fails, unneeded bits stay: they cost a lookup.
        ipv4.load(routes.into_iter().inspect(|(prefix, id)| {
            own.routed(*id);
            if is_own(next_hops.get(*id)) {
                own.add(*prefix);
            }
        }))
    }

    /// Fills the IPv6 table, which is empty. Returns the number of routes.
    pub fn load6(
        &mut self,
        routes: impl IntoIterator<Item = (Ipv6Prefix, NextHopId)>,
    ) -> Result<usize, EditError> {
        self.ipv6.load(routes)
    }

    /// The next hop of exactly this prefix.
    pub fn route(&self, prefix: IpPrefix) -> Option<NextHopId> {
        match prefix {
            IpPrefix::V4(prefix) => self.ipv4.route(prefix),
            IpPrefix::V6(prefix) => self.ipv6.route(prefix),
        }
    }

    /// The route that `addr` takes.
    pub fn lookup(&self, addr: IpAddr) -> Option<(IpPrefix, NextHopId)> {
        match addr {
            IpAddr::V4(addr) => self.ipv4.lookup(addr).map(|(prefix, id)| (prefix.into(), id)),
            IpAddr::V6(addr) => self.ipv6.lookup(addr).map(|(prefix, id)| (prefix.into(), id)),
        }
    }

    /// All IPv4 routes, in the order of their prefixes.
    pub fn routes4(&self) -> impl Iterator<Item = (Ipv4Prefix, NextHopId)> {
        self.ipv4.routes()
    }

    /// All IPv6 routes: those up to /64 in the order of their prefixes, then the longer ones.
    pub fn routes6(&self) -> impl Iterator<Item = (Ipv6Prefix, NextHopId)> {
        self.ipv6.routes()
    }

    /// The number of routes, of IPv4 and of IPv6.
    pub fn routes_len(&self) -> (usize, usize) {
        (self.ipv4.routes_len(), self.ipv6.routes_len())
    }

    /// An id for a next hop; it leads nowhere yet. `None` when all are in use or wait.
    pub fn take_id(&mut self) -> Option<NextHopId> {
        let raw = u16::try_from(take(&mut self.ids)?).expect("ids are below 2^15");
        let id = NextHopId::new(raw).expect("0 was taken at the start");
        self.next_hops.set(id, NextHop::None);
        Some(id)
    }

    /// Gives back an id that no route has any more.
    ///
    /// # Panics
    ///
    /// When it is not in use: it would be two routes' next hop.
    pub fn retire_id(&mut self, id: NextHopId) {
        self.ids.retire(id.raw().into());
    }

    /// Sets what `id` means. All its routes follow at once. `Via` names a slot.
    pub fn set_next_hop(&mut self, id: NextHopId, next_hop: NextHop<u32>) {
        let (was, is) = (is_own(self.next_hop(id)), is_own(next_hop));
        let affected: Vec<Ipv4Prefix> = if was != is && self.own.has_routes(id) {
            self.ipv4.routes().filter(|route| route.1 == id).map(|route| route.0).collect()
        } else {
            Vec::new()
        };
        if is {
            affected.iter().for_each(|prefix| self.own.add(*prefix));
        }
        self.next_hops.set(id, next_hop);
        if was {
            affected.iter().for_each(|prefix| self.own.remove(*prefix));
        }
    }

    /// What `id` means.
    pub fn next_hop(&self, id: NextHopId) -> NextHop<u32> {
        self.next_hops.get(id)
    }

    /// A slot for a neighbour, unresolved. `None` when all are in use or wait.
    pub fn take_slot(&mut self) -> Option<u32> {
        let slot = take(&mut self.slots)?;
        // Its last neighbour's, which no reader has found since the slot's own grace period.
        self.replace_record(slot, NO_RECORD);
        Some(slot)
    }

    /// Says how a slot's neighbour is reached, or that it cannot be sent to. Packets see the former or this;
    /// flows of groups move to members that can be reached. `None` is never refused.
    pub fn set_slot(&mut self, slot: u32, way: Option<Adjacency>) -> Result<(), EditError> {
        if way == self.adjacency(slot) {
            return Ok(());
        }
        match way {
            Some(way) => {
                let record = self.write_record(&way)?;
                self.replace_record(slot, record);
                self.next_hops.set_resolved(slot, true);
            }
            None => {
                self.next_hops.set_resolved(slot, false);
                self.replace_record(slot, NO_RECORD);
            }
        }
        Ok(())
    }

    /// How a slot's neighbour is reached.
    pub fn adjacency(&self, slot: u32) -> Option<Adjacency> {
        let record = self.record_of.load(slot as usize);
        if record == NO_RECORD {
            return None;
        }
        let first = record as usize * RECORD_WORDS;
        let words = std::array::from_fn(|place| self.records.load(first + place));
        Some(Adjacency::of(&words))
    }

    /// Gives back a slot that nothing leads to any more. The slot keeps its record until another neighbour has it, for
    /// packets that are on their way to it.
    ///
    /// # Panics
    ///
    /// When it is not in use: it would be two neighbours'.
    pub fn retire_slot(&mut self, slot: u32) {
        self.slots.retire(slot);
    }

    /// Makes a group, to which no next hop leads yet.
    ///
    /// # Panics
    ///
    /// With no or more than [`MEMBERS_MAX`](crate::nexthop::MEMBERS_MAX) members, two of one slot, or a weight of 0.
    pub fn add_group(&mut self, members: &[Member]) -> Result<GroupId, GroupsFull> {
        let record_of = &self.record_of;
        self.next_hops.add_group(members, |slot| record_of.load(slot as usize) != NO_RECORD)
    }

    /// Gives a group other members, or weights. Only the flows move that must.
    ///
    /// # Panics
    ///
    /// As [`TransitMut::add_group`], and without such a group.
    pub fn set_members(&mut self, group: GroupId, members: &[Member]) {
        let record_of = &self.record_of;
        let has_address = |slot: u32| record_of.load(slot as usize) != NO_RECORD;
        self.next_hops.set_members(group, members, has_address);
    }

    /// A group's members, and how many of its buckets each has at present.
    pub fn members(&self, group: GroupId) -> impl Iterator<Item = (Member, usize)> {
        self.next_hops.members(group)
    }

    /// Takes a group away that no next hop leads to any more.
    ///
    /// # Panics
    ///
    /// Without such a group.
    pub fn remove_group(&mut self, group: GroupId) {
        self.next_hops.remove_group(group);
    }

    /// Says what a port is. Its flags are the last that is seen of it; where interface or MAC address
    /// change, nothing may be done there until they have.
    ///
    /// # Panics
    ///
    /// Without such a port; port 0 is none.
    pub fn set_port(&mut self, port: u16, facts: PortRecord) {
        assert!((1..PORTS).contains(&usize::from(port)), "port {port} of {PORTS}");
        let at = usize::from(port) * PORT_WORDS;
        let former = self.port(port);
        if (former.ifindex, former.mac) != (facts.ifindex, facts.mac) {
            let [a, b, c, d, e, f] = facts.mac.0;
            self.ports.publish(at + port::FLAGS, 0);
            self.ports.publish(at + port::INTERFACE, facts.ifindex);
            self.ports.publish(at + port::MAC, u32::from_ne_bytes([a, b, c, d]));
            self.ports.publish(at + port::MAC + 1, u32::from_ne_bytes([e, f, 0, 0]));
        }
        self.ports.publish(at + port::FLAGS, facts.flags);
    }

    /// What a port is.
    pub fn port(&self, port: u16) -> PortRecord {
        let word = |place: usize| self.ports.load(usize::from(port) * PORT_WORDS + place);
        let mac = mac([word(port::MAC), word(port::MAC + 1)]);
        PortRecord { flags: word(port::FLAGS), ifindex: word(port::INTERFACE), mac }
    }

    /// Says which port a VLAN of a port is: by a tag of 802.1ad (`is_service`), or of 802.1Q.
    ///
    /// # Panics
    ///
    /// Without such a port or VLAN.
    pub fn set_vlan(&mut self, parent: u16, is_service: bool, vlan: u16, port: Option<u16>) {
        assert!(
            usize::from(parent) < PORTS && usize::from(vlan) < VLANS,
            "VLAN {vlan} of {parent}"
        );
        let at = layout::vlan(parent, is_service, vlan);
        self.vlan_port.publish(at, port.unwrap_or(0));
    }

    /// Says which port an interface is. False when its index is too large for that, see
    /// [`layout::INTERFACES`].
    #[must_use = "an interface with too large an index stays in the kernel"]
    pub fn set_port_of(&mut self, ifindex: u32, port: Option<u16>) -> bool {
        let has_place = (ifindex as usize) < INTERFACES;
        if has_place {
            self.port_of.publish(ifindex as usize, port.unwrap_or(0));
        }
        has_place
    }

    /// Hands out the writer of the flow table; one exists. The seed must not change any more.
    pub fn take_flows(&mut self) -> Option<FlowsMut> {
        let seed = self.control.load(control::SEED);
        self.flows.take().map(|words| FlowsMut::new(words, self.domain.clone(), seed))
    }

    /// Says which packets are forwarded only with a flow, and which generation of flows they may follow. Another
    /// generation stops all flows at once.
    pub fn set_flows(&mut self, required: Required, generation: u32) {
        self.control.publish(control::FLOWS, required.word(generation));
    }

    /// Hands out the writer of the lease; one exists.
    pub fn take_lease(&mut self) -> Option<LeaseMut> {
        self.lease.take()
    }

    /// As [`LeaseMut::set`].
    ///
    /// # Panics
    ///
    /// When the lease has been taken.
    pub fn set_lease(&mut self, until_ns: u64, until_ticks: u64) {
        let lease = self.lease.as_mut().expect("the lease has been taken");
        lease.set(until_ns, until_ticks);
    }

    /// Divides flows among members of groups by another seed.
    pub fn set_seed(&mut self, seed: u64) {
        self.next_hops.set_seed(seed);
        self.control.publish(control::SEED, seed);
    }

    /// Says what may be done about groups.
    pub fn set_multipath(&mut self, multipath: Multipath) {
        self.control.publish(control::MULTIPATH, multipath.bits());
    }

    /// Routes a family's packets by these rules, in this order; without rules, by the tables of the usual rules, which
    /// are one here.
    ///
    /// # Panics
    ///
    /// With more than [`layout::RULES`] rules.
    pub fn set_rules(&mut self, is_ipv6: bool, rules: &[Rule]) -> Result<(), EditError> {
        self.policy.set_rules(is_ipv6, rules, &mut self.control)
    }

    /// The rules of a family, as they were set last.
    pub fn rules(&self, is_ipv6: bool) -> &[Rule] {
        self.policy.rules(is_ipv6)
    }

    /// A further table, without routes, for one family. `None` when all are in use or wait.
    pub fn take_table(&mut self) -> Option<TableNumber> {
        self.policy.take_table()
    }

    /// Makes a further table have these routes, each prefix once. Refused, it is as it was.
    pub fn set_table(
        &mut self,
        table: TableNumber,
        routes: impl IntoIterator<Item = (IpPrefix, NextHopId)>,
    ) -> Result<(), EditError> {
        self.policy.set_table(table, &mut routes.into_iter())
    }

    /// Gives back a further table that no rule leads to any more. Refused while too much waits.
    ///
    /// # Panics
    ///
    /// When it is not in use.
    pub fn retire_table(&mut self, table: TableNumber) -> Result<(), EditError> {
        self.policy.retire_table(table)
    }

    /// A readers' side, which decides as the program does.
    pub fn reader(&self) -> Transit {
        Transit {
            ipv4: self.ipv4.reader(),
            ipv6: self.ipv6.reader(),
            next_hops: self.next_hops.reader(),
            record_of: self.record_of.reader(),
            records: self.records.reader(),
            ports: self.ports.reader(),
            port_of: self.port_of.reader(),
            vlan_port: self.vlan_port.reader(),
            control: self.control_reader.clone(),
            flows: Some(self.flows_reader.clone()),
            policy: self.policy.reader(),
        }
    }

    /// Takes back what has had its grace period, and begins one for what was retired since. After each
    /// pass of edits, and whenever a grace period is over.
    pub fn reclaim(&mut self) {
        self.ipv4.reclaim();
        self.ipv6.reclaim();
        self.next_hops.reclaim();
        self.policy.reclaim();
        for numbers in [&mut self.ids, &mut self.slots, &mut self.record_numbers] {
            numbers.reclaim();
        }
    }

    /// How much waits for a grace period: while anything does, the caller has to run one.
    pub fn waiting(&self) -> usize {
        let numbers = [&self.ids, &self.slots, &self.record_numbers].map(waiting);
        let tables = [self.ipv4.waiting(), self.ipv6.waiting(), self.next_hops.waiting()];
        numbers.into_iter().chain(tables).chain([self.policy.waiting()]).sum()
    }

    /// Writes a record that no reader finds yet.
    fn write_record(&mut self, way: &Adjacency) -> Result<u32, EditError> {
        let Some(number) = take(&mut self.record_numbers) else {
            // Records are twice as many as slots: those that are not in use wait.
            let waiting = waiting(&self.record_numbers);
            let waiting_max = RECORDS - self.record_numbers.levels().in_use;
            return Err(EditError::Busy { waiting, waiting_max });
        };
        self.stamp = self.stamp.wrapping_add(1);
        let mut words = [0; RECORD_WORDS];
        words[record::EGRESS_INTERFACE] = way.egress_ifindex;
        words[record::EGRESS_PORT] = way.egress_port.into();
        words[record::MTU] = way.mtu;
        words[record::ADDRESSES..record::ADDRESSES + 3]
            .copy_from_slice(&address_words(way.destination, way.source));
        record::STAMPS.into_iter().for_each(|place| words[place] = self.stamp);
        for (at, word) in (number as usize * RECORD_WORDS..).zip(words) {
            // Relaxed: invariant 2. A reader that finds the number has loaded it after `replace_record` published it.
            self.records.store(at, word);
        }
        Ok(number)
    }

    /// Lets readers find another record for a slot. The former one waits.
    fn replace_record(&mut self, slot: u32, number: u32) {
        let former = self.record_of.load(slot as usize);
        self.record_of.publish(slot as usize, number);
        if former != NO_RECORD {
            self.record_numbers.retire(former);
        }
    }
}

/// A free number, if one is free by now.
pub(super) fn take(numbers: &mut Slots) -> Option<u32> {
    if numbers.levels().free == 0 {
        numbers.reclaim();
    }
    numbers.take()
}

fn waiting(numbers: &Slots) -> usize {
    let levels = numbers.levels();
    levels.retired + levels.in_flight
}

/// The twelve bytes in front of an Ethernet frame, as a record holds them.
fn address_words(destination: Mac, source: Mac) -> [u32; 3] {
    let ([a, b, c, d, e, f], [g, h, i, j, k, l]) = (destination.0, source.0);
    [[a, b, c, d], [e, f, g, h], [i, j, k, l]].map(u32::from_ne_bytes)
}

/// Destination and source of these words.
fn macs(words: [u32; 3]) -> [Mac; 2] {
    let [[a, b, c, d], [e, f, g, h], [i, j, k, l]] = words.map(u32::to_ne_bytes);
    [Mac([a, b, c, d, e, f]), Mac([g, h, i, j, k, l])]
}

/// The MAC address of these words of a port.
pub(super) fn mac(words: [u32; 2]) -> Mac {
    let [[a, b, c, d], [e, f, ..]] = words.map(u32::to_ne_bytes);
    Mac([a, b, c, d, e, f])
}
